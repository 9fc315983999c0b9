"""Lifetimes in blocks: the same scores however they are chunked, compacted, interrupted or spread;
clear words about what goes wrong.
"""

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step
from jbrl.environments.spec import Discrete, Episodes, Spec, Steps
from jbrl.play import blocks, lifetimes
from jbrl.play.blocks import (
    COPY_SHARE,
    FASTEST,
    LONGEST_BLOCK,
    SLOWEST,
    BlockScheduler,
    LifetimeRun,
)
from jbrl.play.lifetimes import Lifetimes
from jbrl.play.play import make_run, play
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.problems.lookup import problem
from jbrl.problems.problem import EnvironmentProblem
from jbrl.rollout.contract import SECONDS_PER_STEP, Agent, Cost
from jbrl.rollout.episodes import BLOCK
from tests.rollout.test_episodes import Faulty

N = 70


def run_of(
    n: int = N, *, devices: int = 2, lifetime: Any = None, agent: str = "Sarsa", **parameters: Any
) -> LifetimeRun:
    chain = problem("Chain-10s")
    protocol = Protocol(chain, chain, n, 3, lifetime or Episodes(15))
    run = make_run(
        AGENTS[agent].agent(**parameters), protocol, resources=Resources(jax.devices()[:devices])
    )
    assert isinstance(run, LifetimeRun)
    run.prepare()
    return run


def scores(run: LifetimeRun, **options: Any) -> np.ndarray:
    return np.concatenate([chunk.returns for chunk in run.chunks(**options)])


@pytest.fixture(scope="module", autouse=True)
def _narrow():
    """Groups of 16 lanes, so that a few lifetimes make several groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifetimes, "GROUP_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def expected():
    found = scores(run_of())
    assert np.unique(found).size > N / 2
    return found


@pytest.mark.first_case_quick
def test_chunks_devices_and_fewer_environments_change_nothing(expected):
    np.testing.assert_array_equal(scores(run_of(), size=9), expected)
    np.testing.assert_array_equal(scores(run_of(11, devices=1)), expected[:11])


LANE = 8192  # bytes, of which 32 lanes fit into the cache


@pytest.mark.parametrize(
    ("n", "memory", "options", "found"),  # memory in lanes
    [
        (65, 0, {}, (32, 2, 2)),
        (129, 256, {}, (32, 4, 2)),
        (129, 255, {}, (32, 2, 2)),
        (70, 63, {}, (32, 1, 1)),
        (70, 1, {}, (32, 1, 1)),
        (10**6, 0, {}, (32, 64, 2)),
        (129, 0, {"longest": 3.5}, (32, 2, 2)),
        (129, 0, {"longest": 0.5}, (32, 1, 2)),
        (129, 0, {"together": True}, (16, 8, 2)),
        (129, 0, {"on_cpu": False}, (128, 1, 2)),
        (129, 127, {"on_cpu": False}, (64, 1, 2)),
        (10**6, 10**5, {"on_cpu": False}, (16384, 1, 2)),
    ],
)
def test_the_lanes_of_a_call_by_hand(n, memory, options, found, monkeypatch):
    """As many as are wanted, as fit, and as let a block of all take seconds: so much may be lost by
    a kill.
    """
    options = {"on_cpu": True, "together": False, "longest": 1e9} | options
    agent = AGENTS["Random"].agent()
    protocol = SimpleNamespace(agent_prior=lambda: None, together=options["together"])
    devices = [SimpleNamespace(platform="gpu")] * 2
    resources = SimpleNamespace(devices=devices, on_cpu=options["on_cpu"], memory=4 * LANE * memory)
    monkeypatch.setattr(lifetimes, "GROUP_BYTES", 1 << 18)
    steps = LONGEST_BLOCK / (32 * BLOCK) / SECONDS_PER_STEP / options["longest"]
    monkeypatch.setattr(lifetimes, "cost", lambda *_: Cost(steps=steps))
    lanes = lifetimes.layout(agent, protocol, LANE, n, resources)
    assert (lanes.width, lanes.groups, lanes.devices) == found
    assert lanes.lanes == math.prod(found)
    widths = [lifetimes.group_width(agent, LANE * k // 4) for k in (0, 1, 4, 5, 8, 9, 100)]
    assert widths == [256, 128, 32, 16, 16, 16, 16]


def test_calls_are_longer_where_they_copy_much(monkeypatch):
    run = run_of()
    copied = run.scheduler.lane_bytes * run.scheduler.width * run.scheduler.max_groups
    for seconds, shortest in ((0.0, FASTEST), (2 * SLOWEST, 2 * FASTEST), (1e3, FASTEST * 10)):
        cost = seconds * COPY_SHARE / copied
        monkeypatch.setattr(blocks, "COPY_SECONDS", cost)
        longest = min(max(SLOWEST, seconds), LONGEST_BLOCK)
        assert [
            run.scheduler.next_blocks(8, elapsed)
            for elapsed in (0.9 * shortest, 1.1 * shortest, 0.9 * longest, 1.1 * longest)
        ] == [16, 8, 8, 4]
    assert run.scheduler.next_blocks(1, 2 * LONGEST_BLOCK) == 1


def test_compaction_changes_nothing_and_takes_place(expected, monkeypatch):
    moved = []
    plain = BlockScheduler.compact

    def compact(self: BlockScheduler, flight: Lifetimes) -> None:
        before = flight.groups.copy()
        plain(self, flight)
        moved.append((before != flight.groups).any())

    monkeypatch.setattr(BlockScheduler, "compact", compact)
    monkeypatch.setattr(blocks, "FASTEST", 0.0)  # one block a call
    np.testing.assert_array_equal(scores(run_of()), expected)
    assert any(moved)
    monkeypatch.setattr(BlockScheduler, "compact", lambda self, flight: None)
    np.testing.assert_array_equal(scores(run_of()), expected)


def test_lanes_move_together_as_soon_as_a_group_less_holds_them():
    scheduler = run_of().scheduler
    played = scheduler._begun(0, 0, N)
    assert played.groups.tolist() == [3, 2]  # of 16 lanes
    for left, groups in ((65, [3, 2]), (64, [2, 2]), (33, [2, 2]), (32, [1, 1])):
        played.numbers[played.numbers >= left] = -1
        scheduler.compact(played)
        assert played.groups.tolist() == groups
        live = played.numbers >= 0
        assert sorted(played.numbers[live]) == list(range(left))
        np.testing.assert_array_equal(played.states.index[live], played.numbers[live])


@pytest.mark.first_case_quick
@pytest.mark.parametrize("devices", [1, 2])
def test_interrupted_after_any_call_and_taken_up_on_other_devices(expected, devices, monkeypatch):
    monkeypatch.setattr(blocks, "FASTEST", 0.0)
    saved: list[dict[str, np.ndarray]] = []

    class EnoughError(Exception):
        pass

    run = run_of()

    def between(flight: Lifetimes) -> None:
        saved.append(flight.arrays())
        if len(saved) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        scores(run, between=between)
    for arrays in saved:
        later = run_of(devices=devices)
        np.testing.assert_array_equal(scores(later, checkpoints=[(arrays, 1.0)]), expected)


def test_memory_does_not_grow_with_the_lifetime():
    short, long = run_of(), run_of(lifetime=Episodes(10**6))
    assert short.bytes_per_device == long.bytes_per_device > 0


@pytest.mark.slow
def test_decisions_and_times_are_counted():
    played = play(
        AGENTS["Random"].agent(), test="Gridworld-5d", n_environments=30, episodes=2, latency=True
    )
    assert played.decisions == pytest.approx(-played.returns.sum() * 2)  # each step costs 1
    assert played.online_seconds > 0
    assert 0 < played.latency_seconds <= played.latency_p99_seconds
    steps = play(AGENTS["Random"].agent(), test="Gridworld-5d", n_environments=30, horizon=40)
    assert steps.decisions == 30 * 40


def environment(**changes: Any) -> EnvironmentProblem:
    return EnvironmentProblem(
        "Faulty", "Faulty", environment=Faulty(**changes), lifetime=Episodes(2, 50)
    )


STEP_3 = "environment 'Faulty', lifetime 0, step 3"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": float("nan")}, rf"{STEP_3} \(episode \d\): the reward is not a finite number"),
        ({"observation": float("nan")}, rf"{STEP_3} .*: the observation is NaN"),
        ({"truncated": True}, "both terminated and truncated: expected one of them"),
        ({"terminated": False}, "no end after 50 steps: expected terminated or truncated before"),
        ({"reward": 3e38}, "the score in environment 0 is nan: expected a finite number; sums"),
    ],
)
def test_what_an_environment_does_wrong_is_said(changes, message):
    with pytest.raises(JbrlError, match=message):
        play(AGENTS["Random"].agent(), test=environment(**changes), n_environments=3)


@record
class WithNothing(Agent[Any, Any]):
    """Its state has an array without entries."""

    def reset(self, key: jax.Array, knowledge: Any) -> Any:
        return jnp.zeros((0, 3)), jnp.zeros(2)

    def act(self, key: jax.Array, state: Any, observation: Any) -> tuple[jax.Array, Any]:
        return state[1][0].astype(jnp.int32), state


def test_a_state_may_hold_arrays_without_entries():
    fine = environment()
    played = play(WithNothing(), test=fine, n_environments=2, latency=True)
    np.testing.assert_array_equal(played.returns, 3.0)


# Studies refuse the others in `tests/study/test_episodic_study.py`.
@pytest.mark.parametrize(
    ("agent", "how", "message"),
    [
        ("BAMCP", {"test": "MountainCar"}, "BAMCP needs a Dirichlet prior over finite MDPs: 'Mou"),
        ("Random", {"test": "GC", "episodes": 3}, "the MDPs of 'GC' never end: expected horizon"),
        ("Random", {"test": "Chain-10d", "record": True}, "record = true: expected false"),
    ],
)
def test_what_cannot_be_played_is_refused_before_compiling(agent, how, message):
    with pytest.raises(JbrlError, match=message):
        play(agent, **how)


@record
class Level:
    value: Any  # [] float32


@record
class Spoiled(Environment[Level]):
    """Ends every third step; a number of the state that nobody sees is NaN from the start of an
    episode on, or never.
    """

    level: float = 0.0

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(4), Discrete(2))

    def reset(self, key: Any) -> tuple[tuple, Any]:
        return (jnp.int32(0), Level(jnp.float32(1.0) * self.level)), jnp.int32(0)

    def step(self, key: Any, state: tuple, action: Any) -> tuple[tuple, Step]:
        count, level = state
        return (count + 1, level), Step(count + 1, jnp.float32(1), count == 2, jnp.bool_(False))


@record
class Spoils(Agent[Any, Level]):
    """Plays action 0; its number is NaN after as many decisions."""

    after: int = 10**6

    def reset(self, key: Any, knowledge: Any) -> Level:
        return Level(jnp.float32(0))

    def act(self, key: Any, state: Level, observation: Any) -> tuple:
        return jnp.int32(0), state

    def observe(self, key: Any, state: Level, transition: Any) -> Level:
        return Level(
            jnp.where(state.value + 1 == self.after.astype(jnp.float32), jnp.nan, state.value + 1)
        )


def spoiled(agent: Spoils, level: float, lifetime: Any = None) -> Any:
    test = EnvironmentProblem(
        "Spoiled", "Spoiled", environment=Spoiled(level), lifetime=Episodes(2, 50)
    )
    run = make_run(agent, Protocol(test, test, 5, 0, lifetime or Episodes(2, 50)))
    run.prepare()
    return scores(run)


AGENT = r"Spoils, lifetime 0, step {} of 'Spoiled': NaN in \.value of its state"
TASK = r"environment 'Spoiled', lifetime 0, step {}: NaN in \[1\]\.value of its state"


@pytest.mark.parametrize(
    ("after", "level", "lifetime", "message"),
    [
        (5, 0.0, None, AGENT.format(r"6 \(episode 3\)") + ": expected numbers"),
        (200, 0.0, Steps(300), AGENT.format(r"256 \(episode 86\)")),
        (10**6, float("nan"), Steps(300), TASK.format(r"128 \(episode 43\)")),
    ],
    ids=["agent", "later", "environment"],
)
def test_nan_in_a_state_is_found_although_all_actions_are_legal(after, level, lifetime, message):
    with pytest.raises(JbrlError, match=message):
        spoiled(Spoils(after), level, lifetime)


def test_infinities_in_a_state_are_allowed():
    np.testing.assert_array_equal(spoiled(Spoils(), float("inf")), [3.0] * 5)
