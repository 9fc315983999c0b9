"""The tables of a study: the best agent of each algorithm in each experiment, all agents, winners
under time bounds; and the first two as CSV and Markdown.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.report import content as doc
from jbrl.report import markdown
from jbrl.report.sections import MARKS, P99, SCORES, Section, lengths_differ
from jbrl.report.text import ABSENT, MDPS, OTHERS, escape, seconds_text, shared
from jbrl.stats.brackets import Bracket, share, share_text
from jbrl.stats.time_bounds import least_offline, winners_by_bound

Record = Mapping[str, Any]  # a row of the tables of sections
FILES = ("summary.csv", "summary.md", "scores.csv", "scores.md")
OFFLINE = doc.Column("Offline", "number", "computation before the first decision")
STANDING = doc.Column("Standing", "chip", "against the best agent of the experiment")
SHARE = "of the Bayes-optimal value: the least and the greatest that its bracket allows"
LATENCY = "of one decision, to a caller who plays one lifetime: "
LATENCIES = (
    ("latency_seconds", "Latency", "the median"),
    (P99, "Latency, 99%", "one in a hundred takes longer"),
)


def best_rows(parts: Sequence[Section]) -> pd.DataFrame:
    """Return the best agent of each algorithm in each experiment: rows of the sections' tables,
    oracles included and marked.
    """
    return pd.concat([pd.concat([s.champions, s.oracles]) for s in parts], ignore_index=True)


def algorithms(parts: Sequence[Section]) -> list[str]:
    """Return all algorithms: those that compete by their average place in the experiments, then the
    oracles.
    """
    places: dict[str, list[int]] = {}
    for section in parts:
        for place, name in enumerate(section.champions["algorithm"]):
            places.setdefault(name, []).append(place)
    oracles = dict.fromkeys(name for s in parts for name in s.oracles["algorithm"])
    return [*sorted(places, key=lambda name: float(np.mean(places[name]))), *oracles]


def write_tables(parts: Sequence[Section], out: Path) -> None:
    """Write `summary` and `scores` as CSV (full precision) and Markdown (rounded) to the folder
    `out`.
    """
    columns = [*SCORES, *MARKS]
    best_rows(parts)[columns].to_csv(out / "summary.csv", index=False)
    pd.concat([s.table for s in parts])[columns].to_csv(out / "scores.csv", index=False)
    (out / "summary.md").write_text(markdown.table(overview(parts)) + "\n", encoding="utf-8")
    texts = [text for s in parts for text in _scores_markdown(s)]
    (out / "scores.md").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def _scores_markdown(section: Section) -> Iterator[str]:
    """Yield the table of all agents of an experiment, below what it is."""
    yield f"## {escape(section.name)}"
    drawn = f"Prior {section.prior}, test {section.test}"
    length = f"{section.test}, {section.rules.lifetime}"
    yield escape(f"{drawn if section.shows_prior else length}.")
    if section.note:
        yield escape(section.note)
    yield markdown.table(all_agents(section))


def overview(parts: Sequence[Section]) -> doc.Table:
    """Tabulate algorithms in rows, experiments in columns: the best score of each."""
    cells = {
        (s.name, row["algorithm"]): _overview_cell(s, row)
        for s in parts
        for _, row in best_rows([s]).iterrows()
    }
    oracles = {name for s in parts for name in s.oracles["algorithm"]}
    none = doc.Cell(ABSENT, standing="none")
    rows = [
        doc.Row(
            (_name(name, parts), *(cells.get((s.name, name), none) for s in parts)),
            "oracle" if name in oracles else "",
        )
        for name in algorithms(parts)
    ]
    columns = [doc.Column(s.name, small=_small(s, parts), target=f"#{s.id}") for s in parts]
    title = "Best agent of each algorithm in each experiment"
    return doc.table("Summary--table", title, ["Algorithm", *columns], rows, kind="overview")


def _name(algorithm: str, parts: Sequence[Section]) -> doc.Cell:
    """Return the name of an algorithm; below it, the information an oracle sees."""
    seen = [section.terms for section in parts if algorithm in set(section.oracles["algorithm"])]
    small = shared(seen).say("sees the true {environment}") if seen else ""
    return doc.Cell(algorithm, algorithm=algorithm, small=small)


def _small(section: Section, parts: Sequence[Section]) -> str:
    """Describe an experiment, below its name."""
    drawn = f"prior {section.prior} → test {section.test}" if section.shows_prior else section.test
    texts = [drawn] if drawn != section.name else []
    if lengths_differ(parts) or section.terms is not MDPS:
        texts.append(section.rules.lifetime)
    if shared([s.terms for s in parts]) is OTHERS:
        texts.append(section.rules.criterion)
    return ", ".join(filter(None, texts))


def _overview_cell(section: Section, row: pd.Series) -> doc.Cell:
    standing: doc.Standing = "best" if row["best"] else "tied" if row["tied"] else ""
    look: Any = {"strong": bool(row["best"]), "standing": standing, "small": row["setting"]}
    return doc.Cell(section.score(row), row["mean"], **look)


def best_agents(section: Section) -> doc.Table:
    """Return the best agent of each algorithm with its score: Figs 9 and 13 of Castronovo et al.
    2016.
    """
    brackets = [section.bracket] if section.bracket is not None else []
    columns: list[tuple[object, Any]] = [
        ("Algorithm", lambda r: _named(r, "algorithm", strong=r["best"])),
        ("Parameters", lambda r: doc.Cell(r["setting"], strong=r["best"])),
        (_score_column(section), lambda r: _score(section, r, strong=r["best"])),
        *[(doc.Column("Share", "number", SHARE), partial(_share, bracket)) for bracket in brackets],
        (STANDING, _standing),
        (OFFLINE, partial(_seconds, "offline_seconds")),
        (_online(section), partial(_seconds, "online_seconds")),
    ]
    rows, title = best_rows([section]).to_dict("records"), "Best agent of each algorithm"
    return doc.tabulate(f"{section.id}--best", title, columns, rows, _kind, sortable=True)


def all_agents(section: Section) -> doc.Table:
    """Tabulate every agent with its score, standing and times; columns with nothing to say are left
    out.
    """
    terms, scale = section.terms, _scale(section)
    latencies = [
        (doc.Column(title, "number", LATENCY + what), partial(_seconds, column))
        for column, title, what in LATENCIES
        if column in section.table.columns and section.table[column].notna().any()
    ]
    several = section.done["device"].nunique() > 1
    compilation = doc.Column("Compilation", "number", "in none of the other times")
    columns: list[tuple[object, Any]] = [
        ("Agent", lambda r: _named(r, "label", strong=r["best_of_algorithm"])),
        (_score_column(section), lambda r: _score(section, r, strong=r["best_of_algorithm"])),
        (
            doc.Column("Interval", "bar"),
            lambda r: doc.Cell(bar=_bar(r, scale), algorithm=r["algorithm"]),
        ),
        (STANDING, _standing),
        (doc.Column("s", "number", terms.say("standard deviation of the {values}")), _deviation),
        (doc.Column("N", "number", terms.environments), lambda r: doc.Cell(str(r["n"]), r["n"])),
        (OFFLINE, partial(_seconds, "offline_seconds")),
        (_online(section), partial(_seconds, "online_seconds")),
        *latencies,
        (compilation, partial(_seconds, "compile_seconds")),
        *[("Device", lambda r: r["device"] if r["status"] == "done" else ABSENT)] * several,
    ]
    rows, look = section.table.to_dict("records"), {"kind": "scores", "sortable": True}
    return doc.tabulate(
        f"{section.id}--agents", "All agents", columns, rows, _kind, long=True, **look
    )


def _named(row: Record, column: str, *, strong: bool) -> doc.Cell:
    return doc.Cell(row[column], strong=strong, algorithm=row["algorithm"])


def _score(section: Section, row: Record, *, strong: bool) -> doc.Cell:
    return doc.Cell(section.score(row), row["mean"], strong=strong)


def _share(bracket: Bracket, row: Record) -> doc.Cell:
    part = share(row["mean"], row["ci95"], bracket)
    # an oracle is beyond the Bayes-optimal value
    text = "" if row["oracle"] else share_text(part)
    return doc.Cell(text, part[0]) if text else doc.Cell(ABSENT)


def _deviation(row: Record) -> doc.Cell:
    return doc.Cell(f"{row['std']:#.3g}" if math.isfinite(row["std"]) else ABSENT, row["std"])


def _seconds(column: str, row: Record) -> doc.Cell:
    return doc.Cell(seconds_text(row[column]), row[column])


def _kind(row: Record) -> doc.RowKind:
    return "oracle" if row["oracle"] else "" if row["status"] == "done" else row["status"]


def _score_column(section: Section) -> doc.Column:
    return doc.Column("Score", "number", f"{section.terms.mean} ± 95% interval")


def _online(section: Section) -> doc.Column:
    hint = "per decision, amortised over the {environments} played at once"
    return doc.Column("Online", "number", section.terms.say(hint))


def _standing(row: Record) -> doc.Cell:
    """Describe an agent against the best of the experiment: in words, or the value of Z at which
    the test rejected.
    """
    if row["status"] != "done":
        return doc.Cell(row["status"], "9", standing="bad")
    if row["oracle"]:
        return doc.Cell("oracle", "0", standing="oracle")
    if row["best"]:
        return doc.Cell("best", "1", standing="best")
    tested = not math.isnan(row["z"])
    if row["tied"]:
        hint = f"Z = {row['z']:.2f}, p = {row['p_value']:.3f}" if tested else ""
        return doc.Cell("tied", "2", standing="tied", hint=hint)
    if not tested:
        return doc.Cell("", "3")
    return doc.Cell(f"Z = {row['z']:.1f}", "3", standing="quiet", hint=f"p = {row['p_value']:.2g}")


def _scale(section: Section) -> tuple[float, float]:
    """Return the ends of the small drawings of intervals, those of the agents that compete."""
    rows = section.competitors
    if rows.empty:
        return 0.0, 1.0
    width = rows["ci95"].fillna(0)
    low, high = float((rows["mean"] - width).min()), float((rows["mean"] + width).max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _bar(row: Record, scale: tuple[float, float]) -> tuple[float, float, float] | None:
    """Return lower end, mean and upper end in per cent of the scale; None without a score and for
    oracles, which would set the scale.
    """
    if row["oracle"] or not math.isfinite(row["mean"]):
        return None
    width = row["ci95"] if math.isfinite(row["ci95"]) else 0.0
    low, high = scale
    ends = (row["mean"] - width, row["mean"], row["mean"] + width)
    left, middle, right = (round(100 * (v - low) / (high - low), 1) for v in ends)
    return left, middle, right


def winners(section: Section) -> list[doc.Block]:
    """Return the best algorithms from left to right in the map of bounds, as the bound on online
    time loosens: under an offline bound that keeps the slowest out, and without one (section 5.3 of
    Castronovo et al. 2016).
    """
    if section.timed["algorithm"].nunique() < 2:
        return []
    try:
        contest = section.contest
        slowest = least_offline(contest)
        free = winners_by_bound(contest)
        bounded = free
        if slowest is not None:
            just_below = slowest[1] * (1 - 1e-9)
            bounded = winners_by_bound(contest, bounds={"offline": just_below})
    except JbrlError:  # the chapter says why agents cannot be compared
        return []
    blocks: list[doc.Block] = []
    intro = f"As the bound on {section.decision_time} is loosened: "
    if slowest is not None:
        algorithm, least = slowest[0], seconds_text(slowest[1])
        why = (
            f"With a bound on offline time just under the {least} that {algorithm} needs at least: "
        )
        title = f"Winners with less than {least} before the first decision"
        blocks += [doc.Paragraph((why, *_chain(bounded)))]
        blocks += [_winners_table(section, "winners-bounded", title, bounded)]
        intro = "With any offline time: "
    title = "Winners with any time before the first decision"
    last = _winners_table(section, "winners", title, free)
    return [*blocks, doc.Paragraph((intro, *_chain(free))), last]


def _chain(steps: pd.DataFrame) -> doc.Sentence:
    """As the paper prints it: `(Random), (BEB, e-Greedy)`; by name within parentheses."""
    texts = [f"({', '.join(sorted(names, key=str.casefold))})" for names in steps["algorithms"]]
    return doc.sentence("{chain}.", chain=doc.Span(", ".join(texts), "strong"))


def _winners_table(section: Section, id: str, title: str, steps: pd.DataFrame) -> doc.Table:
    """Return one row per change, the best first."""
    bound_from = f"{'Latency' if section.by_latency else 'Online'} bound from"
    rows = [
        (
            seconds_text(bound),
            doc.Cell(names[0], strong=True, algorithm=names[0]),
            ", ".join(names[1:]),
        )
        for bound, names in zip(steps["bound"], steps["algorithms"], strict=True)
    ]
    return doc.table(f"{section.id}--{id}", title, (bound_from, "Best", "Tied with it"), rows)
