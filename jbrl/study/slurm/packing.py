"""Packing of units into tasks of a cluster: pure functions of costs and dependencies."""

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# tasks of an array that every SLURM takes, unless configured to take fewer (MaxArraySize=1001)
LARGEST_ARRAY = 1000
FILLED = 0.8  # of the time limit, at most, is what a task should take by its estimate


class Piece(NamedTuple):
    """A unit of work, to be packed."""

    id: str
    seconds: float  # that it is expected to take
    # the search that it makes use of, or does itself when it is the first one
    needs: str | None = None


class ClusterTask(NamedTuple):
    """Units that one process runs, one after the other."""

    units: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Packing:
    """All tasks. Those of `after` may start when those of `searches` have ended."""

    searches: list[ClusterTask]  # the first unit of each search that others wait for
    free: list[ClusterTask]  # wait for nothing
    after: list[ClusterTask]

    @property
    def tasks(self) -> list[ClusterTask]:
        return [*self.searches, *self.free, *self.after]


def pack(
    pieces: Sequence[Piece],
    parallelism: int,
    limit: float | None = None,
    known: Collection[str] = (),
    awaited: Collection[str] = (),
) -> Packing:
    """Pack units into tasks of about the same length.

    The first unit that needs a search does it; the others that need the same one come after. A
    search that only one unit needs delays no other unit. There are `parallelism` tasks to be run at
    once, and more when they would take too long otherwise, as many as one array may have.

    Args:
      pieces: in the order of the study.
      parallelism: how many tasks run at once.
      limit: seconds that a task may take.
      known: searches that have been done.
      awaited: searches that others are doing: units that need one come after.
    """
    needs: dict[str, list[Piece]] = {}
    for piece in pieces:
        if piece.needs and piece.needs not in known and piece.needs not in awaited:
            needs.setdefault(piece.needs, []).append(piece)
    shared = [users for users in needs.values() if len(users) > 1]
    searching = {users[0].id for users in shared}
    waiting = {piece.id for users in shared for piece in users[1:]} | {
        piece.id for piece in pieces if piece.needs in awaited
    }
    searches = [piece for piece in pieces if piece.id in searching]
    free = [piece for piece in pieces if piece.id not in searching | waiting]
    after = [piece for piece in pieces if piece.id in waiting]
    max_tasks = max(parallelism, LARGEST_ARRAY)
    first = _balanced(searches, _count(searches, parallelism, limit, max_tasks - bool(free)))
    return Packing(
        first,
        _balanced(
            free, _count(free, max(1, parallelism - len(first)), limit, max_tasks - len(first))
        ),
        _balanced(after, _count(after, parallelism, limit, max_tasks)),
    )


def _count(pieces: Sequence[Piece], parallelism: int, limit: float | None, max_tasks: int) -> int:
    """Return the number of tasks."""
    total = math.fsum(piece.seconds for piece in pieces)
    needed = math.ceil(total / (FILLED * limit)) if limit else 1
    return min(len(pieces), max(parallelism, needed), max_tasks)


def _balanced(pieces: Sequence[Piece], n: int) -> list[ClusterTask]:
    """Make `n` tasks, the longest and the shortest of which differ by no more than the longest
    unit.

    Longest processing time first (Graham 1969, Bounds on multiprocessing timing anomalies): each
    unit, from the longest to the shortest, goes to the task with the least to do. The longest task
    takes at most 4/3 - 1/(3n) of what the best packing would.
    """
    loads = [(0.0, 0, number) for number in range(n)]  # seconds, units, number of the task
    held: list[list[int]] = [[] for _ in range(n)]
    for position in sorted(range(len(pieces)), key=lambda i: -pieces[i].seconds):
        seconds, count, number = loads[0]
        held[number].append(position)
        heapq.heapreplace(loads, (seconds + pieces[position].seconds, count + 1, number))
    return [
        ClusterTask(
            tuple(pieces[i].id for i in sorted(positions)),
            math.fsum(pieces[i].seconds for i in positions),
        )
        for positions in held
    ]
