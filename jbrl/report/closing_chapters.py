"""The last chapters of the report of a study: its settings, what is missing, and how to read it."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbrl.report.content import (
    Block,
    Cell,
    Chapter,
    Column,
    Facts,
    Items,
    Paragraph,
    Row,
    Span,
    Table,
    Words,
    folded,
)
from jbrl.report.paper import parameters
from jbrl.report.tables import Section
from jbrl.report.terms import EPISODES, Terms
from jbrl.report.text import parameters_text

# names that underscores would spoil
WORDS = {"memory_gib": "memory, GiB", "horizon_epsilon": "horizon, precision"}
FEW = 12  # units without a result that are listed in the open
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that are shown
READING = {  # a template for each item
    "Tied.": (
        " All agents of an experiment play the same {environments}. The test takes differences "
        "{environment} by {environment}, so two agents can differ significantly although their "
        "intervals overlap."
    ),
    "Best of its algorithm": (
        " is the highest of several means, hence a little too high, the more so the more agents "
        "an algorithm has."
    ),
    "Online time": (
        " is wall time per decision divided over all {environments} played at once; one decision "
        "alone takes longer. Compilation is in no other time."
    ),
    "Equal times.": (
        " Times are shown with two digits, since more do not repeat. Winners under time bounds "
        "take times as equal that agree in these digits or differ by less than their spread where "
        "it was measured; offline times below 1 ms, which the dispatch of a call decides, are 0."
    ),
}
METHOD = (
    " Castronovo, Ernst, Couëtoux, Fonteneau (2016), Benchmarking for Bayesian reinforcement "
    "learning, PLoS ONE 11(6): e0157088."
)
EPISODIC = (
    " Returns per episode as scores: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the "
    "performance of reinforcement learning algorithms, ICML."
)


def settings(
    parts: Sequence[Section], everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms
) -> Chapter:
    """Describe the run: its machine and its parameters."""
    devices = ", ".join(dict.fromkeys(everything["device"].dropna().astype(str)))
    blocks: list[Block] = []
    for title in SETTINGS:
        if isinstance(manifest.get(title), Mapping):
            lines = _lines(manifest[title], WORDS | {"n_mdps": terms.environments})
            blocks.append(
                Facts(
                    title.capitalize(),
                    (*lines, ("device", devices))
                    if title == "machine" and devices
                    else tuple(lines),
                )
            )
    agents = everything.sort_values("place").drop_duplicates(["algorithm", "parameters"])
    rows = [
        Row(
            (
                Cell(str(name), algorithm=str(name)),
                Cell(
                    items=tuple(parameters_text(p) or "no parameters" for p in mine["parameters"])
                ),
            )
        )
        for name, mine in agents.groupby("algorithm", sort=False)
    ]
    table = Table(
        "Settings--agents",
        "Agents",
        (Column("Algorithm"), Column("Parameters of each agent")),
        tuple(rows),
    )
    printed = parameters(parts)
    blocks += folded("Parameters", [table, printed] if printed else [table])
    return Chapter("Settings", "Settings and machine", tuple(blocks))


def _lines(
    table: Mapping[str, Any], words: Mapping[str, str], prefix: str = ""
) -> list[tuple[str, str]]:
    """Return a table of the manifest as names and texts; tables within it have dotted names."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            found += _lines(value, words, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append(
                (
                    prefix + words.get(name, str(name).replace("_", " ")),
                    {"True": "yes", "False": "no"}.get(text, text),
                )
            )
    return found


def undone_units(rows: pd.DataFrame) -> Chapter:
    """Return units without a result, and why where it is known."""
    reasons = bool(rows["reason"].any())
    columns = [
        Column("Experiment"),
        Column("Agent"),
        Column("Parameters"),
        Column("Status", "chip"),
    ] + [Column("Reason")] * reasons
    lines = [
        Row(
            (
                Cell(row["experiment"]),
                Cell(row["label"]),
                Cell(row["parameters"], code=True),
                Cell(row["status"], standing="bad"),
                *([Cell(row["reason"])] * reasons),
            )
        )
        for row in rows.to_dict("records")
    ]
    words = ("Running the study again does what is missing and tries again what failed.",)
    title = "Units without a result"
    table = Table("Undone--table", title, tuple(columns), tuple(lines), sortable=True)
    blocks = (Paragraph(words), *(folded(title, [table]) if len(rows) > FEW else [table]))
    return Chapter("Undone", "Units not done", blocks, count=len(rows))


def reading(parts: Sequence[Section], terms: Terms, remarks: Sequence[Words]) -> Chapter:
    """Explain how to read the report, including only the kinds of experiments that it has."""
    kinds = dict.fromkeys(section.terms for section in parts)
    scores: list[Words] = [
        (
            Span("Score." if len(kinds) == 1 else f"Score, {kind.mean}.", "strong"),
            f" {kind.meaning}",
        )
        for kind in kinds
    ]
    items: list[Words] = [(Span(name, "strong"), terms.say(text)) for name, text in READING.items()]
    method: Words = (Span("Method.", "strong"), METHOD + EPISODIC * (EPISODES in kinds))
    return Chapter(
        "Reading", "How to read this report", (Items((*scores, *items, *remarks, method)),)
    )
