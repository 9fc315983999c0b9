"""The report of a study, made from tables: a chapter for each experiment between a summary and the
settings.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

import jbrl.report.bounds  # noqa: F401 (lists its figures)
from jbrl.report.axes import Drawing
from jbrl.report.chapters import CLOSING, advice, summary
from jbrl.report.content import (
    Block,
    Cell,
    Chapter,
    Column,
    Document,
    Facts,
    Items,
    Paragraph,
    Plot,
    Sentence,
    Span,
    folded,
    marked,
    reading,
    sentence,
    table,
)
from jbrl.report.figures import FIGURES, Part
from jbrl.report.metrics import metric_blocks
from jbrl.report.sections import Section, lengths_differ
from jbrl.report.style import Style
from jbrl.report.tables import all_agents, best_agents, winners
from jbrl.report.text import EPISODES, MDPS, Terms, count, listing, shared
from jbrl.stats.labels import parameters_text

PARTS: dict[Part, str] = {  # of an experiment; those with a title are details
    "answer": "",
    "times": "Scores and computation times",
    "scores": "Differences, distributions and ranks",
}
ALONE = (
    "it is the best agent of the only algorithm with a score, so that there is nothing to compare "
    "it with"
)
MOST_UNDONE = 12  # units without a result that are listed in the open
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that are shown
# names that underscores would spoil
SETTING_NAMES = {"memory_gib": "memory, GiB", "horizon_epsilon": "horizon, precision"}


def document(
    parts: Sequence[Section],
    styles: Mapping[str, Style],
    manifest: Mapping[str, Any],
    experiments: Iterable[Chapter] | None = None,
    pages: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
) -> Document:
    """Return the report of a study.

    Args:
      parts: its experiments (`sections.sections`).
      styles: of all algorithms.
      manifest: `study`, `machine` and `versions` are tables to show; all may be absent.
      experiments: the chapter of each part, where they are made already.
      pages: beside this one, file by title.
      files: tables beside it.
    """
    everything = pd.concat([s.table for s in parts], ignore_index=True)
    terms = shared([s.terms for s in parts])
    undone = everything[everything["status"] != "done"]
    if experiments is None:
        experiments = [experiment(parts, number, styles) for number in range(len(parts))]
    chapters = [summary(parts, terms), *experiments, _settings(everything, manifest, terms)]
    notices = []
    if len(undone):
        chapters.append(_undone_units(undone))
        text = (
            "**{undone} of {units} units** have no result; they are [listed below](#Undone). "
            "Everything else is complete."
        )
        words = sentence(text, undone=len(undone), units=len(everything))
        notices = [Paragraph(words, "notice")]
    chapters.append(_reading(parts, terms, files))
    bayesian = "Bayesian reinforcement learning benchmark"
    return Document(
        title=str((manifest.get("study") or {}).get("name", "study")),
        kind=bayesian if terms is MDPS else "Reinforcement learning benchmark",
        facts=tuple(_facts(parts, everything, manifest, terms)),
        notices=tuple(notices),
        chapters=tuple(chapters),
        styles=styles,
        version=str((manifest.get("versions") or {}).get("jbrl", "")),
        pages=pages or {},
    )


def _facts(
    parts: Sequence[Section], everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms
) -> Iterator[str]:
    """Describe the study in a few words per fact."""
    study = manifest.get("study") or {}
    agents = everything.drop_duplicates(["algorithm", "parameters"])
    yield count(len(parts), "experiment")
    yield f"{count(len(agents), 'agent')} of {count(agents['algorithm'].nunique(), 'algorithm')}"
    sizes = sorted(set(everything.loc[everything["status"] == "done", "n"]))
    if len(sizes) == 1:
        yield f"{count(sizes[0], terms.environment)} each"
    elif sizes:
        yield f"{sizes[0]} to {sizes[-1]} {terms.environments}"
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
    lifetime = "" if lengths_differ(parts) else parts[0].rules.lifetime
    if terms is MDPS and isinstance(horizon, str):
        yield f"horizon {horizon}"
    elif terms is MDPS and not lengths_differ(parts) and (lifetime or horizon):
        yield lifetime.replace("step", "decision") or count(horizon, "decision")
    elif lifetime:
        yield f"lifetimes of {lifetime}"


def experiment(parts: Sequence[Section], number: int, styles: Mapping[str, Style]) -> Chapter:
    """Describe one of the experiments: its rules, its best agents, its figures and tables."""
    section = parts[number]
    blocks: list[Block] = [_setup(section, length=lengths_differ(parts)), *_verdict(section)]
    if section.note:
        blocks.append(Paragraph(marked(section.note), "notice"))
    words = advice(section)
    blocks += [Paragraph((*words, f" {CLOSING}"), "verdict")] if words else []
    if busy := section.busy_text():
        blocks.append(Paragraph((busy,), "notice"))
    own, missing = metric_blocks(section, styles)
    shown = [block for block in own if isinstance(block, Plot)]
    absent: list[Sentence] = [
        (Span(title, "strong"), f" is not drawn: {reason}.") for title, reason in missing.items()
    ]
    for part, title in PARTS.items():
        plots: list[Block] = []
        for kind in (kind for kind in FIGURES if kind.part == part):
            drawing = kind.draw(section, styles)
            if isinstance(drawing, Drawing):
                id, caption = f"{section.id}--{kind.id}", section.terms.say(kind.caption)
                plots.append(Plot(id, kind.title, caption, drawing))
            elif drawing:
                reason = marked(f" is not drawn: {section.terms.adapt(drawing)}.")
                absent.append((Span(kind.title, "strong"), *reason))
        blocks += folded(title, plots) if title else [*plots, *shown]
    blocks += folded("Winners from left to right", winners(section))
    best = [best_agents(section)] if len(section.done) else []
    counted = [block for block in own if not isinstance(block, Plot)]
    blocks += folded("Tables of the agents", [*best, all_agents(section), *counted])
    blocks += folded("Figures that are not drawn", [Items(tuple(absent))] if absent else [])
    return Chapter(section.id, section.name, tuple(blocks), "experiment")


def _setup(section: Section, *, length: bool) -> Paragraph:
    """Describe the agents' prior, the test environments and, with `length` or where it matters, the
    length of lifetimes.
    """
    finite = section.terms is MDPS
    on = "on" if finite else "in"
    played = f"played {on} {section.terms.environments} drawn from **{{test}}**"
    trained = "{prior} Trained on **{name}**, "
    template = trained + played if section.shows_prior else played.capitalize()
    template += f", {section.rules.lifetime} {on} each." if length or not finite else "."
    template += "" if finite else f" Score: {section.rules.criterion}."
    prior = Span("accurate prior" if section.accurate else "inaccurate prior", "chip")
    words = sentence(template, prior=prior, name=section.prior, test=section.test)
    return Paragraph(words, "setup")


def _verdict(section: Section) -> list[Paragraph]:
    """Return the best algorithm and those tied with it."""
    champions = section.champions
    if champions.empty:
        return []
    best, tied = champions.iloc[0], list(champions.loc[champions["tied"], "label"])
    score = section.score(best)
    end = "."
    if not section.note and tied:
        end = f"; {listing(tied)} {'is' if len(tied) == 1 else 'are'} statistically tied with it."
    elif not section.note and len(champions) > 1:
        end = ", significantly better than every other algorithm."
    text = f" is best with {score}{end}" if len(champions) > 1 else f" has {score}; {ALONE}."
    return [Paragraph((Span(best["label"], "strong", best["algorithm"]), text), "verdict")]


def _settings(everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms) -> Chapter:
    """Describe the run: its machine and its parameters."""
    devices = ", ".join(dict.fromkeys(everything["device"].dropna().astype(str)))
    blocks: list[Block] = []
    for title in SETTINGS:
        if isinstance(manifest.get(title), Mapping):
            lines = _lines(manifest[title], SETTING_NAMES | {"n_mdps": terms.environments})
            lines += [("device", devices)] if title == "machine" and devices else []
            blocks.append(Facts(title.capitalize(), tuple(lines)))
    agents = everything.sort_values("place").drop_duplicates(["algorithm", "parameters"])
    rows = []
    for name, own in agents.groupby("algorithm", sort=False):
        texts = [parameters_text(p) or "no parameters" for p in own["parameters"]]
        rows.append((Cell(str(name), algorithm=str(name)), Cell(items=tuple(texts))))
    columns = ("Algorithm", "Parameters of each agent")
    blocks += folded("Parameters", [table("Settings--agents", "Agents", columns, rows)])
    return Chapter("Settings", "Settings and machine", tuple(blocks))


def _lines(
    settings: Mapping[str, Any], names: Mapping[str, str], prefix: str = ""
) -> list[tuple[str, str]]:
    """Return a table of the manifest as names and texts; tables within it have dotted names."""
    lines: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            lines += _lines(value, names, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            text = {"True": "yes", "False": "no"}.get(text, text)
            lines.append((prefix + names.get(name, str(name).replace("_", " ")), text))
    return lines


def _undone_units(rows: pd.DataFrame) -> Chapter:
    """Return units without a result, and why where it is known."""
    reasons = ["Reason"] * bool(rows["reason"].any())
    columns = ["Experiment", "Agent", "Parameters", Column("Status", "chip"), *reasons]
    lines = [
        (
            row["experiment"],
            row["label"],
            Cell(row["parameters"], code=True),
            Cell(row["status"], standing="bad"),
            *(row["reason"] for _ in reasons),
        )
        for row in rows.to_dict("records")
    ]
    words = ("Running the study again does what is missing and tries again what failed.",)
    title = "Units without a result"
    units = table("Undone--table", title, columns, lines, sortable=True)
    listed = folded(title, [units]) if len(rows) > MOST_UNDONE else [units]
    blocks = (Paragraph(words), *listed)
    return Chapter("Undone", "Units not done", blocks, count=len(rows))


def _reading(parts: Sequence[Section], terms: Terms, files: Sequence[str]) -> Chapter:
    """Explain how to read the report, including only the kinds of experiments that it has."""
    kinds = dict.fromkeys(section.terms for section in parts)
    scores = [
        sentence(
            "**{score}** {meaning}",
            score="Score." if len(kinds) == 1 else f"Score, {kind.mean}.",
            meaning=kind.meaning,
        )
        for kind in kinds
    ]
    sources = reading("episodes") if EPISODES in kinds else ()
    items = (*scores, *reading("study", files, **terms.names), *sources)
    return Chapter("Reading", "How to read this report", (Items(items),))
