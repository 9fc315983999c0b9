"""The verdict of a race: who is recommended, how well it does in environments that the race has not
seen, how much better any agent can be, and the limits at which the answer would change.
"""

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.choice import Choice, Looser, Standing
from jbrl.chooser import Chooser, Floats
from jbrl.play.machine import available_cores
from jbrl.policy import Policy
from jbrl.problems.problem import DirichletProblem
from jbrl.racer import FRESH, SAFE, OutOfTimeError, Racer
from jbrl.rollout.contract import OfflineSearch
from jbrl.stats.race import interval
from jbrl.study.storage.files import StoreError

MOST_FRESH = 4096  # environments that score the winner
LEAST_BRACKET = 15.0  # seconds
EARLY_SHARE = 0.1  # of the budget, for a bracket that may end the race
BRACKET_SHARE = 0.4  # of what is left of the budget: a bracket takes about what it is given
LONGEST_BRACKET = 60.0
TRAININGS = 3  # of a recommended agent that trains, where there is time
LOOSER_SHARE = 0.4  # of what is left of the budget, for candidates over a limit


class Verdict:
    """The answer of a race, as far as it is known.

    Args:
      race: not yet run.
    """

    def __init__(self, race: Chooser) -> None:
        self.race = race
        race.certified = self._is_certified
        self.stopped = "none"
        self.score: tuple[tuple[float, float, float], int] | None = None
        self.trainings: dict[str, tuple[float, ...]] = {}  # as of `Choice`
        self.bracket: tuple[float, float] | None = None
        self.looser: list[Looser] = []
        self.policy: Policy | None = None
        self._recommended: Racer | None = None  # whose policy, score and trainings these are
        self._bracketed = False

    def reach(self) -> Choice:
        """Run the race and return the answer; Ctrl-C ends it with what is known."""
        try:
            self.stopped = self.race.run()
            while self.race.race is not None:
                racer = self.race.by_name[self._cheapest()]
                try:
                    if self.race.confirm(racer):
                        self._conclude(racer)
                        break
                except JbrlError as error:
                    self._recommended = self.policy = None
                    self.race.fail(racer, error)
                self.stopped = self.race.run()
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        return self.answer()

    def _conclude(self, racer: Racer) -> None:
        """Score the recommended candidate afresh, and find what it rests on."""
        self._recommended, self.policy = racer, racer.policy()
        before = self.race.race
        fresh = self._score(racer)
        race: Any = self.race.race
        if race is not before:  # in the wider range less is shown
            race.drop()
            if self.stopped == "epsilon" and race.open():
                self.stopped = "budget"
        if fresh is not None:
            self._train_again(racer, fresh)
        self._loosen(racer)
        self._find_bracket(BRACKET_SHARE * self._left)

    @property
    def _left(self) -> float:
        return self.race.clock.left - self.race.writing

    # ---- the score ----

    def _score(self, racer: Racer) -> Floats | None:
        """Set mean and limits in environments that the race has not seen; return the scores."""
        later = BRACKET_SHARE * self._left >= LEAST_BRACKET or isinstance(
            racer.agent, OfflineSearch
        )
        wanted, n = self._left / (2 if later else 1), MOST_FRESH
        while n > self.race.least and racer.expected(n) > wanted:
            if racer.has_played(FRESH, FRESH + n):
                break
            n //= 2
        self.race.say(f"{racer.name}: {n:,} fresh environments")
        try:
            until = self.race.clock.spent + self._left
            fresh = self.race.admit(racer.play(FRESH, FRESH + n, until))
        except OutOfTimeError:
            return None
        limits = interval(fresh, *self.race.range, self.race.confidence)
        self.score = (_mean(fresh), *limits), len(fresh)
        return fresh

    def _train_again(self, recommended: Racer, fresh: Floats) -> None:
        """Score further trainings of the recommended and of those tied with it, in the same
        environments.
        """
        n = len(fresh)
        for name in dict.fromkeys((recommended.name, *self._tied())):
            racer = self.race.by_name[name]
            if not isinstance(racer.agent, OfflineSearch):
                continue
            if racer is recommended:
                self.trainings[name] = (_mean(fresh), *self._trained(racer, range(1, TRAININGS), n))
            elif len(means := tuple(self._trained(racer, range(TRAININGS), n))) > 1:
                self.trainings[name] = means

    def _trained(self, racer: Racer, numbers: Iterable[int], n: int) -> Iterator[float]:
        """Yield the mean score of trainings number 0 (that of the race), 1, …, as long as there is
        time.
        """
        times: Any = racer.times
        for number in numbers:
            learning = (times.offline + times.compiling) * bool(number)
            if learning + racer.expected(n) > self._left:
                return
            self.race.say(f"{racer.name}: training {number + 1}")
            try:
                until = self.race.clock.spent + self._left
                one = racer.trained_again(number, until) if number else racer
                scores = one.play(FRESH, FRESH + n, until)
            except StoreError:
                raise
            except (JbrlError, FloatingPointError, OutOfTimeError):
                return
            if len(scores) < n:
                return
            yield _mean(self.race.clipped(scores))

    # ---- other limits ----

    def _loosen(self, recommended: Racer) -> None:
        """Find candidates over a limit that are better than the recommended."""
        race, best = self.race, recommended.name
        end = race.clock.spent + LOOSER_SHARE * self._left
        scores: Any = race.race.scores(best)  # type: ignore[union-attr]
        late = [one for one in race.racers if one.status == "over a limit" and one.times]
        greatest = race.epsilon
        for racer in sorted(late, key=lambda one: one.times.cost):  # type: ignore[union-attr]
            compiling = 0.0 if race.is_compiled(racer) else racer.candidate.compiling * race.pace
            n = 1 << (min(len(scores), race.first).bit_length() - 1)
            while n > race.least and racer.expected(n) > (end - race.clock.spent) / 2:
                n //= 2
            if race.clock.spent + compiling + racer.expected(n) > end:
                continue
            race.say(f"{racer.name}: over a limit, {n:,} environments")
            try:
                found = race.clipped(racer.play(0, n, end))
            except StoreError:
                raise
            except (JbrlError, OutOfTimeError):
                continue
            paired = found - scores[: len(found)]
            if _mean(paired) > greatest:
                greatest, span = _mean(paired), race.range[1] - race.range[0]
                low, high = interval(paired, -span, span, race.confidence)
                times: Any = racer.times
                seconds = self._judged(racer), times.offline
                self.looser.append(Looser(racer.name, *seconds, greatest, low, high))

    def _tighter(self, recommended: str) -> Iterator[tuple[float, str]]:
        """Yield the latencies from which on another candidate is best, the shortest first, up to
        that of the recommended; those within a factor of two are one step.
        """
        means, best, first = self._means(), -np.inf, 0.0
        seconds = {name: self._judged(self.race.by_name[name]) for name in means}
        steps = {}
        for name in sorted(means, key=lambda name: seconds[name]):
            first = seconds[name] if seconds[name] > 2 * first else first
            steps[name] = first
        for name in sorted(means, key=lambda n: (steps[n], n != recommended, -means[n])):
            if name == recommended or means[name] > best + self.race.epsilon:
                best = means[name]
                yield seconds[name], name
            if name == recommended:
                return

    def _judged(self, racer: Racer) -> float:
        """Return the seconds of a decision that a limit is held against: others may have kept it
        waiting.
        """
        times: Any = racer.times
        waited = times.cost <= SAFE * self.race.limits[1] < times.latency
        return times.cost if waited else times.latency

    # ---- the Bayes-optimal value ----

    def _find_bracket(self, seconds: float) -> None:
        """Bracket the Bayes-optimal value, unless that is known, cannot be, or takes too long."""
        rules = self.race.protocol
        seconds = min(seconds / max(1.0, os.getloadavg()[0] / available_cores()), LONGEST_BRACKET)
        known = self._bracketed or not isinstance(rules.test, DirichletProblem) or rules.in_blocks
        if known or seconds < LEAST_BRACKET:
            return
        self._bracketed = True
        self.race.say("bracket of the Bayes-optimal value")
        from jbrl.bayes_optimal.bracket import bound  # here: it takes long to import

        options = {"discount": rules.discount, "horizon": rules.horizon, "seed": rules.seed}
        try:
            found = bound(rules.test, budget=seconds, **options)  # type: ignore[arg-type]
        except JbrlError:  # of so large a problem, or in so little time
            return
        self.bracket = found.lower, found.upper

    def _is_certified(self) -> bool:
        """Return whether the leader is shown to be within epsilon of the Bayes-optimal value.

        Any candidate may come to lead by chance: their limits hold together.
        """
        race: Any = self.race.race
        self._find_bracket(EARLY_SHARE * self.race.clock.budget)
        if self.bracket is None:
            return False
        enough, scores = self.bracket[1] - self.race.epsilon, race.scores(race.leader)
        confidence = 1 - (1 - self.race.confidence) / len(self.race.racers)
        return bool(_mean(scores) >= enough) and (
            interval(scores, *self.race.range, confidence)[0] >= enough
        )

    # ---- the answer ----

    def answer(self) -> Choice:
        """Return the answer by what is known; nothing more is played."""
        course, rules = self.race, self.race.protocol
        if course.race is None and course.played:
            course.begin()
        race, policy, winner = course.race, self.policy, None
        # in the place of those that have played, whoever is trained, and was timed if any was;
        # what an interruption has kept from playing counts as not tried
        unplayed = [r for r in course.racers if r.status in ("out of time", "not tried")]
        late = [racer for racer in unplayed if racer.is_trained]
        late.sort(key=lambda racer: racer.times is None)
        recommended = late[0].name if late else None
        if race is not None:
            winner = race.leader
            recommended = self._recommended.name if self._recommended else self._cheapest()
        if policy is None and recommended and course.by_name[recommended].is_trained:
            policy = course.by_name[recommended].policy()
        outcome = "answered" if recommended else "none"
        return Choice(
            problem=rules.test.short_name,
            digest=rules.test.digest,
            offline_limit=course.limits[0],
            online_limit=course.limits[1],
            budget=course.clock.budget,
            needed=course.needed,
            seed=rules.seed,
            epsilon=course.epsilon if race else 0.0,
            confidence=course.confidence,
            outcome="interrupted" if self.stopped == "interrupted" else outcome,
            stopped=self.stopped,
            winner=winner,
            recommended=recommended,
            tied=tuple(self._tied()),
            cheaper=tuple(self._cheaper(recommended)),
            score=self.score[0] if self.score else None,
            n_fresh=self.score[1] if self.score else 0,
            score_range=course.range if race else (0.0, 0.0),
            range_assumed=course.assumed if race else False,
            references={name: float(np.nanmean(v)) for name, v in course.references.items()},
            bracket=self.bracket,
            share=self._share(),
            tighter=tuple(self._tighter(str(recommended))) if race else (),
            looser=tuple(self.looser),
            standings=tuple(self._standing(racer, winner) for racer in course.racers),
            seconds=course.clock.spent,
            busy=course.busy,
            trainings=self.trainings,
            policy=policy,
        )

    def _share(self) -> tuple[float, float] | None:
        """Return the least and greatest part of the Bayes-optimal value that the score is."""
        if not self.score or not self.bracket or self.bracket[0] <= 0:
            return None
        (_, low, high), (lower, upper) = self.score[0], self.bracket
        if low < 0:  # shares below 0 have no such limit
            return None
        return min(1.0, low / upper), min(1.0, high / lower)

    def _standing(self, racer: Racer, leader: str | None) -> Standing:
        """Return the figures of a candidate, with those that take time to compute."""
        race: Any = self.race.race
        found = self.race.standing(racer, leader)
        if found.mean is None:
            return found
        found = dataclasses.replace(found, curve=tuple(race.curve(racer.name)))
        if racer.name == leader:
            return found
        status = "tied" if self._is_tied(racer.name, str(leader)) else "not better"
        return dataclasses.replace(
            found,
            difference=race.difference(racer.name, leader),
            status=found.status if racer.name in race.left else status,
        )

    def _tied(self) -> list[str]:
        """Return the leader and those tied with it."""
        race: Any = self.race.race
        if race is None:
            return []
        return [n for n in race.running if n == race.leader or self._is_tied(n, race.leader)]

    def _cheaper(self, recommended: str | None) -> list[str]:
        """Return the tied that cost less than half of the recommended, cheapest first: they are not
        shown to be as good within epsilon.
        """
        cost = {name: self._latency(name) for name in (*self._tied(), recommended) if name}
        return sorted(
            (n for n in cost if 2 * cost[n] < cost[str(recommended)]), key=cost.__getitem__
        )

    def _is_tied(self, name: str, leader: str) -> bool:
        """Return whether a candidate may be better than the leader, or is within epsilon of it by
        the mean.
        """
        race: Any = self.race.race
        near = race.mean_difference(name, leader) >= -self.race.epsilon
        return near or not race.settled(name, leader)

    def _latency(self, name: str) -> float:
        times = self.race.by_name[name].times
        return times.chosen_by if times else 0.0

    def _means(self) -> Mapping[str, float]:
        race: Any = self.race.race
        return {name: mean for name, (mean, _) in race.standings().items()}

    def _cheapest(self) -> str:
        """Return the cheapest that is shown to be as good as the leader within epsilon; costs
        within a factor of two are the same.
        """
        race: Any = self.race.race
        leader = str(race.leader)
        good = [n for n in race.running if n == leader or race.settled(leader, n)]
        least = min(map(self._latency, good))
        cheap = [n for n in good if self._latency(n) <= 2 * least]
        return leader if leader in cheap else max(cheap, key=lambda name: self._means()[name])


def _mean(scores: Floats) -> float:
    return math.fsum(scores.tolist()) / len(scores)
