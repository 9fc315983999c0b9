"""Whole rounds of training on the prior, of several groups and epochs: beside slow twins that are
given the same random words, and drawn anew in each round and group.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.prior_trained import belief_ppo, imitation, lifetimes, rl2, trained
from jbrl.agents.prior_trained.rounds import MOST_GROUPS, Batch
from jbrl.agents.prior_trained.trained import Lesson
from jbrl.environments.spec import Steps
from jbrl.mdp.sampling import stream
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior, EnvironmentPrior
from jbrl.rollout.contract import Transition
from tests import streams
from tests.agents.deep.reference import Adam
from tests.agents.prior_trained.test_attention import slow_attention
from tests.agents.prior_trained.test_training import slow_inputs
from tests.streams import Die

KEY = jax.random.key(5)
ROUNDS, GROUPS, WIDTH, HORIZON, EPOCHS = 2, 2, 2, 5, 2
SHARE = 0.5  # of the step size that is left
SIZES: dict[str, Any] = {"batch": GROUPS * WIDTH, "horizon": HORIZON}


def gc() -> DirichletPrior:
    return problem("GC").prior(Steps(10), 0.9)


AGENTS: dict[str, Any] = {
    "BeliefPPO": lambda: (
        belief_ppo.BeliefPPO(hidden_width=4, hidden_layers=1, epochs=EPOCHS, **SIZES),
        gc(),
    ),
    "ANN": lambda: (
        imitation.ANN(inputs="belief", hidden_width=4, hidden_layers=1, **SIZES),  # the cheapest
        gc(),
    ),
    "DPT": lambda: (
        imitation.DPT(inputs="history", hidden_width=4, hidden_layers=1, heads=2, **SIZES),
        gc(),
    ),
    "RL2": lambda: (
        rl2.RL2(units=3, minibatches=1, epochs=EPOCHS, **SIZES),
        EnvironmentPrior(Die(), jnp.float32(0.9), Steps(10)),
    ),
}


@functools.cache
def training(name: str) -> tuple[Lesson, list[Any], list[np.ndarray], streams.Keys]:
    """The lesson of an agent, the states before and after two rounds, what these found, and the
    keys that they used.
    """
    agent, prior = AGENTS[name]()
    with pytest.MonkeyPatch.context() as patch, streams.recorded() as keys:
        patch.setattr(trained, "WIDTH", WIDTH)
        lesson = agent.lesson(prior)
        states, found = [jax.jit(lesson.start)(KEY)], []
        play = jax.jit(lambda arguments: lesson.round(arguments))
        for _ in range(ROUNDS):
            state, returns = play((states[-1], jnp.float32(SHARE), KEY, lesson.settings))
            states.append(state)
            found.append(np.asarray(returns))
    return lesson, states, found, keys


@pytest.mark.parametrize(
    ("name", "of_start", "of_group", "of_round"),
    [
        ("BeliefPPO", 2, 3, 1),
        ("ANN", 2, 3, 1),
        ("DPT", 1, 3, 1),
        ("RL2", 4, 3 + WIDTH + 2 * WIDTH * HORIZON, 0),  # a reset, then a step and a reset each
    ],
    ids=AGENTS,
)
def test_no_key_serves_two_rounds_groups_or_purposes(name, of_start, of_group, of_round):
    keys = training(name)[3]
    assert not keys.shared
    assert len(keys.users) == of_start + ROUNDS * (GROUPS * of_group + of_round)


def dense(parameters: np.ndarray, inputs: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """The outputs of a perceptron for one input."""
    found, first = inputs, 0
    for i, o in itertools.pairwise(sizes):
        found = np.maximum(found, 0) if first else found
        layer = parameters[first : first + o * (i + 1)].reshape(o, i + 1)
        found, first = layer[:, :-1] @ found + layer[:, -1], first + layer.size
    return found


draw_numbers = jax.jit(lifetimes.draw_numbers, static_argnums=(2, 3))
solve = jax.jit(imitation.optimal_actions, static_argnums=3)


@jax.jit
def draw_thresholds(number: Any) -> Any:
    rows = lifetimes.rows_of(gc())
    return lifetimes.draw_thresholds(KEY, number, rows, WIDTH, unit=True)


def lived(number: int, lane: int, decide: Any) -> tuple[list, list, list]:
    """Observations of a lifetime, H + 1 of (history, state); actions; rewards: one step after the
    other, with the random numbers of group `number`.

    Args:
      decide: takes the history, the state and a uniform number, returns an action.
    """
    prior, rows = gc(), lifetimes.rows_of(gc())
    numbers = jax.tree.map(np.asarray, draw_numbers(KEY, jnp.int32(number), HORIZON, WIDTH))
    thresholds = np.asarray(draw_thresholds(jnp.int32(number)))
    x = int(prior.mdps.initial_state)
    history: list[tuple[int, int, int]] = []
    seen, actions, rewards = [((), x)], [], []
    for t in range(HORIZON):
        u = decide(tuple(history), x, numbers.choices[t, lane])
        possible = np.flatnonzero(prior.mdps.concentrations[x, u])
        limits = thresholds[rows.row[3 * x + u], :, lane] if len(possible) > 1 else np.ones(1)
        y = int(possible[int((limits <= numbers.noise[t, lane]).sum())])
        history.append((x, u, y))
        actions.append(u)
        rewards.append(float(prior.mdps.rewards[x, u, y]))
        seen.append((tuple(history), y))
        x = y
    return seen, actions, rewards


def softmax_choice(logits: np.ndarray, uniform: float) -> int:
    sums = np.cumsum(np.exp(logits - logits.max()))
    return int((sums[:-1] <= uniform * sums[-1]).sum())


def shuffled(number: int, epochs: int) -> list[int]:
    """The time steps of a round in the order in which they are learned from."""
    words = jax.random.bits(stream(KEY, jnp.int32(number), "parameters"), (epochs, HORIZON))
    return np.argsort(np.asarray(words), axis=1).reshape(-1).tolist()


def learned(before: Any, order: list[int], slope: Callable, rate: float) -> np.ndarray:
    """The parameters after a step of Adam along the slope of each time step, in that order."""
    adam, parameters = Adam(SHARE * rate), np.asarray(before.parameters, np.float64)
    adam.t = int(before.optimiser.count)
    adam.first, adam.second = (
        np.asarray(v, np.float64) for v in (before.optimiser.mu, before.optimiser.nu)
    )
    for t in order:
        parameters = adam.step(parameters, np.asarray(slope(parameters.astype(np.float32), t)))
    return parameters


def inputs_of(history: tuple, x: int) -> np.ndarray:
    return slow_inputs(gc(), list(history), x, HORIZON)


def numbers_of(history: tuple, x: int) -> np.ndarray:
    """The inputs of the kind `history`: the state, the time left, the numbers of transitions."""
    rows = lifetimes.rows_of(gc())
    size = rows.concentrations.size
    places = [int(rows.place[(z * 3 + u) * 5 + y]) for z, u, y in history]
    numbers = np.bincount(np.array(places, int), minlength=size + 1)[:size]
    return np.concatenate([np.eye(5)[x], [1 - len(history) / HORIZON], numbers])


def lives(
    number: int, decide: Callable, inputs_of: Callable = inputs_of
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs [H + 1, I, N], actions [H, N] and rewards [H, N] of the lifetimes of a round, one
    group after the other; `decide` also takes the number of a lifetime.
    """
    found = [
        lived(number * MOST_GROUPS + group, lane, functools.partial(decide, group * WIDTH + lane))
        for group in range(GROUPS)
        for lane in range(WIDTH)
    ]
    inputs = np.array([[inputs_of(*one) for one in seen] for seen, _, _ in found])
    actions, rewards = (np.array([life[k] for life in found]).T for k in (1, 2))
    return inputs.transpose(1, 2, 0), actions, rewards


def check_found(found: np.ndarray, rewards: np.ndarray) -> None:
    earned = (rewards * 0.9 ** np.arange(HORIZON)[:, None]).sum(0)
    np.testing.assert_allclose(found, [earned.mean(), earned.std()], rtol=1e-5)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_round_of_belief_ppo_is_that_of_a_slow_twin(number):
    """It takes the value of what a lifetime has reached as the end of its return, and learns in
    each epoch in another order.
    """
    lesson, states, found, _ = training("BeliefPPO")
    before, after, (settings, _) = states[number], states[number + 1], lesson.settings
    sizes, weights = settings.network.sizes, np.asarray(before.parameters, np.float64)

    def decide(_: int, history: tuple, x: int, uniform: float) -> int:
        return softmax_choice(dense(weights, inputs_of(history, x), sizes)[:-1], uniform)

    inputs, actions, rewards = lives(number, decide)
    check_found(found[number], rewards)
    level, unit = found[0]  # of the first round
    np.testing.assert_allclose(after.returns, [level, unit], rtol=1e-6)
    outputs = np.stack([np.stack([dense(weights, v, sizes) for v in w.T], 1) for w in inputs])
    values, returns = outputs[:, -1] * unit + level, np.zeros((HORIZON + 1, GROUPS * WIDTH))
    returns[-1] = values[-1]
    for t in reversed(range(HORIZON)):
        trace = settings.agent.trace_decay if t < HORIZON - 1 else 0.0
        returns[t] = rewards[t] + 0.9 * ((1 - trace) * values[t + 1] + trace * returns[t + 1])
    advantages = returns[:-1] - values[:-1]
    advantages = (advantages - advantages.mean()) / advantages.std()
    logs = np.take_along_axis(outputs[:-1, :-1], actions[:, None], 1)[:, 0]
    logs -= np.log(np.exp(outputs[:-1, :-1]).sum(1))

    @jax.jit
    @jax.grad
    def gradient(p: Any, part: Batch) -> Any:
        count = GROUPS * WIDTH
        return belief_ppo.loss(settings.network, p, part, settings.agent, SHARE) / count

    def slope(p: np.ndarray, t: int) -> np.ndarray:
        numbers = (logs, advantages, (returns[:-1] - level) / unit)
        part = (np.float32(inputs[t]), actions[t], *(np.float32(v[t]) for v in numbers))
        found = np.asarray(gradient(p, Batch(*part)), np.float64)
        return found * min(1.0, float(settings.agent.max_gradient_norm) / np.linalg.norm(found))

    order = shuffled(number, EPOCHS)
    assert order[:HORIZON] != order[HORIZON:], "epochs differ"
    expected = learned(before, order, slope, 1e-3)
    np.testing.assert_allclose(after.parameters, expected, atol=1e-6)


@functools.cache
def best_actions(number: int) -> np.ndarray:
    """1 for the optimal actions in each state of the MDPs of a group: [S, A, W]."""
    rows = jax.tree.map(jnp.asarray, lifetimes.rows_of(gc()))
    found = solve(rows, draw_thresholds(jnp.int32(number)), jnp.float32(0.9), 200)
    return np.asarray(found).reshape(5, 3, WIDTH)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("name", ["ANN", "DPT"])
def test_a_round_of_imitation_is_that_of_a_slow_twin(name, number):
    """Lifetime i of N takes any action with probability i / (N - 1), and else one that is optimal
    or, of DPT, the one of greatest output; steps count for discount^t.
    """
    lesson, states, found, _ = training(name)
    before, (settings, _) = states[number], lesson.settings
    own = name == "DPT"

    def best(i: int, x: int) -> np.ndarray:
        return best_actions(number * MOST_GROUPS + i // WIDTH)[x, :, i % WIDTH]

    def outputs(history: tuple, x: int) -> np.ndarray:
        seen = numbers_of(history, x)
        tokens = np.repeat(np.arange(len(seen) - 6), seen[6:].astype(int)).tolist()
        return slow_attention(before.parameters, settings.network.sizes, seen[:6], tokens)

    def decide(i: int, history: tuple, x: int, coin: float) -> int:
        epsilon = i / (GROUPS * WIDTH - 1)
        if coin < epsilon:
            return int(3 * coin / epsilon)
        among = [int(outputs(history, x).argmax())] if own else np.flatnonzero(best(i, x))
        return int(among[int(len(among) * (coin - epsilon) / (1 - epsilon))])

    inputs, _, rewards = lives(number, decide, numbers_of if own else inputs_of)
    check_found(found[number], rewards)
    places = inputs[:-1, :5].argmax(1)  # the states, which come first
    labels = np.array([[best(i, x) for i, x in enumerate(row)] for row in places])
    labels = (labels / labels.sum(2, keepdims=True)).transpose(0, 2, 1)

    @jax.jit
    @jax.grad
    def gradient(p: Any, inputs: Any, labels: Any) -> Any:
        network = settings.network
        outputs = network.apply(network.layers(p), inputs)
        return -(labels * jax.nn.log_softmax(outputs, axis=0)).sum() / (GROUPS * WIDTH)

    def slope(p: np.ndarray, t: int) -> np.ndarray:
        return 0.9**t * np.asarray(gradient(p, np.float32(inputs[t]), np.float32(labels[t])))

    expected = learned(before, shuffled(number, 1), slope, 3e-3)
    np.testing.assert_allclose(states[number + 1].parameters, expected, atol=1e-6)


def test_an_episode_that_is_cut_off_has_not_terminated_and_another_follows():
    """Both are noticed as ends. One is missing among 80 throws with a probability of 1e-6."""
    lesson, states, _, _ = training("RL2")
    settings, given = lesson.settings
    remember = jax.jit(rl2.remember)
    played = [remember(settings, states[0].parameters, given, KEY, jnp.int32(n)) for n in range(8)]
    after_cut_off: list[int] = []
    for one in played:
        thrown = np.asarray(one.rewards)
        np.testing.assert_array_equal(one.terminated, thrown == 5)
        np.testing.assert_array_equal(one.ended, thrown >= 4)
        observed, noticed = np.asarray(one.inputs[1:, :6]).argmax(1), np.asarray(one.inputs[1:, -1])
        np.testing.assert_array_equal(noticed, thrown[:-1] >= 4)
        assert (observed == thrown[:-1])[thrown[:-1] < 4].all()
        after_cut_off += observed[thrown[:-1] == 4].tolist()
    thrown = np.stack([one.rewards for one in played])
    assert (thrown == 4).any() and (thrown == 5).any()
    assert set(after_cut_off) - {4}, "a first observation is shown, not the last one"


def test_rewards_of_any_size_are_learned_from_alike():
    (agent, _), prior, learned = AGENTS["RL2"](), gc(), []
    play = jax.jit(lambda arguments: rl2.remember_and_learn(arguments))
    for size in (1.0, 2.0**-60, 2.0**100):
        mdps = dataclasses.replace(prior.mdps, rewards=prior.mdps.rewards * np.float32(size))
        lesson = agent.lesson(dataclasses.replace(prior, mdps=mdps))
        state = jax.jit(lesson.start)(KEY)
        for _ in range(ROUNDS):
            state, _ = play((state, jnp.float32(SHARE), KEY, lesson.settings))
        learned.append(np.asarray(state.parameters))
    for other in learned[1:]:
        np.testing.assert_allclose(other, learned[0], atol=1e-3)


@pytest.mark.parametrize(
    ("terminated", "truncated"), [(False, False), (True, False), (False, True)]
)
def test_what_plays_notices_ends_of_both_kinds(terminated, truncated):
    network = training("RL2")[0].settings[0].network
    policy = rl2.RecurrentPolicy(np.zeros(network.parameters), np.float32(1), network)
    state = policy.reset(KEY, None)
    after = policy.observe(
        KEY, state, Transition(0, 1, 2.0, 3, np.bool_(terminated), np.bool_(truncated))
    )
    assert (after.noticed.action, after.noticed.reward) == (1, 2.0)
    assert after.noticed.ended == (terminated or truncated)


def test_an_action_is_drawn_only_if_asked_for():
    """All outputs are 0: 50 draws from two actions are all the same with a probability of 2^-49."""
    network = training("RL2")[0].settings[0].network
    for sample in (False, True):
        policy = rl2.RecurrentPolicy(np.zeros(network.parameters), np.float32(1), network, sample)
        state = policy.reset(KEY, None)

        @jax.jit
        @jax.vmap
        def act(key: Any, policy: Any = policy, state: Any = state) -> Any:
            return policy.act(key, state, jnp.int32(0))[0]

        assert (len(set(act(jax.random.split(KEY, 50)).tolist())) > 1) == sample
