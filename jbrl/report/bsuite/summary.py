"""The chapters on all experiments together: scores by tag and experiment, and which differences are
sure.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, TAGS
from jbrl.report.bsuite import score_figures as figures
from jbrl.report.bsuite.files import plot
from jbrl.report.bsuite.marks import Styles
from jbrl.report.bsuite.words import in_words
from jbrl.report.content import (
    Block,
    Cell,
    Chapter,
    Column,
    Items,
    Paragraph,
    Row,
    Span,
    Table,
    Words,
)
from jbrl.report.text import ABSENT, listing
from jbrl.stats.bsuite.logs import Logs

ABREAST = 3  # agents from whose number on tables have no place for intervals


def summary(logs: Logs, table: pd.DataFrame, tags: pd.DataFrame, looks: Styles) -> Chapter:
    """Show scores of tags and experiments: the figures and tables of all agents."""
    blocks: list[Block] = [Paragraph(_verdict(tags), "verdict")]
    names = sorted(set(table["bsuite_env"]), key=figures.BARS.index)
    if len(logs.agents) > figures.CROWD:
        crowd = f"{len(logs.agents)} agents: lines of the radar hide each other beyond five; the "
        blocks.append(Paragraph((crowd + "rows beside it do not.",), "setup"))
    blocks += [
        plot(
            "radar",
            "Radar",
            "Mean score of the experiments that carry a tag. Scores below 0.05 are drawn at 0.05. "
            "A hollow symbol: some of these experiments are not there or not finished.",
            figures.radar(tags, looks),
        ),
        plot(
            "tags",
            "Tags in rows",
            "The same scores. Bars are 95% intervals over runs, where every setting was played "
            "several times.",
            figures.tag_lines(tags, looks),
        ),
        Paragraph(
            (
                "Bars of one colour are of one type. The dashed line is the best possible score; "
                "strokes are 95% intervals over runs, where settings were played several times.",
            ),
            "key",
        ),
        plot(
            "bars",
            "Scores of all experiments",
            "Hatched: not finished. A dash: no score.",
            figures.bars(table),
        ),
        _table("scores", "Scores", "Experiment", table.set_index("bsuite_env"), names),
        _table("tag-scores", "Means of tags", "Tag", tags.set_index("tag"), TAGS),
        Paragraph(
            (
                "As files beside this page: ",
                Span("scores.csv", target="scores.csv"),
                ", ",
                Span("tags.csv", target="tags.csv"),
                ", ",
                Span("tests.csv", target="tests.csv"),
                ".",
            ),
            "key",
        ),
    ]
    return Chapter("summary", "Summary", tuple(blocks))


def _verdict(tags: pd.DataFrame) -> Words:
    """Return the best and the worst tag of one agent, or the best agent of each tag."""
    agents = list(dict.fromkeys(tags["agent"]))
    known = tags[tags["score"].notna()]
    if len(agents) == 1:
        if known.empty:
            return ("No score is known.",)
        ordered = known.sort_values("score", ascending=False)
        best, worst = ordered.iloc[0], ordered.iloc[-1]
        return (
            Span(agents[0], "strong", agents[0]),
            f" does best in {in_words(best['tag'])} ({best['score']:.2f}) and worst in "
            f"{in_words(worst['tag'])} ({worst['score']:.2f}).",
        )
    found: dict[str, list[str]] = {}
    for tag in TAGS:
        rows = known[known["tag"] == tag]
        if len(rows):
            leader = str(rows.loc[rows["score"].idxmax(), "agent"])
            found.setdefault(leader, []).append(in_words(tag))
    parts: list[Span | str] = ["Highest tag scores: "]
    for k, (agent, names) in enumerate(found.items()):
        parts += ["; " if k else "", Span(agent, "strong", agent), f" in {listing(names)}"]
    return (*parts, ".")


def _table(id_: str, title: str, head: str, scores: pd.DataFrame, names: Sequence[str]) -> Table:
    """Return experiments or tags in rows, agents in columns; `scores` has the former in its
    index.
    """
    agents = list(dict.fromkeys(scores["agent"]))
    by_agent = {agent: scores[scores["agent"] == agent] for agent in agents}
    rows = []
    for name in names:
        cells = [_cell(by_agent[agent].loc[name], len(agents) <= ABREAST) for agent in agents]
        label = Cell(name if name in EXPERIMENTS else in_words(name).capitalize())
        rows.append(Row((label, *_marked(cells))))
    heads = [
        Column(textwrap.shorten(agent, 20, placeholder="…"), "number", hint=agent)
        for agent in agents
    ]
    return Table(id_, title, (Column(head), *heads), tuple(rows), sortable=True)


def _cell(row: pd.Series, interval: bool) -> Cell:
    """Return a score with its interval; an asterisk where it is not finished."""
    if not np.isfinite(row["score"]):
        return Cell(ABSENT, float("nan"), standing="none")
    text = f"{row['score']:.3f}" + ("" if row["finished"] else "*")
    known = interval and np.isfinite(row["lower"]) and np.isfinite(row["upper"])
    small = f" ({row['lower']:.2f}–{row['upper']:.2f})" if known else ""
    return Cell(text, float(row["score"]), small=small)


def _marked(cells: Sequence[Cell]) -> list[Cell]:
    """Return a row with its highest score in bold, where there are several."""
    values = [cell.value for cell in cells if isinstance(cell.value, float)]
    known = [value for value in values if np.isfinite(value)]
    if len(cells) < 2 or not known or max(known) == min(known):
        return list(cells)
    return [
        Cell(c.text, c.value, strong=True, small=c.small) if c.value == max(known) else c
        for c in cells
    ]


def differences(tests: pd.DataFrame) -> Chapter:
    """Describe pairs of agents: in how many experiments they differ, and all p-values."""
    pairs = list(tests.groupby(["agent", "other"], sort=False))
    items = []
    for (agent, other), rows in pairs:
        better = rows[rows["differs"] & (rows["difference"] > 0)]
        worse = rows[rows["differs"] & (rows["difference"] < 0)]
        known = int(rows["p_value"].notna().sum())
        items.append(
            (
                Span(str(agent), algorithm=str(agent)),
                " against ",
                Span(str(other), algorithm=str(other)),
                f": better in {len(better)} experiments, worse in {len(worse)}, no sure "
                f"difference in {known - len(better) - len(worse)}"
                + (f", not finished in {len(rows) - known}" if known < len(rows) else "")
                + ".",
            )
        )
    table = Table(
        "tests",
        "All tests",
        (
            Column("Experiment"),
            Column("Agents"),
            Column("Difference", "number"),
            Column("p", "number", hint="two-sided, not corrected"),
            Column("Differs", "chip", hint="with Holm's correction over a pair's experiments"),
        ),
        tuple(_test_row(row) for row in tests.to_dict("records")),
        sortable=True,
        long=len(tests) > 30,
    )
    words: Words = (
        "Names are exchanged at random between the runs of equal settings: if two agents behave "
        "alike, that changes nothing. Differs: p is small enough at 5% with Holm's correction over "
        "the experiments of a pair.",
    )
    return Chapter(
        "tests-of-agents",
        "Which differences are sure",
        (Paragraph(words), Items(tuple(items)), table),
    )


def _test_row(row: Mapping[str, Any]) -> Row:
    known = np.isfinite(row["p_value"])
    return Row(
        (
            Cell(str(row["bsuite_env"])),
            Cell(f"{row['agent']} and {row['other']}"),
            Cell(
                f"{row['difference']:+.3f}".replace("-", "−") if known else ABSENT,
                row["difference"],
            ),
            Cell(f"{row['p_value']:.2g}" if known else ABSENT, row["p_value"]),
            Cell("differs" if row["differs"] else "", standing="best"),
        )
    )
