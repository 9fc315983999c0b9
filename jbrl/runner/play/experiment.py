"""The protocol: train on the prior, draw MDPs from the test distribution, play one trajectory on each, measure.

Castronovo et al. 2016, section 3.
"""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
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
from jbrl.rollout.rollout import RolloutInputs, Trajectory, discounted, inputs, simulate, stream
from jbrl.runner.play import batching
from jbrl.runner.play.offline import Learned, SearchCheckpoint, Trials, learn, train
from jbrl.runner.play.resources import Resources
from jbrl.runner.play.timing import device_name, timed
from jbrl.runner.storage.unit import LATENCY_TRAJECTORIES


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
    """One agent in one experiment: `prepare()`, then `chunks()`, and `latency()` if wanted.

    Args:
      resources: what it may use; devices and memory limit how many MDPs are played at once.
      lanes: MDPs on each device at once; None: as many as suit the device.
    """

    def __init__(
        self, agent: Agent, protocol: Protocol, *, record: bool = False, resources: Resources | None = None, lanes: int | None = None
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
        self.compile_seconds = 0.0
        self.knowledge: Any = None
        self.learned: Learned | None = None
        self._key = jax.random.key(protocol.seed)
        self.test = (Prior(protocol.test.mdps, jnp.float32(protocol.discount), protocol.horizon), self._key)

    def prepare(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Train the agent and compile what will be played.

        Sets `agent`, the one that plays, its `knowledge`, `offline_seconds`, `compile_seconds`, `batch`, and `learned` if it has searched.

        Args:
          checkpoint: keeps what the agent finds, if it is one that searches.

        Raises:
          JbrlError: the memory that may be used does not suffice.
        """
        self.choose(checkpoint)
        self.train(self._compile(self.training()))

    def choose(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Set `agent`, the one that plays: for an agent that searches, what it finds."""
        if isinstance(self.given, Searcher):
            prior, protocol = self.protocol.told(), self.protocol
            lanes = None if self.resources.on_cpu else self._lanes  # CPUs have their own width, whatever the memory
            trials = Trials(prior, protocol.discount, self._own, self.devices, lanes)
            self.learned, self.compile_seconds = learn(self.given, protocol.seed, prior, trials, checkpoint or SearchCheckpoint())
            self.offline_seconds = self.learned.seconds
        self.agent = as_arrays(self.learned.strategy if self.learned else self.given)
        self._learner = jax.device_put((self.agent, self._own, self.protocol.told()), self.devices[0])

    def training(self) -> Callable[[], batching.Program] | None:
        """What compiles the training of the agent; None where there is nothing to learn, and no time to measure."""
        return None if type(self.agent).train is Agent.train else lambda: batching.compile_once(train, *self._learner)

    def train(self, program: batching.Program | None) -> None:
        """Train the agent: sets `knowledge` and adds to `offline_seconds`.

        Raises:
          FloatingPointError: what it has learned is not a number: it would choose by it without an error.
        """
        self.knowledge, seconds = timed(program.call, *self._learner) if program else (self._learner[-1], 0.0)
        self.offline_seconds += seconds
        for path, values in jax.tree.leaves_with_path(self.knowledge):
            if jnp.issubdtype(values.dtype, jnp.floating) and np.isnan(np.asarray(values)).any():
                raise FloatingPointError(
                    f"{type(self.agent).__name__}.train returned NaN in {jax.tree_util.keystr(path) or 'its knowledge'}"
                )

    @property
    def bytes_per_device(self) -> int:
        """Memory that playing takes on each device at a time, once prepared; 0 where the compiler does not say."""
        return self._playing.bytes

    def programs(self, width: int, devices: Sequence[jax.Device], groups: int = 1) -> tuple[Callable[[], batching.Program], ...]:
        """What compiles the drawing of MDPs and the playing."""
        number = jax.ShapeDtypeStruct((), jnp.int32)
        draw = _draw_unit if has_unit_concentrations(self.protocol.test.mdps) else _draw
        shared = (self.agent, self.knowledge if self.knowledge is not None else jax.eval_shape(train, *self._learner))
        drawn = jax.eval_shape(_draw, self.test, number)
        play = _play_recorded if self.record else _play
        return (
            lambda: batching.compile_mapped(draw, self.test, number, width, devices, groups),
            lambda: batching.compile_mapped(play, shared, drawn, width, devices, groups),
        )

    def _compile(self, training: Callable[[], batching.Program] | None) -> batching.Program | None:
        """Compile all that is needed at the greatest width that the memory allows; the program that trains."""
        width = self._lanes or batching.lanes_per_device(self.agent, self.protocol.n_mdps, self.devices)
        while True:
            (trained, self._drawing, self._playing), seconds = batching.compile_together(training, *self.programs(width, self.devices))
            self.compile_seconds += seconds
            smaller = self.resources.smaller(self._playing.bytes, width, self.devices, type(self.given).__name__)
            if smaller is None:
                self.batch, self.device = self._playing.capacity, device_name(self.devices)
                return trained
            width, self.devices = smaller

    def chunks(self, start: int = 0, size: int | None = None) -> Iterator[Chunk]:
        """Play MDPs `start`..N-1 in chunks of `size` (default: as many as one compiled call plays)."""
        size = size or self.batch
        shared, test = (batching.spread([one] * len(self.devices), self.devices) for one in ((self.agent, self.knowledge), self.test))
        for first in range(start, self.protocol.n_mdps, size):
            stop, seconds, parts = min(first + size, self.protocol.n_mdps), 0.0, []
            for numbers, count in batching.groups(first, stop, self.batch):
                played, elapsed = timed(self._playing.call, shared, self._drawing.call(test, numbers))
                seconds += elapsed
                parts.append(self.legal(played, numbers, count))
            yield self.chunk(first, parts, seconds)

    def legal(self, played: tuple[Trajectory, jax.Array], numbers: np.ndarray, count: int) -> Trajectory:
        """The first `count` trajectories, on the host, of what has been played on MDPs `numbers`.

        Raises:
          JbrlError: the agent has chosen an action that is none.
        """
        trajectory, legal = played
        if not np.asarray(legal)[:count].all():
            number = numbers[int(np.argmin(np.asarray(legal)))]
            raise JbrlError(f"{type(self.given).__name__}, on MDP {number}: {self.agent.refusal(self.protocol.test.mdps.n_actions)}")
        return jax.tree.map(lambda v: np.asarray(v)[:count], trajectory)

    def chunk(self, start: int, parts: Sequence[Trajectory], seconds: float) -> Chunk:
        """Results of consecutive trajectories."""
        played: Trajectory = jax.tree.map(lambda *v: np.concatenate(v), *parts)
        return Chunk(start, discounted(played.rewards, self.protocol.discount), _trajectories(played), seconds)

    def latency(self) -> float:
        """Wall seconds per decision when a single MDP is played at a time: the median over a few trajectories."""
        device = self.devices[:1]
        (drawing, playing), compile_seconds = batching.compile_together(*self.programs(1, device))
        shared, test = (batching.spread([one], device) for one in ((self.agent, self.knowledge), self.test))
        self.compile_seconds += compile_seconds
        inputs = (drawing.call(test, np.array([number], np.int32)) for number in range(LATENCY_TRAJECTORIES))
        seconds = [timed(playing.call, shared, drawn)[1] for drawn in inputs]
        return statistics.median(seconds) / self.protocol.horizon

    def shortened(self, n_mdps: int, horizon: int) -> "Run":
        """The same agent, with the same knowledge, in fewer and shorter trajectories, ready to be played."""
        protocol = dataclasses.replace(self.protocol, n_mdps=n_mdps, horizon=horizon)
        short = Run(self.given, protocol, resources=self.resources, lanes=self._lanes)
        short.agent, short.knowledge = self.agent, self.knowledge
        short._compile(None)
        return short

    @property
    def _own(self) -> jax.Array:
        """Key of what happens before the first MDP."""
        return jax.random.fold_in(self._key, 2**32 - 1)


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


def _draw(shared: tuple[Prior, jax.Array], index: jax.Array) -> RolloutInputs:
    return _drawn(shared, index, unit=False)


def _draw_unit(shared: tuple[Prior, jax.Array], index: jax.Array) -> RolloutInputs:
    return _drawn(shared, index, unit=True)


def _drawn(shared: tuple[Prior, jax.Array], index: jax.Array, *, unit: bool) -> RolloutInputs:
    test, key = shared
    return inputs(draw_mdp(stream(key, index, "mdp"), test.mdps, unit=unit), key, index, test.horizon)


def _play(shared: tuple[Agent, Any], lane: RolloutInputs) -> tuple[Trajectory, jax.Array]:
    agent, knowledge = shared
    return simulate(agent, knowledge, lane, keep=False)


def _play_recorded(shared: tuple[Agent, Any], lane: RolloutInputs) -> tuple[Trajectory, jax.Array]:
    agent, knowledge = shared
    return simulate(agent, knowledge, lane, keep=True)
