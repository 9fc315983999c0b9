"""DQN: updates of the original program, a NumPy twin, and what lifetimes have in common."""

from pathlib import Path

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.deep import dqn
from jbrl.agents.deep.boot_dqn import BootDQN
from jbrl.agents.deep.dqn import DQN, epsilon_greedy
from jbrl.agents.deep.networks import QNetwork
from jbrl.agents.deep.replay import Batch
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Box, Discrete, Episodes, Spec, Steps
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import NO_ACTION, Transition, as_arrays
from tests.agents.deep import reference
from tests.agents.deep.reference import Adam

KEY = jax.random.key(0)
ORIGINAL = np.load(Path(__file__).parent / "data" / "dqn_updates.npz")
# small enough that a lifetime is cheap, large enough that it learns
SMALL = {"hidden_width": 8, "batch_size": 4, "replay_capacity": 64, "min_replay": 8}


def layers_of(name, count=3, part="net"):
    return [
        tuple(ORIGINAL[f"{name}|{part}{i}|{kind}"].astype(np.float64) for kind in "wb")
        for i in range(count)
    ]


def batch_of(name):
    """(o, a, r, d, o') of a batch."""
    o, a, r, d, following = (
        ORIGINAL[f"{name}_{key}"] for key in ("o_tm1", "a_tm1", "r_t", "d_t", "o_t")
    )
    n = len(a)
    return o.reshape(n, -1), a, r, d, following.reshape(n, -1)


def as_batch(arrays, dtype):
    o, a, r, d, following = arrays
    one = np.ones((len(a), 1))
    o, following = (jnp.asarray(np.append(v, one, 1), dtype) for v in (o, following))
    numbers = (jnp.asarray(v, dtype) for v in (r, d))
    return Batch(o, jnp.asarray(a, jnp.int32), *numbers, following, jnp.zeros((len(a), 0), dtype))


def begun(network, online, target, dtype):
    packed = [
        jax.jit(network.pack)([(np.asarray(w, dtype), np.asarray(b, dtype)) for w, b in layers])
        for layers in (online, target)
    ]
    return dqn.begun(*packed)


def after_updates(agent, network, learner, batches):
    step = jax.jit(lambda v, b, t: dqn.update(agent, network, v, b, t, jnp.bool_(True)))
    for i, batch in enumerate(batches):
        learner = step(learner, batch, jnp.int32(i + 1))
    return learner


def assert_layers(network, found, expected, tolerance):
    packed = jax.jit(network.pack)(expected)
    for one, other in zip(found, packed, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=0)


def test_updates_are_those_of_the_original():
    """Six updates with a copy to the target after the fourth."""
    network = QNetwork(6, (64, 64, 3))
    learner = begun(network, layers_of("dqn_p0"), layers_of("dqn_tp0"), jnp.float32)
    batches = [as_batch(batch_of(f"dqn_b{i}"), jnp.float32) for i in range(6)]
    learner = after_updates(DQN(), network, learner, batches)
    assert_layers(network, learner.online, layers_of("dqn_p1"), 1e-6)
    assert_layers(network, learner.target, layers_of("dqn_tp1"), 1e-6)
    assert int(learner.updates) == 6


VARIANTS = [
    {"loss": "huber", "double_q": True, "discount": 0.9},
    {},
    {"loss": "half squared", "target_clock": "steps", "target_period": 3},
]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("squared", [0.25, 4]), ("half squared", [0.125, 2]), ("huber", [0.125, 1.5])],
)
def test_losses_by_hand(kind, expected):
    np.testing.assert_allclose(dqn._losses(jnp.array([0.5, -2.0]), kind), expected)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("values", VARIANTS, ids=str)
def test_its_twin_learns_alike_in_double_precision(values):
    agent, network = DQN(learning_rate=0.01, **values), QNetwork(6, (8, 5, 3))
    rng = np.random.default_rng(1)
    online, target = (
        [(rng.normal(size=(i, o)), rng.normal(size=o)) for i, o in ((6, 8), (8, 5), (5, 3))]
        for _ in range(2)
    )
    batches = [batch_of(f"dqn_b{i}") for i in range(6)]
    with jax.enable_x64(True):
        learner = begun(network, online, target, jnp.float64)
        learner = after_updates(
            agent, network, learner, [as_batch(b, jnp.float64) for b in batches]
        )
        adam = Adam(0.01)
        for i, batch in enumerate(batches):
            online = reference.one_step(
                online,
                target,
                adam,
                [v.astype(np.float64) if v.dtype == np.float32 else v for v in batch],
                discount=agent.discount,
                loss=agent.loss,
                double_q=agent.double_q,
            )
            if (i + 1) % agent.target_period == 0:
                target = online
        assert_layers(network, learner.online, online, 1e-12)
        assert_layers(network, learner.target, target, 1e-12)


def test_a_lane_that_is_not_due_keeps_its_parameters():
    network = QNetwork(6, (8, 5, 3))
    ones = [(np.ones(shape), np.ones(shape[1])) for shape in ((6, 8), (8, 5), (5, 3))]
    learner = begun(network, ones, ones, jnp.float32)
    batch = as_batch(batch_of("dqn_b0"), jnp.float32)
    lanes = jax.tree.map(lambda v: np.stack([v, v]), learner)

    @jax.jit
    def step(lanes, due):
        return jax.vmap(lambda v, due: dqn.update(DQN(), network, v, batch, jnp.int32(1), due))(
            lanes, due
        )

    after = jax.tree.map(np.asarray, step(lanes, np.array([False, True])))
    for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(lanes), strict=True):
        np.testing.assert_array_equal(new[0], old[0])
    assert np.abs(after.online[0][1] - lanes.online[0][1]).max() > 0
    neither = step(lanes, np.array([False, False]))
    jax.tree.map(np.testing.assert_array_equal, neither, lanes)


def outside_loops(jaxpr):
    """Names of the operations of a program that are in none of its loops."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        if equation.primitive.name != "while":
            for inner in jax.extend.core.jaxprs_in_params(equation.params):
                yield from outside_loops(inner)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("agent", [DQN(), BootDQN(ensemble=2)], ids=["DQN", "BootDQN"])
def test_a_step_without_an_update_takes_none_of_its_work(agent):
    """Products and roots are in the loop that runs once where an update is due."""
    prior = problem("Chain-10s").prior(Steps(10), 0.95)
    keys = jax.random.split(KEY, 2)
    state = jax.eval_shape(jax.vmap(lambda key: agent.reset(key, prior)), keys)
    x, ends = jnp.zeros(2, jnp.int32), jnp.zeros(2, bool)
    t = Transition(x, x, jnp.zeros(2), x, ends, ends)
    made = jax.make_jaxpr(jax.vmap(agent.observe))(keys, state, t)
    assert "sqrt" in str(made)
    assert "sqrt" not in set(outside_loops(made.jaxpr))


def test_exploration_falls_linearly_where_it_is_asked_for():
    agent = DQN(epsilon=0.1, epsilon_start=0.9, epsilon_steps=100)
    for step, expected in ((0, 0.9), (50, 0.5), (100, 0.1), (1000, 0.1)):
        assert float(agent._epsilon(jnp.int32(step))) == pytest.approx(expected)
    assert float(DQN(epsilon=0.1)._epsilon(jnp.int32(0))) == pytest.approx(0.1)


def test_actions_are_greedy_or_uniform():
    values = jnp.float32([1, 3, 3])
    choose = jax.jit(jax.vmap(epsilon_greedy, (None, None, 0)))
    grid = np.stack(np.meshgrid([0.1, 0.3], (np.arange(12) + 0.5) / 12), -1).reshape(-1, 2)
    actions = np.asarray(choose(values, jnp.float32(0.2), jnp.asarray(grid, jnp.float32)))
    explored = actions[np.isclose(grid[:, 0], 0.1)]
    np.testing.assert_array_equal(np.bincount(explored), [4, 4, 4])
    greedy = actions[np.isclose(grid[:, 0], 0.3)]
    np.testing.assert_array_equal(np.bincount(greedy, minlength=3), [0, 6, 6])
    lost = choose(values.at[0].set(jnp.nan), jnp.float32(0.2), jnp.asarray(grid, jnp.float32))
    assert (np.asarray(lost) == NO_ACTION).all()


@pytest.mark.slow
def test_learning_starts_and_repeats_as_said():
    """With a buffer for 8, a first update at 6 and then each second step: updates at 6, 8, 10."""
    agent = as_arrays(DQN(**{**SMALL, "min_replay": 6, "replay_capacity": 8}, sgd_period=2))
    prior = problem("Chain-10s").prior(Steps(10), 0.95)
    state = agent.reset(KEY, prior)
    observe = jax.jit(lambda key, state, t: agent.observe(key, state, t))
    found = []
    for step in range(10):
        x, true = jnp.int32(step % 3), jnp.bool_(False)
        t = Transition(x, jnp.int32(0), jnp.float32(1), x, true, true)
        state = observe(jax.random.fold_in(KEY, step), state, t)
        found.append(int(state.learner.updates))
    assert found == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3]


def test_the_target_starts_as_a_copy_or_apart_and_seeds_differ():
    prior = problem("Chain-10s").prior(Steps(10), 0.95)
    for start, alike in (("copy", True), ("independent", False)):
        agent = DQN(**SMALL, target_start=start)
        reset = jax.jit(lambda key, agent=agent: agent.reset(key, prior).learner)
        first, second = (reset(jax.random.key(seed)) for seed in (0, 1))
        assert np.array_equal(first.online[0], first.target[0]) is alike
        for one, other in zip(first.online, second.online, strict=True):
            assert not np.array_equal(one[:, :-1], other[:, :-1])


CATCH = problem("bsuite/catch/0")


@pytest.mark.parametrize(
    ("kind", "least", "width", "memory"),
    [(DQN, 100, 16_384, "4.02 GiB"), (BootDQN, 128, 4096, ".* GiB")],
)
def test_it_is_refused_where_it_does_not_fit(kind, least, width, memory):
    with pytest.raises(
        JbrlError, match=rf"min_replay = {least}: expected at most replay_capacity = 50"
    ):
        kind(replay_capacity=50)
    with pytest.raises(
        JbrlError, match=f"^{kind.__name__} takes {memory} for one lifetime: expected at most"
    ):
        make_run(
            kind(hidden_width=width), Protocol(CATCH, CATCH, 1, 0, Episodes(1), 0.95)
        ).prepare()


def test_it_is_refused_before_compiling_where_memory_is_short(monkeypatch):
    """The buffers of two lanes alone take 8.01 MiB, of which 8 may be used."""
    protocol = Protocol(CATCH, CATCH, 1, 0, Episodes(1), 0.95)
    run = make_run(DQN(), protocol, resources=Resources(memory=2**23))
    monkeypatch.setattr(type(run), "programs", lambda *_: pytest.fail("compiled"))
    with pytest.raises(
        JbrlError, match=r"DQN takes [\d.]+ [MK]iB for \d+ lifetimes at once on one device"
    ):
        run.prepare()


def run_of(agent, n):
    run = make_run(agent, Protocol(CATCH, CATCH, n, 0, Episodes(40), 0.95))
    run.prepare()
    return run


class LeftError(Exception):
    """An interruption."""


def left_and_taken_up(run):
    """Scores of a run that is left after its first call, and taken up from what was kept."""
    kept = {}

    def leave(flight):
        kept.update(flight.arrays())
        raise LeftError

    with pytest.raises(LeftError):
        list(run.chunks(between=leave))
    taken_up = run.chunks(checkpoints=[(kept, 0.0)])
    return np.concatenate([chunk.returns for chunk in taken_up])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "n"),
    [(DQN(**SMALL), 2 * DQN.lanes + 1), (BootDQN(ensemble=3, **SMALL), 3)],
    ids=["DQN", "BootDQN"],
)
def test_groups_and_interruptions_keep_the_bits(agent, n):
    """Scores of the first lifetimes are those of many, and of a run that was left and taken up."""
    many = run_of(agent, n)
    expected = np.concatenate([chunk.returns for chunk in many.chunks()])
    if n > 3:
        np.testing.assert_array_equal(next(run_of(agent, 3).chunks()).returns, expected[:3])
    np.testing.assert_array_equal(left_and_taken_up(many), expected)
    assert len(np.unique(expected)) > 1


@pytest.mark.slow
def test_it_learns_to_catch():
    """A random paddle catches a fifth of the balls, a mean return of -0.6; after 600 episodes of
    learning the mean of all is above -0.2 in each of three lifetimes.
    """
    test = problem("Catch")
    agent = DQN(hidden_width=32, batch_size=16, replay_capacity=2000, epsilon=0.05)
    run = make_run(agent, Protocol(test, test, 3, 0, Episodes(600), 0.95))
    run.prepare()
    assert (next(run.chunks()).returns > -0.2).all()


def test_it_takes_each_kind_of_observation():
    for observation in (Box((2, 3)), Discrete(4)):
        spec = Spec(observation, Discrete(2))
        network = QNetwork.of(spec, 1, 3)
        assert network.widths == (3, 2)
        assert (network.inputs, network.lookup) == (
            (6, False) if spec.observation.shape else (4, True)
        )
