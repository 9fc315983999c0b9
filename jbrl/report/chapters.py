"""What the report of a study says: its content, chapter by chapter, made from tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

import jbrl.report.bounds
import jbrl.report.ranks  # noqa: F401 (these list their figures)
from jbrl.report import tables
from jbrl.report.content import (
    Block,
    Cell,
    Chapter,
    Column,
    Document,
    Facts,
    Heading,
    Items,
    Paragraph,
    Plot,
    Row,
    Span,
    Standing,
    Table,
    Words,
)
from jbrl.report.figures import FIGURES, Drawing
from jbrl.report.scores_table import all_agents, best_agents
from jbrl.report.style import Style
from jbrl.report.tables import Section
from jbrl.report.text import ABSENT, count, listing, parameters_text
from jbrl.report.winners import winners

WORDS = {
    "n_mdps": "environments",
    "memory_gib": "memory, GiB",
    "horizon_epsilon": "horizon, precision",
}  # names that underscores would spoil
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that are shown
SUMMARY = "Mean discounted return of the best agent of each algorithm, ± 95% interval. Algorithms stand in order of their average place."
ALONE = "it is the best agent of the only algorithm with a score, so that there is nothing to compare it with"
READING: tuple[Words, ...] = (
    (Span("Score.", "strong"), " Mean over N MDPs of the discounted return of one trajectory on each, ± 1.96 s/√N."),
    (
        Span("Tied.", "strong"),
        " All agents of an experiment play the same MDPs. The test takes differences MDP by MDP, so two agents can differ significantly "
        "although their intervals overlap.",
    ),
    (
        Span("Best of its algorithm", "strong"),
        " is the highest of several means, hence a little too high, the more so the more agents an algorithm has.",
    ),
    (
        Span("Online time", "strong"),
        " is wall time per decision divided over all MDPs played at once; one decision alone takes longer. Compilation is in no other "
        "time.",
    ),
    (
        Span("Method.", "strong"),
        " Castronovo, Ernst, Couëtoux, Fonteneau (2016), Benchmarking for Bayesian reinforcement learning, PLoS ONE 11(6): e0157088.",
    ),
)


def document(parts: Sequence[Section], styles: Mapping[str, Style], manifest: Mapping[str, Any], remarks: Sequence[Words] = ()) -> Document:
    """The report of a study.

    Args:
      parts: its experiments (`tables.sections`).
      styles: of all algorithms.
      manifest: `study`, `machine` and `versions` are tables to show; all may be absent.
      remarks: what else a reader of this form of the report should know, at its end.
    """
    everything = pd.concat([s.table for s in parts], ignore_index=True)
    undone = everything[everything["status"] != "done"]
    chapters = [_summary(parts), *(_experiment(s, styles) for s in parts), _settings(everything, manifest)]
    if len(undone):
        chapters.append(_undone(undone))
    chapters.append(Chapter("Reading", "How to read this report", (Items((*READING[:-1], *remarks, READING[-1])),)))
    notices = (_incomplete(len(undone), len(everything)),) if len(undone) else ()
    version = str((manifest.get("versions") or {}).get("jbrl", ""))
    return Document(name_of(manifest), tuple(_facts(parts, everything, manifest)), notices, tuple(chapters), styles, version)


def name_of(manifest: Mapping[str, Any]) -> str:
    """Name of the study."""
    return str((manifest.get("study") or {}).get("name", "study"))


def oracles_of(manifest: Mapping[str, Any]) -> set[str]:
    """Algorithms that see the true MDP."""
    units = manifest.get("units") or []
    return {*(manifest.get("oracles") or ()), *(u["algorithm"] for u in units if u.get("oracle"))}


def _incomplete(undone: int, units: int) -> Paragraph:
    words: Words = (
        Span(f"{undone} of {units} units", "strong"),
        " have no result; they are ",
        Span("listed below", target="#Undone"),
        ". Everything else is complete.",
    )
    return Paragraph(words, "notice")


def _facts(parts: Sequence[Section], everything: pd.DataFrame, manifest: Mapping[str, Any]) -> Iterator[str]:
    """What the study is, in a few words each."""
    study = manifest.get("study") or {}
    agents = everything.drop_duplicates(["algorithm", "parameters"])
    yield count(len(parts), "experiment")
    yield f"{count(len(agents), 'agent')} of {count(agents['algorithm'].nunique(), 'algorithm')}"
    sizes = sorted(set(everything.loc[everything["status"] == "done", "n"]))
    if sizes:
        yield f"{count(sizes[0], 'MDP')} each" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} MDPs"
    if "horizon" in study:
        yield count(study["horizon"], "decision") if isinstance(study["horizon"], int) else f"horizon {study['horizon']}"
    if "discount" in study:
        yield f"discount {study['discount']}"
    seeds = study.get("seed", [])
    seeds = seeds if isinstance(seeds, list) else [seeds]
    if seeds:
        yield f"seed{'s' * (len(seeds) > 1)} {listing([str(s) for s in seeds])}"


def _summary(parts: Sequence[Section]) -> Chapter:
    """Algorithms in rows, experiments in columns."""
    cells = {(s.name, row["algorithm"]): _overview_cell(s, row) for s in parts for _, row in tables.overview([s]).iterrows()}
    oracles = {name for s in parts for name in s.oracles["algorithm"]}
    none = Cell(ABSENT, standing="none")
    rows = [
        Row((_name(name, name in oracles), *(cells.get((s.name, name), none) for s in parts)), "oracle" if name in oracles else "")
        for name in tables.algorithms(list(parts))
    ]
    columns = [Column("Algorithm"), *(Column(s.name, small=f"prior {s.prior} → test {s.test}", target=f"#{s.id}") for s in parts)]
    blocks: list[Block] = [
        Paragraph((SUMMARY,)),
        Table("Summary--table", "", tuple(columns), tuple(rows), "overview"),
        Paragraph(
            (
                Span("best", "best"),
                " highest mean of the experiment ",
                Span("≈ tied", "tied"),
                " not significantly worse (paired Z-test on the same MDPs, one-sided, 95%)",
            ),
            "key",
        ),
    ]
    return Chapter("Summary", "Summary", tuple(blocks))


def _name(algorithm: str, oracle: bool) -> Cell:
    return Cell(algorithm, algorithm=algorithm, small="sees the true MDP" if oracle else "")


def _overview_cell(section: Section, row: pd.Series) -> Cell:
    standing: Standing = "best" if row["best"] else "tied" if row["tied"] else ""
    return Cell(section.score(row), row["mean"], strong=bool(row["best"]), standing=standing, small=row["setting"])


def _experiment(section: Section, styles: Mapping[str, Style]) -> Chapter:
    """All about one experiment."""
    blocks: list[Block] = [_setup(section), *_verdict(section)]
    if section.note:
        blocks.append(Paragraph((section.note,), "notice"))
    absent: list[Words] = []
    for kind in FIGURES:
        drawing = kind.draw(section, styles)
        if isinstance(drawing, Drawing):
            blocks.append(Plot(f"{section.id}--{kind.id}", kind.title, kind.caption, drawing.note, drawing))
        elif drawing:
            absent.append((Span(kind.title, "strong"), f" is not drawn: {drawing}."))
    if absent:
        blocks.append(Items(tuple(absent)))
    blocks += winners(section)
    if len(section.done):
        blocks.append(best_agents(section))
    return Chapter(section.id, section.name, (*blocks, all_agents(section)), "experiment")


def _setup(section: Section) -> Paragraph:
    words: Words = (
        Span("accurate prior" if section.accurate else "inaccurate prior", "chip"),
        " Trained on ",
        Span(section.prior, "strong"),
        ", played on MDPs drawn from ",
        Span(section.test, "strong"),
        ".",
    )
    return Paragraph(words, "setup")


def _verdict(section: Section) -> list[Paragraph]:
    """Who is best, and who is tied with it."""
    champions = section.champions
    if champions.empty:
        return []
    best, tied = champions.iloc[0], list(champions.loc[champions["tied"], "label"])
    end = "."
    if not section.note and tied:
        end = f"; {listing(tied)} {'is' if len(tied) == 1 else 'are'} statistically tied with it."
    elif not section.note and len(champions) > 1:
        end = ", significantly better than every other algorithm."
    told = f" is best with {section.score(best)}{end}" if len(champions) > 1 else f" has {section.score(best)}; {ALONE}."
    return [Paragraph((Span(best["label"], "strong", best["algorithm"]), told), "verdict")]


def _settings(everything: pd.DataFrame, manifest: Mapping[str, Any]) -> Chapter:
    """What was run, where, and with which parameters."""
    devices = ", ".join(dict.fromkeys(everything["device"].dropna().astype(str)))
    blocks: list[Block] = []
    for title in SETTINGS:
        if isinstance(manifest.get(title), Mapping):
            lines = _lines(manifest[title])
            blocks.append(Facts(title.capitalize(), (*lines, ("device", devices)) if title == "machine" and devices else tuple(lines)))
    agents = everything.sort_values("place").drop_duplicates(["algorithm", "parameters"])
    rows = [
        Row((Cell(str(name), algorithm=str(name)), Cell(items=tuple(parameters_text(p) or "no parameters" for p in mine["parameters"]))))
        for name, mine in agents.groupby("algorithm", sort=False)
    ]
    table = Table("Settings--agents", "", (Column("Algorithm"), Column("Parameters of each agent")), tuple(rows))
    return Chapter("Settings", "Settings and machine", (*blocks, Heading("Agents"), table))


def _lines(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """A table of the manifest as names and texts; tables within it have dotted names."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            found += _lines(value, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((prefix + WORDS.get(name, str(name).replace("_", " ")), {"True": "yes", "False": "no"}.get(text, text)))
    return found


def _undone(rows: pd.DataFrame) -> Chapter:
    """Units without a result, and why where it is known."""
    reasons = bool(rows["reason"].any())
    columns = [Column("Experiment"), Column("Agent"), Column("Parameters"), Column("Status", "chip")] + [Column("Reason")] * reasons
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
    table = Table("Undone--table", "", tuple(columns), tuple(lines), sortable=True)
    return Chapter("Undone", "Units not done", (Paragraph(words), table), count=len(rows))
