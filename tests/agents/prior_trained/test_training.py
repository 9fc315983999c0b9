"""Parts of training on the prior: against slow twins given the same random words, hand-computed
numbers, finite differences; and what an agent must not see.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.opps.ranking import plans
from jbrl.agents.prior_trained import belief_policy, belief_ppo, imitation, lifetimes, rl2, rounds
from jbrl.agents.prior_trained.networks import Dense, Gru
from jbrl.agents.prior_trained.rounds import MOST_GROUPS
from jbrl.agents.prior_trained.trained import TRAINING
from jbrl.environments.spec import Steps
from jbrl.mdp import incremental
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.mdp.sampling import STREAMS, stream
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from tests.reference.trajectories import transition

KEY = jax.random.key(5)
WIDTH, HORIZON = 16, 20


def mixed() -> DirichletPrior:
    """Three states and two actions, whose rows have one, two or three successors."""
    alpha = np.array(
        [[[1, 0, 0], [0.5, 0, 2]], [[1, 1, 1], [0, 3, 1]], [[0, 0, 2], [2, 0.5, 1]]], np.float32
    )
    rewards = np.arange(18, dtype=np.float32).reshape(3, 2, 3) - 5
    mdps = DirichletMDPs(jnp.asarray(alpha), jnp.asarray(rewards), jnp.int32(-1))
    return DirichletPrior(mdps, jnp.float32(0.9), 50)


def slow_inputs(
    prior: DirichletPrior, history: list[tuple[int, int, int]], x: int, horizon: int = HORIZON
) -> np.ndarray:
    """Inputs of the kind `belief` in state `x` after some transitions (x, u, y)."""
    alpha = np.asarray(prior.mdps.concentrations, np.float64)
    n_states, n_actions, _ = alpha.shape
    width = max(2, int((alpha > 0).sum(-1).max()))
    counts = np.zeros_like(alpha)
    for met in history:
        counts[met] += 1

    def row(x: int, u: int) -> tuple[list[float], float] | None:
        possible = np.flatnonzero(alpha[x, u])
        if len(possible) == 1:
            return None
        mean = (alpha + counts)[x, u] / (alpha + counts)[x, u].sum()
        means = [mean[y] for y in possible] + [0.0] * (width - len(possible))
        return means[:-1], 1 / np.sqrt(1 + counts[x, u].sum())

    found = [float(y == x) for y in range(n_states)]
    found.append(1 - min(len(history), horizon) / horizon)
    for z in range(n_states):
        for u in range(n_actions):
            entries = row(z, u)
            found += [] if entries is None else [*entries[0], entries[1]]
    for u in range(n_actions):
        entries = row(x, u)
        found += [0.0] * width if entries is None else [*entries[0], entries[1]]
    return np.array(found)


def random_history(prior: DirichletPrior, length: int, seed: int) -> list[tuple[int, int, int]]:
    drawn, alpha = np.random.default_rng(seed), np.asarray(prior.mdps.concentrations)
    x, found = 0, []
    for _ in range(length):
        u = int(drawn.integers(alpha.shape[1]))
        y = int(drawn.choice(np.flatnonzero(alpha[x, u])))
        found.append((x, u, y))
        x = y
    return found


def test_inputs_of_beliefs_are_those_of_a_slow_twin():
    prior = mixed()
    inputs = belief_policy.belief_inputs(prior, "belief", HORIZON)
    seen, history = inputs.begin(), random_history(prior, 25, 0)
    inputs_of, updated = jax.jit(inputs.inputs), jax.jit(inputs.updated)
    x = 0
    for t in range(len(history) + 1):
        found = inputs_of(seen, jnp.int32(x))
        assert found.shape == (inputs.size,)
        np.testing.assert_allclose(found, slow_inputs(prior, history[:t], x), atol=1e-6)
        if t < len(history):
            x, u, y = history[t]
            seen = updated(seen, transition(x, u, y, 0.0))
            x = y


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["values", "both", "mean", "mean and belief"])
def test_inputs_of_values_are_those_of_the_models(kind):
    prior = mixed()
    inputs = belief_policy.belief_inputs(prior, kind, HORIZON)
    seen, models = inputs.begin(), plans(prior)[: belief_policy.MODELS[kind]]
    x, rewards = 0, np.asarray(prior.mdps.rewards)
    for x, u, y in random_history(prior, 10, 1):
        gain = jnp.float32(rewards[x, u, y])
        seen = inputs.updated(seen, transition(x, u, y, gain))
        models = tuple(incremental.learn(m, x, u, y, gain) for m in models)
    found = np.asarray(inputs.inputs(seen, jnp.int32(y)))
    values = [np.asarray(m.action_values)[y] / float(inputs.scale) for m in models]
    assert found.shape == (inputs.size,)
    if kind == "mean":
        np.testing.assert_allclose(found, values[0], rtol=1e-5)
    else:
        expected = [[v.max(), *(belief_policy.DRAWN_OUT * (v - v.max()))] for v in values]
        np.testing.assert_allclose(
            found[-3 * len(values) :], np.concatenate(expected), rtol=1e-4, atol=1e-5
        )


@functools.cache
def drawn_thresholds() -> np.ndarray:
    """Of 4,096 MDPs drawn from `mixed`."""
    rows = lifetimes.rows_of(mixed())
    draw = jax.jit(lambda n: lifetimes.draw_thresholds(KEY, n, rows, 4096, unit=False))
    return np.asarray(draw(jnp.int32(2)))


def test_all_random_numbers_of_lifetimes_differ():
    """Two of 36 multiples of 2^-24 are equal by chance with a probability of 4e-5."""
    draw = jax.jit(lifetimes.draw_numbers, static_argnums=(2, 3))
    luck = jax.tree.leaves(draw(KEY, jnp.int32(2), 4, 4))
    numbers = np.concatenate([np.asarray(part).ravel() for part in luck])
    assert len(np.unique(numbers)) == len(numbers) == 4 + 16 + 16


def test_a_number_at_a_limit_leads_to_the_successor_above():
    rows = jax.tree.map(jnp.asarray, lifetimes.rows_of(mixed()))
    limits = np.full((rows.shape[0] + 1, 2, 4), lifetimes.NEVER, np.float32)
    pair = 1 * 2 + 0  # three successors
    limits[int(rows.row[pair])] = [[0.25] * 4, [0.5] * 4]
    noise = jnp.asarray([0.0, 0.25, 0.375, 0.5], jnp.float32)
    step = jax.jit(lifetimes.step)
    y, reward = step(rows, jnp.asarray(limits), jnp.full(4, pair, jnp.int32), noise)
    assert y.tolist() == [0, 1, 1, 2] and reward.tolist() == [1, 2, 2, 3]


@pytest.mark.slow
def test_next_states_are_those_of_the_mdp_drawn():
    """Twin: the first successor whose cumulative probability exceeds the same uniform number."""
    prior = mixed()
    rows = lifetimes.rows_of(prior)
    thresholds = drawn_thresholds()[..., :WIDTH]
    traced = jax.tree.map(jnp.asarray, rows)
    step = jax.jit(lambda pair, noise: lifetimes.step(traced, jnp.asarray(thresholds), pair, noise))
    draw = jax.jit(lifetimes.draw_numbers, static_argnums=(2, 3))
    luck = np.asarray(draw(KEY, jnp.int32(2), HORIZON, WIDTH).noise)
    alpha, rewards = (np.asarray(v) for v in (prior.mdps.concentrations, prior.mdps.rewards))
    for x in range(3):
        for u in range(2):
            pair = x * 2 + u
            noise = luck[pair]
            y, reward = (np.asarray(v) for v in step(np.full(WIDTH, pair, np.int32), noise))
            possible = np.flatnonzero(alpha[x, u])
            for n in range(WIDTH):
                limits = thresholds[rows.row[pair], :, n] if len(possible) > 1 else [1.0]
                expected = possible[int((np.asarray(limits) <= noise[n]).sum())]
                assert int(y[n]) == expected
                assert float(reward[n]) == rewards[x, u, expected]


def test_mdps_are_drawn_from_the_prior():
    """Means of 4,096 draws: 5 standard errors, a false alarm in 10^6 for each of 9 numbers."""
    prior, n = mixed(), 4096
    rows = lifetimes.rows_of(prior)
    found = drawn_thresholds()
    alpha = rows.concentrations.astype(np.float64)
    total = alpha.sum(1, keepdims=True)
    part = np.cumsum(alpha, 1)[:, :-1]
    error = np.sqrt(part * (total - part) / (total**2 * (total + 1)) / n)
    assert (np.abs(found[:-1].mean(-1) - part / total) <= 5 * error + 1e-6).all()
    assert (found[-1] > 1).all()


AGENT = belief_ppo.BeliefPPO(trace_decay=0.8, entropy_cost=0.01)


def settings_for(network: Any, width: int, horizon: int, **values: Any) -> rounds.Settings:
    """Of one group, whose discount is 0.5 and whose lambda is 0.8."""
    values = {"ends": False, "unit": False, "sweeps": 0} | values
    return rounds.Settings(AGENT, jnp.float32(0.5), network, width, 1, horizon, **values)


def remembered() -> rounds.Played:
    """Three decisions of two lifetimes: an episode of the first one terminates with the second
    decision, one of the second is cut off there.
    """
    nothing = jnp.zeros((3, 2))
    return rounds.Played(
        jnp.zeros((3, 1, 2)),
        nothing.astype(jnp.int32),
        nothing,
        jnp.array([[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [0.4, 0.4]]),
        jnp.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]),
        jnp.array([[False, False], [True, False], [False, False]]),
        jnp.array([[False, False], [True, True], [False, True]]),
    )


@pytest.mark.parametrize("ends", [False, True])
def test_returns_are_those_computed_by_hand(ends):
    """G_t = r_t + 0.5 (0.2 v_{t+1} + 0.8 G_{t+1}); values are 10 times what the network says, plus
    1. Nothing follows where an episode has terminated; where it was cut off, the next one does.
    """
    settings = settings_for(Gru(1, 1, 1), 2, 3, ends=ends)
    targets = jax.jit(lambda scales: rounds.targets(settings, remembered(), scales))
    found, values = targets(jnp.array([1.0, 10.0]))
    after = 0.0 if ends else 0.5 * 5
    terminated = [1 + 0.5 * (0.2 * 3 + 0.8 * 2), 2, 3 + after]
    second = 20 + 0.5 * (0.2 * 4 + 0.8 * (30 + after))
    cut_off = [10 + 0.5 * (0.2 * 3 + 0.8 * second), second, 30 + after]
    np.testing.assert_allclose(found, np.transpose([terminated, cut_off]), rtol=1e-6)
    np.testing.assert_allclose(values, [[2, 2], [3, 3], [4, 4]], rtol=1e-6)


@pytest.mark.parametrize(
    ("discount", "found"), [(0.5, [1 + 1 + 0.75, 10 + 10 + 7.5]), (1.0, [6 / 2, 60 / 2])]
)
def test_scores_of_a_memory_are_those_computed_by_hand(discount, found):
    """Without a discount, the mean of two episodes: none begins after the last decision."""
    scores = jax.jit(lambda found: rl2.scores(remembered(), found))(jnp.float32(discount))
    np.testing.assert_allclose(scores, found, rtol=1e-6)


@pytest.mark.parametrize(
    ("mean", "deviation", "found"),
    [
        (0.0, 0.0, 10.0),  # no reward
        (7.5, 0.0, 10.0),  # one lifetime
        (40.0, 1e-5, 10.0),  # rounding
        (40.0, 2.5, 2.5),
        (1e-8, 1e-8, 1e-5),
    ],
)
def test_values_have_a_unit_that_returns_can_be_fitted_in(mean, deviation, found):
    scale = rounds.scale_of(jnp.float32(mean), jnp.float32(deviation), jnp.float32(10))
    np.testing.assert_array_equal(scale, np.array([mean, found], np.float32))


def finite_differences(function: Any, at: Any) -> np.ndarray:
    step, found, at = 1e-6, np.zeros(at.size), np.asarray(at)
    for i in range(at.size):
        move = np.zeros(at.size)
        move[i] = step
        found[i] = (function(at + move) - function(at - move)) / (2 * step)
    return found


def part_of(drawn: np.random.Generator, *shape: int) -> tuple:
    """Actions, log-probabilities near those of a uniform policy, advantages and returns."""
    actions = jnp.asarray(drawn.integers(0, 3, shape), jnp.int32)
    logs = jnp.asarray(np.log(1 / 3) + 0.3 * drawn.standard_normal(shape))
    return actions, logs, *(jnp.asarray(drawn.standard_normal(shape)) for _ in range(2))


def test_the_loss_of_four_decisions_is_that_by_hand():
    """Ratios of 1.5 and 0.5 with advantages of both signs, of which those up to 1.2 and from 0.8 on
    count where that is less; errors of 3 with weight 0.5; half of 0.01 times the entropy, log 2.
    """
    ratios, advantages = np.array([1.5, 1.5, 0.5, 0.5]), np.array([-1.0, 1.0, 1.0, -1.0])
    numbers = (np.log(0.5) - np.log(ratios), advantages, np.full(4, 2.0))
    part = rounds.Batch(
        jnp.zeros((1, 4)), jnp.zeros(4, jnp.int32), *(jnp.asarray(v, jnp.float32) for v in numbers)
    )
    surrogate = jax.jit(lambda outputs, part: rounds.surrogate(outputs, part, AGENT, 0.5))
    found = surrogate(jnp.zeros((3, 4)).at[-1].set(-1.0), part)
    gains = -1.5 + 1.2 + 0.5 - 0.8
    assert float(found) == pytest.approx(4 * 0.5 * 3**2 - gains - 4 * 0.01 * 0.5 * np.log(2))


def test_gradients_are_those_of_finite_differences():
    """In double precision; of the loss of PPO with a perceptron and with a memory."""
    with jax.enable_x64(True):
        drawn = np.random.default_rng(0)
        dense = Dense((4, 5, 4))
        inputs = jnp.asarray(drawn.standard_normal((4, 7)))
        part = rounds.Batch(inputs, *part_of(drawn, 7))
        at = jnp.asarray(drawn.standard_normal(dense.parameters))
        plain = jax.jit(lambda p: belief_ppo.loss(dense, p, part, AGENT))
        np.testing.assert_allclose(
            jax.jit(jax.grad(plain))(at), finite_differences(plain, at), rtol=1e-5, atol=1e-7
        )
        gru = Gru(2, 3, 4)
        steps = rounds.Batch(jnp.asarray(drawn.standard_normal((3, 2, 2))), *part_of(drawn, 3, 2))
        at = jnp.asarray(drawn.standard_normal(gru.parameters))
        unrolled = jax.jit(lambda p: rl2.loss(gru, p, steps, AGENT))
        np.testing.assert_allclose(
            jax.jit(jax.grad(unrolled))(at), finite_differences(unrolled, at), rtol=1e-5, atol=1e-7
        )


def test_weights_of_perceptrons_start_with_variances_that_keep_signals_as_they_are():
    """2 / inputs, and of the last layer `last`² / inputs: within 15 %, ten standard errors."""
    network = Dense((50, 200, 100))
    drawn = np.asarray(jax.jit(network.init)(KEY, 0.1))
    hidden, last = drawn[: 200 * 51].reshape(200, 51), drawn[200 * 51 :].reshape(100, 201)
    assert not hidden[:, -1].any() and not last[:, -1].any()
    assert hidden[:, :-1].var() == pytest.approx(2 / 50, rel=0.15)
    assert last[:, :-1].var() == pytest.approx(0.01 / 201, rel=0.15)


def test_outputs_of_networks_and_inputs_side_by_side_are_those_of_each_alone():
    """Of one network or two, and of inputs of one lifetime or two."""
    network, drawn = Dense((3, 4, 2)), np.random.default_rng(3)
    outputs = belief_policy.outputs_of(network)
    weights = jnp.asarray(drawn.standard_normal((2, network.parameters)), jnp.float32)
    inputs = jnp.asarray(drawn.standard_normal((2, 3)), jnp.float32)

    def alone(number: int, lifetime: int) -> np.ndarray:
        layers = network.layers(weights[number])
        return np.asarray(network.apply(layers, inputs[lifetime][:, None])[:, 0])

    for numbers, two, axes in (([0, 1], [0, 1], 0), ([0, 1], [1, 1], (0, None))):
        given = inputs if axes == 0 else inputs[1]
        found = jax.vmap(outputs, axes)(weights, given)
        expected = [alone(*pair) for pair in zip(numbers, two, strict=True)]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    found = jax.vmap(outputs, (None, 0))(weights[1], inputs)
    np.testing.assert_allclose(found, [alone(1, 0), alone(1, 1)], rtol=1e-5)


def test_a_gated_unit_is_that_of_a_slow_twin():
    gru, drawn = Gru(3, 4, 2), np.random.default_rng(1)
    parameters = drawn.standard_normal(gru.parameters).astype(np.float32)
    inputs = drawn.standard_normal((5, 3, 2)).astype(np.float32)
    outputs = jax.jit(lambda *given: rl2.unroll(gru, *given))(parameters, inputs)
    w = parameters[: 12 * 4].reshape(12, 4)
    u = parameters[48 : 48 + 48].reshape(12, 4)
    read = parameters[96:].reshape(2, 5)
    h = np.zeros((4, 2))
    for t, x in enumerate(inputs):
        seen, kept = w[:, :3] @ x + w[:, 3:], u @ h
        z, r = (1 / (1 + np.exp(-(seen + kept)[i : i + 4])) for i in (0, 4))
        h = (1 - z) * np.tanh(seen[8:] + r * kept[8:]) + z * h
        np.testing.assert_allclose(outputs[t], read[:, :4] @ h + read[:, 4:], rtol=1e-4, atol=1e-5)


def test_labels_are_optimal_actions():
    prior = mixed()
    rows = jax.tree.map(jnp.asarray, lifetimes.rows_of(prior))
    thresholds = jnp.asarray(drawn_thresholds()[..., :8])
    best = jax.jit(imitation.optimal_actions, static_argnums=3)(
        rows, thresholds, prior.discount, 300
    )
    rewards = np.asarray(prior.mdps.rewards).reshape(6, 3)
    for n in range(8):
        transitions = np.zeros((6, 3), np.float32)
        for pair in range(6):
            possible = np.flatnonzero(np.asarray(prior.mdps.concentrations).reshape(6, 3)[pair])
            if len(possible) == 1:
                transitions[pair, possible] = 1
                continue
            limits = np.asarray(thresholds)[int(rows.row[pair]), :, n]
            chances = np.diff(np.concatenate([[0], limits, [1]]))
            transitions[pair, possible] = chances[: len(possible)]
        q = np.zeros((3, 2))
        for _ in range(300):
            q = ((transitions * (rewards + 0.9 * q.max(1)[None])).sum(1)).reshape(3, 2)
        expected = (q == q.max(1, keepdims=True)).reshape(-1)
        np.testing.assert_array_equal(np.asarray(best)[:, n] > 0, expected)


def test_the_agent_that_demonstrates_is_random_as_often_as_asked():
    """10,000 decisions: 5 standard errors, a false alarm in 10^6 for each of three shares."""
    n = 10_000
    best = jnp.asarray(np.repeat([[0.0], [1.0], [1.0], [0.0]], n, axis=1), jnp.float32)
    coins = jnp.asarray(np.random.default_rng(0).random(n), jnp.float32)
    for epsilon in (0.0, 0.4, 1.0):
        found = jax.jit(imitation.choose)(best, coins, jnp.full(n, epsilon, jnp.float32))
        shares = np.bincount(np.asarray(found), minlength=4) / n
        expected = epsilon / 4 + (1 - epsilon) * np.array([0, 0.5, 0.5, 0])
        assert (np.abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / n)).all()


@functools.cache
def gc() -> tuple[Any, Any, Any]:
    """The prior of GC, what a policy sees of it, and settings of 16 lifetimes."""
    prior = problem("GC").prior(Steps(250), 0.95)
    inputs = belief_policy.belief_inputs(prior, "belief", HORIZON)
    network = Dense((inputs.size, 16, 4))
    settings = settings_for(network, WIDTH, HORIZON, unit=True)
    return prior, jax.tree.map(jnp.asarray, inputs), settings


def check_unseen(play: Any) -> None:
    """Inputs and actions are the same in other MDPs, up to where something else has happened."""
    (met, actions), (other_met, other_actions) = (
        tuple(map(np.asarray, play(jnp.int32(shift)))) for shift in (0, 1)
    )
    same = np.cumprod((met == other_met).all(axis=1), axis=0).astype(bool)
    assert (actions == other_actions)[same].all()
    assert same.sum() > 2 * WIDTH, "some things happen in both"
    assert not same[-1].any(), "other things happen in every lifetime"


def test_an_agent_does_not_see_the_mdp(monkeypatch):
    """The lifetimes get each other's MDPs and keep their random numbers."""
    prior, inputs, settings = gc()
    parameters = jax.jit(settings.network.init)(KEY)
    draw = lifetimes.draw_thresholds

    @jax.jit
    def play(shift: jax.Array) -> tuple[jax.Array, jax.Array]:
        def swapped(*args: Any, **options: Any) -> jax.Array:
            return jnp.roll(draw(*args, **options), shift, axis=-1)

        monkeypatch.setattr(belief_ppo, "draw_thresholds", swapped)
        played = belief_ppo.collect_beliefs(
            settings, parameters, (inputs, prior), KEY, jnp.int32(0)
        )
        return played.inputs, played.actions

    check_unseen(play)


@pytest.mark.slow
def test_a_memory_does_not_see_the_mdp(monkeypatch):
    """The lifetimes get other MDPs and keep their random numbers."""
    prior, _, _ = gc()
    network = Gru(rl2.input_size(prior.spec), 8, prior.spec.actions.n + 1)
    settings = settings_for(network, WIDTH, HORIZON)
    parameters = network.init(KEY)

    @jax.jit
    def play(shift: jax.Array) -> tuple[jax.Array, jax.Array]:
        def other(key: Any, number: Any, name: str) -> Any:
            return stream(key, number + shift if name == "mdp" else number, name)

        monkeypatch.setattr(lifetimes, "stream", other)
        played = rl2.remember(settings, parameters, (prior, jnp.float32(0.1)), KEY, jnp.int32(0))
        return played.inputs, played.actions

    check_unseen(play)


def test_training_meets_no_mdp_of_the_test():
    """Keys of training, of trials and of lifetimes differ, for the first numbers of each."""
    own = jax.random.fold_in(KEY, 2**32 - 1)
    bases = [KEY, own, jax.random.fold_in(own, TRAINING), jax.random.fold_in(own, 0)]
    found = {
        tuple(np.asarray(jax.random.key_data(stream(base, jnp.uint32(i), name))).tolist())
        for base in bases
        for i in (*range(8), MOST_GROUPS)
        for name in STREAMS
    }
    assert len(found) == len(bases) * 9 * len(STREAMS)


def test_rounds_of_dpt_are_smaller_where_its_budget_has_few():
    sizes = [imitation.DPT(budget=budget).round_size() for budget in (1, 1023, 1024, 2**20)]
    assert sizes == [32, 32, 64, imitation.DPT().batch]
