"""The few numbers of a run that scores depend on, the rules of scores, and runs put together as
whole sweeps.

A score of an experiment is a function of these numbers alone, so that resampling whole runs needs
no logs any more. A choice is an array [..., slots] of numbers of runs; a score is taken along its
last axis.

A score belongs to one sweep, one run of each setting. Where settings were played K times there are
K sweeps, and the score is the mean over them; a setting with fewer runs takes part again with its
first ones. Settings of an experiment that are equal (the 20 of catch, the four of each level of
noise) form a *stratum*: their runs are drawn from the same distribution.

Source: the score rules of the original (release 0.3.6; Osband et al. 2020 describe earlier ones).
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, Experiment
from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.bsuite.logs import Logs, Run

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
    **dict.fromkeys(("bandit", "catch", "mnist", "umbrella_chain"), lambda c: c["total_regret"]),
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

    counted: np.ndarray  # bool: the run has a row that counts
    end: np.ndarray  # int: column of `average` for the last episode of the run that counts
    average: np.ndarray  # [runs, ends] average regret at each such episode, NaN: not logged
    best: np.ndarray  # highest return of an episode
    late: np.ndarray  # sum of accuracies between late rows of mnist
    late_rows: np.ndarray  # how many there are
    solved: np.ndarray  # episode at which deep_sea is first solved, NaN: never
    level: np.ndarray  # int: number of the group that a run belongs to
    values: np.ndarray  # [levels] the setting that distinguishes groups

    def __len__(self) -> int:
        return len(self.end)


def regret(run: Run) -> np.ndarray:
    """Return the cumulative regret at each row, by the definition of the experiment's score.

    For memory it is the ratio of errors to those of guessing, for deep_sea the number of bad
    episodes; divide by `episode` for averages.

    Source: the score rules of the original, release 0.3.6.
    """
    return _REGRET[run.experiment.family](run.columns)


def measures(runs: Sequence[Run], experiment: Experiment, release: str) -> Measures:
    """Return the numbers of all runs of one agent in one experiment."""
    levels, level = np.unique([level_of(run) for run in runs], return_inverse=True)
    rows = [_counting(run) for run in runs]
    last = [
        np.max(run.columns["episode"][at], initial=0) for run, at in zip(runs, rows, strict=True)
    ]
    ends, end = np.unique(np.minimum(last, experiment.episodes), return_inverse=True)
    late = [_late(run) for run in runs]
    return Measures(
        counted=np.array([at.any() for at in rows]),
        end=end,
        average=np.array([_averages(run, ends) for run in runs]),
        best=np.array([_best(run, at) for run, at in zip(runs, rows, strict=True)]),
        late=np.array([one[0] for one in late]),
        late_rows=np.array([one[1] for one in late]),
        solved=np.array([solved_at(run, release) for run in runs]),
        level=level,
        values=levels,
    )


def _counting(run: Run) -> np.ndarray:
    """Return which rows count, [rows] bool: balancing and deep_sea drop those after the last
    episode of the experiment, deep_sea_stochastic also the first ones.
    """
    experiment, episode = run.experiment, run.columns["episode"]
    if experiment.family not in ("cartpole", "cartpole_swingup", "deep_sea"):
        return np.ones(len(episode), bool)
    first = FIRST_STOCHASTIC if experiment.name == "deep_sea_stochastic" else 0
    return (first <= episode) & (episode <= experiment.episodes)


def level_of(run: Run) -> float:
    """Return the value of the setting that distinguishes groups; 0 where there is one group."""
    experiment = run.experiment
    index = int(run.bsuite_id.rpartition("/")[2])
    return float(experiment.settings[index][experiment.level]) if experiment.level else 0.0


def _averages(run: Run, ends: np.ndarray) -> np.ndarray:
    """Return the average regret at episodes `ends`, NaN where there is no row."""
    episode = run.columns["episode"]
    at = np.minimum(np.searchsorted(episode, ends), len(episode) - 1)
    return np.where(episode[at] == ends, regret(run)[at] / episode[at], np.nan)


def _best(run: Run, rows: np.ndarray) -> float:
    best = run.columns.get("best_episode")
    return float(best[rows].max()) if best is not None and rows.any() else np.nan


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
    few = run.columns["total_bad_episodes"] / episode < threshold
    at = np.flatnonzero(_counting(run) & few)
    return float(episode[at[0]]) if at.size else np.nan


GOOD_CARTPOLE = 500.0  # return of an episode from which on balancing counts as solved
GOOD_SWINGUP = 100.0
GOOD_MEMORY = 0.75  # errors, as a share of those of guessing, below which a length is solved
GOOD_UMBRELLA = 0.5  # average regret below which a length is solved
DITHERING = 100  # episodes beyond 2^N that deep_sea forgives

Score = Callable[[Measures, np.ndarray, Experiment], np.ndarray]


def score(runs: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return scores in [0, 1] of an experiment, shape of `choice` without its last axis.

    Args:
      runs: numbers of all runs.
      choice: [..., slots] int, the runs taken together as one sweep of the experiment. Slots of one
        place along the last axis belong to one group throughout.

    Returns:
      float64; NaN where the original's is, an unfinished run of mnist for example.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        if experiment.wrapper:
            return _over_levels(runs, choice, experiment)
        return _RULES[experiment.family](runs, choice, experiment)


def _average(runs: Measures, part: np.ndarray) -> np.ndarray:
    """Return the average regret at the last episode that one of the runs has reached, at most that
    of the experiment; runs without a row there are left out.
    """
    end = runs.end[part].max(axis=-1, keepdims=True)
    return np.nanmean(runs.average[part, end], axis=-1)


def _share(solved: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Return the share of solved runs among those with rows that count; NaN where there is none."""
    several = counted.sum(axis=-1)
    share = np.full(several.shape, np.nan)
    return np.divide((solved & counted).sum(axis=-1), several, out=share, where=several > 0)


def _regret_score(runs: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return one minus average regret / baseline."""
    base = BASE[experiment.family]
    return np.clip((base - _average(runs, choice)) / base, 0, 1)


def _mnist(runs: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    rows = runs.late_rows[choice].sum(axis=-1)
    total = runs.late[choice].sum(axis=-1)
    late = np.divide(total, rows, out=np.full(np.shape(total), np.nan), where=rows > 0)
    return (_regret_score(runs, choice, experiment) + late) / 2


def _cartpole(runs: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    solved = _share(runs.best[choice] > GOOD_CARTPOLE, runs.counted[choice])
    return (_regret_score(runs, choice, experiment) + solved) / 2


def _swingup(runs: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    def height(part: np.ndarray) -> np.ndarray:
        solved = _share(runs.best[part] > GOOD_SWINGUP, runs.counted[part])
        return (_regret_score(runs, part, experiment) + solved) / 2

    # a height none of whose rows count is left out, here only
    return np.nanmean(_levels(runs, choice, height), axis=-1)


def _over_levels(runs: Measures, choice: np.ndarray, experiment: Experiment) -> np.ndarray:
    """Return the mean over levels of noise or scale, half of it less one standard deviation over
    them.
    """
    rule = _RULES[experiment.family]
    scores = _levels(runs, choice, lambda part: rule(runs, part, experiment))
    mean, spread = scores.mean(axis=-1), scores.std(axis=-1)
    return (np.clip(mean, 0, 1) + np.clip(mean - spread, 0, 1)) / 2


def _deep_sea(runs: Measures, choice: np.ndarray, _: Experiment) -> np.ndarray:
    size = runs.values[runs.level[choice]]
    return _share(runs.solved[choice] < 2.0**size + DITHERING, runs.counted[choice])


def _discounting(runs: Measures, choice: np.ndarray, _: Experiment) -> np.ndarray:
    return np.clip(1 - 10 * _average(runs, choice), 0, 1)


def _share_below(threshold: float) -> Score:
    def rule(runs: Measures, choice: np.ndarray, _: Experiment) -> np.ndarray:
        means = _levels(runs, choice, lambda part: _average(runs, part))
        return (means < threshold).mean(axis=-1)

    return rule


def _levels(
    runs: Measures, choice: np.ndarray, rule: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Apply a rule to each group of slots, [..., groups]."""
    levels = runs.level[choice.reshape(-1, choice.shape[-1])[0]]
    return np.stack([rule(choice[..., levels == level]) for level in np.unique(levels)], axis=-1)


_RULES: dict[str, Score] = {
    **dict.fromkeys(("bandit", "catch", "mountain_car"), _regret_score),
    "mnist": _mnist,
    "cartpole": _cartpole,
    "cartpole_swingup": _swingup,
    "deep_sea": _deep_sea,
    "discounting_chain": _discounting,
    "memory_chain": _share_below(GOOD_MEMORY),
    "umbrella_chain": _share_below(GOOD_UMBRELLA),
}


@dataclasses.dataclass(frozen=True)
class AgentRuns:
    """All runs of one agent in one experiment, as numbers."""

    agent: str
    experiment: Experiment
    release: str  # whose rules count
    runs: tuple[Run, ...]  # by setting, then number
    measures: Measures
    setting: np.ndarray  # [runs] int, index of the setting
    stratum: np.ndarray  # [runs] int, index of the first setting that is equal

    @property
    def settings(self) -> np.ndarray:
        """Indices of the settings that were played, ascending."""
        return np.unique(self.setting)

    @property
    def sweeps(self) -> int:
        """The number of sweeps K: how often the setting that was played most was."""
        return int(np.bincount(self.setting).max())

    @property
    def finished(self) -> bool:
        """True if every setting of the experiment was played to its last episode, in every run."""
        whole = len(self.settings) == len(self.experiment.settings)
        return whole and all(run.finished for run in self.runs)

    @property
    def repeated(self) -> bool:
        """True if every stratum has two runs or more, which an interval needs."""
        return bool(np.unique(self.stratum, return_counts=True)[1].min() > 1)

    def choice(self) -> np.ndarray:
        """Return the runs of each sweep that was played, [sweeps, settings] int."""
        slots = []
        for setting in self.settings:
            runs = np.flatnonzero(self.setting == setting)
            slots.append(np.resize(runs, self.sweeps))
        return np.stack(slots, axis=-1)

    def score(self, choice: np.ndarray) -> np.ndarray:
        """Return scores of sweeps, shape of `choice` without its last axis."""
        return score(self.measures, choice, self.experiment)


def played(logs: Logs, agent: str, experiment: str, release: str = RELEASES[0]) -> AgentRuns | None:
    """Return the runs of an agent in an experiment; None where there is none.

    Raises:
      JbrlError: no such release.
    """
    if release not in RELEASES:
        raise JbrlError(f"release '{release}'{nearest(release, RELEASES)}")
    rules, runs = EXPERIMENTS[experiment], logs.of(agent, experiment)
    if not runs:
        return None
    return of_runs(runs, rules, release)


def of_runs(runs: list[Run], rules: Experiment, release: str) -> AgentRuns:
    """Return runs of one agent in one experiment as numbers."""
    setting = np.array([SWEEP[run.bsuite_id].index for run in runs])
    first = [rules.settings.index(one) for one in rules.settings]
    numbers = measures(runs, rules, release)
    stratum = np.array(first)[setting]
    return AgentRuns(runs[0].agent, rules, release, tuple(runs), numbers, setting, stratum)


def resampled(agent: AgentRuns, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return choices of runs drawn with replacement within strata, [resamples, sweeps, settings]
    int.
    """
    settings = agent.settings
    place = {setting: int(np.flatnonzero(agent.setting == setting)[0]) for setting in settings}
    drawn = np.empty((resamples, agent.sweeps, len(settings)), int)
    for k, setting in enumerate(settings):
        pool = np.flatnonzero(agent.stratum == agent.stratum[place[setting]])
        drawn[:, :, k] = generator.choice(pool, (resamples, agent.sweeps))
    return drawn
