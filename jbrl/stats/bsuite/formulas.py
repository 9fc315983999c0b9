"""The scores of the 23 experiments as functions of `Measures`, for many resamples at once.

A choice is an array [..., slots] of numbers of runs; a score is taken along its last axis.

Source: the score rules of the original (release 0.3.6; Osband et al. 2020 describe earlier ones).
"""

import warnings
from collections.abc import Callable

import numpy as np

from jbrl.base.bsuite_sweep import Experiment
from jbrl.stats.bsuite.measures import BASE, Measures

GOOD_CARTPOLE = 500.0  # return of an episode from which on balancing counts as solved
GOOD_SWINGUP = 100.0
GOOD_MEMORY = 0.75  # errors, as a share of those of guessing, below which a length is solved
GOOD_UMBRELLA = 0.5  # average regret below which a length is solved
DITHERING = 100  # episodes beyond 2^N that deep_sea forgives

Score = Callable[[Measures, np.ndarray, Experiment], np.ndarray]


def score(found: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return scores in [0, 1] of an experiment, shape of `choice` without its last axis.

    Args:
      found: numbers of all runs.
      choice: [..., slots] int, the runs taken together as one sweep of the experiment. Slots of one
        place along the last axis belong to one group throughout.

    Returns:
      float64; NaN where the original's is, an unfinished run of mnist for example.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        if experiment.wrapper:
            return _over_levels(found, choice, experiment)
        return _RULES[experiment.family](found, choice, experiment)


def _regret_score(found: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return one minus average regret / baseline; runs that are not as far as others are left
    out.
    """
    base = BASE[experiment.family]
    return np.clip((base - np.nanmean(found.final[choice], axis=-1)) / base, 0, 1)


def _mnist(found: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    rows = found.late_rows[choice].sum(axis=-1)
    total = found.late[choice].sum(axis=-1)
    late = np.divide(total, rows, out=np.full(np.shape(total), np.nan), where=rows > 0)
    return (_regret_score(found, choice, experiment) + late) / 2


def _cartpole(found: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    solved = (found.best[choice] > GOOD_CARTPOLE).mean(axis=-1)
    return (_regret_score(found, choice, experiment) + solved) / 2


def _swingup(found: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    def height(part: np.ndarray) -> np.ndarray:
        solved = (found.best[part] > GOOD_SWINGUP).mean(axis=-1)
        return (_regret_score(found, part, experiment) + solved) / 2

    return _levels(found, choice, height).mean(axis=-1)


def _over_levels(found: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return the mean over levels of noise or scale, half of it less one standard deviation over
    them.
    """
    rule = _RULES[experiment.family]
    scores = _levels(found, choice, lambda part: rule(found, part, experiment))
    mean, spread = scores.mean(axis=-1), scores.std(axis=-1)
    return (np.clip(mean, 0, 1) + np.clip(mean - spread, 0, 1)) / 2


def _deep_sea(found: Measures, choice: np.ndarray, _: Experiment) -> np.ndarray:
    size = found.values[found.level[choice]]
    return (found.solved[choice] < 2.0**size + DITHERING).mean(axis=-1)


def _discounting(found: Measures, choice: np.ndarray, _: Experiment) -> np.ndarray:
    return np.clip(1 - 10 * np.nanmean(found.final[choice], axis=-1), 0, 1)


def _share_below(threshold: float) -> Score:
    def rule(found: Measures, choice: np.ndarray, _: Experiment) -> np.ndarray:
        means = _levels(found, choice, lambda part: np.nanmean(found.final[part], axis=-1))
        return (means < threshold).mean(axis=-1)

    return rule


def _levels(
    found: Measures, choice: np.ndarray, rule: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Apply a rule to each group of slots, [..., groups]."""
    levels = found.level[choice.reshape(-1, choice.shape[-1])[0]]
    return np.stack([rule(choice[..., levels == level]) for level in np.unique(levels)], axis=-1)


_RULES: dict[str, Score] = {
    "bandit": _regret_score,
    "catch": _regret_score,
    "mountain_car": _regret_score,
    "mnist": _mnist,
    "cartpole": _cartpole,
    "cartpole_swingup": _swingup,
    "deep_sea": _deep_sea,
    "discounting_chain": _discounting,
    "memory_chain": _share_below(GOOD_MEMORY),
    "umbrella_chain": _share_below(GOOD_UMBRELLA),
}
