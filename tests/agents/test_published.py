"""Agents that do what the published program does, against twins that do it the long way; scripted
policies and Random.
"""

import dataclasses
import functools
import math
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins import agents as twins
from benchmarks.twins import merged, planner
from jbrl.agents.published import (
    PADDING,
    CoarseEpsilonGreedy,
    FrozenSBOSS,
    TruncatedBEB,
    UnnormalisedSoftMax,
)
from jbrl.agents.scripted import LARGEST, POLICIES, Random, Scripted, View
from jbrl.base.errors import JbrlError
from jbrl.environments import bsuite_tasks
from jbrl.environments.bsuite_cartpole import BsuiteCartPole, BsuiteCartPoleSwingup
from jbrl.environments.images import ImageBandit
from jbrl.environments.spec import Episodes
from jbrl.environments.walks import Chain
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.play.play import play
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import as_arrays, check_requirements
from tests.reference.trajectories import (
    KEY,
    decisions,
    disagreements,
    prior_of,
    transition,
    word_disagreements,
)

LOWEST = 0.0  # a uniform number that chooses the first of the actions that tie


class SBOSSTwin(merged.SBOSS):
    """Row by row as the program: K may be 0, 0/0 exceeds nothing, half of the saved rows
    are lost.
    """

    def solve(self, words):
        counts, rewards, known = self.counts, self.rewards, super().samples()
        self.counts, self.rewards = counts.copy(), rewards.copy()
        for x, u in np.argwhere(self.variances(counts).max(-1) == 0):
            self.counts[x, u], self.rewards[x, u] = np.arange(len(counts)) == x, -(2.0**31)
        assert (known[self.variances(counts).max(-1) == 0] == 1).all()
        super().solve(words)
        self.counts, self.rewards, self.last = counts, rewards, counts.copy()
        self.updated = None

    def observe(self, x, u, y):
        super().observe(x, u, y)
        undefined = (self.variances(self.last[x, u]) == 0).any()
        moved = merged.movement(self.last[x, u], self.counts[x, u]) > Decimal(str(self.delta))
        lost = x * self.counts.shape[1] + u >= self.counts.shape[0] * self.counts.shape[1] // 2
        self.due |= not undefined and (moved or (lost and self.delta <= 1))

    def act(self, x, words, uniform):
        action = super().act(x, words, LOWEST)
        self.due = False
        return action

    due = False

    def outdated(self):
        return self.due


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("told", "test", "epsilon", "delta", "solutions"),
    [
        ("GC", "GC", 0.0513, 0.1, (3, 3)),
        pytest.param("GDL", "GDL", 0.0513, 0.1, (3, 3), marks=pytest.mark.slow),
        ("UGC", "GC", 0.0213, 0.513, (20, 90)),
        ("UGC", "GC", 0.0213, 2.13, (4, 40)),
    ],
)
def test_sboss_learns_nothing_where_rows_have_zeros_and_forgets_half_of_what_it_saves(
    told, test, epsilon, delta, solutions
):
    twin = functools.partial(SBOSSTwin, epsilon=epsilon, delta=delta)
    wrong, solved = word_disagreements(FrozenSBOSS(epsilon, delta), twin, told, test)
    assert wrong == []
    assert solutions[0] <= solved <= solutions[1]


def test_sboss_dreads_states_without_uncertainty():
    mdps = problem("GDL").mdps
    agent = as_arrays(FrozenSBOSS())
    acted = jax.jit(lambda key: agent.act(key, agent.reset(key, prior_of("GDL")), jnp.int32(0))[1])
    state = acted(KEY)
    values = np.asarray(state.q).max(-1) + np.asarray(state.level)
    certain = (np.asarray(mdps.concentrations) > 0).sum(-1).max(-1) == 1
    np.testing.assert_allclose(values[certain], PADDING / 0.05, rtol=1e-3)
    assert (
        certain.sum() == 5
        and (values[~certain] > 1.001 * PADDING / 0.05).all()
        and (values < 0).all()
    )


@pytest.mark.slow
def test_soft_max_plays_action_0_at_every_temperature():
    for tau in (0.05, 25.0):
        for _, steps in decisions(UnnormalisedSoftMax(tau), "GC", n_environments=8, horizon=30):
            assert all(u == 0 for _, u, *_ in steps)


def test_soft_max_compares_unnormalised_weights():
    # One state, actions that cost 0.1 and 0.2 for ever: weights exp(-2 / tau) and exp(-2.1 / tau),
    # the values of playing on with the first.
    rewards = jnp.array([[[-0.1], [-0.2]]])
    told = DirichletPrior(
        DirichletMDPs(jnp.ones((1, 2, 1)), rewards, jnp.int32(0)), jnp.float32(0.95), 10
    )
    agent = as_arrays(UnnormalisedSoftMax(2.0))
    state = jax.jit(lambda told: agent.reset(KEY, agent.train(KEY, told)))(told)
    keys = jax.random.split(jax.random.key(1), 200)
    actions = jax.jit(jax.vmap(lambda key: agent.act(key, state, jnp.int32(0))[0]))(keys)
    uniforms = (np.asarray(jax.random.key_data(keys))[:, 0] >> 8) / 2**24
    np.testing.assert_array_equal(actions, uniforms > np.exp(-1.0))
    assert 0 < int(actions.sum()) < 200


class BEBTwin(planner.BEB):
    def act(self, x, uniforms):
        return super().act(x, [LOWEST])


@pytest.mark.slow
@pytest.mark.parametrize("beta", [2.5, 0.5])
def test_beb_plays_the_integer_part_of_beta_and_the_first_of_tied_actions(beta):
    for _, steps in decisions(TruncatedBEB(beta), "UGC", "GC", n_environments=8, horizon=30):
        assert disagreements(steps, BEBTwin(problem("UGC").mdps, int(beta))) == []


class CoarseTwin(planner.EpsilonGreedy):
    def solve(self):
        transitions = self.counts / self.counts.sum(-1, keepdims=True)
        self.q, _, _ = planner.value_iteration(
            transitions, (transitions * self.rewards).sum(-1), twins.DISCOUNT, 0.01
        )


def test_e_greedy_stops_after_251_sweeps():
    """At a discount of 0.9999 values still change by more than 0.01 then: they are far from
    the optimum.
    """
    told = DirichletPrior(prior_of("GC").mdps, jnp.float32(0.9999), 10)
    q = jax.jit(as_arrays(CoarseEpsilonGreedy()).train)(KEY, told).q
    transitions = np.asarray(told.mdps.concentrations, float)
    transitions /= transitions.sum(-1, keepdims=True)
    rewards, expected = (transitions * told.mdps.rewards).sum(-1), np.zeros(q.shape)
    for _ in range(251):
        expected = planner.sweep(transitions, rewards, expected, 0.9999)
    np.testing.assert_allclose(q, expected, rtol=1e-5)


@pytest.mark.slow
def test_e_greedy_solves_to_a_hundredth():
    wrong = 0
    for _, steps in decisions(CoarseEpsilonGreedy(0.3), "GC", n_environments=8, horizon=30):
        wrong += len(disagreements(steps, CoarseTwin(problem("GC").mdps, 0.3)))
    assert wrong == 0
    agent, mdps = as_arrays(CoarseEpsilonGreedy()), problem("GC").mdps
    coarse = np.asarray(jax.jit(agent.train)(KEY, prior_of("GC")).q)
    exact = twins.optimal_values(
        np.asarray(mdps.concentrations) / mdps.concentrations.sum(-1, keepdims=True),
        np.asarray(mdps.rewards),
    )
    assert (
        (exact - coarse > 0).all()
        and (exact - coarse < 0.19).all()
        and (exact - coarse).max() > 0.1
    )


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("delta", "renewed"),
    [(0.5, [False] * 7 + [True] * 8), (1.0, [False] * 7 + [True] * 8), (2.0, [False] * 15)],
)
def test_sboss_samples_anew_after_a_transition_of_the_lost_half_whatever_it_has_moved(
    delta, renewed
):
    """15 pairs, of which the copy keeps 7.

    The rows count so much that no transition moves one of them by half a standard deviation.
    """
    mdps = DirichletMDPs(jnp.full((5, 3, 5), 1000.0), jnp.zeros((5, 3, 5)), jnp.int32(0))
    agent = as_arrays(FrozenSBOSS(epsilon=0.5, delta=delta))
    begun = agent.reset(KEY, DirichletPrior(mdps, jnp.float32(0.95), 10))
    state = dataclasses.replace(begun, due=jnp.bool_(False))
    observe = jax.jit(agent.observe)
    due = [bool(observe(KEY, state, transition(pair // 3, pair % 3, 4)).due) for pair in range(15)]
    assert due == renewed


# Problem, episodes, least mean return of every lifetime. The umbrella, below, is always tested.
KNOWN = [
    ("bsuite/bandit/5", 30, 1.0),
    ("bsuite/mnist/0", 30, 1.0),
    ("bsuite/catch/0", 30, 1.0),
    ("bsuite/deep_sea/0", 30, 0.99),
    ("bsuite/discounting_chain/3", 3, 1.1),
    ("bsuite/memory_len/4", 30, 1.0),
    ("bsuite/memory_size/6", 30, 1.0),
    ("bsuite/mountain_car/0", 3, -130.0),
    ("bsuite/cartpole/0", 2, 1001.0),
    ("bsuite/cartpole_swingup/10", 2, 820.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "episodes", "least"), KNOWN)
def test_returns_are_those_that_are_known(name, episodes, least):
    played = play(Scripted(), test=name, n_environments=4, episodes=episodes)
    assert (played.returns >= least - 1e-5).all()
    if least in (1.0, 1.1, 0.99, 1001.0):  # the best possible
        np.testing.assert_allclose(played.returns, least, rtol=1e-5)


def test_the_umbrella_is_always_right():
    """Rewards before the last are noise, so regret says more than the return."""
    played = play(Scripted(), test="bsuite/umbrella_length/4", n_environments=4, episodes=30)
    assert np.nanmax(played.metrics["log_total_regret"]) == 0


@pytest.mark.slow
def test_noise_and_scale_do_not_disturb_it():
    played = play(Scripted(), test="bsuite/catch_noise/19", n_environments=2, episodes=30)
    assert np.nanmax(played.metrics["log_total_regret"]) == 0


def test_a_pole_that_hangs_is_pushed_by_its_movement_unless_it_rests():
    """To the left where it moves to the left with too little energy, anywhere where it rests; from
    far to the right back to the middle.
    """
    poles = [(0, 0, 0.0, 2), (0, 0, 0.06, 2), (0, 0, 1.0, 2), (0, 0, -1.0, 0)]
    for x, x_dot, speed, action in (*poles, (2, 0.5, 1.0, 0), (2, 0, 1.0, 2), (1, 1, 1.0, 2)):
        seen = jnp.array([x / 3, x_dot / 3, 0, -1, speed, 0, 0, 0], jnp.float32)
        found = POLICIES[BsuiteCartPoleSwingup](View(BsuiteCartPoleSwingup(), seen, seen))
        assert found == action, (x, x_dot, speed)


def test_rules_by_hand():
    """Catch: a ball in column 3. DeepSea: right, as the map of the cell says. Memory: the bit that
    is asked for. The pole upright: towards the side it falls to, after position and speeds.
    """

    def action(environment, seen, memory=0.0):
        seen = jnp.asarray(seen, jnp.float32)
        return int(POLICIES[type(environment)](View(environment, seen, jnp.asarray(memory))))

    catch = bsuite_tasks.Catch()
    for paddle, expected in ((1, 2), (3, 1), (4, 0)):
        board = np.zeros((catch.rows, catch.columns))
        board[2, 3] = board[-1, paddle] = 1
        assert action(catch, board) == expected
    sea = bsuite_tasks.DeepSea(size=3)
    cells = [View(sea, jnp.int32(cell), jnp.int32(0)) for cell in (-1, *range(9))]
    expected = np.ravel(sea.mapping)[[0, *range(9)]]
    assert [int(POLICIES[type(sea)](cell)) for cell in cells] == expected.tolist()
    chain = bsuite_tasks.MemoryChain(num_bits=3)
    for asked, bit in ((0, 1), (1, 0), (2, 1)):
        assert action(chain, [0, asked, 0, 0, 0], [1, 0, 1, -1, 1]) == bit
    pixels = 20 * np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    images = ImageBandit(pixels=pixels, labels=np.array([4, 7, 2], np.int8))
    shown = [images._shown(jnp.asarray(images.pixels))[k] + 0.01 for k in range(3)]
    assert [action(images, one) for one in shown] == [4, 7, 2]
    pole = BsuiteCartPole()
    for x, x_dot, theta, theta_dot, expected in (
        (0, 0, 0, 0, 1),
        (0, 0, 0.02, 0, 2),
        (0, 0, -0.02, 0, 0),
        (0, 0, 0.02, -0.05, 1),
        (0, 0.3, 0, -0.1, 2),
        (2, 0, -0.05, 0, 2),
    ):
        scaled = [x / pole.x_threshold, x_dot / pole.x_threshold]
        seen = [*scaled, math.sin(theta), math.cos(theta), theta_dot, 0]
        assert action(pole, seen) == expected


def test_random_needs_nothing_but_actions():
    agent, prior = Random(), problem("Catch").prior(Episodes(3), 1.0)
    check_requirements(agent, "Random", prior, "Catch")
    state, observation = agent.reset(KEY, agent.train(KEY, prior)), jnp.zeros((10, 5))
    keys = jax.random.split(KEY, 100)
    actions = jax.jit(jax.vmap(lambda key: agent.act(key, state, observation)[0]))(keys)
    assert actions.dtype == jnp.int32 and set(np.asarray(actions).tolist()) == {0, 1, 2}


def test_other_environments_are_refused():
    with pytest.raises(JbrlError, match="Scripted has no policy for Chain: expected Bandit, "):
        Scripted().reveal(None, Chain())
    many = ImageBandit(
        pixels=np.zeros((LARGEST, 1, 2), np.uint8), labels=np.zeros(LARGEST, np.uint8)
    )
    with pytest.raises(JbrlError, match="for example by a smaller fraction"):
        Scripted().reveal(None, many)
    with pytest.raises(JbrlError, match="needs an environment of this package"):
        play(Scripted(), test="GC")
