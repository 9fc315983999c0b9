"""The results of a study as tables: one row per unit, per environment, and per strategy that agents
have tried on a prior before they played.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.schema import AGENT

TRAJECTORY = ("states", "actions", "rewards")
SAMPLES = (*AGENT, "unit", "seed", "score")  # columns of the score table
# interquartile ranges of repetitions; None: not repeated
SPREADS = ("offline_seconds_spread", "online_seconds_spread")
# of one decision, to a caller who plays one lifetime: median and 99th percentile
LATENCY = ("latency_seconds", "latency_p99_seconds")
ALONE = "alone_seconds"  # column of results that hold an earlier measure (`with_latency`)
# of each CPU device that worked, as `offline_seconds` and `online_seconds`; None: not known
PROCESSOR = ("offline_processor_seconds", "online_processor_seconds")
UNIT_COLUMNS = (
    *("experiment", "prior", "test", "algorithm", "parameters", "n"),
    *("offline_seconds", "online_seconds", *LATENCY, "compile_seconds"),
    *(*SPREADS, *PROCESSOR),
    *("device", "seed", "status", "reason", "prior_digest", "test_digest"),
)


@dataclass(frozen=True)
class Result:
    """Stored result of a unit: complete when `status` is "done", or when it is "failed" with
    scores, NaN of the lifetimes that failed; the first `n` lifetimes when it is a checkpoint.
    """

    header: dict[str, Any]
    returns: np.ndarray  # [n] float64, scores
    recorded: bool = False  # whether trajectories are kept beside it
    # the others of the file, where they were asked for
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def status(self) -> str:
        return str(self.header["status"])

    @property
    def n(self) -> int:
        return len(self.returns)


_MISSING = Result({"status": "missing", "n": 0}, np.zeros(0))


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of the units of a study, in its order."""

    listed: Sequence[Mapping[str, Any]]  # the entry of each unit in the manifest
    found: Mapping[str, Result]  # by id; without units that have no result

    def units(self) -> pd.DataFrame:
        """Return one row per unit: columns `UNIT_COLUMNS`.

        Times are wall seconds: `offline_seconds` and `compile_seconds` in all, `online_seconds` per
        decision, amortised over the lifetimes played at once, `LATENCY` of one decision to a
        caller who plays one lifetime (`with_latency`); the columns `SPREADS` are interquartile
        ranges over repetitions; `PROCESSOR` are processor seconds, less than wall seconds where
        others kept the machine busy; `device` is what times were measured on (`measured_on`).
        `status` is "done", "failed" or "missing"; `reason` says why a unit failed. The
        digests are those of the distributions themselves, None where a unit has no result: problems
        of one name with different digests are different problems.
        """
        rows = []
        for unit in self.listed:
            header = self.found.get(unit["id"], _MISSING).header
            known = {**header, **_digests(header), **unit, "device": measured_on(header)}
            rows.append([known.get(c) for c in UNIT_COLUMNS])
        return with_latency(pd.DataFrame(rows, columns=list(UNIT_COLUMNS)))

    def returns(self, *, failed: bool = False) -> pd.DataFrame:
        """Return one row per environment of each finished unit: columns `SAMPLES`.

        `unit` is the number of the environment: with the same `seed`, the same number is the same
        environment (the same MDP) for every agent of an experiment.

        Args:
          failed: with units that failed because lifetimes did, whose scores are NaN.
        """
        done = self._done(failed=failed)
        if not done:
            return pd.DataFrame({name: [] for name in SAMPLES})
        units, scores = [self.listed[k] for k, _ in done], [found for _, found in done]
        rows = np.repeat(np.arange(len(done)), list(map(len, scores)))
        columns = {c: pd.Series([unit[c] for unit in units]).array.take(rows) for c in AGENT}
        seeds = np.array([unit["seed"] for unit in units])[rows]
        numbers = np.concatenate([np.arange(len(own)) for own in scores])
        return pd.DataFrame(
            {**columns, "unit": numbers, "seed": seeds, "score": np.concatenate(scores)}
        )

    def numbered(self) -> pd.DataFrame:
        """Return the score table without names: `row`, the number of a unit in `units`, and
        `score`.
        """
        done = self._done(failed=False)
        numbers = np.array([k for k, _ in done], np.int64)
        rows = np.repeat(numbers, [len(scores) for _, scores in done])
        scores = np.concatenate([np.zeros(0), *(scores for _, scores in done)])
        return pd.DataFrame({"row": rows, "score": scores})

    def _done(self, *, failed: bool) -> list[tuple[int, np.ndarray]]:
        """Return number and scores of the finished units; with `failed`, also of those that failed
        with scores.
        """
        found = [self.found.get(unit["id"], _MISSING) for unit in self.listed]
        return [
            (k, one.returns)
            for k, one in enumerate(found)
            if one.status == "done" or (failed and one.n)
        ]


def with_latency(units: pd.DataFrame) -> pd.DataFrame:
    """Return a table of units in which `latency_seconds` is latency.

    Results without a 99th percentile hold the time of a compiled lifetime divided by its decisions,
    without the dispatch of each: it stands in a column `ALONE` instead, absent where there is none.
    """
    if LATENCY[1] not in units.columns:
        units = units.assign(**{LATENCY[1]: None})
    earlier = units[LATENCY[1]].isna() & units[LATENCY[0]].notna()
    if not earlier.any():
        return units
    alone = units[LATENCY[0]].where(earlier)
    return units.assign(**{LATENCY[0]: units[LATENCY[0]].where(~earlier), ALONE: alone})


def measured_on(header: Mapping[str, Any]) -> str | None:
    """Return what times were measured on: the device, and how programs were compiled for it unless
    in full. Times measured on something else are not compared.
    """
    compiled = header.get("compiled") or "full"
    device = header.get("device")
    return f"{device}, {compiled} programs" if device and compiled != "full" else device


def _digests(header: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the digests of the prior and the test distribution in the configuration of a unit."""
    configuration = header.get("configuration") or {}
    return {f"{name}_digest": configuration.get(name) for name in ("prior", "test")}


STRATEGY_COLUMNS = (
    *("prior", "algorithm", "parameters", "seed"),
    *("strategy", "pulls", "mean", "std", "discarded", "chosen"),
    *("consumed", "simulated", "offline_seconds"),
)


def strategies_of_search(
    unit: Mapping[str, Any],
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    most: int | None = None,
) -> pd.DataFrame:
    """Return one row for each strategy that a search has tried, the most pulled first, or for each
    stretch of a training, the first one first.

    Args:
      unit: of those that use the findings, in the manifest.
      header, arrays: of the findings.
      most: rows of a search; None: all. A training has all of its.
    """
    named = {name: unit[name] for name in ("prior", "algorithm", "parameters", "seed")}
    learned = header["learned"]
    cost = {
        "consumed": learned["consumed"],
        "simulated": learned["simulated"],
        "offline_seconds": learned["seconds"],
    }
    arms = {name: v for name, v in arrays.items() if "/" not in name}
    rows = pd.DataFrame({**named, **arms, **cost})
    if "weights" in learned["strategy"]:
        return rows
    ordered = rows.sort_values(["pulls", "chosen", "mean"], ascending=False, kind="stable")
    return ordered.head(len(rows) if most is None else most)


def strategy_table(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of several searches, columns `STRATEGY_COLUMNS`; of none, an empty table."""
    if not parts:
        return pd.DataFrame(columns=list(STRATEGY_COLUMNS))
    return pd.concat(parts, ignore_index=True)[list(STRATEGY_COLUMNS)]
