"""The page, the figures, the LaTeX tables and the files of an evaluation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from jbrl.base.files import writing
from jbrl.report import axes as parts
from jbrl.report import content as doc
from jbrl.report.axes import COLOURS, FAINT, INK, Style, Styles, drawn, styles
from jbrl.report.files import save, write_document
from jbrl.report.latex import fragment
from jbrl.report.text import ABSENT, count, decimals_for, number_text, slug
from jbrl.stats.evaluation.propagation import half_widths
from jbrl.stats.evaluation.ranking import Evaluation, decisive_ends, significant
from jbrl.stats.evaluation.samples import Samples

POINTS = 70  # of a curve: more than that many are not seen
BELOW, PLOT = 0.48, 2.85  # inches below the axes of curves, and of the axes
LEGEND = (58, 1)  # characters of a name, and lines
METHOD_NAMES = {"pbp": "PBP", "pbp-t": "PBP-t", "bootstrap": "bootstrap"}
METHOD_DASHES: dict[str, Any] = {"pbp": (0, ()), "pbp-t": (0, (4, 1.5)), "bootstrap": (0, (1, 1))}


@drawn
def aggregate(evaluation: Evaluation, styles: Styles) -> parts.Drawing:
    """Draw aggregate scores, best on top, with the interval of each method (figure 5 of Jordan et
    al. 2020).
    """
    table = evaluation.aggregate
    methods = list(dict.fromkeys(table["method"]))
    names = table.loc[table["method"] == methods[0], "algorithm"]
    several = len(methods) > 1
    above = 0.38 if several else 0.08
    drawing, axes = parts.rows_panel(names, table, step=0.3 + 0.1 * len(methods), above=above)
    offsets = np.linspace(-0.22, 0.22, len(methods)) if several else [0.0]
    for y, name in enumerate(names):
        rows, colour = table[table["algorithm"] == name].set_index("method"), styles[name].colour
        for offset, method in zip(offsets, methods, strict=True):
            row, at = rows.loc[method], y + offset
            ends = [row["lower"], row["upper"]]
            look: Any = {"linewidth": 1.8, "linestyles": METHOD_DASHES[method]}
            parts.interval(axes, at, *ends, colors=colour, **look)
            axes.vlines(ends, at - 0.07, at + 0.07, colors=colour, linewidth=1.2)
            title = f"{name}, {METHOD_NAMES[method]}: {row['score']:.4f}"
            title += f" ({row['lower']:.4f} to {row['upper']:.4f})"
            place = (row["score"], at)
            drawing.mark(axes, place, styles[name], f"{method}-{y}", title, scale=0.75)
    axes.set_xlabel("aggregate score")
    if several:
        looks = {METHOD_NAMES[m]: METHOD_DASHES[m] for m in methods}
        lines = [
            Line2D([], [], color=INK, linestyle=dashes, linewidth=1.8, label=name)
            for name, dashes in looks.items()
        ]
        place_: Any = {"loc": "upper right", "bbox_to_anchor": (0.98, 1.0), "handlelength": 3}
        drawing.figure.legend(handles=lines, ncols=len(methods), fontsize=9, **place_)
    return drawing


@drawn
def weights(evaluation: Evaluation) -> parts.Drawing:
    """Draw the strategies of player q: environments in rows, opponents in columns, per cent; the
    last column is the sum of a row.
    """
    samples = evaluation.samples
    table = evaluation.weights.pivot(index="environment", columns="algorithm", values="weight")
    table = table.loc[list(samples.environments), list(samples.algorithms)]
    table = table.loc[table.sum(axis=1).sort_values(ascending=False, kind="stable").index]
    columns, rows = parts.labels_of(table.columns, 34, 1), parts.labels_of(table.index, 26, 2)
    share = np.column_stack([table, table.sum(axis=1)])
    m, n = table.shape
    slanted = _inches(columns) * np.sqrt(0.5)  # of a label at 45°, to the left and down
    beside = max(0.25 + _inches(rows), slanted - 0.2)
    right, below = 0.1, 0.2 + slanted
    width = max(parts.WIDTH, beside + right + 0.42 * (n + 1.35))
    step = 0.36 if any("\n" in row for row in rows) else 0.3
    height = below + step * m + 0.1
    drawing, axes = parts.panel(height, evaluation.weights, width)
    for y in range(m):
        for x in range(n + 1):
            total = x == n
            left, value = x + 0.35 * total, share[y, x]
            most = share[:, n].max() if total else share[:, :n].max()
            axes.add_patch(_cell(left, y, value / most, COLOURS[total]))
            if value >= 0.005:
                gid = f"cell-{y}-{x}"
                place: Any = {"ha": "center", "va": "center", "fontsize": 8.5}
                axes.text(left + 0.5, y + 0.5, f"{100 * value:.0f}", **place).set_gid(gid)
                what = "in all" if total else f"against {table.columns[x]}"
                drawing.titles[gid] = f"{table.index[y]}, {what}: {100 * value:.2f}%"
    axes.set_xlim(0, n + 1.35)
    axes.set_ylim(m, 0)
    axes.set_xticks([*np.arange(n) + 0.5, n + 0.85], [*columns, "sum"])
    axes.tick_params(axis="x", length=0, labelrotation=45)
    for label in axes.get_xticklabels():
        label.set(horizontalalignment="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(m) + 0.5, rows)
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    drawing.margins(beside / width, below, 1 - 0.1 / height, right=1 - right / width)
    return drawing


def _inches(labels: Sequence[str]) -> float:
    """Return the length of the longest line, in the font of all figures, and its line height."""
    lines = [line for label in labels for line in label.split("\n")]
    return 0.085 * max(map(len, lines)) + 0.12


def _cell(x: float, y: float, share: float, colour: str) -> mpl.patches.Rectangle:
    """Draw a cell whose colour strengthens with its share, 0 to 1; light enough for dark text."""
    look: Any = {"facecolor": (*to_rgb(colour), 0.75 * float(np.sqrt(share)))}
    look |= {"edgecolor": FAINT, "linewidth": 0.3}
    return mpl.patches.Rectangle((x + 0.03, y + 0.06), 0.94, 0.88, **look)


@drawn
def curves(
    samples: Samples, environment: int, delta: float, styles: Styles, *, quantiles: bool
) -> parts.Drawing:
    """Draw distribution functions of an environment with their bands, the further right the better;
    or quantile functions, the higher the better (figure 4 of Jordan et al. 2020).
    """
    drawing, axes = _with_legend(samples.algorithms, styles)
    widths = half_widths(samples, delta)[:, environment]
    for i, name in enumerate(samples.algorithms):
        x, p = _thinned(samples, i, environment)
        below, above = np.maximum(0, p - widths[i]), np.minimum(1, p + widths[i])
        fill = axes.fill_betweenx if quantiles else axes.fill_between
        fill(x, below, above, color=styles[name].colour, alpha=0.13, linewidth=0)
        axes.plot(*((p, x) if quantiles else (x, p)), **_curve(styles[name], 3 + 5 * i % 17, 18))
    labels = ("probability", "score")
    axes.set(xlabel=labels[not quantiles], ylabel=labels[quantiles])
    (axes.set_xlim if quantiles else axes.set_ylim)(0, 1)
    drawing.figure.subplots_adjust(left=parts.left_margin(axes, 0.13))
    return drawing


def _curve(style: Style, first: int, every: int) -> dict[str, Any]:
    """Return the look of a curve whose symbols are not all at the same place."""
    look = {"color": style.colour, "linewidth": 1.2, "marker": style.marker, "markersize": 4}
    return look | {"markevery": (first, every)}


def _with_legend(names: Sequence[str], styles: Styles) -> tuple[parts.Drawing, Axes]:
    """Make axes that keep their height for any length of the legend of these names above them."""
    labels = parts.labels_of(names, *LEGEND)
    drawing, axes = parts.panel(BELOW + PLOT + parts.legend_height(labels))
    axes.grid()
    looks = {label: styles[name] for label, name in zip(labels, names, strict=True)}
    drawing.margins(0.1, BELOW, parts.legend(drawing.figure, labels, looks))
    return drawing, axes


def _thinned(
    samples: Samples, algorithm: int, environment: int
) -> tuple[parts.Floats, parts.Floats]:
    """Return scores and the distribution function at them: both corners of each step; where steps
    are too many to be seen, some of them.
    """
    counts = samples.counts[environment][algorithm]
    seen = np.flatnonzero(counts)
    p = np.cumsum(counts[seen]) / counts.sum()
    x = samples.supports[environment][seen]
    if len(seen) <= POINTS // 2:
        return x.repeat(2), np.append(0, p.repeat(2)[:-1])
    even = np.searchsorted(p, np.linspace(0, 1, POINTS) - 1e-12)
    kept = np.union1d(even.clip(0, len(seen) - 1), (0, len(seen) - 1))
    return x[kept], p[kept]


@drawn
def profiles(table: pd.DataFrame, styles: Styles) -> parts.Drawing:
    """Draw performance profiles: share of normalised scores above a threshold, with bands."""
    drawing, axes = _with_legend(list(dict.fromkeys(table["algorithm"])), styles)
    drawing.data = table
    for i, (name, rows) in enumerate(table.groupby("algorithm", sort=False)):
        x, style = rows["threshold"], styles[str(name)]
        band: Any = {"color": style.colour, "alpha": 0.15, "linewidth": 0}
        axes.fill_between(x, rows["lower"], rows["upper"], **band)
        axes.plot(x, rows["value"], **_curve(style, 4 + 3 * i % 12, 14))
    axes.set(xlabel="normalised score", ylabel="share of scores above it", xlim=(0, 1), ylim=(0, 1))
    return drawing


WORDS = doc.prose("evaluation")
AGGREGATE_DIGITS = 4  # as the paper prints them
MOST_OPEN = 3  # environments whose curves and scores are no details
TABLES = ("aggregate", "environments", "weights")
Extras = dict[str, pd.DataFrame]


def write_evaluation(
    evaluation: Evaluation,
    out: Path,
    *,
    extras: Extras | None = None,
    html: bool = True,
    latex: bool = True,
) -> list[Path]:
    """Write an evaluation to the folder `out`, made if it is not there.

    Args:
      extras: further tables, by name: "metrics", "profiles" and "improvement", as
        `jbrl.stats.metrics` makes them.
      html: the page `index.html`, and two of its figures as files, `aggregate.svg` and
        `weights.svg`.
      latex: the tables as `tables.tex`.

    Returns:
      Paths written: `evaluation.json`, the tables as CSV, and what was asked for.

    Raises:
      JbrlError: the folder cannot be written.
    """
    extras = extras or {}
    tables = {name: getattr(evaluation, name) for name in TABLES} | extras
    names = ["evaluation.json", *(f"{name}.csv" for name in tables)]
    with writing(out, "the evaluation", "choose another --out") as folder:
        (folder / names[0]).write_text(json.dumps(evaluation.record(), indent=1), encoding="utf-8")
        for name, content in tables.items():
            content.to_csv(folder / f"{name}.csv", index=False)
        if latex:
            (folder / "tables.tex").write_text(latex_tables(evaluation), encoding="utf-8")
        if html:
            report = document(evaluation, extras, names)
            for plot in report.plots:
                if plot.id in ("aggregate", "weights"):
                    save(plot.drawing.figure, folder / f"{plot.id}.svg")
            write_document(report, folder, "index")
    names += ["tables.tex"] * latex + ["index.html", "aggregate.svg", "weights.svg"] * html
    return [out / name for name in names]


def document(evaluation: Evaluation, extras: Extras, files: list[str]) -> doc.Document:
    """Return the page; `files` are beside it."""
    samples, delta = evaluation.samples, evaluation.settings["delta"]
    looks = styles(samples.algorithms)
    deciding = _plot("weights", "Weights", weights(evaluation))
    level = f"{100 * (1 - delta):g}%"
    chapters = [
        _summary(evaluation, looks),
        doc.Chapter("Weights", "What decides", (doc.Paragraph((WORDS["decides"],)), deciding)),
        *_metrics(evaluation, extras, looks),
        *(_environment(evaluation, j, looks) for j in range(len(samples.environments))),
        _settings(evaluation),
        doc.Chapter(
            "Reading",
            "How to read this page",
            (doc.Items(doc.reading("evaluation", files, level=level)),),
        ),
    ]
    least, most = samples.totals.min(), samples.totals.max()
    sizes = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return doc.Document(
        title="Which algorithm performs well?",
        kind="Evaluation of a score table",
        facts=(
            f"{len(samples.algorithms)} algorithms",
            count(len(samples.environments), "environment"),
            f"{sizes} scores each",
            f"δ = {delta:g}",
        ),
        chapters=tuple(chapters),
        styles=looks,
    )


def latex_tables(evaluation: Evaluation) -> str:
    """Write tables for a paper, one of aggregate scores for each method and one for each
    environment, in plain LaTeX.

    Bold ends of intervals establish the best-ranked significant differences, as in table 1 of
    Jordan et al. 2020.
    """
    texts, level = [], f"{100 * (1 - evaluation.settings['delta']):g}%"
    for method in dict.fromkeys(evaluation.aggregate["method"]):
        holds = (
            f"all hold together with {level} confidence"
            if method == "pbp"
            else f"have the nominal level {level} together"
        )
        name = METHOD_NAMES[method]
        caption = f"Aggregate scores and ranks. The intervals ({name}) {holds}."
        content = _aggregate(evaluation, method, symbols=False)
        texts.append(fragment(content, caption, f"tab:aggregate-{method}"))
    labels: list[str] = []
    for j, name in enumerate(evaluation.samples.environments):
        labels.append(slug(name, labels))
        content = _means(evaluation, j, symbols=False)
        texts.append(fragment(content, f"Mean scores on {name}.", f"tab:{labels[-1]}"))
    return "\n".join(texts)


def _summary(evaluation: Evaluation, looks: Styles) -> doc.Chapter:
    methods = dict(list(evaluation.aggregate.groupby("method", sort=False)))
    drawing = aggregate(evaluation, looks)
    blocks: list[doc.Block] = [
        *(doc.Paragraph((_answer(rows, method),), "verdict") for method, rows in methods.items()),
        doc.Paragraph(doc.sentence(WORDS["intro"])),
        _plot("aggregate", "Scores and intervals", drawing),
    ]
    for method, rows in methods.items():
        lower, upper, n = rows["lower"].to_numpy(), rows["upper"].to_numpy(), len(rows)
        apart, pairs = significant(lower, upper).sum() // 2, n * (n - 1) // 2
        text = f"{apart} of {pairs} pairs of algorithms differ significantly."
        blocks += [_aggregate(evaluation, method), doc.Paragraph((text,), "key")]
    return doc.Chapter("Summary", "Aggregate scores", tuple(blocks))


def _answer(rows: pd.DataFrame, method: str) -> str:
    """Return the sentence that names the first algorithm by a method, and the number of those that
    it is separated from.

    Args:
      rows: of the aggregate scores, the best first.
    """
    best = rows[rows["rank"] == 1]
    first, others = best.iloc[0], len(rows) - len(best)
    has, it = ("have", "them") if len(best) > 1 else ("has", "it")
    by = "the bootstrap" if method == "bootstrap" else METHOD_NAMES[method]
    names, score = ", ".join(best["algorithm"]), f"{first['score']:.{AGGREGATE_DIGITS}f}"
    answer = f"By {by}, {names} {has} the highest aggregate score, {score}"
    if not others:
        return f"{answer}."
    worse = int((rows["upper"] < first["lower"]).sum())
    number = {0: "none", others: "all"}.get(worse, f"{worse}")
    return f"{answer}; its intervals separate {it} from {number} of the {others} others."


def _aggregate(evaluation: Evaluation, method: str, *, symbols: bool = True) -> doc.Table:
    rows = evaluation.aggregate[evaluation.aggregate["method"] == method]
    title = f"Aggregate scores, {METHOD_NAMES[method]}"
    return _ranking(f"aggregate-{method}", title, rows, ("score", AGGREGATE_DIGITS), symbols)


def _means(evaluation: Evaluation, j: int, *, symbols: bool = True) -> doc.Table:
    name = evaluation.samples.environments[j]
    rows = evaluation.environments[evaluation.environments["environment"] == name]
    digits = decimals_for((rows["upper"] - rows["lower"]) / 2)
    return _ranking(f"environment-{j}-means", "Mean scores", rows, ("mean", digits), symbols)


def _ranking(
    id: str, title: str, rows: pd.DataFrame, score: tuple[str, int], symbols: bool
) -> doc.Table:
    """Tabulate scores with their intervals and ranks; bold ends decide.

    Args:
      score: its column, and its digits after the point.
      symbols: of algorithms, and the numbers of scores where they are known.
    """
    name, digits = score
    ends = decisive_ends(*(rows[column].to_numpy() for column in (name, "lower", "upper")))
    sizes = symbols and "n" in rows.columns
    ranks = doc.Column("Rank" if symbols else "Rank (best–worst)", "number", "rank (best–worst)")
    columns: list[tuple[object, Any]] = [
        ("Algorithm", lambda r: doc.Cell(r["algorithm"], algorithm=r["algorithm"] * symbols)),
        (
            doc.Column(name.capitalize(), "number"),
            lambda r: doc.Cell(number_text(r[name], f".{digits}f"), r[name]),
        ),
        (doc.Column("Interval", "number"), lambda r: _interval(r, digits)),
        (ranks, lambda r: doc.Cell(f"{r['rank']} ({r['rank_best']}–{r['rank_worst']})", r["rank"])),
        *[(doc.Column("N", "number", "scores"), lambda r: doc.Cell(str(r["n"]), r["n"]))] * sizes,
    ]
    records = rows.assign(decisive=list(zip(*ends, strict=True))).to_dict("records")
    return doc.tabulate(id, title, columns, records, sortable=True)


def _interval(row: Mapping[str, Any], digits: int) -> doc.Cell:
    texts = (number_text(row[end], f".{digits}f") for end in ("lower", "upper"))
    ends = zip(texts, row["decisive"], strict=True)
    low, high = (doc.Span(text, "strong") if bold else text for text, bold in ends)
    return doc.Cell(("(", low, ", ", high, ")"), row["lower"])


def _metrics(evaluation: Evaluation, extras: Extras, looks: Styles) -> Iterator[doc.Chapter]:
    """Yield the chapter of other metrics, if there are any: algorithms in the order of the
    aggregate scores.
    """
    if "metrics" not in extras:
        return
    order = list(dict.fromkeys(evaluation.aggregate["algorithm"]))
    blocks: list[doc.Block] = [
        doc.Paragraph((WORDS["other"],)),
        _metrics_table(extras["metrics"], order),
    ]
    if "profiles" in extras:
        drawing = profiles(extras["profiles"], looks)
        blocks.append(_plot("profiles", "Performance profiles", drawing))
    if "improvement" in extras:
        pairs = extras["improvement"].set_index(["algorithm", "other"])
        rows = [
            (doc.Cell(a, algorithm=a), *(_improvement(pairs, a, other) for other in order))
            for a in order
        ]
        columns = ("Algorithm", *(doc.Column(name, "number") for name in order))
        title = "Probability of improvement"
        blocks += [
            doc.Paragraph((WORDS["improvement"],), "key"),
            doc.table("improvement", title, columns, rows),
        ]
    yield doc.Chapter("Metrics", "Other metrics", tuple(blocks))


def _metrics_table(metrics: pd.DataFrame, order: list[str]) -> doc.Table:
    names = list(dict.fromkeys(metrics["metric"]))
    values = metrics.set_index(["algorithm", "metric"])
    titles = ["IQM" if n == "iqm" else str(n).replace("_", " ").capitalize() for n in names]
    rows = []
    for algorithm in order:
        cells = [doc.Cell(algorithm, algorithm=algorithm)]
        for name in names:
            value, low, high = values.loc[(algorithm, name), ["value", "lower", "upper"]]
            ends = "" if np.isnan(low) else f" ({low:.3f}, {high:.3f})"
            cells.append(doc.Cell(f"{value:.3f}{ends}", value))
        rows.append(cells)
    columns = ("Algorithm", *(doc.Column(title, "number") for title in titles))
    return doc.table("metrics", "Metrics with their intervals", columns, rows, sortable=True)


def _improvement(pairs: pd.DataFrame, algorithm: str, other: str) -> doc.Cell:
    if algorithm == other:
        return doc.Cell(ABSENT, standing="none")
    row = pairs.loc[(algorithm, other)]
    ends = "" if np.isnan(row["lower"]) else f"{row['lower']:.3f} to {row['upper']:.3f}"
    return doc.Cell(f"{row['value']:.2f}", hint=ends)


def _environment(evaluation: Evaluation, j: int, looks: Styles) -> doc.Chapter:
    """Show the scores of one environment: as details where there are many of these."""
    samples, delta, id = evaluation.samples, evaluation.settings["delta"], f"environment-{j}"
    low, high = (f"{bound:g}" for bound in samples.bounds[j])
    weight = f"{100 * evaluation.point.q[j].sum():.1f}%"
    text = "Scores from **{low}** to **{high}**; weight in the aggregate **{weight}**."
    setup: doc.Sentence = doc.sentence(text, low=low, high=high, weight=weight)
    blocks: list[doc.Block] = []
    for kind, title in (("quantiles", "Quantile functions"), ("cdf", "Distribution functions")):
        drawing = curves(samples, j, delta, looks, quantiles=kind == "quantiles")
        blocks.append(doc.Plot(f"{id}-{kind}", title, WORDS[kind], drawing))
    blocks.append(_means(evaluation, j))
    if len(samples.environments) > MOST_OPEN:
        blocks = doc.folded("Curves and mean scores", blocks)
    blocks = [doc.Paragraph(setup, "setup"), *blocks]
    return doc.Chapter(id, samples.environments[j], tuple(blocks), "experiment")


def _settings(evaluation: Evaluation) -> doc.Chapter:
    lines = [
        (name.replace("_", " "), ", ".join(value) if isinstance(value, list) else str(value))
        for name, value in evaluation.settings.items()
        if name != "bounds"
    ]
    return doc.Chapter("Settings", "Settings", (doc.Facts("Evaluation", tuple(lines)),))


def _plot(id: str, title: str, drawing: Any) -> doc.Plot:
    return doc.Plot(id, title, WORDS[id], drawing)
