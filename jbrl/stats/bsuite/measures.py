"""The few numbers of a run that scores depend on.

A score of an experiment is a function of these numbers alone, so that resampling whole runs needs
no logs any more.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbrl.base.bsuite_sweep import Experiment
from jbrl.stats.bsuite.logs import Run

LATE = 9000  # episodes from which on the accuracy of mnist counts
SOLVED = {"0.3.6": 0.9, "0.3.5": 0.8}  # share of bad episodes in deep_sea, by release
SOLVED_STOCHASTIC = 0.8
FIRST_STOCHASTIC = 100  # first episode that counts in deep_sea_stochastic
RELEASES = tuple(SOLVED)
BASE = {  # average regret of a policy that scores 0, by family
    "bandit": 0.5,
    "catch": 1.6,
    "mnist": 1.8,
    "mountain_car": 1000.0,
    "cartpole": 1000.0,
    "cartpole_swingup": 700.0,
}

Columns = Mapping[str, np.ndarray]
_REGRET: dict[str, Callable[[Columns], np.ndarray]] = {
    "bandit": lambda c: c["total_regret"],
    "catch": lambda c: c["total_regret"],
    "mnist": lambda c: c["total_regret"],
    "umbrella_chain": lambda c: c["total_regret"],
    "mountain_car": lambda c: -100 * c["episode"] - c["raw_return"],
    "cartpole": lambda c: 1000 * c["episode"] - c["raw_return"],
    "cartpole_swingup": lambda c: 700 * c["episode"] - c["total_return"],
    "memory_chain": lambda c: (c["episode"] - c["total_perfect"]) / 0.5,
    "discounting_chain": lambda c: 1.1 * c["episode"] - c["total_return"],
    "deep_sea": lambda c: c["total_bad_episodes"],
}


@dataclasses.dataclass(frozen=True)
class Measures:
    """Quantities of runs that scores need, [runs] each; NaN where an experiment has no use for a
    number.
    """

    final: np.ndarray  # average regret at the last episode that counts, NaN: not reached
    best: np.ndarray  # highest return of an episode
    late: np.ndarray  # sum of accuracies between late rows of mnist
    late_rows: np.ndarray  # how many there are
    solved: np.ndarray  # episode at which deep_sea is first solved, NaN: never
    level: np.ndarray  # int: number of the group that a run belongs to
    values: np.ndarray  # [levels] the setting that distinguishes groups

    def __len__(self) -> int:
        return len(self.final)


def regret(run: Run) -> np.ndarray:
    """Return the cumulative regret at each row, by the definition of the experiment's score.

    For memory it is the ratio of errors to those of guessing, for deep_sea the number of bad
    episodes; divide by `episode` for averages.

    Source: the score rules of the original, release 0.3.6.
    """
    return _REGRET[run.experiment.family](run.columns)


def measures(runs: Sequence[Run], experiment: Experiment, release: str) -> Measures:
    """Return the numbers of all runs of one agent in one experiment.

    The last episode that counts is the smaller of the experiment's number of episodes and the
    last one that any run of a group has reached; a run that has not reached it has no average.
    """
    values = np.array([level_of(run) for run in runs])
    found, level = np.unique(values, return_inverse=True)
    ends = np.array([run.episodes for run in runs])
    last = np.zeros(len(found), int)
    np.maximum.at(last, level, np.minimum(ends, experiment.episodes))
    late = [_late(run) for run in runs]
    return Measures(
        final=np.array([_final(run, n) for run, n in zip(runs, last[level], strict=True)]),
        best=np.array([_best(run) for run in runs]),
        late=np.array([one[0] for one in late]),
        late_rows=np.array([one[1] for one in late]),
        solved=np.array([solved_at(run, release) for run in runs]),
        level=level,
        values=found,
    )


def level_of(run: Run) -> float:
    """Return the value of the setting that distinguishes groups; 0 where there is one group."""
    experiment = run.experiment
    index = int(run.bsuite_id.rpartition("/")[2])
    return float(experiment.settings[index][experiment.level]) if experiment.level else 0.0


def _final(run: Run, last: int) -> float:
    """Return the average regret at episode `last`."""
    at = np.flatnonzero(run.columns["episode"] == last)
    return float(regret(run)[at[0]] / last) if at.size else np.nan


def _best(run: Run) -> float:
    best = run.columns.get("best_episode")
    return float(best.max()) if best is not None else np.nan


def _late(run: Run) -> tuple[float, int]:
    """Sum and number of the accuracies between rows of mnist beyond episode `LATE`."""
    if run.experiment.family != "mnist":
        return np.nan, 0
    steps = np.diff(run.columns["total_regret"]) / np.diff(run.columns["episode"])
    counted = steps[run.columns["episode"][1:] > LATE]
    return float(((2 - counted) / 2).sum()), len(counted)


def solved_at(run: Run, release: str) -> float:
    """Return the logged episode at which deep_sea is first solved; NaN where it never is."""
    experiment = run.experiment
    if experiment.family != "deep_sea":
        return np.nan
    episode = run.columns["episode"]
    stochastic = experiment.name == "deep_sea_stochastic"
    threshold = SOLVED_STOCHASTIC if stochastic else SOLVED[release]
    counts = episode <= experiment.episodes
    if stochastic:
        counts = counts & (episode >= FIRST_STOCHASTIC)
    at = np.flatnonzero(counts & (run.columns["total_bad_episodes"] / episode < threshold))
    return float(episode[at[0]]) if at.size else np.nan
