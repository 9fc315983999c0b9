"""Several units of work in one compiled call: the values of a grid, and experiments whose MDPs have
the same sizes.

A *stack* is units that differ in numbers only: parameters, knowledge, distributions, seeds. Their
MDPs are played in groups, each a few MDPs of one unit, as many groups in a call as
fit: on CPUs one on each core, on accelerators as many as fit. On CPUs the program is the one that
plays a single unit, so that returns are the same to the last bit.

Lanes of a stack share a clock, which does not measure one unit. Times are therefore measured unit
by unit, on shorter trajectories.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jbrl.agents.registry import shown_name
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.play import batching, compilation, together
from jbrl.play.experiment import Run
from jbrl.play.protocol import Chunk
from jbrl.play.resources import Resources
from jbrl.play.timing import Duration, device_name, known, timed
from jbrl.play.unit import Unit
from jbrl.rollout.contract import OfflineSearch, as_arrays

# (number of a unit, its next MDPs or why it has failed)
Results = list[tuple[int, Chunk | BaseException]]

TIMED_DECISIONS = 25  # of each trajectory that is played for its time
IDLE = 4  # on CPUs units are stacked where only one core in so many would have work


def stacks(units: Sequence[Unit], resources: Resources) -> list[list[Unit]]:
    """Group `units` in stacks, each where its first unit stands; alone where stacking does not help
    or cannot be done.
    """
    found: dict[Any, list[Unit]] = {}
    for unit in units:
        if unit.protocol.together:
            program: Any = together.program(unit.agent, unit.protocol)
        else:
            program = _program_of(unit) if _helps(unit, resources) else unit.id
        found.setdefault(program, []).append(unit)
    parts = []
    for stack in found.values():
        counts = [unit.protocol.n_environments for unit in stack]
        numbers = together.fitting(counts) if stack[0].protocol.together else [range(len(stack))]
        parts += [[stack[k] for k in part] for part in numbers]
    return parts


def _helps(unit: Unit, resources: Resources) -> bool:
    if isinstance(unit.agent, OfflineSearch) or unit.protocol.in_blocks or resources.stack is False:
        return False
    needed = -(-unit.protocol.n_environments // unit.agent.lanes)
    return bool(resources.stack) or not resources.on_cpu or len(resources.devices) >= IDLE * needed


def _program_of(unit: Unit) -> tuple:
    """Return a key that two units share if one compiled program can play both."""
    protocol = unit.protocol
    shared = (as_arrays(unit.agent), protocol.agent_prior(), protocol.test_prior())
    leaves, structure = jax.tree.flatten(shared)
    test: Any = protocol.test_prior()
    kind = (has_unit_concentrations(test.mdps), type(unit.agent), unit.record, unit.latency)
    return (
        structure,
        tuple(jax.typeof(leaf) for leaf in leaves),
        kind,
        protocol.horizon,
        protocol.n_environments,
    )


class Stack:
    """Units that are played together: `prepare()`, then `calls()`.

    Args:
      runs: those of units of the same program, not yet prepared.
      starts: the first MDP to be played of each.
      groups: at once on each device; None: one on CPUs, on accelerators as many as there are and
        the memory allows.
    """

    def __init__(
        self, runs: Sequence[Run], starts: Sequence[int], groups: int | None = None
    ) -> None:
        self.runs, self.starts = runs, starts
        self.devices, self.resources = runs[0].devices, runs[0].resources
        self._groups = groups

    def prepare(self) -> None:
        """Compile what trains, draws and plays; the first unit is charged with the time.

        Sets `batch`, the MDPs played at once, `at_once`, how many units these belong to,
        and `device`.

        Raises:
          JbrlError: the memory that may be used does not suffice.
        """
        first = self.runs[0]
        for run in self.runs:
            run.choose()
        n_environments, name = first.protocol.n_environments, shown_name(first.given)
        self.width = batching.lanes_per_device(first.agent, n_environments, self.devices[:1])
        groups = self._groups or self._wanted(-(-n_environments // self.width))
        while True:
            programs = first.programs(self.width, self.devices, groups)
            (self._training, self._drawing, self._playing), seconds = compilation.compile_together(
                first.training(), *programs
            )
            first.compile_seconds += seconds
            smaller = self.resources.smaller(
                self._playing.bytes, self.width * groups, self.devices, name
            )
            if smaller is None:
                break
            lanes, self.devices = smaller
            groups, self.width = max(1, lanes // self.width), min(lanes, self.width)
        self.batch, self.device = self._playing.capacity, device_name(self.devices)
        self.at_once = max(
            1, min(len(self.runs), self.batch // (self.width * -(-n_environments // self.width)))
        )

    def _wanted(self, groups_of_unit: int) -> int:
        """Return the number of groups at once on each device."""
        if self.resources.on_cpu:
            return 1
        in_all = -(-len(self.runs) * groups_of_unit // len(self.devices))
        return max(1, min(in_all, batching.WIDEST_ON_ACCELERATOR // self.width))

    def calls(self) -> Iterator[Results]:
        """Train each unit and play what is left of it, several units at once.

        Yields: for each call, number of a unit among `runs` and its next MDPs, or why it has
          failed. `online_seconds` of a chunk are those of the whole call, shared out by number
          of MDPs.
        """
        call: list[tuple[int, np.ndarray, int]] = []
        for number, run in enumerate(self.runs):
            try:
                run.train(self._training)
            except (Exception, SystemExit) as error:  # an error of one agent: the others continue
                yield [(number, error)]
                continue
            for mdps, count in batching.groups(
                self.starts[number], run.protocol.n_environments, self.width
            ):
                call.append((number, mdps, count))
                if len(call) * self.width == self.batch:
                    yield self._played(call)
                    call = []
        if call:
            yield self._played(call)

    def _played(self, call: list[tuple[int, np.ndarray, int]]) -> Results:
        """Play some groups at once, the last one repeated where fewer are left."""
        full = list(
            itertools.islice(
                itertools.chain(call, itertools.repeat(call[-1])), self.batch // self.width
            )
        )
        runs = [self.runs[number] for number, _, _ in full]
        test = batching.spread([run.test for run in runs], self.devices)
        worlds = self._drawing.call(test, np.concatenate([mdps for _, mdps, _ in full]))
        shared = batching.spread([(run.agent, run.knowledge) for run in runs], self.devices)
        played, seconds = timed(self._playing.call, shared, worlds)
        found = jax.tree.map(lambda v: np.asarray(v).reshape(-1, self.width, *v.shape[1:]), played)
        each = seconds / sum(count for _, _, count in call)
        parts = (jax.tree.map(lambda v, place=place: v[place], found) for place in range(len(call)))
        return [
            (number, self._chunk(number, part, mdps, count, each))
            for part, (number, mdps, count) in zip(parts, call, strict=True)
        ]

    def _chunk(
        self, number: int, played: tuple, mdps: np.ndarray, count: int, seconds: float
    ) -> Chunk | BaseException:
        run = self.runs[number]
        try:
            return run.chunk(
                int(mdps[0]), [run.checked(played, mdps, count)], Duration(seconds * count)
            )
        except (Exception, SystemExit) as error:
            return error


def times(run: Run, latency: bool) -> dict[str, Any]:
    """Return the times of one unit by itself: `online_seconds` and `latency_seconds` per decision,
    and on how much that was `timed`.

    Args:
      run: has been played in a stack.
      latency: measure it.
    """
    n_environments, horizon = (
        run.protocol.n_environments,
        min(run.protocol.horizon, TIMED_DECISIONS),
    )
    short = run.shortened(n_environments, horizon)
    chunk = next(short.chunks())
    n = len(chunk.returns)
    found = {
        "online_seconds": chunk.online_seconds / (n * horizon),
        "online_seconds_spread": known(chunk.online_spread / (n * horizon)),
        "latency_seconds": short.latency() if latency else None,
        "timed": {"mdps": n, "decisions": horizon},
    }
    run.compile_seconds += short.compile_seconds
    return found
