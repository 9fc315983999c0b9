"""One agent in one experiment whose lifetimes are played in blocks of steps: episodes, and
environments that are no finite MDPs.

Lifetimes differ in length by orders of magnitude. A call plays some blocks of all lanes; after it
the host takes the results of the lifetimes that are over, and when fewer groups would hold the
lanes that go on, these move together, so that one long lifetime does not occupy the lanes of a
hundred finished ones. Every group is as wide as every other on CPUs, so neither this, nor the
number of devices, nor an interruption changes a bit. Memory is that of the lanes and of one block,
for any number of steps.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.agents.complete import may_diverge
from jbrl.agents.registry import shown_name
from jbrl.base.errors import JbrlError
from jbrl.play import batching, lifetimes
from jbrl.play.compilation import Program
from jbrl.play.experiment import Run
from jbrl.play.lifetimes import COPIES, LONGEST_BLOCK, HostArray, Lifetimes
from jbrl.play.protocol import Chunk
from jbrl.play.scheduler import Results, Scheduler
from jbrl.play.timing import clocked, interrupts_deferred
from jbrl.problems.recorder import scores_of
from jbrl.rollout import faults
from jbrl.rollout.contract import Measured, Sized, watched
from jbrl.rollout.episodes import Lane, Rules

# seconds between which a call should take: often enough to compact, seldom enough to cost nothing
FASTEST, SLOWEST = 0.2, 0.5
# Seconds of a call for each byte of its lanes' states on a CPU, which it copies to fresh memory,
# and the share of its time that they may take, unless it took longer than `LONGEST_BLOCK` then.
COPY_SECONDS, COPY_SHARE = 1.2e-9, 0.02
# Share of its groups that a device needs, at most, for lanes to move together: all moves together
# copy at most 1 / (1 - 7/8) times what there is at first.
MOST_GROUPS = 7 / 8

OF_ENVIRONMENTS = {
    faults.BAD_REWARD: "the reward is not a finite number",
    faults.BAD_OBSERVATION: "the observation is NaN, infinite or out of range",
    faults.TWO_ENDS: "the episode is both terminated and truncated: expected one of them at most",
}

# of a run that was interrupted: its lifetimes as arrays, and the seconds that they took
Checkpoint = tuple[dict[str, HostArray], float]


class LifetimeRun(Run):
    """Variant of `Run` for lifetimes that are played in blocks."""

    def schedule(self, runs: Sequence[Run]) -> Scheduler:
        return BlockScheduler(runs)

    @property
    def rules(self) -> Rules:
        """Rules of all lanes of this run."""
        problem: Any = self.protocol.test
        return Rules(
            self.agent, problem.environment, problem.recorder, self.key, self.protocol.lifetime
        )

    @property
    def divided(self) -> tuple[lifetimes.Common, tuple[Any, ...]]:
        """Of the rules what all lanes of a block share, and what each of them owns."""
        return lifetimes.divided(self.rules, together=self.protocol.together)

    def lane_shapes(self) -> Any:
        """Return one lane, as shapes."""
        together = self.protocol.together
        return lifetimes.lane_shapes(self.rules, self.knowledge_shapes(), together=together)

    def programs(
        self, width: int, devices: Sequence[jax.Device], groups: int
    ) -> tuple[Callable[[], Program], ...]:
        number, lane = jax.ShapeDtypeStruct((), jnp.int32), self.lane_shapes()
        begin, advance, size = lifetimes.begin, lifetimes.advance, (width, devices, groups)
        shared = (*self.divided, self.knowledge_shapes())
        return (
            lambda: batching.compile_mapped(begin, shared, number, *size),
            lambda: batching.compile_groups(advance, shared[0], lane, *size),
        )

    def kept(self, lanes: Lane) -> Any:
        """Return what is kept of lanes that are over: the recorder's state, and numbers of
        the agent.
        """
        agent = self.agent
        metrics = agent.metrics(lanes.agent) if isinstance(agent, Measured) else {}
        return lanes.recorder, metrics

    def result(self, played: Lifetimes, number: int) -> Chunk:
        """Return the results of lifetimes that are all over, those of run `number`."""
        part, (first, _) = played.part(number), played.spans[number]
        structure = jax.tree.structure(self.kept(played.states))
        problem: Any = self.protocol.test
        state, numbers = jax.tree.unflatten(structure, [leaf[part] for leaf in played.kept])
        codes = played.faults[part]
        scores = scores_of(problem.recorder, state, len(codes))
        metrics = problem.recorder.metrics(state)
        failed, failure = codes != 0, ""
        if failed.any():
            scores = _without(failed, scores)
            metrics = {name: _without(failed, v) for name, v in metrics.items()}
            place = int(np.flatnonzero(failed)[0])
            step, over = (int(v[part][place]) for v in (played.steps, played.episodes))
            failure = self.sentence(int(codes[place]), first + place, step, over + 1)
        metrics |= {name: np.asarray(v, np.float64) for name, v in numbers.items()}
        seconds, decisions = played.seconds[number], int(played.steps[part].sum())
        return Chunk(
            *(first, scores, None, seconds, decisions, metrics),
            failed=failed,
            failure=failure,
            processor_seconds=played.processor[number],
        )

    # ---- mistakes of an agent or an environment, in words ----

    def refuse(self, played: Lifetimes, number: int) -> None:
        """Refuse the first of the lifetimes of run `number` in which an agent or an environment has
        made a mistake, unless it is a divergence.

        Raises:
          JbrlError: names the agent or the environment, the lifetime, the step and the episode.
        """
        start = played.starts[number] - played.spans[number][0]
        wrong = np.flatnonzero((played.counts["fault"] != 0) & played.of_run(number))
        for place in wrong[np.argsort(played.numbers[wrong])]:
            steps, over, code = (int(played.counts[name][place]) for name in lifetimes.COUNTS)
            if not self.is_divergence(code):
                lifetime = int(played.numbers[place] - start)
                raise JbrlError(self.sentence(code, lifetime, steps, over + 1))

    def is_divergence(self, code: int) -> bool:
        """Return whether only the lifetime fails: learning has diverged."""
        theirs = code == faults.ILLEGAL_ACTION or (
            code >= faults.NAN and not self._nan_path(code)[0].idx
        )
        return theirs and may_diverge(self.agent)

    def sentence(self, code: int, lifetime: int, step: int, episode: int) -> str:
        """Return a sentence about a mistake that names the agent or the environment, the lifetime,
        the step and the episode.

        Args:
          code: of `faults`.
        """
        problem = self.protocol.test.short_name
        when = f"lifetime {lifetime}, step {step} (episode {episode})"
        theirs = f"{shown_name(self.given)}, {when} of '{problem}'"
        its = f"environment '{problem}', {when}"
        if self.is_divergence(code) or code == faults.ILLEGAL_ACTION:
            return f"{theirs}: {self.agent.refusal(self.protocol.test.spec.actions.n)}"
        if code >= faults.NAN:
            whose, *path = self._nan_path(code)
            return f"{its if whose.idx else theirs}: {faults.said_of_nan(tuple(path))}"
        if code == faults.NO_END:
            return (
                f"{its}: no end after {self.protocol.lifetime.max_steps} steps: "  # type: ignore[union-attr]
                "expected terminated or truncated before, or max_steps of the lifetime to be higher"
            )
        return f"{its}: {OF_ENVIRONMENTS[code]}"

    def _nan_path(self, code: int) -> tuple[Any, ...]:
        """Return the path of a leaf that holds NaN, whose first entry has `idx` 0 for the agent's
        state and 1 for the environment's.
        """
        lane = self.lane_shapes().lane
        return faults.nan_path((watched(self.agent, lane.agent), lane.environment), code)


def _without(failed: HostArray, values: HostArray) -> HostArray:
    """Return values [n, ...] with NaN for the lifetimes that have `failed`, [n] bool."""
    kept = np.array(values, np.float64)
    kept[failed] = np.nan
    return kept


class BlockScheduler(Scheduler):
    """Scheduler of lifetimes in blocks: those of one run after the other in parts that fit, or all
    of several runs at once, whose lanes own their rules.
    """

    runs: Sequence[LifetimeRun]

    def compile(self, training: Callable[[], Program] | None) -> Program | None:
        first = self.runs[0]
        self._shapes = first.lane_shapes()
        self.lane_bytes, name = lifetimes.bytes_of(self._shapes), shown_name(first.given)
        n = sum(run.protocol.n_environments for run in self.runs)
        found = lifetimes.layout(first.given, first.protocol, self.lane_bytes, n, self.resources)
        self.devices = self.devices[: found.devices]
        # before compiling, which takes longer than saying so, and may take more memory than playing
        needed = COPIES * self.lane_bytes * found.width
        self.resources.smaller(needed, found.width, self.devices[:1], name)
        trained, self._beginning, self._advancing = self.compile_to_fit(
            training, found.width, found.groups
        )
        if len(self.runs) > 1 and n > self.batch:
            raise JbrlError(f"{name}: {n} lifetimes do not fit into memory at once")
        return trained

    def results(
        self,
        starts: Sequence[int],
        size: int | None = None,
        *,
        checkpoints: list[Checkpoint | None] | None = None,
        between: Callable[[Lifetimes], Any] | None = None,
    ) -> Iterator[Results]:
        given = checkpoints or [None] * len(self.runs)
        shared = batching.spread([self.runs[0].divided[0]] * len(self.devices), self.devices)
        if len(self.runs) > 1:
            played = self._resumed(
                [
                    given.pop(0)
                    or (self._begun(number, start, run.protocol.n_environments).arrays(), 0.0)
                    for number, (run, start) in enumerate(zip(self.runs, starts, strict=True))
                ]
            )
            yield from self._play(played, shared, between)
            return
        (first,), stop = starts, self.runs[0].protocol.n_environments
        while first < stop:
            begun = [saved for saved in given if saved and len(saved[0]["numbers"])]
            given.clear()
            if begun and len(begun[0][0]["numbers"]) <= self.batch:
                played = self._resumed(begun)
                begun.clear()
            else:
                played = self._begun(0, first, min(first + min(size or stop, self.batch), stop))
            yield from self._play(played, shared, between)
            first = played.spans[0][1]

    def _begun(self, number: int, first: int, stop: int) -> Lifetimes:
        """Begin lifetimes first..stop-1 of a run."""
        run, n = self.runs[number], stop - first
        data = [(*run.divided, run.knowledge)] * (len(self.devices) * self.max_groups)
        shared = batching.spread(data, self.devices)

        def begin(numbers: HostArray) -> Any:
            return self._beginning.call(shared, first + np.maximum(numbers, 0).astype(np.int32))

        numbers, groups = self.positions(np.arange(n))
        lanes = begin(numbers)
        sizes = self.sizes(lanes)
        if sizes is not None:  # begun again, each with others of its size
            live = numbers >= 0
            numbers, groups = self.positions(numbers[live], sizes[live])
            lanes = begin(numbers)
        states = run.kept(lanes.lane)
        kept = [np.zeros((n, *v.shape[1:]), v.dtype) for v in jax.tree.leaves(states)]
        results = lifetimes.new_results(n)
        return Lifetimes([(first, stop)], lanes, numbers, groups, kept, results, [0.0])

    def _resumed(self, saved: Sequence[Checkpoint]) -> Lifetimes:
        """Return lifetimes of the runs, in their order, laid out on the devices.

        Args:
          saved: lifetimes of each run, as `Lifetimes.arrays` gives them, and their seconds.
        """
        spans = [(int(first), int(stop)) for first, stop in (a["span"] for a, _ in saved)]
        starts = np.cumsum([0, *(stop - first for first, stop in spans)])

        def joined(name: str) -> HostArray:
            return np.concatenate([arrays[name] for arrays, _ in saved])

        live = np.concatenate([a["numbers"] + s for (a, _), s in zip(saved, starts, strict=False)])
        if not len(live):
            raise JbrlError("nothing is left to play of units that are not complete")
        order = np.argsort(live)
        live = live[order]
        leaves, structure = jax.tree.flatten(self._shapes)
        names, sizes = [f"lane_{i}" for i in range(len(leaves))], None
        if isinstance(self.runs[0].agent, Sized):
            stored = [joined(name)[order] for name in names]
            sizes = self.sizes(jax.tree.unflatten(structure, stored))
        numbers, groups = self.positions(live, sizes)
        source = order[np.searchsorted(live, np.where(numbers < 0, live[0], numbers))]
        placed = (joined(name)[source] for name in names)
        lanes = batching.placed(placed, self._shapes, self.devices)
        n_kept = len(jax.tree.leaves(self.runs[0].kept(self._shapes.lane)))
        kept = [joined(f"recorder_{i}") for i in range(n_kept)]
        results = {name: joined(name) for name in lifetimes.OF_LIFETIMES}
        seconds = [took for _, took in saved]
        return Lifetimes(spans, lanes, numbers, groups, kept, results, seconds)

    def positions(
        self, live: HostArray, sizes: HostArray | None = None
    ) -> tuple[HostArray, HostArray]:
        """Return `lifetimes.positions` for the devices and groups there are."""
        return lifetimes.positions(live, sizes, (len(self.devices), self.max_groups, self.width))

    def sizes(self, lanes: Any) -> HostArray | None:
        """Return the work of a step of each lane, [n] int64; None where lanes do not differ."""
        agent = self.runs[0].agent
        if not isinstance(agent, Sized):
            return None
        return agent.sizes(lanes.lane.agent)

    def _play(
        self, played: Lifetimes, shared: Any, between: Callable[[Lifetimes], Any] | None
    ) -> Iterator[Results]:
        """Play lifetimes to their end; a run is complete when all of its are over."""
        self.lifetimes = played
        failures, closed = self._failures(played, dict(self.errors)), set[int]()
        blocks, called = 1, False
        while True:
            results: Results = []
            for number, run in enumerate(self.runs):
                if number not in closed and (number in failures or played.complete(number)):
                    closed.add(number)
                    results.append((number, failures.get(number) or run.result(played, number)))
            if results:
                yield results
            if played.over.all():
                return
            if called and between:
                between(played)
            elapsed, failures = self._call(played, shared, blocks)
            blocks, called = self.next_blocks(blocks, elapsed), True

    def _failures(
        self, played: Lifetimes, failures: dict[int, BaseException]
    ) -> dict[int, BaseException]:
        """Return why runs have failed, and take their lifetimes out of play; the others go on.

        Args:
          failures: those that are known already.
        """
        wrong = played.numbers[(played.counts["fault"] != 0) & (played.numbers >= 0)]
        for number in set((np.searchsorted(played.starts, wrong, side="right") - 1).tolist()):
            try:
                self.runs[number].refuse(played, number)
            except JbrlError as error:
                failures.setdefault(number, error)
        for number in failures:
            played.drop(number)
        return failures

    def _call(
        self, played: Lifetimes, shared: Any, blocks: int
    ) -> tuple[float, dict[int, BaseException]]:
        """Play up to `blocks` blocks of all lanes, keep what is over, and move the others together
        where that saves work.

        Returns: the seconds that it took, and why runs have failed.
        """
        limit, before = np.full(len(self.devices), blocks, np.int32), played.decisions()
        with interrupts_deferred():
            lanes, took = clocked(self._advancing.call, shared, played.groups, limit, played.lanes)
            working, elapsed = int((played.groups > 0).sum()), took.seconds
            processor = self.runs[0].per_device(took.processor, working)
            played.update(lanes)
            taken = played.decisions() - before
            for number, share in enumerate(taken / max(1, taken.sum())):
                played.seconds[number] += elapsed * float(share)
                played.processor[number] += processor * float(share)
        failures = self._failures(played, {})
        live = played.live(self.runs[0].protocol.lifetime)
        if ((played.numbers >= 0) & ~live).any():
            played.keep(self.runs[0].kept(played.states), live)
            self.compact(played)
        return elapsed, failures

    def next_blocks(self, blocks: int, elapsed: float) -> int:
        """Return the blocks of the next call, after one of `blocks` that took `elapsed` seconds."""
        longer = 1.0
        if self.resources.on_cpu:
            copying = COPY_SECONDS * self.lane_bytes * self.width * self.max_groups
            longer = min(max(SLOWEST, copying / COPY_SHARE), LONGEST_BLOCK) / SLOWEST
        if elapsed < FASTEST * longer:
            return 2 * blocks
        return max(1, blocks // 2) if elapsed > SLOWEST * longer else blocks

    def compact(self, played: Lifetimes) -> None:
        """Move the lanes that go on together, where `MOST_GROUPS` of the groups suffice."""
        here = played.numbers >= 0
        live = played.numbers[here]
        if not len(live):
            return
        order = np.argsort(live)
        sizes = self.sizes(played.lanes)
        numbers, groups = self.positions(live[order], None if sizes is None else sizes[here][order])
        if groups.max() <= MOST_GROUPS * played.groups.max():
            played.move(numbers, groups, self.devices)
