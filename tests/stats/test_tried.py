"""Few rows of searches: what was tried most; of trainings, stretches evenly spaced."""

import numpy as np
import pandas as pd
import pytest

from jbrl.stats.table import evenly, few, is_training


@pytest.mark.parametrize(
    ("count", "n", "found"),
    [
        (6, 3, [1, 3, 5]),
        (5, 2, [1, 4]),
        (50, 1, [49]),
        (4, 4, [0, 1, 2, 3]),
        (2, 5, [0, 1]),
        (0, 5, []),
    ],
)
def test_rows_are_evenly_spaced_up_to_the_last(count: int, n: int, found: list[int]) -> None:
    assert evenly(count, n).tolist() == found


def table() -> pd.DataFrame:
    """A search, a training, another search with fewer rows than are asked for."""
    tried = {
        "OPPS-DS": ["Q0", "to lifetime 1", "Q2", "Q0/Q2"],
        "BeliefPPO": [f"to lifetime {n:,}" for n in range(500, 3500, 500)],
        "OPPS-CS": ["(1, 0, 0)"],
    }
    rows = [
        {"prior": "GC", "algorithm": name, "parameters": "{}", "seed": 0, "strategy": strategy}
        for name, strategies in tried.items()
        for strategy in strategies
    ]
    return pd.DataFrame(rows)


def test_few_rows_of_each_search_stay_in_order() -> None:
    assert few(table(), 3)["strategy"].tolist() == [
        *("Q0", "to lifetime 1", "Q2"),
        *("to lifetime 1,000", "to lifetime 2,000", "to lifetime 3,000"),
        "(1, 0, 0)",
    ]
    pd.testing.assert_frame_equal(few(table(), 50), table())
    assert few(table().iloc[:0], 3).empty


def test_a_training_is_told_from_a_search() -> None:
    found = [is_training(rows) for _, rows in table().groupby("algorithm", sort=False)]
    assert np.array_equal(found, [False, True, False])
