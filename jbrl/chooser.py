"""The course of a choice: candidates enter a race and play in it, by turns, until the budget is
spent or nothing can change.

Nothing is begun that is not expected to end in time. What entering takes is expected by the cost
that agents declare, times what such estimates were off by so far; what playing takes, by the last
block.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jbrl.agents.registry import AGENTS, shown_name
from jbrl.base.errors import JbrlError
from jbrl.choice import Standing
from jbrl.play.protocol import Protocol
from jbrl.problems.hosted import HostProblem
from jbrl.problems.problem import DirichletProblem
from jbrl.racer import FRESH, SAFE, Clock, Kept, OutOfTimeError, OverLimitError, Racer, over
from jbrl.stats.race import Race
from jbrl.study.cost import present_busy_text
from jbrl.study.portfolio import BUDGETS, beyond, candidate
from jbrl.study.storage.files import StoreError

Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], Any]
Watch = Callable[[Sequence[Standing]], Any]

FIRST = {False: 256, True: 16}  # environments that a candidate plays at first: MDPs, and episodes
LEAST = {False: 4, True: 1}  # the same where they take long: compiled, and on the host
RANGE_PLAYED = 2048  # environments that the range from Random to Optimal is measured in
BLOCK_SHARE = 0.04  # of the budget, that the first environments of a candidate should take
REFERENCE_SHARE = 0.2  # of what is left, that the end of a range should take
LATE_SHARE = 0.5  # the same, where nobody else is going to enter
TOGETHER = 4  # candidates that are in the race before it begins
ENTRY_SHARE = 0.65  # of the time, for making candidates ready
ROUND_SHARE = 0.25  # of the time that the next candidate takes to enter, for a round before it does
TOO_MANY = 2  # candidates over a limit before any keeps it: the limits are strict
FINAL_SHARE = 0.12  # of the budget, for scoring the winner and the bracket
# times longer that what plays takes to compile than what decides: MDPs, and episodes
COMPILING_PLAY = {False: 1.0, True: 2.0}
WRITING = 3.0  # seconds, at most FINAL_SHARE / 2 of the budget: the page and the policy
LEAST_FRESH = 64  # environments that should score the winner
ASSUMED = 4.0  # times the range seen: the range of scores that nothing bounds
LATE = "was begun, but would not have been ready in time"
ROUNDING = 1e-12  # relative, of scores that are equal
SURE = 0.8  # quantile of what estimates of entering were off by, that is expected of the next


class Chooser:
    """A race that is being run.

    Args:
      limits: offline, and of a decision; seconds.
      epsilon: a part of the range from Random to Optimal.
      progress, watch: as of `choose`.
    """

    def __init__(
        self,
        protocol: Protocol,
        racers: Sequence[Racer],
        *,
        limits: tuple[float, float],
        epsilon: float,
        confidence: float,
        clock: Clock,
        progress: Progress | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.protocol, self.racers, self.limits, self.clock = protocol, racers, limits, clock
        self.part, self.confidence = epsilon, confidence
        self._progress, self._watch = progress, watch
        self.by_name = {racer.name: racer for racer in racers}
        self.played: dict[str, list[Floats]] = {}  # scores of those that take part
        self._fresh: list[Floats] = []  # scores of the recommended in other environments
        self.busy = ""
        self._compiled: set[type] = set()  # agents whose programs are there
        self._off = [1.0]  # what entering took, for a second that was expected
        self._entering = self._racing = 0.0  # seconds
        self.references: dict[str, Floats] = {}
        self._late = False  # whether the ends of the range were tried late, too
        self.race: Race | None = None
        self.assumed = False  # whether the range of scores is
        self.needed = 0.0  # seconds of the budget that would have served to try a candidate
        self.certified: Callable[[], bool] = lambda: False  # whether nothing is left to win

    # ---- time ----

    @property
    def writing(self) -> float:
        return min(WRITING, FINAL_SHARE / 2 * self.clock.budget)

    @property
    def _end(self) -> float:
        """Seconds spent at which the race has to be over."""
        last = FINAL_SHARE * self.clock.budget
        if not self.played:  # an answer without a score is better than none
            return self.clock.budget - self.writing
        names = list(self.played) if self.race is None else [self.race.leader]
        scoring = max(self._scoring(self.by_name[name]) for name in names)
        last = max(last, self.writing + scoring)
        return self.clock.budget - min(last, self.clock.budget / 3)

    def _scoring(self, racer: Racer) -> float:
        """Return the seconds that it takes to score a candidate afresh: one whose blocks are those
        of another process is not compiled in this one.
        """
        times, seconds = racer.times, LEAST_FRESH * racer.each
        if times is None or racer.is_trained:
            return seconds
        return seconds + COMPILING_PLAY[self.protocol.in_blocks] * times.compiling

    def say(self, step: str) -> None:
        """Show a step, how much of the budget is spent, and how the candidates stand."""
        if self._progress:
            spent, budget = self.clock.spent, self.clock.budget
            self._progress(step, min(int(spent), int(budget)), max(1, int(budget)))
        if self._watch:
            leader = None if self.race is None else self.race.leader
            self._watch([self.standing(racer, leader) for racer in self.racers])

    # ---- who takes part ----

    def _refer(self, share: float) -> None:
        """Play the ends of the range, as far as that takes no more than a share of the time."""
        for name in ("Random", "Optimal"):
            if name in self.references:
                continue
            made = candidate(AGENTS[name].agent(), self.protocol)
            one = Racer(made, self.protocol, Kept(None), self.clock)
            if self._expected(one) > share * (self._end - self.clock.spent):
                continue
            try:
                self.protocol.check_agent(one.agent, one.name)
                self.say(f"{name}, for the range")
                self.references[name] = self._opening(one, RANGE_PLAYED)
            except (JbrlError, OutOfTimeError):
                continue

    def run(self) -> str:
        """Let candidates enter and play by turns until nothing can change, nothing is left to win,
        or the budget is spent; return which: "epsilon", "certified", "budget", or "none" where
        nobody takes part. May be called again, where one has left since.
        """
        while not self.played and self._enter_next():  # an answer first
            pass
        if self.played:
            self._refer(REFERENCE_SHARE)
        while True:
            early = len(self.played) < min(TOGETHER, len(self.racers))
            share = ENTRY_SHARE * (self._entering + self._racing)
            turns = [self._enter_next, self._play_next]
            if not early and self._entering > share:
                turns.reverse()
            if not any(turn() for turn in turns):
                break
            if self.race is not None and (self._is_vain() or self.certified()):
                return "certified"
        if self.race is not None and self._is_vain():
            return "certified"
        late = [self._expected(one) for one in self.racers if one.status == "out of time"]
        if late and not self.needed:
            self.needed = self.clock.budget + min(late)
        if self.needed or (self.race and self.race.open()):
            return "budget"
        return "epsilon" if self.race else "none"

    def _entrant(self) -> tuple[Racer, float] | None:
        """Return the next candidate that is expected to be ready in time, and the seconds that this
        is expected to take; None where there is none.
        """
        self.needed = 0.0
        for racer in self._waiting():
            racer.reason = beyond(racer.agent, self.protocol, *self.limits)
            if racer.reason:
                racer.status = "over a limit"
                continue
            expected = self._expected(racer)
            # the first is tried in any case: it may be trained in time
            if self.clock.spent + expected <= self._end or not self._entering:
                return racer, expected
            needed = (self.clock.spent + expected) * self.clock.budget / self._end
            self.needed = min(self.needed or math.inf, needed)
            racer.reason = f"expected to take {expected:.0f} s, which the budget did not allow"
        return None

    def _enter_next(self) -> bool:
        """Make the next candidate ready that is expected to be so in time; return whether one was
        tried.
        """
        entrant = self._entrant()
        return entrant is not None and self._make_ready(*entrant)

    def _make_ready(self, racer: Racer, expected: float) -> bool:
        """Make a candidate ready that is expected to take so many seconds; return True."""
        began = self.clock.spent
        self.say(f"{racer.name}: getting ready")
        known = racer.known
        self._enter(racer)
        took = self.clock.spent - began
        self._entering += took
        if not known:
            self._off.append(took / max(expected / self.pace, 1e-9))
        self._compiled.add(type(racer.agent))
        return True

    def _waiting(self) -> list[Racer]:
        """Return the candidates that were not tried, in their order; last those whose kind has left
        the race, unless they have a greater budget. While all break the limits, first those that
        leave the prior unused: no decision takes less.
        """
        waiting = [racer for racer in self.racers if racer.status == "not tried"]
        if self.race is None:
            late = sum(racer.status == "over a limit" for racer in self.racers)
            strict = not self.played and late >= TOO_MANY
            return sorted(waiting, key=lambda one: strict and not one.candidate.blind)
        kinds = {name: type(racer.agent) for name, racer in self.by_name.items()}
        running = {kinds[name] for name in self.race.running}
        lost = {kinds[name] for name in self.race.left} - running
        return sorted(
            waiting,
            key=lambda one: type(one.agent) in lost and shown_name(one.agent) not in BUDGETS,
        )

    @property
    def pace(self) -> float:
        """Seconds that entering takes for each that is expected by the rule."""
        return float(np.quantile(self._off, SURE))

    def is_compiled(self, racer: Racer) -> bool:
        """Return whether programs of its kind are compiled."""
        return type(racer.agent) in self._compiled

    @property
    def first(self) -> int:
        """Environments that a candidate plays at first, at most."""
        return FIRST[self.protocol.in_blocks]

    @property
    def least(self) -> int:
        """Environments that a candidate plays at first, at least."""
        return LEAST[isinstance(self.protocol.test, HostProblem)]

    def _expected(self, racer: Racer) -> float:
        """Return the seconds that a candidate is expected to take until it has played first."""
        one = racer.candidate
        compiling = one.compiling * (0.1 if self.is_compiled(racer) else 1.0)
        searching = min(one.searching, self.limits[0])
        return self.pace * (compiling + searching + racer.expected(self.least))

    def _enter(self, racer: Racer) -> None:
        """Make a candidate ready, and let it play the first environments if it keeps the limits."""
        began = self.clock.spent
        try:
            racer.learn(*self.limits, self._end)
            racer.reason = self._over(racer)
            if racer.reason:
                racer.status = "over a limit"
                return
            hosted = isinstance(self.protocol.test, HostProblem)  # what decides plays there
            if not hosted and not self.is_compiled(racer):
                took = COMPILING_PLAY[self.protocol.in_blocks] * (self.clock.spent - began)
                self.clock.check(self._end - took)
            scores = self._opening(racer, self.first)
            racer.status, self.played[racer.name] = "running", []
            self._add(racer.name, scores)
            if self.race is not None:  # where a reference lacks, it may be the worst or the best
                self.epsilon = self.race.epsilon = self._epsilon()
        except OutOfTimeError:
            late = "is ready, but had no time to play" if racer.times else LATE
            racer.status, racer.reason = "out of time", late
        except OverLimitError as error:
            racer.status, racer.reason = "over a limit", str(error)
            self._is_busy()
        except StoreError:  # no fault of the candidate
            raise
        except (JbrlError, FloatingPointError) as error:
            racer.status, racer.reason = "failed", str(error)

    def _opening(self, racer: Racer, most: int) -> Floats:
        """Return the scores in the first environments: `most`, or as many as take little time."""
        parts, short = [], BLOCK_SHARE * self.clock.budget
        first = min(most, self.first)
        if self.protocol.in_blocks:  # no more than are played at once: estimates are rough
            lanes = max(self.least, racer.candidate.lanes)
            first = min(first, 1 << (lanes - 1).bit_length())
        while first > self.least and racer.expected(first) > short:
            first //= 2
        for start, stop in _blocks(0, most, first):
            if start and racer.expected(stop - start) > short:
                break
            try:
                parts.append(racer.play(start, stop, self._end))
            except OutOfTimeError:
                if not parts:
                    raise
                break
            if len(parts[-1]) < stop - start:
                break
        return np.concatenate(parts)

    def _over(self, racer: Racer) -> str:
        """Return which limit a candidate breaks, in words; "": none. On a busy machine, where the
        slowest decisions wait for other programs, the processor seconds of these count, twice the
        median at least, where that is less.
        """
        times: Any = racer.times
        decision = times.latency
        if self._is_busy() and decision > SAFE * self.limits[1]:
            decision = times.cost
        for what, seconds, limit, share in (
            ("offline", times.offline, self.limits[0], 1.0),
            ("per decision", decision, self.limits[1], SAFE),
        ):
            if seconds > share * limit:
                return over(what, seconds, limit)
        return ""

    def _is_busy(self) -> bool:
        """Return whether other programs keep the machine busy, which the answer then says."""
        busy = present_busy_text().strip()
        self.busy = busy or self.busy
        return bool(busy)

    def confirm(self, racer: Racer) -> bool:
        """Return whether a candidate keeps the limit of a decision when that is measured again; it
        leaves where not. What is kept from another process is believed.
        """
        if not racer.is_trained:
            return True
        self.say(f"{racer.name}: decisions are timed again")
        racer.measure_again(self.limits[1], self.clock.spent + self.clock.budget / 20)
        racer.reason = self._over(racer)
        if racer.reason:
            self._leave(racer, "over a limit")
        return not racer.reason

    def fail(self, racer: Racer, error: JbrlError) -> None:
        """Let a candidate that has played leave the race for an error, unless it is no fault of
        it.
        """
        if isinstance(error, StoreError):
            raise error
        racer.reason = str(error)
        self._leave(racer, "failed")

    def _leave(self, racer: Racer, status: str) -> None:
        racer.status, self.race = status, None
        self.played.pop(racer.name)
        if self.played:  # anew: others may have left for it
            self.begin()

    def _is_vain(self) -> bool:
        """Return whether all agents are worth the same: there is one action, or one return."""
        low, high = self.range
        level = not self.assumed and high - low <= ROUNDING * max(abs(low), abs(high))
        return self.protocol.test.spec.actions.n == 1 or level

    # ---- the race ----

    def begin(self) -> None:
        """Begin the race, or begin it anew where scores have left the range that was assumed."""
        self.range, self.assumed = self._score_range()
        self.epsilon = self._epsilon()
        names, span = [racer.name for racer in self.racers], self.range[1] - self.range[0]
        self.race = Race(names, span=span, epsilon=self.epsilon, confidence=self.confidence)
        for name, parts in self.played.items():
            self.race.add(name, self.clipped(np.concatenate(parts)))

    def _epsilon(self) -> float:
        """Return the difference that does not matter, by all that have played. It may change in a
        race: evidence for one holds for all that are greater.
        """
        means = {name: float(np.nanmean(v)) for name, v in self.references.items()}
        means |= {name: float(np.nanmean(np.concatenate(v))) for name, v in self.played.items()}
        best, worst = max(means.values()), min(means.values())
        if means.get("Random", best) < best:  # else nobody has learned to be better
            worst = means["Random"]
        return max(self.part * (best - worst), ROUNDING * (self.range[1] - self.range[0]))

    def _score_range(self) -> tuple[tuple[float, float], bool]:
        """Return the least and greatest score there may be, and whether that is an assumption."""
        if isinstance(self.protocol.test, DirichletProblem) and not self.protocol.in_blocks:
            return self._extremes, False
        played = (v for parts in self.played.values() for v in parts)
        seen = [*self.references.values(), *self._fresh, *played]
        low, high = float(np.nanmin(all := np.concatenate(seen))), float(np.nanmax(all))
        margin = (ASSUMED - 1) / 2 * (high - low)  # 0: whatever differs begins the race anew
        return (low - margin, high + margin), True

    @functools.cached_property
    def _extremes(self) -> tuple[float, float]:
        """The returns of the worst and of the best actions and outcomes that are possible."""
        mdps: Any = self.protocol.test.mdps  # type: ignore[attr-defined]
        possible, rewards = np.asarray(mdps.concentrations) > 0, np.asarray(mdps.rewards, float)
        values = np.zeros((2, len(rewards)))
        for _ in range(self.protocol.horizon):
            before, (lows, highs) = values, (rewards + self.protocol.discount * v for v in values)
            least = np.where(possible, lows, np.inf).min((1, 2))
            most = np.where(possible, highs, -np.inf).max((1, 2))
            values = np.stack([least, most])
            if (values == before).all():  # more decisions add nothing
                break
        first = int(mdps.initial_state)
        least, most = values if first < 0 else values[:, first : first + 1]
        return float(least.min()), float(most.max())

    def clipped(self, scores: Floats) -> Floats:
        """Return scores within the range; a lifetime that failed counts as the least."""
        low, high = self.range
        return np.clip(np.where(np.isnan(scores), low, scores), low, high)

    def admit(self, fresh: Floats) -> Floats:
        """Return scores of environments that the race has not seen, within the range, which becomes
        wider where it was assumed and they have left it.
        """
        self._fresh.append(fresh)
        if self._has_left(fresh):
            self.begin()
        return self.clipped(fresh)

    def _has_left(self, scores: Floats) -> bool:
        """Return whether scores are outside a range that was assumed."""
        low, high = self.range
        return self.assumed and bool(
            np.nanmin(scores, initial=high) < low or np.nanmax(scores, initial=low) > high
        )

    def _add(self, name: str, scores: Floats) -> None:
        self.played[name].append(scores)
        if self.race is None:
            return
        if self._has_left(scores):
            self.begin()
        else:
            self.race.add(name, self.clipped(scores))

    def _play_next(self) -> bool:
        """Play a round: those behind the leader double, or else the leader and its challengers;
        before a long one the next candidate enters. Return whether either was possible.
        """
        if self.race is None:
            if not self.played:
                return False
            self.begin()
        race: Any = self.race
        race.drop()
        leader, rivals = race.leader, race.open()
        n = len(race.scores(leader))
        behind = [name for name in rivals if len(race.scores(name)) < n]
        todo = self._affordable([(name, min(2 * self._n(name), n)) for name in behind])
        if rivals and not todo:
            level = [name for name in rivals if name not in behind]
            todo = self._affordable([(name, 2 * n) for name in (leader, *level)])
            todo = todo if len(todo) > 1 and todo[0][0] == leader else []
        seconds = sum(self.by_name[name].expected(stop - self._n(name)) for name, stop in todo)
        entrant = self._entrant()
        if entrant is not None and seconds > ROUND_SHARE * entrant[1]:
            return self._make_ready(*entrant)
        if rivals and entrant is None and not self.references and not self._late:
            self._late = True
            self._refer(LATE_SHARE)
            if self.references:  # epsilon is a part of the range
                self.begin()
                return True
        began = self.clock.spent
        for name, stop in todo:
            self.say(f"{len(rivals) + 1} candidates, {stop:,} environments: {name}")
            try:
                self._add(name, self.by_name[name].play(self._n(name), stop, self._end))
            except OutOfTimeError:
                break
            except JbrlError as error:
                self.fail(self.by_name[name], error)
                break
        self._racing += self.clock.spent - began
        return bool(todo)

    def _n(self, name: str) -> int:
        return sum(map(len, self.played[name]))

    def _affordable(self, wanted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return those of (name, environments), in order, that can be played in what is left."""
        left, found = self._end - self.clock.spent, []
        for name, stop in wanted:
            seconds = self.by_name[name].expected(stop - self._n(name))
            if seconds <= left and stop <= FRESH:
                found.append((name, stop))
                left -= seconds
        return found

    def standing(self, racer: Racer, leader: str | None) -> Standing:
        """Return the figures of a candidate so far."""
        status, reason, mean, error, n = racer.status, racer.reason, None, None, 0
        race, times = self.race, racer.times
        if race is not None and len(race.scores(racer.name)):
            mean, n = race.standings()[racer.name]
            error = float(np.std(race.scores(racer.name)) / math.sqrt(n))
            status = "leader" if racer.name == leader else "running"
            if racer.name in race.left:
                status, reason = "worse", f"than {race.left[racer.name][0]}"
        return Standing(
            name=racer.name,
            algorithm=shown_name(racer.agent),
            status=status,
            reason=reason,
            offline_seconds=times.offline if times else None,
            latency_seconds=times.latency if times else None,
            compile_seconds=times.compiling if times else None,
            mean=mean,
            standard_error=error,
            n=n,
        )


def _blocks(start: int, stop: int, first: int) -> Iterator[tuple[int, int]]:
    """Yield blocks from start to stop that double, the first of size `first`."""
    while start < stop:
        last = min(2 * start or first, stop)
        yield start, last
        start = last
