"""The chapter of one experiment: its task, its score, its detail plots by family."""

from collections.abc import Iterator

import pandas as pd

from jbrl.base.bsuite_sweep import Experiment
from jbrl.report.bsuite import learning_figures as figures
from jbrl.report.bsuite import words
from jbrl.report.bsuite.files import plot
from jbrl.report.bsuite.marks import Styles
from jbrl.report.bsuite.score_figures import single
from jbrl.report.content import Block, Chapter, Paragraph, Plot, Span
from jbrl.stats.bsuite import curves
from jbrl.stats.bsuite.logs import Logs

LEARNING = (
    "Average regret per episode so far against the number of episodes, both as logged: mean over "
    "settings and runs, with a 95% band. "
)


def experiment(
    logs: Logs,
    rules: Experiment,
    table: pd.DataFrame,
    release: str,
    looks: Styles,
) -> Chapter:
    """Describe one experiment: its task, its score, its plots."""
    rows = table[table["bsuite_env"] == rules.name].drop(columns="bsuite_env")
    blocks: list[Block] = [
        Paragraph((f"{words.facts(rules)}.",), "setup"),
        Paragraph((words.text(rules),)),
        Paragraph((Span("Score. ", "strong"), words.rule(rules))),
        plot(
            f"{_id(rules)}-score",
            "Score",
            "Hollow: not finished. Bars are 95% intervals over runs, where there are several of "
            "each setting.",
            single(rows, looks),
        ),
        *_details(logs, rules, release, looks),
    ]
    return Chapter(_id(rules), words.title(rules), tuple(blocks), "experiment")


def _details(logs: Logs, rules: Experiment, release: str, looks: Styles) -> Iterator[Plot]:
    """Yield the detail plots of an experiment, by its family."""
    name, id_ = rules.name, _id(rules)
    raw = curves.regrets(logs, name)
    about = words.FAMILIES[rules.family].regret
    if rules.family == "deep_sea":
        yield from _deep_sea(logs, rules, release, looks, raw)
    elif rules.family in curves.THRESHOLDS:
        swingup = rules.family == "cartpole_swingup"
        yield plot(
            f"{id_}-learning",
            "Learning",
            f"Average regret so far of each setting, by {words.level_words(rules)}. {about}",
            figures.raw_lines(raw, rules, looks, "average regret"),
        )
        values = curves.bests(logs, name) if swingup else curves.final_regrets(logs, name)
        above = "above" if swingup else "below"
        yield plot(
            f"{id_}-scale",
            "Which settings are solved",
            f"Full symbols: {above} the dashed line, which counts for the score.",
            figures.scaling(values, rules, looks),
        )
    elif rules.wrapper or rules.family == "discounting_chain":
        means = curves.mean_curves(raw)
        yield plot(
            f"{id_}-learning",
            "Learning",
            f"{LEARNING.replace(', with a 95% band', '')}{about}",
            figures.by_level(means, rules),
        )
        yield plot(
            f"{id_}-average",
            "Average regret at the end",
            "By level, with 95% intervals over runs.",
            figures.average(curves.final_regrets(logs, name), rules, looks),
        )
    else:
        yield plot(
            f"{id_}-learning",
            "Learning",
            f"{LEARNING}{about} Dashed: a score of 0.",
            figures.learning(curves.mean_curves(raw), rules, looks),
        )
    yield plot(
        f"{id_}-seeds",
        "Every run",
        _returns_words(rules),
        figures.raw_lines(curves.returns(logs, name), rules, looks, "average return"),
    )


def _deep_sea(
    logs: Logs,
    rules: Experiment,
    release: str,
    looks: Styles,
    raw: pd.DataFrame,
) -> Iterator[Plot]:
    id_ = _id(rules)
    shown = raw[raw["level"].isin(curves.SHOWN_SIZES)]
    if len(shown):
        yield plot(
            f"{id_}-learning",
            "Learning",
            "Share of bad episodes so far, for some sizes. Dashed: 0.99.",
            figures.by_level(curves.mean_curves(shown), rules),
        )
    solved = curves.solutions(logs, rules.name, release)
    for kind, logarithmic in (("linear", False), ("logarithmic", True)):
        yield plot(
            f"{id_}-{kind}",
            f"Episodes until solved, {kind}",
            "Hollow: not solved by the last episode. Dashed: 2^N, what dithering needs.",
            figures.solving(solved, looks, logarithmic=logarithmic),
        )


def _returns_words(rules: Experiment) -> str:
    what = {
        "mnist": "Accuracy",
        "memory_chain": "Share of right answers",
        "umbrella_chain": "Average last reward",
        "deep_sea": "Share of episodes that found the treasure",
    }.get(rules.family, "Average return of the episodes")
    clean = " without noise and scale" if rules.wrapper else ""
    return f"{what} between two logged episodes{clean}, every setting and run. Dashed: the best."


def _id(rules: Experiment) -> str:
    return rules.name.replace("_", "-")
