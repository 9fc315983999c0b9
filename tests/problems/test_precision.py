"""Limits of float32: discounts that are refused, problems whose values span too much."""

import warnings

import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import distribution
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.problems.precision import PrecisionWarning, check_precision, lost_to_ties
from jbrl.problems.problem import DirichletProblem


def problem_of(name, concentrations, rewards):
    return DirichletProblem(name, name, mdps=distribution(concentrations, rewards))


def with_trap(p, reward):
    """Two states of equal reward, 1 or 2 by action, and a trap entered with probability `p`
    from each.
    """
    concentrations, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    concentrations[:2, :, :2], concentrations[:2, :, 2] = (1 - p) / 2, p
    concentrations[2, :, 2] = 1
    rewards[:2, 0], rewards[:2, 1], rewards[2] = 1, 2, reward
    return problem_of(f"trap-{p:g}-{reward:g}", 1e6 * concentrations, rewards)


@pytest.mark.parametrize("discount", [0.99991, 0.9999999, 0.99999999])
def test_discounts_too_near_1_are_refused(discount):
    expected = rf"discount = {discount}: expected at most 0.9999: closer to 1"
    with pytest.raises(JbrlError, match=expected):
        Protocol(problem("GC"), problem("GC"), discount=discount)


@pytest.mark.parametrize("name", ["GC", "GDL", "Grid", "UGrid"])
@pytest.mark.parametrize("discount", [0.0, 0.95, 0.9999])
def test_the_problems_of_the_paper_are_resolved(name, discount):
    with warnings.catch_warnings(action="error"):
        check_precision(problem(name), discount)


def test_rewards_of_many_sizes_are_resolved_where_they_matter():
    rng = np.random.default_rng(0)
    rewards = rng.random((5, 2, 5)) * 10 ** rng.uniform(-6, 0, (5, 2, 5))
    with warnings.catch_warnings(action="error"):
        check_precision(problem_of("many sizes", np.ones((5, 2, 5)), rewards), 0.95)


def test_a_trap_that_cannot_be_avoided_is_warned_of_when_it_hides_the_other_rewards():
    said = (
        r"problem 'trap-0.001-1e\+09', discount 0.95: values span more than float32 resolves: .* "
        r"about 100%"
    )
    with pytest.warns(PrecisionWarning, match=said):
        Protocol(with_trap(1e-3, 1e9), with_trap(1e-3, 1e9))
    with warnings.catch_warnings(action="error"):
        check_precision(with_trap(1e-3, -10), 0.95)
        check_precision(with_trap(0, 1e9), 0.95)  # never reached


def test_a_way_to_a_greater_reward_hides_the_other_way_near_a_discount_of_1_alone():
    """From state 0 to a choice between 1 and 2, or to 1e6 for ever, with equal chances."""
    concentrations, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    concentrations[0, :, [1, 2]], rewards[2] = 1, 1e6
    concentrations[1, :, 1], rewards[1, 0], rewards[1, 1] = 1, 1, 2
    concentrations[2, :, 2] = 1
    held = problem_of("two ways", concentrations, rewards)
    with warnings.catch_warnings(action="error"):
        check_precision(held, 0.95)
    with pytest.warns(PrecisionWarning, match="discount 0.999: values span more"):
        check_precision(held, 0.999)


def test_by_hand():
    """A trap of reward -1e9 hides that one action pays 1 more: random play among both loses all
    there is to win.
    """
    held = with_trap(1e-3, -1e9).mdps
    transitions = np.asarray(held.concentrations, float)
    transitions /= transitions.sum(-1, keepdims=True)
    expected = (transitions * held.rewards).sum(-1)
    lost, tolerance = lost_to_ties(transitions, expected, held, 0.5)
    np.testing.assert_allclose(lost, 1, rtol=1e-3)
    np.testing.assert_allclose(tolerance, 2e-6 * 2e9, rtol=1e-6)
