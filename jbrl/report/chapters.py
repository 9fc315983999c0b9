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
from jbrl.report.terms import EPISODES, MDPS, OTHERS, Terms, shared
from jbrl.report.text import ABSENT, count, listing, parameters_text
from jbrl.report.winners import winners

WORDS = {"memory_gib": "memory, GiB", "horizon_epsilon": "horizon, precision"}  # names that underscores would spoil
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that are shown
SUMMARY = "{Mean} of the best agent of each algorithm, ± 95% interval. Algorithms stand in order of their average place."
WHICH = " Below the name of an experiment stands what its score is."  # where not all have the same
ALONE = "it is the best agent of the only algorithm with a score, so that there is nothing to compare it with"
READING = {  # a template for each item
    "Tied.": " All agents of an experiment play the same {environments}. The test takes differences {environment} by {environment}, so two "
    "agents can differ significantly although their intervals overlap.",
    "Best of its algorithm": " is the highest of several means, hence a little too high, the more so the more agents an algorithm has.",
    "Online time": " is wall time per decision divided over all {environments} played at once; one decision alone takes longer. "
    "Compilation is in no other time.",
}
METHOD = " Castronovo, Ernst, Couëtoux, Fonteneau (2016), Benchmarking for Bayesian reinforcement learning, PLoS ONE 11(6): e0157088."
EPISODIC = (
    " Returns per episode as scores: Jordan, Chandak, Cohen, Zhang, Thomas (2020), Evaluating the performance of reinforcement learning "
    "algorithms, ICML."
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
    terms = shared([s.terms for s in parts])
    undone = everything[everything["status"] != "done"]
    chapters = [_summary(parts, terms), *(_experiment(s, styles, length=_several(parts)) for s in parts)]
    chapters.append(_settings(everything, manifest, terms))
    if len(undone):
        chapters.append(_undone(undone))
    chapters.append(_reading(parts, terms, remarks))
    notices = (_incomplete(len(undone), len(everything)),) if len(undone) else ()
    version = str((manifest.get("versions") or {}).get("jbrl", ""))
    kind = "Bayesian reinforcement learning benchmark" if terms is MDPS else "Reinforcement learning benchmark"
    facts = tuple(_facts(parts, everything, manifest, terms))
    return Document(name_of(manifest), kind, facts, notices, tuple(chapters), styles, version)


def name_of(manifest: Mapping[str, Any]) -> str:
    """Name of the study."""
    return str((manifest.get("study") or {}).get("name", "study"))


def oracles_of(manifest: Mapping[str, Any]) -> set[str]:
    """Algorithms that see the environment itself, the true MDP."""
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


def _facts(parts: Sequence[Section], everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms) -> Iterator[str]:
    """What the study is, in a few words each."""
    study = manifest.get("study") or {}
    agents = everything.drop_duplicates(["algorithm", "parameters"])
    yield count(len(parts), "experiment")
    yield f"{count(len(agents), 'agent')} of {count(agents['algorithm'].nunique(), 'algorithm')}"
    sizes = sorted(set(everything.loc[everything["status"] == "done", "n"]))
    if sizes:
        yield f"{count(sizes[0], terms.environment)} each" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} {terms.environments}"
    yield from _length(parts, study.get("horizon"), terms)
    if "discount" in study and terms is MDPS:
        yield f"discount {study['discount']}"
    seeds = study.get("seed", [])
    seeds = seeds if isinstance(seeds, list) else [seeds]
    if seeds:
        yield f"seed{'s' * (len(seeds) > 1)} {listing([str(s) for s in seeds])}"


def _length(parts: Sequence[Section], horizon: Any, terms: Terms) -> Iterator[str]:
    """How long lifetimes are, if it is the same everywhere. `horizon`: of the study, for results that do not say it of experiments."""
    lifetime = "" if _several(parts) else parts[0].rules.lifetime
    if terms is MDPS and isinstance(horizon, str):
        yield f"horizon {horizon}"
    elif terms is MDPS and not _several(parts) and (lifetime or horizon):
        yield lifetime.replace("step", "decision") or count(horizon, "decision")
    elif lifetime:
        yield f"lifetimes of {lifetime}"


def _several(parts: Sequence[Section]) -> bool:
    """Whether experiments differ in how long lifetimes are, so that each has to say it."""
    return len({section.rules for section in parts}) > 1


def _summary(parts: Sequence[Section], terms: Terms) -> Chapter:
    """Algorithms in rows, experiments in columns."""
    cells = {(s.name, row["algorithm"]): _overview_cell(s, row) for s in parts for _, row in tables.overview([s]).iterrows()}
    oracles = {name for s in parts for name in s.oracles["algorithm"]}
    none = Cell(ABSENT, standing="none")
    rows = [
        Row((_name(name, parts), *(cells.get((s.name, name), none) for s in parts)), "oracle" if name in oracles else "")
        for name in tables.algorithms(list(parts))
    ]
    columns = [Column("Algorithm"), *(Column(s.name, small=_small(s, terms, length=_several(parts)), target=f"#{s.id}") for s in parts)]
    blocks: list[Block] = [
        Paragraph((terms.say(SUMMARY) + WHICH * (terms is OTHERS),)),
        Table("Summary--table", "", tuple(columns), tuple(rows), "overview"),
        Paragraph(
            (
                Span("best", "best"),
                " highest mean of the experiment ",
                Span("≈ tied", "tied"),
                terms.say(" not significantly worse (paired Z-test on the same {environments}, one-sided, 95%)"),
            ),
            "key",
        ),
    ]
    return Chapter("Summary", "Summary", tuple(blocks))


def _name(algorithm: str, parts: Sequence[Section]) -> Cell:
    """The name of an algorithm; below it, what it sees where it is an oracle."""
    seen = [section.terms for section in parts if algorithm in set(section.oracles["algorithm"])]
    return Cell(algorithm, algorithm=algorithm, small=shared(seen).say("sees the true {environment}") if seen else "")


def _small(section: Section, terms: Terms, *, length: bool) -> str:
    """What an experiment is, below its name."""
    drawn = f"prior {section.prior} → test {section.test}" if section.shows_prior else section.test
    parts = [drawn] if drawn != section.name else []
    parts += [section.rules.lifetime] if length or section.terms is not MDPS else []
    parts += [section.rules.criterion] if terms is OTHERS else []
    return ", ".join(filter(None, parts))


def _overview_cell(section: Section, row: pd.Series) -> Cell:
    standing: Standing = "best" if row["best"] else "tied" if row["tied"] else ""
    return Cell(section.score(row), row["mean"], strong=bool(row["best"]), standing=standing, small=row["setting"])


def _experiment(section: Section, styles: Mapping[str, Style], *, length: bool) -> Chapter:
    """All about one experiment; `length`: and how long its lifetimes are."""
    blocks: list[Block] = [_setup(section, length=length), *_verdict(section)]
    if section.note:
        blocks.append(Paragraph((section.note,), "notice"))
    absent: list[Words] = []
    for kind in FIGURES:
        drawing = kind.draw(section, styles)
        if isinstance(drawing, Drawing):
            blocks.append(Plot(f"{section.id}--{kind.id}", kind.title, section.terms.say(kind.caption), drawing.note, drawing))
        elif drawing:
            absent.append((Span(kind.title, "strong"), f" is not drawn: {section.terms.adapt(drawing)}."))
    if absent:
        blocks.append(Items(tuple(absent)))
    blocks += winners(section)
    if len(section.done):
        blocks.append(best_agents(section))
    return Chapter(section.id, section.name, (*blocks, all_agents(section)), "experiment")


def _setup(section: Section, *, length: bool) -> Paragraph:
    """What prior agents had, where they were played and, with `length` or where it is worth a word, for how long."""
    on = "on" if section.terms is MDPS else "in"
    played, words = f"played {on} {section.terms.environments} drawn from ", list[Span | str]()
    if section.shows_prior:
        words += [Span("accurate prior" if section.accurate else "inaccurate prior", "chip"), " Trained on ", Span(section.prior, "strong")]
    words += [f", {played}" if section.shows_prior else played.capitalize(), Span(section.test, "strong")]
    end = f", {section.rules.lifetime} {on} each." if length or section.terms is not MDPS else "."
    return Paragraph((*words, end if section.terms is MDPS else f"{end} Score: {section.rules.criterion}."), "setup")


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


def _settings(everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms) -> Chapter:
    """What was run, where, and with which parameters."""
    devices = ", ".join(dict.fromkeys(everything["device"].dropna().astype(str)))
    blocks: list[Block] = []
    for title in SETTINGS:
        if isinstance(manifest.get(title), Mapping):
            lines = _lines(manifest[title], WORDS | {"n_mdps": terms.environments})
            blocks.append(Facts(title.capitalize(), (*lines, ("device", devices)) if title == "machine" and devices else tuple(lines)))
    agents = everything.sort_values("place").drop_duplicates(["algorithm", "parameters"])
    rows = [
        Row((Cell(str(name), algorithm=str(name)), Cell(items=tuple(parameters_text(p) or "no parameters" for p in mine["parameters"]))))
        for name, mine in agents.groupby("algorithm", sort=False)
    ]
    table = Table("Settings--agents", "", (Column("Algorithm"), Column("Parameters of each agent")), tuple(rows))
    return Chapter("Settings", "Settings and machine", (*blocks, Heading("Agents"), table))


def _lines(table: Mapping[str, Any], words: Mapping[str, str], prefix: str = "") -> list[tuple[str, str]]:
    """A table of the manifest as names and texts; tables within it have dotted names."""
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            found += _lines(value, words, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((prefix + words.get(name, str(name).replace("_", " ")), {"True": "yes", "False": "no"}.get(text, text)))
    return found


def _reading(parts: Sequence[Section], terms: Terms, remarks: Sequence[Words]) -> Chapter:
    """How to read the report; what is so because of the kind of experiments is said of those that there are."""
    kinds = dict.fromkeys(section.terms for section in parts)
    scores: list[Words] = [(Span("Score." if len(kinds) == 1 else f"Score, {kind.mean}.", "strong"), f" {kind.meaning}") for kind in kinds]
    items: list[Words] = [(Span(name, "strong"), terms.say(text)) for name, text in READING.items()]
    method: Words = (Span("Method.", "strong"), METHOD + EPISODIC * (EPISODES in kinds))
    return Chapter("Reading", "How to read this report", (Items((*scores, *items, *remarks, method)),))


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
