"""Packing units into tasks of a cluster, by its properties."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jbrl.study.slurm import FILLED, LARGEST_ARRAY, ClusterTask, pack

ROUNDING = 1e-9  # of sums


def units(*seconds: float) -> list[ClusterTask]:
    return [ClusterTask((f"{i}", f"{i}b")[: 1 + i % 2], cost) for i, cost in enumerate(seconds)]


pieces = st.lists(st.floats(0.0, 1e5) | st.sampled_from([0.0, 1.0, 1.0]), max_size=40).map(
    lambda seconds: units(*seconds)
)


@given(pieces, st.integers(1, 12), st.none() | st.floats(60.0, 1e6))
@example([], 4, None)
def test_every_piece_is_whole_in_one_task_and_tasks_are_even(given, n, limit):
    tasks, total = pack(given, n, limit), math.fsum(piece.seconds for piece in given)
    wanted = max(n, math.ceil(total / (FILLED * limit)) if limit else 1)
    assert len(tasks) == min(len(given), wanted)
    assert all(task.units for task in tasks)
    holders = {id: task for task in tasks for id in task.units}
    assert sorted(id for task in tasks for id in task.units) == sorted(holders)
    assert set(holders) == {id for piece in given for id in piece.units}
    assert all(len({id_task.units for id_task in map(holders.get, p.units)}) == 1 for p in given)
    loads = [math.fsum(p.seconds for p in given if holders[p.units[0]] is task) for task in tasks]
    assert loads == pytest.approx([task.seconds for task in tasks])
    if tasks:
        longest = max(piece.seconds for piece in given)
        assert max(loads) - min(loads) <= longest * (1 + ROUNDING)


def test_an_example():
    """The longest first, each into the task with the least to do; in the order of the study."""
    tasks = pack(units(1.0, 5.0, 2.0, 3.0), 2)
    assert [task.units for task in tasks] == [("0", "1", "1b"), ("2", "3", "3b")]
    assert [task.seconds for task in tasks] == [6.0, 5.0]


def test_no_array_is_larger_than_slurm_takes_by_default():
    given = units(*[3600.0] * 5000)
    assert len(pack(given, 40, 60.0)) == LARGEST_ARRAY
    assert len(pack(given, 2000, 60.0)) == 2000  # who asks for more at once has more
