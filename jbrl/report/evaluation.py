"""The page, the LaTeX tables and the files of an evaluation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from jbrl.base.files import writing
from jbrl.report import content as doc
from jbrl.report import evaluation_figures as figures
from jbrl.report.axes import Styles, styles
from jbrl.report.files import save, write_document
from jbrl.report.latex import fragment
from jbrl.report.text import ABSENT, count, decimals_for, slug
from jbrl.stats.evaluation.ranking import Evaluation, decisive_ends, significant

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
    weights = _plot("weights", "Weights", figures.weights(evaluation))
    level = f"{100 * (1 - delta):g}%"
    chapters = [
        _summary(evaluation, looks),
        doc.Chapter("Weights", "What decides", (doc.Paragraph((WORDS["decides"],)), weights)),
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
    parts, level = [], f"{100 * (1 - evaluation.settings['delta']):g}%"
    for method in dict.fromkeys(evaluation.aggregate["method"]):
        holds = (
            f"all hold together with {level} confidence"
            if method == "pbp"
            else f"have the nominal level {level} together"
        )
        name = figures.METHOD_NAMES[method]
        caption = f"Aggregate scores and ranks. The intervals ({name}) {holds}."
        content = _aggregate(evaluation, method, symbols=False)
        parts.append(fragment(content, caption, f"tab:aggregate-{method}"))
    labels: list[str] = []
    for j, name in enumerate(evaluation.samples.environments):
        labels.append(slug(name, labels))
        content = _means(evaluation, j, symbols=False)
        parts.append(fragment(content, f"Mean scores on {name}.", f"tab:{labels[-1]}"))
    return "\n".join(parts)


def _summary(evaluation: Evaluation, looks: Styles) -> doc.Chapter:
    aggregate = evaluation.aggregate
    methods = {
        method: aggregate[aggregate["method"] == method]
        for method in dict.fromkeys(aggregate["method"])
    }
    drawing = figures.aggregate(evaluation, looks)
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
    by = "the bootstrap" if method == "bootstrap" else figures.METHOD_NAMES[method]
    names, score = ", ".join(best["algorithm"]), f"{first['score']:.{AGGREGATE_DIGITS}f}"
    answer = f"By {by}, {names} {has} the highest aggregate score, {score}"
    if not others:
        return f"{answer}."
    worse = int((rows["upper"] < first["lower"]).sum())
    number = {0: "none", others: "all"}.get(worse, f"{worse}")
    return f"{answer}; its intervals separate {it} from {number} of the {others} others."


def _aggregate(evaluation: Evaluation, method: str, *, symbols: bool = True) -> doc.Table:
    rows = evaluation.aggregate[evaluation.aggregate["method"] == method]
    title = f"Aggregate scores, {figures.METHOD_NAMES[method]}"
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
            lambda r: doc.Cell(_number(r[name], digits), r[name]),
        ),
        (doc.Column("Interval", "number"), lambda r: _interval(r, digits)),
        (ranks, lambda r: doc.Cell(f"{r['rank']} ({r['rank_best']}–{r['rank_worst']})", r["rank"])),
        *[(doc.Column("N", "number", "scores"), lambda r: doc.Cell(str(r["n"]), r["n"]))] * sizes,
    ]
    records = rows.assign(decisive=list(zip(*ends, strict=True))).to_dict("records")
    return doc.tabulate(id, title, columns, records, sortable=True)


def _interval(row: Mapping[str, Any], digits: int) -> doc.Cell:
    ends = (_number(row[end], digits) for end in ("lower", "upper"))
    low, high = map(_bold, ends, row["decisive"])
    return doc.Cell(("(", low, ", ", high, ")"), row["lower"])


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _bold(text: str, bold: bool) -> doc.Span | str:
    return doc.Span(text, "strong") if bold else text


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
        drawing = figures.profiles(extras["profiles"], looks)
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
            cells.append(doc.Cell(f"{value:.3f} ({low:.3f}, {high:.3f})", value))
        rows.append(cells)
    columns = ("Algorithm", *(doc.Column(title, "number") for title in titles))
    return doc.table("metrics", "Metrics with their intervals", columns, rows, sortable=True)


def _improvement(pairs: pd.DataFrame, algorithm: str, other: str) -> doc.Cell:
    if algorithm == other:
        return doc.Cell(ABSENT, standing="none")
    row = pairs.loc[(algorithm, other)]
    return doc.Cell(f"{row['value']:.2f}", hint=f"{row['lower']:.3f} to {row['upper']:.3f}")


def _environment(evaluation: Evaluation, j: int, looks: Styles) -> doc.Chapter:
    """Show the scores of one environment: as details where there are many of these."""
    samples, delta, id = evaluation.samples, evaluation.settings["delta"], f"environment-{j}"
    low, high = (f"{bound:g}" for bound in samples.bounds[j])
    weight = f"{100 * evaluation.point.q[j].sum():.1f}%"
    text = "Scores from **{low}** to **{high}**; weight in the aggregate **{weight}**."
    setup: doc.Sentence = doc.sentence(text, low=low, high=high, weight=weight)
    blocks: list[doc.Block] = []
    for kind, title in (("quantiles", "Quantile functions"), ("cdf", "Distribution functions")):
        drawing = figures.curves(samples, j, delta, looks, quantiles=kind == "quantiles")
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
