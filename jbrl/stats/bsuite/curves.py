"""Data of the detail plots of a report: tables with one row for each mark or point, and what is
possible in settings whose states are finite.

Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, Experiment, Id
from jbrl.stats.bsuite import measures
from jbrl.stats.bsuite.logs import Logs, Run
from jbrl.stats.table import summarise

ARMS = 11  # of bandit
CHAIN_GAIN = 0.1  # of the best chain, which pays that much more than the others
ROWS, COLUMNS = 10, 5  # of catch
COST = 0.01  # of as many moves to the right as deep_sea has rows


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """The ceiling of a setting.

    The optimum is earned by an agent that knows the environment; rewards are those before noise and
    scale. The best learner knows the rules of the experiment, but not what its seed draws: which
    arm is best, which chain is, which action goes right in a cell. Noise of rewards leaves the
    least regret unknown.
    """

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
    return Ceiling(1 + CHAIN_GAIN, (len(CHAINS) - 1) * CHAIN_GAIN / 2)


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


CHAINS = (1, 3, 10, 30, 100)  # steps until the reward of each chain of discounting_chain
SHOWN_SIZES = (10, 20, 30, 40, 50)  # of deep_sea, in learning curves
THRESHOLDS = {
    "memory_chain": measures.GOOD_MEMORY,
    "umbrella_chain": measures.GOOD_UMBRELLA,
    "cartpole_swingup": measures.GOOD_SWINGUP,
}
OPTIMUM = {  # best average return of an episode, in the units of `returns`
    **dict.fromkeys(("bandit", "catch", "mnist", "memory_chain", "umbrella_chain"), 1.0),
    **dict.fromkeys(("cartpole", "cartpole_swingup"), 1000.0),
    "mountain_car": -100.0,
    "discounting_chain": 1.1,
}
_GAIN = {  # the column that adds up what episodes earn; elsewhere it is what regret leaves
    **dict.fromkeys(("cartpole", "cartpole_swingup", "mountain_car"), "raw_return"),
    "deep_sea": "denoised_return",
    "discounting_chain": "total_return",
    "memory_chain": "total_perfect",
}


def optima(experiment: Experiment) -> tuple[float, ...]:
    """Return the best average returns of an episode in `returns`, of all settings: where moves may
    fail, the chance of the treasure depends on the size.
    """
    if experiment.family != "deep_sea":
        return (OPTIMUM[experiment.family],)
    stochastic = experiment.name == "deep_sea_stochastic"
    sizes = (int(setting["size"]) for setting in experiment.settings)
    return tuple({deep_sea_value(n, stochastic=stochastic, cost=0.0): 0 for n in sizes})


def least_regrets(experiment: Experiment) -> tuple[float, ...]:
    """Return the least regrets of all episodes in the settings that are drawn, without 0 and those
    that are not known.
    """
    drawn = [one for one in experiment.ids if SWEEP[one].settings.get("size", 10) in SHOWN_SIZES]
    known = (found.least_regret for one in drawn if (found := ceiling(one)) is not None)
    return tuple(dict.fromkeys(regret for regret in known if regret > 0))


def group_of(run: Run) -> float:
    """Return the quantity that curves are grouped by: the level of an experiment, or the horizon of
    the best chain.
    """
    if run.experiment.family == "discounting_chain":
        return float(CHAINS[SWEEP[run.bsuite_id].index % len(CHAINS)])
    return measures.level_of(run)


def regrets(logs: Logs, experiment: str) -> pd.DataFrame:
    """Return the average regret after each logged episode.

    Returns:
      Columns agent, run, bsuite_id, level, episode, average.
    """
    return _rows(logs, experiment, lambda run: measures.regret(run) / run.columns["episode"])


def returns(logs: Logs, experiment: str) -> pd.DataFrame:
    """Return the average return of the episodes between two logged ones, without noise and scale.

    It is the accuracy in mnist and the share of right answers in memory; in umbrella it counts the
    last reward only, the others being noise.

    Returns:
      Columns agent, run, bsuite_id, level, episode, average.
    """

    def between(run: Run) -> np.ndarray:
        family, episode = run.experiment.family, run.columns["episode"]
        if family in _GAIN:
            gain = run.columns[_GAIN[family]]
        else:
            gain = episode - run.columns["total_regret"] / (2 if family == "mnist" else 1)
        return np.diff(gain, prepend=0) / np.diff(episode, prepend=0)

    return _rows(logs, experiment, between)


def mean_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """Return means over the runs of each agent and level at each logged episode.

    Returns:
      Columns agent, level, episode, n (int), mean, ci95: half-width of a 95% interval for a
      Gaussian mean, NaN for one run.
    """
    curves = curves.rename(columns={"average": "score"})
    return summarise(curves, ["agent", "level", "episode"]).drop(columns="std")


def final_regrets(logs: Logs, experiment: str) -> pd.DataFrame:
    """Return the average regret at the last logged episode, by agent and level.

    Returns:
      Columns agent, level, n, mean, ci95, finished (bool).
    """
    rows = [
        (run.agent, group_of(run), float(measures.regret(run)[-1] / run.episodes), run.finished)
        for run in _all(logs, experiment)
    ]
    by = ["agent", "level"]
    table = pd.DataFrame(rows, columns=[*by, "score", "finished"])
    finished = table.groupby(by, sort=False)["finished"].all().reset_index()
    return summarise(table, by).drop(columns="std").merge(finished, on=by)


def bests(logs: Logs, experiment: str) -> pd.DataFrame:
    """Return the best return of an episode by agent and level, mean over runs: agent, level, mean,
    n.
    """
    rows = [
        (run.agent, measures.level_of(run), float(run.columns["best_episode"].max()))
        for run in _all(logs, experiment)
    ]
    table = pd.DataFrame(rows, columns=["agent", "level", "best"])
    groups = table.groupby(["agent", "level"], sort=False)["best"]
    return groups.agg(mean="mean", n="size").reset_index()


def solutions(logs: Logs, experiment: str, release: str = measures.RELEASES[0]) -> pd.DataFrame:
    """Return when deep_sea was solved, by agent, size and run.

    Returns:
      Columns agent, run, size, episode (NaN: not solved), episodes (the last logged), in_time
      (bool: before 2^size + 100).
    """
    rows = []
    for run in _all(logs, experiment):
        size, at = measures.level_of(run), measures.solved_at(run, release)
        row = {"agent": run.agent, "run": run.number, "size": int(size), "episode": at}
        rows.append(row | {"episodes": run.episodes, "in_time": bool(at < 2.0**size + 100)})
    return pd.DataFrame(rows)


def _all(logs: Logs, experiment: str) -> list[Run]:
    assert experiment in EXPERIMENTS
    return [run for agent in logs.agents for run in logs.of(agent, experiment)]


def _rows(logs: Logs, experiment: str, average: Callable[[Run], np.ndarray]) -> pd.DataFrame:
    parts = []
    for run in _all(logs, experiment):
        columns = {"agent": run.agent, "run": run.number, "bsuite_id": run.bsuite_id}
        columns |= {"level": group_of(run), "episode": run.columns["episode"]}
        parts.append(pd.DataFrame(columns | {"average": average(run)}))
    return pd.concat(parts, ignore_index=True)
