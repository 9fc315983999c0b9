"""Times that a measurement does not tell apart are made equal."""

import numpy as np
import pandas as pd
import pytest

from jbrl.stats.time_bounds import merged, resolved


@pytest.mark.parametrize(
    ("seconds", "spreads", "found"),
    [
        ([1.09e-7, 1.1e-7, 1.97e-7], 0.0, [1.1e-7, 1.1e-7, 2e-7]),  # two digits
        ([1.97e-7, 1.09e-7, 1.1e-7], 0.0, [2e-7, 1.1e-7, 1.1e-7]),  # in any order
        ([1.0e-7, 1.4e-7, 1.9e-7], [5e-8, 0.0, 0.0], [1e-7, 1e-7, 1.9e-7]),  # within a spread
        ([1.0e-7, 1.4e-7, 1.9e-7], [0.0, 5e-8, 0.0], [1e-7, 1e-7, 1.9e-7]),  # of either
        ([1.0e-7, 1.4e-7, 1.9e-7], 5e-8, [1e-7, 1e-7, 1.9e-7]),  # no chains: the least counts
        ([0.0, 0.0], 0.0, [0.0, 0.0]),
        ([], 0.0, []),
    ],
)
def test_ties(seconds, spreads, found):
    spread = np.broadcast_to(spreads, len(seconds))
    assert merged(np.array(seconds, float), spread) == pytest.approx(found)


def test_what_the_dispatch_of_a_call_takes_is_no_offline_time():
    # 2.7, 0.43 and 0.29 ms were measured for one program that trains nothing but a table
    scores = pd.DataFrame(
        {"offline_seconds": [0.43e-3, 0.29e-3, 2.7e-3, 3.5e-3], "online_seconds": 1e-7}
    )
    found = resolved(scores)
    assert list(found["offline_seconds"]) == [0.0, 0.0, 2.7e-3, 2.7e-3]
    assert list(found["online_seconds"]) == [1e-7] * 4


def test_spreads_are_used_where_they_are_known():
    scores = pd.DataFrame(
        {
            "offline_seconds": 0.0,
            "online_seconds": [1e-7, 1.3e-7, 2e-7, 2.3e-7],
            "online_seconds_spread": [4e-8, np.nan, np.nan, np.nan],
        }
    )
    assert list(resolved(scores)["online_seconds"]) == [1e-7, 1e-7, 2e-7, 2.3e-7]
