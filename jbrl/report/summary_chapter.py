"""The first chapter of the report of a study: which algorithms are best, and the best agent of each
algorithm in each experiment.
"""

from collections.abc import Sequence

import pandas as pd

from jbrl.report import tables
from jbrl.report.choice import CLOSING, advice, standing
from jbrl.report.content import (
    Block,
    Cell,
    Chapter,
    Column,
    Heading,
    Items,
    Paragraph,
    Row,
    Span,
    Standing,
    Table,
    Words,
)
from jbrl.report.paper import budgets
from jbrl.report.tables import Section, lengths_differ
from jbrl.report.terms import MDPS, OTHERS, Terms, shared
from jbrl.report.text import ABSENT

FEW = 12  # experiments that are named in the answer of the summary
SUMMARY = (
    "{Mean} of the best agent of each algorithm, ± 95% interval. Algorithms stand in order of "
    "their average place."
)
OVERVIEW = "Best agent of each algorithm in each experiment"
WHICH = " Below the name of an experiment stands what its score is."  # where not all have the same


def summary(parts: Sequence[Section], terms: Terms) -> Chapter:
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
            Column(s.name, small=_small(s, terms, length=lengths_differ(parts)), target=f"#{s.id}")
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
