"""The table of what agents have tried on a prior before they played."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

COLUMNS = (
    *("prior", "algorithm", "parameters", "seed"),
    *("strategy", "pulls", "mean", "std", "discarded", "chosen"),
    *("consumed", "simulated", "offline_seconds"),
)


def of_search(
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


def table(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of several searches, columns `COLUMNS`; of none, an empty table."""
    if not parts:
        return pd.DataFrame(columns=list(COLUMNS))
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]
