r"""Performance bound propagation: intervals of the aggregate scores from intervals of the payoffs.

Payoffs that are only known to lie in intervals leave some moves of the game open: the rate of a
move from s to s' is known to be 1 when the whole interval of s' is better, 0 when it is worse, and
may be anything from 0 to 1 otherwise. The aggregate score is the mean expected reward of that
process, so its largest (smallest) value is that of a Markov decision process in which each state
decides its open moves: it takes those, and only those, that lead to where more (less) is to be
expected. Policy iteration finds it. An expected reward w whose optimality equation κ w = κ R +
Σ rates (w' - w) + Σ open max(0, w' - w) leaves a residual of at most ε is wrong by ε/κ at most;
where that is more than `NEGLIGIBLE`, the ends are moved out by it, so that they hold all the same.

Source: Jordan et al. 2020, section 4.3 and appendix D (algorithms 1 to 3). Two defects of the
published program are corrected, and kept under `published=True`: it averages |v| where v is meant,
which moves lower ends up when some Z- < 0 (its PBP-t misses always at 10 samples for that reason),
and it fixes moves between wide intervals that happen to coincide, though their order is unknown.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jbrl.stats.evaluation.game import Moves
from jbrl.stats.evaluation.samples import workers
from jbrl.stats.evaluation.strategies import Side, sides_of

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
    return ends[0], ends[1]


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
