"""The record, the register, what is unsound, and what float32 cannot hold."""

import dataclasses
import re
import warnings

import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Episodes, Steps
from jbrl.mdp.dirichlet import distribution
from jbrl.play.protocol import Protocol
from jbrl.problems.features import PrecisionWarning, check_precision, lost_to_ties
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import PROBLEMS, DirichletProblem, register_problem

# Distributions over finite MDPs; tests/conformance/test_environments.py is about the others.
FAMILIES = [name for name in PROBLEMS if isinstance(problem(name), DirichletProblem)]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_problem_is_described(name):
    found = problem(name)
    assert found.short_name == name
    assert found.description == PROBLEMS[name].summary
    assert found.cite
    assert found.mdps.concentrations.dtype == found.mdps.rewards.dtype == np.float32
    assert found.mdps.initial_state.dtype == np.int32
    assert not found.mdps.concentrations.flags.writeable


def test_digest_tells_distributions_apart_and_nothing_else():
    digests = {name: problem(name).digest for name in PROBLEMS}
    # the defaults of both are the same distribution
    assert digests.pop("BernoulliBandit") == digests["Bandit"]
    assert len(set(digests.values())) == len(digests)
    gc = problem("GC")
    assert dataclasses.replace(gc, name="other", description="", cite="").digest == gc.digest
    for field in ("concentrations", "rewards", "initial_state"):
        changed = getattr(gc.mdps, field).copy()
        changed.flat[-1] += 1
        assert (
            dataclasses.replace(gc, mdps=dataclasses.replace(gc.mdps, **{field: changed})).digest
            != gc.digest
        )
    negative_zero = dataclasses.replace(
        gc.mdps, rewards=np.where(gc.mdps.rewards == 0, -0.0, gc.mdps.rewards)
    )
    assert dataclasses.replace(gc, mdps=negative_zero).digest == gc.digest


def ones(*shape):
    return np.ones(shape)


ONES, NO_NEXT = ones(2, 1, 2), [[[1, 1]], [[0, 0]]]
UNSOUND = [
    (ones(2, 1), ONES, 0, "concentrations has shape (2, 1): expected (S, A, S)"),
    (ones(2, 1, 3), ones(2, 1, 3), 0, "concentrations has shape (2, 1, 3): expected (S, A, S)"),
    (ones(2, 0, 2), ones(2, 0, 2), 0, "concentrations has shape (2, 0, 2)"),
    (ONES, ones(2, 2, 2), 0, "rewards has shape (2, 2, 2): expected (2, 1, 2)"),
    ([[[1, -2]], [[1, 1]]], ONES, 0, "concentrations[0][0][1] = -2: expected 0 or a positive num"),
    ([[[1, 1]], [[np.nan, 1]]], ONES, 0, "concentrations[1][0][0] = nan"),
    ([[[1, 1]], [[1, np.inf]]], ONES, 0, "concentrations[1][0][1] = inf"),
    ([[[1, 1]], [[1, 1e-40]]], ONES, 0, "concentrations[1][0][1] = 1e-40"),
    (NO_NEXT, ONES, 0, "concentrations[1][0] is all zeros: expected at least one possible next st"),
    (ONES, [[[0, 0]], [[0, np.nan]]], 0, "rewards[1][0][1] = nan: expected a finite number"),
    (ONES, ONES, 2, "initial_state = 2: expected a state from 0 to 1, or -1"),
    (ONES, ONES, -2, "initial_state = -2"),
]


@pytest.mark.parametrize(
    ("concentrations", "rewards", "initial_state", "message"), UNSOUND, ids=range(len(UNSOUND))
)
def test_unsound_distributions_are_refused(concentrations, rewards, initial_state, message):
    with np.errstate(over="ignore", under="ignore"):
        mdps = distribution(concentrations, rewards, initial_state)
        if "1e-40" in message:
            mdps = dataclasses.replace(mdps, concentrations=np.array(concentrations))
    with pytest.raises(JbrlError, match=f"problem 'mine': {re.escape(message)}"):
        DirichletProblem("Mine", "mine", mdps)


def test_words_are_no_numbers():
    mdps = dataclasses.replace(problem("GC").mdps, rewards=np.full((5, 3, 5), "ten"))
    with pytest.raises(JbrlError, match="rewards holds <U3: expected numbers"):
        DirichletProblem("Mine", "mine", mdps)


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="two problems are called GC"):
        register_problem("GC", title="again")(lambda: None)


def test_a_distribution_over_mdps_is_lived_in_by_steps():
    gc = problem("GC")
    assert (gc.lifetime, gc.recorder) == (Steps(250), None)
    prior = gc.prior(Steps(40), 0.5)
    assert isinstance(prior, DirichletPrior)
    assert (prior.lifetime, float(prior.discount), prior.spec) == (Steps(40), 0.5, gc.spec)
    with pytest.raises(
        JbrlError, match=r"^episodes = 3: the MDPs of 'GC' never end: expected horizon$"
    ):
        gc.prior(Episodes(3), 0.5)


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
