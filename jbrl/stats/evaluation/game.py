"""The evaluation game of algorithms, opponents and environments.

Player p chooses an algorithm i to score well, player q an environment j and an opponent k to make
it score badly; p receives the payoff z[i, j, k]. The long-run choices of both, when each moves now
and then to anything better, weigh environments and opponents: easy environments and redundant
algorithms decide nothing.

**As a process in continuous time.** The paper's transition matrix C has the constant rate eta at
each improving move and eta/50 at each move between equals, so C = 1 + eta·G with a generator G of
rates 1 and 1/50, and the damped stationary distribution solves

    d (κ - G) = κ/|S|,   κ = (1 - γ)/(γ·eta) = (n + B - 2)/(|S| - 1),   γ = (|S| - 1)/|S|,

with B = n·m strategies of q and |S| = n·B joint strategies. Expected rewards w = κ (κ - G)⁻¹ R
solve the transposed system, and their mean is the aggregate score.

**Without a matrix.** A strategy has an interval of payoffs, of no width in a game whose payoffs are
known. A move to a strategy whose whole interval is better has the rate 1, one to its equal the rate
`TIE`, one to a worse strategy 0; moves between intervals that overlap are open, and a policy takes
those that lead to where more is expected. So the sum over all moves from a strategy is one of

* strategies with a lower end above its own upper end, a stretch of a sorted list;
* strategies of higher expected reward, a stretch of another sorted list, less those of them that
  are worse, plus those of lower expected reward that are better: sums over quadrants of a plane,
  which are sums of stretches of lists sorted within blocks of 2, 4, 8 … (a wavelet tree);
* equal strategies, which stand side by side in one more list.

All lists together are one gather and a few cumulative sums, and the stretches are rows of a sparse
matrix with two entries for each. For n algorithms and B strategies of the other player a product
with the generator costs O(n·B·log B) operations and as much memory, where the matrix has
n·B·(n + B) entries.

Sources: Jordan et al. 2020, section 4.2 and appendices C and D; α-Rank: Omidshafiei et al. 2019;
the wavelet tree: Chazelle 1988, A functional approach to data structures and its use in
multidimensional searching, SIAM Journal on Computing 17(3).
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import LinearOperator, gmres

from jbrl.base.errors import JbrlError

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


ITERATIONS = 300  # of BiCGSTAB, at most; some 15 are usual
Apply = Callable[[np.ndarray], np.ndarray]
TIE = 1 / 50  # rate of a move between equals: one over the size of α-Rank's population
RESTARTS = 8  # of the iterative solver
ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a residual, relative to its terms
ACCURACY = 1e-12  # of a solution, relative to the largest it may be


@dataclasses.dataclass(frozen=True)
class Lists:
    """Lists of joint strategies, [rows, length], and stretches of them: sums of a strategy.

    Entry (s, e, c) of the stretches adds c times the sum of the first e numbers of all rows, each
    row counted from 0 and taking length + 1 places, to the sum of strategy s.
    """

    members: np.ndarray  # [rows, length] int64
    strategy: np.ndarray  # [T] int64
    end: np.ndarray  # [T] int64
    factor: np.ndarray  # [T] float64


class Moves:
    """κ - G for rates that follow from two `Side`s and a policy; and solutions of its systems."""

    def __init__(self, shape: tuple[int, int], lists: Sequence[Lists]) -> None:
        """Take the lists of both players together."""
        self.shape = shape  # (n, B)
        self._blocks = [part.members.shape for part in lists]
        self._members = np.concatenate([part.members.ravel() for part in lists])
        sizes = [rows * (length + 1) for rows, length in self._blocks]
        starts = np.cumsum([0, *sizes])
        ends = [part.end + start for part, start in zip(lists, starts, strict=False)]
        strategy = np.concatenate([part.strategy for part in lists])
        factor = np.concatenate([part.factor for part in lists])
        size = shape[0] * shape[1], int(starts[-1])
        self._stretches = csr_matrix((factor, (strategy, np.concatenate(ends))), shape=size)
        self.diagonal = self.damping + self._sums(np.ones(size[0]))
        self._upward = np.zeros(size[0])  # open moves of q to larger w

    @classmethod
    def certain(cls, shape: tuple[int, int], sides: Sequence[Side]) -> "Moves":
        """Return only the moves that are certain."""
        return cls(shape, [part for side in sides for part in (_certain(side), _ties(side))])

    @classmethod
    def greedy(cls, shape: tuple[int, int], sides: Sequence[Side], w: np.ndarray) -> "Moves":
        """Return certain moves, and of the open ones those to where w [n, B] is larger."""
        lists: list[Lists] = []
        for side in sides:
            value = w.ravel()[side.cells]
            order = np.argsort(-value, axis=1, kind="stable")
            place = np.empty_like(order)
            np.put_along_axis(place, order, np.arange(order.shape[1])[None], axis=1)
            members = np.take_along_axis(side.cells, order, axis=1)
            up = [Lists(members, *_before(side.cells, place))]
            up += _quadrant(side, side.worse, place, -1.0)
            down = order.shape[1] - 1 - place
            lists += [*up, *_quadrant(side, side.better, down, 1.0), _ties(side, place)]
        game = cls(shape, lists)
        game._upward = np.sum([_counts(part, w.size) for part in up], axis=0)
        return game

    @property
    def damping(self) -> float:
        """κ."""
        n, B = self.shape
        return (n + B - 2) / (n * B - 1)

    def _sums(self, w: np.ndarray) -> np.ndarray:
        """Sum over the moves from each strategy, of rate times w [n·B]."""
        return self._stretches @ self._cumulated(w[self._members])

    def _cumulated(self, values: np.ndarray) -> np.ndarray:
        parts, start = [], 0
        for rows, length in self._blocks:
            part = np.zeros((rows, length + 1))
            stop = start + rows * length
            np.cumsum(values[start:stop].reshape(rows, length), axis=1, out=part[:, 1:])
            parts.append(part.ravel())
            start = stop
        return np.concatenate(parts)

    def apply(self, w: np.ndarray) -> np.ndarray:
        """Return (κ - G) w of w [n·B]."""
        middle = w.mean()  # small numbers lose little when they are summed up
        centred = w - middle
        return self.damping * middle + self.diagonal * centred - self._sums(centred)

    def apply_transposed(self, d: np.ndarray) -> np.ndarray:
        """Return the product d (κ - G) of d [n·B] with the matrix."""
        parts, start = [], 0
        ends = self._stretches.T @ d
        for rows, length in self._blocks:
            stop = start + rows * (length + 1)
            part = ends[start:stop].reshape(rows, length + 1)[:, :0:-1]
            parts.append(np.cumsum(part, axis=1)[:, ::-1].ravel())
            start = stop
        return self.diagonal * d - np.bincount(self._members, np.concatenate(parts), d.size)

    def solve(
        self, right: np.ndarray, guess: np.ndarray | None = None, accuracy: float = ACCURACY
    ) -> np.ndarray:
        """Solve (κ - G) w = right for w, both [n, B], from `guess` on.

        The largest error is that of the residual, divided by κ.
        """
        target = accuracy * float(np.abs(right).max())
        return self._solve(self.apply, right, guess, np.inf, target)

    def solve_transposed(self, right: np.ndarray) -> np.ndarray:
        """Solve d (κ - G) = right for d, both [n, B].

        The sum of the errors is at most that of the residual, divided by κ.
        """
        return self._solve(self.apply_transposed, right, None, 1, ACCURACY * np.abs(right).sum())

    def improved(self, w: np.ndarray, right: np.ndarray, target: float) -> np.ndarray:
        """Bring (κ - G) w, from w [n, B] on, within `target` of `right`, or as near as it gets."""
        scale = self._upward_solver(w)
        x = bicgstab(self.apply, scale, right.ravel(), w.ravel(), np.inf, target)
        return x.reshape(self.shape)

    def _solve(
        self, apply: Apply, right: np.ndarray, guess: np.ndarray | None, order: float, target: float
    ) -> np.ndarray:
        """Run BiCGSTAB until the residual is small in the norm of that order, GMRES if it never
        is.
        """
        b = right.ravel()
        x = np.zeros(b.size) if guess is None else guess.ravel()
        for attempt in range(RESTARTS + 1):
            if attempt < RESTARTS:
                x = bicgstab(apply, lambda r: r / self.diagonal, b, x, order, target)
            else:
                x = self._by_gmres(apply, b, target / b.size)
            reached = ROUNDING * float(np.linalg.norm(self.diagonal * x, order))
            if float(np.linalg.norm(b - apply(x), order)) <= max(target, reached):
                return x.reshape(self.shape)
        raise JbrlError(
            f"evaluation game of {b.size:,} joint strategies: the linear solver does not converge: "
            "expected payoffs that are finite numbers"
        )

    def _by_gmres(self, apply: Apply, b: np.ndarray, target: float) -> np.ndarray:
        size = (b.size, b.size)
        operator = LinearOperator(size, apply, dtype=np.float64)
        scale = LinearOperator(size, lambda r: r / self.diagonal, dtype=np.float64)
        return gmres(operator, b, rtol=0, atol=target, restart=200, maxiter=20, M=scale)[0]

    def _upward_solver(self, w: np.ndarray) -> Apply:
        """Return an approximate inverse, which assumes that a move of q leads to each larger w with
        equal probability.

        The diagonal stays as it is, so that d x - f Σ (x of larger w) = r remains, a recurrence in
        the order of w with f the share of larger w that moves lead to.
        """
        order = np.argsort(-w, axis=1, kind="stable")
        cells = np.arange(w.size).reshape(w.shape)[np.arange(len(w))[:, None], order]
        d = self.diagonal[cells]
        place = np.arange(w.shape[1])
        share = np.clip(self._upward[cells] / np.maximum(place, 1), 0, 1)
        growth = np.cumprod(1 + share / d, axis=1)
        before = np.pad(growth[:, :-1], ((0, 0), (1, 0)), constant_values=1.0)

        def solve(r: np.ndarray) -> np.ndarray:
            part = r[cells]
            own = part / (d * growth)
            solution = np.empty_like(r)
            solution[cells] = (part + share * (np.cumsum(own, axis=1) - own) * before) / d
            return solution

        return solve


def _before(cells: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return stretches from the start of a lane's list [L, K] up to each place."""
    L, K = place.shape
    return cells.ravel(), (place + (K + 1) * np.arange(L)[:, None]).ravel(), np.ones(L * K)


def _counts(part: Lists, size: int) -> np.ndarray:
    """Return the number of strategies that the stretches of each strategy hold, [size] float64."""
    within = part.end % (part.members.shape[1] + 1)
    return np.bincount(part.strategy, part.factor * within, size)


def _certain(side: Side) -> Lists:
    """Return strategies that are better for certain, when no move is open."""
    better = side.better
    members = np.take_along_axis(side.cells, better.keys, axis=1)
    K = members.shape[1]
    end = better.below + (K + 1) * (better.query // K)
    return Lists(members, side.cells.ravel()[better.query], end, np.ones(len(end)))


def _ties(side: Side, place: np.ndarray | None = None) -> Lists:
    """Count moves between equals; with a policy, less those that `_before` has counted."""
    members = side.by_group
    if place is not None:
        members = members[np.lexsort((place.ravel()[members], side.group.ravel()[members]))]
    group, cells = side.group.ravel()[members], side.cells.ravel()[members]
    first = np.searchsorted(group, group)
    last = np.searchsorted(group, group, side="right")
    own = np.arange(len(members))
    parts = [(last, TIE), (first, -TIE)]
    if place is not None:
        parts += [(own, -1.0), (first, 1.0)]
    return Lists(
        cells[None],
        np.tile(cells, len(parts)),
        np.concatenate([end for end, _ in parts]),
        np.repeat([factor for _, factor in parts], len(members)),
    )


def _quadrant(side: Side, points: Quadrants, place: np.ndarray, factor: float) -> list[Lists]:
    """Sum over points with a smaller place and a key below a threshold, `factor` times.

    The places before one are a union of blocks of 1, 2, 4 … places, one for each bit that is set.
    Within blocks of one size the points stand by their keys.
    """
    if not len(points.query):
        return []
    K = place.shape[1]
    levels = max(1, (K - 1).bit_length())
    code = (points.lane << levels) + place[points.lane, points.place]
    mine = ((points.query // K) << levels) + place.ravel()[points.query]
    ordered = np.argsort(mine)
    mine, below = mine[ordered], points.below[ordered]
    asker = side.cells.ravel()[points.query[ordered]]
    cells, bits = side.cells[points.lane, points.place], len(code).bit_length()
    members, strategy, ends, factors = [], [], [], []
    for level in range(levels):
        key = ((code >> level) * (K + 1) + points.rank) << bits
        mixed = np.sort(key + np.arange(len(code)))
        members.append(cells[mixed & ((1 << bits) - 1)])
        asks = np.flatnonzero((mine >> level) & 1)
        block = ((mine[asks] >> level) - 1) * (K + 1)
        start, stop = (
            np.searchsorted(mixed, wanted << bits) for wanted in (block, block + below[asks])
        )
        some = stop > start
        shift = level * (len(code) + 1)
        strategy += [asker[asks][some]] * 2
        ends += [stop[some] + shift, start[some] + shift]
        factors += [np.full(some.sum(), factor), np.full(some.sum(), -factor)]
    return [Lists(np.stack(members), *(np.concatenate(part) for part in (strategy, ends, factors)))]


@np.errstate(over="ignore", invalid="ignore")  # an iteration that diverges ends it
def bicgstab(
    apply: Apply, scale: Apply, b: np.ndarray, x: np.ndarray, order: float, target: float
) -> np.ndarray:
    """Solve `apply`(x) = b by BiCGSTAB, preconditioned from the right, from x on; return the best
    x.

    Unlike SciPy's it measures the residual in the norm of any order, and sums products without
    BLAS, whose threads wait for each other when problems are solved side by side.

    Source: van der Vorst 1992, Bi-CGSTAB, SIAM Journal on Scientific and Statistical Computing 13.
    """
    r = b - apply(x)
    shadow, p, v = r.copy(), np.zeros_like(b), np.zeros_like(b)
    rho = alpha = omega = 1.0
    best, least = x, float(np.linalg.norm(r, order))
    for _ in range(ITERATIONS):
        if not least > target:
            break
        before, rho = rho, _dot(shadow, r)
        if rho == 0 or omega == 0:
            break
        p = r + (rho / before) * (alpha / omega) * (p - omega * v)
        step = scale(p)
        v = apply(step)
        along = _dot(shadow, v)
        if along == 0:
            break
        alpha = rho / along
        half = r - alpha * v
        other = scale(half)
        t = apply(other)
        square = _dot(t, t)
        omega = _dot(t, half) / square if square else 0.0
        x = x + alpha * step + omega * other
        r = half - omega * t
        size = float(np.linalg.norm(r, order))
        if not np.isfinite(size):
            break
        if size < least:
            best, least = x, size
    return best


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum())


@dataclasses.dataclass(frozen=True)
class Equilibrium:
    """The point estimate of the game."""

    scores: np.ndarray  # [n] aggregate score of each algorithm
    p: np.ndarray  # [n] how often player p chooses each algorithm
    q: np.ndarray  # [m, n] how often player q chooses each environment and opponent
    d: np.ndarray  # [n, n·m] stationary distribution over the joint strategies


def moves(payoff: np.ndarray) -> Moves:
    """Return rates of the game with payoffs [n, m, n] float64: 1 to what is better for the player
    who moves, `TIE` to its equal.
    """
    n, m, _ = payoff.shape
    nothing = np.zeros((n, m, n), bool)
    return Moves.certain((n, n * m), sides_of(payoff, payoff, nothing))


def equilibrium(payoff: np.ndarray) -> Equilibrium:
    """Return the stationary distribution of the game and the aggregate scores, from payoffs [n, m,
    n] float64.

    Raises:
      JbrlError: the linear system cannot be solved, which no input is known to cause.
    """
    n, m, _ = payoff.shape
    game = moves(payoff)
    d = game.solve_transposed(np.full(game.shape, game.damping / (n * n * m)))
    d /= d.sum()  # one but for rounding
    q = d.sum(axis=0)
    return Equilibrium((payoff.reshape(n, -1) * q).sum(axis=1), d.sum(axis=1), q.reshape(m, n), d)
