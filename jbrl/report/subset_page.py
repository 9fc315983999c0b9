"""One self-contained page about a subset, with its tables and its model beside it."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jbrl import __version__
from jbrl.report import subset_figures as figures
from jbrl.report.files import writing
from jbrl.report.subset_figures import finite
from jbrl.report.svg import inline
from jbrl.report.text import listing
from jbrl.stats.subset import model
from jbrl.stats.subset.robustness import Choice, pooled_r2
from jbrl.stats.subset.study import Study, of_fit, of_outcome, of_settings

CROWD = 25  # environments from which on their correlations get the width of the page
FIGURES = (
    (
        "weights",
        "Weights",
        figures.weights,
        (
            "Weight of each environment; the stroke is the 95% interval of a bootstrap over "
            "algorithms."
        ),
    ),
    (
        "predicted",
        "Predicted against true",
        figures.predicted,
        "One point for each algorithm, predicted by a model that has not seen it.",
    ),
    (
        "choices",
        "How firm the choice is",
        figures.choices,
        "Environments in the winners of other searches; ● is in the subset.",
    ),
    (
        "sizes",
        "Error against size",
        figures.sizes,
        "The best subset of each size, by the criterion of the search.",
    ),
    (
        "environments",
        "Every environment from the subset",
        figures.environments,
        (
            "How well a linear model with intercept predicts each environment's score from those "
            "of the subset (●)."
        ),
    ),
    (
        "correlation",
        "Correlations",
        figures.correlation,
        (
            "Pearson's r of each two environments over the algorithms that have both; "
            "environments that behave alike stand together."
        ),
    ),
)


def write_report(study: Study, name: str, out: Path) -> Path:
    """Write `index.html`, `search.json`, the tables as CSV and, where its transform can be saved,
    `model.json` to the folder `out`.

    Returns:
      Path of the page.

    Raises:
      JbrlError: `out` cannot be written.
    """
    page = render(study, name)
    tables = {
        "environments": study.environments,
        "single-environments": study.singles,
        "sizes": study.sizes,
        "correlations": study.correlations.rename_axis("environment").reset_index(),
    }
    with writing(out) as folder:
        for title, table in tables.items():
            table.to_csv(folder / f"{title}.csv", index=False, lineterminator="\n")
        (folder / "search.json").write_text(
            json.dumps(of_outcome(study.outcome, study.parts), indent=1) + "\n",
            encoding="utf-8",
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
        if all(t.name != "custom" for t in (*study.model.transforms, study.model.target_transform)):
            model.save(study.model, folder / "model.json")
    return out / "index.html"


def render(study: Study, name: str) -> str:
    """Return the page as text."""
    found, best, prepared = study.outcome, study.outcome.best, study.outcome.prepared
    crowded = len(prepared.environments) > CROWD
    drawings = []
    for id, title, draw, caption in FIGURES:
        drawing = draw(study)
        svg = Markup(inline(drawing.figure, id, title, drawing.titles))
        drawings.append(
            {
                "id": id,
                "title": title,
                "caption": caption,
                "note": drawing.note,
                "svg": svg,
                "wide": id == "correlation" and crowded,
            }
        )
    environment = Environment(
        loader=PackageLoader("jbrl.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"finite": finite, "listing": listing}
    return environment.get_template("subset.html").render(
        name=name,
        found=found,
        best=best,
        weights=list(
            zip(best.subset, best.coefficients, study.weights.low, study.weights.high, strict=True)
        ),
        r2_interval=study.weights.r2,
        ranking=[best, *found.next],
        n_algorithms=len(prepared.algorithms),
        excluded=of_fit(best, prepared)["excluded"],
        is_log=prepared.target_transform.name == "log10",
        seeds=_choice(study.seeds, best.subset),
        parts=_choice(study.parts, best.subset),
        resamples=_choice(study.resamples, best.subset),
        honest=study.parts,
        pooled={
            kind: pooled_r2(study.environments, intercept=kind == "intercept")
            for kind in ("intercept", "no_intercept")
        },
        mean_cv_r2=float(study.environments["cv_r2_intercept"].mean()),
        singles=study.singles.head(10).to_dict("records"),
        figures=drawings,
        dropped=prepared.dropped,
        settings=_settings(study),
        version=__version__,
    )


def _choice(choice: Choice | None, subset: tuple[str, ...]) -> dict[str, Any] | None:
    if choice is None:
        return None
    wins = sum(times for names, times in choice.winners.items() if set(names) == set(subset))
    return {
        "wins": wins,
        "repeats": choice.repeats,
        "different": len(choice.winners),
        "common": choice.winners.most_common(3),
    }


def _settings(study: Study) -> list[tuple[str, str]]:
    found = of_settings(study.outcome.settings, study.outcome.prepared)
    return [(key.replace("_", " "), _words(value)) for key, value in found.items()]


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
