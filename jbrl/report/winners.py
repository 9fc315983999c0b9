"""Best algorithms from left to right in the map of bounds, as the bound on online time loosens."""

import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.report.content import Block, Cell, Column, Paragraph, Row, Span, Table, Words
from jbrl.report.tables import Section
from jbrl.report.text import seconds_text
from jbrl.stats.time_bounds import least_offline, winners_by_bound


def winners(section: Section) -> list[Block]:
    """Return the lists of section 5.3 of Castronovo et al. 2016: under an offline bound that keeps
    the slowest out, and without one.
    """
    if section.timed["algorithm"].nunique() < 2:
        return []
    try:
        contest = section.contest
        slowest = least_offline(contest)
        free = winners_by_bound(contest)
        bounded = (
            free
            if slowest is None
            else winners_by_bound(contest, bounds={"offline": _under(slowest[1])})
        )
    except JbrlError:  # the chapter says why agents cannot be compared
        return []
    blocks: list[Block] = []
    if slowest is not None:
        algorithm, seconds = slowest
        why = (
            f"With a bound on offline time just under the {seconds_text(seconds)} that "
            f"{algorithm} needs at least: "
        )
        blocks += [
            Paragraph((why, *_chain(bounded))),
            _table(
                f"{section.id}--winners-bounded",
                f"Winners with less than {seconds_text(seconds)} before the first decision",
                bounded,
            ),
        ]
    words: Words = (
        "With any offline time: "
        if slowest is not None
        else "As the bound on online time is loosened: ",
        *_chain(free),
    )
    table = _table(
        f"{section.id}--winners", "Winners with any time before the first decision", free
    )
    return [*blocks, Paragraph(words), table]


def _under(seconds: float) -> float:
    """Return a bound that just excludes `seconds`."""
    return seconds * (1 - 1e-9)


def _chain(found: pd.DataFrame) -> Words:
    """As the paper prints it: `(Random), (BEB, e-Greedy)`; by name within parentheses."""
    return (
        Span(
            ", ".join(
                f"({', '.join(sorted(names, key=str.casefold))})" for names in found["algorithms"]
            ),
            "strong",
        ),
        ".",
    )


def _table(id: str, title: str, found: pd.DataFrame) -> Table:
    """Return one row per change, the best first."""
    columns = (Column("Online bound from"), Column("Best"), Column("Tied with it"))
    rows = [
        Row(
            (
                Cell(seconds_text(bound)),
                Cell(names[0], strong=True, algorithm=names[0]),
                Cell(", ".join(names[1:])),
            )
        )
        for bound, names in zip(found["bound"], found["algorithms"], strict=True)
    ]
    return Table(id, title, columns, tuple(rows))
