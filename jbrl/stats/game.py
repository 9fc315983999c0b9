r"""The evaluation game of algorithms, opponents and environments.

Player p chooses an algorithm i to score well, player q an environment j and an opponent k to make
it score badly; p receives the payoff z[i, j, k]. The long-run choices of both, when each moves now
and then to anything better, weigh environments and opponents: easy environments and redundant
algorithms decide nothing.

**As a process in continuous time.** The paper's transition matrix C has the constant rate eta at
each improving move and eta/50 at each move between equals, so C = 1 + eta·G with a generator G of
rates 1 and 1/50, and the damped stationary distribution solves

    d (κ - G) = κ/|S|,   κ = (1 - γ)/(γ·eta) = (n + B - 2)/(|S| - 1),   γ = (|S| - 1)/|S|,

with B = n·m strategies of q and |S| = n·B joint strategies. Expected rewards w = κ (κ - G)⁻¹ R
solve the transposed system, and their mean is the aggregate score. G is never stored: see
`jbrl.stats.moves`.

Source: Jordan et al. 2020, section 4.2 and appendices C and D; α-Rank: Omidshafiei et al. 2019.
"""

import dataclasses

import numpy as np

from jbrl.stats.moves import Moves
from jbrl.stats.sides import sides_of


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
    return Equilibrium(payoff.reshape(n, -1) @ q, d.sum(axis=1), q.reshape(m, n), d)
