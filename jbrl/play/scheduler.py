"""Lanes of compiled calls that are played at once, for one run or several that share a program.

A run is one agent in one experiment. Runs that differ in numbers only (parameters, knowledge,
distributions, seeds) share a program, and their lifetimes may be lanes of one call. On CPUs groups
of lanes have one width, and a program does the same to each, so that no bit of a result depends on
what is played beside it, on the number of devices, or on where a run was interrupted.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from jbrl.agents.registry import shown_name
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.play import compilation
from jbrl.play.batching import lanes_on_cpu
from jbrl.play.compilation import Program
from jbrl.play.lifetimes import MAX_LANES, Lifetimes, lane_bytes, layout, program_of_lifetimes
from jbrl.play.offline import SearchCheckpoint
from jbrl.play.protocol import Chunk
from jbrl.play.resources import Resources, power_below
from jbrl.play.timing import device_name
from jbrl.play.unit import Unit
from jbrl.rollout.contract import OfflineSearch, as_arrays

# (number of a run, its next lifetimes or why it has failed)
Results = list[tuple[int, Chunk | BaseException]]

IDLE = 4  # on CPUs units are stacked where only one core in so many would have work


class Scheduler:
    """Player of runs that share programs: `prepare()`, then `results()`.

    Args:
      runs: not yet prepared; of one program (`at_once`).

    Attributes:
      devices: that are used; fewer than the resources offer where memory is short.
      batch: lifetimes played at once: `max_groups` groups of `width` lanes on each device.
      bytes_per_device: memory that playing takes on each device; 0 where the compiler does
        not say.
      lifetimes: that are being played, where they are played in blocks.
      errors: why runs have failed while they were trained, by their number.
    """

    def __init__(self, runs: Sequence[Any]) -> None:
        self.runs, self.resources = runs, runs[0].resources
        self.devices: list[jax.Device] = self.resources.devices
        self.batch = self.width = self.max_groups = self.bytes_per_device = 0
        self.lifetimes: Lifetimes | None = None
        self.errors: dict[int, BaseException] = {}

    @property
    def device(self) -> str:
        """Name of the devices."""
        return device_name(self.devices)

    @property
    def platform(self) -> str:
        return self.devices[0].platform

    def prepare(self, checkpoint: SearchCheckpoint | None = None) -> None:
        """Compile what trains and plays, and train each agent; the first run is charged with the
        time of the compiler.

        Args:
          checkpoint: keeps what the agent finds, if it is one that searches.

        Raises:
          JbrlError: the memory that may be used does not suffice.
          Exception: the only run cannot be trained.
        """
        for run in self.runs:
            run.choose(checkpoint)
        training = self.compile(self.runs[0].training())
        for number, run in enumerate(self.runs):
            try:
                run.train(training)
            except (Exception, SystemExit) as error:  # an error of one agent: the others continue
                if len(self.runs) == 1:
                    raise
                self.errors[number] = error

    def compile(self, training: Callable[[], Program] | None) -> Program | None:
        """Compile all that is needed at the greatest width that the memory allows.

        Args:
          training: compiles the program that trains, if there is one.

        Returns: that program.

        Raises:
          JbrlError: the memory that may be used does not suffice.
        """
        raise NotImplementedError

    def compile_to_fit(
        self, training: Callable[[], Program] | None, width: int, groups: int
    ) -> list[Any]:
        """Compile what trains, begins and plays, with less at once until the memory suffices.

        Args:
          width, groups: lanes of a group, and groups on each device, at most.

        Returns: the three programs, None for the first where nothing trains.

        Raises:
          JbrlError: the memory that may be used does not suffice for the fewest.
        """
        first, resources = self.runs[0], self.resources
        while True:
            programs, seconds = compilation.compile_together(
                training, *first.programs(width, self.devices, groups)
            )
            first.compile_seconds += seconds
            needed, count = programs[2].bytes, len(self.devices)
            if groups > 1 and not resources.fits(needed, count):
                memory = resources.memory // (count if resources.on_cpu else 1)
                groups = max(1, power_below(groups * memory // needed))
                continue
            smaller = resources.smaller(needed, width, self.devices, shown_name(first.given))
            if smaller is None:
                break
            width, self.devices = smaller
        self.width, self.max_groups, self.bytes_per_device = width, groups, needed
        self.batch = width * groups * len(self.devices)
        return programs

    def results(
        self,
        starts: Sequence[int],
        size: int | None = None,
        *,
        checkpoints: list[Any] | None = None,
        between: Callable[[Any], Any] | None = None,
    ) -> Iterator[Results]:
        """Play what is left.

        Args:
          starts: the first lifetime to be played of each run.
          size: lifetimes of a call, at most; None: `batch`.
          checkpoints: for lifetimes in blocks: those that an interrupted run had begun, for each
            run, as `Lifetimes.arrays` gives them, and the seconds that they took; None for none.
            They are taken from the list, so that nobody keeps their memory.
          between: for lifetimes in blocks: called with them after each call that leaves something
            to play.

        Yields: after each call, what it has completed. `online_seconds` of a chunk are its share of
          the call.
        """
        raise NotImplementedError


def at_once(units: Sequence[Unit], resources: Resources) -> list[list[Unit]]:
    """Group `units` in stacks of those that are played at once, each where its first unit stands;
    alone where that does not help or cannot be done.
    """
    stacks: dict[Any, list[Unit]] = {}
    for unit in units:
        if unit.protocol.together:
            program: Any = program_of_lifetimes(unit.agent, unit.protocol)
        else:
            program = _program_of(unit) if _helps(unit, resources) else unit.id
        stacks.setdefault(program, []).append(unit)
    return [
        part
        for stack in stacks.values()
        for part in (
            _fitting(stack, _most(stack, resources)) if stack[0].protocol.together else [stack]
        )
    ]


def _most(units: Sequence[Unit], resources: Resources) -> int:
    """Return how many lifetimes of units of one program are played at once, at most."""
    agent, protocol = units[0].agent, units[0].protocol
    n = sum(unit.protocol.n_environments for unit in units)
    return min(MAX_LANES, layout(agent, protocol, lane_bytes(agent, protocol), n, resources).lanes)


def _fitting(units: Sequence[Unit], most: int) -> list[list[Unit]]:
    """Cut units into parts of at most `most` lifetimes, in order."""
    parts: list[list[Unit]] = []
    lanes = 0
    for unit in units:
        if not parts or lanes + unit.protocol.n_environments > most:
            parts.append([])
            lanes = 0
        parts[-1].append(unit)
        lanes += unit.protocol.n_environments
    return parts


def _helps(unit: Unit, resources: Resources) -> bool:
    if isinstance(unit.agent, OfflineSearch) or unit.protocol.in_blocks or resources.stack is False:
        return False
    needed = -(-unit.protocol.n_environments // lanes_on_cpu(unit.agent, unit.protocol.test))
    return bool(resources.stack) or not resources.on_cpu or len(resources.devices) >= IDLE * needed


def _program_of(unit: Unit) -> tuple[Any, ...]:
    """Return a key that two units share if one compiled program can play both."""
    protocol = unit.protocol
    test: Any = protocol.test_prior()
    shared = (as_arrays(unit.agent), protocol.agent_prior(), test)
    leaves, structure = jax.tree.flatten(shared)
    return (
        structure,
        tuple(jax.typeof(leaf) for leaf in leaves),
        (has_unit_concentrations(test.mdps), type(unit.agent), unit.record, unit.latency),
        protocol.horizon,
        protocol.n_environments,
    )
