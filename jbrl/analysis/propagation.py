r"""Performance bound propagation: intervals of the aggregate scores that follow from intervals of the payoffs.

Payoffs that are only known to lie in intervals leave some moves of the game open: the rate of a move from s to s' is known to be 1 when
the whole interval of s' is better, 0 when it is worse, and may be anything from 0 to 1 otherwise. The aggregate score is the mean
expected reward of that process, so its largest (smallest) value is that of a Markov decision process in which each state decides its open
moves: it takes those, and only those, that lead to where more (less) is to be expected. Policy iteration finds it exactly.

Source: Jordan et al. 2020, section 4.3 and appendix D (algorithms 1 to 3). Two defects of the published program are mended, and kept under
`published=True`: it averages |v| where v is meant, which moves lower ends up when some Z- < 0 (its PBP-t misses always at 10 samples for
that reason), and it fixes moves between wide intervals that happen to coincide, though their order is unknown.
"""

import dataclasses

import numpy as np

from jbrl.analysis.game import ACCURACY, TIE, Moves, nearly_equal
from jbrl.errors import JbrlError

ROUNDS = 400
ROUGH = 1e-3  # accuracy of the first round, and of the others relative to the change before: policies do not need more to be told apart
SETTLED = 1e-11  # change of all expected rewards from which on policies differ by rounding only
CERTAIN = 1e-9  # largest error accepted


@dataclasses.dataclass(frozen=True)
class IntervalMoves:
    """Rates that are certain, and moves whose rate is open between 0 and 1, from every joint strategy (i, b)."""

    p: np.ndarray  # [B, n, n] float64, certain rates
    q: np.ndarray  # [n, B, B]
    open_p: np.ndarray  # [B, n, n] bool
    open_q: np.ndarray  # [n, B, B] bool


def interval_moves(low: np.ndarray, high: np.ndarray, same: np.ndarray, *, published: bool = False) -> IntervalMoves:
    """What payoff intervals [n, m, n] say about the moves of both players.

    Args:
      same: [n, m, n] bool, which algorithms are the same definition on an environment; moves between these are ties.
      published: call coinciding intervals ties whatever their width.
    """
    n, m, _ = low.shape
    below, above = low.reshape(n, -1), high.reshape(n, -1)
    j, k = np.divmod(np.arange(m * n), n)  # strategies of q
    own = np.eye(n, dtype=bool)
    alike = same | own[:, None, :]
    equals_p = alike[:, j, :].transpose(1, 0, 2)  # i and i' on the environment of b
    equals_q = (j[:, None] == j) & alike[k[:, None], j[:, None], k]
    p, open_p = _classify(below.T, above.T, equals_p, published)
    q, open_q = _classify(-above, -below, equals_q, published)
    return IntervalMoves(p, q, open_p, open_q)


def _classify(low: np.ndarray, high: np.ndarray, equals: np.ndarray, published: bool) -> tuple[np.ndarray, np.ndarray]:
    """Certain rates and open moves among strategies (last axis), for each strategy of the other player (first axis)."""
    here, there = np.s_[:, :, None], np.s_[:, None, :]
    coincide = nearly_equal(low[here], low[there]) & nearly_equal(high[here], high[there])
    exact = nearly_equal(low, high)
    tie = coincide if published else coincide & (equals | (exact[here] & exact[there]))
    better, worse = low[there] > high[here], low[here] > high[there]
    rate = np.where(tie, TIE, (better & ~tie).astype(np.float64))
    free = ~(tie | better | worse)
    own = np.arange(low.shape[1])
    rate[:, own, own], free[:, own, own] = 0, False
    return rate, free


def propagate(low: np.ndarray, high: np.ndarray, same: np.ndarray, *, published: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the aggregate scores, [n] float64 each, from payoff intervals [n, m, n].

    If all payoffs lie in their intervals, all scores lie in theirs.

    Args:
      same: see `interval_moves`.
      published: as the published program computes them (see above).

    Raises:
      JbrlError: policy iteration has not settled, which no input is known to cause.
    """
    known = interval_moves(low, high, same, published=published)
    n = len(low)
    lower, upper = np.empty(n), np.empty(n)
    guess = None
    for i in range(n):
        w = guess = largest(known, high[i].ravel(), guess)
        upper[i] = w.mean()
    guess = None
    for i in range(n):
        w = guess = largest(known, -low[i].ravel(), guess)
        lower[i] = np.abs(w).mean() if published else -w.mean()
    return lower, upper


def largest(known: IntervalMoves, reward: np.ndarray, guess: np.ndarray | None = None) -> np.ndarray:
    """Expected rewards w [n, B] of the best choice of the open moves, q's strategies being worth `reward` [B].

    Policy iteration. The optimality equation κ w = κ R + Σ rates (w' - w) + Σ open max(0, w' - w) is checked at the end: its largest
    residual, divided by κ, bounds the error.

    Args:
      guess: expected rewards of a similar problem, to start from.
    """
    n, B = known.p.shape[1], known.p.shape[0]
    R = np.broadcast_to(reward, (n, B))
    w = np.array(R if guess is None else guess)
    accuracy = ROUGH
    for _ in range(ROUNDS):
        before = w
        game = Moves(
            known.p + (known.open_p & (w.T[:, None, :] > w.T[:, :, None])),
            known.q + (known.open_q & (w[:, None, :] > w[:, :, None])),
        )
        w = game.solve(game.damping * R, w, accuracy)
        change = np.abs(w - before).max()
        if change <= SETTLED and accuracy <= SETTLED:
            break
        accuracy = min(ROUGH, max(ACCURACY, ROUGH * change))
    error = _error(known, R, w, game.damping)
    if not error <= CERTAIN:
        raise JbrlError(
            f"bound propagation: {ROUNDS} rounds of policy iteration left an error of {error:.2g}: expected {CERTAIN:g} or less"
        )
    return w


def _error(known: IntervalMoves, R: np.ndarray, w: np.ndarray, damping: float) -> float:
    """Bound on the error of w."""
    gain_p, gain_q = w.T[:, None, :] - w.T[:, :, None], w[:, None, :] - w[:, :, None]
    flow = (known.p * gain_p + known.open_p * np.maximum(gain_p, 0)).sum(axis=2).T
    flow += (known.q * gain_q + known.open_q * np.maximum(gain_q, 0)).sum(axis=2)
    return float(np.abs(damping * (R - w) + flow).max() / damping)
