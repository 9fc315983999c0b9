"""Lifetimes in blocks: the same scores however they are chunked, compacted, interrupted or spread; clear words about what goes wrong."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jbrl.agents.agent import AGENTS
from jbrl.agents.complete import build
from jbrl.environments.lifetime import Episodes
from jbrl.errors import JbrlError
from jbrl.problems.problem import EnvironmentProblem, problem
from jbrl.runner.play.lifetimes import Flight, LifetimeRun
from jbrl.runner.play.play import make_run, play
from jbrl.runner.play.protocol import Protocol
from jbrl.runner.play.resources import Resources
from tests.rollout.test_episodes import Faulty

N = 70


def run_of(n: int = N, *, devices: int = 2, lifetime: Any = None, agent: str = "Sarsa", **parameters: Any) -> LifetimeRun:
    chain = problem("Chain-10s")
    protocol = Protocol(chain, chain, n, 3, lifetime or Episodes(15))
    run = make_run(AGENTS[agent].agent(**parameters), protocol, resources=Resources(jax.devices()[:devices]))
    assert isinstance(run, LifetimeRun)
    run.prepare()
    return run


def scores(run: LifetimeRun, **options: Any) -> np.ndarray:
    return np.concatenate([chunk.returns for chunk in run.chunks(**options)])


@pytest.fixture(scope="module", autouse=True)
def _narrow() -> Iterator[None]:
    """Groups of 16 lanes, so that a few lifetimes make several groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jbrl.runner.play.lifetimes.GROUP_BYTES", 1)
        yield


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    found = scores(run_of())
    assert np.unique(found).size > N / 2
    return found


def test_chunks_devices_and_fewer_environments_change_nothing(expected: np.ndarray) -> None:
    np.testing.assert_array_equal(scores(run_of(), size=9), expected)
    np.testing.assert_array_equal(scores(run_of(devices=1)), expected)
    np.testing.assert_array_equal(scores(run_of(11)), expected[:11])


def test_compaction_changes_nothing_and_takes_place(expected: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    plain = LifetimeRun._compact

    def compact(self: LifetimeRun, flight: Flight) -> None:
        before = flight.groups.copy()
        plain(self, flight)
        moved.append((before != flight.groups).any())

    monkeypatch.setattr(LifetimeRun, "_compact", compact)
    monkeypatch.setattr("jbrl.runner.play.lifetimes.FASTEST", 0.0)  # one block a call
    np.testing.assert_array_equal(scores(run_of()), expected)
    assert any(moved)
    monkeypatch.setattr(LifetimeRun, "_compact", lambda self, flight: None)
    np.testing.assert_array_equal(scores(run_of()), expected)


@pytest.mark.parametrize("devices", [1, 2])
def test_interrupted_after_any_call_and_taken_up_on_other_devices(
    expected: np.ndarray, devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jbrl.runner.play.lifetimes.FASTEST", 0.0)
    saved: list[dict[str, np.ndarray]] = []

    class EnoughError(Exception):
        pass

    run = run_of()

    def between(flight: Flight) -> None:
        saved.append(run.saved(flight))
        if len(saved) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        scores(run, between=between)
    for arrays in saved:
        later = run_of(devices=devices)
        assert later.fits(arrays)
        np.testing.assert_array_equal(scores(later, flight=later.restored(arrays, 1.0)), expected)


def test_memory_does_not_grow_with_the_lifetime() -> None:
    short, long = run_of(lifetime=Episodes(2)), run_of(lifetime=Episodes(10**6))
    assert short.bytes_per_device == long.bytes_per_device > 0


def test_complete_agents_draw_for_each_lifetime() -> None:
    agent, _ = build(AGENTS["Sarsa"].agent, {"alpha": {"log_uniform": [0.001, 0.1]}}, "here")
    chain = problem("Chain-10d")
    protocol = Protocol(chain, chain, 20, 0, Episodes(3))
    run = make_run(agent, protocol)
    run.prepare()
    found = np.concatenate([chunk.returns for chunk in run.chunks()])
    assert np.unique(found).size > 10
    fixed = make_run(AGENTS["Sarsa"].agent(alpha=0.1), protocol)
    fixed.prepare()
    assert not np.array_equal(np.concatenate([chunk.returns for chunk in fixed.chunks()]), found)


def test_decisions_and_times_are_counted() -> None:
    played = play(AGENTS["Random"].agent(), test="Gridworld-5d", n_environments=30, episodes=2, latency=True)
    assert played.decisions == pytest.approx(-played.returns.sum() * 2)  # each step costs 1
    assert played.online_seconds > 0
    assert played.latency_seconds is not None
    assert played.latency_seconds > 0
    steps = play(AGENTS["Random"].agent(), test="Gridworld-5d", n_environments=30, horizon=40)
    assert steps.decisions == 30 * 40


def environment(**changes: Any) -> EnvironmentProblem:
    return EnvironmentProblem("Faulty", "Faulty", environment=Faulty(**changes), lifetime=Episodes(2, 50))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": float("nan")}, r"environment 'Faulty', lifetime 0, step 3 \(episode \d\): the reward is not a finite number"),
        ({"observation": float("nan")}, r"environment 'Faulty', lifetime 0, step 3 .*: the observation is NaN"),
        ({"truncated": True}, "both terminated and truncated: expected one of them"),
        ({"terminated": False}, "no end after 50 steps: expected terminated or truncated before"),
    ],
)
def test_what_an_environment_does_wrong_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JbrlError, match=message):
        play(AGENTS["Random"].agent(), test=environment(**changes), n_environments=3)


def test_what_cannot_be_played_is_refused_before_compiling() -> None:
    with pytest.raises(JbrlError, match="BAMCP needs a Dirichlet prior over finite MDPs: 'MountainCar' offers"):
        play(AGENTS["BAMCP"].agent(), test="MountainCar")
    with pytest.raises(JbrlError, match=r"Q.?[Ll]earning needs discrete states or one-hot observations: 'MountainCar' offers arrays"):
        play(AGENTS["Q-learning"].agent(), test="MountainCar")
    with pytest.raises(JbrlError, match=r"prior 'GChain distribution' has observations Discrete\(5\) .*: expected the same"):
        play(AGENTS["Random"].agent(), prior="GC", test="Chain-10d")
    with pytest.raises(JbrlError, match="episodes = 3: the MDPs of 'GC' never end: expected horizon"):
        play(AGENTS["Random"].agent(), test="GC", episodes=3)
    with pytest.raises(JbrlError, match="both horizon = 5 and episodes = 3: expected one of them"):
        play(AGENTS["Random"].agent(), test="Chain-10d", horizon=5, episodes=3)
    with pytest.raises(JbrlError, match="episodes = 0: expected an integer from 1"):
        play(AGENTS["Random"].agent(), test="Chain-10d", episodes=0)
    with pytest.raises(JbrlError, match="record = true: expected false"):
        play(AGENTS["Random"].agent(), test="Chain-10d", record=True)
