"""The page about searches: for each prior, the best strategies that were found and how often they
were tried.
"""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import pandas as pd
from jinja2 import Template
from markupsafe import Markup
from matplotlib.figure import Figure

from jbrl.report.axes import mark, rows_figure
from jbrl.report.style import LOOK, PAPER, Style, styles
from jbrl.report.svg import inline
from jbrl.report.text import decimals_for, parameters_text, score_text, slug, varied
from jbrl.stats.table import few, is_training

SEARCH = ["algorithm", "parameters", "seed"]  # columns that distinguish the searches on one prior
LISTED = 10  # strategies in a figure and in a table


def render(strategies: pd.DataFrame, name: str, template: Template, version: str) -> str:
    """Return the page as text.

    Args:
      strategies: one row for each strategy of each search, the most pulled of a search first, or
        for each stretch of a training, in order:
        prior, algorithm, parameters, seed, strategy, pulls, mean, std, ci95, discarded, chosen,
        consumed, simulated, offline_seconds.
      name: of the study.
      template: `strategies.html`.
    """
    look, sections, taken = styles(strategies["algorithm"]), list[dict[str, Any]](), list[str]()
    labelled = _labelled(strategies)
    for prior, rows in labelled.groupby("prior", sort=False):
        searches = [found for _, found in rows.groupby(SEARCH, sort=False)]
        taken.append(slug(str(prior), taken))
        sections.append(_section(str(prior), taken[-1], searches, look))
    return template.render(name=name, sections=sections, version=version)


def _labelled(strategies: pd.DataFrame) -> pd.DataFrame:
    """Add a column `label`: the search in words, by what differs."""
    shown = {
        name: varied(rows["parameters"])
        for name, rows in strategies.groupby("algorithm", sort=False)
    }
    several = strategies["seed"].nunique() > 1
    labels = {}
    for search in strategies[SEARCH].drop_duplicates().itertuples(index=False):
        algorithm, parameters, seed = search
        texts = [
            text
            for text in (
                parameters_text(parameters, shown[algorithm]),
                f"seed {seed}" if several else "",
            )
            if text
        ]
        labels[tuple(search)] = f"{algorithm} ({', '.join(texts)})" if texts else algorithm
    return strategies.assign(
        label=[
            labels[search] for search in zip(*(strategies[name] for name in SEARCH), strict=True)
        ]
    )


def _section(
    prior: str, id: str, searches: list[pd.DataFrame], look: Mapping[str, Style]
) -> dict[str, Any]:
    # large sets are tried only a few times each
    surest = max(searches, key=lambda rows: rows.loc[rows["chosen"], "pulls"].iloc[0])
    return {
        "prior": prior,
        "id": id,
        "searches": [_search(rows) for rows in searches],
        "surest": _search(surest),
        "figure": _figure(surest, f"{id}--arms", prior, look),
    }


def _search(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the facts of one search that a table states."""
    first, decimals = rows.iloc[0], decimals_for(rows["ci95"])
    listed = [
        {
            **row,
            "score": score_text(row["mean"], row["ci95"], decimals),
            "share": row["pulls"] / max(1, first["consumed"]),
        }
        for row in _most(rows).to_dict("records")
    ]
    chosen = rows[rows["chosen"]].iloc[0]
    return {
        "label": first["label"],
        "caption": _caption(rows, len(listed)),
        "algorithm": first["algorithm"],
        "chosen": chosen["strategy"],
        "pulls": chosen["pulls"],
        "score": score_text(chosen["mean"], chosen["ci95"], decimals),
        "mean": chosen["mean"],
        "arms": len(rows),
        "discarded": int(rows["discarded"].sum()),
        "consumed": first["consumed"],
        "overhead": first["simulated"] / max(1, first["consumed"]) - 1,
        "offline_seconds": first["offline_seconds"],
        "listed": listed,
    }


def _most(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the strategies that a search tried most; of a training, some stretches."""
    return few(rows[rows["pulls"] > 0], LISTED)


def _caption(rows: pd.DataFrame, listed: int) -> str:
    """Say which rows of a search a table lists."""
    of = f" of {len(rows):,}" if listed < len(rows) else ""
    return f"{listed}{of} stretches of it" if is_training(rows) else f"The {listed} tried most{of}"


def _figure(rows: pd.DataFrame, id: str, prior: str, look: Mapping[str, Style]) -> Markup:
    """Draw means and intervals of the strategies that were tried most, and how often."""
    rows = _most(rows).reset_index(drop=True)
    rows = rows.assign(label=rows["strategy"])
    with mpl.rc_context(LOOK):
        drawn, axes = rows_figure(rows, step=0.3)
        drawn.subplots_adjust(right=0.86)
        titles = {}
        for y, row in rows.iterrows():
            style = look[row["algorithm"]]
            axes.hlines(
                y,
                row["mean"] - row["ci95"],
                row["mean"] + row["ci95"],
                colors=style.colour,
                linewidth=1.6,
            )
            mark(axes, row["mean"], y, style, f"mark-{y}", face=None if row["chosen"] else PAPER)
            axes.annotate(
                f"{row['pulls']:,}",
                (1.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8.5,
            )
            titles[f"mark-{y}"] = f"{row['strategy']}: {row['mean']:.4g} in {row['pulls']:,} pulls"
        axes.annotate(
            "pulls",
            (1.02, -0.62),
            xycoords=("axes fraction", "data"),
            va="bottom",
            fontsize=8.5,
            annotation_clip=False,
        )
        axes.set_xlabel("mean discounted return on the prior")
        _room_on_top(drawn)
    return Markup(inline(drawn, id, f"Strategies tried on {prior}", titles))


def _room_on_top(figure: Figure) -> None:
    """Make room for the heading of the column of pulls."""
    figure.subplots_adjust(top=1 - 0.24 / figure.get_figheight())
