"""The strategies of both players of the evaluation game: which are better than others, which are
worse, and which are their equals.
"""

import dataclasses
from functools import cached_property

import numpy as np

# relative difference up to which payoffs are equal
EQUAL = float(np.sqrt(np.finfo(np.float64).eps))


def nearly_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Test payoffs elementwise for equality up to rounding, bool."""
    return np.abs(a - b) <= EQUAL * np.maximum(np.abs(a), np.abs(b))


@dataclasses.dataclass(frozen=True)
class Side:
    """The strategies of one player, for each strategy of the other (a lane).

    A strategy with `group` 0 or more is equal to the others of its lane with the same number.
    """

    cells: np.ndarray  # [L, K] int64, number of the joint strategy
    low: np.ndarray  # [L, K] float64, payoff of the player who moves, at least
    high: np.ndarray  # [L, K] float64, at most
    group: np.ndarray  # [L, K] int64, -1 for a strategy without equals

    @cached_property
    def worse(self) -> "Quadrants":
        """Strategies with an upper end below a strategy's lower end."""
        return quadrants(self.high, self.low)

    @cached_property
    def better(self) -> "Quadrants":
        """Strategies with a lower end above a strategy's upper end."""
        return quadrants(-self.low, -self.high)

    @cached_property
    def by_group(self) -> np.ndarray:
        """Places [L·K] of strategies that have equals, group by group."""
        flat = self.group.ravel()
        order = np.argsort(flat, kind="stable")
        return order[np.searchsorted(flat[order], 0) :]


@dataclasses.dataclass(frozen=True)
class Quadrants:
    """Points with a key and queries with a threshold, in each lane; what any query can reach."""

    lane: np.ndarray  # [P] int64, of each point
    place: np.ndarray  # [P] int64, of each point in its lane
    rank: np.ndarray  # [P] int64, of its key in the lane
    query: np.ndarray  # [Q] int64, place in [L·K] of each query with a key below its threshold
    below: np.ndarray  # [Q] int64, number of keys below the threshold
    keys: np.ndarray  # [L, K] int64, places by increasing key


def quadrants(key: np.ndarray, threshold: np.ndarray) -> Quadrants:
    """Return points and queries from keys and thresholds [L, K] float64."""
    order = np.argsort(key, axis=1, kind="stable")
    ordered = np.take_along_axis(key, order, axis=1)
    pairs = zip(ordered, threshold, strict=True)
    below = np.stack([np.searchsorted(keys, wanted) for keys, wanted in pairs])
    lane, rank = np.nonzero(np.arange(key.shape[1]) < below.max(axis=1)[:, None])
    query = np.flatnonzero(below)
    return Quadrants(lane, order[lane, rank], rank, query, below.ravel()[query], order)


def sides_of(
    low: np.ndarray, high: np.ndarray, same: np.ndarray, *, published: bool = False
) -> tuple[Side, Side]:
    """Return the strategies of p and of q, from payoff intervals [n, m, n] float64 of p.

    Args:
      same: [n, m, n] bool, which algorithms are the same definition on an environment.
      published: call intervals equal that coincide, for any width.
    """
    n, m, _ = low.shape
    B = n * m
    below, above = low.reshape(n, B), high.reshape(n, B)
    cells = np.arange(n * B).reshape(n, B)
    first = np.argmax(same | np.eye(n, dtype=bool)[:, None, :], axis=2)  # [n, m]: names a class
    j, k = np.divmod(np.arange(B), n)
    of_p, of_q = first[:, j].T, np.broadcast_to(j * n + first[k, j], (n, B))
    return (
        _side(cells.T, below.T, above.T, of_p, published),
        _side(cells, -above, -below, of_q, published),
    )


def _side(
    cells: np.ndarray, low: np.ndarray, high: np.ndarray, declared: np.ndarray, published: bool
) -> Side:
    """Return strategies grouped with their equals: intervals that coincide and have no width, or
    belong to the same definition.
    """
    exact = nearly_equal(low, high) | published
    label = np.where(exact, -1, declared)
    lows, highs = _clusters(low), _clusters(high)
    lane = np.repeat(np.arange(len(low)), low.shape[1])
    columns = (highs.ravel(), lows.ravel(), label.ravel(), lane)
    order = np.lexsort(columns)
    new = np.zeros(low.size, bool)
    for column in columns:
        new[1:] |= np.diff(column[order]) != 0
    number = np.cumsum(new)
    single = np.bincount(number)[number] == 1
    group = np.full(low.size, -1)
    group[order] = np.where(single, -1, number)
    starts = np.flatnonzero(np.append(True, new[1:]))
    low, high = low.copy(), high.copy()
    for ends in (low, high):  # equals have the same ends, to the last bit
        flat = ends.ravel()
        flat[order] = flat[order[starts]][number]
        ends[...] = flat.reshape(ends.shape)
    return Side(cells, low, high, group.reshape(low.shape))


def _clusters(values: np.ndarray) -> np.ndarray:
    """Return numbers [L, K] int64 of values in each lane, the same for values that are nearly
    equal.
    """
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    new = ~nearly_equal(ordered[:, 1:], ordered[:, :-1])
    number = np.pad(np.cumsum(new, axis=1), ((0, 0), (1, 0)))
    clusters = np.empty_like(order)
    np.put_along_axis(clusters, order, number, axis=1)
    return clusters
