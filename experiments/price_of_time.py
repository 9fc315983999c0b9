"""Draw which algorithm is best within limits of offline time and latency, on GC of 3 to 10 states
and on three other families, and tabulate it on docs/which-agent.md, with the published comparison;
print what an algorithm loses that is chosen on other families.

python experiments/price_of_time.py [DIR] [--add]

DIR holds results of experiments/price-of-time.toml: they are archived in
experiments/published/price-of-time, or, with --add, added to what is kept there. Without DIR,
figure and table are made from what is kept. The published comparison is kept in
experiments/published/paper-cpu.
"""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

sys.path.insert(0, str(Path(__file__).parents[1]))

import jbrl
from experiments import features, paper_cpu
from jbrl.problems.features import ProblemFeatures
from jbrl.report import axes as parts
from jbrl.report.html import alone
from jbrl.report.sections import Section
from jbrl.report.text import seconds_text
from jbrl.stats.time_bounds import CALL, Contest, stepped

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments/published/price-of-time"
PAGE = ROOT / "docs/which-agent.md"
FIGURE = ROOT / "docs/_static/price-of-time.svg"
MARKS = ("<!-- price -->\n", "<!-- end price -->")
LIMITS = ((2e-5, 4e-3), (1e-1, 300.0))  # seconds: of the axes, latency and offline time
OFFLINE, LATENCY = (0.0, 15.0, 300.0), 1e-3  # limits of the table, seconds
COLUMNS = 4


def contests(sections: list[Section]) -> dict[str, Contest]:
    """Return the agents of each problem with their times. The latency of an agent is the least of
    those of all problems: calls are mostly dispatch, and other programs were running.
    """
    agent = ["algorithm", "parameters"]
    timed = pd.concat([section.timed for section in sections])
    least = timed.groupby(agent)["latency_seconds"].min()
    found = {}
    for section in sections:
        rows = section.choice.scores
        latency = least.loc[pd.MultiIndex.from_frame(rows[agent])].to_numpy()
        found[section.name] = Contest(rows.assign(online_seconds=stepped(latency)), section.returns)
    return found


def compared(sections: list[Section]) -> dict[str, Contest]:
    """Return the agents of the published comparison. No latency was measured: a decision takes what
    it does among many, or a call if that is more. Formulas that other agents have found are left
    out, and what the published program computes.
    """
    found = {}
    for section in sections:
        rows = section.choice.scores
        names = rows["algorithm"]
        rows = rows[~names.str.endswith(paper_cpu.PROGRAM) & (names != "Formula")]
        seconds = stepped(rows["online_seconds"].to_numpy(), CALL)
        found[section.name] = Contest(rows.assign(online_seconds=seconds), section.returns)
    return found


def told(problem: str) -> str:
    """Return the prior of an experiment: of the published comparison or that of the problem."""
    test = problem.removesuffix(features.WRONG)
    return problem if test == problem else f"U{test}"


@functools.cache
def described(problem: str) -> ProblemFeatures:
    """Return the features of a problem."""
    return jbrl.problem_features(problem)


def shares(contests: dict[str, Contest], offline: float) -> pd.DataFrame:
    """Return the share of the way from acting at random to knowing the MDP that the best agent of
    each algorithm goes within the limits, for algorithms that keep them in all problems: columns
    `problem`, `agent`, `share`, and the features of the prior.
    """
    rows = []
    for problem, contest in contests.items():
        kept = (contest.times("online") <= LATENCY) & (contest.times("offline") <= offline)
        means = pd.Series(contest.means).groupby(contest.scores["algorithm"].where(kept)).max()
        played = described(problem.removesuffix(features.WRONG))
        own = dataclasses.asdict(described(told(problem)))
        numbers = {name: own[name] for name in features.SHOWN}
        for agent, mean in means.items():
            share = (mean - played.random) / (played.clairvoyant - played.random)
            rows.append({"problem": problem, "agent": agent, "share": share} | numbers)
    table = pd.DataFrame(rows)
    return table[table.groupby("agent")["problem"].transform("nunique") == len(contests)]


def regions(contest: Contest) -> pd.DataFrame:
    """Return the winners between neighbouring times, where nothing changes: a row for each pair of
    lower ends `latency` and `offline` (seconds), `winners` with the best first, none if no agent
    is as quick.
    """
    rows = [
        (latency, offline, contest.winners({"online": latency, "offline": offline}).algorithms)
        for offline in np.unique(contest.times("offline"))
        for latency in np.unique(contest.times("online"))
    ]
    return pd.DataFrame(rows, columns=["latency", "offline", "winners"])


@parts.drawn
def figure(contests: dict[str, Contest]) -> parts.Drawing:
    """Draw a panel for each problem: the colour of the best algorithm, stripes of the next one
    that is tied with it.
    """
    maps = {name: regions(contest) for name, contest in contests.items()}
    looks = parts.styles(sorted(next(iter(contests.values())).scores["algorithm"].unique()))
    rows = len(maps) // COLUMNS
    height = 0.8 + 2.2 * rows
    drawing = parts.Drawing(Figure(figsize=(2 * parts.WIDTH, height)), wide=True)
    panels = drawing.figure.subplots(rows, COLUMNS, sharex=True, sharey=True)
    for panel, (name, table) in zip(panels.flat, maps.items(), strict=True):
        _panel(panel, table, looks)
        panel.set_title(name, fontsize=9.6)
    drawing.figure.supxlabel("limit of latency", fontsize=9.6, y=0.1 / height)
    drawing.figure.supylabel("limit of offline time", fontsize=9.6)
    shown = [
        name
        for name in looks
        if any(name in winners[:2] for table in maps.values() for winners in table["winners"])
    ]
    top = parts.legend(drawing.figure, shown, looks)
    drawing.figure.subplots_adjust(left=0.08, right=0.98, wspace=0.08, hspace=0.22)
    drawing.figure.subplots_adjust(bottom=0.57 / height, top=top - 0.31 / height)
    return drawing


def _panel(axes: Axes, table: pd.DataFrame, looks: parts.Styles) -> None:
    """Draw a rectangle for each pair of times, up to the next ones."""
    (left, right), (low, high) = np.log10(LIMITS)
    ends = {}
    for name, first, last in (("latency", left, right), ("offline", low, high)):
        times = np.unique(table[name])
        starts = np.maximum(np.log10(np.maximum(times, 1e-12)), first)
        ends[name] = dict(zip(times, zip(starts, [*starts[1:], last], strict=True), strict=True))
    for latency, offline, winners in table.itertuples(index=False):
        if not winners:
            continue
        (x, x_end), (y, y_end) = ends["latency"][latency], ends["offline"][offline]
        look: dict[str, Any] = {"facecolor": looks[winners[0]].colour, "linewidth": 0}
        if len(winners) > 1:
            look |= {"edgecolor": looks[winners[1]].colour, "hatch": parts.HATCH}
        axes.add_patch(Rectangle((x, y), x_end - x, y_end - y, **look))
    axes.set(xlim=(left, right), ylim=(low, high))
    parts.duration_ticks(axes.xaxis, left, right, most=3)
    parts.duration_ticks(axes.yaxis, low, high, most=5)
    axes.tick_params(labelsize=8.2)


def table(contests: dict[str, Contest]) -> str:
    """Return the table of the page: the winners within some limits."""
    heads = [f"{seconds_text(limit) if limit else 'nothing'} before" for limit in OFFLINE]
    lines = [f"| problem | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for problem, contest in contests.items():
        cells = [
            ", ".join(contest.winners({"online": LATENCY, "offline": limit}).algorithms)
            for limit in OFFLINE
        ]
        lines.append(f"| `{problem}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Keep the results named; draw the figure and write the table."""
    paper_cpu.keep_named(__doc__, KEPT)
    found = contests(jbrl.Results(KEPT).sections())
    FIGURE.write_text(alone(figure(found).figure), encoding="utf-8")
    found |= compared(jbrl.Results(paper_cpu.KEPT).sections())
    for limit in OFFLINE:
        lost = features.lost(shares(found, limit))
        print(f"{limit:g} s before: " + ", ".join(f"{k} {100 * v:.1f} %" for k, v in lost.items()))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{table(found)}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
