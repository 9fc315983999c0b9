"""The tables of the agents of an experiment: the best of each algorithm, and all."""

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from jbrl.report.content import Cell, Column, Row, Table
from jbrl.report.tables import Section
from jbrl.report.text import ABSENT, seconds_text
from jbrl.stats.brackets import Bracket, share, share_text

SHARE = "of the Bayes-optimal value: the least and the greatest that its bracket allows"


def best_agents(section: Section) -> Table:
    """Return the best agent of each algorithm with its score: Figs 9 and 13 of Castronovo et al.
    2016.
    """
    columns = (
        Column("Algorithm"),
        Column("Parameters"),
        Column("Score", "number", f"{section.terms.mean} ± 95% interval"),
        *([Column("Share", "number", SHARE)] if section.bracket else []),
        Column("Standing", "chip", "against the best agent of the experiment"),
        Column("Offline", "number", "computation before the first decision"),
        Column(
            "Online",
            "number",
            section.terms.say("per decision, amortised over the {environments} played at once"),
        ),
    )
    rows = []
    for _, row in pd.concat([section.champions, section.oracles]).iterrows():
        best = bool(row["best"])
        cells = (
            Cell(row["algorithm"], strong=best, algorithm=row["algorithm"]),
            Cell(row["setting"], strong=best),
            Cell(section.score(row), row["mean"], strong=best),
            *([_share(row, section.bracket)] if section.bracket else []),
            _standing(row),
            _duration(row["offline_seconds"]),
            _duration(row["online_seconds"]),
        )
        rows.append(Row(cells, "oracle" if row["oracle"] else ""))
    return Table(
        f"{section.id}--best", "Best agent of each algorithm", columns, tuple(rows), sortable=True
    )


def _share(row: pd.Series, bracket: Bracket) -> Cell:
    """Return the share of the Bayes-optimal value; an oracle is beyond it."""
    if row["oracle"]:
        return Cell(ABSENT)
    pair = share(row["mean"], row["ci95"], bracket)
    return Cell(share_text(pair) or ABSENT, pair[0])


def all_agents(section: Section) -> Table:
    """Tabulate every agent with its score, standing and times; columns with nothing to say are left
    out.
    """
    latency, devices = (
        bool(section.table["latency_seconds"].notna().any()),
        section.done["device"].nunique() > 1,
    )
    columns = [
        Column("Agent"),
        Column("Score", "number", f"{section.terms.mean} ± 95% interval"),
        Column("Interval", "bar"),
        Column("Standing", "chip", "against the best agent of the experiment"),
        Column("s", "number", section.terms.say("standard deviation of the {values}")),
        Column("N", "number", section.terms.environments),
        Column("Offline", "number", "computation before the first decision"),
        Column(
            "Online",
            "number",
            section.terms.say("per decision, amortised over the {environments} played at once"),
        ),
        *(
            [
                Column(
                    "Latency",
                    "number",
                    section.terms.say("per decision, one {environment} at a time"),
                )
            ]
            * latency
        ),
        Column("Compilation", "number", "in none of the other times"),
        *([Column("Device")] * devices),
    ]
    scale = _scale(section)
    rows = []
    for _, row in section.table.iterrows():
        kind: Any = "oracle" if row["oracle"] else "" if row["status"] == "done" else row["status"]
        rows.append(Row(tuple(_cells(section, row, scale, latency, devices)), kind))
    return Table(
        f"{section.id}--agents",
        "All agents",
        tuple(columns),
        tuple(rows),
        "scores",
        sortable=True,
        long=True,
    )


def _cells(
    section: Section, row: pd.Series, scale: tuple[float, float], latency: bool, devices: bool
) -> Iterator[Cell]:
    champion = bool(row["best_of_algorithm"])
    yield Cell(row["label"], strong=champion, algorithm=row["algorithm"])
    yield Cell(section.score(row), row["mean"], strong=champion)
    yield Cell(bar=_bar(row, scale), algorithm=row["algorithm"])
    yield _standing(row)
    yield Cell(f"{row['std']:#.3g}" if math.isfinite(row["std"]) else ABSENT, row["std"])
    yield Cell(str(row["n"]), row["n"])
    yield _duration(row["offline_seconds"])
    yield _duration(row["online_seconds"])
    if latency:
        yield _duration(row["latency_seconds"])
    yield _duration(row["compile_seconds"])
    if devices:
        yield Cell(row["device"] if row["status"] == "done" else ABSENT)


def _standing(row: pd.Series) -> Cell:
    """Describe an agent against the best of the experiment: in words, or the value of Z at which
    the test rejected.
    """
    if row["status"] != "done":
        return Cell(row["status"], "9", standing="bad")
    if row["oracle"]:
        return Cell("oracle", "0", standing="oracle")
    if row["best"]:
        return Cell("best", "1", standing="best")
    tested = math.isfinite(row["z"]) or math.isinf(row["z"])
    if row["tied"]:
        return Cell(
            "tied",
            "2",
            standing="tied",
            hint=f"Z = {row['z']:.2f}, p = {row['p_value']:.3f}" if tested else "",
        )
    return (
        Cell(f"Z = {row['z']:.1f}", "3", standing="quiet", hint=f"p = {row['p_value']:.2g}")
        if tested
        else Cell("", "3")
    )


def _duration(seconds: float) -> Cell:
    return Cell(seconds_text(seconds), seconds)


def _scale(section: Section) -> tuple[float, float]:
    """Return the ends of the small drawings of intervals, those of the agents that compete."""
    rows = section.competitors
    if rows.empty:
        return 0.0, 1.0
    width = rows["ci95"].fillna(0)
    low, high = float((rows["mean"] - width).min()), float((rows["mean"] + width).max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(row: pd.Series, scale: tuple[float, float]) -> tuple[float, float, float] | None:
    """Return lower end, mean and upper end in per cent of the scale; None without a score and for
    oracles, which would set the scale.
    """
    if row["oracle"] or not math.isfinite(row["mean"]):
        return None
    width = row["ci95"] if math.isfinite(row["ci95"]) else 0.0
    low, high = scale
    left, middle, right = (
        round(100 * (v - low) / (high - low), 1)
        for v in (row["mean"] - width, row["mean"], row["mean"] + width)
    )
    return left, middle, right
