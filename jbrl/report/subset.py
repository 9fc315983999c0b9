"""One self-contained page about a subset with its figures, its tables and its model beside it."""

import json
import math
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.ticker import LogLocator, NullLocator

from jbrl.base.files import writing
from jbrl.report import content as doc
from jbrl.report.axes import (
    COLOURS,
    FAINT,
    INK,
    PAPER,
    WIDTH,
    Drawing,
    drawn,
    labels_of,
    panel,
    rows_panel,
)
from jbrl.report.files import write_document
from jbrl.report.text import listing
from jbrl.stats.subset import model
from jbrl.stats.subset.robustness import Choice, pooled_r2
from jbrl.stats.subset.study import Study, of_fit, of_outcome, of_settings

BLUE, ORANGE, GREEN = COLOURS[:3]


@drawn
def weights(study: Study) -> Drawing:
    """Draw coefficients with bootstrap intervals."""
    best = study.outcome.best
    low, high, y = study.weights.low, study.weights.high, np.arange(len(best.subset))
    drawing, axes = rows_panel(best.subset)
    axes.barh(y, best.coefficients, 0.55, color=BLUE)
    look: Any = {"colors": INK, "linewidth": 1.3}
    axes.hlines(y, low, high, **look)
    for ends in (low, high):
        axes.vlines(ends, y - 0.1, y + 0.1, **look)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlabel("weight")
    return drawing


@drawn
def predicted(study: Study) -> Drawing:
    """Draw cross-validated prediction against truth, one point for each algorithm."""
    best, prepared = study.outcome.best, study.outcome.prepared
    truth = prepared.target[best.rows]
    held_out = not np.isnan(best.cv_predictions).any()
    values = best.cv_predictions if held_out else best.predictions
    drawing, axes = panel(4.4)
    ends = [min(truth.min(), values.min()), max(truth.max(), values.max())]
    axes.plot(ends, ends, color=FAINT, linewidth=1)
    look: Any = {"markeredgecolor": INK, "markeredgewidth": 0.5, "markersize": 5.5}
    for i, (x, y) in enumerate(zip(truth, values, strict=True)):
        gid, name = f"algorithm-{i}", prepared.algorithms[best.rows[i]]
        axes.plot([x], [y], "o", color=BLUE, gid=gid, **look)
        drawing.titles[gid] = f"{name}: target {x:.3f}, predicted {y:.3f}"
    unit = {"log10": ", log₁₀(1 + x)", "rank": ", rank"}.get(prepared.target_transform.name, "")
    axes.set_xlabel(f"target{unit}")
    axes.set_ylabel("prediction, cross-validated" if held_out else "fitted value")
    axes.grid()
    drawing.figure.subplots_adjust(left=0.12, right=0.97, bottom=0.13, top=0.98)
    return drawing


@drawn
def environments(study: Study) -> Drawing:
    """Draw R² of every environment predicted from the subset, in and out of sample."""
    frame = study.environments[study.environments["r2_intercept"].notna()].sort_values(
        "cv_r2_intercept", ascending=False, kind="stable"
    )
    drawing, axes = rows_panel(_named(frame["environment"], study), step=0.155, size=7.5)
    y = np.arange(len(frame))
    axes.barh(y, frame["r2_intercept"], 0.62, color=BLUE, alpha=0.85)
    shown = np.maximum(frame["cv_r2_intercept"].to_numpy(), -0.5)
    axes.plot(shown, y, "o", color=ORANGE, markeredgecolor=INK, markeredgewidth=0.4, markersize=4)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-0.55, 1.03)
    axes.set_xlabel("R²: bar in sample, dot cross-validated")
    below = (frame["cv_r2_intercept"] < -0.5).any()
    drawing.note = "Values below −0.5 are drawn at −0.5." if below else ""
    return drawing


@drawn
def correlation(study: Study) -> Drawing:
    """Draw a heat map, environments that behave alike side by side."""
    frame = study.correlations
    order = alike(frame)
    frame = frame.iloc[order, order]
    many = len(frame) > 30
    size, place = (6.2, (26, 1)) if many else (8, (18, 2))
    names = labels_of(_named(frame.columns, study), *place)
    drawing, axes = panel(WIDTH + 1.0, width=WIDTH + 1.0)
    image = axes.imshow(frame.to_numpy(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.tick_params(length=0)
    bar = drawing.figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02)
    bar.outline.set_visible(False)
    drawing.figure.subplots_adjust(left=0.2, right=0.92, bottom=0.2, top=0.99)
    return drawing


@drawn
def sizes(study: Study) -> Drawing:
    """Draw error of the best subset of each size."""
    frame = study.sizes
    drawing, axes = panel(3.3)
    for column, label, colour, marker in (
        ("mse", "in sample", BLUE, "o"),
        ("cv_mse", "cross-validated", ORANGE, "s"),
        ("loo_mse", "leave-one-out", GREEN, "^"),
    ):
        axes.plot(frame["size"], frame[column], color=colour, linewidth=1.2, label=label)
        for heuristic, rows in frame.groupby("heuristic"):
            face = PAPER if heuristic else colour
            look: Any = {"color": colour, "markerfacecolor": face, "markersize": 6}
            axes.plot(rows["size"], rows[column], marker, **look)
    if (frame[["mse", "cv_mse", "loo_mse"]].to_numpy() > 0).all():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(frame["size"])
    axes.set_xlabel("environments in the subset")
    axes.set_ylabel("mean squared error")
    axes.grid(axis="y")
    axes.legend(fontsize=8.5)
    drawing.figure.subplots_adjust(left=0.15, right=0.97, bottom=0.17, top=0.97)
    hollow = (
        "Hollow: found by forward selection with swaps, there being too many subsets to try all."
    )
    drawing.note = hollow if frame["heuristic"].any() else ""
    return drawing


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
    drawing, axes = rows_panel(_named(shares.index, study), step=0.27, above=0.3)
    y = np.arange(len(shares))
    for i, (label, colour) in enumerate(zip(bars, (BLUE, ORANGE), strict=False)):
        height = 0.7 / len(bars)
        axes.barh(y - 0.35 + (i + 0.5) * height, shares[label], height, color=colour, label=label)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the searches whose winner has it")
    # to the left of which names have room
    axes.legend(fontsize=8.5, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    return drawing


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


MANY_ENVIRONMENTS = 25  # from which on their correlations get the width of the page
WORDS = doc.prose("subset")  # captions
FIGURES = {
    "weights": ("Weights", weights),
    "predicted": ("Predicted against true", predicted),
    "choices": ("How firm the choice is", choices),
    "sizes": ("Error against size", sizes),
    "environments": ("Every environment from the subset", environments),
    "correlation": ("Correlations", correlation),
}


def write_report(study: Study, name: str, out: Path) -> Path:
    """Write `index.html`, `search.json`, the tables as CSV and, where its transform can be saved,
    `model.json` to the folder `out`.

    Returns:
      Path of the page.

    Raises:
      JbrlError: `out` cannot be written.
    """
    tables = {
        "environments.csv": study.environments,
        "single-environments.csv": study.singles,
        "sizes.csv": study.sizes,
        "correlations.csv": study.correlations.rename_axis("environment").reset_index(),
    }
    report = document(study, name, ["search.json", *tables])
    search = json.dumps(of_outcome(study.outcome, study.parts), indent=1) + "\n"
    with writing(out) as folder:
        (folder / "search.json").write_text(search, encoding="utf-8")
        write_document(report, folder, "index", tables=tables)
        if all(t.name != "custom" for t in (*study.model.transforms, study.model.target_transform)):
            model.save(study.model, folder / "model.json")
    return out / "index.html"


def document(study: Study, name: str, files: list[str]) -> doc.Document:
    """Return the page; `files` are beside it."""
    outcome, prepared = study.outcome, study.outcome.prepared
    plots = []
    for id, (title, draw) in FIGURES.items():
        drawing = draw(study)
        many = len(prepared.environments) > MANY_ENVIRONMENTS
        drawing.wide = id == "correlation" and many
        plots.append(doc.Plot(id, title, WORDS[id], drawing))
    chapters = (
        doc.Chapter("Winner", "The subset", tuple(_winner(study))),
        doc.Chapter("Firmness", "How firm is it?", (doc.Items(tuple(_firmness(study))),)),
        doc.Chapter("Pictures", "Pictures", tuple(plots)),
        doc.Chapter("Ranking", "The best subsets", tuple(_ranking(study))),
        doc.Chapter("Single", "Single environments", tuple(_singles(study))),
        doc.Chapter("Settings", "Settings", tuple(_settings(study))),
        doc.Chapter("Reading", "How to read this page", (doc.Items(doc.reading("subset", files)),)),
    )
    warnings = (f"{text[0].upper()}{text[1:]}." for text in outcome.warnings)
    return doc.Document(
        title=name,
        kind="Representative environments",
        facts=(
            f"{len(prepared.algorithms)} algorithms",
            f"{len(prepared.environments)} environments",
            f"subsets of {len(outcome.best.subset)}",
            f"{outcome.counts['evaluated']:,} subsets evaluated",
        ),
        notices=tuple(doc.Paragraph((text,), "notice") for text in warnings),
        chapters=chapters,
    )


def _winner(study: Study) -> Iterator[doc.Block]:
    best, parts, prepared = study.outcome.best, study.parts, study.outcome.prepared
    yield doc.Paragraph((doc.Span(listing(list(best.subset)), "strong"),), "verdict")
    if not math.isnan(parts.honest_r2):
        text = (
            "**On algorithms left out of the choice, such a subset explains {share}% of the "
            "variance of the target** ({n} algorithms, {parts} parts left out in turn of search "
            "and fit)."
        )
        if parts.honest_r2 < 0:
            text += " That is worse than their mean: the subset predicts nothing."
        share = f"{100 * parts.honest_r2:.1f}"
        yield doc.Paragraph(doc.sentence(text, share=share, n=parts.honest_n, parts=parts.repeats))
    yield doc.Paragraph((_in_sample(study),))
    intervals = zip(study.weights.low, study.weights.high, strict=True)
    rows = [
        (environment, f"{weight:.6f}", f"{low:.3f} to {high:.3f}")
        for environment, weight, (low, high) in zip(
            best.subset, best.coefficients, intervals, strict=True
        )
    ]
    rows.append(("intercept", f"{best.intercept:.6f}", ""))
    columns = ("Environment", doc.Column("Weight", "number"), doc.Column("95% interval", "number"))
    yield doc.table("weights-table", "Weights of the environments", columns, rows)
    errors = (
        ("in sample", finite(best.mse)),
        ("cross-validated", finite(best.cv_mse)),
        ("leave-one-out", finite(best.loo_mse)),
        ("on algorithms without part in the choice", finite(parts.honest_mse)),
    )
    low, high = study.weights.r2
    quality = (
        ("R²", f"{finite(best.r2)} ({low:.3f} to {high:.3f})"),
        ("R², cross-validated", finite(best.cv_r2)),
        ("Kendall's τ, cross-validated", finite(best.cv_kendall)),
        ("Spearman's ρ, cross-validated", finite(best.cv_spearman)),
        ("condition number", finite(best.condition, 3)),
    )
    yield doc.Facts("Errors", errors)
    yield doc.Facts("Quality", quality)
    excluded = of_fit(best, prepared)["excluded"]
    if excluded:
        text = f"Not in the fit, for lack of a score: {'; '.join(excluded)}."
        yield doc.Paragraph((text,), "key")


def _in_sample(study: Study) -> str:
    """Say how well the subset does on the algorithms that it was chosen for."""
    best = study.outcome.best
    text = (
        f"On the algorithms that it was chosen for, it explains {100 * best.r2:.1f}% of the "
        f"variance over {best.n} algorithms"
    )
    if not math.isnan(best.cv_r2):
        text += f", {100 * best.cv_r2:.1f}% in cross-validation"
    text += "; these are the best of many and too good."
    is_log = study.outcome.prepared.target_transform.name == "log10"
    if is_log and not math.isnan(best.relative_error):
        text += f" Estimates are off by {best.relative_error:.1f}% on average."
    preserved = "weakly preserved by construction"
    if best.order_preserving:
        return f"{text} The order of the algorithms is {preserved} (no weight is negative)."
    return f"{text} The order of the algorithms is not {preserved} (a weight is negative)."


def _firmness(study: Study) -> Iterator[doc.Sentence]:
    outcome, parts = study.outcome, study.parts
    subset = set(outcome.best.subset)
    if outcome.next:
        second = listing(list(outcome.next[0].subset))
        margin = f"{100 * outcome.margin:.2f}"
        yield (f"The error is {margin}% below that of the runner-up ({second}).",)
    if study.seeds:
        where = f"With folds from {study.seeds.repeats} other seeds"
        yield (f"{where} {_wins(study.seeds, subset)}.",)
    where = f"Searching again without each of {parts.repeats} parts of the algorithms,"
    yield (f"{where} {_wins(parts, subset)}.",)
    resamples = study.resamples
    yield (
        f"Searching again on {resamples.repeats} resamples of the algorithms, drawn with "
        f"replacement, by the error in sample, {_wins(resamples, subset)}. Environments with holes "
        "are left with few different algorithms there, so these differ more than the data warrant.",
    )
    yield (
        "The error of a winner is the least of many and therefore too small. On the "
        f"{parts.honest_n} algorithms that had no part in choosing, the winners of these searches "
        f"have a mean squared error of {finite(parts.honest_mse)}.",
    )
    pooled = 100 * pooled_r2(study.environments, intercept=True)
    mean = finite(float(study.environments["cv_r2_intercept"].mean()), 3)
    yield (
        f"Of the variance of all environments together the subset explains {pooled:.1f}% in "
        f"sample, with intercepts; the mean R² in cross-validation is {mean}.",
    )


def _wins(choice: Choice, subset: set[str]) -> str:
    wins = sum(times for names, times in choice.winners.items() if set(names) == subset)
    return f"it wins {wins} times; there are {len(choice.winners)} different winners"


def _ranking(study: Study) -> Iterator[doc.Block]:
    outcome = study.outcome
    columns: list[tuple[object, Any]] = [
        (doc.Column("Place", "number"), lambda r: r[0]),
        ("Subset", lambda r: ", ".join(r[1].subset)),
        (doc.Column("Error", "number"), lambda r: finite(r[1].loss, 6)),
        (doc.Column("N", "number"), lambda r: r[1].n),
        (doc.Column("R²", "number"), lambda r: finite(r[1].r2)),
        (doc.Column("Cross-validated R²", "number"), lambda r: finite(r[1].cv_r2)),
    ]
    fits = enumerate((outcome.best, *outcome.next), 1)
    yield doc.tabulate("ranking", "Subsets of least error", columns, fits, heads=2)
    if outcome.quantiles:
        errors = "In-sample errors" if outcome.settings.shortlist else "Errors"
        shares = (f"{share} are below {finite(v)}" for share, v in outcome.quantiles.items())
        yield doc.Paragraph((f"{errors} of all subsets: {'; '.join(shares)}.",), "key")


def _singles(study: Study) -> Iterator[doc.Block]:
    yield doc.Paragraph(("The ten that predict the target best when alone, with intercept.",))
    columns: list[tuple[object, Any]] = [
        ("Environment", itemgetter("environment")),
        (doc.Column("R²", "number"), lambda r: finite(r["r2"])),
        (doc.Column("N", "number"), itemgetter("n")),
        (doc.Column("Slope", "number"), lambda r: finite(r["slope"])),
        (doc.Column("Intercept", "number"), lambda r: finite(r["intercept"])),
    ]
    singles = study.singles.head(10).to_dict("records")
    yield doc.tabulate("singles", "Fit of each environment alone", columns, singles)


def _settings(study: Study) -> Iterator[doc.Block]:
    settings = of_settings(study.outcome.settings, study.outcome.prepared)
    lines = [(name.replace("_", " "), _words(value)) for name, value in settings.items()]
    yield doc.Facts("Search", tuple(lines))
    dropped = study.outcome.prepared.dropped
    if dropped:
        yield doc.Facts("Algorithms left out", tuple(dropped.items()))


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def finite(value: float, digits: int = 4) -> str:
    """Return a number, or a dash where there is none."""
    return f"{value:#.{digits}g}" if math.isfinite(value) else "–"
