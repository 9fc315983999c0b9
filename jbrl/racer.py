"""A candidate of a choice: it is trained, timed and played within a budget of time.

What may take long is cut off where it can be: a search after each round, lifetimes in blocks after
each call, a compilation at any time, though it goes on in its thread. Everything else is expected
beforehand, by what it has taken so far.
"""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from jbrl.agents.complete import plain_parameters, played_agent
from jbrl.base import notebook
from jbrl.base.errors import JbrlError, shown
from jbrl.base.files import naming, write_whole
from jbrl.base.plugins import explained, is_outside, source_digest
from jbrl.play import compilation
from jbrl.play.experiment import Run
from jbrl.play.machine import processor
from jbrl.play.offline import Learned, SearchCheckpoint
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol, check_returns
from jbrl.play.stepping import Latency
from jbrl.play.unit import Unit
from jbrl.policy import Policy, of_trained
from jbrl.problems.hosted import HostProblem
from jbrl.rollout.contract import Findings
from jbrl.study.cost import present_busy_text
from jbrl.study.portfolio import Candidate
from jbrl.study.progress import Progress
from jbrl.study.resume import StoredFindings
from jbrl.study.storage import files
from jbrl.study.storage.store import Store

Floats = npt.NDArray[np.float64]
Entry = TypeVar("Entry")

DECISIONS = 300  # that the latency of a candidate is measured in
FEW_DECISIONS = 20  # the same, at first: slow ones are recognised by them
AGAIN = 2  # times that slow decisions are measured again: other programs may have run
CONFIRMING = 1000  # decisions that the latency of the recommended is measured in again
# of the limit of a decision, that the 99th percentile may take: the loop of a caller has decisions
# of its own
SAFE = 0.9
FRESH = 2**20  # number of the first environment that scores the winner; the race stays below


class OutOfTimeError(Exception):
    """The time that there is does not suffice for a step."""


class OverLimitError(Exception):
    """A candidate exceeds a limit, as its text says."""


@contextlib.contextmanager
def _in_words() -> Iterator[None]:
    """Raise errors of a candidate or of what it plays as `JbrlError`, with their place."""
    try:
        yield
    except (JbrlError, OutOfTimeError, OverLimitError):
        raise
    except FloatingPointError as error:
        raise JbrlError(str(error)) from error
    except (Exception, SystemExit) as error:
        raise JbrlError(explained(error).split("\n")[0]) from error


class Clock:
    """Clock of a budget.

    Args:
      budget: seconds.
      now: returns seconds of a clock that never goes back.
      began: reading of that clock; None: now.
    """

    def __init__(
        self, budget: float, now: Callable[[], float] = time.monotonic, began: float | None = None
    ) -> None:
        self.budget, self.now, self._began = budget, now, now() if began is None else began

    @property
    def spent(self) -> float:
        return self.now() - self._began

    @property
    def left(self) -> float:
        return self.budget - self.spent

    def check(self, until: float) -> None:
        """Raise OutOfTimeError when more than `until` seconds are spent."""
        if self.spent > until:
            raise OutOfTimeError


class Kept:
    """Blocks, times and findings of candidates in a folder, or nowhere.

    Args:
      content: name of a folder in it, for problems that share a digest.

    Raises:
      JbrlError: the folder cannot be made; `StoreError`: it cannot be written to.
    """

    def __init__(self, folder: Path | None, content: str = "") -> None:
        self._folder = None if folder is None else folder / "blocks" / content
        if self._folder is not None:
            with naming(str(folder), "used as a folder"):
                (self._folder / "knowledge").mkdir(parents=True, exist_ok=True)

    def get(self, name: str, read: Callable[[Any, Any], Entry]) -> Entry | None:
        """Return what `read` makes of header and arrays; None where there are none, or damaged
        ones.

        Raises:
          StoreError: the file is whole, but not what `put` has written.
        """
        if self._folder is None:
            return None
        path = self._folder / f"{name}.npz"
        try:
            header, arrays, _ = files.unpack(path.read_bytes())
        except (OSError, files.DamagedError):
            return None
        with files.naming_fields(path):
            return read(header, arrays)

    def put(self, name: str, header: dict[str, Any], **arrays: Floats) -> None:
        if self._folder is None:
            return
        path = self._folder / f"{name}.npz"
        try:
            write_whole(path, files.pack(header, arrays))
        except OSError as error:
            raise files.StoreError(f"{path}: cannot be written: {error.strerror}") from None

    def findings(self, unit: Unit, platform: str) -> SearchCheckpoint:
        """Return the store of what the agent of a unit finds."""
        if self._folder is None or unit.knowledge_id is None:
            return SearchCheckpoint()
        return StoredFindings(unit, Store(self._folder), Progress(), platform)


class _Watched(SearchCheckpoint):
    """Store of a search, which ends when `check` raises after a round."""

    def __init__(self, kept: SearchCheckpoint, check: Callable[[float], None]) -> None:
        self._kept, self._check = kept, check
        self.learned, self.unfinished = kept.learned, kept.unfinished  # type: ignore[method-assign]
        self.interrupted, self.concluded = kept.interrupted, kept.concluded  # type: ignore[method-assign]

    def advanced(self, findings: Findings, seconds: float) -> None:
        self._kept.advanced(findings, seconds)
        try:
            self._check(seconds)
        except OutOfTimeError:
            self._kept.interrupted(findings, seconds)
            raise


class _Found(SearchCheckpoint):
    """Store of what has been found already."""

    def __init__(self, learned: Learned) -> None:
        self._learned = learned

    def learned(self) -> Learned:
        return self._learned


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of a candidate that is trained."""

    offline: float
    latency: float  # 99th percentile of a decision
    median: float
    empty: float  # of a call that does nothing
    compiling: float
    processor: float = 0.0  # 99th percentile of processor seconds; 0: not measured
    # cost when it was first measured, so that a choice taken up again is the same; 0: that of now
    first_cost: float = 0.0
    decisions: int = DECISIONS  # measured
    machine: str = ""  # processor of the machine; "": not known
    busy: int = 0  # 1: other programs kept the machine busy

    @classmethod
    def read(cls, header: dict[str, Any], _: object = None) -> "Times":
        """Return the times in the header of a file.

        Raises:
          TypeError: a field is missing, or unknown; `ValueError`: it is of another kind.
        """
        found = cls(**header)
        for name, value in dataclasses.asdict(found).items():
            number = type(value) in (int, float) and 0 <= value < math.inf
            if not (isinstance(value, str) if name == "machine" else number):
                raise ValueError(f"{name} = {shown(value)}")
        return found

    @property
    def chosen_by(self) -> float:
        """Cost by which the cheapest candidate is chosen, seconds."""
        return self.first_cost or self.cost

    @property
    def cost(self) -> float:
        """Seconds of a decision, waiting for other programs left out: some decisions take longer
        than most, such as those that plan anew.
        """
        return min(self.latency, max(2 * self.median, self.processor))

    def tell(self, limit: float) -> bool:
        """Return whether they say if a decision keeps the limit, seconds, here and now: they do not
        where a stricter one has let few decisions be measured, or other programs have kept some
        waiting which do so no longer.
        """
        if self.machine not in ("", processor()):
            return False
        waited = self.latency > SAFE * limit and (self.busy or self.cost <= SAFE * limit)
        if waited and not present_busy_text():
            return False
        return self.median > limit or self.decisions > FEW_DECISIONS


class Racer:
    """A candidate that plays: trained, and later compiled, when it is first needed.

    Attributes:
      times: once it is trained.
      each: seconds of a lifetime, by the last block; 0: none was played.
      status, reason: as of `choice.Standing`.
    """

    def __init__(self, candidate: Candidate, protocol: Protocol, kept: Kept, clock: Clock) -> None:
        self.name, self.agent, self.candidate = candidate.name, candidate.agent, candidate
        self._protocol, self._kept, self._clock = protocol, kept, clock
        self._run: Run | None = None
        self._compiled = False
        self.times: Times | None = None
        self._measured: Latency | None = None
        self.each = 0.0
        self.status, self.reason = "not tried", ""

    @functools.cached_property
    def unit(self) -> Unit:
        """The unit of work that a study would call it, whose digest names what is kept."""
        kind = type(played_agent(self.agent))
        return Unit(
            "choose",
            *("", "", self._protocol, self.name, self.agent, plain_parameters(self.agent)),
            source=source_digest(kind) or None if is_outside(kind) else None,
        )

    @property
    def known(self) -> bool:
        """True if it was trained and timed before, and that is kept."""
        return self._kept.get(f"{self.unit.id}-times", Times.read) is not None

    @_in_words()
    def learn(self, offline: float, online: float, until: float) -> None:
        """Train and time it, unless that is kept, of this machine: sets `times`.

        Args:
          offline, online: limits, seconds; what takes much longer is not measured to its end.
          until: seconds spent at which it is cut off.

        Raises:
          OutOfTimeError: it would take longer.
          OverLimitError: the search has exceeded the limit.
        """
        kept = self._kept.get(f"{self.unit.id}-times", Times.read)
        if kept is not None:
            self.times = kept
            if self.times.tell(online):
                return
        with self._in_time(until):
            run = self._learned(offline, until)
            self._clock.check(until)
            latency = self._latency(online, until)
        self.times = Times(
            *(run.offline_seconds, latency.p99, latency.median, latency.empty),
            run.compile_seconds + latency.compile_seconds,
            latency.processor_p99,
            decisions=latency.decisions,
            machine=processor(),
            busy=int(present_busy_text() != ""),
        )
        self._kept.put(f"{self.unit.id}-times", dataclasses.asdict(self.times))

    @_in_words()
    def measure_again(self, online: float, until: float) -> None:
        """Measure decisions anew, where there is time: sets the latency of `times`."""
        before, times = self._measured, self.times
        found = self._latency(online, until, CONFIRMING)
        if times is None or found.decisions == FEW_DECISIONS:
            self._measured = before
            return
        self.times = dataclasses.replace(
            times,
            latency=found.p99,
            median=found.median,
            processor=found.processor_p99,
            first_cost=times.chosen_by,
            decisions=found.decisions,
            busy=int(present_busy_text() != ""),
        )
        self._kept.put(f"{self.unit.id}-times", dataclasses.asdict(self.times))

    def _latency(self, limit: float, until: float, decisions: int = DECISIONS) -> Latency:
        """Measure what decisions take; again, where some were slow for no fault of their own."""
        policy = self.policy()
        found = policy.latency(FEW_DECISIONS)
        compiling = found.compile_seconds
        for _ in range(1 + AGAIN):
            if found.median > limit or self._clock.spent + decisions * found.median > until:
                break
            again = policy.latency(decisions)
            if found.decisions < again.decisions or again.p99 < found.p99:
                found = again
            if found.p99 <= SAFE * limit:
                break
        self._measured = found
        return dataclasses.replace(found, compile_seconds=compiling)

    def expected(self, n: int) -> float:
        """Return the seconds that n lifetimes are expected to take."""
        if self.each:
            return n * self.each
        hosted = isinstance(self._protocol.test, HostProblem)
        devices, decision = 1 if hosted else len(jax.devices()), 0.0
        if self.times:  # no estimate is as good, dispatch apart where lifetimes share it
            decision = max(0.0, self.times.median - 2 * self.times.empty * (not hosted))
        return self.candidate.playing(n, self._protocol.expected_steps, devices, decision)

    def _block_name(self, start: int, stop: int) -> str:
        return f"{self.unit.id}-{start}-{stop}"

    def _block(self, start: int, stop: int) -> tuple[float, Floats] | None:
        """Return what is kept of a block."""
        read = functools.partial(_block, n=stop - start)
        return self._kept.get(self._block_name(start, stop), read)

    def has_played(self, start: int, stop: int) -> bool:
        """Return whether the scores of a block are kept: they take no time."""
        return self._block(start, stop) is not None

    @_in_words()
    def play(self, start: int, stop: int, until: float = math.inf) -> Floats:
        """Return the scores in environments start..stop-1, [n] float64; NaN where it failed.

        Args:
          until: seconds spent at which it is cut off: the scores are fewer then.

        Raises:
          OutOfTimeError: it was cut off before there were any.
        """
        name, kept = self._block_name(start, stop), self._block(start, stop)
        if kept is not None:
            self.each, scores = kept
            return scores
        with self._in_time(until):
            run, parts, done = self._ready(), [], 0
        self._clock.check(until)
        began = self._clock.spent
        chunks = run.chunks(start, stop - start, between=lambda _: self._clock.check(until))
        try:
            for chunk in chunks:
                parts.append(check_returns(chunk).returns)
                done += len(chunk.returns)
                if done >= stop - start:
                    break
                self._clock.check(until)
        except OutOfTimeError:
            if not parts:
                raise
            stop = start + done
        finally:
            chunks.close()  # type: ignore[attr-defined]
            taken = self._clock.spent - began
            self.each = max(taken, 1e-9) / (done or stop - start)
        scores = np.concatenate(parts)[: stop - start]
        self._kept.put(name, {"each": self.each}, scores=scores)
        return scores

    @property
    def is_trained(self) -> bool:
        """True if it was trained in this process: its policy is there at once."""
        return self._run is not None

    def policy(self) -> Policy:
        """Return the policy, with its latency where that was measured in this process."""
        return dataclasses.replace(of_trained(self._learned().trained()), measured=self._measured)

    def trained_again(self, number: int, until: float) -> "Racer":
        """Return the same candidate with another training, number `number` > 0, ready to play.

        Raises:
          JbrlError: the training has failed.
          OutOfTimeError: it was cut off, when `until` seconds were spent.
        """
        other = dataclasses.replace(self._protocol, seed=self._protocol.seed + number)
        trained = make_run(self.agent, other)
        with self._in_time(until):
            trained.learn(_Watched(SearchCheckpoint(), lambda _: self._clock.check(until)))
        again = Racer(self.candidate, self._protocol, Kept(None), self._clock)
        again._run = make_run(self.agent, self._protocol)
        again._run.learn(_Found(trained.learned))  # type: ignore[arg-type]
        return again

    def _learned(self, limit: float = math.inf, until: float = math.inf) -> Run:
        """Return the run, trained."""
        if self._run is None:

            def check(seconds: float) -> None:
                if seconds > limit:
                    raise OverLimitError(over("offline", seconds, limit, "more than "))
                self._clock.check(until)

            run = make_run(self.agent, self._protocol)
            platform = run.resources.devices[0].platform
            run.learn(_Watched(self._kept.findings(self.unit, platform), check))
            self._run = run
        return self._run

    def _in_time(self, until: float) -> contextlib.AbstractContextManager[None]:
        """Cut off compilations when `until` seconds are spent."""
        return compilation.waiting_while(lambda: self._clock.check(until))

    def _ready(self) -> Run:
        """Return the run, compiled for playing."""
        run = self._learned()
        if not self._compiled:
            run.compile()
            # programs are compiled for few lifetimes, and play any number of them
            run.protocol = dataclasses.replace(self._protocol, n_environments=2 * FRESH)
            self._compiled = True
        return run


def _block(header: Any, arrays: Any, n: int) -> tuple[float, Floats]:
    """Return the seconds of a lifetime and the scores of a block of n, fewer where it was cut off.

    Raises:
      KeyError, TypeError, ValueError: they are not what `Racer.play` keeps.
    """
    each, scores = header["each"], arrays["scores"]
    if not 0 < each < math.inf:
        raise ValueError(f"each = {shown(each)}")
    fits = scores.dtype == np.float64 and scores.ndim == 1 and 0 < len(scores) <= n
    if not fits or np.isinf(scores).any():
        raise ValueError(f"scores = {scores.dtype}{list(scores.shape)}")
    return each, scores


def over(what: str, seconds: float, limit: float, more: str = "") -> str:
    """Return in words which limit is exceeded."""
    taken, allowed = notebook.duration(seconds), notebook.duration(limit)
    if seconds <= limit:
        return f"takes {taken} {what}, too near the limit of {allowed}"
    return f"takes {more}{taken} {what}, the limit is {allowed}"
