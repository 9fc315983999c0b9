"""Permutation test of the difference of two agents in an experiment.

If two agents behave alike in every setting, the name of a run carries no information: names may be
exchanged among the runs of a stratum (equal settings) without changing the distribution of the
difference of scores. The test needs no assumption beyond that, and works with one run per setting.

Source: Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses (stratified
permutation).
"""

import dataclasses
import itertools
import zlib
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import SWEEP
from jbrl.stats.bsuite.logs import Logs, Run
from jbrl.stats.bsuite.measures import RELEASES
from jbrl.stats.bsuite.sweeps import Played, of_runs, played
from jbrl.stats.multiple_tests import rejected

PERMUTATIONS = 4999
LEVEL = 0.05
SLACK = 1e-12  # differences this close are equal, but for rounding
COLUMNS = ("bsuite_env", "agent", "other", "difference", "p_value", "differs", "runs", "other_runs")


@dataclasses.dataclass(frozen=True)
class Permuted:
    """Result of a permutation test."""

    difference: float  # of the scores, first less second
    p_value: float  # two-sided
    permutations: int


def permutation_test(
    a: Played, b: Played, permutations: int = PERMUTATIONS, seed: int = 0
) -> Permuted:
    """Test the hypothesis that both agents behave alike in every setting that both have played.

    Two-sided; p = (1 + permutations at least as far from 0) / (1 + permutations), which keeps the
    level (Phipson and Smyth 2010). NaN where an agent has not finished: the number of episodes
    would distinguish the runs.
    """
    common = np.intersect1d(a.settings, b.settings)
    parts = [[run for run in one.runs if _index(run) in common] for one in (a, b)]
    if not all(parts) or not all(run.finished for part in parts for run in part):
        return Permuted(np.nan, np.nan, 0)
    both = of_runs([*parts[0], *parts[1]], a.experiment, a.release)
    first, second = (of_runs(part, a.experiment, a.release).choice() for part in parts)
    second = second + len(parts[0])

    def difference(orders: np.ndarray) -> np.ndarray:
        mine, other = (both.score(orders[:, choice]).mean(axis=-1) for choice in (first, second))
        return mine - other

    observed = difference(np.arange(len(both.runs))[None])[0]
    orders = _exchanges(both.stratum, permutations, np.random.default_rng(seed))
    far = np.sum(np.abs(difference(orders)) >= abs(observed) - SLACK)
    return Permuted(float(observed), float((1 + far) / (1 + permutations)), permutations)


def compare(
    logs: Logs, release: str = RELEASES[0], permutations: int = PERMUTATIONS
) -> pd.DataFrame:
    """Compare all pairs of agents in all experiments that both have played.

    Returns:
      Columns bsuite_env, agent, other, difference (score of agent less that of other), p_value,
      differs (bool: by Holm's correction over the experiments of a pair, at 5%), runs and
      other_runs (int, of a setting).

    Raises:
      JbrlError: no such release.
    """
    parts = []
    for agent, other in itertools.combinations(logs.agents, 2):
        rows = []
        for name in logs.experiments:
            a, b = (played(logs, who, name, release) for who in (agent, other))
            if a is None or b is None:
                continue
            seed = zlib.crc32(f"{agent}/{other}/{name}".encode())
            found = permutation_test(a, b, permutations, seed)
            row: dict[str, Any] = {"bsuite_env": name, "agent": agent, "other": other}
            row |= {"difference": found.difference, "p_value": found.p_value}
            rows.append(row | {"runs": a.sweeps, "other_runs": b.sweeps})
        known = [row for row in rows if np.isfinite(row["p_value"])]
        verdicts = rejected([row["p_value"] for row in known], LEVEL, "holm")
        for row, differs in zip(known, verdicts, strict=True):
            row["differs"] = differs
        parts += rows
    found = pd.DataFrame(parts, columns=list(COLUMNS))
    return found.assign(differs=found["differs"].eq(True))


def _index(run: Run) -> int:
    return SWEEP[run.bsuite_id].index


def _exchanges(
    stratum: np.ndarray, permutations: int, generator: np.random.Generator
) -> np.ndarray:
    """Return orders of the runs in which only runs of one stratum change places, [permutations,
    runs].
    """
    keys = stratum + generator.random((permutations, len(stratum)))
    ranks = np.argsort(keys, axis=-1)
    places = np.argsort(stratum, kind="stable")
    found = np.empty_like(ranks)
    found[:, places] = ranks
    return found
