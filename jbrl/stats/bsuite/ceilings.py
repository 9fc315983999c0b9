"""Ceilings of the settings of bsuite that are finite and known.

The *optimum* is the greatest expected return of an episode, of an agent that knows the environment;
rewards are those before noise and scale. The *least regret* is that of the best learner: it knows
the rules of the experiment, but not what its seed draws, which arm is best, which chain is, which
action goes right in a cell. Noise of rewards leaves the least regret unknown. cartpole, its
swing-up, mountain_car and mnist have no ceilings: their states are not finite.

Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from jbrl.base.bsuite_sweep import SWEEP, Id
from jbrl.stats.bsuite import measures
from jbrl.stats.bsuite.logs import Run

ARMS, CHAINS = 11, 5  # of bandit, of discounting_chain
CHAIN_GAIN = 0.1  # of the best chain, which pays that much more than the others
ROWS, COLUMNS = 10, 5  # of catch
COST = 0.01  # of as many moves to the right as deep_sea has rows


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """The ceiling of a setting."""

    optimum: float  # greatest expected return of an episode
    # expected regret of all episodes of the best learner, as the experiment's score counts regret;
    # NaN: not known
    least_regret: float


def ceiling(bsuite_id: str) -> Ceiling | None:
    """Return what is possible in a setting; None where its states are not finite."""
    one = SWEEP[bsuite_id]
    make = _CEILINGS.get(one.experiment.family)
    return None if make is None else make(one)


def _bandit(one: Id) -> Ceiling:
    """Each arm is as likely to be tried before the best one as after it."""
    rewards = np.linspace(0, 1, ARMS)
    known = one.experiment.wrapper != "noise"
    return Ceiling(1.0, float((1 - rewards).sum()) / 2 if known else float("nan"))


def _discounting_chain(one: Id) -> Ceiling:
    del one
    return Ceiling(1 + CHAIN_GAIN, (CHAINS - 1) * CHAIN_GAIN / 2)


def _catch(one: Id) -> Ceiling:
    """By value iteration over the columns of ball and paddle."""
    del one
    ball, paddle = np.indices((COLUMNS, COLUMNS))
    values = np.where(ball == paddle, 1.0, -1.0)
    for _ in range(ROWS - 1):
        values = np.max([values[:, np.clip(paddle[0] + move, 0, 4)] for move in (-1, 0, 1)], 0)
    return Ceiling(float(values[:, COLUMNS // 2].mean()), 0.0)


def _one_answer(one: Id) -> Ceiling:
    """Return the ceiling of memory and umbrella: what is asked for at the end has been shown."""
    del one
    return Ceiling(1.0, 0.0)


def _deep_sea(one: Id) -> Ceiling:
    """Count episodes that leave the diagonal by going left as regret: in each of its cells the
    first guess is wrong with probability 1/2, and an episode has one wrong guess at most.
    """
    size = int(one.settings["size"])
    stochastic = one.experiment.name == "deep_sea_stochastic"
    return Ceiling(deep_sea_value(size, stochastic=stochastic), size / 2)


def deep_sea_value(size: int, *, stochastic: bool, cost: float = COST) -> float:
    """Return the value of the first cell, by value iteration over cells."""
    column = np.arange(size)
    after = np.zeros(size)
    slip = 1 / size if stochastic else 0.0
    for row in reversed(range(size)):
        moved = (1 - slip) * after[np.minimum(column + 1, size - 1)] + slip * after
        treasure = (row == size - 1) & (column == size - 1)
        after = np.maximum(treasure - cost / size + moved, after[np.maximum(column - 1, 0)])
    return float(after[0])


_CEILINGS: dict[str, Callable[[Id], Ceiling]] = {
    "bandit": _bandit,
    "catch": _catch,
    "deep_sea": _deep_sea,
    "discounting_chain": _discounting_chain,
    "memory_chain": _one_answer,
    "umbrella_chain": _one_answer,
}


def mean_return(run: Run) -> float:
    """Return the mean return of an episode of a run, before noise and scale, in umbrella without
    the coins that are tossed on the way; NaN where there is no ceiling.
    """
    family, columns = run.experiment.family, run.columns
    if family not in _CEILINGS:
        return float("nan")
    if family in ("deep_sea", "discounting_chain"):
        return float(columns["total_return"][-1] / run.episodes)
    # a wrong answer costs 2, in memory too
    return float(1 - measures.regret(run)[-1] / run.episodes)
