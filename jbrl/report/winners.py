"""How the best algorithms change as the bound on online time is loosened, from left to right in the map of bounds."""

import pandas as pd

from jbrl.analysis.time_bounds import least_offline, winners_by_bound
from jbrl.errors import JbrlError
from jbrl.report.content import Block, Cell, Column, Heading, Paragraph, Row, Span, Table, Words
from jbrl.report.tables import Section
from jbrl.report.text import seconds_text


def winners(section: Section) -> list[Block]:
    """The lists of section 5.3 of Castronovo et al. 2016: under an offline bound that keeps the slowest out, and without one."""
    if section.timed["algorithm"].nunique() < 2:
        return []
    try:
        contest = section.contest
        slowest = least_offline(contest)
        free = winners_by_bound(contest)
        bounded = free if slowest is None else winners_by_bound(contest, bounds={"offline": _under(slowest[1])})
    except JbrlError:  # the chapter says why agents cannot be compared
        return []
    blocks: list[Block] = [Heading("Winners from left to right")]
    if slowest is not None:
        algorithm, seconds = slowest
        why = f"With a bound on offline time just under the {seconds_text(seconds)} that {algorithm} needs at least: "
        blocks += [Paragraph((why, *_chain(bounded))), _table(f"{section.id}--winners-bounded", bounded)]
    words: Words = ("With any offline time: " if slowest is not None else "As the bound on online time is loosened: ", *_chain(free))
    return [*blocks, Paragraph(words), _table(f"{section.id}--winners", free)]


def _under(seconds: float) -> float:
    """A bound that just excludes `seconds`."""
    return seconds * (1 - 1e-9)


def _chain(found: pd.DataFrame) -> Words:
    """As the paper prints it: `(Random), (BEB, e-Greedy)`; by name within parentheses."""
    return (Span(", ".join(f"({', '.join(sorted(names, key=str.casefold))})" for names in found["algorithms"]), "strong"), ".")


def _table(id: str, found: pd.DataFrame) -> Table:
    """One row per change, the best first."""
    columns = (Column("Online bound from"), Column("Best"), Column("Tied with it"))
    rows = [
        Row((Cell(seconds_text(bound)), Cell(names[0], strong=True, algorithm=names[0]), Cell(", ".join(names[1:]))))
        for bound, names in zip(found["bound"], found["algorithms"], strict=True)
    ]
    return Table(id, "", columns, tuple(rows))
