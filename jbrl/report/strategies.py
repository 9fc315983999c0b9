"""The page about searches: for each prior, the best strategies that were found and how often they
were tried.

Its table has one row for each strategy of each search, the most pulled of a search first, or for
each stretch of a training, in order: prior, algorithm, parameters, seed, strategy, pulls, mean,
std, ci95, discarded, chosen, consumed, simulated, offline_seconds.
"""

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import pandas as pd

from jbrl.report import content as doc
from jbrl.report.axes import Drawing, Styles, drawn, interval, rows_panel, styles
from jbrl.report.text import decimals_for, named, score_text, seconds_text, slug
from jbrl.stats.table import few, is_training, settings_of

WORDS = doc.prose("strategies")
SEARCH = ["algorithm", "parameters", "seed"]  # columns that distinguish the searches on one prior
LISTED = 10  # strategies in a figure and in a table


def document(strategies: pd.DataFrame, report: doc.Document, page: str) -> doc.Document:
    """Return the page beside a report, which stands in the file `page`."""
    looks, chapters = styles(strategies["algorithm"]), list[doc.Chapter]()
    for prior, rows in _labelled(strategies).groupby("prior", sort=False):
        id = slug(str(prior), [chapter.id for chapter in chapters])
        searches = [search for _, search in rows.groupby(SEARCH, sort=False)]
        blocks = tuple(_blocks(id, searches, looks))
        chapters.append(doc.Chapter(id, f"Prior {prior}", blocks, "experiment"))
    return doc.Document(
        title="Strategies found offline",
        kind=report.title,
        facts=(),
        notices=(doc.Paragraph(doc.sentence(WORDS["intro"])),),
        chapters=tuple(chapters),
        styles=looks,
        version=report.version,
        pages={"← Report": page},
    )


def _labelled(strategies: pd.DataFrame) -> pd.DataFrame:
    """Add a column `label`: the search in words, by what differs."""
    several = strategies["seed"].nunique() > 1
    rows = (strategies["algorithm"], settings_of(strategies), strategies["seed"])
    labels = [
        named(algorithm, ", ".join(filter(None, (text, f"seed {seed}" * several))))
        for algorithm, text, seed in zip(*rows, strict=True)
    ]
    return strategies.assign(label=labels)


def _blocks(id: str, searches: list[pd.DataFrame], looks: Styles) -> Iterator[doc.Block]:
    """Yield the search that is surest in the open, all in a table, the others as details."""
    # large sets are tried only a few times each
    surest = max(searches, key=lambda rows: rows.loc[rows["chosen"], "pulls"].iloc[0])
    label = surest["label"].iloc[0]
    yield doc.Plot(f"{id}--arms", label, WORDS["arms"], _figure(_most(surest), looks))
    yield _tried(f"{id}--tried", surest)
    columns = ("Pulls of it", "Mean return", "Strategies", "Discarded", "Trajectories", "Unused")
    numbers = [doc.Column(name, "number") for name in (*columns, "Offline")]
    rows = map(_search, searches)
    heads = ("Search", "Chosen", *numbers)
    yield doc.table(f"{id}--searches", "All searches", heads, rows, sortable=True)
    for number, rows_ in enumerate(searches, 1):
        if rows_ is not surest:
            listed = _tried(f"{id}--tried-{number}", rows_)
            title = f"{listed.title[:1].lower()}{listed.title[1:]}"
            yield from doc.folded(f"{rows_['label'].iloc[0]}: {title}", [listed])


def _search(rows: pd.DataFrame) -> list[doc.Cell | str]:
    """Return the facts of one search that a table states."""
    first, chosen = rows.iloc[0], rows[rows["chosen"]].iloc[0]
    unused = first["simulated"] / max(1, first["consumed"]) - 1
    score = score_text(chosen["mean"], chosen["ci95"], decimals_for(rows["ci95"]))
    return [
        first["label"],
        doc.Cell(chosen["strategy"], strong=True),
        _number(chosen["pulls"]),
        doc.Cell(score, chosen["mean"]),
        _number(len(rows)),
        _number(rows["discarded"].sum()),
        _number(first["consumed"]),
        doc.Cell(f"{100 * unused:.1f}%", unused),
        doc.Cell(seconds_text(first["offline_seconds"]), first["offline_seconds"]),
    ]


def _number(value: int) -> doc.Cell:
    return doc.Cell(f"{value:,}", int(value))


def _most(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the strategies that a search tried most; of a training, some stretches."""
    return few(rows[rows["pulls"] > 0], LISTED)


def _tried(id: str, rows: pd.DataFrame) -> doc.Table:
    """Tabulate the strategies that a search tried most."""
    listed, decimals = _most(rows), decimals_for(rows["ci95"])
    of = f" of {len(rows):,}" if len(listed) < len(rows) else ""
    number = len(listed)
    title = f"{number}{of} stretches of it" if is_training(rows) else f"The {number} tried most{of}"
    mean = doc.Column("Mean return", "number", "± 95% interval")
    columns: list[tuple[object, Any]] = [
        ("Strategy", itemgetter("strategy")),
        (doc.Column("State", "chip"), _state),
        (doc.Column("Pulls", "number"), lambda r: f"{r['pulls']:,}"),
        (
            doc.Column("Share", "number"),
            lambda r: f"{100 * r['pulls'] / max(1, r['consumed']):.1f}%",
        ),
        (mean, lambda r: score_text(r["mean"], r["ci95"], decimals)),
    ]
    return doc.tabulate(id, title, columns, listed.to_dict("records"))


def _state(row: Mapping[str, Any]) -> doc.Cell:
    state = "chosen" if row["chosen"] else "discarded" if row["discarded"] else ""
    return doc.Cell(state, standing="best" if row["chosen"] else "bad")


@drawn
def _figure(rows: pd.DataFrame, looks: Styles) -> Drawing:
    """Draw means and intervals of strategies, and how often they were tried."""
    data = rows[["strategy", "pulls", "mean", "ci95", "chosen"]]
    drawing, axes = rows_panel(rows["strategy"], data, step=0.3, above=0.24)
    drawing.figure.subplots_adjust(right=0.86)
    place: Any = {"xycoords": ("axes fraction", "data"), "fontsize": 8.5}
    for y, row in enumerate(rows.to_dict("records")):
        style, mean = looks[row["algorithm"]], row["mean"]
        interval(axes, y, mean - row["ci95"], mean + row["ci95"], colors=style.colour)
        title = f"{row['strategy']}: {mean:.4g} in {row['pulls']:,} pulls"
        drawing.mark(axes, (mean, y), style, f"mark-{y}", title, full=row["chosen"])
        axes.annotate(f"{row['pulls']:,}", (1.02, y), va="center", **place)
    axes.annotate("pulls", (1.02, -0.62), va="bottom", annotation_clip=False, **place)
    axes.set_xlabel("mean discounted return on the prior")
    return drawing
