"""The protocol, from the agent to the returns."""

import dataclasses
import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jbrl.agents.bayes.mean_model import EpsilonGreedy, Optimal
from jbrl.agents.opps.opps import OPPSDS
from jbrl.agents.registry import AGENTS, register_agent
from jbrl.agents.scripted import Random
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Steps
from jbrl.play import batching, compilation, experiment, stepping
from jbrl.play.experiment import Run
from jbrl.play.play import play
from jbrl.play.protocol import Chunk, Protocol, joined
from jbrl.play.resources import Resources
from jbrl.play.timing import BRIEF, Duration
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Agent, Stepwise
from jbrl.rollout.steps import discounted


def protocol(**changes) -> Protocol:
    gc = problem("GC")
    return dataclasses.replace(Protocol(gc, gc, n_environments=20, lifetime=Steps(12)), **changes)


def prepared(agent, of: Protocol, **options) -> Run:
    run = Run(agent, of, **options)
    run.prepare()
    return run


def all_returns(run: Run, **how) -> np.ndarray:
    run.prepare()
    return np.concatenate([chunk.returns for chunk in run.chunks(**how)])


def test_random_has_the_published_mean_return_on_gc():
    # 31.6 in 500 runs of the C++ program; standard error of ours 0.5 and of theirs 0.5: false alarm
    # rate 0.3 %.
    played = play(Random(), prior="GC", n_environments=500, seed=1)
    error = played.returns.std(ddof=1) / np.sqrt(500)
    assert abs(played.returns.mean() - 31.6) < 3 * np.hypot(error, 0.5)


def test_returns_are_the_discounted_sums_of_the_recorded_rewards():
    (chunk,) = prepared(Random(), protocol(discount=0.5), record=True).chunks()
    rewards = chunk.trajectories["rewards"].astype(np.float64)
    expected = [sum(r * 0.5**t for t, r in enumerate(row)) for row in rewards]
    np.testing.assert_allclose(chunk.returns, expected, rtol=1e-12)
    assert chunk.returns.dtype == np.float64


def test_recorded_moves_are_possible_and_earn_their_rewards():
    (chunk,) = prepared(Random(), protocol(), record=True).chunks()
    moves, gc = chunk.trajectories, problem("GC").mdps
    x, y, u = moves["states"][:, :-1], moves["states"][:, 1:], moves["actions"]
    assert moves["states"].shape == (20, 13) and u.shape == (20, 12)
    assert (np.asarray(gc.concentrations)[x, u, y] > 0).all()
    np.testing.assert_array_equal(np.asarray(gc.rewards)[x, u, y], moves["rewards"])
    assert (moves["states"][:, 0] == 0).all()


@pytest.fixture(scope="module")
def expected():
    """Of one call, on all devices."""
    return all_returns(Run(Random(), protocol()))


@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_chunks_of_any_size_give_the_same_bits(expected, size):
    np.testing.assert_array_equal(all_returns(Run(Random(), protocol()), size=size), expected)


def test_devices_records_starts_and_numbers_of_mdps_give_the_same_bits_and_seeds_others(expected):
    def returns(start=0, record=False, devices=2, **changes):
        resources = Resources(jax.devices()[:devices])
        run = Run(Random(), protocol(**changes), record=record, resources=resources)
        return all_returns(run, start=start)

    for how in ({"record": True}, {"devices": 1}, {"start": 13}, {"n_environments": 600}):
        np.testing.assert_array_equal(returns(**how)[:20], expected[how.get("start", 0) :])
    assert not np.array_equal(returns(seed=1), expected)


@record
class Taught(Agent):
    """Learns the mean reward of each action, and plays the action of the greatest."""

    def train(self, key, prior):
        return prior.mdps.rewards.mean((0, 2))

    def reset(self, key, knowledge):
        return knowledge

    def act(self, key, state, x):
        return jnp.argmax(state).astype(jnp.int32), state


@pytest.mark.parametrize(
    "agent", [Taught(), pytest.param(OPPSDS("F1", 20), marks=pytest.mark.slow)], ids=["one", "two"]
)
def test_an_agent_learns_or_searches_on_the_device_that_it_plays_on(agent):
    second, few = jax.devices()[1], protocol(n_environments=4, lifetime=Steps(3))
    run = prepared(agent, few, resources=Resources([second]))
    assert {device for leaf in jax.tree.leaves(run.knowledge) for device in leaf.devices()} == {
        second
    }
    assert len(next(run.chunks()).returns) == 4


def test_times_are_measured_and_compilation_is_counted_once():
    changed = protocol(lifetime=Steps(13))
    first, second, learner = (prepared(of, changed) for of in (Random(), Random(), Taught()))
    assert first.compile_seconds > 0 and second.compile_seconds == 0
    assert all(chunk.online_seconds > 0 for chunk in second.chunks())
    assert second.latency().median > 0
    assert first.offline_seconds == 0 and learner.offline_seconds > 0


def test_processor_seconds_before_a_lifetime_are_those_of_all_threads(monkeypatch):
    searching, training = Run(OPPSDS("F1", 20), protocol()), Run(Taught(), protocol())
    found = SimpleNamespace(strategy=Random(), seconds=4.0, processor=3.0)
    monkeypatch.setattr(experiment, "learn", lambda *_: (found, 0.5))
    searching.choose()
    assert (searching.offline_seconds, searching.offline_processor) == (4.0, 3.0)
    took = Duration(2.0, 0.1, 1.5)
    monkeypatch.setattr(experiment, "timed_repeatedly", lambda *_: (jnp.zeros(3), took))
    training.choose()
    training.train(SimpleNamespace(call=None))
    assert (training.offline_seconds, training.offline_processor) == (2.0, 1.5)


@record
class NoState:
    pass


class Constant(Agent[None, NoState]):
    """An agent that always says the same."""

    def reset(self, key, knowledge):
        return NoState()

    def act(self, key, state, x):
        return jnp.asarray(self.action), state


@pytest.mark.parametrize(
    ("value", "message"), [(3, r"outside 0\.\.2"), (1.0, "scalar int32")], ids=["3", "1.0"]
)
def test_an_illegal_action_is_reported(value, message, monkeypatch):
    monkeypatch.setattr("jbrl.agents.registry.AGENTS", {})

    @register_agent("constant")
    class Agent(Constant):
        action: type(value) = value

    with pytest.raises(JbrlError, match=message):
        all_returns(Run(Agent(), protocol()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_environments": 0}, "n_environments = 0"),
        ({"n_environments": 2.5}, "n_environments = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 2**32}, "seed"),
        ({"discount": 1.0}, "discount = 1.0"),
        ({"discount": -0.1}, "discount = -0.1"),
        ({"discount": float("nan")}, "discount = nan"),
    ],
)
def test_numbers_out_of_range_are_refused(changes, words):
    with pytest.raises(JbrlError, match=words):
        protocol(**changes)


def test_a_prior_of_another_size_or_with_other_rewards_is_refused():
    gc = problem("GC")
    other = dataclasses.replace(gc, mdps=dataclasses.replace(gc.mdps, rewards=gc.mdps.rewards + 1))
    for prior, message in ((problem("GDL"), "same sizes"), (other, "different rewards")):
        with pytest.raises(JbrlError, match=message):
            protocol(prior=prior)


def test_accelerators_get_a_power_of_two_and_cpus_their_fixed_width():
    class Device:
        platform = "gpu"

    def lanes(n, devices):
        return batching.lanes_per_device(Random(), problem("GC"), n, devices)

    assert lanes(500, jax.devices()) == Random.lanes
    assert [lanes(500, [Device()]), lanes(500, [Device(), Device()])] == [512, 256]
    assert lanes(10**6, [Device()]) == batching.WIDEST_ON_ACCELERATOR


@pytest.mark.parametrize(
    ("name", "lanes"),
    [("GC", 256), ("GDL", 256), ("GC(n_states=20)", 128), ("Grid", 64), ("GC(n_states=50)", 64)],
)
def test_models_of_all_lanes_stay_in_the_cache_of_a_core(name, lanes):
    assert batching.lanes_on_cpu(EpsilonGreedy(), problem(name)) == lanes
    assert batching.lanes_on_cpu(Random(), problem(name)) == Random.lanes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["e-Greedy", "BEB", "Soft-max", "Optimal", "PSRL", "Formula"])
def test_no_bit_depends_on_how_many_models_the_cache_holds(name, monkeypatch):
    grid = problem("Grid")
    played = Protocol(grid, grid, n_environments=256, lifetime=Steps(60))
    returns = []
    for cache, fewest in ((0, 16), (2**20, 64), (2**20, 256)):
        monkeypatch.setattr(batching, "CACHE", cache)
        monkeypatch.setattr(batching, "FEWEST", fewest)
        run = Run(AGENTS[name].agent(), played, resources=Resources(jax.devices()[:1]))
        returns.append(all_returns(run))
        assert run.scheduler.width == fewest
    np.testing.assert_array_equal(returns[0], returns[2])
    np.testing.assert_array_equal(returns[1], returns[2])


def test_of_many_calls_of_a_run_only_the_first_are_repeated_for_the_clock(monkeypatch):
    monkeypatch.setattr(Random, "lanes", 8)
    resources = Resources(jax.devices()[:1])
    run = prepared(Random(), protocol(n_environments=40), resources=resources)
    repeated = []

    def timed(call, *arguments):
        repeated.append(call)
        return call(*arguments), Duration(0.6 * BRIEF)

    monkeypatch.setattr(resources.turns, "timed", timed)
    for count in (2, 4):  # as many of each of the two passes
        assert len(list(run.chunks())) == 5 and len(repeated) == count


def test_groups_cover_each_lane_once():
    seen = np.concatenate([numbers[:count] for numbers, count in batching.groups(3, 30, 8)])
    np.testing.assert_array_equal(seen, np.arange(3, 30))
    assert all(len(numbers) == 8 and numbers.max() < 30 for numbers, _ in batching.groups(3, 30, 8))


@given(st.integers(1, 200), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_deals_give_each_lane_to_one_device_in_order(n_lanes, width, n_devices, most):
    seen = []
    for deal in batching.calls(n_lanes, width, n_devices, most):
        dealt = deal.lanes.reshape(n_devices, most * width)
        assert dealt.min() >= 0 and dealt.max() < n_lanes
        assert (
            deal.blocks.min() >= 0
            and deal.blocks.max() == -(-deal.blocks.sum() // n_devices) <= most
        )
        seen.append(
            np.concatenate(
                [lanes[: n * width] for lanes, n in zip(dealt, deal.blocks, strict=True)]
            )[: deal.wanted]
        )
    assert len(seen) == -(-n_lanes // (width * n_devices * most))
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(n_lanes))


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 150), st.integers(1, 20)),
        elements=st.floats(-100, 100, width=32),
    ),
    st.floats(0, 1),
)
def test_returns_hang_on_their_own_rewards_alone(rewards, discount):
    returns = discounted(rewards, discount)
    np.testing.assert_array_equal(returns, [discounted(row[None], discount)[0] for row in rewards])
    # every operation rounded by itself, as IEEE 754 has it on any processor
    horner = functools.partial(functools.reduce, lambda total, r: total * discount + float(r))
    twin = [horner(row[::-1], 0.0) for row in rewards]
    np.testing.assert_array_equal(returns, twin)
    sums = [sum(float(r) * discount**t for t, r in enumerate(row)) for row in rewards]
    np.testing.assert_allclose(returns, sums, rtol=1e-12, atol=1e-12)


def test_options_that_the_compiler_does_not_have_are_left_out():
    everything = compilation.ON_CPU | compilation.QUICKLY
    if jax.__version__.startswith("0.10."):  # newer versions of XLA lack some
        assert compilation.options("cpu") == compilation.ON_CPU
        assert compilation.options("cpu", "quick") == everything
    assert compilation.options("cpu").items() <= compilation.ON_CPU.items()
    assert compilation.options("cpu", "quick").items() <= everything.items()
    assert compilation.options("gpu") == compilation.options("cuda") == compilation.ON_GPU
    assert compilation.options("gpu", "quick") == compilation.options("tpu") == {}
    assert not compilation.known("xla_cpu_of_another_time", "")


@record
class Numbers:
    ready: jax.Array  # [] bool
    bound: jax.Array  # [] float32, infinite by design
    value: jax.Array  # [] float32, NaN once state 3 has been seen


@record
class Spoils(Agent[None, Numbers]):
    """Plays action 0, whatever has become of its numbers."""

    def reset(self, key, knowledge):
        return Numbers(jnp.bool_(True), jnp.float32(-jnp.inf), jnp.float32(0.0))

    def act(self, key, state, x):
        return jnp.int32(0), state

    def observe(self, key, state, transition):
        value = jnp.where(transition.next_observation == 3, jnp.nan, state.value)
        return dataclasses.replace(state, value=value)


@record
class SpoilsAtItsOwnPace(Spoils, Stepwise):
    """The same, for the other loop."""

    def add_transition(self, state, transition):
        return jax.tree.map(
            lambda new, old: jnp.where(state.ready, new, old),
            self.observe(None, state, transition),
            state,
        )

    def improve(self, state):
        return state

    def converged(self, state):
        return state.ready


@pytest.mark.parametrize("cls", [Spoils, SpoilsAtItsOwnPace])
def test_nan_in_the_state_is_found_although_all_actions_are_legal(cls, monkeypatch):
    """Named: the agent, the first MDP in which it happens, the problem and the field."""
    at_all = prepared(cls(), protocol(seed=1), record=True)
    with monkeypatch.context() as patch:
        check = Run.checked

        def without_faults(run, played, *given):
            return check(run, (played[0], 0 * played[1]), *given)

        patch.setattr(Run, "checked", without_faults)
        (chunk,) = at_all.chunks()
    met = (chunk.trajectories["states"][:, 1:] == 3).any(axis=1)
    first = int(np.argmax(met))
    assert first > 0 and not met.all(), "some MDPs are without"
    words = (
        rf"{cls.__name__}, on MDP {first} of 'GC': NaN in \.value of its state: expected numbers "
        r"or infinities"
    )
    for options in ({}, {"size": 3}):
        with pytest.raises(JbrlError, match=words):
            all_returns(Run(cls(), protocol(seed=1)), **options)
    np.testing.assert_array_equal(
        all_returns(Run(cls(), protocol(seed=1, n_environments=first))), chunk.returns[:first]
    )


def test_latency_is_of_one_decision_with_what_is_learned_from_it(monkeypatch):
    """256 decisions take 1, 2, … 256 ms, half of it for learning; those before are warm-up.
    An oracle is shown an environment.
    """
    for agent in (Random(), Optimal()):
        run = prepared(agent, protocol(n_environments=2))
        numbers = itertools.count(2 - 2 * stepping.WARM)
        monkeypatch.setattr(stepping, "since", lambda _, n=numbers: max(0, next(n) // 2) / 2000)
        found = run.latency().columns()
        assert found == pytest.approx({"latency_seconds": 0.1285, "latency_p99_seconds": 0.254})


def test_chunks_that_are_joined_begin_where_the_first_does():
    parts = [
        Chunk(
            start=start,
            returns=np.array([start, start + 1.0]),
            trajectories=None,
            online_seconds=1.5,
            decisions=4,
        )
        for start in (6, 8)
    ]
    whole = joined(parts)
    assert (whole.start, whole.online_seconds, whole.decisions) == (6, 3.0, 8)
    assert whole.returns.tolist() == [6, 7, 8, 9] and not whole.lost.any()
    assert joined([]).start == 0
