"""Lifetimes while they are played in blocks of steps: lanes on the devices, results on the host,
and the rules that lanes share or own.

Where a problem is one of many settings of an environment (`together`), lanes bring their own rules:
the leaves of agent and environment are data of the lane, as its state is. What is large, such as a
set of images, stays common to all. Such a problem is always played so, even alone, in groups of one
width, so the other units change no bits.
"""

import dataclasses
import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from jbrl.base.pytree import record, static
from jbrl.environments.spec import Lifetime
from jbrl.play import batching
from jbrl.play.compilation import shapes_of
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources, power_below
from jbrl.rollout import episodes
from jbrl.rollout.contract import SECONDS_PER_STEP, Agent, OfflineSearch, as_arrays, cost
from jbrl.rollout.episodes import Lane, Rules
from jbrl.rollout.faults import train

GROUP_BYTES = 1 << 18  # of the states of one group on a CPU: what stays in the cache of a core
NARROWEST = 16  # lanes of a group: fewer would not pay for calling the operations of a step
MAX_LANES = 4096  # at once on all devices, where memory allows
WIDTH_OF_OWN = 16  # lanes of a group on CPUs, at most, where they own their rules
OWN_ENTRIES = 4096  # of a leaf that belongs to lanes, at most
# Copies of the states of all lanes in memory at once, at most: on the devices and, while lanes move
# or are gathered from several runs, on the host before and after.
COPIES = 4
# Seconds that a block of all lanes may take by the cost that the agent states, which may be several
# times too low: between blocks, checkpoints are written and interruptions heard.
LONGEST_BLOCK = 5.0

COUNTS = ("steps", "episodes", "fault")  # of a lane, which the host looks at after each call
OF_LIFETIMES = ("steps", "episodes", "faults", "over")  # arrays with one entry for each lifetime
HostArray = npt.NDArray[Any]


def group_width(agent: Agent, lane_bytes: int) -> int:
    """Return the lanes of a group on a CPU, the state of each of so many bytes."""
    fitting = 1 << (max(1, GROUP_BYTES // max(1, lane_bytes)).bit_length() - 1)
    return min(agent.lanes, max(NARROWEST, fitting))


@dataclasses.dataclass(frozen=True)
class Layout:
    """Lanes of a call."""

    width: int  # lanes of a group
    groups: int  # of each device, a power of two
    devices: int

    @property
    def lanes(self) -> int:
        return self.width * self.groups * self.devices


def layout(
    agent: Agent, protocol: Protocol, lane_bytes: int, n: int, resources: Resources
) -> Layout:
    """Return the lanes of a call that plays `n` lifetimes at once, or as many of them as fit.

    On CPUs the width depends on the size of a state alone, so that results depend on nothing else.

    Args:
      agent: as the study gives it.
      lane_bytes: of the state of one lane.
    """
    devices, on_cpu = len(resources.devices), resources.on_cpu
    memory = resources.memory or math.inf
    fitting = int(min(2**40, memory / (COPIES * max(1, lane_bytes))))  # lanes that share a memory
    if on_cpu:
        width = group_width(agent, lane_bytes)
        width = min(width, WIDTH_OF_OWN) if protocol.together else width
        devices = min(devices, max(1, fitting // width))
        each = fitting // (width * devices)
        seconds = cost(agent, protocol.agent_prior()).steps * SECONDS_PER_STEP
        longest = LONGEST_BLOCK / max(seconds * width * episodes.BLOCK, 1e-9)
        most = max(1, int(min(each, longest)))
    else:
        width = batching.lanes_on_accelerator(n, devices)
        width = min(width, power_below(max(1, fitting)))
        most = max(1, fitting // width)
    wanted = -(-min(n, MAX_LANES) // (width * devices))
    return Layout(width, min(1 << (wanted - 1).bit_length(), power_below(most)), devices)


@record
class OwnLane:
    """A lane with the leaves of its rules that it owns: none where lanes share them all."""

    lane: Lane
    own: tuple[Any, ...]


class Lifetimes:
    """Lifetimes of one run or of several while they are played, numbered one after the other.

    Results of lanes that are over are kept on the host.

    Args:
      spans: first..stop-1, the lifetimes of each run.
      lanes: of all positions of a call, on the devices.
      numbers: [positions] int64, which lifetime is where; -1: none that counts.
      groups: [devices] int32, groups that each device plays.
      kept: leaves of what is kept of lanes that are over, [lifetimes, ...] each.
      of_lifetimes: `OF_LIFETIMES`, of those that are over: steps and episodes [lifetimes] int64,
        faults [lifetimes] int32 (codes of `faults`, 0: none), over [lifetimes] bool.
      seconds: that each run has taken.
    """

    def __init__(
        self,
        spans: list[tuple[int, int]],
        lanes: OwnLane,
        numbers: HostArray,
        groups: HostArray,
        kept: list[HostArray],
        of_lifetimes: dict[str, HostArray],
        seconds: list[float],
    ) -> None:
        self.spans, self.numbers, self.groups, self.kept = spans, numbers, groups, kept
        self.steps, self.episodes, self.faults, self.over = (
            of_lifetimes[name] for name in OF_LIFETIMES
        )
        self.seconds = seconds
        # unknown of what another process has played
        self.processor = [math.nan if before else 0.0 for before in seconds]
        self.failed: set[int] = set()  # runs whose lifetimes are out of play
        self.starts = np.concatenate([[0], np.cumsum([stop - first for first, stop in spans])])
        self.update(lanes)

    def update(self, lanes: OwnLane) -> None:
        """Take the lanes of the same positions after a call."""
        self.lanes = lanes
        self.counts = {name: np.asarray(getattr(self.states, name)) for name in COUNTS}

    @property
    def states(self) -> Lane:
        return self.lanes.lane

    def live(self, lifetime: Lifetime) -> HostArray:
        """Return which lanes go on, [positions] bool."""
        counts: Any = self.counts
        return np.asarray(episodes.live(dataclasses.replace(self.states, **counts), lifetime))

    def move(self, numbers: HostArray, groups: HostArray, devices: list[jax.Device]) -> None:
        """Move the lanes that count to the positions `numbers`."""
        live = np.flatnonzero(self.numbers >= 0)
        where = dict(zip(self.numbers[live].tolist(), live.tolist(), strict=True))
        source = np.array([where.get(number, live[0]) for number in numbers.tolist()])
        leaves = (batching.host_rows(leaf, source) for leaf in jax.tree.leaves(self.lanes))
        self.numbers, self.groups = numbers, groups
        self.update(batching.placed(leaves, self.lanes, devices))

    def keep(self, states: Any, live: HostArray) -> None:
        """Keep the results of lanes that are over.

        Args:
          states: what is kept of each lane.
          live: [positions] bool, lanes that go on.
        """
        over = (self.numbers >= 0) & ~live
        places = self.numbers[over]
        self.over[places], self.steps[places] = True, self.counts["steps"][over]
        self.episodes[places], self.faults[places] = (
            self.counts[name][over] for name in ("episodes", "fault")
        )
        for kept, values in zip(self.kept, jax.tree.leaves(states), strict=True):
            kept[places] = np.asarray(values)[over]
        self.numbers[over] = -1

    def drop(self, run: int) -> None:
        """Take the lifetimes of a run that has failed out of play."""
        self.failed.add(run)
        self.over[self.part(run)] = True
        self.numbers[self.of_run(run)] = -1

    def part(self, run: int) -> slice:
        """Return the numbers of the lifetimes of a run."""
        return slice(int(self.starts[run]), int(self.starts[run + 1]))

    def of_run(self, run: int) -> HostArray:
        """Return which positions hold lifetimes of a run that count, [positions] bool."""
        start, stop = self.starts[run : run + 2]
        return (self.numbers >= start) & (self.numbers < stop)

    def finished(self, run: int = 0) -> int:
        """Return how many lifetimes of a run are over."""
        return int(self.over[self.part(run)].sum())

    def complete(self, run: int = 0) -> bool:
        return bool(self.over[self.part(run)].all())

    def decisions(self) -> HostArray:
        """Return the decisions that each run has taken so far, [runs] int64."""
        steps, live = self.steps.copy(), self.numbers >= 0
        steps[self.numbers[live]] = self.counts["steps"][live]
        return np.add.reduceat(steps, self.starts[:-1])

    @property
    def whole(self) -> bool:
        """True if the lanes exist: a call that failed has consumed their memory."""
        return not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.lanes))

    def arrays(self, run: int = 0) -> dict[str, HostArray]:
        """Return the lifetimes of a run as arrays, from which a scheduler goes on."""
        live = np.flatnonzero(self.of_run(run))
        part, leaves = self.part(run), jax.tree.leaves(self.lanes)
        return {
            **{f"lane_{i}": batching.host_rows(leaf, live) for i, leaf in enumerate(leaves)},
            **{f"recorder_{i}": kept[part] for i, kept in enumerate(self.kept)},
            **{name: getattr(self, name)[part] for name in OF_LIFETIMES},
            "numbers": self.numbers[live] - part.start,
            "span": np.array(self.spans[run], np.int64),
        }


def new_results(n: int) -> dict[str, HostArray]:
    """Return `OF_LIFETIMES` of lifetimes that are not over."""
    types = (np.int64, np.int64, np.int32, bool)
    return {name: np.zeros(n, t) for name, t in zip(OF_LIFETIMES, types, strict=True)}


def positions(
    live: HostArray, sizes: HostArray | None, shape: tuple[int, int, int]
) -> tuple[HostArray, HostArray]:
    """Return the position of each lifetime and the number of groups of each device, as even and
    compact as possible.

    Args:
      live: [n] int64, numbers of the lifetimes.
      sizes: [n] of each, in any unit: those of similar size share a group, the largest first; None
        where they do not differ.
      shape: devices, groups of each at most, and lanes of a group.

    Returns: [positions] int64, the lifetime at each, -1 where none counts; [devices] int32.
    """
    devices, max_groups, width = shape
    if sizes is not None:
        live = live[np.lexsort((live, -sizes))]
    parts = [live[k : k + width] for k in range(0, len(live), width)]
    share = -(-len(parts) // devices)
    numbers = np.full((devices, max_groups * width), -1, np.int64)
    for device in range(devices):
        # of groups that differ, each device has its share of the large ones
        theirs = (
            slice(device * share, (device + 1) * share)
            if sizes is None
            else slice(device, None, devices)
        )
        mine = np.concatenate([live[:0], *parts[theirs]])
        numbers[device, : len(mine)] = mine
    groups = np.array([-(-(row >= 0).sum() // width) for row in numbers], np.int32)
    return numbers.reshape(-1), groups


# ---- rules that lanes own ----


@record
class Common:
    """Data that lanes share, and the way to assemble their rules."""

    leaves: tuple[Any, ...]  # of the rules, those that are large
    own: tuple[bool, ...] = static(())  # which leaves are not
    # which of those that lanes own are keys, kept as their words
    keys: tuple[bool, ...] = static(())
    structure: Any = static(None)  # of the rules
    lifetime: Lifetime = static(None)


def divided(rules: Rules, *, together: bool) -> tuple[Common, tuple[Any, ...]]:
    """Return what lanes with these rules share, and what belongs to one: nothing, or where units
    are played `together` all that is small.
    """
    leaves, structure = jax.tree.flatten(rules)
    own = tuple(together and math.prod(np.shape(leaf)) <= OWN_ENTRIES for leaf in leaves)
    common, given = (
        tuple(leaf for leaf, mine in zip(leaves, own, strict=True) if mine is wanted)
        for wanted in (False, True)
    )
    keys = tuple(map(batching.is_key, given))
    words = tuple(
        jax.random.key_data(leaf) if key else leaf for leaf, key in zip(given, keys, strict=True)
    )
    return Common(common, own, keys, structure, rules.lifetime), words


def joined_rules(common: Common, own: tuple[Any, ...]) -> Rules:
    """Undo `divided`."""
    given = (
        jax.random.wrap_key_data(leaf) if key else leaf
        for leaf, key in zip(own, common.keys, strict=True)
    )
    sources = {True: given, False: iter(common.leaves)}
    leaves = [next(sources[mine]) for mine in common.own]
    rules: Rules = jax.tree.unflatten(common.structure, leaves)
    return rules


def lane_shapes(rules: Rules, knowledge: Any, *, together: bool) -> Any:
    """Return the state of one lane, as shapes."""
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return shapes_of(begin, (*divided(rules, together=together), knowledge), number)


def bytes_of(shapes: Any) -> int:
    """Return the bytes of arrays of these shapes."""
    return sum(math.prod(v.shape) * v.dtype.itemsize for v in jax.tree.leaves(shapes))


_LANE_BYTES: dict[Any, int] = {}  # by what is traced


def lane_bytes(agent: Agent, protocol: Protocol) -> int:
    """Return the bytes of the state of one lane: that of the agent, and for lifetimes in blocks all
    that goes with it. Traces once for each program.

    0: unknown, for an agent that searches, whose state is that of what it finds, and for one that
    cannot be traced, which playing reports.
    """
    if isinstance(agent, OfflineSearch):
        return 0
    problem: Any = protocol.test
    player, key, prior = as_arrays(agent), jax.random.key(0), protocol.agent_prior()
    data: Any = player
    if protocol.in_blocks:
        data = Rules(player, problem.environment, problem.recorder, key, protocol.lifetime)
    leaves, structure = jax.tree.flatten((data, prior))
    traced = structure, tuple(map(jax.typeof, leaves)), protocol.together
    if traced not in _LANE_BYTES:
        try:
            knowledge = shapes_of(train, player, key, prior)
            shapes = (
                lane_shapes(data, knowledge, together=protocol.together)
                if protocol.in_blocks
                else shapes_of(_reset, player, key, knowledge)
            )
            _LANE_BYTES[traced] = bytes_of(shapes)
        except (Exception, SystemExit):
            _LANE_BYTES[traced] = 0
    return _LANE_BYTES[traced]


def program_of_lifetimes(agent: Agent, protocol: Protocol) -> tuple[Any, ...]:
    """Return what is the same for two units of work whose lifetimes can be played at once."""
    problem: Any = protocol.test
    key = jax.random.key(0)
    rules = Rules(as_arrays(agent), problem.environment, problem.recorder, key, protocol.lifetime)
    common, own = divided(rules, together=True)
    content = hashlib.sha256()
    for leaf in common.leaves:
        content.update(np.ascontiguousarray(leaf).tobytes())
    shapes = tuple(jax.typeof(leaf) for leaf in (*common.leaves, *own))
    prior = jax.tree.structure(protocol.agent_prior())
    kind = dataclasses.replace(common, leaves=())
    return kind, prior, shapes, content.digest(), type(agent)


# ---- what is traced: functions of what lanes share and of one lane, or a group of them ----


def _reset(agent: Agent, key: Array, knowledge: Any) -> Any:
    return agent.reset(key, knowledge)


def begin(shared: tuple[Common, tuple[Any, ...], Any], number: Array) -> OwnLane:
    """Begin lifetime `number` by what is `divided`, and knowledge."""
    common, own, knowledge = shared
    return OwnLane(episodes.begin(joined_rules(common, own), knowledge, number), own)


def advance(common: Common, lanes: OwnLane, limit: Array) -> OwnLane:
    """Play up to `limit` blocks of a group of lanes, fewer where all are over before."""

    @jax.vmap
    def block(lane: OwnLane) -> OwnLane:
        return OwnLane(episodes.advance(joined_rules(common, lane.own), lane.lane), lane.own)

    def going(carry: tuple[Array, OwnLane]) -> Array:
        played, lanes = carry
        alive: Array = jax.vmap(lambda lane: episodes.live(lane, common.lifetime))(lanes.lane)
        return (played < limit) & alive.any()

    after: OwnLane = lax.while_loop(
        going, lambda carry: (carry[0] + 1, block(carry[1])), (jnp.int32(0), lanes)
    )[1]
    return after
