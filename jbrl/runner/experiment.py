"""The protocol: train on the prior, draw MDPs from the test distribution, play one trajectory on each, measure.

Castronovo et al. 2016, section 3.
"""

import dataclasses
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.agents.agent import Agent, as_arrays, check_agent
from jbrl.agents.searcher import Searcher
from jbrl.errors import JbrlError
from jbrl.mdp.dirichlet import Prior, draw_mdp, has_unit_concentrations
from jbrl.problems.problem import Problem, problem
from jbrl.runner import batching
from jbrl.runner.offline import Learned, Notebook, Trials, learn, train
from jbrl.runner.simulation import Trajectory, World, discounted, simulate, stream, world
from jbrl.runner.timing import device_name, timed
from jbrl.runner.unit import LATENCY_TRAJECTORIES


@dataclasses.dataclass(frozen=True)
class Protocol:
    """The rules of one experiment.

    Raises:
      JbrlError: a number out of range, or a prior that does not fit the test distribution.
    """

    prior: Problem
    test: Problem
    n_mdps: int = 500
    seed: int = 0
    horizon: int = 250
    discount: float = 0.95

    def __post_init__(self) -> None:
        _check_range("n_mdps", self.n_mdps, 1, 2**31 - 1)
        _check_range("seed", self.seed, 0, 2**32 - 1)
        _check_range("horizon", self.horizon, 1, 2**31 - 1)
        if not (isinstance(self.discount, int | float) and 0 <= self.discount < 1):
            raise JbrlError(f"discount = {self.discount!r}: expected a number from 0 up to, but not including, 1")
        told, met = self.prior.mdps, self.test.mdps
        if told.concentrations.shape != met.concentrations.shape:
            raise JbrlError(
                f"prior '{self.prior.name}' has {told.n_states} states and {told.n_actions} actions, "
                f"test '{self.test.name}' has {met.n_states} and {met.n_actions}: expected the same sizes"
            )
        if not np.array_equal(told.rewards, met.rewards):
            raise JbrlError(
                f"prior '{self.prior.name}' and test '{self.test.name}' have different rewards: expected the same, since agents know them"
            )

    def told(self) -> Prior:
        """What agents are given."""
        return Prior(self.prior.mdps, jnp.float32(self.discount), self.horizon)


def _check_range(field: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise JbrlError(f"{field} = {value!r}: expected an integer from {low} to {high}")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Results on consecutive MDPs, the first being number `start`."""

    start: int
    returns: np.ndarray  # [n] float64, discounted
    trajectories: dict[str, np.ndarray] | None  # states [n, T+1] int32, actions [n, T] int32, rewards [n, T] float32
    online_seconds: float  # wall time of all decisions of the chunk


@dataclasses.dataclass(frozen=True)
class Played:
    """Everything measured of one agent in one experiment. Times are wall seconds."""

    returns: np.ndarray  # [N] float64, discounted
    trajectories: dict[str, np.ndarray] | None
    offline_seconds: float
    online_seconds: float  # per decision, amortised over the MDPs played at once
    latency_seconds: float | None  # per decision with a single MDP
    compile_seconds: float
    device: str
    batch: int  # MDPs played at once
    learned: Learned | None = None  # what an agent that searches has found


class Run:
    """One agent in one experiment: `prepare()`, then `chunks()`, and `latency()` if wanted."""

    def __init__(
        self,
        agent: Agent,
        protocol: Protocol,
        *,
        record: bool = False,
        devices: list[jax.Device] | None = None,
        lanes: int | None = None,
    ) -> None:
        self.given = agent
        self._lanes = lanes  # MDPs that each device plays at once; None: as many as always
        self.protocol = protocol
        self.devices = devices or jax.devices()
        self.device = device_name(self.devices)
        self.offline_seconds = 0.0
        self.compile_seconds = 0.0
        self.knowledge: Any = None
        self.learned: Learned | None = None
        self._key = jax.random.key(protocol.seed)
        self._play = _play_recorded if record else _play

    def prepare(self, notebook: Notebook | None = None) -> None:
        """Train the agent and compile what will be played.

        Sets `agent`, the one that plays, its `knowledge`, `offline_seconds`, `compile_seconds`, `batch`, and `learned` if it has searched.

        Args:
          notebook: keeps what the agent finds, if it is one that searches.
        """
        protocol, prior = self.protocol, self.protocol.told()
        key = jax.random.fold_in(self._key, 2**32 - 1)
        if isinstance(self.given, Searcher):
            trials = Trials(prior, protocol.discount, key, self.devices)
            self.learned, self.compile_seconds = learn(self.given, protocol.seed, prior, trials, notebook or Notebook())
            self.offline_seconds = self.learned.seconds
        self.agent = as_arrays(self.learned.strategy if self.learned else self.given)
        learner = (self.agent, key, prior)
        idle = type(self.agent).train is Agent.train  # nothing to learn, no time to measure
        known = prior if idle else jax.eval_shape(train, *learner)
        self._test = (Prior(protocol.test.mdps, prior.discount, protocol.horizon), self._key)
        width = self._lanes or batching.lanes_per_device(self.agent, protocol.n_mdps, self.devices)
        (training, self._drawing, self._playing), compile_seconds = batching.compile_together(
            None if idle else lambda: batching.compile_once(train, *learner),
            lambda: self._draw_program(width, self.devices),
            lambda: self._play_program(known, width, self.devices),
        )
        self.batch = self._playing.capacity
        self.knowledge, seconds = timed(training.call, *learner) if training else (prior, 0.0)
        self.compile_seconds += compile_seconds
        self.offline_seconds += seconds
        self._shared = (self.agent, self.knowledge)

    @property
    def bytes_per_device(self) -> int:
        """Memory that playing takes on each device at a time, once prepared; 0 where the compiler does not say."""
        return self._playing.bytes

    def _draw_program(self, width: int, devices: list[jax.Device]) -> batching.Program:
        draw = _draw_unit if has_unit_concentrations(self.protocol.test.mdps) else _draw
        return batching.compile_mapped(draw, self._test, jax.ShapeDtypeStruct((), jnp.int32), width, devices)

    def _play_program(self, knowledge: Any, width: int, devices: list[jax.Device]) -> batching.Program:
        drawn = jax.eval_shape(_draw, self._test, jax.ShapeDtypeStruct((), jnp.int32))
        return batching.compile_mapped(self._play, (self.agent, knowledge), drawn, width, devices)

    def chunks(self, start: int = 0, size: int | None = None) -> Iterator[Chunk]:
        """Play MDPs `start`..N-1 in chunks of `size` (default: as many as one compiled call plays)."""
        size = size or self.batch
        for first in range(start, self.protocol.n_mdps, size):
            yield self._chunk(first, min(first + size, self.protocol.n_mdps))

    def _chunk(self, start: int, stop: int) -> Chunk:
        seconds, parts = 0.0, []
        for numbers, count in batching.groups(start, stop, self.batch):
            worlds = self._drawing.call(self._test, numbers)
            (trajectory, legal), elapsed = timed(self._playing.call, self._shared, worlds)
            seconds += elapsed
            if not np.asarray(legal)[:count].all():
                number = numbers[int(np.argmin(np.asarray(legal)))]
                raise JbrlError(f"{type(self.given).__name__}, on MDP {number}: {self.agent.refusal(self.protocol.test.mdps.n_actions)}")
            parts.append(jax.tree.map(lambda v, n=count: np.asarray(v)[:n], trajectory))
        played: Trajectory = jax.tree.map(lambda *v: np.concatenate(v), *parts)
        return Chunk(start, discounted(played.rewards, self.protocol.discount), _trajectories(played), seconds)

    def latency(self) -> float:
        """Wall seconds per decision when a single MDP is played at a time: the median over a few trajectories."""
        device = self.devices[:1]
        (drawing, playing), compile_seconds = batching.compile_together(
            lambda: self._draw_program(1, device), lambda: self._play_program(self.knowledge, 1, device)
        )
        shared = jax.device_put(self._shared, device[0])
        seconds = []
        for number in range(LATENCY_TRAJECTORIES):
            drawn = drawing.call(jax.device_put(self._test, device[0]), np.array([number], np.int32))
            seconds.append(timed(playing.call, shared, drawn)[1])
        self.compile_seconds += compile_seconds
        return statistics.median(seconds) / self.protocol.horizon


def play(
    agent: Agent,
    *,
    prior: str | Problem,
    test: str | Problem | None = None,
    n_mdps: int = 500,
    seed: int = 0,
    horizon: int = 250,
    discount: float = 0.95,
    record: bool = False,
    latency: bool = False,
) -> Played:
    """Play `agent`, told `prior`, on `n_mdps` MDPs drawn from `test` (default: from the prior itself).

    Args:
      prior, test: a catalogue name, the path of a JSON file, or a `Problem`.
      horizon: decisions in each trajectory.
      record: keep states, actions and rewards.
      latency: measure the time per decision with a single MDP as well.

    Raises:
      JbrlError: a parameter or a name that is not accepted.
    """
    batching.use_all_cores()
    check_agent(agent)
    told = _problem(prior)
    run = Run(agent, Protocol(told, told if test is None else _problem(test), n_mdps, seed, horizon, discount), record=record)
    run.prepare()
    parts = list(run.chunks())
    seconds = sum(part.online_seconds for part in parts) / (n_mdps * horizon)
    moves = [part.trajectories for part in parts if part.trajectories is not None]
    return Played(
        returns=np.concatenate([part.returns for part in parts]),
        trajectories={name: np.concatenate([m[name] for m in moves]) for name in moves[0]} if moves else None,
        offline_seconds=run.offline_seconds,
        online_seconds=seconds,
        latency_seconds=run.latency() if latency else None,
        compile_seconds=run.compile_seconds,
        device=run.device,
        batch=run.batch,
        learned=run.learned,
    )


def _problem(given: str | Problem) -> Problem:
    return given if isinstance(given, Problem) else problem(str(given), Path.cwd())


def _trajectories(played: Trajectory) -> dict[str, np.ndarray] | None:
    if played.states is None:
        return None
    return {"states": played.states, "actions": played.actions, "rewards": played.rewards}


# What follows is traced: functions of (what all MDPs share, what belongs to one MDP).


def _draw(shared: tuple[Prior, jax.Array], index: jax.Array) -> World:
    return _drawn(shared, index, unit=False)


def _draw_unit(shared: tuple[Prior, jax.Array], index: jax.Array) -> World:
    return _drawn(shared, index, unit=True)


def _drawn(shared: tuple[Prior, jax.Array], index: jax.Array, *, unit: bool) -> World:
    test, key = shared
    return world(draw_mdp(stream(key, index, "mdp"), test.mdps, unit=unit), key, index, test.horizon)


def _play(shared: tuple[Agent, Any], lane: World) -> tuple[Trajectory, jax.Array]:
    agent, knowledge = shared
    return simulate(agent, knowledge, lane, keep=False)


def _play_recorded(shared: tuple[Agent, Any], lane: World) -> tuple[Trajectory, jax.Array]:
    agent, knowledge = shared
    return simulate(agent, knowledge, lane, keep=True)
