"""The answer of `choose`: an agent for a problem, and what it rests on. Plain data."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from jbrl.base import notebook
from jbrl.report.text import decimals_for, number_text, score_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """Figures that a candidate has shown. Times are seconds."""

    name: str
    algorithm: str
    # "leader"; "tied", which may be better or is within epsilon; "not better" by epsilon; "worse";
    # "over a limit", "failed", "out of time" or "not tried"; "running" before the end
    status: str
    reason: str = ""
    offline_seconds: float | None = None
    latency_seconds: float | None = None  # 99th percentile of a decision, to a caller in Python
    compile_seconds: float | None = None
    mean: float | None = None
    standard_error: float | None = None
    n: int = 0  # environments played
    # mean of the paired difference to the leader and its limits, which hold for all pairs together
    difference: tuple[float, float, float] | None = None
    curve: tuple[tuple[int, float], ...] = ()  # (environments, mean) at doubling numbers


class Looser(NamedTuple):
    """A candidate over a limit that is better than the recommended, by the mean. Times are seconds.

    Limits of the difference hold at the confidence of the choice, for this pair alone.
    """

    name: str
    latency_seconds: float
    offline_seconds: float
    difference: float  # of mean scores, in environments that both have played
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The answer: an agent for a problem within limits of time. Times are seconds.

    Attributes:
      outcome: "answered", "interrupted" (with an answer if `winner` is one), or "none" where no
        candidate keeps the limits.
      stopped: why the race ended: "epsilon", "certified" (within epsilon of the Bayes-optimal
        value), "budget", "interrupted" or "none".
      winner: leads the race; `recommended`: the cheapest that is as good within epsilon, or where
        none had time to play, one that keeps the limits.
      score: mean and limits at `confidence` of the recommended, in `n_fresh` environments that the
        race has not seen.
      share: least and greatest part of the Bayes-optimal value that the score is.
    """

    problem: str
    digest: str
    offline_limit: float
    online_limit: float
    budget: float
    needed: float  # budget that would have allowed another candidate; 0: all were tried
    seed: int
    epsilon: float  # in units of the score
    confidence: float
    outcome: str
    stopped: str
    winner: str | None
    recommended: str | None
    tied: tuple[str, ...]
    cheaper: tuple[str, ...]  # of the tied, in less than half the time of the recommended
    score: tuple[float, float, float] | None
    n_fresh: int
    score_range: tuple[float, float]
    range_assumed: bool
    references: Mapping[str, float]
    bracket: tuple[float, float] | None
    share: tuple[float, float] | None
    tighter: tuple[tuple[float, str], ...]  # (seconds per decision, what it would be from there on)
    looser: tuple[Looser, ...]  # what it would be at looser limits, the least latency first
    standings: tuple[Standing, ...]
    seconds: float
    busy: str
    # mean scores of each training in the same fresh environments, of the recommended and of those
    # tied with it that train; the first is that of the policy
    trainings: Mapping[str, tuple[float, ...]]
    policy: Any = dataclasses.field(default=None, repr=False)  # the recommended, ready to act

    @property
    def is_timed(self) -> bool:
        """True if decisions of the recommended were timed."""
        return any(s.latency_seconds for s in self.standings if s.name == self.recommended)

    @property
    def sentence(self) -> str:
        """The answer in a few sentences."""
        if self.recommended is None and self.stopped == "interrupted":
            return f"The race was interrupted before any candidate was ready on {self.problem}."
        if self.recommended is None:
            return f"{self._nobody}."
        parts = [f"Take {self.recommended} for {self.problem}: {_scored(self)}"]
        if self.score is not None and self.references.get("Random", -math.inf) > self.score[2]:
            random, _ = notebook.numbers(self.references["Random"], self.score[0])
            parts.append(f"Random, which learns nothing, scores more: {random}")
        others = [name for name in self.tied if name != self.recommended]
        if others:
            parts.append(f"It cannot be distinguished from {', '.join(others)}")
        if self.cheaper:
            quicker = ", ".join(self.cheaper)
            parts.append(f"Twice as quick, but not shown to be as good within epsilon: {quicker}")
        if self.share is not None:
            parts.append(
                f"That is {self.share[0]:.1%} to {self.share[1]:.1%} of the Bayes-optimal value"
            )
        parts.append(_STOPPED[self.stopped])
        if self.outcome == "interrupted" and self.policy is None:
            parts.append("The policy was not written, since it is not trained in this process")
        if self.range_assumed:
            low, high = notebook.numbers(*self.score_range)
            known = f"It is assumed that scores lie between {low} and {high}"
            unknown = "All scores are equal so far, which says nothing of rarer ones"
            parts.append(unknown if low == high else known)
        parts += [_trained(self, name, means) for name, means in self.trainings.items()]
        parts += [_at_looser_limits(self, one) for one in self.looser[:2]]
        parts += self._measured
        failed = [one for one in self.standings if one.status == "failed"]
        if failed:
            first = f"{failed[0].name}: {failed[0].reason}"
            parts.append(f"{len(failed)} of {len(self.standings)} candidates failed ({first})")
        parts += self._untried
        return ". ".join(parts) + "."

    @property
    def _nobody(self) -> str:
        """Return why none is recommended."""
        tried = [one for one in self.standings if one.status in ("over a limit", "failed")]
        if not tried and self.needed:
            return (
                f"No candidate was ready on {self.problem} within {_time(self.budget)}: the "
                f"one that is ready soonest needs a budget of about {_time(self.needed)}"
            )
        known = [one for one in tried or self.standings if one.reason][:3]
        why = "; ".join(f"{one.name}: {one.reason}" for one in known)
        kept = any(one.status != "failed" for one in known)
        what = "keeps the limits on" if kept else "that was tried can play"
        said = f"No candidate {what} {self.problem} ({why})"
        return ". ".join([said, *self._measured, *self._untried])

    @property
    def _measured(self) -> list[str]:
        """Return how busy the machine was while limits were checked, and what was judged then."""
        if not self.busy:
            return []
        return [
            f"Times were measured {self.busy}: decisions over the limit count as twice the median, "
            "or as the processor time of slow ones where that is more"
        ]

    @property
    def _untried(self) -> list[str]:
        """Return how many candidates were not tried, and the budget of the next, if any was not."""
        untried = sum(
            one.status in ("not tried", "out of time") and one.name != self.recommended
            for one in self.standings
        )
        more = self.needed and self.stopped != "certified"  # which it would change
        raised = f": the next needs a budget of {_time(self.needed)}" if more else ""
        text = f"{untried} of {len(self.standings)} candidates were not tried{raised}"
        return [text] if untried else []

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as `choice.json` holds it."""
        plain = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "policy"
        }
        plain["standings"] = [dataclasses.asdict(one) for one in self.standings]
        return {"answer": self.sentence, **plain}

    def rows(self) -> list[list[str]]:
        """Return the standings as texts, the best first, under a line of headings."""
        return standing_rows(self.standings)

    def _repr_html_(self) -> str:
        heads, *rows = self.rows()
        return notebook.table(heads, rows, self.sentence)


# of those that were tried, in tables
ORDER = {"leader": 0, "tied": 1, "running": 1, "not better": 2, "worse": 2} | {
    "over a limit": 3,
    "failed": 4,
}

# means that are all below the one, or one of them above the other, stand with significant digits
SMALL, LARGE = 1e-3, 1e9


def standing_rows(standings: Iterable[Standing]) -> list[list[str]]:
    """Return standings as texts, the best first, under a line of headings; means with their
    standard errors.
    """
    known = sorted(
        (one for one in standings if one.status in ORDER),
        key=lambda one: (ORDER[one.status], -(one.mean or 0.0)),
    )
    decimals = decimals_for(one.standard_error or 0.0 for one in known)
    greatest = max((abs(one.mean or 0.0) for one in known), default=0.0)
    extreme = 0 < greatest < SMALL or greatest > LARGE
    rows = [["candidate", "mean", "environments", "per decision", "offline", "status"]]
    for one in known:
        status = (
            f"{one.status}: {one.reason}"
            if one.status in ("over a limit", "failed")
            else one.status
        )
        mean = ""
        if one.mean is not None:
            error = one.standard_error or 0.0
            mean = score_text(one.mean, error, decimals)
            if extreme:
                mean = f"{number_text(one.mean, '.4g')} ± {error:.2g}"
        times = (_time(one.latency_seconds), _time(one.offline_seconds))
        rows.append([one.name, mean, f"{one.n:,}", *times, status])
    return rows


_STOPPED = {
    "epsilon": "No other candidate that raced is better by more than epsilon",
    "certified": "No agent at all is better by more than epsilon: that is certified",
    "budget": "The budget ended the race",
    "interrupted": "The race was interrupted",
    "none": "",
}


def _scored(choice: Choice) -> str:
    if choice.winner is None:
        timed = "it keeps the limits" if choice.is_timed else "it was not timed"
        return f"{timed}, and there was no time to play it or others"
    if choice.score is None:
        return "it leads the race, but was not scored afresh"
    mean, *ends = choice.score
    low, high, middle = notebook.numbers(*ends, mean)
    limits = "" if choice.range_assumed and low == high else f" ({low} to {high})"
    return (
        f"mean score {middle}{limits} in {choice.n_fresh:,} environments that the race has not seen"
    )


def _trained(choice: Choice, name: str, means: tuple[float, ...]) -> str:
    if len(means) == 1:
        return "It was trained once: the answer is this policy, not this algorithm"
    low, high = notebook.numbers(min(means), max(means))
    text = f"Trained {len(means)} times, {name} scores {low} to {high}"
    first = "; the policy is that of the first training"
    return text + first * (name == choice.recommended)


def _time(value: float | None) -> str:
    return "" if value is None else notebook.duration(value)


def _at_looser_limits(choice: Choice, one: Looser) -> str:
    limits = looser_limits(one, choice.offline_limit, choice.online_limit)
    sure = "would" if one.low > 0 else "may"
    return (
        f"At {limits} it {sure} be {one.name}, better by {one.difference:.3g} ({one.low:.3g} to "
        f"{one.high:.3g})"
    )


def looser_limits(one: Looser, offline: float, online: float) -> str:
    """Return in words the times of a candidate that are over a limit, seconds."""
    places = []
    if one.latency_seconds > online:
        places.append(f"{_time(one.latency_seconds)} per decision")
    if one.offline_seconds > offline:
        places.append(f"{_time(one.offline_seconds)} offline")
    return " and ".join(places) or "slightly looser limits"
