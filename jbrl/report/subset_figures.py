"""The figures of a subset report."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from jbrl.report.axes import WIDTH, Drawing, rows_figure
from jbrl.report.style import COLOURS, FAINT, INK, PAPER, drawn
from jbrl.stats.subset.study import Study

BLUE, ORANGE, GREEN = COLOURS[:3]


@drawn
def weights(study: Study) -> Drawing:
    """Draw coefficients with bootstrap intervals."""
    best = study.outcome.best
    low, high, y = study.weights.low, study.weights.high, np.arange(len(best.subset))
    figure, axes = rows_figure(best.subset)
    axes.barh(y, best.coefficients, 0.55, color=BLUE)
    look: Any = {"colors": INK, "linewidth": 1.3}
    axes.hlines(y, low, high, **look)
    for ends in (low, high):
        axes.vlines(ends, y - 0.1, y + 0.1, **look)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel("weight")
    return Drawing(figure)


@drawn
def predicted(study: Study) -> Drawing:
    """Draw cross-validated prediction against truth, one point for each algorithm."""
    best, prepared = study.outcome.best, study.outcome.prepared
    truth = prepared.target[best.rows]
    held_out = not np.isnan(best.cv_predictions).any()
    values = best.cv_predictions if held_out else best.predictions
    figure = Figure(figsize=(WIDTH, 4.4))
    axes = figure.subplots()
    ends = [min(truth.min(), values.min()), max(truth.max(), values.max())]
    axes.plot(ends, ends, color=FAINT, linewidth=1)
    drawing = Drawing(figure)
    look: Any = {"markeredgecolor": INK, "markeredgewidth": 0.5, "markersize": 5.5}
    for i, (x, y) in enumerate(zip(truth, values, strict=True)):
        gid, name = f"algorithm-{i}", prepared.algorithms[best.rows[i]]
        axes.plot([x], [y], "o", color=BLUE, gid=gid, **look)
        drawing.titles[gid] = f"{name}: target {x:.3f}, predicted {y:.3f}"
    unit = {"log10": ", log₁₀(1 + x)", "rank": ", rank"}.get(prepared.target_transform.name, "")
    axes.set_xlabel(f"target{unit}")
    axes.set_ylabel("prediction, cross-validated" if held_out else "fitted value")
    axes.grid()
    figure.subplots_adjust(left=0.12, right=0.97, bottom=0.13, top=0.98)
    return drawing


@drawn
def environments(study: Study) -> Drawing:
    """Draw R² of every environment predicted from the subset, in and out of sample."""
    table = study.environments[study.environments["r2_intercept"].notna()].sort_values(
        "cv_r2_intercept", ascending=False, kind="stable"
    )
    figure, axes = rows_figure(_named(table["environment"], study), step=0.155, size=7.5)
    y = np.arange(len(table))
    axes.barh(y, table["r2_intercept"], 0.62, color=BLUE, alpha=0.85)
    shown = np.maximum(table["cv_r2_intercept"].to_numpy(), -0.5)
    axes.plot(shown, y, "o", color=ORANGE, markeredgecolor=INK, markeredgewidth=0.4, markersize=4)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-0.55, 1.03)
    axes.set_xlabel("R²: bar in sample, dot cross-validated")
    below = (table["cv_r2_intercept"] < -0.5).any()
    return Drawing(figure, note="Values below −0.5 are drawn at −0.5." if below else "")


@drawn
def correlation(study: Study) -> Drawing:
    """Draw a heat map, environments that behave alike side by side."""
    table = study.correlations
    order = alike(table)
    table = table.iloc[order, order]
    names = _named(table.columns, study)
    size = 6.2 if len(names) > 30 else 8
    figure = Figure(figsize=(WIDTH + 1.0, WIDTH + 1.0))
    axes = figure.subplots()
    image = axes.imshow(table.to_numpy(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02)
    bar.outline.set_visible(False)
    figure.subplots_adjust(left=0.2, right=0.92, bottom=0.2, top=0.99)
    return Drawing(figure)


@drawn
def sizes(study: Study) -> Drawing:
    """Draw error of the best subset of each size."""
    table = study.sizes
    figure = Figure(figsize=(WIDTH, 3.3))
    axes = figure.subplots()
    for column, label, colour, marker in (
        ("mse", "in sample", BLUE, "o"),
        ("cv_mse", "cross-validated", ORANGE, "s"),
        ("loo_mse", "leave-one-out", GREEN, "^"),
    ):
        axes.plot(table["size"], table[column], color=colour, linewidth=1.2, label=label)
        for heuristic, rows in table.groupby("heuristic"):
            face = PAPER if heuristic else colour
            look: Any = {"color": colour, "markerfacecolor": face, "markersize": 6}
            axes.plot(rows["size"], rows[column], marker, **look)
    if (table[["mse", "cv_mse", "loo_mse"]].to_numpy() > 0).all():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(table["size"])
    axes.set_xlabel("environments in the subset")
    axes.set_ylabel("mean squared error")
    axes.grid(axis="y")
    axes.legend(fontsize=8.5)
    figure.subplots_adjust(left=0.15, right=0.97, bottom=0.17, top=0.97)
    hollow = (
        "Hollow: found by forward selection with swaps, there being too many subsets to try all."
    )
    return Drawing(figure, note=hollow if table["heuristic"].any() else "")


@drawn
def choices(study: Study) -> Drawing:
    """Draw how often each environment is in the winner of another search."""
    bars = {"without a part of the algorithms": study.parts}
    if study.seeds is not None:
        bars["with other folds"] = study.seeds
    shares = pd.DataFrame(
        {label: pd.Series(c.environments, dtype=float) / c.repeats for label, c in bars.items()}
    ).fillna(0.0)
    shares = shares.sort_values(list(shares.columns), ascending=False).head(16)
    figure, axes = rows_figure(_named(shares.index, study), step=0.27, above=0.3)
    y = np.arange(len(shares))
    for i, (label, colour) in enumerate(zip(bars, (BLUE, ORANGE), strict=False)):
        height = 0.7 / len(bars)
        axes.barh(y - 0.35 + (i + 0.5) * height, shares[label], height, color=colour, label=label)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the searches whose winner has it")
    axes.legend(fontsize=8.5, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2)
    return Drawing(figure)


def alike(correlations: pd.DataFrame) -> npt.NDArray[np.intp]:
    """Return an order of the environments in which correlated ones stand together: leaves of
    average linkage on 1 - r.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(correlations) < 3:
        return np.arange(len(correlations))
    distance = 1 - correlations.fillna(0.0).to_numpy()
    np.fill_diagonal(distance, 0)
    return leaves_list(linkage(squareform((distance + distance.T) / 2, checks=False), "average"))


def _named(names: Any, study: Study) -> list[str]:
    """Return names of environments; those of the subset have a mark."""
    members = set(study.outcome.best.subset)
    return [f"{name} ●" if name in members else name for name in names]
