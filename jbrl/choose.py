"""Choice of an agent for a problem within limits of time: a race on fresh environments.

Candidates that keep the limits play the same environments in blocks that double. One leaves when
it is worse than the leader beyond doubt, at whatever time one looks (`stats.race`). The race ends
when no other can be better by more than epsilon, or when the budget is spent. The winner is scored
in environments that the race has not seen.
"""

import dataclasses
import functools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jbrl.agents.complete import is_oracle, parameters_of, played_agent
from jbrl.agents.registry import AGENTS, check_agent, find_agent, shown_name
from jbrl.base import notebook
from jbrl.base.errors import JbrlError, shown
from jbrl.base.files import write_whole
from jbrl.base.parameters import parse_seconds
from jbrl.base.plugins import is_outside, source_digest
from jbrl.bayes_optimal.bracket import bound
from jbrl.choice import Choice, Standing
from jbrl.play import batching
from jbrl.play.experiment import Run
from jbrl.play.machine import available_cores
from jbrl.play.play import lifetime_of, make_run
from jbrl.play.protocol import Protocol
from jbrl.play.unit import Unit
from jbrl.policy import Policy, of_trained
from jbrl.problems.lookup import problem as find_problem
from jbrl.problems.problem import DirichletProblem, Problem
from jbrl.report import html
from jbrl.report.choice import document
from jbrl.rollout.contract import Agent, OfflineSearch
from jbrl.stats.race import Race, interval
from jbrl.study.cost import present_busy_text
from jbrl.study.file import load_study
from jbrl.study.portfolio import (
    FIRST,
    Candidate,
    beyond,
    candidate,
    is_reference,
    portfolio,
    setting_name,
    suits,
)
from jbrl.study.stopping import keeping
from jbrl.study.storage import files

Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], Any]

OPENING = {False: 64, True: 16}  # environments of the first block: of MDPs, and of episodes
PLANNED = 512  # lifetimes that programs are compiled for
DECISIONS = 300  # that the latency of a candidate is measured in
FRESH = 2**20  # number of the first environment that scores the winner; the race stays below
LEAST_FRESH, MOST_FRESH = 64, 4096  # environments that score the winner
RANGE_PLAYED = 2048  # environments that the range from Random to Optimal is measured in
ENTRY_SHARE = 0.5  # of the budget, for making candidates ready
FINAL_SHARE = 0.15  # of the budget, for scoring the winner and the bracket
LEAST_BRACKET = 15.0  # seconds
BRACKET_SHARE = 0.4  # of what is left of the budget: a bracket takes about what it is given
LONGEST_BRACKET = 60.0
AT_A_TIME = 4  # candidates that enter when the others are settled
BLOCK_SHARE = 0.05  # of the budget, that a block of a candidate which enters may take
ASSUMED = 4.0  # times the range seen: the range of scores that nothing bounds


def choose(
    problem: str | Path | Problem,
    *,
    offline: str | float = "60 s",
    online: str | float = "1 ms",
    budget: str | float = "10 min",
    horizon: int | None = None,
    episodes: int | None = None,
    discount: float = 0.95,
    candidates: str | Path | Sequence[str | Agent] | Mapping[str, Agent] | None = None,
    seed: int = 0,
    epsilon: float = 0.01,
    confidence: float = 0.95,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Choice:
    """Choose an agent for a problem within limits of time, by a race.

    Args:
      problem: a name of the catalogue, the path of a JSON file, `module:Class`, or a `Problem`.
      offline: limit of what an agent may learn before its first decision: "60 s", "10 min", or
        seconds; compilation does not count.
      online: limit of a decision.
      budget: about how long choosing may take, compilation included.
      horizon: decisions of a lifetime, or `episodes`; default: the lifetime of the problem.
      candidates: names or agents, agents by names of their own, or the path of a study, whose
        agents suit the problem or are left out; default: a portfolio of all families.
      epsilon: a difference that does not matter, as a part of the range from Random to Optimal, or
        to the best candidate where Optimal cannot play.
      confidence: of the race as a whole, and of the limits of the score.
      out: folder for what has been played; the same call again goes on from there.
      progress: called with the name of a step, and how many of how many parts are done.

    Raises:
      JbrlError: a problem, a candidate, a number or a duration that is not accepted.
    """
    for name, value in (("epsilon", epsilon), ("confidence", confidence)):
        if not (isinstance(value, int | float) and 0 < value < 1):
            raise JbrlError(f"{name} = {shown(value)}: expected a number between 0 and 1")
    limits = parse_seconds("offline", offline), parse_seconds("online", online)
    clock = _Clock(parse_seconds("budget", budget), progress or _silent)
    batching.use_all_cores()
    chosen = problem if isinstance(problem, Problem) else find_problem(str(problem), Path.cwd())
    lifetime = lifetime_of(chosen, horizon, episodes)
    protocol = Protocol(chosen, chosen, PLANNED, seed, lifetime, discount)
    field = _field(candidates, protocol, *limits)
    folder = None if out is None else Path(out)
    racers = [_Racer(one, protocol, _Kept(folder)) for one in field]
    race = _Chooser(protocol, racers, limits, epsilon, confidence, clock)

    def keep() -> bool:
        """Write the answer so far: Ctrl-C has come within a compiled call."""
        if folder is not None:
            _write(race.answer("interrupted"), folder)
        return True

    where = "" if folder is None else f"the answer so far is in {folder / 'choice.json'}"
    with keeping(keep, where):
        choice = race.choose()
    if folder is not None:
        _write(choice, folder)
    return choice


def _write(choice: Choice, folder: Path) -> None:
    """Write `choice.json`, the page, and the folder of the policy, in place of what is there."""
    plain = json.dumps(choice.as_dict(), indent=1)
    write_whole(folder / "choice.json", plain.encode())
    page = html.render(document(json.loads(plain), choice.rows()))
    write_whole(folder / "choice.html", page.encode())
    if choice.policy is not None:
        limits = {"offline": choice.offline_limit, "online": choice.online_limit}
        shutil.rmtree(folder / "policy", ignore_errors=True)
        choice.policy.save(folder / "policy", limits=limits, decisions=DECISIONS)


def _silent(step: str, done: int, total: int) -> None:
    del step, done, total


def _field(given: Any, protocol: Protocol, offline: float, online: float) -> list[Candidate]:
    """Return the candidates.

    Raises:
      JbrlError: one that is unknown, that cannot play the problem, or is a reference; two of one
        name.
    """
    if given is None:
        return portfolio(protocol, offline, online)
    if isinstance(given, str | Path):
        given = _of_study(given, protocol)
    named: list[tuple[str, Any]] = (
        list(given.items()) if isinstance(given, Mapping) else [("", one) for one in given]
    )
    found = []
    for name, one in named:
        agent = find_agent(one, Path.cwd()).agent() if isinstance(one, str) else one
        check_agent(played_agent(agent))
        one = candidate(agent, protocol, name)
        protocol.check_agent(agent, one.name)
        if is_oracle(agent):
            raise JbrlError(
                f"candidates: {one.name} is shown the environment: expected agents that are not"
            )
        found.append(one)
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice or not names:
        raise JbrlError(
            f"candidates: {f'two are called {twice}' if twice else 'none is given'}: expected one "
            "or more, each with a name of its own"
        )
    return found


def _of_study(path: str | Path, protocol: Protocol) -> dict[str, Agent]:
    """Return the agents of a study that can play the problem, references apart, by name.

    Raises:
      JbrlError: the file is not accepted.
    """
    units = load_study(path).units
    agents = {setting_name(unit.agent): unit.agent for unit in units}
    return {
        name: agent
        for name, agent in agents.items()
        if not is_reference(agent) and suits(agent, name, protocol)
    }


class _Clock:
    """Clock of the budget, and the listener to progress."""

    def __init__(self, budget: float, progress: Progress) -> None:
        self.budget, self.progress, self._began = budget, progress, time.monotonic()

    @property
    def spent(self) -> float:
        return time.monotonic() - self._began

    @property
    def left(self) -> float:
        return self.budget - self.spent

    def say(self, step: str) -> None:
        """Show a step and how much of the budget is spent."""
        self.progress(step, min(int(self.spent), int(self.budget)), max(1, int(self.budget)))


class _Kept:
    """Blocks and times of candidates in a folder, or nowhere.

    Raises:
      JbrlError: the folder cannot be made.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = None if folder is None else folder / "blocks"
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise JbrlError(f"{folder}: cannot be used as a folder: {error.strerror}") from None

    def get(self, name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return header and arrays; None where there are none, or damaged ones."""
        try:
            if self._folder is not None:
                return files.unpack((self._folder / f"{name}.npz").read_bytes())[:2]
        except (OSError, files.DamagedError):
            pass
        return None

    def put(self, name: str, header: dict[str, Any], **arrays: Floats) -> None:
        if self._folder is not None:
            write_whole(self._folder / f"{name}.npz", files.pack(header, arrays))


@dataclasses.dataclass(frozen=True)
class _Times:
    """Seconds of a candidate that is ready."""

    offline: float
    latency: float  # 99th percentile of a decision
    median: float
    compiling: float

    @property
    def cost(self) -> float:
        """Seconds of a decision, the few left out that have waited for other programs."""
        return min(self.latency, 2 * self.median)


class _Racer:
    """A candidate that plays: compiled and trained when it is first needed."""

    def __init__(self, candidate: Candidate, protocol: Protocol, kept: _Kept) -> None:
        self.name, self.agent, self._protocol, self._kept = (
            *(candidate.name, candidate.agent),
            *(protocol, kept),
        )
        self._run: Run | None = None
        self.times: _Times | None = None
        self.each = 0.0  # seconds of a lifetime
        self.reason = ""  # why it does not take part
        self.status = "not tried"
        self._candidate = candidate

    def setup(self, compiled: Collection[type]) -> float:
        """Return what making it ready costs, in units of compiling a plain agent."""
        there = self._candidate.compiling if type(self.agent) in compiled else 0.0
        return self._candidate.setup - 0.9 * there

    @functools.cached_property
    def _id(self) -> str:
        kind = played_agent(self.agent)
        unit = Unit(
            "choose",
            *("", "", self._protocol, self.name, self.agent, parameters_of(self.agent)),
            source=source_digest(type(kind)) or None if is_outside(type(kind)) else None,
        )
        return unit.id

    def prepare(self) -> None:
        """Compile, train and time it, unless that is kept."""
        kept = self._kept.get(f"{self._id}-times")
        if kept is not None:
            self.times = _Times(**kept[0])
            return
        run = self._ready()
        latency = self.policy().latency(DECISIONS)
        self.times = _Times(run.offline_seconds, latency.p99, latency.median, run.compile_seconds)
        self._kept.put(f"{self._id}-times", dataclasses.asdict(self.times))

    def play(self, start: int, stop: int) -> Floats:
        """Return the scores in environments start..stop-1, [n] float64; NaN where it failed."""
        name = f"{self._id}-{start}-{stop}"
        kept = self._kept.get(name)
        if kept is not None:
            self.each = kept[0]["each"]
            return np.asarray(kept[1]["scores"], np.float64)
        run, parts, done = self._ready(), [], 0
        began = time.monotonic()
        chunks = run.chunks(start, stop - start)
        for chunk in chunks:
            parts.append(chunk.returns)
            done += len(chunk.returns)
            if done >= stop - start:
                break
        chunks.close()  # type: ignore[attr-defined]
        scores = np.concatenate(parts)[: stop - start]
        self.each = (time.monotonic() - began) / len(scores)
        self._kept.put(name, {"each": self.each}, scores=scores)
        return scores

    def policy(self) -> Policy:
        return of_trained(self._ready().trained())

    def _ready(self) -> Run:
        if self._run is None:
            run = make_run(self.agent, self._protocol)
            run.prepare()
            # programs are compiled for few lifetimes, and play any number of them
            run.protocol = dataclasses.replace(self._protocol, n_environments=2 * FRESH)
            self._run = run
        return self._run


class _Chooser:
    """The race, from the first candidate that is ready to the answer."""

    def __init__(
        self,
        protocol: Protocol,
        racers: Sequence[_Racer],
        limits: tuple[float, float],
        epsilon: float,
        confidence: float,
        clock: _Clock,
    ) -> None:
        self.protocol, self.racers, self.limits, self.clock = protocol, racers, limits, clock
        self.part, self.confidence = epsilon, confidence
        self.by_name = {racer.name: racer for racer in racers}
        self.first: dict[str, Floats] = {}  # scores of the first block
        self.busy = present_busy_text().strip()
        self._compiled: set[type] = set()  # agents whose programs are there
        self._asked = self._took = 0.0  # what candidates were expected to cost, and seconds
        self.references: dict[str, Floats] = {}
        self.race: Race | None = None
        self.score: tuple[tuple[float, float, float], int] | None = None
        self.bracket: tuple[float, float] | None = None
        self.policy: Policy | None = None

    def choose(self) -> Choice:
        """Run the race; Ctrl-C ends it with what is known."""
        stopped = "none"
        try:
            self._refer()
            self._admit(ENTRY_SHARE, len(self.racers))
            if self.first:
                self._begin()
                stopped = self._play()
                while stopped == "epsilon" and self._admit(1 - FINAL_SHARE, AT_A_TIME):
                    stopped = self._play()
            if self.race is not None:
                name = self._cheapest(self.race)
                self.score = self._score(name)
                self.policy = self.by_name[name].policy()
                self.bracket = self._bracket()
        except KeyboardInterrupt:
            stopped = "interrupted"
        return self.answer(stopped)

    # ---- who takes part ----

    def _refer(self) -> None:
        """Play the ends of the range."""
        for name in ("Random", "Optimal"):
            one = _Racer(candidate(AGENTS[name].agent(), self.protocol), self.protocol, _Kept(None))
            if self._can_play(one):
                self.clock.say(f"{name}, for the range")
                self.references[name] = self._opening(one, RANGE_PLAYED)

    def _can_play(self, racer: _Racer) -> bool:
        try:
            self.protocol.check_agent(racer.agent, racer.name)
        except JbrlError:
            return False
        return True

    def _admit(self, share: float, most: int) -> bool:
        """Make up to `most` candidates ready, as long as a share of the budget lasts; return
        whether one has entered.
        """
        entered = 0
        for racer in self.racers:
            if racer.status != "not tried" or entered == most:
                continue
            racer.reason = beyond(racer.agent, self.protocol, *self.limits)
            if racer.reason:
                racer.status = "over a limit"
                continue
            expected = self._pace * racer.setup(self._compiled)
            if self._asked and self.clock.spent + expected > share * self.clock.budget:
                racer.reason = "the budget did not allow to try it"
                continue
            began = self.clock.spent
            self.clock.say(f"{racer.name}: getting ready")
            self._asked += racer.setup(self._compiled)
            entered += self._enter(racer)
            self._compiled.add(type(racer.agent))
            self._took += self.clock.spent - began
        return bool(entered)

    @property
    def _pace(self) -> float:
        """Seconds for each unit of what candidates are expected to cost."""
        return self._took / max(self._asked, 1e-9)

    def _enter(self, racer: _Racer) -> bool:
        """Make a candidate ready; return whether it takes part."""
        try:
            racer.prepare()
            racer.status, racer.reason = "over a limit", self._over(racer)
            if not racer.reason:
                scores = self._opening(racer, FIRST)
                racer.status, self.first[racer.name] = "running", scores
                if self.race is not None:
                    self._add(racer.name, scores)
        except (JbrlError, FloatingPointError) as error:
            racer.status, racer.reason = "failed", str(error)
        return racer.status == "running"

    def _opening(self, racer: _Racer, most: int) -> Floats:
        """Return the scores in the first environments: `most`, or as many as take little time."""
        parts, longest = [], BLOCK_SHARE * self.clock.budget
        for first, last in self._blocks(0, most):
            if first and racer.each * (last - first) > longest:
                break
            parts.append(racer.play(first, last))
        return np.concatenate(parts)

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the doubling blocks from start to stop, the same however often one pauses."""
        while start < stop:
            last = min(2 * start or OPENING[self.protocol.in_blocks], stop)
            yield start, last
            start = last

    def _over(self, racer: _Racer) -> str:
        """Return which limit a candidate breaks, in words; "": none. On a busy machine, where the
        slowest decisions wait for other programs, twice the median counts where that is less.
        """
        times: Any = racer.times
        decision = times.cost if self.busy else times.latency
        for what, seconds, limit in (
            ("offline", times.offline, self.limits[0]),
            ("per decision", decision, self.limits[1]),
        ):
            if seconds > limit:
                return f"takes {_text(seconds)} {what}, the limit is {_text(limit)}"
        return ""

    # ---- the race ----

    def _score_range(self) -> tuple[float, float, bool]:
        """Return the least and greatest score there may be, and whether that is an assumption."""
        test = self.protocol.test
        if isinstance(test, DirichletProblem):
            weight, power = 0.0, 1.0
            for _ in range(self.protocol.horizon):
                weight, power = weight + power, power * self.protocol.discount
            rewards = np.asarray(test.mdps.rewards, np.float64)
            return float(rewards.min()) * weight, float(rewards.max()) * weight, False
        seen = np.concatenate([*self.references.values(), *self.first.values()])
        low, high = float(np.nanmin(seen)), float(np.nanmax(seen))
        margin = (ASSUMED - 1) / 2 * max(high - low, 1e-9)
        return low - margin, high + margin, True

    def _begin(self) -> None:
        """Begin the race; what it takes for certain is fixed from here on."""
        low, high, self.assumed = self._score_range()
        self.range = low, high
        means = {name: float(np.nanmean(v)) for name, v in (self.references | self.first).items()}
        worst, best = means.get("Random", min(means.values())), max(means.values())
        self.epsilon = max(self.part * (best - worst), 1e-12)
        names = [racer.name for racer in self.racers]
        self.race = Race(names, span=high - low, epsilon=self.epsilon, confidence=self.confidence)
        for name, scores in self.first.items():
            self._add(name, scores)

    def _play(self) -> str:
        """Play blocks until nothing can change; return why it stopped."""
        race: Any = self.race
        while True:
            race.drop()
            leader, rivals = race.leader, race.open()
            if not rivals:
                return "epsilon"
            n = len(race.scores(leader))
            # those behind catch up first; then all double; what takes too long stays as it is
            behind = [name for name in rivals if len(race.scores(name)) < n]
            todo, stop = self._affordable(behind, n), n
            if not todo:
                level = [name for name in rivals if name not in behind]
                todo, stop = self._affordable([leader, *level], 2 * n), 2 * n
                if len(todo) < 2 or todo[0] != leader:
                    return "budget"
            for name in todo:
                start = len(race.scores(name))
                self.clock.say(f"{len(rivals) + 1} candidates, {stop:,} environments: {name}")
                for first, last in self._blocks(start, stop):
                    self._add(name, self.by_name[name].play(first, last))

    def _add(self, name: str, scores: Floats) -> None:
        """Add scores; a lifetime that failed counts as the least score."""
        low, high = self.range
        self.race.add(name, np.clip(np.where(np.isnan(scores), low, scores), low, high))  # type: ignore[union-attr]

    def _affordable(self, names: Sequence[str], stop: int) -> list[str]:
        """Return those of `names`, in order, that can play up to `stop` in what is left for it."""
        race: Any = self.race
        left = (1 - FINAL_SHARE) * self.clock.budget - self.clock.spent
        found = []
        for name in names if stop <= FRESH else ():
            seconds = self.by_name[name].each * (stop - len(race.scores(name)))
            if seconds <= left:
                found.append(name)
                left -= seconds
        return found

    # ---- the answer ----

    def answer(self, stopped: str) -> Choice:
        """Return the answer by what is known; nothing more is played."""
        race, protocol = self.race, self.protocol
        winner = recommended = None
        tied: list[str] = []
        if race is not None:
            winner = race.leader
            tied = [n for n in race.running if n == winner or self._is_tied(n, winner)]
            recommended = self._cheapest(race)
        score, bracket = self.score, self.bracket
        taken: Any = self.by_name.get(str(recommended))
        outcome = "interrupted" if stopped == "interrupted" else "answered" if winner else "none"
        share = (
            (score[0][1] / bracket[1], score[0][2] / bracket[0])
            if score and bracket and bracket[0] > 0
            else None
        )
        return Choice(
            problem=protocol.test.short_name,
            digest=protocol.test.digest,
            offline_limit=self.limits[0],
            online_limit=self.limits[1],
            budget=self.clock.budget,
            seed=protocol.seed,
            epsilon=self.epsilon if race else 0.0,
            confidence=self.confidence,
            outcome=outcome,
            stopped=stopped,
            winner=winner,
            recommended=recommended,
            tied=tuple(tied),
            score=score[0] if score else None,
            n_fresh=score[1] if score else 0,
            score_range=self.range if race else (0.0, 0.0),
            range_assumed=self.assumed if race else False,
            references={name: float(np.nanmean(v)) for name, v in self.references.items()},
            bracket=bracket,
            share=None if share is None else (share[0], min(1.0, share[1])),
            tighter=tuple(self._tighter(race)) if race else (),
            standings=tuple(self._standing(racer, race, winner) for racer in self.racers),
            seconds=self.clock.spent,
            busy=self.busy,
            trained_once=bool(recommended) and isinstance(taken.agent, OfflineSearch),
            policy=self.policy,
        )

    def _is_tied(self, name: str, leader: str) -> bool:
        """Return whether a candidate may be better than the leader, or is within epsilon of it by
        the mean.
        """
        race: Any = self.race
        return not race.settled(name, leader) or race.mean_difference(name, leader) >= -self.epsilon

    def _latency(self, name: str) -> float:
        times = self.by_name[name].times
        return times.cost if times else 0.0

    def _cheapest(self, race: Race) -> str:
        """Return the cheapest that is shown to be as good as the leader within epsilon; costs
        within a factor of two are the same.
        """
        leader = race.leader
        good = [n for n in race.running if n == leader or race.settled(leader, n)]
        least = min(map(self._latency, good))
        cheap = [n for n in good if self._latency(n) <= 2 * least]
        if leader in cheap:
            return leader
        return max(cheap, key=lambda name: race.standings()[name][0])

    def _tighter(self, race: Race) -> Iterator[tuple[float, str]]:
        """Yield the latencies from which on another candidate is best, the shortest first."""
        means, best = race.standings(), -np.inf
        for name in sorted(means, key=self._latency):
            if means[name][0] > best + self.epsilon:
                best = means[name][0]
                yield self._latency(name), name

    def _score(self, name: str) -> tuple[tuple[float, float, float], int]:
        """Return mean and limits in environments that the race has not seen, and their number."""
        racer = self.by_name[name]
        seconds = max(0.0, self.clock.left) / 2
        fitting = int(seconds / max(racer.each, 1e-9))
        n = min(MOST_FRESH, max(LEAST_FRESH, 1 << max(0, fitting.bit_length() - 1)))
        self.clock.say(f"{name}: {n:,} fresh environments")
        low, high = self.range
        scores = racer.play(FRESH, FRESH + n)
        scores = np.clip(np.where(np.isnan(scores), low, scores), low, high)
        return (math.fsum(scores.tolist()) / n, *interval(scores, low, high, self.confidence)), n

    def _bracket(self) -> tuple[float, float] | None:
        left = BRACKET_SHARE * self.clock.left / max(1.0, os.getloadavg()[0] / available_cores())
        if not isinstance(self.protocol.test, DirichletProblem) or left < LEAST_BRACKET:
            return None
        self.clock.say("bracket of the Bayes-optimal value")
        try:
            found = bound(
                self.protocol.test,
                discount=self.protocol.discount,
                horizon=self.protocol.horizon,
                budget=min(left, LONGEST_BRACKET),
                seed=self.protocol.seed,
            )
        except JbrlError:  # no bracket in so little time, or of so large a problem
            return None
        return found.lower, found.upper

    def _standing(self, racer: _Racer, race: Race | None, leader: str | None) -> Standing:
        status, reason, difference, mean, n = racer.status, racer.reason, None, None, 0
        if race is not None and len(race.scores(racer.name)):
            mean, n = race.standings()[racer.name]
            status = "leader"
            if racer.name != leader:
                difference = race.difference(racer.name, str(leader))
                status = "tied" if self._is_tied(racer.name, str(leader)) else "not better"
            if racer.name in race.left:
                status, reason = "worse", f"than {race.left[racer.name][0]}"
        times = racer.times
        return Standing(
            name=racer.name,
            algorithm=shown_name(racer.agent),
            status=status,
            reason=reason,
            offline_seconds=times.offline if times else None,
            latency_seconds=times.latency if times else None,
            compile_seconds=times.compiling if times else None,
            mean=mean,
            n=n,
            difference=difference,
            curve=tuple(race.curve(racer.name)) if race else (),
        )


def _text(seconds: float) -> str:
    return notebook.duration(seconds)
