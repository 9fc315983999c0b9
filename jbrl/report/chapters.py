"""Content of the report of a study, made from tables: which chapters it has, and what stands above
them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbrl.report import experiment_chapter
from jbrl.report.closing_chapters import reading, settings, undone_units
from jbrl.report.content import Chapter, Document, Paragraph, Span, Words
from jbrl.report.style import Style
from jbrl.report.summary_chapter import summary
from jbrl.report.tables import Section, lengths_differ
from jbrl.report.terms import MDPS, Terms, shared
from jbrl.report.text import count, listing


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
    chapters = [summary(parts, terms), *experiments]
    chapters.append(settings(parts, everything, manifest, terms))
    if len(undone):
        chapters.append(undone_units(undone))
    chapters.append(reading(parts, terms, remarks))
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
    return experiment_chapter.experiment(parts[number], styles, length=lengths_differ(parts))


def name_of(manifest: Mapping[str, Any]) -> str:
    """Return the name of the study."""
    return str((manifest.get("study") or {}).get("name", "study"))


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
    lifetime = "" if lengths_differ(parts) else parts[0].rules.lifetime
    if terms is MDPS and isinstance(horizon, str):
        yield f"horizon {horizon}"
    elif terms is MDPS and not lengths_differ(parts) and (lifetime or horizon):
        yield lifetime.replace("step", "decision") or count(horizon, "decision")
    elif lifetime:
        yield f"lifetimes of {lifetime}"
