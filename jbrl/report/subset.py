"""One self-contained page about a subset, with its tables and its model beside it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jbrl import __version__
from jbrl.base.files import writing
from jbrl.report import subset_figures as figures
from jbrl.report.content import (
    Block,
    Chapter,
    Column,
    Document,
    Facts,
    Items,
    Paragraph,
    Plot,
    Sentence,
    Span,
    prose,
    reading,
    sentence,
    table,
)
from jbrl.report.files import write_document
from jbrl.report.text import listing
from jbrl.stats.subset import model
from jbrl.stats.subset.robustness import Choice, pooled_r2
from jbrl.stats.subset.study import Study, of_fit, of_outcome, of_settings

MANY_ENVIRONMENTS = 25  # from which on their correlations get the width of the page
WORDS = prose("subset")  # captions
FIGURES = {
    "weights": ("Weights", figures.weights),
    "predicted": ("Predicted against true", figures.predicted),
    "choices": ("How firm the choice is", figures.choices),
    "sizes": ("Error against size", figures.sizes),
    "environments": ("Every environment from the subset", figures.environments),
    "correlation": ("Correlations", figures.correlation),
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
        "environments": study.environments,
        "single-environments": study.singles,
        "sizes": study.sizes,
        "correlations": study.correlations.rename_axis("environment").reset_index(),
    }
    report = document(study, name, ["search.json", *(f"{title}.csv" for title in tables)])
    search = json.dumps(of_outcome(study.outcome, study.parts), indent=1) + "\n"
    with writing(out) as folder:
        for title, content in tables.items():
            content.to_csv(folder / f"{title}.csv", index=False, lineterminator="\n")
        (folder / "search.json").write_text(search, encoding="utf-8")
        write_document(report, folder, "index")
        if all(t.name != "custom" for t in (*study.model.transforms, study.model.target_transform)):
            model.save(study.model, folder / "model.json")
    return out / "index.html"


def document(study: Study, name: str, files: list[str]) -> Document:
    """Return the page; `files` are beside it."""
    outcome, prepared = study.outcome, study.outcome.prepared
    plots = []
    for id, (title, draw) in FIGURES.items():
        drawing = draw(study)
        many = len(prepared.environments) > MANY_ENVIRONMENTS
        drawing.wide = id == "correlation" and many
        plots.append(Plot(id, title, WORDS[id], drawing))
    chapters = (
        Chapter("Winner", "The subset", tuple(_winner(study))),
        Chapter("Firmness", "How firm is it?", (Items(tuple(_firmness(study))),)),
        Chapter("Pictures", "Pictures", tuple(plots)),
        Chapter("Ranking", "The best subsets", tuple(_ranking(study))),
        Chapter("Single", "Single environments", tuple(_singles(study))),
        Chapter("Settings", "Settings", tuple(_settings(study))),
        Chapter("Reading", "How to read this page", (Items(reading("subset", files)),)),
    )
    warnings = (f"{text[0].upper()}{text[1:]}." for text in outcome.warnings)
    return Document(
        title=name,
        kind="Representative environments",
        facts=(
            f"{len(prepared.algorithms)} algorithms",
            f"{len(prepared.environments)} environments",
            f"subsets of {len(outcome.best.subset)}",
            f"{outcome.counts['evaluated']:,} subsets evaluated",
        ),
        notices=tuple(Paragraph((text,), "notice") for text in warnings),
        chapters=chapters,
        styles={},
        version=__version__,
    )


def _winner(study: Study) -> Iterator[Block]:
    best, parts, prepared = study.outcome.best, study.parts, study.outcome.prepared
    yield Paragraph((Span(listing(list(best.subset)), "strong"),), "verdict")
    if not math.isnan(parts.honest_r2):
        text = (
            "**On algorithms left out of the choice, such a subset explains {share}% of the "
            "variance of the target** ({n} algorithms, {parts} parts left out in turn of search "
            "and fit)."
        )
        if parts.honest_r2 < 0:
            text += " That is worse than their mean: the subset predicts nothing."
        share = f"{100 * parts.honest_r2:.1f}"
        yield Paragraph(sentence(text, share=share, n=parts.honest_n, parts=parts.repeats))
    yield Paragraph((_in_sample(study),))
    intervals = zip(study.weights.low, study.weights.high, strict=True)
    rows = [
        (environment, f"{weight:.6f}", f"{low:.3f} to {high:.3f}")
        for environment, weight, (low, high) in zip(
            best.subset, best.coefficients, intervals, strict=True
        )
    ]
    rows.append(("intercept", f"{best.intercept:.6f}", ""))
    columns = ("Environment", Column("Weight", "number"), Column("95% interval", "number"))
    yield table("weights-table", "Weights of the environments", columns, rows)
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
    yield Facts("Errors", errors)
    yield Facts("Quality", quality)
    excluded = of_fit(best, prepared)["excluded"]
    if excluded:
        text = f"Not in the fit, for lack of a score: {'; '.join(excluded)}."
        yield Paragraph((text,), "key")


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


def _firmness(study: Study) -> Iterator[Sentence]:
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


def _ranking(study: Study) -> Iterator[Block]:
    outcome = study.outcome
    numbers = [Column(text, "number") for text in ("Error", "N", "R²", "Cross-validated R²")]
    rows = [
        (
            f"{place}",
            ", ".join(fit.subset),
            *(finite(fit.loss, 6), f"{fit.n}", finite(fit.r2), finite(fit.cv_r2)),
        )
        for place, fit in enumerate((outcome.best, *outcome.next), 1)
    ]
    columns = (Column("Place", "number"), "Subset", *numbers)
    yield table("ranking", "Subsets of least error", columns, rows, heads=2)
    if outcome.quantiles:
        errors = "In-sample errors" if outcome.settings.shortlist else "Errors"
        shares = (f"{share} are below {finite(v)}" for share, v in outcome.quantiles.items())
        yield Paragraph((f"{errors} of all subsets: {'; '.join(shares)}.",), "key")


def _singles(study: Study) -> Iterator[Block]:
    yield Paragraph(("The ten that predict the target best when alone, with intercept.",))
    numbers = [Column(text, "number") for text in ("R²", "N", "Slope", "Intercept")]
    rows = [
        (
            row["environment"],
            *(finite(row["r2"]), str(row["n"]), finite(row["slope"]), finite(row["intercept"])),
        )
        for row in study.singles.head(10).to_dict("records")
    ]
    yield table("singles", "Fit of each environment alone", ("Environment", *numbers), rows)


def _settings(study: Study) -> Iterator[Block]:
    settings = of_settings(study.outcome.settings, study.outcome.prepared)
    lines = [(name.replace("_", " "), _words(value)) for name, value in settings.items()]
    yield Facts("Search", tuple(lines))
    dropped = study.outcome.prepared.dropped
    if dropped:
        yield Facts("Algorithms left out", tuple(dropped.items()))


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def finite(value: float, digits: int = 4) -> str:
    """Return a number, or a dash where there is none."""
    return f"{value:#.{digits}g}" if math.isfinite(value) else "–"
