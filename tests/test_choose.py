"""Choosing an agent: limits, the race, the answer, what is kept, and the command."""

import contextlib
import dataclasses
import itertools
import json
import shutil
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

import jbrl.gymnasium
from jbrl.agents import BAMCP, BFS3, BOSS, SBOSS
from jbrl.agents.prior_trained.networks import Gru
from jbrl.agents.prior_trained.rl2 import RecurrentPolicy
from jbrl.agents.registry import AGENTS
from jbrl.base import notebook
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parse_seconds
from jbrl.choice import Choice, Looser, Standing, standing_rows
from jbrl.chooser import Chooser
from jbrl.cli.choose import _table
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import distribution
from jbrl.play.protocol import Protocol
from jbrl.play.stepping import Latency
from jbrl.problems.hosted import host_problem
from jbrl.problems.lookup import problem
from jbrl.problems.problem import DirichletProblem
from jbrl.racer import CONFIRMING, FRESH, Clock, Kept, OutOfTimeError, OverLimitError, Racer, Times
from jbrl.report.choice import document
from jbrl.stats.race import Race
from jbrl.study.portfolio import Candidate, candidate, portfolio, setting_name
from jbrl.verdict import Verdict
from tests import kept
from tests.faults.cases import full
from tests.terminal import call

EXAMPLES = Path(__file__).parents[1] / "docs/examples"
NAMELESS = dataclasses.replace(problem("CartPole"), short_name="Mine")
TINY = {"horizon": 8, "budget": "10 min", "online": "1 s", "epsilon": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("choice")


@pytest.fixture(scope="module", autouse=True)
def no_bracket():
    """Leave out the bracket, which takes seconds and is tested by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("jbrl.verdict"), "LEAST_BRACKET", float("inf"))
        yield


@pytest.fixture(scope="module")
def choice(folder):
    """Decisions of the recommended are much slower when they are timed again."""
    candidates, seed, timed = ["Sarsa", "Q-learning"], np.int64(0), Racer._latency

    def again(racer: Racer, limit: float, until: float, decisions: int = 300) -> Latency:
        found = timed(racer, limit, until, decisions)
        slow = {"median": 50 * found.median, "p99": 50 * found.p99}
        return dataclasses.replace(found, **slow) if decisions == CONFIRMING else found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Racer, "_latency", again)
        return jbrl.choose("GC(n_states=3)", candidates=candidates, out=folder, seed=seed, **TINY)


def plain(choice: Choice) -> dict[str, object]:
    """Return the answer without what depends on the clock."""
    content = json.loads(json.dumps(choice.as_dict()))
    return {k: v for k, v in content.items() if k not in ("answer", "seconds", "busy")}


def test_the_answer_names_an_agent_and_scores_it_afresh(choice, folder):
    assert choice.outcome == "answered"
    assert choice.recommended in ("Sarsa", "Q-learning")
    mean, low, high = choice.score
    assert low < mean < high
    assert choice.n_fresh >= 64
    assert set(choice.references) == {"Random", "Optimal"}
    assert choice.references["Random"] < choice.references["Optimal"]
    kept = json.loads((folder / "choice.json").read_text())
    assert kept["answer"] == choice.sentence
    assert kept["standings"][0]["name"] == "Sarsa"
    assert "<table>" in choice._repr_html_()
    assert _table(choice.standings * 5, "", Console(height=7)).row_count == 3  # as many as fit
    page = (folder / "choice.html").read_text()
    assert page.count("<svg") >= 2
    assert choice.recommended in page and "mathdefault" not in page  # numbers, not TeX
    assert page.count('<td class="number">') >= 2 * 4  # a mean and its error stay on one line


def test_the_policy_in_the_folder_acts(choice, folder):
    policy = jbrl.load_policy(folder / "policy")
    assert policy.limits == {"offline": 60.0, "online": 1.0}
    card = (folder / "policy" / "README.md").read_text(encoding="utf-8")
    assert "| limit offline | 60 s |\n| limit online | 1 s |" in card
    assert policy.digest == choice.policy.digest
    assert policy.start(seed=1).act(0) in range(3)


def test_what_was_played_is_kept_and_gives_the_same_answer(choice, folder):
    again = jbrl.choose("GC(n_states=3)", candidates=["Sarsa", "Q-learning"], out=folder, **TINY)
    assert plain(again) == plain(choice)


def test_fresh_scores_that_are_kept_serve_where_there_is_no_time_to_play():
    racer: Any = SimpleNamespace(
        name="BEB", agent=AGENTS["BEB"].agent(), expected=lambda n: 1e9 * n
    )
    racer.has_played = lambda start, stop: stop - start == 1024
    racer.play = lambda start, stop, until: np.linspace(0.0, 1.0, stop - start)
    race = SimpleNamespace(clock=Clock(1.0), writing=0.0, least=4, range=(0.0, 1.0), confidence=0.9)
    verdict = Verdict(race)  # type: ignore[arg-type]
    race.say, race.admit = lambda _: None, lambda scores: scores
    assert len(verdict._score(racer)) == 1024 == verdict.score[1]


def test_the_race_leaves_time_to_compile_who_was_played_by_another_process(course_of, monkeypatch):
    course = course_of("GC", 100, [rival("BEB", 3.0, 0.0)])
    assert course._enter_next()
    before, course.by_name["BEB"].times = course._end, Times(0.0, 1e-4, 1e-4, 0.0, 20.0)
    assert course._end == before
    monkeypatch.setattr(type(course.by_name["BEB"]), "is_trained", False)
    assert course._end < 100 - 20


def test_another_process_may_write_its_policy_at_the_same_time(choice, tmp_path, monkeypatch):
    """It puts its own into the place that was just made free."""
    rename, others = Path.rename, iter(range(3))

    def late(path: Path, target: Path) -> Path:
        found = rename(path, target)
        if path.name == "policy" and next(others, None) is not None:
            path.mkdir()
            (path / "policy.json").write_text("of another process")
        return found

    choose = import_module("jbrl.choose")
    choose._write_policy(choice, tmp_path)
    monkeypatch.setattr(Path, "rename", late)
    (tmp_path / "policy.new").mkdir()  # of a process that has just begun
    choose._write_policy(choice, tmp_path)
    assert next(others, None) is None
    assert jbrl.load_policy(tmp_path / "policy").digest == choice.policy.digest
    assert {path.name for path in tmp_path.iterdir()} == {"policy", "policy.new"}


@pytest.mark.parametrize(("low", "share"), [(1.0, (0.1, 1.0)), (-1.0, None)])
def test_a_score_that_may_be_negative_is_no_share_of_a_value(low, share):
    verdict: Any = SimpleNamespace(score=((3.0, low, 5.0), 64), bracket=(2.0, 10.0))
    assert Verdict._share(verdict) == share


@pytest.mark.parametrize(("limit", "ends"), [(1e-2, [2e-4, 5e-3]), (1e-3, [2e-4, 5e-4])])
def test_limits_at_which_the_answer_changes_are_those_that_it_was_judged_by(limit, ends):
    """On a busy machine, by the processor seconds of slow decisions."""
    quick, best = (
        Times(0.0, p99, median, 0.0, 1.0) for p99, median in ((2e-4, 1e-4), (5e-3, 2.5e-4))
    )
    times = {"near": Times(0.0, 1.1e-4, 1e-4, 0.0, 1.0), "quick": quick, "best": best}
    means = {"best": 2.0, "quick": 1.0, "near": 0.95}
    racers = {name: SimpleNamespace(times=one) for name, one in times.items()}
    race = SimpleNamespace(by_name=racers, limits=(60.0, limit), epsilon=0.1)
    verdict: Any = SimpleNamespace(race=race, _means=lambda: means)
    verdict._judged = lambda racer: Verdict._judged(verdict, racer)
    changes = [(ends[0], "quick"), (ends[1], "best")]  # who is near decides in half the time
    assert list(Verdict._tighter(verdict, "best")) == changes
    assert list(Verdict._tighter(verdict, "quick")) == changes[:1]  # not that another is better
    assert list(Verdict._tighter(verdict, "near")) == [(1.1e-4, "near")]


def test_an_answer_that_cannot_be_written_is_said(choice, folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path / "full")
    monkeypatch.setattr(import_module("jbrl.policy_folder"), "write_whole", full)
    said = r"full.policy: cannot be written: No space left on device. The answer is: Take \w"
    with pytest.raises(JbrlError, match=said):
        jbrl.choose("GC(n_states=3)", candidates="Sarsa", out=tmp_path / "full", **TINY)


def interrupted(folder: Path, at: str, **options: Any) -> Choice:
    """Return what a choice answers that is interrupted at a step."""

    def interrupt(step: str, done: int, total: int) -> None:
        if at in step:
            raise KeyboardInterrupt

    return jbrl.choose("GC(n_states=3)", **TINY, out=folder, progress=interrupt, **options)


def test_an_interruption_leaves_the_policy_of_the_answer_so_far(tmp_path):
    """The first answer is there before Random and Optimal play."""
    found = interrupted(tmp_path, "Random", candidates=["Sarsa"], seed=1)
    assert found.outcome == "interrupted" and found.recommended == "Sarsa"
    assert jbrl.load_policy(tmp_path / "policy").name == "Sarsa"
    assert "not written" not in found.sentence
    again = interrupted(tmp_path, "Random", candidates=["Sarsa"], seed=1)
    assert again.recommended == "Sarsa" and "The policy was not written" in again.sentence
    assert jbrl.load_policy(tmp_path / "policy").name == "Sarsa"  # as before


def test_an_interruption_before_any_candidate_is_ready_is_said(tmp_path):
    found = interrupted(tmp_path, "getting ready", candidates=["Sarsa"])
    said = "The race was interrupted before any candidate was ready on GC(n_states=3)."
    assert found.sentence == said and found.recommended is None


def test_an_interruption_leaves_the_policy_of_who_was_about_to_play(tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Racer, "play", interrupt)
    found = jbrl.choose("GC(n_states=3)", **TINY, out=tmp_path, candidates=["Sarsa"])
    assert (found.outcome, found.recommended, found.winner) == ("interrupted", "Sarsa", None)
    assert "it keeps the limits, and there was no time to play it" in found.sentence
    assert jbrl.load_policy(tmp_path / "policy").name == "Sarsa"


def test_an_interruption_ends_in_the_answer_so_far(choice, folder):
    found = interrupted(folder, "environments", candidates=["Sarsa", "Q-learning"])
    assert (found.outcome, found.stopped) == ("interrupted", "interrupted")
    assert found.recommended in ("Sarsa", "Q-learning")
    assert found.score is None
    assert "interrupted" in found.sentence
    assert json.loads((folder / "choice.json").read_text())["outcome"] == "interrupted"


def test_scores_are_those_of_play(choice):
    """Number 64 is where the second block begins."""
    first = next(one for one in choice.standings if one.name == "Sarsa")
    played = jbrl.play("Sarsa", test="GC(n_states=3)", horizon=8, n_environments=128)
    means = dict(first.curve)
    assert means[64] == pytest.approx(played.returns[:64].mean(), rel=1e-12)
    assert means[128] == pytest.approx(played.returns.mean(), rel=1e-12)


def test_nobody_keeps_a_limit_that_is_too_short():
    # a size of problems at which the compiler has aborted in the decisions of SBOSS
    words = "choose GC(n_states=4) --horizon 8 --online 1ns --candidates SBOSS --format json"
    result = call(*words.split())
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert found["outcome"] == "none"
    assert found["recommended"] is None
    assert found["standings"][0]["status"] == "over a limit"
    assert "the limit is" in found["answer"] or "expected to take" in found["answer"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"online": "1 parsec"}, "online = '1 parsec'"),
        ({"offline": -1}, "offline = -1"),
        ({"epsilon": 0}, "epsilon = 0: expected a number between 0 and 1"),
        ({"candidates": []}, "none is given that can play"),
        ({"candidates": ["BEB", "BEB"]}, "two are called BEB"),
        ({"candidates": ["Optimal"]}, "Optimal is shown the environment"),
        ({"candidates": ["Random"]}, "none is given that can play"),
        ({"candidates": 3}, "candidates = 3: expected agents, or the path of a study"),
        ({"candidates": "Random, BEBE"}, "unknown algorithm 'BEBE'"),
        ({"candidates": "no.toml"}, "no.toml: cannot be read as a study"),
        ({"candidates": [3]}, "agent = 3: expected an agent, or the name of one"),
        ({"candidates": {3: "BEB"}}, "candidates: name 3: expected a text"),
        ({"candidates": ["BEBE"]}, "did you mean 'BEB'"),
        ({"candidates": "BEB(beta=x)"}, "agent 'BEB': beta = 'x': expected a number from 0"),
        ({"candidates": "BEB(beta=1, beta=2)"}, "expected parameters once each, as in BEB"),
        ({"candidates": "BEB(beta=1"}, "expected parameters once each, as in BEB"),
        ({"problem": "CartPole", "candidates": ["BeliefPPO"]}, "BeliefPPO needs a Dirichlet prior"),
        ({"candidates": [RecurrentPolicy(*[np.zeros(1)] * 2, Gru(1, 1, 1))]}, "that was trained"),
        ({"problem": NAMELESS, "out": "nowhere"}, "'Mine' is none that a name stands for"),
    ],
)
def test_wrong_input_is_refused(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JbrlError, match=message):
        jbrl.choose(**{"problem": "GC(n_states=3)"} | given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("60 s", 60), ("1ms", 1e-3), ("10min", 600), ("50 µs", 5e-5), (2, 2), ("1e-3", 1e-3)],
        *[(".5ms", 5e-4), ("1e-3 s", 1e-3), ("1E-3S", 1e-3), ("1 Min", 60), ("2.\u00a0ms", 2e-3)],
        *[("5 \u03bcs", 5e-6), (np.float32(0.5), 0.5), ("0.5 h", 1800)],
    ],
)
def test_durations(text, seconds):
    assert parse_seconds("online", text) == pytest.approx(seconds)


def test_candidates_may_be_those_of_a_study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        """
        study = { name = "three", n_mdps = 10 }
        experiments = [{ name = "GC", prior = "GC", test = "GC" }]
        agents = [
          { algorithm = "BEB", beta = [1.0, 2.0] },
          { algorithm = "e-Greedy", epsilon = { uniform = [0, 1] } },
          { algorithm = "Optimal" },
          { algorithm = "Random" },
        ]
        """
    )
    choice = jbrl.choose("GC(n_states=3)", candidates=path, **TINY | {"online": "1e-12 s"})
    drawn = "e-Greedy(epsilon={'uniform': [0.0, 1.0]})"
    assert [one.name for one in choice.standings] == [drawn, "BEB(beta=1.0)", "BEB"]
    assert {one.status for one in choice.standings} == {"over a limit"}
    rules = TINY | {"online": "1e-12 s", "epsilon": np.float32(0.2)}
    choice = jbrl.choose("GC(n_states=3)", candidates=["Random", "BEB"], **rules)
    assert [one.name for one in choice.standings] == ["BEB"]


def test_names_of_settings_leave_out_capacities_that_the_agent_has_made():
    agents = SBOSS(max_samples=16), BOSS(sampled=40), BFS3(1000, root="single"), BAMCP()
    assert [setting_name(agent) for agent in agents] == [
        "SBOSS(max_samples=16)",
        "BOSS(sampled=40)",
        "BFS3(trajectories=1000, root=single)",
        "BAMCP",
    ]


def test_names_that_an_answer_shows_name_candidates():
    shown = [
        "BEB(beta=4.0)",
        "DPT(budget=1000, inputs=mean and belief)",
        "e-Greedy(epsilon={'uniform': [0.0, 1.0]})",
    ]
    text = ", ".join(shown).replace("{'uniform': [0.0, 1.0]}", "{ uniform = [0, 1] }")
    for given in (shown, text):
        choice = jbrl.choose("GC(n_states=3)", candidates=given, **TINY | {"online": "1e-12 s"})
        assert {one.name for one in choice.standings} == set(shown)


def protocol_of(chosen, lifetime=None, discount=0.95) -> Protocol:
    """How a choice plays a problem, or the one of a name."""
    chosen = problem(chosen) if isinstance(chosen, str) else chosen
    return Protocol(chosen, chosen, 256, 0, lifetime or chosen.lifetime, discount)


def jbrls(found: list[Candidate]) -> list[Candidate]:
    """Candidates that no other test has registered."""
    return [one for one in found if type(one.agent).__module__.startswith("jbrl.")]


def test_a_portfolio_suits_the_problem_and_its_limits():
    names = {}
    for limit in (1e-6, 1e-1):
        for name in ("GC", "Catch"):
            found = portfolio(protocol_of(name), 60.0, limit)
            if jax.default_backend() == "cpu":
                parts = {one.name: str(one[2:]) for one in jbrls(found)}
                kept.compare(f"portfolio for {name} in {limit}", parts | {"all": str([*parts])})
            names[name, limit] = [one.name for one in found]
    assert any("simulations=10" in name for name in names["GC", 1e-6])
    assert any("simulations=16000" in name for name in names["GC", 1e-1])
    assert not any(name.startswith(("Random", "Optimal")) for name in names["GC", 1e-1])
    assert "BEB" not in " ".join(names["Catch", 1e-1])
    assert any(name.startswith("DQN") for name in names["Catch", 1e-1])
    assert len(names["GC", 1e-1]) >= 24
    order = names["GC", 1e-1]  # those that use the prior come first
    assert order.index("BAMCP(simulations=4000)") < order.index("Q-learning")
    rare = [one.name for one in portfolio(protocol_of("Grid", Steps(250)), 60.0, 1e-1)]
    trained = [name for name in rare if name.startswith(("DPT", "BeliefPPO"))]
    assert len(trained) > 2 and all("mean and belief" in name for name in trained)
    assert "mean and belief" not in " ".join(order)
    likely = ("BEB(beta=0.25)", "BEB(beta=16.0)", "OPPS-DS", "Look-ahead")
    assert max(map(order.index, likely)) < order.index("PSRL")


class SimulatedClock(Clock):
    """Clock that goes forward by what is said to be done."""

    def __init__(self, budget: float, slow: float = 1.0) -> None:
        self.reading, self.slow = 0.0, slow
        super().__init__(budget, lambda: self.reading)


class Simulated(Racer):
    """Candidate whose times are given: wrong estimates, and what it takes in truth."""

    def __init__(self, one: Candidate, protocol: Protocol, kept: Kept, clock: Any) -> None:
        super().__init__(one, protocol, kept, clock)
        self.rng = np.random.default_rng([len(one.name), *one.name.encode()])
        self.off = clock.slow * np.exp(self.rng.uniform(-0.7, 0.7))
        self.mean = self.rng.uniform(1, 3)

    def _take(self, seconds: float, until: float, parts: int) -> None:
        for _ in range(parts):
            self._clock.reading += seconds / parts  # type: ignore[attr-defined]
            self._clock.check(until)

    def learn(self, offline: float, online: float, until: float) -> None:
        self._take(self.off * self.candidate.compiling, np.inf, 1)
        self._take(self.off * self.candidate.searching, until, 20)
        latency, median = (3e-3, 1e-3) if self.name == "over the limit" else (1e-4, 1e-4)
        self.times = Times(0.1, latency, median, 5e-5, 1.0)

    def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
        n, began = stop - start, self._clock.spent
        seconds = self.off * self.candidate.playing(n, self._protocol.expected_steps, 2)
        try:  # lifetimes in blocks can be cut off, a call that plays finite MDPs cannot
            parts = 1 + int(seconds / 0.5) if self._protocol.in_blocks else -(-n // 512)
            self._take(seconds, until, parts)
        finally:
            self.each = (self._clock.spent - began) / n
        return self.mean + self.rng.normal(size=n).clip(-1, 1)

    def trained_again(self, number: int, until: float) -> "Simulated":
        self._take(self.off * self.candidate.searching, until, 20)
        return self

    def measure_again(self, online: float, until: float) -> None:
        self._take(0.2, np.inf, 1)

    @property
    def is_trained(self) -> bool:
        return self.times is not None

    def policy(self) -> Any:
        return None


def rival(name: str, compiling: float, searching: float, algorithm: str = "", blind=False):
    """Return a candidate of an algorithm, that of its name if none is said."""
    agent = AGENTS[algorithm or name].agent()
    return Candidate(name, agent, compiling, searching, 1e-5, 8, blind)


@pytest.fixture
def course_of(monkeypatch):
    """Makes choices among simulated candidates on a machine that is not busy. With `means`, their
    estimates are right, and these are their mean scores.
    """

    def make(played, budget, candidates, means=(), kind=Simulated, epsilon=0.1, slow=1.0) -> Any:
        monkeypatch.setattr(import_module("jbrl.chooser"), "Racer", kind)
        monkeypatch.setattr(import_module("jbrl.chooser"), "present_busy_text", lambda: "")
        clock, protocol = SimulatedClock(budget, slow), protocol_of(played)
        racers = [kind(each, protocol, Kept(None), clock) for each in candidates]
        for racer, mean in zip(racers, means, strict=False):
            racer.off, racer.mean = 1.0, mean
        rules: Any = {"limits": (60.0, 1e-3), "epsilon": epsilon, "confidence": 0.95}
        return Chooser(protocol, racers, clock=clock, **rules)

    return make


@pytest.mark.parametrize(
    ("median", "p99", "spent", "measured", "kept"),
    [
        (0.1, [4, 0.9, 9], 0, 2, 0.9),  # the first of 20 decisions, the others of 300
        (0.1, [4, 5, 3, 7], 0, 4, 3),
        (0.1, [4, 5, 7, 3], 0, 4, 3),
        (2.0, [4, 5], 0, 1, 4),  # slow in any case
        (0.1, [4, 5], 75, 1, 4),  # no time for 300 of them
    ],
)
def test_decisions_that_were_slow_by_chance_are_measured_again(median, p99, spent, measured, kept):
    asked: list[int] = []

    def latency(n: int) -> Latency:
        asked.append(n)
        return Latency(median, p99[len(asked) - 1], n, 1, 0.0, float(len(asked)))

    policy = SimpleNamespace(latency=latency)
    racer: Any = SimpleNamespace(policy=lambda: policy, _clock=SimpleNamespace(spent=spent))
    found = Racer._latency(racer, 1.0, 100.0)
    assert asked == ([20] + 3 * [300])[:measured]
    assert found.p99 == kept and found.compile_seconds == 1


@pytest.mark.parametrize(
    ("limits", "later", "asked"),
    [
        ((1e-3, 1e-3), "", [20, 300]),  # kept
        ((1e-5, 1e-3), "", [20, 20, 300]),  # few were enough for the stricter limit alone
        ((1e-5, 1e-5), "", [20]),
        ((1e-3, 1e-3), "elsewhere", [20, 300, 20, 300]),
        ((1.5e-4, 1.5e-4), "busy", [20, 300, 300, 300]),
        ((1.5e-4, 1.5e-4), "idle", 2 * [20, 300, 300, 300]),  # slow ones had to wait
        ((1e-5, 1e-5), "idle", [20]),
        ((1e-5, 1e-5), "idle now", [20, 20]),  # and perhaps all
    ],
)
def test_times_that_are_kept_serve_limits_that_they_were_measured_for(
    limits, later, asked, tmp_path, monkeypatch
):
    found: list[int] = []
    racing = import_module("jbrl.racer")

    def latency(n: int) -> Latency:
        found.append(n)
        return Latency(5e-5, 2e-4, n, 1, 1e-6)

    run = SimpleNamespace(offline_seconds=0.0, compile_seconds=0.0, latency=latency)
    monkeypatch.setattr(Racer, "_learned", lambda *_: run)
    monkeypatch.setattr(Racer, "policy", lambda _: run)
    monkeypatch.setattr(racing, "present_busy_text", lambda: "" if later == "idle" else "busy")
    protocol = protocol_of("GC", Steps(8))
    for limit in limits:
        one = candidate(AGENTS["BEB"].agent(), protocol)
        racer = Racer(one, protocol, Kept(tmp_path), Clock(60))
        racer.learn(60.0, limit, 60.0)
        assert racer.times is not None and racer.times.latency == 2e-4
        if later == "idle now":
            monkeypatch.setattr(racing, "present_busy_text", lambda: "")
        if later == "elsewhere":
            monkeypatch.setattr(racing, "processor", lambda: "another")
    assert found == asked


TIMES = dataclasses.asdict(Times(0.1, 1e-4, 1e-5, 5e-6, 1.0))
EIGHT = np.zeros(8)


@pytest.mark.parametrize(
    ("name", "header", "arrays", "said"),
    [
        ("times", {"offline": 0.1}, {}, "missing 4 required positional arguments"),
        ("times", TIMES | {"latency": "1 s"}, {}, "latency = '1 s'"),
        ("times", TIMES | {"other": 1}, {}, "unexpected keyword argument 'other'"),
        ("0-8", {"each": 0.1}, {}, "'scores' is missing"),
        ("0-8", {}, {"scores": EIGHT}, "'each' is missing"),
        ("0-8", {"each": 0}, {"scores": EIGHT}, "each = 0"),
        ("0-8", {"each": 0.1}, {"scores": EIGHT.astype(int)}, r"scores = int64\[8\]"),
        ("0-8", {"each": 0.1}, {"scores": np.zeros((4, 2))}, r"scores = float64\[4, 2\]"),
        ("0-8", {"each": 0.1}, {"scores": np.zeros(9)}, r"scores = float64\[9\]"),
        ("knowledge", {}, {}, "'learned' is missing"),
        ("knowledge", {"learned": {"strategy": 3}}, {}, "not subscriptable"),
    ],
)
def test_a_kept_file_of_other_content_is_named(tmp_path, name, header, arrays, said):
    agent = AGENTS["OPPS-DS"].agent(budget=100)  # type: ignore[call-arg]
    protocol, kept = protocol_of("GC", Steps(8)), Kept(tmp_path)
    racer = Racer(candidate(agent, protocol), protocol, kept, Clock(60))
    file, read = f"{racer.unit.id}-{name}.npz", lambda: racer.play(0, 8)
    if name == "knowledge":
        found: Any = kept.findings(racer.unit, jax.devices()[0].platform)
        file, read = f"{found.id}.npz", found.learned
        found.store.save_knowledge(found.id, found.facts | {"status": "done"} | header, {})
    else:
        kept.put(file.removesuffix(".npz"), header, **arrays)
    if name == "times":
        read = lambda: racer.known  # noqa: E731
    with pytest.raises(JbrlError, match=rf"^\S+{file}: .*{said}.*: expected"):
        read()


def test_decisions_that_plan_anew_count_on_a_busy_machine(monkeypatch):
    """One decision in five takes 200 us of the processor, some wait for 5 ms in addition."""
    monkeypatch.setattr(import_module("jbrl.chooser"), "present_busy_text", lambda: "busy")
    slow, quick = (Times(0.0, 5e-3, 2e-5, 5e-6, 1.0, seconds) for seconds in (2e-4, 3e-5))
    assert (slow.cost, quick.cost) == (2e-4, 4e-5)
    for limit, times, stays in ((1e-4, slow, False), (1e-4, quick, True), (1e-3, slow, True)):
        race: Any = SimpleNamespace(limits=(1.0, limit), busy="")
        race._is_busy = lambda race=race: Chooser._is_busy(race)
        said = Chooser._over(race, SimpleNamespace(times=times))
        assert said == "" if stays else said == "takes 200 µs per decision, the limit is 100 µs"
        assert race.busy == "busy"


@pytest.mark.parametrize("name", ["GC", "Catch", "CartPole"])
def test_a_choice_ends_within_its_budget(name, course_of):
    """Estimates are off by up to six times, on a machine that is quick, slow or busy."""
    known, answers = jbrls(portfolio(protocol_of(name), 60.0, 1e-3)), {}
    for seed, (budget, slow) in enumerate(itertools.product((30, 100), (0.3, 1, 2, 3))):
        rng = np.random.default_rng(seed)
        compiling, searching = rng.exponential(budget / 8, (2, 8))
        decisions = np.exp(rng.uniform(-12, -8, 8))
        field = [
            Candidate(f"{k}-{seed}", known[k % len(known)].agent, *seconds, 8, blind=False)
            for k, seconds in enumerate(zip(compiling, searching, decisions, strict=True))
        ]
        field.sort(key=lambda one: one.compiling + one.searching)
        choice = Verdict(course_of(name, budget, field, epsilon=0.01, slow=slow)).reach()
        assert choice.seconds <= 1.1 * budget
        assert choice.recommended or choice.needed
        assert not choice.needed or choice.needed > budget
        assert choice.stopped == "epsilon" or choice.seconds >= 0.6 * budget or choice.needed
        answers[seed] = choice
    assert sum(bool(choice.recommended) for choice in answers.values()) >= 4
    if name == "Catch":  # that of GC hangs on how quickly brackets are found
        kept.compare("choices for Catch", {str(k): answer(one) for k, one in answers.items()})


def answer(choice: Choice) -> str:
    """All that is said of a choice."""
    plain = dataclasses.replace(choice, policy=None, digest="")
    return f"{plain}\n{choice.sentence}\n{standing_rows(choice.standings)}"


@pytest.mark.parametrize("upper", [1e3, 1.0])
def test_what_an_answer_rests_on(upper, course_of, monkeypatch):
    """A better candidate over the limit is named, the winner is trained again, and the race ends
    where no agent can be better.
    """
    bracketed = SimpleNamespace(lower=0.5, upper=upper)
    monkeypatch.setattr(import_module("jbrl.verdict"), "LEAST_BRACKET", 0.0)
    bracket = import_module("jbrl.bayes_optimal.bracket")
    monkeypatch.setattr(bracket, "bound", lambda *_, **__: bracketed)
    means = {"over the limit": 30.0, "second": 2.0, "BeliefPPO": 2.99, "OPPS-DS": 3.0}
    field = [rival(name, 3.0, 2.0, name if name in AGENTS else "BEB") for name in means]
    course = course_of("UGC", 100, field)  # returns from 0 to 200
    monkeypatch.setattr(course, "_score_range", lambda: ((-50.0, 150.0), False))  # as wide
    for racer in course.racers:
        racer.mean = means[racer.name]
    choice = Verdict(course).reach()
    kept.compare(f"choice up to {upper}", {"answer": answer(choice)})
    assert (choice.stopped == "certified") == (upper == 1)
    assert choice.recommended == "OPPS-DS"
    for name in ("OPPS-DS", "BeliefPPO")[: 1 + (upper == 1)]:  # tied, where time is left
        assert len(choice.trainings[name]) == 3
        assert f"Trained 3 times, {name} scores" in choice.sentence
    once = dataclasses.replace(choice, trainings={"OPPS-DS": (3.0,)})
    assert "trained once: the answer is this policy" in once.sentence
    (looser,) = choice.looser
    assert (looser.name, looser.latency_seconds) == ("over the limit", 3e-3)
    assert looser.low < 27 < looser.high
    assert "At 3 ms per decision it may be over the limit, better by 27" in choice.sentence
    sure = dataclasses.replace(choice, looser=(looser._replace(low=1.0),))
    assert "At 3 ms per decision it would be over the limit, better by 27" in sure.sentence
    assert choice.bracket == (0.5, upper)
    assert choice.share is not None and choice.share[0] <= choice.share[1] == 1


RULES: Any = {"limits": (1, 1), "epsilon": 0.1, "confidence": 0.95}


@pytest.mark.parametrize(
    ("states", "actions", "reward", "vain"),
    [(2, 1, 1.0, True), (1, 2, 0.5, True), (2, 2, 1.0, False)],
)
def test_there_is_nothing_to_win_where_all_actions_or_rewards_are_one(
    states, actions, reward, vain
):
    shape = (states, actions, states)
    rewards = np.full(shape, reward, np.float32)
    rewards[0, 0, 0] = 0.5
    chosen = DirichletProblem("own", "own", distribution(np.ones(shape), rewards, 0))
    course: Any = Chooser(protocol_of(chosen, Steps(8)), [], **RULES, clock=SimulatedClock(9))
    course.range, _ = course._score_range()
    assert course._is_vain() is vain


@pytest.mark.parametrize(("first", "ends"), [(0, (0, 1)), (1, (3, 3)), (-1, (0, 3))])
def test_scores_lie_between_the_worst_and_the_best_that_may_happen(first, ends):
    """State 0 pays 0 or 1 and is left for ever once it has paid; state 1 pays 3, or 2 twice, before
    all ends in state 3; what is impossible counts for nothing.
    """
    weights, rewards = np.zeros((2, 4, 2, 4))
    for x, u, y, reward in (
        *[(0, 0, 0, 0), (0, 0, 3, 1), (0, 1, 0, 0), (3, 0, 3, 0), (3, 1, 3, 0)],
        *[(1, 0, 3, 3), (1, 1, 2, 2), (2, 0, 3, 2), (2, 1, 3, 2)],
    ):
        weights[x, u, y], rewards[x, u, y] = 1, reward
    rewards[3, 0, 0] = 99
    chosen = DirichletProblem("own", "own", distribution(weights, rewards, first))
    course: Any = Chooser(protocol_of(chosen, Steps(8), 0.5), [], **RULES, clock=SimulatedClock(9))
    course.range, course.assumed = course._score_range()
    assert (course.range, course.assumed) == (ends, False)
    assert not course._has_left(np.nextafter(ends, (-9, 9)))  # by rounding


@pytest.mark.parametrize("trained", [False, True])
def test_who_is_not_ready_in_time_breaks_no_limit(trained, course_of, monkeypatch):
    monkeypatch.setattr(Simulated, "is_trained", trained)
    choice = Verdict(course_of("GC", 10, [rival("slow", 0.5, 0.5, "BEB")], slow=50.0)).reach()
    assert choice.stopped == "budget" and choice.recommended == ("slow" if trained else None)
    if trained:  # an answer that was not timed is better than none
        assert "it was not timed, and there was no time to play it" in choice.sentence
    else:
        assert "within 10 s: the one that is ready soonest needs a budget of" in choice.sentence


@pytest.mark.parametrize("recommended", [None, "good"])
def test_who_has_failed_is_said_with_the_reason(recommended, choice):
    """A greater budget is no remedy."""
    fields = {"offline_seconds": 1.0, "latency_seconds": 1e-4, "compile_seconds": 1.0}
    field = [
        Standing(name="bad", algorithm="BEB", status="failed", reason="reward = nan", **fields),
        Standing(name="good", algorithm="BEB", status="leader", mean=1.0, n=64, **fields),
        Standing(name="late", algorithm="BEB", status="not tried"),
    ]
    given = {"recommended": recommended, "winner": recommended, "tied": (), "needed": 99.0}
    standings = tuple(one for one in field if recommended or one.name != "good")
    found = dataclasses.replace(choice, **given, standings=standings, stopped="budget")
    assert "bad: reward = nan" in found.sentence and "within" not in found.sentence
    assert "were not tried: the next needs a budget of 99 s" in found.sentence
    busy = dataclasses.replace(found, busy="while this machine is busy, load 5 on 2 cores")
    assert "Times were measured while this machine is busy" in busy.sentence
    certain = dataclasses.replace(found, stopped="certified")
    assert "99 s" not in certain.sentence and "were not tried" in certain.sentence


def test_an_assumed_range_follows_fresh_scores(course_of):
    course = course_of("Catch", 10, [rival("alone", 0.5, 0.5, "Q-learning", blind=True)])
    course.played["alone"] = [np.zeros(8)]
    course.begin()
    assert not course._is_vain()
    assert course.admit(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]
    spans = []
    for scale in (1.0, 1e-15):  # rewards have any unit
        course.played["alone"], course._fresh = [np.full(8, scale)], []
        course.references = {"Random": np.zeros(8)}
        course.begin()
        spans.append((course.epsilon / scale, (course.range[1] - course.range[0]) / scale))
    assert spans == [pytest.approx((0.1, 4.0))] * 2


@pytest.mark.parametrize(
    ("budget", "again", "recommended", "order"),
    [
        (100, 1e-4, "e-Greedy", ["e-Greedy", "Random", "Optimal", "BEB"]),
        (100, 9.5e-4, "BEB", ["e-Greedy", "Random", "Optimal", "BEB"]),  # too near to the limit
        (16, 1e-4, "e-Greedy", ["e-Greedy", "BEB"]),  # ends of the range take too much of it
        (9, 1e-4, "e-Greedy", ["e-Greedy"]),  # nor to play
    ],
)
def test_an_answer_comes_first_and_is_timed_again(budget, again, recommended, order, course_of):
    class Timed(Simulated):
        def learn(self, offline: float, online: float, until: float) -> None:
            super().learn(offline, online, until)
            entered.append(self.name)

        def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
            if self.name not in entered:
                entered.append(self.name)
            return super().play(start, stop, until)

        def measure_again(self, online: float, until: float) -> None:
            seconds = again if self.name == "e-Greedy" else 1e-4
            self.times = Times(0.1, seconds, seconds, 5e-5, 1.0)

    entered: list[str] = []
    field = [rival(name, 5.0, 1.0) for name in ("e-Greedy", "BEB")]
    choice = Verdict(course_of("GC", budget, field, (3.0, 2.0), Timed)).reach()
    assert choice.recommended == recommended
    assert entered == order
    assert (choice.winner is None) == (budget == 9)
    assert ("no time to play it" in choice.sentence) == (budget == 9)
    assert ("1 of 2 candidates were not tried" in choice.sentence) == (budget < 100)


def test_the_ends_of_the_range_are_tried_once_more_when_all_are_in(course_of, monkeypatch):
    field = [rival(name, 5.0, 1.0) for name in ("e-Greedy", "BEB")]
    course, shares = course_of("GC", 100, field, (3.0, 2.99), epsilon=1e-4), []
    monkeypatch.setattr(course, "_refer", shares.append)
    course.run()
    assert shares == [0.2, 0.5]


def test_who_has_left_for_one_that_breaks_a_limit_later_comes_back(course_of):
    class Timed(Simulated):
        def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
            super().play(start, stop, until)
            return self.mean + np.random.default_rng(start).normal(size=stop - start).clip(-1, 1)

        def measure_again(self, online: float, until: float) -> None:
            seconds = 3e-3 if self.name == "first" else 1e-4
            self.times = Times(0.1, seconds, seconds, 5e-5, 1.0)

    field = [rival(name, 3.0, 1.0, "BEB") for name in ("first", "second", "third")]
    choice = Verdict(course_of("GC", 100, field, (90.0, 80.0, 10.0), Timed, 1e-3)).reach()
    assert (choice.winner, choice.recommended, choice.stopped) == ("second", "second", "epsilon")
    assert [one.status for one in choice.standings] == ["over a limit", "leader", "worse"]


def test_the_score_is_that_of_the_recommended_where_fresh_scores_leave_the_range(course_of):
    """Only in the range that was assumed is the cheap one shown to be as good within epsilon."""

    class Timed(Simulated):
        def learn(self, offline: float, online: float, until: float) -> None:
            seconds = 3e-4 if self.name == "slow" else 3e-5
            self.times = Times(0.1, seconds, seconds, 5e-6, 1.0)

        def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
            self.each = 1e-2
            mean = {"slow": 0.1, "cheap": 0.0}.get(self.name, -50.0)
            scores = np.random.default_rng(start).normal(size=stop - start) + mean
            return scores + 1e5 * (start >= FRESH)

        def policy(self) -> Any:
            return self.name

    field = [rival(name, 3.0, 1.0, "Q-learning", blind=True) for name in ("slow", "cheap")]
    choice = Verdict(course_of("Catch", 100, field, kind=Timed)).reach()
    assert choice.policy == choice.recommended == "cheap"
    assert choice.tied == ("slow", "cheap") and choice.stopped == "budget"


def test_who_may_win_enters_before_further_settings_of_who_has_lost(course_of):
    """And before rounds that take long."""

    class Noted(Simulated):
        played = 0

        def learn(self, offline: float, online: float, until: float) -> None:
            super().learn(offline, online, until)
            entered[self.name] = course.racers[0].played

        def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
            self.played = stop
            return super().play(start, stop, until)

    entered: dict[str, int] = {}
    means = {"e-Greedy": 90.0, "Soft-max": 89.9, "PSRL": 10.0, "OPPS-DS": 10.0}
    means |= {"PSRL again": 10.0, "OPPS-DS again": 10.0, "BEB": 80.0}
    field = [rival(name, 6.0, 0.0, name.removesuffix(" again")) for name in means]
    course = course_of("GC", 100, field, means.values(), Noted, 1e-4)
    course.run()
    assert list(entered) == [*list(means)[:4], "OPPS-DS again", "BEB", "PSRL again"]
    assert entered["BEB"] <= 1024 < course.racers[0].played


def test_where_limits_are_strict_those_that_decide_soonest_come_first(course_of):
    field = [rival(name, 6.0, 0.0) for name in ("e-Greedy", "BEB", "PSRL")]
    course = course_of("GC", 30, [*field, rival("Q-learning", 6.0, 0.0, blind=True)], kind=Racer)
    lefts = ["BEB", "PSRL", "Q-learning"], ["Q-learning", "PSRL"]
    for racer, left in zip(course.racers[:2], lefts, strict=True):
        racer.status = "over a limit"
        assert [each.name for each in course._waiting()] == left
    course.played["e-Greedy"] = [np.zeros(8)]
    assert [each.name for each in course._waiting()] == ["PSRL", "Q-learning"]


def test_a_race_that_begins_leaves_time_for_who_enters(course_of):
    """Scoring the leader takes less of it than scoring any would, which is only then known."""
    means, agent = {"slow": 0.0, "quick": 9.0, "next": 5.0}, AGENTS["Q-learning"].agent()
    field = [Candidate(name, agent, 6.0, 0.0, 1e-9, 8, blind=True) for name in means]
    course = course_of("Catch", 60, field, means.values())
    course.clock.reading, course._entering = 35.0, 20.0
    for racer, each in zip(course.racers, (0.4, 1e-4), strict=False):
        racer.status, racer.each = "running", each
        course.played[racer.name] = [racer.mean + np.random.default_rng(0).random(8)]
    assert course._entrant() is None and course._play_next()
    assert course.racers[-1].status != "not tried"


def test_ends_of_the_range_play_late_where_nobody_else_enters(course_of, monkeypatch):
    """Without them epsilon is a part of what candidates differ by."""
    field = [rival(name, 6.0, 0.0, "Q-learning", blind=True) for name in ("first", "second")]
    course = course_of("Catch", 60, field)
    for racer in course.racers:
        racer.status, racer.each = "running", 1e-4
    course.clock.reading, course._entering = 35.0, 20.0
    course.played = {racer.name: [racer.mean + np.zeros(8)] for racer in course.racers}
    monkeypatch.setattr(course, "_expected", lambda one: 6.0)  # of 18 seconds
    monkeypatch.setattr(course, "_opening", lambda one, most: np.full(8, -9.0))
    course.run()
    assert course.references["Random"].mean() == -9.0
    assert course.epsilon == pytest.approx(0.1 * (9 + max(one.mean for one in course.racers)))


def test_epsilon_without_ends_of_the_range_is_by_all_candidates_that_have_played(course_of):
    """Those that are in the race at first may be about as good as each other."""
    field = [rival(name, 1.0, 0.0, "Q-learning", blind=True) for name in ("a", "b", "late")]
    course = course_of("Catch", 60, field, (3.0, 3.0, 1.0))
    for racer in course.racers:
        assert course._make_ready(racer, 1.0)
        if racer.name != "late":
            course.begin()
            assert course.epsilon < 0.1
    assert course.race.epsilon == course.epsilon == pytest.approx(0.2, rel=0.4)


def test_random_that_is_the_best_is_said_and_is_no_end_of_the_range(course_of, choice):
    course = course_of("Catch", 60, [rival("a", 1.0, 0.0, "Q-learning")])
    course.references, course.played = {"Random": np.full(8, 3.0)}, {"a": [np.full(8, 1.0)]}
    course.begin()
    assert course.epsilon == pytest.approx(0.2)
    for random, better in ((0.62, True), (0.09, False)):
        scores: Any = {"score": (0.0, -0.1, 0.1), "references": {"Random": random}}
        said = f"Random, which learns nothing, scores more: {random}. "
        assert (said in dataclasses.replace(choice, **scores).sentence) == better


def test_tied_ones_that_are_quicker_are_named(course_of):
    class Timed(Simulated):
        def learn(self, offline: float, online: float, until: float) -> None:
            seconds = 3e-4 if self.name == "best" else 3e-5
            self.times = Times(0.1, seconds, seconds, 5e-6, 1.0)

        def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
            self.each = 1e-3
            return self.mean + np.random.default_rng([stop, len(self.name)]).random(stop - start)

    field = [rival(name, 3.0, 1.0, "Q-learning", blind=True) for name in ("best", "quicker")]
    choice = Verdict(course_of("Catch", 20, field, (2.0, 1.99), Timed, 1e-6)).reach()
    assert (choice.recommended, choice.tied) == ("best", ("best", "quicker"))
    assert choice.cheaper == ("quicker",)
    assert "Twice as quick, but not shown to be as good within epsilon: quicker." in choice.sentence


def test_tied_are_those_within_epsilon_of_the_best_and_those_that_may_be_better():
    means = {"best": 1.0, "near": 0.95, "open": 0.5, "worse": 0.5}
    race = SimpleNamespace(running=list(means), leader="best")
    race.mean_difference = lambda one, other: means[one] - means[other]
    race.settled = lambda one, other: (one, other) == ("worse", "best")
    verdict = Verdict(SimpleNamespace(race=race, epsilon=0.1))
    assert verdict._tied() == ["best", "near", "open"]


def test_latencies_within_a_factor_of_two_are_one_step():
    known = {"a": (1.0, 0.0), "b": (1.9, 1.0), "c": (2.1, 2.0), "d": (9.0, 3.0), "e": (9.5, 9.0)}
    race = SimpleNamespace(standings=lambda: {name: (mean, 1) for name, (_, mean) in known.items()})
    racers = {
        name: SimpleNamespace(times=SimpleNamespace(cost=seconds, latency=seconds))
        for name, (seconds, _) in known.items()
    }
    chooser = SimpleNamespace(race=race, by_name=racers, limits=(1.0, 20.0), epsilon=0.1)
    assert [*Verdict(chooser)._tighter("d")] == [(1.9, "b"), (2.1, "c"), (9.0, "d")]


def test_a_busy_machine_is_said_where_limits_are_kept(course_of, monkeypatch):
    course = course_of("Catch", 60, [rival("a", 1.0, 0.0, "Q-learning")])
    monkeypatch.setattr(import_module("jbrl.chooser"), "present_busy_text", lambda: " while busy")
    course._enter(course.racers[0])
    assert (course.racers[0].status, course.busy) == ("running", "while busy")


def test_who_would_not_be_ready_in_time_is_left_out(course_of):
    """The first apart: nothing else could be the answer."""
    field = [rival("e-Greedy", 500.0, 0.0), rival("BEB", 500.0, 0.0), rival("PSRL", 5.0, 0.0)]
    course = course_of("GC", 60, field, kind=Racer)
    first, course.racers[0].status, course._entering = course._entrant(), "running", 10.0
    assert (first[0].name, course._entrant()[0].name) == ("e-Greedy", "PSRL")
    assert "which the budget did not allow" in course.racers[1].reason and course.needed > 500


@pytest.mark.parametrize(("hosted", "status"), [(True, "running"), (False, "out of time")])
def test_nothing_more_is_compiled_for_an_environment_on_the_host(hosted, status, course_of):
    chosen = host_problem(jbrl.gymnasium.make("Catch")) if hosted else "Catch"
    field = [rival("Q-learning", 5.0, 0.0)._replace(decision=1e-9)]
    course = course_of(chosen, 10, field, means=(2.0,))
    course._enter(course.racers[0])
    assert course.racers[0].status == status


@pytest.mark.parametrize("later", [256, FRESH])
def test_a_candidate_that_fails_later_leaves_the_race(course_of, later):
    class Failing(Simulated):
        def play(self, start: int, stop: int, until: float = np.inf) -> np.ndarray:
            if self.name == "BEB" and start >= later:
                raise JbrlError("chose no action")
            return super().play(start, stop, until)

    field = [rival(name, 1.0, 0.0) for name in ("BEB", "PSRL")]
    choice = Verdict(course_of("GC", 60, field, (10.1, 10.0), Failing, 1e-9)).reach()
    assert choice.recommended == "PSRL" and choice.score is not None
    assert "1 of 2 candidates failed (BEB: chose no action)" in choice.sentence


def test_any_error_of_a_candidate_is_told_with_its_place(monkeypatch):
    def broken(*_: Any) -> None:
        raise KeyError("boom\nand more")

    monkeypatch.setattr(Racer, "_learned", broken)
    protocol = protocol_of("GC", Steps(8))
    racer = Racer(candidate(AGENTS["BEB"].agent(), protocol), protocol, Kept(None), Clock(60))
    for method, given in ((racer.learn, (1.0, 1.0, 60.0)), (racer.play, (0, 8))):
        with pytest.raises(JbrlError, match=rf"^KeyError: 'boom.*\({__file__}, line .*broken\)$"):
            method(*given)


def test_one_action_is_certified_where_nobody_else_had_time(course_of):
    lone = DirichletProblem("lone", "lone", distribution(np.ones((2, 1, 2)), np.ones((2, 1, 2))))
    course = course_of(lone, 10, [rival("BEB", 1.0, 0.0), rival("PSRL", 500.0, 0.0)])
    assert course.run() == "certified" and len(course.played) == 1


def test_the_budget_ends_a_race_that_a_candidate_was_too_late_for(course_of):
    course = course_of("GC", 10, [rival("BEB", 1.0, 0.0), rival("PSRL", 1.0, 0.0)], kind=Racer)
    first, second = course.racers
    course.clock.reading, course.played["BEB"], first.status = 9.9, [np.zeros(8)], "running"
    second.status = "out of time"
    assert course.run() == "budget" and course.needed > 10
    second.status = "over a limit"
    assert course.run() == "epsilon"


def test_means_stand_with_the_digits_of_their_errors():
    figures = {"algorithm": "", "status": "tied", "n": 8}
    standings = [
        Standing(name=name, mean=mean, standard_error=error, **figures)
        for name, mean, error in (("a", 494.11, 132.1), ("b", 289.2, 141.0))
    ]
    assert [row[1] for row in standing_rows(standings)[1:]] == ["494 ± 132", "289 ± 141"]
    small = dataclasses.replace(standings[0], mean=-1.0998e-14, standard_error=2.1e-16)
    assert standing_rows([small])[1][1] == "−1.1e-14 ± 2.1e-16"
    large = dataclasses.replace(standings[0], mean=5.5484e30, standard_error=8.8e28)
    assert standing_rows([large])[1][1] == "5.548e+30 ± 8.8e+28"


def test_numbers_show_what_ends_differ_by(choice):
    numbers = notebook.numbers
    assert numbers(11.774, 12.597, 12.165) == ["11.774", "12.597", "12.165"]
    assert numbers(1e6 + 0.2, 1e6 + 0.8, 1e6) == ["1000000.2", "1000000.8", "1000000"]
    assert numbers(1e-7, 1.000001e-7) == ["1e-07", "1.000001e-07"]
    for equal in (1e6, float("nan"), float("inf"), 0.0):
        assert len(set(numbers(equal, equal))) == 1
    far: Any = {"score": (1e6, 1e6 - 0.5, 1e6 + 0.5), "score_range": (1e6 - 1, 1e6 + 1)}
    far |= {"references": {"Random": 1e6, "Optimal": 1e6 + 0.1}, "trainings": {"x": (1e6, 1e6 + 1)}}
    given = dataclasses.replace(choice, **far, range_assumed=True)
    for text in ("999999.5 to 1000000.5", "between 999999 and 1000001", "1000000 to 1000001"):
        assert text in given.sentence
    page = str(document(given.as_dict(), choice.rows()))
    assert "999999 to 1000001" in page and "('Optimal', '1000000.1')" in page


def test_equal_scores_bound_nothing_and_looser_limits_are_those_that_are_exceeded(choice):
    one = Looser("DPT", choice.online_limit / 2, 90.0, 2.0, 1.0, 3.0)
    equal: Any = {"score": (0.0, 0.0, 0.0), "score_range": (0.0, 0.0), "n_fresh": 1024}
    given = dataclasses.replace(choice, **equal, range_assumed=True, looser=(one,))
    assert "mean score 0 in 1,024 environments" in given.sentence
    assert "All scores are equal so far, which says nothing of rarer ones" in given.sentence
    page = str(document(json.loads(json.dumps(given.as_dict())), choice.rows()))
    assert "('Better by 2 (1 to 3) at 90 s offline', 'DPT')" in page and "0 to 0, so far" in page


def test_a_training_that_would_not_end_in_time_is_not_begun():
    course: Any = SimpleNamespace(clock=SimpleNamespace(left=4.0), writing=1.0)
    times = SimpleNamespace(offline=1.0, compiling=1.0)
    racer: Any = SimpleNamespace(times=times, expected=lambda n: n / 4)
    assert list(Verdict(course)._trained(racer, range(1, 3), 6)) == []


@pytest.mark.parametrize(("n_candidates", "certified"), [(1, True), (40, False)])
def test_who_leads_by_chance_is_not_certified(n_candidates, certified):
    """The limit of one candidate is above the value that is asked for, those of 40 are not."""
    race = Race(["first"], span=1.0, epsilon=0.1)
    race.add("first", np.ones(16))
    course: Any = SimpleNamespace(race=race, racers=[None] * n_candidates, protocol=None)
    course.range, course.confidence, course.epsilon = (0.0, 1.0), 0.95, 0.1
    course.clock = SimpleNamespace(budget=0.0)
    verdict = Verdict(course)
    verdict.bracket, verdict._bracketed = (0.0, 0.75), True
    assert verdict._is_certified() is certified
    verdict.score = (0.5, 0.4, 0.6), 8
    assert verdict._share() is None  # of a value that may be 0
    verdict.bracket = (0.5, 0.8)
    assert verdict._share() == (0.5, 1.0)


@pytest.mark.slow
def test_a_search_that_was_cut_off_goes_on_where_it_stopped(tmp_path, monkeypatch):
    # a compilation is cut off, too, and this would come first
    monkeypatch.setattr(Racer, "_in_time", lambda *_: contextlib.nullcontext())
    protocol = protocol_of("GC(n_states=3)", Steps(8))
    one = candidate(AGENTS["OPPS-DS"].agent(budget=2000), protocol)  # type: ignore[call-arg]
    clock: Any = SimulatedClock(60)
    kept = Kept(tmp_path)
    with pytest.raises(OutOfTimeError):
        Racer(one, protocol, kept, clock).learn(60.0, 1.0, until=-1.0)
    begun = kept.findings(Racer(one, protocol, kept, clock).unit, "cpu").unfinished()
    assert begun is not None and 0 < begun[0].consumed < 2000
    policies = []
    for folder in (kept, Kept(None)):
        racer = Racer(one, protocol, folder, clock)
        racer.learn(60.0, 1.0, until=1e9)
        policies.append(racer.policy().digest)
    assert policies[0] == policies[1]
    assert kept.findings(racer.unit, "cpu").unfinished() is None
    with pytest.raises(OverLimitError, match="more than"):
        Racer(one, protocol, Kept(None), clock).learn(1e-9, 1.0, until=1e9)


@pytest.mark.parametrize(
    ("candidate", "what"),
    [("Sarsa", "npz"), (AGENTS["OPPS-DS"].agent(budget=100), "results")],  # type: ignore[call-arg]
)
def test_a_folder_that_cannot_be_written_to_is_no_fault_of_a_candidate(candidate, what, tmp_path):
    rules = TINY | {"watch": lambda _: shutil.rmtree(tmp_path / "blocks", ignore_errors=True)}
    with pytest.raises(JbrlError, match=f"{what}:? cannot be written"):
        jbrl.choose("GC(n_states=3)", candidates=[candidate], out=tmp_path, **rules)


@pytest.mark.slow
def test_an_environment_of_ones_own_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    seen: list[list[str]] = []
    rules = {"episodes": 2, "online": "1 s", "epsilon": 0.9, "budget": "3 min"}
    choice = jbrl.choose(
        "tiger:Tiger",
        candidates=["Q-learning"],
        out=tmp_path,
        watch=lambda standings: seen.append([one.status for one in standings]),
        **rules,
    )
    assert choice.outcome == "answered" and choice.range_assumed
    assert "It is assumed that scores lie between" in choice.sentence
    assert jbrl.load_policy(tmp_path / "policy").start(seed=1).act(0) in range(3)
    assert ["not tried"] in seen and ["leader"] in seen
