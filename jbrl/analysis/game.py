r"""The evaluation game: which algorithm, compared with which, on which environment?

Player p chooses an algorithm i to score well, player q an environment j and an opponent k to make it score badly; p receives the payoff
z[i, j, k]. What both play in the long run, when each moves now and then to anything better, weighs environments and opponents: easy
environments and redundant algorithms decide nothing.

**As a process in continuous time.** The paper's transition matrix C has the constant rate eta at each improving move and eta/50 at each
move between equals, so C = 1 + eta·G with a generator G of rates 1 and 1/50, and the damped stationary distribution solves

    d (κ - G) = κ/|S|,   κ = (1 - γ)/(γ·eta) = (n + B - 2)/(|S| - 1),   γ = (|S| - 1)/|S|,

with B = n·m strategies of q and |S| = n·B joint strategies. Expected rewards w = κ (κ - G)⁻¹ R solve the transposed system, and their
mean is the aggregate score. G has only (n - 1) + (B - 1) entries a row, kept as one block per strategy of the other player.

Source: Jordan et al. 2020, section 4.2 and appendices C and D; α-Rank: Omidshafiei et al. 2019.
"""

import dataclasses
from functools import cached_property

import numpy as np
from scipy.sparse.linalg import LinearOperator, bicgstab

TIE = 1 / 50  # rate of a move between equals: one over the size of α-Rank's population
EQUAL = float(np.sqrt(np.finfo(np.float64).eps))  # relative difference up to which payoffs are equal
RESTARTS, ITERATIONS = 8, 300  # of the iterative solver, which needs some 15 iterations for 1,815 joint strategies
ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a residual, relative to the terms it is the difference of
ACCURACY = 1e-12  # of a solution, relative to the largest it may be


@dataclasses.dataclass(frozen=True)
class Equilibrium:
    """What the point estimate of the game says."""

    scores: np.ndarray  # [n] aggregate score of each algorithm
    p: np.ndarray  # [n] how often player p chooses each algorithm
    q: np.ndarray  # [m, n] how often player q chooses each environment and opponent
    d: np.ndarray  # [n, n·m] stationary distribution over the joint strategies


@dataclasses.dataclass(frozen=True)
class Moves:
    """Rates of the moves of both players from every joint strategy (i, b), b = (j, k)."""

    p: np.ndarray  # [B, n, n]: with q playing b, from i to i'; zero diagonal
    q: np.ndarray  # [n, B, B]: with p playing i, from b to b'; zero diagonal

    @property
    def shape(self) -> tuple[int, int]:
        """(n, B)."""
        return self.p.shape[1], self.p.shape[0]

    @cached_property
    def damping(self) -> float:
        """κ."""
        n, B = self.shape
        return (n + B - 2) / (n * B - 1)

    @cached_property
    def diagonal(self) -> np.ndarray:
        """κ + the rate of leaving, [n, B]."""
        return self.damping + self.p.sum(axis=2).T + self.q.sum(axis=2)

    def solve(self, right: np.ndarray, guess: np.ndarray | None = None, accuracy: float = ACCURACY) -> np.ndarray:
        """Solve (κ - G) w = right for w, both [n, B]; started from `guess`. The largest error is that of the residual, divided by κ."""
        return self._solve(right, guess, self.p, self.q, np.inf, accuracy)

    def solve_transposed(self, right: np.ndarray) -> np.ndarray:
        """Solve d (κ - G) = right for d, both [n, B]. The sum of its errors is at most that of the residual, divided by κ."""
        return self._solve(right, None, self.p.transpose(0, 2, 1), self.q.transpose(0, 2, 1), 1, ACCURACY)

    def _solve(
        self, right: np.ndarray, guess: np.ndarray | None, p: np.ndarray, q: np.ndarray, order: float, accuracy: float
    ) -> np.ndarray:
        """BiCGSTAB, scaled by the diagonal, until the residual is small in the norm of that order; elimination if it never is."""
        shape, size = self.shape, right.size

        def apply(x: np.ndarray) -> np.ndarray:
            w = x.reshape(shape)
            return (self.diagonal * w - np.matmul(p, w.T[:, :, None])[:, :, 0].T - np.matmul(q, w[:, :, None])[:, :, 0]).ravel()

        operator = LinearOperator((size, size), apply, dtype=np.float64)
        scale = LinearOperator((size, size), lambda r: r / self.diagonal.ravel(), dtype=np.float64)
        b = right.ravel()
        target = accuracy * float(np.linalg.norm(b, order))
        x = np.zeros(size) if guess is None else guess.ravel()
        for _ in range(RESTARTS):
            x, _ = bicgstab(operator, b, x0=x, rtol=0, atol=target / (np.sqrt(size) if order == 1 else 1), maxiter=ITERATIONS, M=scale)
            reached = ROUNDING * float(np.linalg.norm(self.diagonal.ravel() * x, order))
            if float(np.linalg.norm(b - apply(x), order)) <= max(target, reached):
                return x.reshape(shape)
        return np.linalg.solve(self._matrix(p, q), b).reshape(shape)

    def _matrix(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """κ - G in full, [n·B, n·B]."""
        n, B = self.shape
        full = np.zeros((n, B, n, B))
        for b in range(B):
            full[:, b, :, b] -= p[b]
        for i in range(n):
            full[i, :, i, :] -= q[i]
        matrix = full.reshape(n * B, n * B)
        matrix[np.arange(n * B), np.arange(n * B)] += self.diagonal.ravel()
        return matrix


def nearly_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether payoffs are equal up to rounding."""
    return np.abs(a - b) <= EQUAL * np.maximum(np.abs(a), np.abs(b))


def moves(payoff: np.ndarray) -> Moves:
    """Rates of the game with payoffs [n, m, n]: 1 to what is better for the player who moves, `TIE` to its equal."""
    u = payoff.reshape(len(payoff), -1)
    return Moves(_rates(u.T), _rates(-u))


def _rates(value: np.ndarray) -> np.ndarray:
    """[strategies of the other player, strategies] to rates […, from, to]."""
    here, there = value[:, :, None], value[:, None, :]
    rate = np.where(nearly_equal(here, there), TIE, (there > here).astype(np.float64))
    own = np.arange(value.shape[1])
    rate[:, own, own] = 0
    return rate


def equilibrium(payoff: np.ndarray) -> Equilibrium:
    """Stationary distribution of the game and the aggregate scores, from payoffs [n, m, n] float64."""
    n, m, _ = payoff.shape
    game = moves(payoff)
    d = game.solve_transposed(np.full(game.shape, game.damping / (n * n * m)))
    d /= d.sum()  # one but for rounding
    q = d.sum(axis=0)
    return Equilibrium(payoff.reshape(n, -1) @ q, d.sum(axis=1), q.reshape(m, n), d)
