"""Logs for tests: the golden tables of the original, and small ones made up."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, logged_episodes
from jbrl.stats.bsuite.logs import Logs, Run, logs_of_table

DATA = Path(__file__).parent / "data" / "bsuite"
GOLDEN = ("scores_a", "scores_b", "scores_partial", "scores_deep_sea_edge")


@cache
def arrays(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as file:
        return dict(file)


@cache
def golden(name: str) -> Logs:
    """The logs of a golden file, of one agent of that name."""
    stored = arrays(name)
    ids = np.array(json.loads(str(stored["bsuite_ids"])))
    rows = len(stored["steps"])
    columns = [key for key, values in stored.items() if values.shape == (rows,)]
    table = pd.DataFrame({key: stored[key] for key in columns if key != "bsuite_index"})
    return logs_of_table(table.assign(bsuite_id=ids[stored["bsuite_index"]], agent=name))


def expected(name: str) -> pd.DataFrame:
    """Scores that the original computes: score and finished, by bsuite_env."""
    stored = arrays(name)
    names = json.loads(str(stored["score_env"]))
    return pd.DataFrame({"score": stored["score"], "finished": stored["finished"]}, index=names)


@cache
def logged(episodes: int) -> np.ndarray:
    """Numbers of the episodes of which a run of that length has rows."""
    return np.array(logged_episodes(episodes), np.float64)


def made_up(
    agent: str, bsuite_id: str, rate: float, *, number: int = 0, episodes: int | None = None
) -> Run:
    """A run with the same regret `rate` in every episode, of the columns that its score needs."""
    experiment = SWEEP[bsuite_id].experiment
    episode = logged(episodes or experiment.episodes)
    columns = {name: np.zeros(len(episode)) for name in experiment.log_columns}
    columns |= {"episode": episode, "steps": 9 * episode, "episode_len": 9 + 0 * episode}
    for name in ("total_regret", "total_bad_episodes"):
        if name in columns:
            columns[name] = rate * episode
    if "total_perfect" in columns:
        columns["total_perfect"] = (1 - rate / 2) * episode
    return Run(agent, number, bsuite_id, columns)


def whole(agent: str, experiment: str, rates: list[list[float]]) -> Logs:
    """Runs of all settings of an experiment; `rates[number][index]`."""
    ids = EXPERIMENTS[experiment].ids
    return Logs(
        tuple(
            made_up(agent, bsuite_id, rate, number=number)
            for number, row in enumerate(rates)
            for bsuite_id, rate in zip(ids, row, strict=True)
        )
    )
