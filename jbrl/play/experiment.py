"""One agent in one experiment: train on the prior, draw environments, play one lifetime in each,
measure; here in finite MDPs, for T decisions.

Castronovo et al. 2016, section 3.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from jbrl.agents.complete import may_diverge
from jbrl.agents.registry import shown_name
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.play import batching, compilation
from jbrl.play.compilation import Program
from jbrl.play.offline import Learned, SearchCheckpoint, Trials, learn
from jbrl.play.protocol import Chunk, Protocol, Trained, joined
from jbrl.play.resources import Resources
from jbrl.play.scheduler import Results, Scheduler
from jbrl.play.stepping import Latency, Player, measure
from jbrl.play.timing import BRIEF, Duration, clocked, known, timed_repeatedly
from jbrl.play.unit import LATENCY_DECISIONS
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Agent, OfflineSearch, Oracle, as_arrays
from jbrl.rollout.faults import ILLEGAL_ACTION, begin, nan_path, said_of_nan, train
from jbrl.rollout.steps import RolloutInputs, Trajectory, discounted, draw_rollout, play_steps

TIMED_DECISIONS = 25  # of each trajectory that is played for its time alone


class Run:
    """One agent in one experiment: `prepare()`, then `chunks()`, and `latency()` if wanted.

    Args:
      resources: what it may use; devices and memory limit how many MDPs are played at once.
      lanes: MDPs on each device at once; None: as many as suit the device.

    Raises:
      JbrlError: trajectories of lifetimes in blocks are asked for.

    Attributes:
      agent: the one that plays; `knowledge`: what it has learned on the prior; both once chosen and
        trained.
      learned: what an agent that searches has found.
      scheduler: plays this run alone.
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
        if record and protocol.in_blocks:
            raise JbrlError(
                f"record = true: expected false for '{protocol.test.short_name}': trajectories of "
                "episodes are not kept"
            )
        self.given, self.protocol, self.record, self.lanes = agent, protocol, record, lanes
        self.resources = resources or Resources()
        self.offline_seconds = 0.0
        self.offline_spread = 0.0  # seconds, as `Duration.spread`
        self.offline_processor = math.nan  # seconds of training; of a search, of all threads
        self.compile_seconds = 0.0
        self.knowledge: Any = None
        self.learned: Learned | None = None
        self.key = protocol.test.key(protocol.seed)
        self.test: tuple[Any, Array] = (protocol.test_prior(), self.key)
        self.scheduler = self.schedule([self])

    def schedule(self, runs: "Sequence[Run]") -> Scheduler:
        """Return the player of several runs of this kind."""
        return MDPScheduler(runs)

    @property
    def devices(self) -> list[jax.Device]:
        """Devices that are used, as `Scheduler.devices`."""
        return self.scheduler.devices

    @property
    def device(self) -> str:
        return self.scheduler.device

    @property
    def batch(self) -> int:
        """Lifetimes played at once, once prepared."""
        return self.scheduler.batch

    @property
    def bytes_per_device(self) -> int:
        return self.scheduler.bytes_per_device

    def prepare(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Train the agent and compile what will be played, as `Scheduler.prepare`."""
        self.scheduler.prepare(checkpoint)

    def chunks(self, start: int = 0, size: int | None = None, **options: Any) -> Iterator[Chunk]:
        """Play lifetimes `start`..N-1 in chunks of `size`, at most as many as are played at once.

        Args:
          options: of `Scheduler.results`.
        """
        for results in self.scheduler.results([start], size, **options):
            for _, result in results:
                if isinstance(result, BaseException):
                    raise result
                yield result

    # ---- the agent ----

    def choose(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Set `agent`, the one that plays: for an agent that searches, what it finds."""
        own = jax.random.fold_in(self.key, 2**32 - 1)  # key of what happens before the first MDP
        prior: Any = self.protocol.agent_prior()
        devices = self.resources.devices
        if isinstance(self.given, OfflineSearch):  # the prior is Dirichlet, as `requires` says
            # CPUs have their own width, for any memory
            lanes = None if self.resources.on_cpu else self.lanes
            discount, memory = self.protocol.discount, self.resources.memory
            self.learned, self.compile_seconds = learn(
                self.given,
                self.protocol.seed,
                prior,
                Trials(prior, discount, own, devices, lanes, memory),
                checkpoint or SearchCheckpoint(),
            )
            self.offline_seconds, self.offline_spread = self.learned.seconds, math.nan
            self.offline_processor = self.per_device(self.learned.processor, 1)
        self.agent = as_arrays(self.learned.strategy if self.learned else self.given)
        self.learner = jax.device_put((self.agent, own, prior), devices[0])

    def learn(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Set `agent` and `knowledge`, and compile nothing that plays."""
        self.choose(checkpoint)
        task = self.training()
        (program,), seconds = compilation.compile_together(task)
        self.compile_seconds += seconds
        self.train(program)

    def compile(self) -> None:
        """Compile what plays, once the agent is trained: `prepare` is `learn` and this, at once."""
        self.scheduler.compile(None)

    def trained(self) -> Trained:
        """Return the agent and what it has learned, apart from the programs that play."""
        return Trained(
            self.given,
            self.agent,
            self.knowledge,
            self.protocol,
            self.learned,
            self.offline_seconds,
            self.compile_seconds,
        )

    def training(self) -> Callable[[], Program] | None:
        """Return the task that compiles the training of the agent; None where there is nothing to
        learn, and no time to measure.
        """
        if type(self.agent).train is Agent.train:
            return None
        return lambda: compilation.compile_once(train, *self.learner)

    def train(self, program: Program | None) -> None:
        """Train the agent: sets `knowledge` and adds to `offline_seconds` and `offline_spread`.

        Raises:
          FloatingPointError: what it has learned is not a number: it would choose by it without
            an error.
        """
        self.knowledge = self.learner[-1]
        if program is None:
            return
        self.knowledge, took = timed_repeatedly(program.call, *self.learner)
        self.offline_seconds += took.seconds
        self.offline_spread += took.spread
        if self.learned is None:
            self.offline_processor = self.per_device(took.processor, 1)
        for path, values in jax.tree.leaves_with_path(self.knowledge):
            if jnp.issubdtype(values.dtype, jnp.floating) and np.isnan(np.asarray(values)).any():
                raise FloatingPointError(
                    f"{type(self.agent).__name__}.train returned NaN in "
                    f"{jax.tree_util.keystr(path) or 'its knowledge'}"
                )

    def knowledge_shapes(self) -> Any:
        """Return the knowledge, or its shapes before the agent is trained."""
        if self.knowledge is not None:
            return self.knowledge
        return compilation.shapes_of(train, *self.learner)

    # ---- playing ----

    def programs(
        self, width: int, devices: Sequence[jax.Device], groups: int
    ) -> tuple[Callable[[], Program], ...]:
        """Return the tasks that compile the drawing of environments, or the beginning of lifetimes,
        and the playing: `groups` groups of `width` lanes on each device.
        """
        number = jax.ShapeDtypeStruct((), jnp.int32)
        draw = _draw_unit if has_unit_concentrations(self.test[0].mdps) else _draw
        shared = (self.agent, self.knowledge_shapes())
        drawn = compilation.shapes_of(_draw, self.test, number)
        play = _play_recorded if self.record else _play
        return (
            lambda: batching.compile_mapped(draw, self.test, number, width, devices, groups),
            lambda: batching.compile_mapped(play, shared, drawn, width, devices, groups),
        )

    def checked(
        self, played: tuple[Trajectory, Array], numbers: npt.NDArray[Any], count: int
    ) -> Chunk:
        """Return the results of the first `count` trajectories of what has been played on MDPs
        `numbers`, without times.

        Raises:
          JbrlError: the agent has chosen an action that is none, or its state holds NaN at the end,
            and the agent is none that `MayDiverge`.
        """
        trajectory, faults = jax.tree.map(lambda v: np.asarray(v)[:count], played)
        failed, failure = faults != 0, ""
        if failed.any():
            first = int(np.flatnonzero(failed)[0])
            problem = self.protocol.test.short_name
            where = f"{shown_name(self.given)}, on MDP {numbers[first]} of '{problem}'"
            failure = f"{where}: {self._refusal(int(faults[first]))}"
            if not may_diverge(self.agent):
                raise JbrlError(failure)
        rewards = trajectory.rewards
        returns = np.where(failed, np.nan, discounted(rewards, self.protocol.discount))
        moves = {name: getattr(trajectory, name) for name in ("states", "actions", "rewards")}
        return Chunk(
            start=int(numbers[0]),
            returns=returns,
            trajectories=moves if self.record else None,
            online_seconds=0.0,
            decisions=rewards.size,
            failed=failed,
            failure=failure,
        )

    def _refusal(self, fault: int) -> str:
        """Return the agent's mistake."""
        if fault == ILLEGAL_ACTION or may_diverge(self.agent):
            return self.agent.refusal(self.protocol.test.spec.actions.n)
        drawn = jax.eval_shape(_draw, self.test, jax.ShapeDtypeStruct((), jnp.int32))
        given = (self.agent, self.knowledge, drawn.own, drawn.environment)
        _, state = jax.eval_shape(begin, *given)
        return said_of_nan(nan_path(state, fault))

    def per_device(self, processor: float, working: int) -> float:
        """Return the processor seconds of each CPU device that worked; NaN on accelerators, for
        which the processor only waits.
        """
        return processor / max(1, working) if self.resources.on_cpu else math.nan

    # ---- times of this run alone ----

    def latency(self) -> Latency:
        """Return the wall seconds of one decision to a caller who plays one lifetime."""
        prior, knowledge = self.test[0], self.knowledge
        if isinstance(self.agent, Oracle):
            reveal = jax.jit(lambda agent, known, key: agent.reveal(known, prior.sample(key)))
            knowledge = reveal(self.agent, knowledge, self.key)
        player = Player(self.agent, knowledge, prior.spec, self.protocol.in_blocks)
        found = measure(player, prior, LATENCY_DECISIONS)
        self.compile_seconds += found.compile_seconds
        return found

    def times(self, *, latency: bool) -> dict[str, Any]:
        """Return times of a run that was played beside others, by itself, on shorter trajectories:
        `online_seconds` per decision, the latency, and on how much that was `timed`.
        """
        horizon = min(self.protocol.horizon, TIMED_DECISIONS)
        short = self.shortened(self.protocol.n_environments, horizon)
        chunk = next(short.chunks())
        n = len(chunk.returns)
        times = {
            "online_seconds": chunk.online_seconds / (n * horizon),
            "online_seconds_spread": known(chunk.online_spread / (n * horizon)),
            "online_processor_seconds": known(chunk.processor_seconds / (n * horizon)),
            **(self.latency().columns() if latency else {}),
            "timed": {"mdps": n, "decisions": horizon},
        }
        self.compile_seconds += short.compile_seconds
        return times

    def shortened(self, n_environments: int, horizon: int) -> "Run":
        """Return the same agent, with the same knowledge, in fewer and shorter trajectories, ready
        to be played.
        """
        protocol = dataclasses.replace(
            self.protocol, n_environments=n_environments, lifetime=Steps(horizon)
        )
        short = type(self)(self.given, protocol, resources=self.resources, lanes=self.lanes)
        short.agent, short.knowledge = self.agent, self.knowledge
        short.scheduler.compile(None)
        return short


class MDPScheduler(Scheduler):
    """Scheduler of lifetimes of T decisions in finite MDPs, of one length.

    MDPs are played in groups, each a few MDPs of one run, as many groups in a call as fit: on CPUs
    one on each core, on accelerators as many as fit. On CPUs the program is the one that plays a
    single run. Lanes of several runs share a clock, which does not measure one of them.

    Args:
      groups: at once on each device; None: one on CPUs and for a single run, on accelerators as
        many as there are and the memory allows.

    Attributes:
      at_once: how many runs the lifetimes of a call belong to.
    """

    runs: Sequence[Run]

    def __init__(self, runs: Sequence[Run], groups: int | None = None) -> None:
        super().__init__(runs)
        self._groups = groups

    def compile(self, training: Callable[[], Program] | None) -> Program | None:
        first, alone = self.runs[0], len(self.runs) == 1
        test, n = first.protocol.test, first.protocol.n_environments
        width = (first.lanes if alone else None) or batching.lanes_per_device(
            first.agent, test, n, self.devices if alone else self.devices[:1]
        )
        groups = self._groups or (1 if alone else self._wanted(width))
        trained, self._drawing, self._playing = self.compile_to_fit(training, width, groups)
        self.at_once = max(1, min(len(self.runs), self.batch // (self.width * -(-n // self.width))))
        return trained

    def _wanted(self, width: int) -> int:
        """Return the number of groups at once on each device, for several runs."""
        if self.resources.on_cpu:
            return 1
        groups_of_run = -(-self.runs[0].protocol.n_environments // width)
        in_all = -(-len(self.runs) * groups_of_run // len(self.devices))
        return max(1, min(in_all, batching.WIDEST_ON_ACCELERATOR // width))

    def results(
        self, starts: Sequence[int], size: int | None = None, **options: Any
    ) -> Iterator[Results]:
        size = min(size or self.batch, self.batch)
        self._placed: tuple[list[Run], Any] = ([], None)
        self._seconds = 0.0  # that calls have taken
        call: list[tuple[int, npt.NDArray[Any], int]] = []
        if self.errors:
            yield list(self.errors.items())
        for number, run in enumerate(self.runs):
            if number in self.errors:
                continue
            for first in range(starts[number], run.protocol.n_environments, size):
                stop = min(first + size, run.protocol.n_environments)
                for numbers, count in batching.groups(first, stop, self.width):
                    call.append((number, numbers, count))
                    if len(call) * self.width == self.batch:
                        yield self._played(call)
                        call = []
                if call and len(self.runs) == 1:
                    yield self._played(call)
                    call = []
        if call:
            yield self._played(call)

    def _played(self, call: Sequence[tuple[int, npt.NDArray[Any], int]]) -> Results:
        """Play groups at once, the last one repeated where fewer are left.

        Args:
          call: of each group the number of a run, its MDPs, and how many of them count.
        """
        missing = self.batch // self.width - len(call)
        numbers = np.concatenate([mdps for _, mdps, _ in (*call, *[call[-1]] * missing)])
        shared, test = self._shared([self.runs[k] for k, _, _ in (*call, *[call[-1]] * missing)])
        drawn = self._drawing.call(test, numbers)
        # Only a run by itself is measured by the clock of its calls; of many calls only the first
        # need to be repeated.
        repeated = len(self.runs) == 1 and self._seconds < BRIEF
        clock = self.resources.turns.timed if repeated else clocked
        played, took = clock(self._playing.call, shared, drawn)
        self._seconds += took.seconds
        groups = jax.tree.map(lambda v: np.asarray(v).reshape(-1, self.width, *v.shape[1:]), played)
        parts = [
            (*group, jax.tree.map(lambda v, k=k: v[k], groups)) for k, group in enumerate(call)
        ]
        total = sum(count for _, _, count in call)
        return [
            (number, self._chunk(self.runs[number], list(of_run), total, took))
            for number, of_run in itertools.groupby(parts, key=lambda part: part[0])
        ]

    def _shared(self, runs: list[Run]) -> Any:
        """Return what the lanes of each group share, on the devices; the runs are those of the
        groups.
        """
        if list(map(id, runs)) != list(map(id, self._placed[0])):
            spread = (
                batching.spread(data, self.devices)
                for data in ([(r.agent, r.knowledge) for r in runs], [r.test for r in runs])
            )
            self._placed = (runs, tuple(spread))
        return self._placed[1]

    def _chunk(
        self, run: Run, parts: Sequence[tuple[Any, ...]], total: int, took: Duration
    ) -> Chunk | BaseException:
        """Return the results of consecutive groups of a run; `total` MDPs have counted."""
        try:
            whole = joined([run.checked(played, numbers, n) for _, numbers, n, played in parts])
            seconds, spread, processor = (v * len(whole.returns) / total for v in took)
            return dataclasses.replace(
                whole,
                online_seconds=seconds,
                online_spread=spread,
                processor_seconds=run.per_device(processor, len(run.devices)),
            )
        except (Exception, SystemExit) as error:  # an error of one agent: the others continue
            return error


# What follows is traced: functions of (what all MDPs share, what belongs to one MDP).


def _drawn(shared: tuple[DirichletPrior, Array], index: Array, *, unit: bool) -> RolloutInputs:
    return draw_rollout(*shared, index, unit=unit)


def _played(
    shared: tuple[Agent, Any], lane: RolloutInputs, *, keep: bool
) -> tuple[Trajectory, Array]:
    return play_steps(*shared, lane, keep=keep)


_draw, _draw_unit = (
    compilation.untimed(functools.partial(_drawn, unit=unit)) for unit in (False, True)
)
_play, _play_recorded = (functools.partial(_played, keep=keep) for keep in (False, True))
