"""Several units of work as lanes of one compiled program: settings of an environment that
share shapes.

Lanes bring their own rules: the leaves of agent and environment are data of the lane, as its state
is. What is large, such as a set of images, stays common to all. A unit whose problem is played
`together` is always played so, even alone, in groups of one width, so the other units change no
bits.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Lifetime
from jbrl.play import batching
from jbrl.play.flight import OF_LIFETIMES, Flight
from jbrl.play.lifetimes import MAX_LANES, LifetimeRun, advance_group
from jbrl.play.protocol import Chunk, Protocol
from jbrl.rollout import episodes
from jbrl.rollout.contract import Agent, as_arrays
from jbrl.rollout.episodes import Lane, Rules

WIDTH = 16  # lanes of a group on CPUs, at most
OWN_ENTRIES = 4096  # of a leaf that belongs to lanes, at most


@record
class Common:
    """Data that lanes share, and the way to assemble their rules."""

    leaves: tuple  # of the rules, those that are large
    own: tuple[bool, ...] = static(())  # which leaves are not
    keys: tuple[bool, ...] = static(
        ()
    )  # which of those that lanes own are keys, kept as their words
    structure: Any = static(None)  # of the rules
    lifetime: Lifetime = static(None)


@record
class OwnLane(Lane):
    """A lane with the leaves of its rules."""

    own: tuple = ()


def divided(rules: Rules) -> tuple[Common, tuple]:
    """Return what lanes with these rules share, and what belongs to one."""
    leaves, structure = jax.tree.flatten(rules)
    own = tuple(math.prod(np.shape(leaf)) <= OWN_ENTRIES for leaf in leaves)
    kept, given = (
        tuple(leaf for leaf, mine in zip(leaves, own, strict=True) if mine is wanted)
        for wanted in (False, True)
    )
    keys = tuple(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in given)
    words = tuple(
        jax.random.key_data(leaf) if is_key else leaf
        for leaf, is_key in zip(given, keys, strict=True)
    )
    return Common(kept, own, keys, structure, rules.lifetime), words


def joined_rules(common: Common, own: tuple) -> Rules:
    """Undo `divided`."""
    given = [
        jax.random.wrap_key_data(leaf) if is_key else leaf
        for leaf, is_key in zip(own, common.keys, strict=True)
    ]
    sources = {True: iter(given), False: iter(common.leaves)}
    return jax.tree.unflatten(common.structure, [next(sources[mine]) for mine in common.own])


class TogetherRun(LifetimeRun):
    """Variant of `LifetimeRun` with rules that belong to lanes."""

    @property
    def shared(self) -> Common:
        return divided(self.rules)[0]

    @property
    def _traced(self) -> tuple[Callable, Callable]:
        return _begin_own, _advance_own

    def _group_width(self) -> int:
        width = super()._group_width()
        return min(width, WIDTH) if self.resources.on_cpu else width


class _Crew(TogetherRun):
    """The lifetimes of several runs, numbered one after the other, as those of one."""

    def __init__(self, runs: Sequence[TogetherRun]) -> None:
        first = runs[0]
        self.runs = runs
        counts = [run.protocol.n_environments for run in runs]
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        protocol = dataclasses.replace(first.protocol, n_environments=int(self.starts[-1]))
        super().__init__(first.given, protocol, resources=first.resources, lanes=first._lanes)
        self.failures: dict[int, JbrlError] = {}

    def part(self, flight: Flight, number: int) -> Flight:
        """Return what belongs to one run, its lifetimes numbered from 0."""
        start, stop = self.starts[number : number + 2]
        mine = (flight.numbers >= start) & (flight.numbers < stop)
        numbers = np.where(mine, flight.numbers - start, -1)
        recorder = [kept[start:stop] for kept in flight.recorder]
        of_lifetimes = {name: getattr(flight, name)[start:stop] for name in OF_LIFETIMES}
        return Flight(
            0,
            int(stop - start),
            flight.lanes,
            numbers,
            flight.groups,
            recorder,
            **of_lifetimes,
        )

    def _check(self, flight: Flight, lanes: Lane) -> None:
        """Record the fault of a run, whose faulty lanes are over; the others continue."""
        fault: Any = lanes.fault
        wrong = flight.numbers[(fault != 0) & (flight.numbers >= 0)]
        for number in set((np.searchsorted(self.starts, wrong, side="right") - 1).tolist()):
            try:
                LifetimeRun._check(self.runs[number], self.part(flight, number), lanes)
            except JbrlError as error:
                self.failures.setdefault(number, error)


class Company:
    """Runs that are played at once: `prepare()`, then `played()`.

    Args:
      runs: those with the same `program`, not yet prepared.
      befores: lifetimes that an interrupted run had begun, as `Flight.arrays` gives them, and
        the seconds that they took; None for none.
    """

    def __init__(
        self,
        runs: Sequence[TogetherRun],
        befores: Sequence[tuple[dict[str, np.ndarray], float] | None],
    ) -> None:
        self.runs, self.befores = runs, befores
        self.crew = _Crew(runs)
        self.seconds = [before[1] if before else 0.0 for before in befores]
        self.flight: Flight | None = None
        self.closed: set[int] = set()  # runs that are complete or have failed

    def prepare(self) -> None:
        """Compile, and train each agent; the first run is charged with the time of the compiler.

        Raises:
          JbrlError: the memory that may be used does not suffice.
        """
        self.crew.choose()
        training = self.crew._compile(self.crew.training())
        self.runs[0].compile_seconds += self.crew.compile_seconds
        for run in self.runs:
            run.choose()
            run.train(training)
        self.crew.knowledge = self.runs[0].knowledge

    def played(self, between: Callable[[], Any]) -> Iterator[tuple[int, Chunk | BaseException]]:
        """Play all lifetimes.

        Args:
          between: called after each call that leaves something to play.

        Yields: number of a run, and its results or why it has failed, as soon as it is complete.
        """
        crew = self.crew
        self.flight = flight = self._begun()
        crew._shared = batching.spread([crew.shared] * len(crew.devices), crew.devices)
        yield from self._complete()
        blocks = 1
        while not flight.over.all():
            before = self._decisions()
            elapsed = crew._call(flight, blocks)
            self._charge(elapsed, self._decisions() - before)
            blocks = crew._next_blocks(blocks, elapsed)
            yield from self._complete()
            if not flight.over.all():
                between()

    def saved(self, number: int) -> dict[str, np.ndarray]:
        """Return the lifetimes of a run as arrays, as `Flight.arrays` does."""
        assert self.flight is not None
        return self.crew.part(self.flight, number).arrays()

    def progress(self, number: int) -> tuple[int, int]:
        """Return how many lifetimes of a run are over, and how many decisions it has taken."""
        assert self.flight is not None
        start, stop = self.crew.starts[number : number + 2]
        return int(self.flight.over[start:stop].sum()), int(self._decisions()[number])

    def _decisions(self) -> np.ndarray:
        """Return decisions of each run so far, [runs] int64."""
        flight, starts = self.flight, self.crew.starts
        assert flight is not None
        steps = flight.steps.copy()
        live = flight.numbers >= 0
        steps[flight.numbers[live]] = np.asarray(flight.lanes.steps)[live]
        return np.add.reduceat(steps, starts[:-1])

    def _charge(self, elapsed: float, taken: np.ndarray) -> None:
        """Share the seconds of a call out by decisions."""
        for number, share in enumerate(taken / max(1, taken.sum())):
            self.seconds[number] += elapsed * float(share)

    def _begun(self) -> Flight:
        """Return all lifetimes, begun or taken up again, laid out on the devices."""
        crew, numbers, leaves, given = self.crew, [], [], []
        n = int(crew.starts[-1])
        recorder = None
        shapes = crew._shapes(crew.knowledge)
        for number, (run, before) in enumerate(zip(self.runs, self.befores, strict=True)):
            start, stop = crew.starts[number : number + 2]
            arrays = before[0] if before else self._first(run)
            numbers.append(arrays["numbers"] + start)
            leaves.append([arrays[f"lane_{i}"] for i in range(len(jax.tree.leaves(shapes)))])
            count = len(jax.tree.leaves(crew._kept(shapes)))
            kept = [arrays[f"recorder_{i}"] for i in range(count)]
            recorder = recorder or [np.zeros((n, *v.shape[1:]), v.dtype) for v in kept]
            for whole, part in zip(recorder, kept, strict=True):
                whole[start:stop] = part
            given.append(arrays)
        stored = np.concatenate(numbers)
        if not len(stored):
            raise JbrlError("nothing is left to play of units that are not complete")
        order = np.argsort(stored)
        live = stored[order]
        dealt, groups = crew._dealt(live)
        where = order[np.searchsorted(live, np.where(dealt < 0, live[0], dealt))]
        lanes = [np.concatenate(parts)[where] for parts in zip(*leaves, strict=True)]
        laid = batching.laid_out(lanes, shapes, crew.devices)
        of_lifetimes: dict[str, Any] = {
            name: np.concatenate([arrays[name] for arrays in given]) for name in OF_LIFETIMES
        }
        return Flight(0, n, laid, dealt, groups, recorder or [], **of_lifetimes)

    def _first(self, run: TogetherRun) -> dict[str, np.ndarray]:
        """Return a run whose lifetimes have just begun, as arrays."""
        crew = self.crew
        run._width, run._max_groups, run._beginning = crew._width, crew._max_groups, crew._beginning
        run.devices = crew.devices
        return run._begun(0, run.protocol.n_environments).arrays()

    def _complete(self) -> Iterator[tuple[int, Chunk | BaseException]]:
        """Return the runs that have become complete or have failed."""
        flight, crew = self.flight, self.crew
        assert flight is not None
        for number, error in crew.failures.items():
            if number not in self.closed:
                self.closed.add(number)
                self._dropped(number)
                yield number, error
        for number, run in enumerate(self.runs):
            start, stop = crew.starts[number : number + 2]
            if number not in self.closed and flight.over[start:stop].all():
                self.closed.add(number)
                part = dataclasses.replace(crew.part(flight, number), seconds=self.seconds[number])
                yield number, run._finished(part)

    def _dropped(self, number: int) -> None:
        """Take the lifetimes of a run that has failed out of play."""
        assert self.flight is not None
        start, stop = self.crew.starts[number : number + 2]
        self.flight.over[start:stop] = True
        self.flight.numbers[(self.flight.numbers >= start) & (self.flight.numbers < stop)] = -1


def program(agent: Agent, protocol: Protocol) -> tuple:
    """Return what is the same for two units of work that can be played at once."""
    problem: Any = protocol.test
    player = as_arrays(agent)
    rules = Rules(
        player, problem.environment, problem.recorder, jax.random.key(0), protocol.lifetime
    )
    common, own = divided(rules)
    content = hashlib.sha256()
    for leaf in common.leaves:
        content.update(np.ascontiguousarray(leaf).tobytes())
    shapes = tuple(jax.typeof(leaf) for leaf in (*common.leaves, *own))
    prior = jax.tree.structure(protocol.agent_prior())
    kind = dataclasses.replace(common, leaves=())
    return kind, prior, shapes, content.digest(), type(agent)


def fitting(counts: Sequence[int]) -> list[list[int]]:
    """Return the numbers of units of so many lifetimes in parts of at most `MAX_LANES`,
    in order.
    """
    parts: list[list[int]] = [[]]
    lanes = 0
    for number, count in enumerate(counts):
        if parts[-1] and lanes + count > MAX_LANES:
            parts.append([])
            lanes = 0
        parts[-1].append(number)
        lanes += count
    return parts


# What follows is traced.


def _begin_own(shared: tuple[Rules, Any], number: jax.Array) -> OwnLane:
    rules, knowledge = shared
    lane = episodes.begin(rules, knowledge, number)
    return _with_own(lane, divided(rules)[1])


def _with_own(lane: Lane, own: tuple) -> OwnLane:
    fields = {field.name: getattr(lane, field.name) for field in dataclasses.fields(Lane)}
    return OwnLane(**fields, own=own)


def _advance_own(common: Common, lanes: OwnLane, limit: jax.Array) -> OwnLane:
    """Play up to `limit` blocks of a group of lanes, fewer where all are over before."""
    return advance_group(_advance_lane, common, common.lifetime, lanes, limit)  # type: ignore[return-value]


def _advance_lane(common: Common, lane: OwnLane) -> OwnLane:
    fields = {field.name: getattr(lane, field.name) for field in dataclasses.fields(Lane)}
    return _with_own(episodes.advance(joined_rules(common, lane.own), Lane(**fields)), lane.own)
