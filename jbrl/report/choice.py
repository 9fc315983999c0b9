"""The page of a choice: the answer, the race, scores against latency, and all candidates."""

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.notebook import numbers
from jbrl.choice import Looser, looser_limits
from jbrl.report import axes as parts
from jbrl.report.axes import DASHED, INK, Drawing, Styles, drawn, styles
from jbrl.report.content import Chapter, Column, Document, Facts, Paragraph, Plot, table
from jbrl.report.text import seconds_text

PLOT_HEIGHT = 2.8  # inches, legend apart
SHOWN = 12  # candidates in the figures, the best
RACE = (
    "Mean score in the environments played so far; all candidates play the same ones, in blocks "
    "that double. A line ends where its candidate has left, or cannot be better by epsilon."
)
TIMES = (
    "Mean score against the 99th percentile of what a decision takes a caller in Python. The "
    "dashed line is the limit."
)


def document(choice: Mapping[str, Any], rows: Sequence[Sequence[str]]) -> Document:
    """Return the page.

    Args:
      choice: content of `choice.json`.
      rows: of all candidates that were tried, texts, the first of them headings.
    """
    played = sorted((s for s in choice["standings"] if s["n"]), key=lambda s: -s["mean"])[:SHOWN]
    looks = styles([one["name"] for one in played])
    plots = (
        (
            Plot("race", "The race", RACE, _race(played, looks)),
            Plot("times", "Score against latency", TIMES, _times(choice, played, looks)),
        )
        if played
        else ()
    )
    (first, *numbers, last), *lines = rows
    heads = (first, *(Column(name, "number") for name in numbers), last)
    return Document(
        title="Which agent",
        kind=choice["problem"],
        facts=(
            f"{seconds_text(choice['offline_limit'])} offline",
            f"{seconds_text(choice['online_limit'])} per decision",
        ),
        notices=(Paragraph((choice["answer"],), "verdict"),),
        chapters=(
            Chapter("answer", "The race", (*plots, _facts(choice))),
            Chapter("candidates", "Candidates", (table("candidates", "", heads, lines),)),
        ),
    )


@drawn
def _race(played: Sequence[Mapping[str, Any]], looks: Styles) -> Drawing:
    """Draw lines of the means of candidates over the number of environments."""
    names = [one["name"] for one in played]
    drawing, axes = parts.panel(PLOT_HEIGHT + parts.legend_height(names, lines=True))
    rows = []
    for k, one in enumerate(played):
        axes.plot(*zip(*one["curve"], strict=True), **parts.line_look(looks[one["name"]], k))
        rows += [(one["name"], n, mean) for n, mean in one["curve"]]
    sizes = sorted({n for _, n, _ in rows})
    parts.log_ticks(axes, "x", sizes[:: 1 + len(sizes) // 6])
    axes.set(xlabel="environments", ylabel="mean score")
    drawing.data = pd.DataFrame(rows, columns=["candidate", "environments", "mean"])
    drawing.margins(0.12, 0.5, parts.legend(drawing.figure, names, looks, lines=True))
    return drawing


@drawn
def _times(
    choice: Mapping[str, Any], played: Sequence[Mapping[str, Any]], looks: Styles
) -> Drawing:
    """Draw symbols of candidates at their latency and mean score."""
    names = [one["name"] for one in played]
    columns = ["name", "latency_seconds", "mean"]
    data = pd.DataFrame([[one[c] for c in columns] for one in played], columns=columns)
    drawing, axes = parts.panel(PLOT_HEIGHT + parts.legend_height(names), data)
    means = numbers(data["mean"].min(), data["mean"].max(), *data["mean"])[2:]
    for k, (one, mean) in enumerate(zip(played, means, strict=True)):
        title = f"{one['name']}: {mean}, {seconds_text(one['latency_seconds'])}"
        place = float(np.log10(one["latency_seconds"])), one["mean"]
        drawing.mark(axes, place, looks[one["name"]], f"candidate-{k}", title)
    axes.axvline(np.log10(choice["online_limit"]), color=INK, linewidth=1, linestyle=DASHED)
    parts.duration_ticks(axes.xaxis, *axes.get_xlim(), 6)
    axes.set(xlabel="99th percentile of a decision", ylabel="mean score")
    drawing.margins(0.12, 0.5, parts.legend(drawing.figure, names, looks))
    return drawing


def _facts(choice: Mapping[str, Any]) -> Facts:
    """Return the rules of the race, and the ends of the range."""
    (low, high), references = numbers(*choice["score_range"]), choice["references"]
    ends = sorted(set(references.values()))
    ends = ends if len(ends) == 2 else choice["score_range"]
    means = numbers(*ends, *references.values())[2:]
    kind = "assumed" if choice["range_assumed"] else "by the rewards"
    kind = "so far" if choice["range_assumed"] and low == high else kind
    lines = [
        ("Epsilon", f"{choice['epsilon']:.4g}"),
        ("Confidence of the race", f"{choice['confidence']:.0%}"),
        ("Range of a score", f"{low} to {high}, {kind}"),
        *zip(references, means, strict=True),
        ("Seed", str(choice["seed"])),
        ("Time", f"{choice['seconds']:.0f} s of {choice['budget']:.0f} s"),
    ]
    if choice["bracket"]:
        lines.append(("Bayes-optimal value", " to ".join(numbers(*choice["bracket"]))))
    lines += [
        (f"Best from {seconds_text(seconds)} per decision on", name)
        for seconds, name in choice["tighter"]
    ]
    limits = choice["offline_limit"], choice["online_limit"]
    lines += [
        (
            f"Better by {one.difference:.3g} ({one.low:.3g} to {one.high:.3g}) at "
            f"{looser_limits(one, *limits)}",
            one.name,
        )
        for one in starmap(Looser, choice["looser"])
    ]
    return Facts("What it rests on", tuple(lines))
