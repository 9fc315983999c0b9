"""Data of the detail plots of a report: tables with one row for each mark or point."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, Experiment
from jbrl.stats.bsuite import measures
from jbrl.stats.bsuite.ceilings import deep_sea_value
from jbrl.stats.bsuite.logs import Logs, Run
from jbrl.stats.table import summarise

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
