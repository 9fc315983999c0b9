"""The page, the LaTeX tables and the files of an evaluation."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from jbrl.report import evaluation_figures as figures
from jbrl.report.figures import Drawing
from jbrl.report.files import writing
from jbrl.report.html import template
from jbrl.report.style import Style, styles
from jbrl.report.svg import alone, inline
from jbrl.report.tex import escape
from jbrl.report.text import decimals_for, slug
from jbrl.stats.evaluation.ranking import Evaluation, decisive_ends

AGGREGATE_DIGITS = 4  # as the paper prints them
Extras = dict[str, pd.DataFrame]


def write_evaluation(
    found: Evaluation,
    out: Path,
    *,
    extras: Extras | None = None,
    html: bool = True,
    latex: bool = True,
) -> list[Path]:
    """Write an evaluation to the folder `out`, made if it is not there.

    Args:
      extras: further tables, by name: "metrics", "profiles" and "improvement", as
        `jbrl.stats.evaluation.metrics` makes them.
      html: the page `index.html`, and two of its figures as files, `aggregate.svg` and
        `weights.svg`.
      latex: the tables as `tables.tex`.

    Returns:
      Paths written: `evaluation.json`, the tables as CSV, and what was asked for.

    Raises:
      JbrlError: the folder cannot be written.
    """
    extras = extras or {}
    contents = {"evaluation.json": json.dumps(found.record(), indent=1)}
    contents |= {
        f"{name}.csv": getattr(found, name).to_csv(index=False)
        for name in ("aggregate", "environments", "weights")
    }
    contents |= {f"{name}.csv": table.to_csv(index=False) for name, table in extras.items()}
    if latex:
        contents["tables.tex"] = latex_tables(found)
    if html:
        contents["index.html"] = page(found, extras)
        contents["aggregate.svg"] = alone(
            figures.aggregate(found, styles(found.samples.algorithms)).figure
        )
        contents["weights.svg"] = alone(figures.weights(found).figure)
    with writing(out, "the evaluation", "choose another --out") as folder:
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8")
    return [out / name for name in contents]


def page(found: Evaluation, extras: Extras) -> str:
    """Return the page as text."""
    looks = styles(found.samples.algorithms)
    return template("evaluation.html").render(
        facts=_facts(found),
        methods=[_method(found, method) for method in dict.fromkeys(found.aggregate["method"])],
        aggregate=_svg(figures.aggregate(found, looks), "aggregate", "Aggregate scores"),
        weights=_svg(figures.weights(found), "weights", "Weights of environments and opponents"),
        sections=[_section(found, j, looks) for j in range(len(found.samples.environments))],
        metrics=_metrics(extras),
        profiles=_svg(
            figures.profiles(extras["profiles"], looks), "profiles", "Performance profiles"
        )
        if "profiles" in extras
        else None,
        improvement=_improvement(found, extras),
        settings=_settings(found),
        styles=looks,
        delta=found.settings["delta"],
        files=[
            "evaluation.json",
            "aggregate.csv",
            "environments.csv",
            "weights.csv",
            *(f"{name}.csv" for name in extras),
        ],
    )


def latex_tables(found: Evaluation) -> str:
    """Write tables for a paper, one of aggregate scores for each method and one for each
    environment, in plain LaTeX.

    Bold ends of intervals establish the best-ranked significant differences, as in table 1 of
    Jordan et al. 2020.
    """
    parts = []
    for method in dict.fromkeys(found.aggregate["method"]):
        rows = _rows(
            found.aggregate[found.aggregate["method"] == method], "score", AGGREGATE_DIGITS
        )
        caption = (
            f"Aggregate scores and ranks. The intervals ({figures.METHOD_NAMES[method]}) "
            f"{_level(method, found.settings['delta'])}"
        )
        parts.append(_latex(rows, "Score", f"{caption}.", f"tab:aggregate-{method}"))
    labels: list[str] = []
    for name, table in found.environments.groupby("environment", sort=False):
        labels.append(slug(str(name), labels))
        rows = _rows(table, "mean", _digits(table))
        parts.append(_latex(rows, "Mean", f"Mean scores on {escape(name)}.", f"tab:{labels[-1]}"))
    return "\n".join(parts)


def _latex(rows: list[dict[str, Any]], score: str, caption: str, label: str) -> str:
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{{label}}}",
        r"\begin{tabular}{lrrr}",
        r"\hline",
    ]
    lines += [rf"Algorithm & {score} & Interval & Rank (best--worst) \\", r"\hline"]
    for row in rows:
        ends = [
            rf"\textbf{{{text}}}" if bold else text
            for text, bold in ((row["lower"], row["low_bold"]), (row["upper"], row["high_bold"]))
        ]
        cells = [
            escape(row["algorithm"]),
            row["score"],
            f"({ends[0]}, {ends[1]})",
            _ranks(row).replace("–", "--"),
        ]
        lines.append(" & ".join(cell.replace("−", "$-$") for cell in cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table}", ""])


def _ranks(row: Mapping[str, Any]) -> str:
    """Return the rank and the ranks that the intervals leave open, the best first: `1 (1–4)`."""
    return f"{row['rank']} ({row['best']}–{row['worst']})"


def _level(method: str, delta: float) -> str:
    """Return the confidence that the intervals of a method claim."""
    percent = f"{100 * (1 - delta):g}\\%"
    return (
        f"all hold together with {percent} confidence"
        if method == "pbp"
        else f"have the nominal level {percent} together"
    )


def _rows(table: pd.DataFrame, score: str, digits: int) -> list[dict[str, Any]]:
    """Return rows of a table in words, with what is bold."""
    low, high = decisive_ends(*(table[name].to_numpy() for name in (score, "lower", "upper")))
    found = []
    for row, low_bold, high_bold in zip(table.to_dict("records"), low, high, strict=True):
        texts = {
            name: f"{row[source]:.{digits}f}".replace("-", "−")
            for name, source in (("score", score), ("lower", "lower"), ("upper", "upper"))
        }
        numbers = {
            "value": row[score],
            "rank": row["rank"],
            "worst": row["rank_worst"],
            "best": row["rank_best"],
            "n": row.get("n", 0),
        }
        numbers["ranks"] = _ranks(numbers)
        found.append(
            {
                "algorithm": row["algorithm"],
                **texts,
                **numbers,
                "low_bold": bool(low_bold),
                "high_bold": bool(high_bold),
            }
        )
    return found


def _digits(table: pd.DataFrame) -> int:
    return decimals_for((table["upper"] - table["lower"]) / 2)


def _facts(found: Evaluation) -> list[str]:
    n, m = found.samples.shape
    totals = found.samples.totals
    sizes = (
        f"{totals.min():,}"
        if totals.min() == totals.max()
        else f"{totals.min():,} to {totals.max():,}"
    )
    return [
        f"{n} algorithms",
        f"{m} environment{'s' * (m > 1)}",
        f"{sizes} scores each",
        f"δ = {found.settings['delta']:g}",
    ]


def _method(found: Evaluation, method: str) -> dict[str, Any]:
    table = found.aggregate[found.aggregate["method"] == method]
    lower, upper = table["lower"].to_numpy(), table["upper"].to_numpy()
    apart = int(np.sum(lower[:, None] > upper[None, :]))
    n = len(table)
    rows = _rows(table, "score", AGGREGATE_DIGITS)
    return {
        "name": figures.METHOD_NAMES[method],
        "id": method,
        "rows": rows,
        "apart": apart,
        "answer": _answer(table, figures.METHOD_NAMES[method]),
        "pairs": n * (n - 1) // 2,
    }


def _answer(table: pd.DataFrame, method: str) -> str:
    """Return the sentence that names the first algorithm by a method, and the number of those that
    it is separated from.

    Args:
      table: rows of the aggregate scores, the best first.
    """
    best = table[table["rank"] == 1]
    first, others = best.iloc[0], len(table) - len(best)
    has, it = ("have", "them") if len(best) > 1 else ("has", "it")
    score = f"{first['score']:.{AGGREGATE_DIGITS}f}"
    by = "the bootstrap" if method == "bootstrap" else method
    names = ", ".join(best["algorithm"])
    said = f"By {by}, {names} {has} the highest aggregate score, {score}"
    if not others:
        return f"{said}."
    worse = int((table["upper"] < first["lower"]).sum())
    number = {0: "none", others: "all"}.get(worse, f"{worse}")
    return f"{said}; its intervals separate {it} from {number} of the {others} others."


def _section(found: Evaluation, j: int, looks: dict[str, Style]) -> dict[str, Any]:
    name = found.samples.environments[j]
    id = f"environment-{j}"
    table = found.environments[found.environments["environment"] == name]
    delta = found.settings["delta"]
    return {
        "name": name,
        "id": id,
        "rows": _rows(table, "mean", _digits(table)),
        "weight": float(found.point.q[j].sum()),
        "bounds": [f"{v:g}" for v in found.samples.bounds[j]],
        "quantiles": _svg(
            figures.quantiles(found.samples, j, delta, looks),
            f"{id}-quantiles",
            f"Quantile functions on {name}",
        ),
        "distributions": _svg(
            figures.distributions(found.samples, j, delta, looks),
            f"{id}-cdf",
            f"Distribution functions on {name}",
        ),
    }


def _metrics(extras: Extras) -> dict[str, list[dict[str, Any]]]:
    """Return rows of each metric, the best first."""
    if "metrics" not in extras:
        return {}
    found = {}
    for name, rows in extras["metrics"].groupby("metric", sort=False):
        ordered = rows.sort_values("value", ascending=name == "optimality_gap", kind="stable")
        found[str(name).replace("_", " ")] = ordered.to_dict("records")
    return found


def _improvement(found: Evaluation, extras: Extras) -> list[dict[str, Any]]:
    """Return rows of the table of probabilities of improvement, in the order of the aggregate
    scores.
    """
    if "improvement" not in extras:
        return []
    order = list(dict.fromkeys(found.aggregate["algorithm"]))
    table = extras["improvement"].set_index(["algorithm", "other"])
    return [
        {"algorithm": a, "cells": [None if a == b else table.loc[(a, b)].to_dict() for b in order]}
        for a in order
    ]


def _settings(found: Evaluation) -> list[tuple[str, str]]:
    shown = {name: value for name, value in found.settings.items() if name != "bounds"}
    return [
        (name.replace("_", " "), ", ".join(value) if isinstance(value, list) else str(value))
        for name, value in shown.items()
    ]


def _svg(drawing: Drawing, id: str, label: str) -> Markup:
    return Markup(inline(drawing.figure, id, label, drawing.titles))
