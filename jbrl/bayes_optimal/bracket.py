"""A bracket of the Bayes-optimal value: a certified lower and a certified upper end."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from jbrl.base.errors import JbrlError, check_count, expect
from jbrl.base.files import naming, write_whole
from jbrl.bayes_optimal.forgetting import Forgetting, best_remembered, revealing
from jbrl.bayes_optimal.hidden_ahead import hide, restored
from jbrl.bayes_optimal.limits import CONFIDENCE, ONE_SIDED, RANGE, lower_limit
from jbrl.bayes_optimal.look_ahead import LookAhead, Replication
from jbrl.bayes_optimal.lower import LEAST_PLAYED, TRIAL, Candidate, candidates, find_agents
from jbrl.bayes_optimal.moves import Moves, Shown, find_moves
from jbrl.bayes_optimal.plan import (
    BUDGET,
    LARGEST_PLAYED,
    REPLICATIONS,
    SHARE,
    Plan,
    check_model,
    make_plan,
    standard_error,
)
from jbrl.bayes_optimal.repeats import repeats
from jbrl.bayes_optimal.upper import FILLED, Kind, Race, Way, Ways, clock, lowest
from jbrl.environments.spec import Steps
from jbrl.mdp.counts import Layers
from jbrl.mdp.gittins import as_bandit
from jbrl.mdp.model import Model, make_model
from jbrl.play.machine import available_cores, memory_bytes
from jbrl.play.protocol import Protocol
from jbrl.play.unit import digest
from jbrl.problems.lookup import problem as find_problem
from jbrl.problems.problem import DirichletProblem, Problem
from jbrl.rollout.contract import Agent
from jbrl.study.storage import files

VERSION = 13  # of what pieces mean
EXACT = "nothing"  # what an exact end rests on besides the seed
CERTIFYING = {EXACT, RANGE}
ROUNDING = 1e-12  # relative, of values that are equal
CLOSE = 1e-5  # relative, of ends without a sample that no sample would improve


def _close(lower: float, upper: float) -> bool:
    return upper - lower <= CLOSE * abs(lower)


Progress = Callable[[str, int, int], Any]  # a step, how many parts of it are done, of how many
Left = Callable[[], float]  # seconds by the clock, infinite without a budget


class Pieces:
    """Pieces of one computation, in memory or in a folder.

    Args:
      configuration: everything that the pieces depend on; its digest is part of their names.

    Raises:
      JbrlError: the folder cannot be made.
    """

    def __init__(self, folder: Path | None, configuration: Mapping[str, Any]) -> None:
        self._folder = folder
        self._digest = digest(configuration, 16)
        if folder is not None:
            with naming(folder, "used as a folder"):
                folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a piece: the one that is kept, or else a new one, which is kept.

        Its `seconds` are those of the processor, all threads, that it took to make.
        """
        if self._folder is None:
            return _timed(make)
        path = self._folder / f"{name}-{self._digest}.json"
        piece = files.read_json(path)
        if piece is None:
            piece = _timed(make)
            write_whole(path, files.pack_json(piece))
        return piece


def _timed(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    started = time.process_time()
    piece = make()
    return {**piece, "seconds": time.process_time() - started}


@dataclasses.dataclass(frozen=True)
class End:
    """One end of a bracket.

    An end without a sample has the confidence 1, and `mean` is its value.
    """

    value: float  # the confidence limit
    confidence: float  # one-sided
    mean: float
    standard_error: float
    rests_on: dict[str, Any]
    assumes: str = EXACT  # EXACT or RANGE
    # of the processor, all threads, that its pieces took, trials and choices included
    seconds: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass(frozen=True)
class Bracket:
    """The Bayes-optimal value lies between `lower` and `upper`, with probability `confidence` of
    the samples drawn.
    """

    problem: str
    digest: str
    discount: float
    horizon: int
    decisions: int
    lower: float
    upper: float
    confidence: float
    # estimate of the value that an agent earns which is shown the MDP; None: not known, or the
    # sample's is below the lower end
    clairvoyant: float | None
    state_counts: int  # (state, counts) backed up in one replication
    lower_end: End
    upper_end: End
    seed: int
    # what kept D from being greater, where it was chosen: "memory", "budget", "size" (of arrays);
    # None: D is as asked for, or the horizon
    limited_by: str | None = None
    # of the MDPs that the lower end is played in, those in which a decision is expected to have the
    # rarest outcome; None: nothing was played
    rarest: float | None = None

    @property
    def certified(self) -> bool:
        """Return whether both ends are finite and hold at their confidence whatever the
        distribution of returns is.
        """
        assumed = {self.lower_end.assumes, self.upper_end.assumes}
        return assumed <= CERTIFYING and math.isfinite(self.width)

    @property
    def close(self) -> bool:
        """Return whether the ends are as good as equal."""
        return _close(self.lower, self.upper)

    @property
    def width(self) -> float:
        return self.upper - self.lower

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as the command prints it."""
        return {**dataclasses.asdict(self), "certified": self.certified}


def bound(
    problem: str | Path | Problem,
    *,
    discount: float = 0.95,
    horizon: int | None = None,
    decisions: int | None = None,
    budget: float | None = None,
    memory: int | None = None,
    seed: int = 0,
    agents: Sequence[str] | Mapping[str, Agent] = (),
    played: int | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Bracket:
    """Bracket the Bayes-optimal value of a Dirichlet distribution over MDPs.

    The greatest expected discounted return that any agent can earn whose prior is the distribution
    that its MDP is drawn from. docs/bounds-proofs.md has the proofs.

    Args:
      problem: a name of the catalogue, the path of a JSON file, or a `Problem`.
      horizon: decisions of a lifetime; default: that of the problem.
      decisions: D, how far to look ahead; default: as far as `budget` allows.
      budget: seconds, about, on this machine's cores; default: 60, or what `decisions` takes.
      memory: bytes that arrays may take; default: half of this machine's.
      seed: of all samples.
      agents: agents that may earn the lower end, besides policies that the look-ahead suggests:
        names of the register, or agents by names of their own, for example policies that were
        trained. Pieces in `out` are known by these names, those of agents of the register and of
        `module:Class` by their parameters and source as well.
      played: MDPs in which the policy of the lower end plays; default: 20,480, or what the budget
        allows.
      out: folder for pieces of the work; the same call again goes on from them.
      progress: called with the name of a step, and how many of how many parts are done.

    Raises:
      JbrlError: a problem without such a distribution, or with one that is too large; a number out
        of range; decisions that do not fit into the horizon, the memory or the budget.
    """
    started = clock()
    expect("out", out, str | Path | None, "a folder")
    expect("progress", progress, Callable | None, "a function")  # type: ignore[arg-type]
    chosen = problem if isinstance(problem, Problem) else find_problem(problem)
    if not isinstance(chosen, DirichletProblem):
        raise JbrlError(
            f"problem '{chosen.short_name}': expected a Dirichlet distribution over finite MDPs, "
            "for example GC"
        )
    work = _Work(chosen, discount, horizon, seed, progress or (lambda *_: None))
    allowed = find_agents(agents, work.protocol)
    work.keep_in(None if out is None else Path(out))
    known = work.known()
    if decisions is None and known is not None and _close(known[0].value, known[1].value):
        decisions = 0  # nothing is to be sampled
    plan = make_plan(
        work.layers,
        chosen.short_name,
        work.horizon,
        decisions,
        budget,
        (memory_bytes() or 2**33) // 2 if memory is None else memory,
        work.cores,
    )
    if played is not None:
        check_count("played", played, LARGEST_PLAYED, low=2)
        plan = dataclasses.replace(plan, n_played=int(played), as_asked=True)

    def left() -> float:
        return plan.budget - (clock() - started)

    return work.bracket(plan, left, allowed, known)


def _replication(piece: Mapping[str, Any]) -> Replication:
    return Replication(**{key: value for key, value in piece.items() if key != "seconds"})


class _Work:
    """The samples of a bracket: `keep_in` says where pieces of them are, `bracket` by which plan
    they are made.
    """

    def __init__(
        self,
        problem: DirichletProblem,
        discount: float,
        horizon: int | None,
        seed: int,
        progress: Progress,
    ) -> None:
        self.problem, self.progress = problem, progress
        steps = problem.lifetime.steps if horizon is None else horizon
        self.protocol = Protocol(
            problem, problem, TRIAL, seed, Steps(steps), discount
        )  # refuses numbers out of range
        # of Python, also where they are NumPy's
        self.horizon, self.seed, self.discount = int(steps), int(seed), float(discount)
        self.cores = available_cores()
        self.model: Model = make_model(problem.mdps)
        check_model(self.model, problem.short_name)
        # Symmetric states are not merged: see `LookAhead.margin`.
        self.layers = self.above_least = Layers(self.model, merge_states=False)
        # In single precision, what all rewards have in common would take the digits of the rest,
        # and squares of very small or large ones would be 0 or infinite.
        least, size = self.model.least_reward, self.model.reward_range
        self.unit = 1.0 if 2**-20 <= size <= 2**20 else math.ldexp(1.0, math.frexp(size)[1])
        if least or self.unit != 1:
            rewards: Any = (np.asarray(problem.mdps.rewards, np.float64) - least) / self.unit
            mdps = dataclasses.replace(problem.mdps, rewards=rewards)
            self.above_least = Layers(make_model(mdps), merge_states=False)
        self.common = least * sum(self.discount**t for t in range(self.horizon))

    def seeds(self, name: str, n: int) -> list[np.random.SeedSequence]:
        """Return seeds for independent samples."""
        return np.random.SeedSequence([self.seed, *name.encode()]).spawn(n)

    def keep_in(self, folder: Path | None) -> None:
        """Keep pieces in a folder, and take those that are there; None: in memory."""
        configuration = {
            "version": VERSION,
            "problem": self.problem.digest,
            "discount": self.discount,
            "horizon": self.horizon,
            "seed": self.seed,
        }
        self.pieces = Pieces(folder, configuration)

    def _made(
        self, way: Way, n_mdps: int, number: int, seed: np.random.SeedSequence, prefix: str = ""
    ) -> dict[str, Any]:
        """Return a replication, the one that is kept or else a new one: of rewards above the least,
        in `unit`.
        """

        def make() -> dict[str, float]:
            return dataclasses.asdict(way.replication(n_mdps, seed))

        # on which the control function depends, and how far it is shifted
        first_run = self.plan.shallow
        return self.pieces.get(f"{prefix}{way.name}-{first_run}-{n_mdps}-{number}", make)

    def known(self) -> tuple[End, End] | None:
        """Return the ends that Gittins indices give, where the problem is a bandit and little
        comes after the horizon.
        """
        found = as_bandit(self.problem.mdps)
        if found is None or not found.suits(self.discount, self.horizon):
            return None

        def make() -> dict[str, float]:
            ends = found.value(self.discount, self.horizon)
            return dict(zip(("lower", "upper"), ends, strict=True))

        self.progress("Gittins indices", 0, 1)
        piece = self.pieces.get("gittins", make)
        self.progress("Gittins indices", 1, 1)
        facts = {"method": "Gittins indices"}
        lower, upper = (
            End(piece[end], 1.0, piece[end], 0.0, facts, seconds=piece["seconds"])
            for end in ("lower", "upper")
        )
        return lower, upper

    def bracket(
        self, plan: Plan, left: Left, agents: Mapping[str, Agent], known: tuple[End, End] | None
    ) -> Bracket:
        """Return the bracket; `left` says how many seconds there are."""
        self.plan, self.left = plan, left
        ahead = LookAhead(self.layers, self.discount, self.horizon, plan.shallow, self.cores)
        close = known is not None and _close(known[0].value, known[1].value)
        sampled = not (ahead.exact or close)
        tried = self._tried(agents) if sampled else []  # refuses what does not fit
        with threadpool_limits(1, "blas"):  # idle threads of BLAS spin and take the cores of others
            if known is not None and close and not ahead.exact:
                floor, ceiling = known
            else:
                floor, ceiling = self._extremes(ahead)
            if known is not None:
                floor = max(floor, known[0], key=lambda end: end.value)
                ceiling = min(ceiling, known[1], key=lambda end: end.value)
            exact = self._equal(floor.value, ceiling.value)
            sampled = sampled and not exact
            lower, upper, shown_value = floor, floor if exact else ceiling, None
        if sampled:
            trials = self._trials(tried)
            with threadpool_limits(1, "blas"):
                upper, shown_value = self._upper((1 - SHARE) * left(), ceiling)
            lower = self._lower(trials, floor)
        if lower.value > upper.value:  # one of them is a limit that has failed
            lower, upper = floor, ceiling
        if shown_value is not None and shown_value < lower.value:
            shown_value = None  # none earns less that is shown the MDP: its sample lacks rare ones
        n_played = lower.rests_on.get("n_mdps")
        confidence = min(lower.confidence, upper.confidence)
        size = plan.sizes.of(upper.rests_on.get("decisions", plan.shallow))
        assert size is not None
        return Bracket(
            self.problem.short_name,
            self.problem.digest,
            self.discount,
            self.horizon,
            size.decisions,
            lower.value,
            upper.value,
            1.0 if confidence == 1 else CONFIDENCE,
            shown_value,
            size.all,
            lower,
            upper,
            self.seed,
            plan.limited_by,
            None if n_played is None else n_played * self.model.rarest,
        )

    def _equal(self, lower: float, upper: float) -> bool:
        """Return whether values differ by no more than what is rounded."""
        return upper - lower <= ROUNDING * max(min(1.0, self.model.reward_size), abs(lower))

    def _extremes(self, ahead: LookAhead) -> tuple[End, End]:
        """Return the ends that need no sample: the values of the best policies for D decisions if
        all outcomes after them are the worst, and the best.
        """
        name = f"extremes-{ahead.decisions}"
        self.progress("looking ahead exactly", 0, 1)
        piece = self.pieces.get(
            name, lambda: dict(zip(("worst", "best"), ahead.extremes(), strict=True))
        )
        self.progress("looking ahead exactly", 1, 1)
        ends = []
        exact = self._equal(piece["worst"], piece["best"])
        for outcomes in ("worst", "best"):
            how = "exact" if exact else f"the look-ahead, then the {outcomes} outcomes"
            facts = {"method": how, "decisions": ahead.decisions}
            value = piece[outcomes]
            ends.append(End(value, 1.0, value, 0.0, facts, seconds=piece["seconds"]))
        return ends[0], ends[1]

    def _upper(self, end: float, ceiling: End) -> tuple[End, float]:
        """Return the upper end, made until `end` seconds are left, and the clairvoyant's value."""
        step = "upper end, replications"
        self.progress(step, 0, REPLICATIONS)
        way, n_mdps, choosing = self._way(lambda: self.left() - end)
        made = []
        for number, seed in enumerate(self.seeds("upper", REPLICATIONS)):
            made.append(self._made(way, n_mdps, number, seed))
            self.progress(step, number + 1, REPLICATIONS)
        replications = [_replication(piece) for piece in made]
        numbers = np.array([(one.value, one.clairvoyant) for one in replications])
        samples, shown = (numbers * self.unit + self.common).T
        shown_value = float(shown.mean())
        value = float(samples.mean() + self.unit * way.margin(replications, n_mdps))
        if not (math.isfinite(value) and value <= ceiling.value):
            return self._repeating(ceiling), shown_value
        found = End(
            value,
            ONE_SIDED,
            float(samples.mean()),
            standard_error(samples),
            {**way.facts, "replications": REPLICATIONS, "n_mdps": n_mdps},
            RANGE,
            choosing + sum(piece["seconds"] for piece in made),
        )
        return self._repeating(found), shown_value

    def _repeating(self, end: End) -> End:
        """Return the upper end that needs no sample where there is one and it is lower."""
        relaxed = repeats(self.model, self.discount, self.horizon)
        if relaxed is None:
            return end
        piece = self.pieces.get("repeats", lambda: {"value": relaxed.value()})
        seconds = end.seconds + piece["seconds"]
        if end.value <= piece["value"]:
            return dataclasses.replace(end, seconds=seconds)
        facts = {"method": "all rows are alike, repeated outcomes are chosen"}
        return End(piece["value"], 1.0, piece["value"], 0.0, facts, seconds=seconds)

    def _way(self, left: Left) -> tuple[Way, int, float]:
        """Return the relaxation whose end is lowest on a sample of its own, the MDPs of a
        replication, and the seconds that the choice took.
        """
        plan, seeds, seconds, raced = self.plan, self.seeds("pilot", 3), list[float](), list[Way]()
        ahead = LookAhead(self.above_least, self.discount, self.horizon, plan.shallow, self.cores)
        ways = Ways(ahead, plan, self.seeds("control", 1)[0])

        def trial(way: Way, n_mdps: int) -> Replication:
            piece = self._made(way, n_mdps, 0, seeds[way.kind], "pilot-")
            seconds.append(piece["seconds"])
            return _replication(piece)

        others = functools.partial(self._others, ways, ahead)

        if math.isinf(plan.budget):
            found = [kind(plan.shallow) for kind in (ways.shown, *others(None))]
            best = found[0] if len(found) == 1 else lowest(found, trial)
            return best, best.usual, sum(seconds)

        def timed(way: Way, n_mdps: int) -> Replication:
            return way.replication(n_mdps, seeds[way.kind])

        race = Race(ways.shown, others, plan.shallow, plan.size.decisions, timed, left)

        def choose() -> dict[str, Any]:
            way, n_mdps = race.choose()
            raced.append(way)
            return {"kind": way.kind, "decisions": way.decisions, "n_mdps": n_mdps}

        name = f"choice-{plan.budget:g}"  # it depends on the clock
        choice = self.pieces.get(name, choose)
        size = plan.sizes.of(choice["decisions"])
        more = size is None or size.memory > plan.memory or choice["n_mdps"] > plan.most_mdps
        if more and not raced:  # it was made with more memory
            choice = self.pieces.get(f"{name}-{plan.memory}", choose)
        if not raced:
            number = choice["kind"]  # those that were not chosen may take long to find
            kind = others(None)[number - 1] if number else ways.shown
            raced.append(kind(choice["decisions"]))
        return raced[0], choice["n_mdps"], choice["seconds"]

    def _others(
        self, ways: Ways, ahead: LookAhead, limit: float | None, pace: float = 1.0
    ) -> list[Kind]:
        """Return the relaxations beside that in which the MDP is shown after the look-ahead.

        Args:
          limit: seconds that a replication may take.
          pace: measured duration of small look-aheads over the estimated one.
        """
        moves = find_moves(ahead.layers.model)
        if moves is not None:
            relaxed = self._forgetting(moves, math.inf if limit is None else limit)
            if relaxed is not None:
                return [ways.forgetting(relaxed)]
            if limit is not None:  # hidden states take longer still
                return []

        def find() -> dict[str, Any]:
            most = None if limit is None else limit / pace
            found = hide(ahead, self.seeds("hide", 1)[0], most)
            return {"bounds": [(one.states, one.hidden.trials, one.shift) for one in found]}

        kept = self.pieces.get(f"hidden-{ahead.decisions}-{self.plan.budget:g}", find)
        found = [restored(ahead, *one) for one in kept["bounds"]]
        return [ways.hiding(number, one) for number, one in enumerate(found, 1)]

    def _forgetting(self, moves: Moves, limit: float) -> Forgetting | None:
        """Return the relaxation of moves that may fail: that of before, where it is kept."""
        trial, control = self.seeds("forgetting", 2)
        words = tuple(control.generate_state(4).tolist())
        shown = Shown(moves, self.discount, self.horizon, self.cores, words)

        def find() -> dict[str, Any]:
            memory = self.plan.memory
            fits = shown.memory <= memory
            return {"remembered": best_remembered(shown, trial, memory, limit) if fits else None}

        remembered = self.pieces.get(f"forgetting-{self.plan.budget:g}", find)["remembered"]
        return None if remembered is None else revealing(shown, remembered)

    def _tried(self, agents: Mapping[str, Agent]) -> list[tuple[Candidate, int]]:
        """Return policies that may earn the lower end, and in how many MDPs each is tried.

        Raises:
          JbrlError: a budget in which the fewest lifetimes of an agent take too long.
        """
        plan, training = self.plan, int(self.seeds("training", 1)[0].generate_state(1)[0])
        share = None if plan.playing is None else plan.playing / max(1, len(agents))
        policies = candidates(self.protocol, self.layers, self.cores, agents, training, plan.budget)
        for one in policies:
            seconds = one.seconds(LEAST_PLAYED)
            if share is not None and one.each and seconds > share:
                raise JbrlError(
                    f"agent = {one.name!r}: {LEAST_PLAYED} lifetimes take about {seconds:.3g} "
                    f"seconds: expected budget = {seconds / share * plan.budget:.3g} or more"
                )
        most = max(LEAST_PLAYED, int(TRIAL * min(1.0, plan.budget / BUDGET)))
        return [(one, one.fitting(most, share)) for one in policies]

    def _trials(
        self, tried: Sequence[tuple[Candidate, int]]
    ) -> list[tuple[Candidate, dict[str, Any]]]:
        """Return policies with what they earn on a sample."""
        step, trials = "lower end, policies", []
        self.progress(step, 0, len(tried) + 1)
        seed = self.seeds("lower", 2)[0]
        for number, (candidate, n_mdps) in enumerate(tried):
            trials.append((candidate, self._play(candidate, n_mdps, "trial", seed)))
            self.progress(step, number + 1, len(tried) + 1)
        return trials

    def _lower(self, trials: Sequence[tuple[Candidate, dict[str, Any]]], floor: End) -> End:
        """Return what the policy earns whose lower limit is greatest on a sample, on another
        sample; or the floor if it is greater.
        """
        best, _ = max(trials, key=lambda one: one[1]["limit"])
        certifying = self.seeds("lower", 2)[1]
        plan, n_played = self.plan, self.plan.n_played
        if not (plan.as_asked or math.isinf(plan.budget)):
            seconds = FILLED * self.left()
            each = min(one["each"] for policy, one in trials if not policy.each)
            most = max(LEAST_PLAYED, min(n_played, int(seconds / each)))
            if best.each:  # its trial has taken a search, too
                most = best.fitting(n_played, seconds, searched=True)
            name = f"played-{plan.budget:g}"  # it depends on the clock
            n_played = self.pieces.get(name, lambda: {"n_mdps": most})["n_mdps"]
        played = self._play(best, n_played, "certificate", certifying)
        self.progress("lower end, policies", len(trials) + 1, len(trials) + 1)
        end = End(
            played["limit"],
            ONE_SIDED,
            played["mean"],
            played["standard_error"],
            {"method": "a policy, played", "policy": best.name, "n_mdps": n_played},
            RANGE,
        )
        seconds = floor.seconds + sum(one["seconds"] for _, one in trials) + played["seconds"]
        return dataclasses.replace(max(end, floor, key=lambda one: one.value), seconds=seconds)

    def _play(
        self, candidate: Candidate, n_mdps: int, purpose: str, seed: np.random.SeedSequence
    ) -> dict[str, Any]:
        def make() -> dict[str, float]:
            started = clock()
            returns = candidate.play(n_mdps, seed)
            return {
                "each": (clock() - started) / n_mdps,  # seconds by the clock
                "mean": float(returns.mean()),
                "standard_error": standard_error(returns),
                "limit": lower_limit(returns, candidate.least, ONE_SIDED),
            }

        slug = "".join(c if c.isalnum() or c in ".-" else "_" for c in candidate.name)
        name = "-".join(filter(None, (slug, candidate.digest)))
        return self.pieces.get(f"{purpose}-{n_mdps}-{name}", make)
