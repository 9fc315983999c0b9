"""Precision of planners in float32: limits of the discount, and of values that differ too much."""

import functools
import warnings

import numpy as np

from jbrl.base.errors import JbrlError, JbrlWarning
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.mdp.planning import GREATEST_DISCOUNT, GREATEST_PLAIN_DISCOUNT, SHARE, TIE_TOLERANCE
from jbrl.problems.problem import DirichletProblem

TOLERATED = 0.01  # share of the possible gain that ties may cost without a warning
DRAWS = 8  # MDPs looked at beside the mean
MAX_IMPROVEMENTS = 1000


class PrecisionWarning(JbrlWarning):
    """The values of a problem span more than float32 resolves."""


def check_precision(problem: DirichletProblem, discount: float) -> None:
    """Warn of a problem whose values span more than float32 resolves.

    Raises:
      JbrlError: the discount is beyond what planners in float32 can do.
    """
    if discount > GREATEST_DISCOUNT:
        raise JbrlError(
            f"discount = {discount!r}: expected at most {GREATEST_DISCOUNT}: closer to 1, float32 "
            "has too few digits for the differences between action values"
        )
    lost, tolerance = _lost(problem, discount)
    if lost > TOLERATED:
        warnings.warn(
            f"problem '{problem.short_name}', discount {discount:g}: values span more than "
            f"float32 resolves: actions tie whose values differ by less than {tolerance:.2g}, "
            f"which costs an optimal planner about {lost:.0%} of what it gains over random actions",
            PrecisionWarning,
            stacklevel=3,
        )


@functools.lru_cache(maxsize=256)
def _lost(problem: DirichletProblem, discount: float) -> tuple[float, float]:
    """Return what `lost_to_ties` does, the greatest share among the mean MDP and a few draws."""
    return max(lost_to_ties(*mdp, problem.mdps, discount) for mdp in _some(problem.mdps))


def _some(mdps: DirichletMDPs) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the mean MDP and some draws: transitions [S, A, S] and expected rewards [S, A],
    float64.
    """
    counts, rewards = (np.asarray(v, np.float64) for v in (mdps.concentrations, mdps.rewards))
    drawn = np.random.default_rng(0).standard_gamma(counts, (DRAWS, *counts.shape))
    weights = [counts, *np.where(drawn.sum(-1, keepdims=True) > 0, drawn, counts)]
    transitions = [w / w.sum(-1, keepdims=True) for w in weights]
    return [(p, (p * rewards).sum(-1)) for p in transitions]


def lost_to_ties(
    transitions: np.ndarray, expected: np.ndarray, mdps: DirichletMDPs, discount: float
) -> tuple[float, float]:
    """Return the loss of an optimal planner to ties in float32, and the tie tolerance where it
    starts.

    The first is a share: the loss of playing uniformly among the actions that tie, divided by the
    distance of the optimum from uniformly random actions.

    Args:
      transitions: [S, A, S] float64.
      expected: [S, A] float64, rewards.
      mdps: says where trajectories start.
    """
    n_states, n_actions = expected.shape
    policy = _optimal_policy(transitions, expected, discount)
    chosen = np.eye(n_actions)[policy]
    values, visits = _evaluated(transitions, expected, discount, chosen)
    first = int(mdps.initial_state)
    start = np.full(n_states, 1 / n_states) if first < 0 else np.eye(n_states)[first]
    occupancy = start @ visits
    most = values[occupancy >= (1 - 1e-6) * occupancy.max()].max()
    level = most if discount > GREATEST_PLAIN_DISCOUNT else 0.0
    sizes, visited = abs(values - level), (1 - discount) * visits > SHARE
    sizes = np.maximum(sizes, np.where(visited, sizes, 0).max(1)) + (1 - discount) * abs(level)
    tolerance = TIE_TOLERANCE * sizes
    q = expected + discount * transitions @ values
    ties = q >= q.max(1, keepdims=True) - tolerance[:, None]
    tied, _ = _evaluated(transitions, expected, discount, ties / ties.sum(1, keepdims=True))
    random, _ = _evaluated(transitions, expected, discount, np.full(q.shape, 1 / n_actions))
    to_win, loss = (float(start @ (values - v)) for v in (random, tied))
    exact = 1e-12 * float(start @ abs(values))
    return (loss / to_win if to_win > exact and loss > exact else 0.0), float(start @ tolerance)


def _evaluated(
    transitions: np.ndarray, expected: np.ndarray, discount: float, policy: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return values [S] of a stochastic policy [S, A], and its discounted visits [S, S]."""
    followed = np.einsum("xu,xuy->xy", policy, transitions)
    visits = np.linalg.inv(np.eye(len(expected)) - discount * followed)
    return visits @ (policy * expected).sum(1), visits


def _optimal_policy(transitions: np.ndarray, expected: np.ndarray, discount: float) -> np.ndarray:
    """Find an optimal policy [S] by policy iteration in float64."""
    policy, states = expected.argmax(1), np.arange(len(expected))
    for _ in range(MAX_IMPROVEMENTS):
        system = np.eye(len(states)) - discount * transitions[states, policy]
        values = np.linalg.solve(system, expected[states, policy])
        q = expected + discount * transitions @ values
        better = q.max(1) > q[states, policy] + 1e-12 * abs(q).max(1)
        if not better.any():
            break
        policy = np.where(better, q.argmax(1), policy)
    return policy
