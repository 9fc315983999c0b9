"""The experiments of the Behaviour Suite in a report: their task and their score in words, from
`templates/bsuite.toml`, and the chapter of each with the detail plots of its family.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pandas as pd

from jbrl.base.bsuite_sweep import Experiment
from jbrl.report import bsuite_figures as figures
from jbrl.report.axes import Drawing, Styles
from jbrl.report.content import Block, Chapter, Paragraph, Plot, resource, sentence
from jbrl.stats.bsuite import curves
from jbrl.stats.bsuite.logs import Logs

LEARNING = (
    "Average regret per episode so far against the number of episodes, both as logged: mean over "
    "settings and runs{band}. {regret}"
)
RETURNS = {  # what is shown between two logged episodes
    "mnist": "Accuracy",
    "memory_chain": "Share of right answers",
    "umbrella_chain": "Average last reward",
    "deep_sea": "Share of episodes that found the treasure",
}


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(resource("bsuite.toml"))


def _about(experiment: Experiment) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the words on its family, on its variant and on itself."""
    words = _words()
    variant = words["variants"].get(experiment.wrapper, {})
    return words["families"][experiment.family], variant, words["special"].get(experiment.name, {})


def title(experiment: Experiment) -> str:
    """Return a heading: "Catch with noise"."""
    family, variant, special = _about(experiment)
    return special.get("title", family["title"] + variant.get("title", ""))


def text(experiment: Experiment) -> str:
    """Describe the task and the ability it tests."""
    family, variant, special = _about(experiment)
    parts = (family["task"], family["purpose"], special.get("task"), variant.get("task"))
    return " ".join(filter(None, parts))


def rule(experiment: Experiment) -> str:
    """Describe the score."""
    family, variant, special = _about(experiment)
    score = special.get("rule", family["score"])
    return f"{score} {variant['score']}" if variant else score


def facts(experiment: Experiment) -> str:
    """Return settings, episodes and tags in a line."""
    tags = ", ".join(map(figures.in_words, experiment.tags))
    return f"{len(experiment.settings)} settings of {experiment.episodes:,} episodes; tags: {tags}"


def plot(id: str, title: str, caption: str, drawing: Drawing, **options: Any) -> Plot:
    """Return a figure of the page that links to its files in the folder `figures`."""
    files = tuple(f"figures/{id}.{ending}" for ending in ("csv", "svg", "png"))
    return Plot(id, title, caption, drawing, files, **options)


def chapter(
    logs: Logs, experiment: Experiment, scores: pd.DataFrame, release: str, looks: Styles
) -> Chapter:
    """Describe one experiment: its task, its score, its plots."""
    id = experiment.name.replace("_", "-")
    own = scores[scores["bsuite_env"] == experiment.name].drop(columns="bsuite_env")
    caption = (
        "Hollow: not finished. Bars are 95% intervals over runs, where there are several of each "
        "setting."
    )
    blocks: list[Block] = [
        Paragraph((f"{facts(experiment)}.",), "setup"),
        Paragraph((text(experiment),)),
        Paragraph(sentence("**Score.** {rule}", rule=rule(experiment))),
        plot(f"{id}-score", "Score", caption, figures.single(own, looks)),
    ]
    for kind, name, words, drawing in _details(logs, experiment, release, looks):
        blocks.append(plot(f"{id}-{kind}", name, words, drawing))
    return Chapter(id, title(experiment), tuple(blocks), "experiment")


def _details(
    logs: Logs, experiment: Experiment, release: str, looks: Styles
) -> Iterator[tuple[str, str, str, Drawing]]:
    """Yield kind, title, caption and drawing of each detail plot, by the family."""
    name, family = experiment.name, experiment.family
    raw = curves.regrets(logs, name)
    regret = _about(experiment)[0]["regret"]
    if family == "deep_sea":
        shown = raw[raw["level"].isin(curves.SHOWN_SIZES)]
        if len(shown):
            caption = "Share of bad episodes so far, for some sizes. Dashed: 0.99."
            drawing = figures.by_level(curves.mean_curves(shown), experiment)
            yield "learning", "Learning", caption, drawing
        solved = curves.solutions(logs, name, release)
        caption = "Hollow: not solved by the last episode. Dashed: 2^N, what dithering needs."
        for kind in ("linear", "logarithmic"):
            drawing = figures.solving(solved, looks, logarithmic=kind == "logarithmic")
            yield kind, f"Episodes until solved, {kind}", caption, drawing
    elif family in curves.THRESHOLDS:
        level = figures.level_words(experiment)
        caption = f"Average regret so far of each setting, by {level}. {regret}"
        drawing = figures.raw_lines(raw, experiment, looks, "average regret")
        yield "learning", "Learning", caption, drawing
        swingup = family == "cartpole_swingup"
        values = curves.bests(logs, name) if swingup else curves.final_regrets(logs, name)
        side = "above" if swingup else "below"
        caption = f"Full symbols: {side} the dashed line, which counts for the score."
        drawing = figures.scaling(values, experiment, looks)
        yield "scale", "Which settings are solved", caption, drawing
    elif experiment.wrapper or family == "discounting_chain":
        caption = LEARNING.format(band="", regret=regret)
        drawing = figures.by_level(curves.mean_curves(raw), experiment)
        yield "learning", "Learning", caption, drawing
        caption = "By level, with 95% intervals over runs."
        drawing = figures.average(curves.final_regrets(logs, name), experiment, looks)
        yield "average", "Average regret at the end", caption, drawing
    else:
        caption = LEARNING.format(band=", with a 95% band", regret=regret)
        drawing = figures.learning(curves.mean_curves(raw), experiment, looks)
        yield "learning", "Learning", f"{caption} Dashed: a score of 0.", drawing
    what = RETURNS.get(family, "Average return of the episodes")
    clean = " without noise and scale" if experiment.wrapper else ""
    caption = f"{what} between two logged episodes{clean}, every setting and run. Dashed: the best."
    drawing = figures.raw_lines(curves.returns(logs, name), experiment, looks, "average return")
    yield "seeds", "Every run", caption, drawing
