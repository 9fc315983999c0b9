"""One agent in one experiment: train on the prior, draw environments, play one lifetime in
each, measure.

Castronovo et al. 2016, section 3.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.agents.complete import may_diverge
from jbrl.agents.registry import shown_name
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import draw_mdp, has_unit_concentrations
from jbrl.mdp.sampling import stream
from jbrl.play import batching, compilation
from jbrl.play.offline import Learned, SearchCheckpoint, Trials, learn, train
from jbrl.play.protocol import Chunk, Protocol, failure_of
from jbrl.play.resources import Resources
from jbrl.play.timing import Duration, device_name, timed, timed_repeatedly
from jbrl.play.unit import LATENCY_TRAJECTORIES
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Agent, OfflineSearch, as_arrays
from jbrl.rollout.faults import ILLEGAL_ACTION, nan_path, said_of_nan
from jbrl.rollout.steps import RolloutInputs, Trajectory, begin, discounted, draw_inputs, play_steps


class Checked(NamedTuple):
    """Trajectories on the host, and which of them have failed."""

    trajectory: Trajectory
    failed: np.ndarray  # [n] bool
    failure: str  # why the first of them did; "": none


class Run:
    """One agent in one experiment: `prepare()`, then `chunks()`, and `latency()` if wanted.

    Args:
      resources: what it may use; devices and memory limit how many MDPs are played at once.
      lanes: MDPs on each device at once; None: as many as suit the device.
    """

    def __init__(
        self,
        agent: Agent,
        protocol: Protocol,
        *,
        record: bool = False,
        resources: Resources | None = None,
        lanes: int | None = None,
    ) -> None:
        self.given = agent
        self._lanes = lanes
        self.protocol = protocol
        self.record = record
        self.resources = resources or Resources()
        self.devices = self.resources.devices
        self.device = device_name(self.devices)
        self.batch = 0
        self.offline_seconds = 0.0
        self.offline_spread = 0.0  # seconds, as `Duration.spread`
        self.compile_seconds = 0.0
        self.knowledge: Any = None
        self.learned: Learned | None = None
        self._key = protocol.test.key(protocol.seed)
        self.test: tuple[Any, jax.Array] = (protocol.test_prior(), self._key)

    def prepare(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Train the agent and compile what will be played.

        Sets `agent`, the one that plays, its `knowledge`, `offline_seconds`, `compile_seconds`,
        `batch`, and `learned` if it has searched.

        Args:
          checkpoint: keeps what the agent finds, if it is one that searches.

        Raises:
          JbrlError: the memory that may be used does not suffice.
        """
        self.choose(checkpoint)
        self.train(self._compile(self.training()))

    def choose(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Set `agent`, the one that plays: for an agent that searches, what it finds."""
        if isinstance(self.given, OfflineSearch):
            prior: Any = self.protocol.agent_prior()  # Dirichlet, as `requires` says
            protocol = self.protocol
            # CPUs have their own width, for any memory
            lanes = None if self.resources.on_cpu else self._lanes
            memory = self.resources.memory
            trials = Trials(prior, protocol.discount, self._own, self.devices, lanes, memory)
            self.learned, self.compile_seconds = learn(
                self.given, protocol.seed, prior, trials, checkpoint or SearchCheckpoint()
            )
            self.offline_seconds, self.offline_spread = self.learned.seconds, math.nan
        self.agent = as_arrays(self.learned.strategy if self.learned else self.given)
        self._learner = jax.device_put(
            (self.agent, self._own, self.protocol.agent_prior()), self.devices[0]
        )

    def training(self) -> Callable[[], compilation.Program] | None:
        """Return the task that compiles the training of the agent; None where there is nothing to
        learn, and no time to measure.
        """
        return (
            None
            if type(self.agent).train is Agent.train
            else lambda: compilation.compile_once(train, *self._learner)
        )

    def train(self, program: compilation.Program | None) -> None:
        """Train the agent: sets `knowledge` and adds to `offline_seconds` and
        `offline_spread`.

        Raises:
          FloatingPointError: what it has learned is not a number: it would choose by it without
            an error.
        """
        self.knowledge = self._learner[-1]
        if program is None:
            return
        self.knowledge, took = timed_repeatedly(program.call, *self._learner)
        self.offline_seconds += took.seconds
        self.offline_spread += took.spread
        for path, values in jax.tree.leaves_with_path(self.knowledge):
            if jnp.issubdtype(values.dtype, jnp.floating) and np.isnan(np.asarray(values)).any():
                raise FloatingPointError(
                    f"{type(self.agent).__name__}.train returned NaN in "
                    f"{jax.tree_util.keystr(path) or 'its knowledge'}"
                )

    @property
    def bytes_per_device(self) -> int:
        """Memory that playing takes on each device at a time, once prepared; 0 where the compiler
        does not say.
        """
        return self._playing.bytes

    def programs(
        self, width: int, devices: Sequence[jax.Device], groups: int = 1
    ) -> tuple[Callable[[], compilation.Program], ...]:
        """Return the tasks that compile the drawing of MDPs and the playing."""
        number = jax.ShapeDtypeStruct((), jnp.int32)
        draw = _draw_unit if has_unit_concentrations(self.test[0].mdps) else _draw
        shared = (
            self.agent,
            self.knowledge if self.knowledge is not None else jax.eval_shape(train, *self._learner),
        )
        drawn = jax.eval_shape(_draw, self.test, number)
        play = _play_recorded if self.record else _play
        return (
            lambda: batching.compile_mapped(draw, self.test, number, width, devices, groups),
            lambda: batching.compile_mapped(play, shared, drawn, width, devices, groups),
        )

    def _compile(
        self, training: Callable[[], compilation.Program] | None
    ) -> compilation.Program | None:
        """Compile all that is needed at the greatest width that the memory allows; return the
        program that trains.
        """
        width = self._lanes or batching.lanes_per_device(
            self.agent, self.protocol.n_environments, self.devices
        )
        while True:
            (trained, self._drawing, self._playing), seconds = compilation.compile_together(
                training, *self.programs(width, self.devices)
            )
            self.compile_seconds += seconds
            smaller = self.resources.smaller(
                self._playing.bytes, width, self.devices, shown_name(self.given)
            )
            if smaller is None:
                self.batch, self.device = self._playing.capacity, device_name(self.devices)
                return trained
            width, self.devices = smaller

    def chunks(self, start: int = 0, size: int | None = None) -> Iterator[Chunk]:
        """Play MDPs `start`..N-1 in chunks of `size` (default: as many as one compiled
        call plays).
        """
        size = size or self.batch
        shared, test = (
            batching.spread([one] * len(self.devices), self.devices)
            for one in ((self.agent, self.knowledge), self.test)
        )
        for first in range(start, self.protocol.n_environments, size):
            stop, parts = min(first + size, self.protocol.n_environments), []
            seconds, spread = 0.0, 0.0
            for numbers, count in batching.groups(first, stop, self.batch):
                played, took = self.resources.turns.timed(
                    self._playing.call, shared, self._drawing.call(test, numbers)
                )
                seconds += took.seconds
                spread += took.spread
                parts.append(self.checked(played, numbers, count))
            yield self.chunk(first, parts, Duration(seconds, spread))

    def checked(
        self, played: tuple[Trajectory, jax.Array], numbers: np.ndarray, count: int
    ) -> Checked:
        """Return the first `count` trajectories, on the host, of what has been played on
        MDPs `numbers`.

        Raises:
          JbrlError: the agent has chosen an action that is none, or its state holds NaN at the end,
            and the agent is none that `MayDiverge`.
        """
        trajectory, faults = jax.tree.map(lambda v: np.asarray(v)[:count], played)
        failed, failure = faults != 0, ""
        if failed.any():
            first = int(np.flatnonzero(failed)[0])
            where = (
                f"{shown_name(self.given)}, on MDP {numbers[first]} of "
                f"'{self.protocol.test.short_name}'"
            )
            failure = f"{where}: {self._refusal(int(faults[first]))}"
            if not may_diverge(self.agent):
                raise JbrlError(failure)
        return Checked(trajectory, failed, failure)

    def _refusal(self, fault: int) -> str:
        """Return the agent's mistake."""
        if fault == ILLEGAL_ACTION or may_diverge(self.agent):
            return self.agent.refusal(self.protocol.test.spec.actions.n)
        number = jax.ShapeDtypeStruct((), jnp.int32)
        _, state = jax.eval_shape(
            begin, self.agent, self.knowledge, jax.eval_shape(_draw, self.test, number)
        )
        return said_of_nan(nan_path(state, fault))

    def chunk(self, start: int, parts: Sequence[Checked], took: Duration) -> Chunk:
        """Return results of consecutive trajectories."""
        played: Trajectory = jax.tree.map(
            lambda *v: np.concatenate(v), *(part.trajectory for part in parts)
        )
        failed = np.concatenate([part.failed for part in parts])
        returns = discounted(played.rewards, self.protocol.discount)
        return Chunk(
            start,
            np.where(failed, np.nan, returns),
            _trajectories(played),
            took.seconds,
            played.rewards.size,
            online_spread=took.spread,
            failed=failed,
            failure=failure_of(parts),
        )

    def latency(self) -> float:
        """Return wall seconds per decision when a single MDP is played at a time: the median over a
        few trajectories.
        """
        device = self.devices[:1]
        (drawing, playing), compile_seconds = compilation.compile_together(
            *self.programs(1, device)
        )
        shared, test = (
            batching.spread([one], device) for one in ((self.agent, self.knowledge), self.test)
        )
        self.compile_seconds += compile_seconds
        inputs = (
            drawing.call(test, np.array([number], np.int32))
            for number in range(LATENCY_TRAJECTORIES)
        )
        seconds = [timed(playing.call, shared, drawn)[1] for drawn in inputs]
        return statistics.median(seconds) / self.protocol.horizon

    def shortened(self, n_environments: int, horizon: int) -> "Run":
        """Return the same agent, with the same knowledge, in fewer and shorter trajectories, ready
        to be played.
        """
        protocol = dataclasses.replace(
            self.protocol, n_environments=n_environments, lifetime=Steps(horizon)
        )
        short = type(self)(self.given, protocol, resources=self.resources, lanes=self._lanes)
        short.agent, short.knowledge = self.agent, self.knowledge
        short._compile(None)
        return short

    @property
    def _own(self) -> jax.Array:
        """Key of what happens before the first MDP."""
        return jax.random.fold_in(self._key, 2**32 - 1)


def _trajectories(played: Trajectory) -> dict[str, np.ndarray] | None:
    if played.states is None:
        return None
    return {"states": played.states, "actions": played.actions, "rewards": played.rewards}


# What follows is traced: functions of (what all MDPs share, what belongs to one MDP).


@compilation.untimed
def _draw(shared: tuple[DirichletPrior, jax.Array], index: jax.Array) -> RolloutInputs:
    return _drawn(shared, index, unit=False)


@compilation.untimed
def _draw_unit(shared: tuple[DirichletPrior, jax.Array], index: jax.Array) -> RolloutInputs:
    return _drawn(shared, index, unit=True)


def _drawn(
    shared: tuple[DirichletPrior, jax.Array], index: jax.Array, *, unit: bool
) -> RolloutInputs:
    test, key = shared
    return draw_inputs(
        draw_mdp(stream(key, index, "mdp"), test.mdps, unit=unit), key, index, test.horizon
    )


def _play(shared: tuple[Agent, Any], lane: RolloutInputs) -> tuple[Trajectory, jax.Array]:
    agent, knowledge = shared
    return play_steps(agent, knowledge, lane, keep=False)


def _play_recorded(shared: tuple[Agent, Any], lane: RolloutInputs) -> tuple[Trajectory, jax.Array]:
    agent, knowledge = shared
    return play_steps(agent, knowledge, lane, keep=True)
