"""Lifetimes: what they accept."""

import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.spec import MAX_COUNT, Episodes, Steps


@pytest.mark.parametrize("count", [1, 250, np.int64(7), MAX_COUNT])
def test_counts_from_one_are_accepted(count):
    assert Steps(count).steps == count
    assert Episodes(count).episodes == count


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "5", None, MAX_COUNT + 1])
def test_anything_else_is_refused(count):
    expected = "expected an integer from 1 to 2147483647"
    with pytest.raises(JbrlError, match=f"^horizon = {count!r}: {expected}"):
        Steps(count)
    with pytest.raises(JbrlError, match=f"^episodes = {count!r}: {expected}"):
        Episodes(count)
    with pytest.raises(JbrlError, match=f"^max_steps = {count!r}: {expected}"):
        Episodes(10, count)


def test_lifetimes_are_values():
    assert Steps(5) == Steps(5) != Steps(6)
    assert hash(Episodes(5)) == hash(Episodes(5, 100_000))
    assert Steps(5) != Episodes(5)
