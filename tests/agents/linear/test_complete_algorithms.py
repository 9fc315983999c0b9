"""The complete algorithms with linear functions: twins in NumPy fed the same random words, numbers
by hand, what they draw, and what they refuse.
"""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.agents import complete as distributions
from jbrl.agents import selection
from jbrl.agents.complete import log_uniform, uniform
from jbrl.agents.deep.sequence import TERMINATED, TRUNCATED
from jbrl.agents.linear import actor_critic, features, linear_ppo
from jbrl.agents.linear.complete import PARL2_START, integer, parl2_bounded
from jbrl.agents.linear.features import Fourier, Orders, Table
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.rollout.contract import Transition
from jbrl.study.file import load_study
from tests.agents.linear import complete
from tests.agents.linear.complete import BOX, LANES, N_ACTIONS, TABLE
from tests.agents.linear.test_tabular import SARSA_BY_HAND, transition

# Jordan et al. 2020, table 4, with the ranges of their program: hyperparameter: (distribution, low,
# high), and for arrays of numbers what a step size is divided by: nothing, the number of features
# (1), or that times the number of actions.
EVERYWHERE = {"gamma": ("gap", 1e-4, 0.05), "lambda": ("uniform", 0, 1)}
ORDERS = {"dependent": ("integer", 0, 9), "independent": ("integer", 1, 9)}
EPSILON = {"epsilon": ("uniform", 0, 0.1)}
OF_PPO = {
    "clip": ("uniform", 0.1, 0.3),
    "entropy": ("log", 1e-8, 1e-2),
    "epochs": ("integer", 1, 10),
}
PLAIN, SCALED = (1e-6, 1e-3, None), (1e-3, 1, 1)
PER_ACTION = (1e-3, 1, N_ACTIONS)
PUBLISHED = {
    "Sarsa-lambda": (EPSILON, {"alpha": PLAIN}),
    "Sarsa-lambda-s": (EPSILON, {"alpha": SCALED}),
    "Sarsa-Parl2": (EPSILON, {}),
    "Q-lambda": (EPSILON, {"alpha": PLAIN}),
    "Q-lambda-s": (EPSILON, {"alpha": SCALED}),
    "Q-Parl2": (EPSILON, {}),
    "AC": ({}, {"alpha_v": PLAIN, "alpha_p": PLAIN}),
    "AC-s": ({}, {"alpha_v": SCALED, "alpha_p": PER_ACTION}),
    "AC-Parl2": ({}, {"alpha_p": PER_ACTION}),
    "NAC-TD": ({}, {"alpha_v": PLAIN, "alpha_p": PLAIN, "alpha_w": PLAIN}),
    "PPO-linear": (OF_PPO, {"alpha": PLAIN}),
}
NAMES = tuple(PUBLISHED)
DIFFERENT = ("Sarsa-Parl2", "AC", "PPO-linear")  # one of each kind
LARGER = {"fourier_alpha_low": 1e-3, "fourier_alpha_high": 1e-2, "epsilon_high": 0.5}


def drawn_of(states, lane):
    return {name: float(v[lane, 0]) for name, v in states.progress.drawn.items()}


def compare(found, expected, drawn, tolerance):
    for value, right in zip(found, expected, strict=True):
        scale = max(1.0, np.abs(right).max())
        ordered = complete.in_order(right, drawn, value.shape[1])
        np.testing.assert_allclose(value / scale, ordered / scale, rtol=0, atol=tolerance)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("name", "spec"),
    [
        slow("Sarsa-lambda", TABLE),
        slow("Sarsa-lambda", BOX),
        ("Sarsa-Parl2", BOX),
        slow("Sarsa-Parl2", TABLE),
        slow("Sarsa-lambda-s", BOX),
        slow("Q-lambda", BOX),
        slow("Q-lambda-s", BOX),
        ("Q-Parl2", TABLE),
        slow("Q-Parl2", BOX),
    ],
)
def test_action_values_are_those_of_the_twin(name, spec):
    cls = AGENTS[name].agent
    agent = cls(epsilon_high=0.5) if cls.adapts else cls(**LARGER)
    actions, states = complete.play(agent, spec)
    for lane in range(LANES):
        drawn = drawn_of(states, lane)
        twin = complete.ActionValueTwin(drawn, spec).play(lane, cls.greedy_target, cls.adapts)
        for t, (u, weights, trace, alpha) in enumerate(twin):
            assert actions[lane, t] == u
            compare((states.values.weights[lane, t],), (weights,), drawn, 2e-4)
            compare((states.values.trace[lane, t],), (trace,), drawn, 2e-4)
            np.testing.assert_allclose(states.values.alpha[lane, t], alpha, rtol=1e-3)
        assert states.progress.skipped[lane, -1] == states.progress.undefined[lane, -1] == 0


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("name", "spec"),
    [
        slow("AC", BOX),
        slow("AC", TABLE),
        slow("AC-s", BOX),
        ("AC-Parl2", TABLE),
        slow("AC-Parl2", BOX),
        ("NAC-TD", BOX),
        slow("NAC-TD", TABLE),
    ],
)
def test_actor_critics_are_those_of_the_twin(name, spec):
    cls, natural = AGENTS[name].agent, name == "NAC-TD"
    ranges = {"actor_fourier_alpha_low": 0.01, "actor_fourier_alpha_high": 0.1}
    agent = cls(**ranges)
    actions, states = complete.play(agent, spec)
    for lane in range(LANES):
        drawn = drawn_of(states, lane)
        surprise = 0.01 if cls.adapts else 0.0
        twin = complete.ActorCriticTwin(drawn, spec).play(lane, cls.adapts, natural, surprise)
        for t, (u, value, policy, advantage) in enumerate(twin):
            assert actions[lane, t] == u
            found = [states.critic.weights[lane, t], states.actor.weights[lane, t]]
            found += [states.advantage[lane, t]] if natural else []
            compare(found, [value, policy, advantage][: len(found)], drawn, 2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Sarsa-lambda", "Sarsa-Parl2", "NAC-TD", "PPO-linear"])
def test_in_chunks_they_are_those_of_the_twin_too(name, monkeypatch):
    monkeypatch.setattr(features, "CHUNK", 32)
    cls = AGENTS[name].agent
    agent = cls(learning_episodes=complete.EPISODES)  # compiled anew
    actions, states = complete.play(agent, BOX)
    for lane in range(LANES):
        drawn = drawn_of(states, lane)
        if name == "PPO-linear":
            twin = complete.PPOTwin(drawn, BOX).play(lane, 1)
            weights = states.learner.weights
        elif name == "NAC-TD":
            of_policy = complete.ActorCriticTwin(drawn, BOX).play(lane, False, True, 0.0)
            twin, weights = ((u, policy) for u, _, policy, _ in of_policy), states.actor.weights
        else:
            values = complete.ActionValueTwin(drawn, BOX).play(lane, False, cls.adapts)
            twin, weights = ((u, w) for u, w, _, _ in values), states.values.weights
        assert weights.shape[-1] == 128
        # beyond its lifetime a lane passes over no chunks, and decides anything
        decided = 1 + np.argmax(states.progress.episodes[lane] == complete.EPISODES)
        assert 150 < decided < complete.STEPS
        for t, (u, right) in enumerate(itertools.islice(twin, int(decided))):
            assert actions[lane, t] == u
            compare((weights[lane, t],), (right,), drawn, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "exact"), [(TABLE, False), (BOX, True), (BOX, False), (TABLE, True)]
)
def test_ppo_is_that_of_the_twin(spec, exact):
    agent = linear_ppo.LinearPPO(
        exact_entropy=exact,
        entropy_low=0.01,
        entropy_high=0.1,
        fourier_alpha_low=1e-3,
        fourier_alpha_high=1e-2,
    )
    actions, states = complete.play(agent, spec)
    learned = 0
    for lane in range(LANES):
        drawn = drawn_of(states, lane)
        twin = complete.PPOTwin(drawn, spec)
        for t, (u, weights) in enumerate(twin.play(lane, -1 if exact else 1)):
            assert actions[lane, t] == u
            compare((states.learner.weights[lane, t],), (weights,), drawn, 1e-3)
        assert states.learner.step[lane, -1] == twin.t
        learned += twin.t
    assert learned > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Sarsa-lambda", "PPO-linear", "NAC-TD"])
def test_nothing_is_learned_after_the_episodes_that_are_asked_for(name):
    agent = AGENTS[name].agent(learning_episodes=10)
    _, states = complete.play(agent, TABLE)
    of = {"Sarsa-lambda": "values", "NAC-TD": "actor", "PPO-linear": "learner"}
    weights = getattr(states, of[name]).weights
    for lane in range(LANES):
        last = np.searchsorted(states.progress.episodes[lane], 10)
        assert (weights[lane, last:] == weights[lane, last]).all()
        # PPO has learned from its first buffers, or not yet
        assert name == "PPO-linear" or (weights[lane, last] != weights[lane, last - 1]).any()


@pytest.mark.parametrize("name", [name if name in DIFFERENT else slow(name) for name in NAMES])
def test_observations_of_any_shape_are_traced(name):
    """Without compiling: the state after a step has the shapes of the state before it."""
    seen = jnp.zeros((2, 3), jnp.float32)
    prior = complete.prior(Spec(Box((2, 3), 0.0, 1.0), Discrete(N_ACTIONS)))
    agent = AGENTS[name].agent(dependent_high=0)

    def step(key):
        state = agent.reset(key, prior)
        action, then = agent.act(key, state, seen)
        over = jnp.bool_(False)
        return state, agent.observe(
            key, then, Transition(seen, action, jnp.float32(0), seen, over, over)
        )

    before, after = jax.eval_shape(step, jax.random.key(0))
    assert [(v.shape, v.dtype) for v in jax.tree.leaves(before)] == [
        (v.shape, v.dtype) for v in jax.tree.leaves(after)
    ]


@pytest.mark.slow
def test_boards_are_played():
    agent = AGENTS["AC"].agent(dependent_high=0)
    played = jbrl.play(agent, test="Catch(rows=4,columns=3)", n_environments=2, episodes=3)
    assert list(played.metrics["episodes"]) == [3, 3]
    assert (played.metrics["drawn_features"] == 1 + 12 * played.metrics["drawn_independent"]).all()


def test_a_refusal_names_the_algorithm_once():
    study = {
        "study": {"name": "large"},
        "experiments": [{"name": "e", "problem": "Pinball-empty"}],
        "agents": [{"algorithm": "AC", "dependent_high": 40}],
    }
    with pytest.raises(JbrlError, match=r"^study: \[\[agents\]\] AC in experiment 'e': dependent_"):
        load_study(study)


# Steps of Parl2, Adam, the softmax policy and the entropy by hand.


def test_parl2_by_hand():
    """min(1, 1/2) = 1/2; never raised; a change that is not negative keeps it."""
    alpha = jnp.float32(PARL2_START)
    for change, expected in [(0.5, 1), (-0.5, 1), (-2.0, 0.5), (-1.0, 0.5), (0.0, 0.5), (-4, 0.25)]:
        alpha = parl2_bounded(alpha, jnp.float32(change))
        assert alpha == expected


@pytest.mark.parametrize(("length", "batch"), [(97, 16), (64, 40)])
def test_ppo_learns_from_each_step_once_in_a_pass(monkeypatch, length, batch):
    """Whatever is left for the last minibatch."""
    place = jnp.arange(linear_ppo.STEPS, dtype=jnp.int32)
    zeros = jnp.zeros(linear_ppo.STEPS)
    sample = linear_ppo.Sample(zeros, place, zeros, zeros, zeros)
    monkeypatch.setattr(linear_ppo, "judged", lambda *_: sample)
    monkeypatch.setattr(
        linear_ppo,
        "ascended",
        lambda _, learner, part, counts, rules: dataclasses.replace(
            learner,
            weights=learner.weights.at[part.actions].add(counts.astype(jnp.float32)),
            step=learner.step + 1,
        ),
    )
    learner = linear_ppo.Learner(zeros, zeros, zeros, jnp.int32(0), jnp.int32(0))
    drawn = {"epochs": jnp.float32(3), "batch": jnp.float32(batch)}
    rules = linear_ppo.Rules(drawn, None, jnp.float32(1), jax.random.key_data(jax.random.key(0)))
    buffer = dataclasses.replace(
        linear_ppo.Rollout.empty(Discrete(2), linear_ppo.STEPS), length=jnp.int32(length)
    )
    after = jax.jit(lambda *given: linear_ppo.learned(None, *given, rules))(learner, buffer)
    np.testing.assert_array_equal(after.weights, np.where(place < length, 3, 0))
    assert after.step == 3 * -(-length // batch)


def test_ppo_tells_minibatches_that_it_passed_over_and_empties_full_buffers(monkeypatch):
    """Buffers of two steps; after the last episode nothing is kept. Actions are drawn by the first
    word of a key, here evenly.
    """
    monkeypatch.setattr(
        linear_ppo,
        "learned",
        lambda _, learner, buffer, rules: dataclasses.replace(
            learner, step=rules.sign.astype(jnp.int32), skipped=learner.skipped + 3
        ),
    )
    agent, prior = AGENTS["PPO-linear"].agent(), complete.prior()
    shapes = jax.eval_shape(agent.reset, jax.random.key(0), prior)
    state = jax.tree.map(lambda v: np.zeros(v.shape, v.dtype), shapes)
    drawn = state.progress.drawn | {"steps": np.float32(2)}
    last = dataclasses.replace(
        state.progress, drawn=drawn, episodes=np.int32(complete.EPISODES - 1)
    )
    state = dataclasses.replace(state, progress=last)
    observe, zero, found = jax.jit(agent.observe), jnp.int32(0), []
    for ended in (False, False, True, False):
        state = observe(jax.random.key(0), state, transition(0, 0, 0, 0, ended, False))
        found.append((int(state.buffer.length), int(agent.metrics(state)["skipped_updates"])))
    assert found == [(1, 0), (0, 3), (1, 3), (0, 3)]
    assert state.learner.step == 1  # the published sign of the entropy
    keys = jax.random.split(jax.random.key(1), 32)
    actions = jax.jit(jax.vmap(lambda key: agent.act(key, state, zero)[0]))(keys)
    uniforms = np.asarray(jax.random.key_data(keys))[:, 0] / 2**32
    np.testing.assert_array_equal(actions, np.floor(N_ACTIONS * uniforms))


def test_ppo_passes_over_a_minibatch_with_nan_and_counts_it():
    """The last of three transitions is NaN: it is in the minibatch or beyond its end. Then the mean
    gradient is (1/2, -1/2, 2), and the first step of Adam as long as its step size.
    """
    zeros, none = jnp.zeros((3, 2)), jnp.int32(0)
    learner = linear_ppo.Learner(zeros, zeros, zeros, none, none)
    indices, logs = jnp.zeros(3, jnp.int32), jnp.full(3, jnp.log(0.5))
    targets = jnp.array([1, 3, jnp.nan])
    part = linear_ppo.Sample(indices[:, None], indices, logs, jnp.ones(3), targets)
    drawn = {"alpha": jnp.float32(0.1), "clip": jnp.float32(0.3), "entropy": jnp.float32(0)}
    orders = Orders(none, none, jnp.bool_(True))
    rules = linear_ppo.Rules(drawn, orders, jnp.float32(1), None)
    ascended = jax.jit(functools.partial(linear_ppo.ascended, Table(2)))
    for within in (False, True):
        after = ascended(learner, part, jnp.array([True, True, within]), rules)
        assert (int(after.step), int(after.skipped)) == (1 - within, within)
        moved = (1 - within) * np.array([[0.1, 0], [-0.1, 0], [0.1, 0]])
        np.testing.assert_allclose(after.weights, moved, rtol=1e-3)
        first = (1 - within) * np.array([[0.05, 0], [-0.05, 0], [0.2, 0]])
        np.testing.assert_allclose(after.first, first, rtol=1e-5)


@pytest.mark.parametrize(
    ("end", "advantages"), [(0, [4.5, 5]), (TERMINATED, [0, 5]), (TRUNCATED, [4, 5])]
)
def test_advantages_of_ppo_by_hand(end, advantages):
    """From state 0 to 1, where an episode may end; from 2 to 1. Values 1, 8, 2: gamma 1/2, lambda
    1/5. An episode that goes on is in 1 before its second step. Action 0 has probability 3/4 in 0.
    """
    table, one = Table(3), jnp.float32(1)
    weights = np.float32([[np.log(3), 0, 0], [0, 0, 0], [1, 8, 2]])
    learner = linear_ppo.Learner(weights, weights, weights, jnp.int32(0), jnp.int32(0))
    buffer = linear_ppo.Rollout.empty(Discrete(3), linear_ppo.STEPS)
    drawn = {"gamma": jnp.float32(0.5), "lambda": jnp.float32(0.2)}
    orders = Orders(jnp.int32(0), jnp.int32(0), jnp.bool_(True))
    rules = linear_ppo.Rules(drawn, orders, one, None)
    steps = ((0, 1, 1.0, end), (2 if end else 1, 0, 3.0 if end else 9.0, 0))
    for x, u, r, ended in steps:
        buffer = buffer.append(transition(x, u, r, 1, ended == TERMINATED, ended == TRUNCATED))
    found = jax.jit(functools.partial(linear_ppo.judged, table))(learner, buffer, rules)
    np.testing.assert_allclose(found.advantages[:2], advantages)
    np.testing.assert_allclose(found.targets[:2], advantages + weights[2, [0, steps[1][0]]])
    np.testing.assert_allclose(found.logs[:2], np.log([1 / 4, 1 / 2]), rtol=1e-6)


def test_gains_of_ppo_by_hand():
    """Two actions of probability 1/2, the value 1; ratios beyond 1 ± 0.3 that gain more than these
    would count for nothing.
    """
    zeros, logs = np.zeros(4, np.int32), np.log(0.5 / np.float32([2, 2, 0.5, 0.5]))
    targets = np.arange(4, dtype=np.float32)
    part = linear_ppo.Sample(zeros, zeros, logs, np.float32([1, -1, 1, -1]), targets)
    drawn = {"clip": jnp.float32(0.3), "entropy": jnp.float32(0.1)}
    rules = linear_ppo.Rules(drawn, None, jnp.float32(1), None)
    found = jax.jit(linear_ppo.direction)(np.float32([[0, 0, 1]] * 4), part, rules)
    gains, more = np.array([0, -2, 0.5, 0]), 0.1 * np.log(2)  # by the entropy as published
    right = np.stack([gains / 2 + more, -gains / 2 + more, targets - 1], axis=1)
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_adam_by_hand():
    """First step: both corrections cancel: alpha g / (|g| + 1e-5 / sqrt(0.001)); second, with
    g = 2 after 1, from first = 0.29, second = 0.004999.
    """
    arrays = tuple(np.zeros(1, np.float32) for _ in range(3))

    @jax.jit
    def ascended(arrays, step, gradient, exists):
        rate = linear_ppo.adam_rate(jnp.float32(0.1), step)
        return linear_ppo.adam_ascended(arrays, gradient, rate, exists)

    for step, gradient in ((1, 1.0), (2, 2.0)):
        arrays = ascended(arrays, np.int32(step), np.full(1, gradient, np.float32), True)
        if step == 1:
            np.testing.assert_allclose(arrays[0], 0.1 / (1 + 1e-5 / 0.001**0.5), rtol=1e-4)
    np.testing.assert_allclose(arrays[1], 0.29, rtol=1e-5)
    np.testing.assert_allclose(arrays[2], 0.004999, rtol=1e-4)
    second = 0.1 * (1 - 0.999**2) ** 0.5 / 0.19 * 0.29 / (0.004999**0.5 + 1e-5)
    np.testing.assert_allclose(arrays[0], 0.1 / (1 + 1e-5 / 0.001**0.5) + second, rtol=1e-4)
    kept = ascended(arrays, np.int32(2), np.full(1, np.nan, np.float32), False)
    assert all((k == a).all() for k, a in zip(kept, arrays, strict=True))


def test_traces_by_hand():
    """Sarsa(lambda) on two states: gamma lambda = 0.45, alpha 1/2, greedy; NaN is counted."""
    fixed = {"gamma_gap": 0.1, "lambda": 0.5, "alpha": 0.5}
    ends = {f"{name}_{end}": v for name, v in fixed.items() for end in ("low", "high")}
    agent = AGENTS["Sarsa-lambda"].agent(epsilon_high=0.0, **ends)
    state = jax.jit(agent.reset)(jax.random.key(0), complete.prior())
    act, observe = jax.jit(agent.act), jax.jit(agent.observe)
    for x, r, y, terminated, truncated, weights, trace in SARSA_BY_HAND:
        u, state = act(jax.random.key(1), state, jnp.int32(x))
        assert u == 0
        seen = transition(x, u, r, y, terminated, truncated)
        state = observe(jax.random.key(2), state, seen)
        np.testing.assert_allclose(state.values.weights[0, :2], weights, rtol=1e-6)
        np.testing.assert_allclose(state.values.trace[0, :2], trace, rtol=1e-6)
    assert agent.metrics(state)["skipped_updates"] == 1


@pytest.mark.parametrize(
    "features", [Table(2), Fourier((0.0,), (1.0,), 1, 1)], ids=["table", "box"]
)
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e18, 1e20, 2.0**100])
def test_the_length_of_a_unit_step_by_hand(features, size):
    weights = np.zeros((1, features.capacity), np.float32)
    weights[0, :2] = np.array([3, -4], np.float32) * np.float32(size)
    orders = Orders(jnp.int32(1), jnp.int32(1), jnp.bool_(True))
    step = jax.jit(lambda *given: actor_critic.unit_step(features, *given))
    factor, exists = step(weights, orders, jnp.float32(0.5))
    assert exists
    # (3, -4) / 5 times 0.5
    np.testing.assert_allclose(factor * weights[0, :2], [0.3, -0.4], rtol=1e-6)


@pytest.mark.parametrize("entry, expected", [(0.0, False), (np.nan, False), (1.0, True)])
def test_there_is_no_unit_step_along_nothing(entry, expected):
    weights = np.full((1, 2), entry, np.float32)
    orders = Orders(jnp.int32(0), jnp.int32(0), jnp.bool_(True))
    step = jax.jit(lambda *given: actor_critic.unit_step(Table(2), *given))
    assert bool(step(weights, orders, 0.5)[1]) == expected


def test_preferences_are_limited():
    now = selection.softmax(jnp.float32([100.0, 32.0, -50.0]))
    np.testing.assert_allclose(now.probabilities, [0.5, 0.5, 0], atol=1e-7)
    assert selection.softmax_draw(now, jnp.float32(0.49)) == 0
    assert selection.softmax_draw(now, jnp.float32(0.51)) == 1
    undefined = selection.softmax(jnp.float32([np.nan, 0, 0]))
    assert selection.softmax_draw(undefined, jnp.float32(0.9)) == 0


def test_the_gradient_of_the_entropy_is_right_where_it_is_asked_for():
    preferences = jnp.float32([0.3, -1.0, 0.8])

    def entropy(preferences):
        now = selection.softmax(preferences)
        return -(now.probabilities * now.logs).sum()

    sloped = jax.jit(lambda p, sign: linear_ppo.entropy_gradient(selection.softmax(p), sign))
    exact = sloped(preferences, jnp.float32(-1))
    np.testing.assert_allclose(exact, jax.jit(jax.grad(entropy))(preferences), atol=1e-6)
    p = np.exp(preferences) / np.exp(preferences).sum()
    published = sloped(preferences, jnp.float32(1))  # the other sign of the second term
    np.testing.assert_allclose(published, -p * np.log(p) - p * (p * np.log(p)).sum(), rtol=1e-5)


# Draws.

N = 4000


@functools.cache
def drawn_by(name, spec):
    """Hyperparameters of N lifetimes, [N] each."""
    agent, prior = AGENTS[name].agent(), complete.prior(spec)
    keys = jax.random.split(jax.random.key(1), N)
    drawn = jax.jit(jax.vmap(lambda key: agent.reset(key, prior).progress.drawn))(keys)
    return {name: np.asarray(v, np.float64) for name, v in drawn.items()}


def check_uniform(values, low, high):
    """Against the uniform distribution, by Kolmogorov and Smirnov. False-alarm rate 1e-6."""
    assert low - 1e-6 * abs(low) <= values.min() and values.max() <= high + 1e-6 * abs(high)
    ordered = (np.sort(values) - low) / (high - low)
    distance = np.abs(ordered - (np.arange(N) + 0.5) / N).max() + 0.5 / N
    assert distance < np.sqrt(np.log(2 / 1e-6) / (2 * N))


def test_hyperparameters_are_independent_and_sizes_whole():
    drawn = hyperparameters("PPO-linear", TABLE)
    assert drawn["batch"].min() == 16 and drawn["batch"].max() == 64
    assert (drawn["batch"] == np.round(drawn["batch"])).all()
    assert "dependent" not in drawn and (drawn["features"] == 5).all()
    plain = hyperparameters("NAC-TD", BOX)
    dependent, independent = plain["dependent"], plain["independent"]
    sizes = (dependent + 1) ** 2 + 2 * np.maximum(0, independent - dependent)
    np.testing.assert_array_equal(plain["features"], sizes)
    table = np.corrcoef([np.log(plain[f"alpha_{x}"]) for x in "vpw"])
    assert np.abs(table - np.eye(3)).max() < 5 / N**0.5


def hyperparameters(name, spec):
    return dict(drawn_by(name, spec))


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        *((name, BOX) for name in NAMES),
        *((name, TABLE) if name in DIFFERENT else slow(name, TABLE) for name in NAMES),
    ],
)
def test_every_hyperparameter_has_its_published_distribution(name, spec):
    drawn = hyperparameters(name, spec)
    features = drawn.pop("features")
    others, alphas = PUBLISHED[name]
    for alpha, (low, high, parts) in alphas.items():
        values = drawn.pop(alpha)
        if spec is TABLE:
            check_uniform(np.log(values), np.log(1e-3), np.log(0.1))
        else:
            values = values if parts is None else values * features * parts
            check_uniform(np.log(values), np.log(low), np.log(high))
    if name == "PPO-linear":
        steps, batch = drawn.pop("steps"), drawn.pop("batch")
        # rounding moves no quantile of 64..256 by more than 1 / 64, or of 16..64 by 1 / 16
        check_quantiles(np.log2(steps), 6, 8, 1 / 64)
        place = (np.log2(batch) - 4) / (np.minimum(6, np.log2(steps)) - 4)
        check_quantiles(place, 0, 1, 1 / 32)
    ranges = EVERYWHERE | others | ({} if spec is TABLE else ORDERS)
    assert set(drawn) == set(ranges)
    for key, (kind, low, high) in ranges.items():
        values = drawn[key]
        if kind == "gap":
            check_uniform(np.log(1 - values), np.log(low), np.log(high))
        elif kind == "log":
            check_uniform(np.log(values), np.log(low), np.log(high))
        elif kind == "uniform":
            check_uniform(values, low, high)
        else:
            counts = np.bincount(values.astype(int), minlength=high + 1)
            expected = N / (high - low + 1)
            assert counts[:low].sum() == 0 and len(counts) == high + 1
            assert np.abs(counts[low:] - expected).max() < 6 * expected**0.5


def check_quantiles(values, low, high, apart):
    """Nine quantiles, at most `apart` of the range, and six standard errors, from the uniform."""
    levels = np.arange(1, 10) / 10
    found = (np.quantile(values, levels) - low) / (high - low)
    assert np.abs(found - levels).max() < apart + 3 / N**0.5


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", ["AC", "Sarsa-lambda", "Q-lambda"])
def test_on_tables_scaled_algorithms_draw_what_plain_ones_draw(name):
    """On tables the step sizes of -s are those without: the same draws, number by number."""
    plain, scaled = (hyperparameters(f"{name}{end}", TABLE) for end in ("", "-s"))
    assert plain.keys() == scaled.keys()
    assert all((plain[key] == scaled[key]).all() for key in plain)


def test_ranges_of_one_number_fix_it():
    for u in (0.0, 0.3, 0.999999):
        for draw in (uniform, log_uniform):
            assert draw(jnp.float32(u), jnp.float32(0.1), jnp.float32(0.1)) == np.float32(0.1)
        assert integer(jnp.float32(u), 3, 3) == 3
    assert integer(jnp.float32(0.9999999), 1, 10) == 10


# Bad input.


@pytest.mark.parametrize("name", NAMES)
def test_a_range_with_its_lower_end_above_is_refused(name):
    values = {"lambda_low": 0.9, "lambda_high": 0.1}
    with pytest.raises(
        JbrlError,
        match=r"here: lambda_low = 0\.9, lambda_high = 0\.1: expected the lower one first",
    ):
        distributions.build(AGENTS[name].agent, values, "here")


def test_the_lifetime_ends_learning():
    """Steps that no longer count leave no trace in what is reported."""
    agent = AGENTS["Sarsa-lambda"].agent()
    state = agent.reset(jax.random.key(0), complete.prior())
    assert state.progress.lifetime == Episodes(complete.EPISODES)
    assert agent.learns(state.progress)
