"""Numbers that describe a distribution over finite MDPs: what makes one problem unlike another, and
whether float32 distinguishes its actions.

MDPs are drawn by NumPy and solved exactly, in float64, by policy iteration. With S states and A
actions that takes, for each of the draws, some ten linear systems of S unknowns, and for the
diameter S times as many: a second for a Grid.
"""

import dataclasses
import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jbrl.base.errors import JbrlError, JbrlWarning, check_count, check_discount, shown
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.mdp.planning import GREATEST_DISCOUNT, GREATEST_PLAIN_DISCOUNT, SHARE, TIE_TOLERANCE
from jbrl.problems.lookup import problem as find_problem
from jbrl.problems.problem import DirichletProblem, Problem

Numbers = NDArray[np.floating[Any]]  # float64

N_DRAWS = 200
N_DRAWS_OF_DIAMETERS = 20
# With this discount, the discounted number of steps until a state is met is nearly their number.
NEARLY_ONE = 1 - 1e-7
LONGEST = 1e5  # steps; more count as never
MOST_IMPROVEMENTS = 1000
EQUAL = 1e-10  # as of `solve`


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemFeatures:
    """Numbers of a distribution over MDPs; values are discounted and without a horizon.

    Attributes:
      n_states, n_actions: of each MDP.
      n_successors: next states that are possible, on average over states and actions.
      prior_weight: concentrations of a state and action added up, the median: how many transitions
        the prior is worth.
      rare_rewards: share of the possible transitions that pay another reward than the commonest.
      reward_spread: standard deviation of the rewards of the possible transitions, as a share of
        the difference between the greatest and the least.
      diameter: steps from a state to the one that is farthest, on average and by the quickest way,
        in the median MDP; infinite where a state cannot be reached.
      gap: value of the best action less that of the second, on average over states, as a share of
        the difference between the greatest and the least action value.
      random, mean_model, clairvoyant: mean value from the start of acting at random, of the policy
        that is optimal in the mean MDP, and of the optimal policy of each MDP.
      information: what knowing the MDP is worth: share of the way from `random` to `clairvoyant`
        that the mean model leaves open. Above 1 where that policy earns less than `random`, which
        may be chance: `information_error` is the standard error, NaN of one draw.
    """

    n_states: int
    n_actions: int
    n_successors: float
    prior_weight: float
    rare_rewards: float
    reward_spread: float
    diameter: float
    gap: float
    random: float
    mean_model: float
    clairvoyant: float
    information: float
    information_error: float


def problem_features(
    problem: str | Path | Problem, *, discount: float = 0.95, n_draws: int = N_DRAWS
) -> ProblemFeatures:
    """Compute the features of a distribution over MDPs, from draws with a fixed seed.

    Args:
      problem: a name, the path of a JSON file, or a problem.

    Raises:
      JbrlError: an environment that is no distribution over finite MDPs, a discount outside [0, 1),
        or no draw.

    >>> jbrl.problem_features("GC").n_successors
    2.0
    """
    found = problem if isinstance(problem, Problem) else find_problem(str(problem))
    if not isinstance(found, DirichletProblem):
        raise JbrlError(
            f"features of {shown(problem, str)}: expected a distribution over finite MDPs, such as "
            "GC or the path of a JSON file"
        )
    check_discount(discount)
    check_count("n_draws", n_draws)
    mdps = found.mdps
    weights = np.asarray(mdps.concentrations, np.float64)
    rewards = np.asarray(mdps.rewards, np.float64)
    n_states, n_actions, _ = weights.shape
    transitions = draw(weights, n_draws, np.random.default_rng(0))
    paid = (transitions * rewards).sum(-1)
    best = solve(transitions, paid, discount)
    mean = weights / weights.sum(-1, keepdims=True)
    of_mean = solve(mean[None], (mean * rewards).sum(-1)[None], discount).argmax(-1)
    start = int(mdps.initial_state)

    followed = np.broadcast_to(of_mean, (n_draws, n_states))
    policies = (
        evaluate(*_followed(transitions, paid, followed), discount),
        evaluate(transitions.mean(2), paid.mean(2), discount),
        best.max(-1),
    )
    values = [v if start < 0 else v[:, start : start + 1] for v in policies]
    mean_model, random, clairvoyant = (float(v.mean()) for v in values)
    size = max(abs(clairvoyant), abs(random))
    # less where they are equal, by rounding
    information = _share(max(0.0, clairvoyant - mean_model), clairvoyant - random, size)
    of_mean_model, of_random, known = (v.mean(1) for v in values)  # of each draw
    residuals = (known - of_mean_model) - information * (known - of_random)
    error = residuals.std(ddof=1) / np.sqrt(n_draws) if n_draws > 1 else np.nan
    possible = weights > 0
    pay = rewards[possible]
    return ProblemFeatures(
        n_states=n_states,
        n_actions=n_actions,
        n_successors=float(possible.sum(-1).mean()),
        prior_weight=float(np.median(weights.sum(-1))),
        rare_rewards=float(1 - np.unique(pay, return_counts=True)[1].max() / pay.size),
        reward_spread=_share(pay.std(), np.ptp(pay), np.abs(pay).max()),
        diameter=_diameter(transitions[:N_DRAWS_OF_DIAMETERS]),
        gap=_gap(best),
        random=random,
        mean_model=mean_model,
        clairvoyant=clairvoyant,
        information=information,
        information_error=_share(error, clairvoyant - random, size),
    )


def draw(weights: Numbers, n: int, generator: np.random.Generator) -> Numbers:
    """Draw transitions [n, S, A, S] from concentrations [S, A, S]."""
    drawn = generator.standard_gamma(np.broadcast_to(weights, (n, *weights.shape)))
    total = drawn.sum(-1, keepdims=True)
    # where all underflow, one next state has nearly all the probability, by chance in proportion
    with np.errstate(divide="ignore"):
        ranks = np.log(weights) + generator.gumbel(size=drawn.shape)
    alone = np.eye(weights.shape[-1])[ranks.argmax(-1)]
    return np.where(total > 0, drawn / np.where(total > 0, total, 1), alone)


def evaluate(transitions: Numbers, rewards: Numbers, discount: float) -> Numbers:
    """Return the values [n, S] of Markov chains [n, S, S] that pay [n, S]."""
    eye = np.eye(transitions.shape[-1])
    values: Numbers = np.linalg.solve(eye - discount * transitions, rewards[..., None])
    return values[..., 0]


def solve(transitions: Numbers, rewards: Numbers, discount: float, equal: float = EQUAL) -> Numbers:
    """Return the optimal action values [n, S, A] of MDPs [n, S, A, S] that pay [n, S, A], by policy
    iteration.

    Args:
      equal: of the greatest action value: what differs by less is equal.
    """
    policy = rewards.argmax(-1)
    for _ in range(MOST_IMPROVEMENTS):
        values = evaluate(*_followed(transitions, rewards, policy), discount)
        q = rewards + discount * np.einsum("nxuy,ny->nxu", transitions, values)
        now = np.take_along_axis(q, policy[..., None], -1)[..., 0]
        better = q.max(-1) > now + equal * np.abs(q).max(axis=(1, 2))[:, None]
        if not better.any():
            break
        policy = np.where(better, q.argmax(-1), policy)
    return q


def _followed(
    transitions: Numbers, rewards: Numbers, policy: NDArray[np.intp]
) -> tuple[Numbers, Numbers]:
    """Return the Markov chains of policies [n, S], and what these pay."""
    chains = np.take_along_axis(transitions, policy[..., None, None], 2)[:, :, 0]
    return chains, np.take_along_axis(rewards, policy[..., None], 2)[..., 0]


def _diameter(transitions: Numbers) -> float:
    """Return the median of the diameters of MDPs [n, S, A, S].

    To reach a state quickly is to be paid 1 once it is reached, and 0 ever after.
    """
    n_states = transitions.shape[1]
    longest = np.zeros(len(transitions))
    for target in range(n_states):
        before = transitions.copy()
        before[:, target] = 0  # it ends there
        arrives = transitions[..., target] * (np.arange(n_states) != target)[:, None]
        before[..., target] = 0
        value = solve(before, NEARLY_ONE * arrives, NEARLY_ONE).max(-1)
        value[:, target] = 1
        longest = np.maximum(longest, ((1 - value) / (1 - NEARLY_ONE)).max(-1))
    steps = float(np.median(longest))
    return steps if steps < LONGEST else np.inf


def _gap(q: Numbers) -> float:
    """Return the mean gap between the two best actions: 0 where there is one."""
    if q.shape[-1] == 1:
        return 0.0
    ordered = np.sort(q, -1)
    spread = q.max(axis=(1, 2)) - q.min(axis=(1, 2))
    gaps = (ordered[..., -1] - ordered[..., -2]).mean(-1)
    sizes = np.abs(q).max(axis=(1, 2))
    return float(np.mean([_share(*one) for one in zip(gaps, spread, sizes, strict=True)]))


def _share(part: float, whole: float, size: float) -> float:
    """Return a share of what is greater than the rounding of values of that size, else 0."""
    return float(part / whole) if whole > 1e-9 * size else 0.0


TOLERATED = 0.01  # share of the possible gain that ties may cost without a warning
DRAWS = 8  # MDPs looked at beside the mean


class PrecisionWarning(JbrlWarning):
    """The values of a problem span more than float32 resolves."""


def check_precision(problem: DirichletProblem, discount: float) -> None:
    """Warn of a problem whose values span more than float32 resolves.

    Raises:
      JbrlError: the discount is beyond what planners in float32 can do.
    """
    check_planned(discount)
    lost, tolerance = _lost(problem, discount)
    if lost > TOLERATED:
        warnings.warn(
            f"problem '{problem.short_name}', discount {discount:g}: values span more than "
            f"float32 resolves: actions tie whose values differ by less than {tolerance:.2g}, "
            f"which costs an optimal planner about {lost:.0%} of what it gains over random actions",
            PrecisionWarning,
            stacklevel=3,
        )


def check_planned(discount: float) -> None:
    """Refuse a discount that is beyond what planners in float32 can do."""
    if discount > GREATEST_DISCOUNT:
        raise JbrlError(
            f"discount = {discount!r}: expected at most {GREATEST_DISCOUNT}: closer to 1, float32 "
            "has too few digits for the differences between action values"
        )


@functools.lru_cache(maxsize=256)
def _lost(problem: DirichletProblem, discount: float) -> tuple[float, float]:
    """Return what `lost_to_ties` does, the greatest share among the mean MDP and a few draws."""
    return max(lost_to_ties(*mdp, problem.mdps, discount) for mdp in _some(problem.mdps))


def _some(mdps: DirichletMDPs) -> list[tuple[Numbers, Numbers]]:
    """Return the mean MDP and some draws: transitions [S, A, S] and expected rewards [S, A]."""
    counts, rewards = (np.asarray(v, np.float64) for v in (mdps.concentrations, mdps.rewards))
    drawn = draw(counts, DRAWS, np.random.default_rng(0))
    every = [counts / counts.sum(-1, keepdims=True), *drawn]
    return [(p, (p * rewards).sum(-1)) for p in every]


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
    policy = solve(transitions[None], expected[None], discount, equal=1e-12)[0].argmax(1)
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
