r"""Performance bound propagation: bands for the distribution functions of single cells, intervals
of payoffs from these, and of aggregate scores from those.

All that is claimed at once, a band for each of the n·m cells, holds together with probability 1 -
delta: each has the level delta' = delta / (n·m). On the support of an environment (and the two
bounds) everything is a matrix product.

Payoffs that are only known to lie in intervals leave some moves of the game open: the rate of a
move from s to s' is known to be 1 when the whole interval of s' is better, 0 when it is worse, and
may be anything from 0 to 1 otherwise. The aggregate score is the mean expected reward of that
process, so its largest (smallest) value is that of a Markov decision process in which each state
decides its open moves: it takes those, and only those, that lead to where more (less) is to be
expected. Policy iteration finds it. An expected reward w whose optimality equation κ w = κ R +
Σ rates (w' - w) + Σ open max(0, w' - w) leaves a residual of at most ε is wrong by ε/κ at most;
where that is more than `NEGLIGIBLE`, the ends are moved out by it, so that they hold all the same.

Source: Jordan et al. 2020, section 4.3 and appendices D (algorithms 1 to 3) and G; Massart 1990 for
the band, Anderson 1969 for the mean. Two defects of the published program are corrected, and kept
under `published=True`: it averages |v| where v is meant, which moves lower ends up when some
Z- < 0 (its PBP-t misses always at 10 samples for that reason), and it fixes moves between wide
intervals that happen to coincide, though their order is unknown.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from jbrl.base.errors import JbrlError, check_choice
from jbrl.stats.evaluation.game import Moves, Side, sides_of
from jbrl.stats.evaluation.samples import Samples, frequencies, product, workers

Quantile = Literal["code", "paper"]


def check_delta(delta: float) -> float:
    """Refuse a value that is no failure probability.

    Raises:
      JbrlError: delta is not in (0, 0.5].
    """
    if not (isinstance(delta, int | float) and 0 < delta <= 0.5):
        raise JbrlError(f"delta = {delta!r}: expected a number above 0 up to 0.5")
    return float(delta)


def half_widths(samples: Samples, delta: float) -> np.ndarray:
    """Return the half-width of the Dvoretzky-Kiefer-Wolfowitz band of each cell, sqrt(ln(2/delta')
    / (2T)): [n, m] float64.
    """
    n, m = samples.shape
    logarithm = float(Decimal(2 * n * m / check_delta(delta)).ln())  # NumPy's differs by processor
    return np.sqrt(logarithm / (2 * samples.totals))


def cdf_band(
    samples: Samples, environment: int, delta: float, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points of an environment [V] (its support and bounds), lower and upper band [n, V] of
    all distribution functions at them.

    Both are 1 from the upper bound on, and jump at the points only.
    """
    low, high = samples.bounds[environment]
    points = np.union1d(samples.supports[environment], (low, high))
    place = np.searchsorted(samples.supports[environment], points, side="right")
    cdf = np.pad(samples.cdf(environment), ((0, 0), (1, 0)))[:, place]
    width = scale * half_widths(samples, delta)[:, environment, None]
    lower, upper = np.maximum(0, cdf - width), np.minimum(1, cdf + width)
    lower[:, -1] = upper[:, -1] = 1
    return points, lower, upper


def payoff_bounds(
    samples: Samples, delta: float, *, scale: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals [Z-, Z+] of the payoffs, each [n, m, n] float64, that hold together with
    probability 1 - delta.

    A score distribution within its band is worst when its upper band is its distribution function;
    the opponent's is then its lower band. That gives Z-, and the reverse Z+. Cells of `same` are
    1/2 without width.

    Args:
      scale: factor of the half widths of the bands, for the effect of more samples.
    """
    n, m = samples.shape
    low, high = np.empty((n, m, n)), np.empty((n, m, n))
    for j in range(m):
        _, lower, upper = cdf_band(samples, j, delta, scale)
        low[:, j] = product(np.diff(upper, prepend=0), lower)
        high[:, j] = product(np.diff(lower, prepend=0), upper)
    low[samples.same] = high[samples.same] = 0.5
    return low, high


def payoff_t_intervals(
    samples: Samples, delta: float, quantile: Quantile = "code"
) -> tuple[np.ndarray, np.ndarray]:
    """Return Student intervals of the payoffs, each [n, m, n] float64: a heuristic that ignores the
    opponent's sampling error.

    Mean over the samples x of F_k(x), plus and minus t·s/√T with T - 1 degrees of freedom. Ends may
    lie outside [0, 1].

    Args:
      quantile: "code" takes t at 1 - delta'/2, as the published program and its tables; "paper" at
        1 - delta', as appendix G.

    Raises:
      JbrlError: a cell has one sample only, or `quantile` is neither.
    """
    check_choice("quantile", quantile, ("code", "paper"))
    check_two(samples, "pbp-t")
    n, m = samples.shape
    level = check_delta(delta) / (n * m)
    t = stats.t.ppf(1 - level / (2 if quantile == "code" else 1), samples.totals - 1)
    t = t.round(10)  # last bits differ by processor
    middle, width = np.empty((n, m, n)), np.empty((n, m, n))
    for j in range(m):
        cdf, weights = samples.cdf(j), frequencies(samples, j)
        middle[:, j] = product(weights, cdf)
        for i in range(n):
            total = samples.totals[i, j]
            squares = weights[i] * (cdf - middle[i, j][:, None]) ** 2
            variance = squares.sum(axis=1) * total / (total - 1)
            width[i, j] = t[i, j] * np.sqrt(variance / total)
    middle[samples.same], width[samples.same] = 0.5, 0
    return middle - width, middle + width


def mean_table(samples: Samples, delta: float) -> pd.DataFrame:
    """Return the mean score of each cell with its interval (Anderson 1969), all intervals together
    at level 1 - delta.

    Returns:
      Columns environment, algorithm, n (int64), mean, lower, upper (float64); environments, then
      algorithms, in the samples' order.
    """
    rows = []
    for j, environment in enumerate(samples.environments):
        points, lower, upper = cdf_band(samples, j, delta)
        mean = (frequencies(samples, j) * samples.supports[j]).sum(axis=1)
        low, high = ((np.diff(band, prepend=0) * points).sum(axis=1) for band in (upper, lower))
        columns: dict[str, Any] = {"environment": environment, "algorithm": samples.algorithms}
        columns |= {"n": samples.totals[:, j], "mean": mean, "lower": low, "upper": high}
        rows.append(pd.DataFrame(columns))
    return pd.concat(rows, ignore_index=True)


def check_two(samples: Samples, method: str) -> None:
    """Refuse a cell with one sample, which says nothing of its spread.

    Raises:
      JbrlError: names the cell.
    """
    single = np.argwhere(samples.totals < 2)
    if single.size:
        i, j = single[0]
        raise JbrlError(
            f"{method}: algorithm '{samples.algorithms[i]}' has one sample on environment "
            f"'{samples.environments[j]}': expected at least two, or the method pbp"
        )


ROUNDS = 60  # of policy iteration, which needs some 10
RESIDUAL_LEFT = 0.02  # what a round leaves of the residual: later policies need no more precision
COARSE_ERROR = (
    5e-4  # error, of the range of rewards, from which on policies are distinguished poorly
)
NEGLIGIBLE = 1e-9  # error up to which ends stay where they are
ERRORS = {2_000: 1e-11, 50_000: NEGLIGIBLE}  # error asked for, by the number of joint strategies
ERROR_OF_LARGE_GAMES = 1e-5  # and in larger games
CHAIN = 8  # algorithms that are bounded one after the other, each from the one before
LEAST_PARALLEL = 2_000  # joint strategies; smaller games are done before threads are started


def propagate(
    low: np.ndarray,
    high: np.ndarray,
    same: np.ndarray,
    *,
    published: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper ends of the aggregate scores, [n] float64, from payoff intervals [n,
    m, n].

    If all payoffs lie in their intervals, all scores lie in theirs.

    Args:
      same: [n, m, n] bool, which algorithms are the same definition on an environment; moves
        between these are ties where their intervals coincide.
      published: as the published program computes them (see above).
      progress: called with how many ends are done and how many there are.
    """
    n, m, _ = low.shape
    shape, sides = (n, n * m), sides_of(low, high, same, published=published)
    for side in sides:  # made once, before threads share them
        _ = side.worse, side.better, side.by_group
    chains = [(end, range(a, min(a + CHAIN, n))) for end in (0, 1) for a in range(0, n, CHAIN)]
    ends, done = np.empty((2, n)), 0

    def follow(chain: tuple[int, range]) -> None:
        nonlocal done
        which, algorithms = chain
        guess = None
        for i in algorithms:
            reward = high[i].ravel() if which else -low[i].ravel()
            guess, error = largest(shape, sides, reward, guess)
            end = guess.mean() + (error if error > NEGLIGIBLE else 0.0)
            ends[which, i] = end if which else np.abs(guess).mean() if published else -end
            done += 1
            if progress:
                progress(done, 2 * n)

    if n * n * m < LEAST_PARALLEL:
        for chain in chains:
            follow(chain)
    else:
        with ThreadPoolExecutor(min(len(chains), workers(n, m))) as pool:
            list(pool.map(follow, chains))
    return np.minimum(*ends), np.maximum(*ends)  # ends that coincide may cross by rounding


def largest(
    shape: tuple[int, int],
    sides: tuple[Side, Side],
    reward: np.ndarray,
    guess: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Return expected rewards w [n, B] of the best choice of the open moves, and a bound of their
    error.

    Args:
      reward: [B] float64, what q's strategies are worth.
      guess: expected rewards of a similar problem, to start from.
    """
    right = np.broadcast_to(reward, shape)
    w = np.array(right if guess is None else guess)
    enough = next((error for size, error in ERRORS.items() if w.size <= size), ERROR_OF_LARGE_GAMES)
    best, least, scale = w, np.inf, float(np.ptp(reward)) or 1.0
    for _ in range(ROUNDS):
        game = Moves.greedy(shape, sides, w)
        residual = float(np.abs(game.damping * right.ravel() - game.apply(w.ravel())).max())
        error = residual / game.damping
        stuck = least <= NEGLIGIBLE and error > least / 2  # by rounding
        if error < least:
            best, least = w, error
        if stuck or error <= enough:
            break
        target = max(min(RESIDUAL_LEFT * error, COARSE_ERROR * scale), 0.1 * enough) * game.damping
        w = game.improved(w, game.damping * right, target)
        w = np.clip(w, reward.min(), reward.max())  # they are means of rewards
    return best, least
