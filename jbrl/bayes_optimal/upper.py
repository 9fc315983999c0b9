"""Upper ends: the relaxations of a problem, and which of them certifies with how many MDPs."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from jbrl.bayes_optimal import forgetting, hidden_ahead
from jbrl.bayes_optimal.forgetting import Forgetting
from jbrl.bayes_optimal.hidden_ahead import HiddenAhead
from jbrl.bayes_optimal.limits import ONE_SIDED
from jbrl.bayes_optimal.look_ahead import LookAhead, Replication
from jbrl.bayes_optimal.plan import LEAST_MDPS, REPLICATIONS, USUAL_MDPS, Plan

FIRST = 512  # MDPs of the first run of each relaxation, at most, by which durations are measured
PROMISING = 0.03  # relative: relaxations whose ends are expected to be so near the lowest are tried
TRIED = 4  # the part of the MDPs of a replication with which they are
FLATTER = 0.65  # the fall of an end at a decision more, of what its fall so far lets expect
FILLED = 0.85  # of the time that is left

clock = time.perf_counter


@dataclasses.dataclass(frozen=True)
class Way:
    """A relaxation that gives an upper end."""

    kind: int  # its number
    name: str
    decisions: int
    least: int  # MDPs of a replication, of which all numbers are multiples
    usual: int  # where no budget is given
    most: int
    seconds: Callable[[int], float]  # of a replication, estimated
    replication: Callable[[int, np.random.SeedSequence], Replication]
    # how far the bound may lie above the average of replications of so many MDPs
    margin: Callable[[Sequence[Replication], int], float]
    facts: dict[str, object]
    shift: float = 0.0  # how far the end lies below being shown the MDP without looking ahead


Kind = Callable[[int], Way]  # of the decisions looked ahead
Trial = Callable[[Way, int], Replication]  # a replication of so many MDPs that certifies nothing


def fitting(way: Way, pace: float, seconds: float) -> int:
    """Return the most MDPs with which a replication takes at most `seconds`; 0 where the fewest
    take longer.

    Args:
      pace: measured duration over the estimated one.
    """
    least = pace * way.seconds(way.least)
    each = (pace * way.seconds(2 * way.least) - least) / way.least
    if least > seconds:
        return 0
    return min(way.most, (way.least + int((seconds - least) / each)) // way.least * way.least)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """A way with a number of MDPs, and the end that it is expected to give."""

    way: Way
    n_mdps: int
    pace: float
    end: float


@dataclasses.dataclass(frozen=True)
class Race:
    """The choice of a way by the ends that are to be expected within the time that is left."""

    first: Kind
    # of the seconds that a replication may take, and of the pace of the first runs
    others: Callable[[float, float], Sequence[Kind]]
    shallow: int  # decisions looked ahead in the first runs
    deepest: int
    trial: Trial
    left: Callable[[], float]  # seconds

    def choose(self) -> tuple[Way, int]:
        """Return the way whose end is expected to be lowest, and the MDPs of a replication."""
        first = self.first(self.shallow)
        if self.left() <= 0:
            return first, first.least
        self.trial(first, FIRST)  # makes what later ones find
        runs = [self._timed(first, FIRST)]
        kinds = [self.first, *self.others(self._share(1), runs[0][1])]
        ways = [kind(self.shallow) for kind in kinds[1:]]
        runs += [self._timed(way, min(FIRST, way.least)) for way in ways]
        seconds = self._share(1)
        plans = [self._deep(*one, seconds) for one in zip(kinds, runs, strict=True)]
        found = [plan for plan in plans if plan is not None]
        if not found:
            return first, first.least
        least = min(plan.end for plan in found)
        near = [one for one in found if one.end <= least + PROMISING * abs(least)]
        best = min(map(self._again, near), key=lambda plan: plan.end)
        return best.way, fitting(best.way, best.pace, self._share(0)) or best.way.least

    def _share(self, more: int) -> float:
        """Return the seconds of a replication if the time is for all of them and `more`."""
        return FILLED * self.left() / (REPLICATIONS + more)

    def _timed(self, way: Way, n_mdps: int) -> tuple[Replication, float]:
        """Return a trial, and its duration over the estimated one."""
        started = clock()
        made = self.trial(way, n_mdps)
        return made, (clock() - started) / way.seconds(n_mdps)

    def _deep(self, kind: Kind, run: tuple[Replication, float], seconds: float) -> _Plan | None:
        """Return the depth that promises the lowest end; None where nothing fits.

        Ends fall about as the logarithm of the depth.
        """
        first, pace = run
        fall = FLATTER * max(0.0, first.clairvoyant - kind(self.shallow).shift - first.value)
        plans = []
        for decisions in range(self.shallow, self.deepest + 1):
            way = kind(decisions)
            n_mdps = fitting(way, pace, seconds)
            if not n_mdps:
                break
            deeper = math.log(decisions / self.shallow) if self.shallow else 0.0
            end = _end(way, first.value - fall * deeper, first, n_mdps)
            plans.append(_Plan(way, n_mdps, pace, end))
        return min(plans, key=lambda plan: plan.end, default=None)

    def _again(self, plan: _Plan) -> _Plan:
        """Return a plan with what a trial of it says."""
        made, pace = self._timed(plan.way, max(plan.way.least, plan.n_mdps // TRIED))
        end = _end(plan.way, made.value, made, plan.n_mdps)
        return dataclasses.replace(plan, pace=pace, end=end)


def _end(way: Way, value: float, made: Replication, n_mdps: int) -> float:
    """Return the end that replications like `made` give whose average is `value`; infinite where a
    number that it rests on is not finite.
    """
    end = value + way.margin([made] * REPLICATIONS, n_mdps)
    return end if math.isfinite(end) else math.inf


def lowest(ways: Sequence[Way], trial: Trial) -> Way:
    """Return the way whose end is lowest by a trial of each, with a part of the usual MDPs."""

    def end(way: Way) -> float:
        made = trial(way, max(way.least, way.usual // TRIED))
        return _end(way, made.value, made, way.usual)

    return min(ways, key=end)


class Ways:
    """The kinds of relaxations of a problem.

    Args:
      ahead: the look-ahead of the first runs.
      seed: of the sample that the control function is fitted to.
    """

    def __init__(self, ahead: LookAhead, plan: Plan, seed: np.random.SeedSequence) -> None:
        self._ahead, self._plan = ahead, plan
        self._control = cache(lambda: ahead.control(seed))

    def shown(self, decisions: int) -> Way:
        """Return the relaxation in which the MDP is shown after the look-ahead."""
        size = self._plan.sizes.of(decisions)
        ahead = dataclasses.replace(self._ahead, decisions=decisions)
        assert size is not None
        return Way(
            0,
            f"upper-{decisions}",
            decisions,
            LEAST_MDPS,
            USUAL_MDPS,
            self._plan.most_mdps,
            lambda n_mdps: size.seconds(n_mdps, 1, ahead.threads),
            lambda n_mdps, seed: ahead.replication(self._control(), n_mdps, seed),
            lambda some, n_mdps: ahead.margin(some, n_mdps, ONE_SIDED),
            {"method": "the look-ahead, then the MDP is revealed", "decisions": decisions},
        )

    def hiding(self, number: int, one: HiddenAhead) -> Kind:
        """Return the relaxations in which states stay hidden."""
        states, trials = one.states, one.hidden.trials
        name = "one state" if len(states) == 1 else "two states"

        def kind(decisions: int) -> Way:
            ahead = dataclasses.replace(self._ahead, decisions=decisions)
            deep = dataclasses.replace(one, ahead=ahead)
            return Way(
                number,
                f"hidden-{'-'.join(map(str, states))}-{trials}-{decisions}",
                decisions,
                hidden_ahead.LEAST_MDPS,
                hidden_ahead.USUAL_MDPS,
                self._plan.most_mdps,
                deep.seconds,
                lambda n_mdps, seed: deep.replication(self._control(), n_mdps, seed),
                lambda some, n_mdps: ahead.margin(some, n_mdps, ONE_SIDED),
                {
                    "method": f"the look-ahead, then all rows but those of {name} are revealed",
                    "decisions": decisions,
                    "hidden_states": list(states),
                    "outcomes": trials,
                },
                one.shift,
            )

        return kind

    def forgetting(self, relaxed: Forgetting) -> Kind:
        """Return the relaxation for moves that may fail, whatever the decisions looked ahead."""
        facts = {
            "method": "failures are forgotten, then the MDP is revealed",
            "remembered_failures": relaxed.remembered,
        }
        return lambda decisions: Way(
            1,
            f"forgetting-{relaxed.remembered}",
            decisions,
            forgetting.LEAST_MDPS,
            relaxed.usual,
            forgetting.MOST_MDPS,
            relaxed.seconds,
            relaxed.replication,
            lambda some, n_mdps: relaxed.margin(some, n_mdps, ONE_SIDED),
            facts,
        )
