"""What a study was expected to cost, and what it has cost, by algorithm. Read from its results."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pandas as pd

from jbrl.runner.storage.notes import recall
from jbrl.runner.storage.store import Store
from jbrl.runner.storage.unit import LATENCY_TRAJECTORIES

COLUMNS = ("algorithm", "units", "done", "estimated_seconds", "actual_seconds", "left_seconds")


@dataclass(frozen=True)
class Cost:
    """Wall seconds of the parts of a unit."""

    compiling: float = 0.0
    searching: float = 0.0  # all that happens offline
    deciding: float = 0.0
    waiting: float = 0.0  # for decisions one at a time, where latency is measured
    other: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compiling + self.searching + self.deciding + self.waiting + self.other


def actual(header: dict[str, Any], *, searched: bool) -> Cost:
    """What a finished unit has cost, by the header of its result.

    Args:
      searched: whether its search counts; one search serves all units with the same knowledge.
    """
    rules = header["configuration"]
    return Cost(
        compiling=header.get("compile_seconds") or 0.0,
        searching=header["offline_seconds"] if searched else 0.0,
        deciding=header["online_seconds"] * header["n"] * rules["horizon"],
        waiting=(header.get("latency_seconds") or 0.0) * LATENCY_TRAJECTORIES * rules["horizon"],
    )


def accounts(store: Store, ids: Collection[str] | None = None) -> pd.DataFrame:
    """One row per algorithm, in the order of the study: columns `COLUMNS`.

    Wall seconds: `estimated_seconds` those that the units that are `done` were expected to take when they were begun (NaN if no one has
    noted it), `actual_seconds` their compilation, search and decisions, `left_seconds` the estimate for those that are not done.

    Args:
      ids: of the units that count; None: all of them.

    Raises:
      StoreError: no results of a study here.
    """
    manifest = store.manifest()
    estimates, searched, rows = recall(store.folder), set(), []
    for listed in manifest["units"]:
        if ids is not None and listed["id"] not in ids:
            continue
        result = store.result(listed["id"])
        done = result is not None and result.status == "done"
        expected = estimates.get(listed["id"], float("nan"))
        seconds = 0.0
        if result is not None and done:
            seconds = actual(result.header, searched=listed["knowledge"] is None or listed["knowledge"] not in searched).seconds
            searched.add(listed["knowledge"])
        rows.append((listed["algorithm"], 1, int(done), expected if done else 0.0, seconds, 0.0 if done else expected))
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    return table.groupby("algorithm", sort=False).sum(min_count=1).reset_index()
