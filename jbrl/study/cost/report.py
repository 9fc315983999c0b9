"""Expected and actual costs of a study, by algorithm. Read from its results."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from jbrl.play.unit import LATENCY_STEPS, LATENCY_TRAJECTORIES
from jbrl.study.storage.files import pack_json, read_json, write_whole
from jbrl.study.storage.store import Store

COLUMNS = ("algorithm", "units", "done", "estimated_seconds", "actual_seconds", "left_seconds")


# beside the results: how long each unit was expected to take, by the process that planned it
ESTIMATES_FILE = "expected.json"


def save_estimates(folder: Path, seconds: Mapping[str, float]) -> None:
    """Write the expected durations of units, by id, beside those that others have written.

    No result depends on it.
    """
    with contextlib.suppress(OSError):
        write_whole(
            folder / ESTIMATES_FILE, pack_json({"seconds": {**saved_estimates(folder), **seconds}})
        )


def saved_estimates(folder: Path) -> dict[str, float]:
    """Return seconds that units were expected to take, by id, as far as they were written."""
    return dict((read_json(folder / ESTIMATES_FILE) or {"seconds": {}})["seconds"])


@dataclass(frozen=True)
class UnitCost:
    """Wall seconds of the parts of a unit."""

    compiling: float = 0.0
    searching: float = 0.0  # all that happens offline
    deciding: float = 0.0
    waiting: float = 0.0  # for decisions one at a time, where latency is measured
    other: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compiling + self.searching + self.deciding + self.waiting + self.other


def actual(header: dict[str, Any], *, searched: bool) -> UnitCost:
    """Return the cost of a finished unit, by the header of its result.

    Args:
      searched: whether its search counts; one search serves all units with the same knowledge.
    """
    horizon = header["configuration"].get("horizon", 0)
    decisions = header.get("decisions") or header["n"] * horizon
    return UnitCost(
        compiling=header.get("compile_seconds") or 0.0,
        searching=header["offline_seconds"] if searched else 0.0,
        deciding=header["online_seconds"] * decisions,
        waiting=(header.get("latency_seconds") or 0.0)
        * LATENCY_TRAJECTORIES
        * (horizon or LATENCY_STEPS),
    )


def cost_report(store: Store, ids: Collection[str] | None = None) -> pd.DataFrame:
    """Return one row per algorithm, in the order of the study: columns `COLUMNS`.

    Wall seconds: `estimated_seconds` those that the units that are `done` were expected to take
    when they were begun (NaN if it was not recorded), `actual_seconds` their compilation, search
    and decisions, `left_seconds` the estimate for those that are not done.

    Args:
      ids: of the units that count; None: all of them.

    Raises:
      StoreError: no results of a study here.
    """
    manifest = store.manifest()
    estimates, searched, rows = saved_estimates(store.folder), set(), []
    units = [unit for unit in manifest["units"] if ids is None or unit["id"] in ids]
    found = store.results([unit["id"] for unit in units])
    for listed in units:
        result = found.get(listed["id"])
        done = result is not None and result.status == "done"
        expected = estimates.get(listed["id"], float("nan"))
        seconds = 0.0
        if result is not None and done:
            seconds = actual(
                result.header,
                searched=listed["knowledge"] is None or listed["knowledge"] not in searched,
            ).seconds
            searched.add(listed["knowledge"])
        rows.append(
            (
                listed["algorithm"],
                1,
                int(done),
                expected if done else 0.0,
                seconds,
                0.0 if done else expected,
            )
        )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.groupby("algorithm", sort=False).sum(min_count=1).reset_index()
