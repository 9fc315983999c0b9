"""Content of the report of a study, chapter by chapter, made from tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

import jbrl.report.bounds
import jbrl.report.ranks  # noqa: F401 (these list their figures)
from jbrl.report import tables
from jbrl.report.choice import CLOSING, advice, standing
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
    marked,
)
from jbrl.report.figures import FIGURES, Drawing, Kind, Part
from jbrl.report.paper import budgets, parameters
from jbrl.report.scores_table import all_agents, best_agents
from jbrl.report.style import Style
from jbrl.report.tables import Section
from jbrl.report.terms import EPISODES, MDPS, OTHERS, Terms, shared
from jbrl.report.text import ABSENT, count, listing, parameters_text
from jbrl.report.winners import winners

# names that underscores would spoil
WORDS = {"memory_gib": "memory, GiB", "horizon_epsilon": "horizon, precision"}
PARTS: dict[Part, str] = {  # of an experiment; those with a title are details
    "answer": "",
    "times": "Scores and computation times",
    "scores": "Differences, distributions and ranks",
}
FEW = 12  # experiments that are named in the answer of the summary
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that are shown
SUMMARY = (
    "{Mean} of the best agent of each algorithm, ± 95% interval. Algorithms stand in order of "
    "their average place."
)
OVERVIEW = "Best agent of each algorithm in each experiment"
WHICH = " Below the name of an experiment stands what its score is."  # where not all have the same
ALONE = (
    "it is the best agent of the only algorithm with a score, so that there is nothing to compare "
    "it with"
)
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


def document(
    parts: Sequence[Section],
    styles: Mapping[str, Style],
    manifest: Mapping[str, Any],
    remarks: Sequence[Words] = (),
    experiments: Sequence[Chapter] | None = None,
) -> Document:
    """Return the report of a study.

    Args:
      parts: its experiments (`tables.sections`).
      styles: of all algorithms.
      manifest: `study`, `machine` and `versions` are tables to show; all may be absent.
      remarks: what else a reader of this form of the report should know, at its end.
      experiments: the chapter of each part, where they are made already.
    """
    everything = pd.concat([s.table for s in parts], ignore_index=True)
    terms = shared([s.terms for s in parts])
    undone = everything[everything["status"] != "done"]
    if experiments is None:
        experiments = [experiment(parts, number, styles) for number in range(len(parts))]
    chapters = [_summary(parts, terms), *experiments]
    chapters.append(_settings(parts, everything, manifest, terms))
    if len(undone):
        chapters.append(_undone(undone))
    chapters.append(_reading(parts, terms, remarks))
    notices = (_incomplete(len(undone), len(everything)),) if len(undone) else ()
    version = str((manifest.get("versions") or {}).get("jbrl", ""))
    kind = (
        "Bayesian reinforcement learning benchmark"
        if terms is MDPS
        else "Reinforcement learning benchmark"
    )
    facts = tuple(_facts(parts, everything, manifest, terms))
    return Document(name_of(manifest), kind, facts, notices, tuple(chapters), styles, version)


def experiment(parts: Sequence[Section], number: int, styles: Mapping[str, Style]) -> Chapter:
    """Return the chapter of one of the experiments."""
    return _experiment(parts[number], styles, length=_several(parts))


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return the name of the study."""
    return str((manifest.get("study") or {}).get("name", "study"))


def oracles_of(manifest: Mapping[str, Any]) -> set[str]:
    """Return algorithms that see the environment itself, the true MDP."""
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


def _facts(
    parts: Sequence[Section], everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms
) -> Iterator[str]:
    """Describe the study in a few words per fact."""
    study = manifest.get("study") or {}
    agents = everything.drop_duplicates(["algorithm", "parameters"])
    yield count(len(parts), "experiment")
    yield f"{count(len(agents), 'agent')} of {count(agents['algorithm'].nunique(), 'algorithm')}"
    sizes = sorted(set(everything.loc[everything["status"] == "done", "n"]))
    if sizes:
        yield (
            f"{count(sizes[0], terms.environment)} each"
            if len(sizes) == 1
            else f"{sizes[0]} to {sizes[-1]} {terms.environments}"
        )
    yield from _length(parts, study.get("horizon"), terms)
    if "discount" in study and terms is MDPS:
        yield f"discount {study['discount']}"
    seeds = study.get("seed", [])
    seeds = seeds if isinstance(seeds, list) else [seeds]
    if seeds:
        yield f"seed{'s' * (len(seeds) > 1)} {listing([str(s) for s in seeds])}"


def _length(parts: Sequence[Section], horizon: Any, terms: Terms) -> Iterator[str]:
    """Describe the length of lifetimes, if it is the same everywhere.

    `horizon`: of the study, for results that do not say it of experiments.
    """
    lifetime = "" if _several(parts) else parts[0].rules.lifetime
    if terms is MDPS and isinstance(horizon, str):
        yield f"horizon {horizon}"
    elif terms is MDPS and not _several(parts) and (lifetime or horizon):
        yield lifetime.replace("step", "decision") or count(horizon, "decision")
    elif lifetime:
        yield f"lifetimes of {lifetime}"


def _several(parts: Sequence[Section]) -> bool:
    """Return whether experiments differ in the length of lifetimes, so that each states its own."""
    return len({section.rules for section in parts}) > 1


def _summary(parts: Sequence[Section], terms: Terms) -> Chapter:
    """Return the table with algorithms in rows, experiments in columns."""
    cells = {
        (s.name, row["algorithm"]): _overview_cell(s, row)
        for s in parts
        for _, row in tables.overview([s]).iterrows()
    }
    oracles = {name for s in parts for name in s.oracles["algorithm"]}
    none = Cell(ABSENT, standing="none")
    rows = [
        Row(
            (_name(name, parts), *(cells.get((s.name, name), none) for s in parts)),
            "oracle" if name in oracles else "",
        )
        for name in tables.algorithms(list(parts))
    ]
    columns = [
        Column("Algorithm"),
        *(
            Column(s.name, small=_small(s, terms, length=_several(parts)), target=f"#{s.id}")
            for s in parts
        ),
    ]
    blocks: list[Block] = [
        *_answer(parts),
        Paragraph((terms.say(SUMMARY) + WHICH * (terms is OTHERS),)),
        Table("Summary--table", OVERVIEW, tuple(columns), tuple(rows), "overview"),
        Paragraph(
            (
                Span("best", "best"),
                " highest mean of the experiment ",
                Span("≈ tied", "tied"),
                terms.say(
                    " not significantly worse (paired Z-test on the same {environments}, "
                    "one-sided, 95%)"
                ),
            ),
            "key",
        ),
    ]
    return Chapter("Summary", "Summary", tuple(blocks))


def _answer(parts: Sequence[Section]) -> list[Block]:
    """Return which algorithms are best, how often, and which to take at which time."""
    often = standing(list(parts))
    if not often:
        return []
    words: Words = (Span("Best, or tied with the best:", "strong"), f" {often}.")
    lines = [
        (Span(section.name, target=f"#{section.id}"), ". ", *words_)
        for section in parts
        if (words_ := advice(section))
    ]
    blocks: list[Block] = [Paragraph(words, "verdict")]
    if lines:
        taken: Block = Items(tuple(lines))
        title = "Which algorithm to take at which computation time"
        # a long list is left to the chapters of the experiments
        blocks += [Heading(title), taken, Paragraph((CLOSING,))] if len(lines) <= FEW else []
    played = budgets(parts)
    if played:
        small = Span("Budgets are smaller than those of Castronovo et al. (2016): ", "strong")
        blocks.append(Paragraph((small, played)))
    return blocks


def _name(algorithm: str, parts: Sequence[Section]) -> Cell:
    """Return the name of an algorithm; below it, the information an oracle sees."""
    seen = [section.terms for section in parts if algorithm in set(section.oracles["algorithm"])]
    return Cell(
        algorithm,
        algorithm=algorithm,
        small=shared(seen).say("sees the true {environment}") if seen else "",
    )


def _small(section: Section, terms: Terms, *, length: bool) -> str:
    """Describe an experiment, below its name."""
    drawn = f"prior {section.prior} → test {section.test}" if section.shows_prior else section.test
    parts = [drawn] if drawn != section.name else []
    parts += [section.rules.lifetime] if length or section.terms is not MDPS else []
    parts += [section.rules.criterion] if terms is OTHERS else []
    return ", ".join(filter(None, parts))


def _overview_cell(section: Section, row: pd.Series) -> Cell:
    standing: Standing = "best" if row["best"] else "tied" if row["tied"] else ""
    return Cell(
        section.score(row),
        row["mean"],
        strong=bool(row["best"]),
        standing=standing,
        small=row["setting"],
    )


def _experiment(section: Section, styles: Mapping[str, Style], *, length: bool) -> Chapter:
    """Describe one experiment; `length`: and the length of its lifetimes."""
    blocks: list[Block] = [_setup(section, length=length), *_verdict(section)]
    if section.note:
        blocks.append(Paragraph(marked(section.note), "notice"))
    words = advice(section)
    blocks += [Paragraph((*words, f" {CLOSING}"), "verdict")] if words else []
    absent: list[Words] = []
    for part, title in PARTS.items():
        plots: list[Block] = []
        for kind in (kind for kind in FIGURES if kind.part == part):
            drawing = kind.draw(section, styles)
            if isinstance(drawing, Drawing):
                plots.append(_plot(section, kind, drawing))
            elif drawing:
                reason = marked(f" is not drawn: {section.terms.adapt(drawing)}.")
                absent.append((Span(kind.title, "strong"), *reason))
        blocks += _folded(title, plots) if title else plots
    blocks += _folded("Winners from left to right", winners(section))
    tables_ = [best_agents(section)] if len(section.done) else []
    blocks += _folded("Tables of the agents", [*tables_, all_agents(section)])
    blocks += _folded("Figures that are not drawn", [Items(tuple(absent))] if absent else [])
    return Chapter(section.id, section.name, tuple(blocks), "experiment")


def _folded(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Return blocks as details under a title; nothing where there are none."""
    return [Heading(title, folds=True), *blocks] if blocks else []


def _plot(section: Section, kind: Kind, drawing: Drawing) -> Plot:
    caption = section.terms.say(kind.caption)
    return Plot(f"{section.id}--{kind.id}", kind.title, caption, drawing.note, drawing)


def _setup(section: Section, *, length: bool) -> Paragraph:
    """Describe the agents' prior, the test environments and, with `length` or where it matters, the
    length of lifetimes.
    """
    on = "on" if section.terms is MDPS else "in"
    played, words = f"played {on} {section.terms.environments} drawn from ", list[Span | str]()
    if section.shows_prior:
        words += [
            Span("accurate prior" if section.accurate else "inaccurate prior", "chip"),
            " Trained on ",
            Span(section.prior, "strong"),
        ]
    words += [
        f", {played}" if section.shows_prior else played.capitalize(),
        Span(section.test, "strong"),
    ]
    end = f", {section.rules.lifetime} {on} each." if length or section.terms is not MDPS else "."
    return Paragraph(
        (*words, end if section.terms is MDPS else f"{end} Score: {section.rules.criterion}."),
        "setup",
    )


def _verdict(section: Section) -> list[Paragraph]:
    """Return the best algorithm and those tied with it."""
    champions = section.champions
    if champions.empty:
        return []
    best, tied = champions.iloc[0], list(champions.loc[champions["tied"], "label"])
    end = "."
    if not section.note and tied:
        end = f"; {listing(tied)} {'is' if len(tied) == 1 else 'are'} statistically tied with it."
    elif not section.note and len(champions) > 1:
        end = ", significantly better than every other algorithm."
    told = (
        f" is best with {section.score(best)}{end}"
        if len(champions) > 1
        else f" has {section.score(best)}; {ALONE}."
    )
    return [Paragraph((Span(best["label"], "strong", best["algorithm"]), told), "verdict")]


def _settings(
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
    blocks += _folded("Parameters", [table, printed] if printed else [table])
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


def _reading(parts: Sequence[Section], terms: Terms, remarks: Sequence[Words]) -> Chapter:
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


def _undone(rows: pd.DataFrame) -> Chapter:
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
    blocks = (Paragraph(words), *(_folded(title, [table]) if len(rows) > FEW else [table]))
    return Chapter("Undone", "Units not done", blocks, count=len(rows))
