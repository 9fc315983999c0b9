"""Packing units into tasks of a cluster, by its properties."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jbrl.study.slurm import FILLED, LARGEST_ARRAY, Packing, Piece, pack

ROUNDING = 1e-9  # of sums


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    seconds = st.floats(0.0, 1e5) | st.sampled_from([0.0, 1.0, 1.0])
    drawn = draw(st.lists(st.tuples(seconds, st.none() | st.sampled_from("abc")), max_size=40))
    return [Piece(str(i), cost, needs) for i, (cost, needs) in enumerate(drawn)]


known = st.sets(st.sampled_from("abc"))
parallelism = st.integers(1, 12)


def packed(packing: Packing) -> list[str]:
    return [id for task in packing.tasks for id in task.units]


@given(pieces(), parallelism, st.none() | st.floats(60.0, 1e6), known)
@example([], 4, None, set())
def test_every_unit_once_and_no_task_empty(given, n, limit, known):
    packing = pack(given, n, limit, known)
    assert sorted(packed(packing)) == sorted(piece.id for piece in given)
    assert all(task.units for task in packing.tasks)


@given(pieces(), parallelism, known)
def test_a_search_comes_before_all_others_that_need_it(given, n, known):
    packing = pack(given, n, None, known)
    needs = {piece.id: piece.needs for piece in given}
    searching = [needs[id] for task in packing.searches for id in task.units]
    assert len(set(searching)) == len(searching)
    for task in packing.free:  # nobody waits for a search that is known, or that nobody else needs
        for id in task.units:
            assert (
                needs[id] is None
                or needs[id] in known
                or list(needs.values()).count(needs[id]) == 1
            )
    for task in packing.after:
        assert all(needs[id] in searching for id in task.units)


@given(pieces(), parallelism, known)
def test_tasks_differ_by_no_more_than_the_longest_unit(given, n, known):
    cost = {piece.id: piece.seconds for piece in given}
    packing = pack(given, n, None, known)
    for tasks in (packing.searches, packing.free, packing.after):
        if tasks:
            loads = [math.fsum(cost[id] for id in task.units) for task in tasks]
            assert loads == pytest.approx([task.seconds for task in tasks])
            longest = max(cost[id] for task in tasks for id in task.units)
            assert max(loads) - min(loads) <= longest * (1 + ROUNDING)


@given(pieces(), parallelism, st.floats(60.0, 1e5))
def test_as_many_tasks_as_run_at_once_or_more_when_time_is_short(given, n, limit):
    packing = pack(given, n, limit)
    free = [piece for task in packing.free for piece in task.units]
    total, room = (
        math.fsum(task.seconds for task in packing.free),
        max(1, n - len(packing.searches)),
    )
    assert len(packing.free) == min(len(free), max(room, math.ceil(total / (FILLED * limit))))


def test_an_example():
    """Two searches, three units that wait for them, and five seconds of others among the two tasks
    that are left of four.
    """
    given = [
        Piece("s", 9, "x"),
        Piece("u", 2, "x"),
        Piece("v", 2, "x"),
        Piece("t", 7, "y"),
        Piece("w", 4, "y"),
    ]
    given += [Piece("a", 1), Piece("b", 3), Piece("c", 1), Piece("alone", 2, "z")]
    packing = pack(given, 4)
    assert [task.units for task in packing.searches] == [("s",), ("t",)]
    assert [task.units for task in packing.free] == [("b", "c"), ("a", "alone")]
    assert [task.units for task in packing.after] == [("w",), ("u",), ("v",)]


def test_units_keep_the_order_of_the_study_within_a_task():
    packing = pack([Piece("a", 1), Piece("b", 5), Piece("c", 2)], 1)
    assert packing.free[0].units == ("a", "b", "c")


def test_no_array_is_larger_than_slurm_takes_by_default():
    units = [Piece(str(i), 3600.0, "ab"[i % 2] if i < 2500 else None) for i in range(5000)]
    packing = pack(units, 40, 60.0)
    assert len(packing.searches) + len(packing.free) == LARGEST_ARRAY == len(packing.after)
    assert len(pack(units, 2000, 60.0).after) == 2000  # who asks for more at once has more


def test_what_others_search_is_waited_for():
    packing = pack([Piece("1", 1.0, "a"), Piece("2", 1.0, "b"), Piece("3", 1.0)], 4, awaited={"a"})
    assert [task.units for task in packing.after] == [("1",)]
    assert not packing.searches and len(packing.free) == 2
