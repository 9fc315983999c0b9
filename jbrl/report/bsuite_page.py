"""The report of bsuite logs: one page, its figures and tables beside it, a page for a paper."""

import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from jbrl import __version__
from jbrl.analysis.bsuite import curves, scores, two_agents
from jbrl.analysis.bsuite.logs import Logs
from jbrl.analysis.bsuite.measures import RELEASES
from jbrl.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, Experiment
from jbrl.report import bsuite_figures as figures
from jbrl.report import bsuite_words as words
from jbrl.report.content import (
    Block,
    Cell,
    Chapter,
    Column,
    Document,
    Items,
    Paragraph,
    Plot,
    Row,
    Span,
    Table,
    Words,
)
from jbrl.report.figures import Drawing
from jbrl.report.files import plots_of, writing
from jbrl.report.html import render
from jbrl.report.style import LOOK, styles
from jbrl.report.svg import alone
from jbrl.report.text import ABSENT, count, listing

DPI = 150
ABREAST = 3  # agents from whose number on tables have no place for intervals
LEARNING = (
    "Average regret per episode so far against the number of episodes, both as logged: mean over "
    "settings and runs, with a 95% band. "
)


def write_report(
    logs: Logs, out: Path, release: str = RELEASES[0], *, latex: bool = False
) -> list[Path]:
    """Write the page `index.html`, `scores.csv`, `tags.csv`, `tests.csv`, and `figures`.

    Every figure is there as SVG, PNG and as CSV with the numbers it shows.

    Args:
      release: whose rules count.
      latex: the folder `latex` as well: `report.tex`, one page for an appendix, with its figures.

    Returns:
      Paths of the page and of the LaTeX source.

    Raises:
      JbrlError: `out` cannot be written, or no such release.
    """
    report = document(logs, release)
    tables = {
        "scores": scores.summary(logs, release, intervals=True),
        "tags": scores.tag_scores(logs, release, intervals=True),
        "tests": two_agents.compare(logs, release),
    }
    with writing(out):
        folder = out / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
        for plot in plots_of(report):
            _hand_out(plot, folder)
        (out / "index.html").write_text(render(report, {}), encoding="utf-8")
        paths = [out / "index.html"]
        if latex:
            paths.append(_write_latex(logs, release, out / "latex"))
    return paths


def document(logs: Logs, release: str = RELEASES[0]) -> Document:
    """Return the report as chapters: summary, experiments, how to read it."""
    looks = styles(logs.agents)
    table = scores.summary(logs, release, intervals=True)
    tags = scores.tag_scores(logs, release, intervals=True)
    chapters = [_summary(logs, table, tags, looks)]
    if len(logs.agents) > 1:
        chapters.append(_tests(two_agents.compare(logs, release)))
    ordered = sorted(logs.experiments, key=figures.BARS.index)
    chapters += [_experiment(logs, EXPERIMENTS[n], table, release, looks) for n in ordered]
    chapters.append(_reading(release))
    return Document(
        title=_title(logs.agents),
        kind="Behaviour Suite",
        facts=_facts(logs, release),
        notices=tuple(_notices(logs)),
        chapters=tuple(chapters),
        styles=looks,
        version=__version__,
    )


def _title(agents: Sequence[str]) -> str:
    return f"bsuite: {listing(agents) if len(agents) <= 3 else count(len(agents), 'agent')}"


def _facts(logs: Logs, release: str) -> tuple[str, ...]:
    ids = len({run.bsuite_id for run in logs.runs})
    return (
        count(len(logs.agents), "agent"),
        f"{ids} of {len(SWEEP)} settings",
        count(len(logs.runs), "run"),
        f"scores of release {release}",
    )


def _notices(logs: Logs) -> Iterator[Paragraph]:
    texts = [*logs.problems, *scores.incomplete(logs), *logs.notes, *scores.unfinished(logs)]
    for text in texts[:12]:
        yield Paragraph((f"{text[0].upper()}{text[1:]}.",), "notice")
    if len(texts) > 12:
        yield Paragraph((f"{len(texts) - 12} more of that kind.",), "notice")


def _summary(logs: Logs, table: pd.DataFrame, tags: pd.DataFrame, looks: figures.Styles) -> Chapter:
    blocks: list[Block] = [Paragraph(_verdict(tags), "verdict")]
    names = sorted(set(table["bsuite_env"]), key=figures.BARS.index)
    if len(logs.agents) > figures.CROWD:
        crowd = f"{len(logs.agents)} agents: lines of the radar hide each other beyond five; the "
        blocks.append(Paragraph((crowd + "rows beside it do not.",), "setup"))
    blocks += [
        _plot(
            "radar",
            "Radar",
            "Mean score of the experiments that carry a tag. Scores below 0.05 are drawn at 0.05. "
            "A hollow symbol: some of these experiments are not there or not finished.",
            figures.radar(tags, looks),
        ),
        _plot(
            "tags",
            "Tags in rows",
            "The same scores. Bars are 95% intervals over runs, where every setting was played "
            "several times.",
            figures.tag_lines(tags, looks),
        ),
        Paragraph(
            (
                "Bars of one colour are of one type. The dashed line is the best possible score; "
                "strokes are 95% intervals over runs, where settings were played several times.",
            ),
            "key",
        ),
        _plot(
            "bars",
            "Scores of all experiments",
            "Hatched: not finished. A dash: no score.",
            figures.bars(table),
        ),
        _table("scores", "Scores", "Experiment", table.set_index("bsuite_env"), names),
        _table("tag-scores", "Means of tags", "Tag", tags.set_index("tag"), TAGS),
        Paragraph(
            (
                "As files beside this page: ",
                Span("scores.csv", target="scores.csv"),
                ", ",
                Span("tags.csv", target="tags.csv"),
                ", ",
                Span("tests.csv", target="tests.csv"),
                ".",
            ),
            "key",
        ),
    ]
    return Chapter("summary", "Summary", tuple(blocks))


def _verdict(tags: pd.DataFrame) -> Words:
    """Return the best and the worst tag of one agent, or the best agent of each tag."""
    agents = list(dict.fromkeys(tags["agent"]))
    known = tags[tags["score"].notna()]
    if len(agents) == 1:
        if known.empty:
            return ("No score is known.",)
        ordered = known.sort_values("score", ascending=False)
        best, worst = ordered.iloc[0], ordered.iloc[-1]
        return (
            Span(agents[0], "strong", agents[0]),
            f" does best in {figures.words(best['tag'])} ({best['score']:.2f}) and worst in "
            f"{figures.words(worst['tag'])} ({worst['score']:.2f}).",
        )
    found: dict[str, list[str]] = {}
    for tag in TAGS:
        rows = known[known["tag"] == tag]
        if len(rows):
            leader = str(rows.loc[rows["score"].idxmax(), "agent"])
            found.setdefault(leader, []).append(figures.words(tag))
    parts: list[Span | str] = ["Highest tag scores: "]
    for k, (agent, names) in enumerate(found.items()):
        parts += ["; " if k else "", Span(agent, "strong", agent), f" in {listing(names)}"]
    return (*parts, ".")


def _table(id_: str, title: str, head: str, scores: pd.DataFrame, names: Sequence[str]) -> Table:
    """Return experiments or tags in rows, agents in columns; `scores` has the former in its
    index.
    """
    agents = list(dict.fromkeys(scores["agent"]))
    by_agent = {agent: scores[scores["agent"] == agent] for agent in agents}
    rows = []
    for name in names:
        cells = [_cell(by_agent[agent].loc[name], len(agents) <= ABREAST) for agent in agents]
        label = Cell(name if name in EXPERIMENTS else figures.words(name).capitalize())
        rows.append(Row((label, *_marked(cells))))
    heads = [
        Column(textwrap.shorten(agent, 20, placeholder="…"), "number", hint=agent)
        for agent in agents
    ]
    return Table(id_, title, (Column(head), *heads), tuple(rows), sortable=True)


def _cell(row: pd.Series, interval: bool) -> Cell:
    """Return a score with its interval; an asterisk where it is not finished."""
    if not np.isfinite(row["score"]):
        return Cell(ABSENT, float("nan"), standing="none")
    text = f"{row['score']:.3f}" + ("" if row["finished"] else "*")
    known = interval and np.isfinite(row["lower"]) and np.isfinite(row["upper"])
    small = f" ({row['lower']:.2f}–{row['upper']:.2f})" if known else ""
    return Cell(text, float(row["score"]), small=small)


def _marked(cells: Sequence[Cell]) -> list[Cell]:
    """Return a row with its highest score in bold, where there are several."""
    values = [cell.value for cell in cells if isinstance(cell.value, float)]
    known = [value for value in values if np.isfinite(value)]
    if len(cells) < 2 or not known or max(known) == min(known):
        return list(cells)
    return [
        Cell(c.text, c.value, strong=True, small=c.small) if c.value == max(known) else c
        for c in cells
    ]


def _tests(tests: pd.DataFrame) -> Chapter:
    """Describe pairs of agents: in how many experiments they differ, and all p-values."""
    pairs = list(tests.groupby(["agent", "other"], sort=False))
    items = []
    for (agent, other), rows in pairs:
        better = rows[rows["differs"] & (rows["difference"] > 0)]
        worse = rows[rows["differs"] & (rows["difference"] < 0)]
        known = int(rows["p_value"].notna().sum())
        items.append(
            (
                Span(str(agent), algorithm=str(agent)),
                " against ",
                Span(str(other), algorithm=str(other)),
                f": better in {len(better)} experiments, worse in {len(worse)}, no sure "
                f"difference in {known - len(better) - len(worse)}"
                + (f", not finished in {len(rows) - known}" if known < len(rows) else "")
                + ".",
            )
        )
    table = Table(
        "tests",
        "All tests",
        (
            Column("Experiment"),
            Column("Agents"),
            Column("Difference", "number"),
            Column("p", "number", hint="two-sided, not corrected"),
            Column("Differs", "chip", hint="with Holm's correction over a pair's experiments"),
        ),
        tuple(_test_row(row) for row in tests.to_dict("records")),
        sortable=True,
        long=len(tests) > 30,
    )
    words_: Words = (
        "Names are exchanged at random between the runs of equal settings: if two agents behave "
        "alike, that changes nothing. Differs: p is small enough at 5% with Holm's correction over "
        "the experiments of a pair.",
    )
    return Chapter(
        "tests-of-agents",
        "Which differences are sure",
        (Paragraph(words_), Items(tuple(items)), table),
    )


def _test_row(row: Mapping[str, Any]) -> Row:
    known = np.isfinite(row["p_value"])
    return Row(
        (
            Cell(str(row["bsuite_env"])),
            Cell(f"{row['agent']} and {row['other']}"),
            Cell(
                f"{row['difference']:+.3f}".replace("-", "−") if known else ABSENT,
                row["difference"],
            ),
            Cell(f"{row['p_value']:.2g}" if known else ABSENT, row["p_value"]),
            Cell("differs" if row["differs"] else "", standing="best"),
        )
    )


def _experiment(
    logs: Logs,
    rules: Experiment,
    table: pd.DataFrame,
    release: str,
    looks: figures.Styles,
) -> Chapter:
    """Describe one experiment: its task, its score, its plots."""
    rows = table[table["bsuite_env"] == rules.name].drop(columns="bsuite_env")
    blocks: list[Block] = [
        Paragraph((f"{words.facts(rules)}.",), "setup"),
        Paragraph((words.text(rules),)),
        Paragraph((Span("Score. ", "strong"), words.rule(rules))),
        _plot(
            f"{_id(rules)}-score",
            "Score",
            "Hollow: not finished. Bars are 95% intervals over runs, where there are several of "
            "each setting.",
            figures.single(rows, looks),
        ),
        *_details(logs, rules, release, looks),
    ]
    return Chapter(_id(rules), words.title(rules), tuple(blocks), "experiment")


def _details(logs: Logs, rules: Experiment, release: str, looks: figures.Styles) -> Iterator[Plot]:
    """Yield the detail plots of an experiment, by its family."""
    name, id_ = rules.name, _id(rules)
    raw = curves.regrets(logs, name)
    about = words.FAMILIES[rules.family].regret
    if rules.family == "deep_sea":
        yield from _deep_sea(logs, rules, release, looks, raw)
    elif rules.family in curves.THRESHOLDS:
        swingup = rules.family == "cartpole_swingup"
        yield _plot(
            f"{id_}-learning",
            "Learning",
            f"Average regret so far of each setting, by {figures.level_words(rules)}. {about}",
            figures.raw_lines(raw, rules, looks, "average regret"),
        )
        values = curves.bests(logs, name) if swingup else curves.final_regrets(logs, name)
        above = "above" if swingup else "below"
        yield _plot(
            f"{id_}-scale",
            "Which settings are solved",
            f"Full symbols: {above} the dashed line, which counts for the score.",
            figures.scaling(values, rules, looks),
        )
    elif rules.wrapper or rules.family == "discounting_chain":
        means = curves.mean_curves(raw)
        yield _plot(
            f"{id_}-learning",
            "Learning",
            f"{LEARNING.replace(', with a 95% band', '')}{about}",
            figures.by_level(means, rules),
        )
        yield _plot(
            f"{id_}-average",
            "Average regret at the end",
            "By level, with 95% intervals over runs.",
            figures.average(curves.final_regrets(logs, name), rules, looks),
        )
    else:
        yield _plot(
            f"{id_}-learning",
            "Learning",
            f"{LEARNING}{about} Dashed: a score of 0.",
            figures.learning(curves.mean_curves(raw), rules, looks),
        )
    yield _plot(
        f"{id_}-seeds",
        "Every run",
        _returns_words(rules),
        figures.raw_lines(curves.returns(logs, name), rules, looks, "average return"),
    )


def _deep_sea(
    logs: Logs,
    rules: Experiment,
    release: str,
    looks: figures.Styles,
    raw: pd.DataFrame,
) -> Iterator[Plot]:
    id_ = _id(rules)
    shown = raw[raw["level"].isin(curves.SHOWN_SIZES)]
    if len(shown):
        yield _plot(
            f"{id_}-learning",
            "Learning",
            "Share of bad episodes so far, for some sizes. Dashed: 0.99.",
            figures.by_level(curves.mean_curves(shown), rules),
        )
    solved = curves.solutions(logs, rules.name, release)
    for kind, logarithmic in (("linear", False), ("logarithmic", True)):
        yield _plot(
            f"{id_}-{kind}",
            f"Episodes until solved, {kind}",
            "Hollow: not solved by the last episode. Dashed: 2^N, what dithering needs.",
            figures.solving(solved, looks, logarithmic=logarithmic),
        )


def _returns_words(rules: Experiment) -> str:
    what = {
        "mnist": "Accuracy",
        "memory_chain": "Share of right answers",
        "umbrella_chain": "Average last reward",
        "deep_sea": "Share of episodes that found the treasure",
    }.get(rules.family, "Average return of the episodes")
    clean = " without noise and scale" if rules.wrapper else ""
    return f"{what} between two logged episodes{clean}, every setting and run. Dashed: the best."


def _reading(release: str) -> Chapter:
    items: tuple[Words, ...] = (
        (
            Span("Scores ", "strong"),
            f"are those of release {release} of the original, from 0 to 1; not every experiment "
            "gives 0 to a random agent or 1 to a perfect one.",
        ),
        (
            Span("Several runs. ", "strong"),
            "Where settings were played several times, a score is the mean over whole sweeps, one "
            "run of each setting. Intervals are 95% percentile bootstraps: runs are drawn again "
            "within equal settings.",
        ),
        (
            Span("Not finished ", "strong"),
            "(*, hollow, hatched): some settings are missing or have fewer episodes than the "
            "experiment has. Scores are then what the original computes from such logs.",
        ),
        (
            Span("Tables ", "strong"),
            "are sorted by a click on a heading. Under each figure there are links to its numbers "
            "and its files.",
        ),
        (
            Span("Source. ", "strong"),
            "Osband et al. 2020, Behaviour Suite for Reinforcement Learning, ICLR.",
        ),
    )
    return Chapter("reading", "How to read this page", (Items(items),))


def _plot(id_: str, title: str, caption: str, drawing: Drawing) -> Plot:
    files = tuple(f"figures/{id_}.{ending}" for ending in ("csv", "svg", "png"))
    return Plot(id_, title, caption, drawing.note, drawing, files)


def _id(rules: Experiment) -> str:
    return rules.name.replace("_", "-")


def _hand_out(plot: Plot, folder: Path) -> None:
    """Write a figure as SVG and PNG, its numbers as CSV."""
    plot.data.to_csv(folder / f"{plot.id}.csv", index=False, lineterminator="\n")
    (folder / f"{plot.id}.svg").write_text(alone(plot.drawing.figure), encoding="utf-8")
    _save(plot.drawing.figure, folder / f"{plot.id}.png")


def _save(figure: Figure, path: Path) -> None:
    nothing = (
        {"Software": None}
        if path.suffix == ".png"
        else dict.fromkeys(("CreationDate", "Creator", "Producer"))
    )
    with mpl.rc_context(LOOK | {"pdf.fonttype": 42}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure.savefig(path, dpi=DPI, facecolor="white", metadata=nothing)


def _write_latex(logs: Logs, release: str, out: Path) -> Path:
    """Write one page: radar, bars, the tag scores and what was run; return the path of its
    source.
    """
    from jbrl.report.latex import templates

    looks = styles(logs.agents)
    table, tags = scores.summary(logs, release, intervals=True), scores.tag_scores(logs, release)
    (out / "images").mkdir(parents=True, exist_ok=True)
    _save(figures.radar(tags, looks).figure, out / "images" / "radar_plot.pdf")
    _save(figures.bars(table).figure, out / "images" / "bar_plot.pdf")
    rows = {
        agent: [_number(rows.set_index("tag")["score"][tag]) for tag in TAGS]
        for agent, rows in tags.groupby("agent", sort=False)
    }
    source = (
        templates()
        .get_template("bsuite.tex")
        .render(
            agents=logs.agents,
            listed=listing(logs.agents),
            facts=_facts(logs, release),
            tags=[figures.words(tag) for tag in TAGS],
            rows=rows,
            unfinished=[text[0].upper() + text[1:] for text in scores.unfinished(logs)],
            release=release,
            version=__version__,
        )
    )
    (out / "report.tex").write_text(source, encoding="utf-8")
    return out / "report.tex"


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else ABSENT
