"""Figures of results, as Matplotlib axes that may be changed and saved.

    import jbrl.plot

    axes = jbrl.plot.scores(results)
    axes.figure.savefig("scores.pdf")

The marks are those of the report. In a notebook, figures show below the cell that draws them.
"""

import io
import sys
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jbrl.base.errors import JbrlError, check_choice, check_count, expect, nearest, shown
from jbrl.base.notebook import running
from jbrl.report import figures
from jbrl.report.axes import (
    COLOURS,
    HATCH,
    WIDTH,
    Drawing,
    Style,
    duration_ticks,
    in_look,
    interval,
    rows_panel,
    styles,
)
from jbrl.report.sections import Section
from jbrl.stats.time_bounds import winners_by_bound

TIMES = {
    "online": figures.score_against_online_time,
    "offline": figures.score_against_offline_time,
    "latency": figures.score_against_latency,
}


@runtime_checkable
class HasSections(Protocol):
    """A source of experiments, for example `jbrl.Results`."""

    def sections(self) -> list[Section]: ...


def scores(results: HasSections, experiment: str | None = None, *, agents: str = "best") -> Axes:
    """Draw the mean score of agents with its 95% interval, the best on top; oracles first.

    Args:
      experiment: its name; default: the first of the study.
      agents: "best", of each algorithm, or "all".

    Raises:
      JbrlError: no such experiment, another value of `agents`, or nothing has a score.
    """
    check_choice("agents", agents, ("best", "all"))
    section, looks = _section(results, experiment)
    return _adopted(_scores(section, looks, everyone=agents == "all")).axes[0]


def times(results: HasSections, experiment: str | None = None, *, time: str = "online") -> Axes:
    """Draw scores against a computation time.

    Args:
      experiment: its name; default: the first of the study.
      time: "online" (per decision), "offline" (before the first) or "latency" (of one decision
        to a caller).

    Raises:
      JbrlError: no such experiment or time, or no agent has one.
    """
    check_choice("time", time, tuple(TIMES))
    return _of_report(TIMES[time], results, experiment)


def distribution(results: HasSections, experiment: str | None = None) -> Axes:
    """Draw the returns of the best agent of each algorithm over the environments.

    Raises:
      JbrlError: no such experiment, or nothing has a score.
    """
    return _of_report(figures.distribution_of_returns, results, experiment)


def difference(results: HasSections, experiment: str | None = None) -> Axes:
    """Draw the paired difference of each algorithm's best agent from the best of all.

    Raises:
      JbrlError: no such experiment, or no test can be made.
    """
    return _of_report(figures.difference_from_the_best, results, experiment)


def winners(results: HasSections, experiment: str | None = None) -> Axes:
    """Draw which algorithms are best as the bound on online time is loosened, any offline time
    being accepted.

    Bars are full where an algorithm has the best agent and hatched where it is tied with the best
    (paired Z-test, one-sided, 95%). Castronovo et al. 2016, section 5.3.

    Raises:
      JbrlError: no such experiment, or agents cannot be compared.
    """
    section, looks = _section(results, experiment)
    if section.timed.empty:
        raise JbrlError(f"experiment '{section.name}': no agent has known times")
    with in_look():
        return _adopted(_winners(winners_by_bound(section.contest), looks)).axes[0]


def returns(played: Any, *, bins: int = 30) -> Axes:
    """Draw a histogram of the scores of what `jbrl.play` returned, with their mean; lifetimes that
    failed have none.

    Args:
      played: anything with `returns`, [N].
      bins: how many bars, from 1.

    Raises:
      JbrlError: `played` has no returns, or `bins` is no such number.
    """
    check_count("bins", bins)
    if not hasattr(played, "returns"):
        raise JbrlError(f"played = {shown(played)}: expected what jbrl.play returns")
    sample = np.asarray(played.returns, np.float64)
    sample = sample[~np.isnan(sample)]
    with in_look():
        figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
        axes = figure.subplots()
        axes.hist(sample, bins=bins, color=COLOURS[0])
        axes.axvline(float(sample.mean()), color=COLOURS[1])
        axes.set(xlabel="score of a lifetime", ylabel="lifetimes")
    return _adopted(figure).axes[0]


def svg(section: Section) -> str:
    """Return the figure of `scores` of one experiment as SVG, for a page."""
    text = io.StringIO()
    with in_look():
        _scores(section, _looks([section])).savefig(text, format="svg", metadata={"Date": None})
    content = text.getvalue()
    return content[content.index("<svg") :]


def _section(results: HasSections, experiment: str | None) -> tuple[Section, dict[str, Style]]:
    """Return the experiment of that name, and the styles of all algorithms of the study."""
    expect("results", results, HasSections, 'results of a study, as jbrl.Results("out")')
    parts = results.sections()
    named = {part.name: part for part in parts}
    if experiment is None:
        return parts[0], _looks(parts)
    if experiment not in named:
        raise JbrlError(
            f"experiment = {shown(experiment)}: no such experiment{nearest(experiment, named)}"
        )
    return named[experiment], _looks(parts)


def _looks(parts: list[Section]) -> dict[str, Style]:
    rows = pd.concat([part.table for part in parts])
    return styles(rows["algorithm"], set(rows.loc[rows["oracle"], "algorithm"]))


def _of_report(draw: figures.Draw, results: HasSections, experiment: str | None) -> Axes:
    """Return the axes of a figure of the report."""
    section, looks = _section(results, experiment)
    drawn = draw(section, looks)
    if not isinstance(drawn, Drawing):
        raise JbrlError(f"experiment '{section.name}': {drawn or 'there is nothing to draw'}")
    return _adopted(drawn.figure).axes[0]


def _scores(section: Section, looks: dict[str, Style], *, everyone: bool = False) -> Figure:
    rows = section.done if everyone else pd.concat([section.oracles, section.champions])
    if rows.empty:
        raise JbrlError(f"experiment '{section.name}': nothing has a score yet")
    with in_look():
        drawing, axes = rows_panel(rows["label"])
        for y, (index, row) in enumerate(rows.iterrows()):
            style, mean, half = looks[row["algorithm"]], row["mean"], row["ci95"]
            interval(axes, y, mean - half, mean + half, colors=style.colour)
            drawing.mark(axes, (mean, y), style, f"mark-{index}", "")
        axes.set_xlabel(section.terms.mean)
    return drawing.figure


def _winners(found: pd.DataFrame, looks: dict[str, Style]) -> Figure:
    """One row for each algorithm that wins somewhere."""
    names = list(dict.fromkeys(name for row in found["algorithms"] for name in row))
    drawing, axes = rows_panel(names)
    starts = np.log10(np.maximum(found["bound"].to_numpy(np.float64), 1e-12))
    edges = np.append(starts, starts[-1] + max(0.3, 0.1 * (starts[-1] - starts[0])))
    for left, right, algorithms in zip(edges, edges[1:], found["algorithms"], strict=False):
        for place, name in enumerate(algorithms):
            colour = looks[name].colour
            look: Any = {"color": colour} if place == 0 else {"facecolor": "none", "hatch": HATCH}
            axes.barh(
                names.index(name), right - left, 0.6, left, edgecolor=colour, linewidth=0, **look
            )
    duration_ticks(axes.xaxis, edges[0], edges[-1], most=6)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_xlabel("bound on online time per decision")
    return drawing.figure


def _adopted(figure: Figure) -> Figure:
    """Hand a figure to pyplot where that is in use, so that it shows in notebooks and windows."""
    if running() or "matplotlib.pyplot" in sys.modules:
        import matplotlib.pyplot as plt

        try:
            plt.figure(figure)
        except (TypeError, ValueError, AttributeError):  # before Matplotlib 3.11
            return figure
    return figure
