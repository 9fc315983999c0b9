"""One agent in one experiment whose lifetimes are played in blocks of steps: episodes, and
environments that are no finite MDPs.

Lifetimes differ in length by orders of magnitude. A call plays some blocks of all lanes; after it
the host takes the results of the lifetimes that are over, and when at most half of the groups are
needed, the lanes that go on move together, so that one long lifetime does not occupy the lanes of a
hundred finished ones. Every group is as wide as every other on CPUs, so neither this, nor the
number of devices, nor an interruption changes a bit. Memory is that of the lanes and of one block,
for any number of steps.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jbrl.agents.registry import shown_name
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Lifetime
from jbrl.play import batching, compilation
from jbrl.play.experiment import Run
from jbrl.play.flight import OF_LIFETIMES, Flight, deal
from jbrl.play.mistakes import Mistakes
from jbrl.play.offline import train
from jbrl.play.protocol import Chunk, Protocol
from jbrl.play.resources import Resources
from jbrl.play.timing import device_name, interrupts_deferred, timed
from jbrl.play.unit import LATENCY_STEPS, LATENCY_TRAJECTORIES
from jbrl.rollout import episodes
from jbrl.rollout.contract import SECONDS_PER_STEP, Agent, Measured, Sized, cost
from jbrl.rollout.episodes import Lane, Rules

GROUP_BYTES = 1 << 18  # of the states of one group on a CPU: what stays in the cache of a core
NARROWEST = 16  # lanes of a group: fewer would not pay for calling the operations of a step
MAX_LANES = 4096  # at once on all devices, where memory allows
# Seconds that a block of all lanes may take by the cost that the agent states, which may be several
# times too low: between blocks, checkpoints are written and interruptions heard.
LONGEST_BLOCK = 5.0
MEMORY_SHARE = 0.5  # of the memory, for the states of all lanes: a call may hold them twice
# seconds between which a call should take: often enough to compact, seldom enough to cost nothing
FASTEST, SLOWEST = 0.2, 0.5
# Seconds of a call for each byte of its lanes' states on a CPU, which it copies to fresh memory,
# and the share of its time that they may take, unless it took longer than `LONGEST_BLOCK` then.
COPY_SECONDS, COPY_SHARE = 1.2e-9, 0.02
COUNTS = ("steps", "episodes", "fault")  # of a lane, which the host looks at after each call


def group_width(agent: Agent, lane_bytes: int) -> int:
    """Return the lanes of a group on a CPU, the state of each of so many bytes."""
    fitting = 1 << (max(1, GROUP_BYTES // max(1, lane_bytes)).bit_length() - 1)
    return min(agent.lanes, max(NARROWEST, fitting))


class LifetimeRun(Run):
    """Variant of `Run` for lifetimes that are played in blocks.

    Raises:
      JbrlError: trajectories are asked for.
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
        if record:
            raise JbrlError(
                f"record = true: expected false for '{protocol.test.short_name}': trajectories of "
                "episodes are not kept"
            )
        super().__init__(agent, protocol, resources=resources, lanes=lanes)

    @property
    def rules(self) -> Rules:
        """Rules that all lanes share."""
        problem: Any = self.protocol.test
        return Rules(
            self.agent, problem.environment, problem.recorder, self._key, self.protocol.lifetime
        )

    @property
    def bytes_per_device(self) -> int:
        return self._advancing.bytes

    def _compile(
        self, training: Callable[[], compilation.Program] | None
    ) -> compilation.Program | None:
        knowledge = jax.eval_shape(train, *self._learner)
        lane = self._shapes(knowledge)
        self._lane_bytes = sum(math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(lane))
        self._width = self._group_width()
        name = shown_name(self.given)
        # before compiling, which takes longer than saying so, and may take more memory than playing
        self.resources.smaller(self._lane_bytes * self._width, self._width, self.devices[:1], name)
        self._max_groups = self._groups_per_device()
        while True:
            programs, seconds = self._compiled(
                training, knowledge, lane, self._width, self.devices, self._max_groups
            )
            self.compile_seconds += seconds
            trained, self._beginning, self._advancing = programs
            if self._max_groups == 1 or self.resources.fits(
                self._advancing.bytes, len(self.devices)
            ):
                break
            self._max_groups //= 2
        self.resources.smaller(self._advancing.bytes, self._width, self.devices[:1], name)
        self.batch, self.device = (
            self._width * self._max_groups * len(self.devices),
            device_name(self.devices),
        )
        return trained

    def _compiled(
        self,
        training: Any,
        knowledge: Any,
        lane: Any,
        width: int,
        devices: Sequence[jax.Device],
        max_groups: int,
    ) -> tuple[list[Any], float]:
        shared, number = (self.rules, knowledge), jax.ShapeDtypeStruct((), jnp.int32)
        begin, advance = self._traced
        return compilation.compile_together(
            training,
            lambda: batching.compile_mapped(begin, shared, number, width, devices, max_groups),
            lambda: batching.compile_groups(advance, self.shared, lane, width, devices, max_groups),
        )

    @property
    def shared(self) -> Any:
        """Data that all lanes of a block share."""
        return self.rules

    @property
    def _traced(self) -> tuple[Callable, Callable]:
        """Function of (rules, knowledge) and a number that begins a lifetime, and function that
        plays blocks.
        """
        return _begin, _advance

    def _shapes(self, knowledge: Any) -> Any:
        """Return one lane, as shapes."""
        number = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.eval_shape(self._traced[0], (self.rules, knowledge), number)

    def _group_width(self) -> int:
        """Return the lanes of a group: on CPUs by the size of a state alone, so that results depend
        on nothing else.
        """
        if not self.resources.on_cpu:
            return batching.lanes_per_device(self.agent, self.protocol.n_environments, self.devices)
        return group_width(self.agent, self._lane_bytes)

    def _groups_per_device(self) -> int:
        wanted = -(
            -min(self.protocol.n_environments, MAX_LANES) // (self._width * len(self.devices))
        )
        memory = self.resources.memory or math.inf
        share = MEMORY_SHARE * memory / (len(self.devices) if self.resources.on_cpu else 1)
        fitting = max(1, int(min(2**20, share // (self._lane_bytes * self._width))))
        if self.resources.on_cpu:
            steps = cost(self.given, self.protocol.agent_prior()).steps
            seconds = steps * SECONDS_PER_STEP * self._width * episodes.BLOCK
            fitting = max(1, int(min(fitting, LONGEST_BLOCK / max(seconds, 1e-9))))
        return (
            1 << (min(wanted, fitting) - 1).bit_length()
            if wanted <= fitting
            else 1 << (fitting.bit_length() - 1)
        )

    def chunks(
        self,
        start: int = 0,
        size: int | None = None,
        *,
        flight: Flight | None = None,
        between: Callable[[Flight], Any] | None = None,
    ) -> Iterator[Chunk]:
        """Play lifetimes `start`..N-1 in chunks of `size`.

        Args:
          flight: lifetimes that an interrupted run had begun (`restored`), the first of them
            number `start`.
          between: called after each call with the running lifetimes; what it raises ends the run,
            which can go on from there.
        """
        size = size or self.batch
        self._shared = batching.spread([self.shared] * len(self.devices), self.devices)
        first = start
        while first < self.protocol.n_environments:
            if flight is None:
                flight = self._begun(
                    first, min(first + min(size, self.batch), self.protocol.n_environments)
                )
            blocks = 1
            while not flight.over.all():
                elapsed = self._call(flight, blocks)
                blocks = self._next_blocks(blocks, elapsed)
                if between and not flight.over.all():
                    between(flight)
            yield self._finished(flight)
            first, flight = flight.stop, None

    def _next_blocks(self, blocks: int, elapsed: float) -> int:
        """Return the blocks of the next call, after one of `blocks` that took `elapsed` seconds."""
        longer = 1.0
        if self.resources.on_cpu:
            copying = COPY_SECONDS * self._lane_bytes * self._width * self._max_groups
            longer = min(max(SLOWEST, copying / COPY_SHARE), LONGEST_BLOCK) / SLOWEST
        if elapsed < FASTEST * longer:
            return 2 * blocks
        return max(1, blocks // 2) if elapsed > SLOWEST * longer else blocks

    def _begun(self, first: int, stop: int) -> Flight:
        """Begin lifetimes first..stop-1."""
        numbers, groups = self._dealt(np.arange(first, stop))
        shared = batching.spread(
            [(self.rules, self.knowledge)] * (len(self.devices) * self._max_groups), self.devices
        )
        lanes = self._beginning.call(shared, np.maximum(numbers, first).astype(np.int32))
        sizes = self._sizes(lanes.agent)
        if sizes is not None:  # begun again, each with others of its size
            live = numbers >= 0
            numbers, groups = self._dealt(numbers[live], sizes[live])
            lanes = self._beginning.call(shared, np.maximum(numbers, first).astype(np.int32))
        recorder = [
            np.zeros((stop - first, *v.shape[1:]), v.dtype)
            for v in jax.tree.leaves(self._kept(lanes))
        ]
        flight = Flight(
            first,
            stop,
            lanes,
            numbers,
            groups,
            recorder,
            steps=np.zeros(stop - first, np.int64),
            episodes=np.zeros(stop - first, np.int64),
            faults=np.zeros(stop - first, np.int32),
            over=np.zeros(stop - first, bool),
        )
        self._check(flight, _on_host(lanes))
        return flight

    def _kept(self, lanes: Lane) -> Any:
        """Return what is kept of lanes that are over: the recorder's state, and numbers of
        the agent.
        """
        agent = self.agent
        return lanes.recorder, agent.metrics(lanes.agent) if isinstance(agent, Measured) else {}

    def _sizes(self, states: Any) -> np.ndarray | None:
        """Return the work of a step of each lane, [n] int64, from the agent's states; None where
        lanes do not differ.
        """
        return self.agent.sizes(states) if isinstance(self.agent, Sized) else None

    def _dealt(
        self, live: np.ndarray, sizes: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what `deal` does, for this run's devices and groups."""
        return deal(live, sizes, (len(self.devices), self._max_groups, self._width))

    def _call(self, flight: Flight, blocks: int) -> float:
        """Play up to `blocks` blocks of all lanes, keep what is over, and move the others together
        where that saves work.
        """
        limit = np.full(len(self.devices), blocks, np.int32)
        with interrupts_deferred():
            flight.lanes, seconds = timed(
                self._advancing.call, self._shared, flight.groups, limit, flight.lanes
            )
            flight.seconds += seconds
        here = _on_host(flight.lanes)
        steps: Any = here.steps
        self._check(flight, here)
        flight.decisions = int(flight.steps.sum() + steps[flight.numbers >= 0].sum())
        over = (flight.numbers >= 0) & ~np.asarray(episodes.live(here, self.protocol.lifetime))
        places = flight.numbers[over] - flight.first
        if len(places):
            flight.over[places], flight.steps[places] = True, steps[over]
            flight.episodes[places], flight.faults[places] = here.episodes[over], here.fault[over]
            kept_here = jax.tree.leaves(self._kept(here))
            for kept, values in zip(flight.recorder, kept_here, strict=True):
                kept[places] = np.asarray(values)[over]
            flight.numbers[over] = -1
            self._compact(flight)
        return seconds

    def _compact(self, flight: Flight) -> None:
        here = flight.numbers >= 0
        live = flight.numbers[here]
        if not len(live):
            return
        order = np.argsort(live)
        sizes = self._sizes(flight.lanes.agent)
        numbers, groups = self._dealt(live[order], None if sizes is None else sizes[here][order])
        if groups.max() > flight.groups.max() / 2:
            return
        where = {number: place for place, number in enumerate(flight.numbers) if number >= 0}
        source = np.array([where.get(number, where[live[0]]) for number in numbers])
        flight.lanes = batching.regathered(flight.lanes, source, self.devices)
        flight.numbers, flight.groups = numbers, groups

    def _check(self, flight: Flight, lanes: Lane) -> None:
        """Refuse a mistake of an environment or an agent in a lane that counts.

        Args:
          lanes: those of the flight, their counts and faults on the host.

        Raises:
          JbrlError: as `Mistakes.refuse`.
        """
        self._mistakes(lanes).refuse(flight.numbers, lanes)

    def _mistakes(self, lanes: Lane) -> Mistakes:
        return Mistakes(self.given, self.agent, self.protocol, lanes)

    def _finished(self, flight: Flight) -> Chunk:
        structure = jax.tree.structure(self._kept(flight.lanes))
        problem: Any = self.protocol.test
        state, numbers = jax.tree.unflatten(structure, flight.recorder)
        scores = np.asarray(problem.recorder.scores(state), np.float64)
        metrics = problem.recorder.metrics(state)
        failed, decisions = flight.faults != 0, int(flight.steps.sum())
        if failed.any():
            scores = _without(failed, scores)
            metrics = {name: _without(failed, v) for name, v in metrics.items()}
        metrics |= {name: np.asarray(v, np.float64) for name, v in numbers.items()}
        return Chunk(
            *(flight.first, scores, None, flight.seconds, decisions, metrics),
            failed=failed,
            failure=self._mistakes(flight.lanes).failure(flight),
        )

    def restored(self, arrays: dict[str, np.ndarray], seconds: float) -> Flight:
        """Return the flight that these are the `arrays` of, on any number of devices."""
        first, stop = (int(v) for v in arrays["span"])
        order = np.argsort(arrays["numbers"])
        live = arrays["numbers"][order]
        shapes = self._shapes(self.knowledge)
        stored = [arrays[f"lane_{i}"][order] for i in range(len(jax.tree.leaves(shapes)))]
        lane = jax.tree.unflatten(jax.tree.structure(shapes), stored)
        numbers, groups = self._dealt(live, self._sizes(lane.agent))
        source = np.searchsorted(live, np.where(numbers < 0, live[0], numbers))
        leaves = [leaf[source] for leaf in stored]
        lanes = batching.laid_out(leaves, shapes, self.devices)
        kept = len(jax.tree.leaves(self._kept(shapes)))
        recorder = [np.array(arrays[f"recorder_{i}"]) for i in range(kept)]
        of_lifetimes = {name: np.array(arrays[name]) for name in OF_LIFETIMES}
        running = np.asarray(lanes.steps)[numbers >= 0]
        return Flight(
            first,
            stop,
            lanes,
            numbers,
            groups,
            recorder,
            decisions=int(of_lifetimes["steps"].sum() + running.sum()),
            seconds=seconds,
            **of_lifetimes,
        )

    def fits(self, arrays: dict[str, np.ndarray]) -> bool:
        """Return whether saved lifetimes can be continued: some are not over, and no more than one
        call may play.
        """
        return 0 < len(arrays["numbers"]) <= self.batch

    def latency(self) -> float:
        """Return wall seconds per decision when a single lifetime is played at a time: the median
        over a few calls.
        """
        device = self.devices[:1]
        lane = self._shapes(self.knowledge)
        (_, beginning, advancing), seconds = self._compiled(
            None, self.knowledge, lane, 1, device, 1
        )
        self.compile_seconds += seconds
        alone, one = batching.spread([self.shared], device), np.ones(1, np.int32)
        limit = np.full(1, -(-LATENCY_STEPS // episodes.BLOCK), np.int32)
        found = []
        for number in range(LATENCY_TRAJECTORIES):
            lanes = beginning.call(
                batching.spread([(self.rules, self.knowledge)], device),
                np.array([number], np.int32),
            )
            lanes, elapsed = timed(advancing.call, alone, one, limit, lanes)
            found.append(elapsed / max(1, int(lanes.steps[0])))
        return statistics.median(found)

    def shortened(self, n_environments: int, horizon: int) -> "LifetimeRun":
        return super().shortened(n_environments, horizon)  # type: ignore[return-value]


def _on_host(lanes: Lane) -> Lane:
    """Return lanes with their counts and faults on the host."""
    counts: Any = {name: np.asarray(getattr(lanes, name)) for name in COUNTS}
    return dataclasses.replace(lanes, **counts)


def _without(failed: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return values [n, ...] with NaN for the lifetimes that have `failed`, [n] bool."""
    found = np.array(values, np.float64)
    found[failed] = np.nan
    return found


# What follows is traced.


def _begin(shared: tuple[Rules, Any], number: jax.Array) -> Lane:
    rules, knowledge = shared
    return episodes.begin(rules, knowledge, number)


def _advance(rules: Rules, lanes: Lane, limit: jax.Array) -> Lane:
    """Play up to `limit` blocks of a group of lanes, fewer where all are over before."""
    return advance_group(episodes.advance, rules, rules.lifetime, lanes, limit)


def advance_group(
    advance: Callable, shared: Any, lifetime: Lifetime, lanes: Lane, limit: jax.Array
) -> Lane:
    """Play up to `limit` blocks of a group by `advance(shared, lane)`, which plays one of
    a lane.
    """
    block = jax.vmap(advance, in_axes=(None, 0))
    alive = jax.vmap(lambda lane: episodes.live(lane, lifetime))

    def going(carry: tuple[jax.Array, Lane]) -> jax.Array:
        played, lanes = carry
        return (played < limit) & alive(lanes).any()

    return lax.while_loop(
        going, lambda carry: (carry[0] + 1, block(shared, carry[1])), (jnp.int32(0), lanes)
    )[1]
