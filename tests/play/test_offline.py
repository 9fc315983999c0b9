"""Findings of a search, and weights trained on the prior: they are kept, shared by all experiments
with the same prior, and reused after a kill.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.agents.opps.ranking import Formula
from jbrl.play import offline
from jbrl.play.offline import Learned, SearchCheckpoint, learn
from jbrl.play.unit import Unit
from jbrl.study import resume
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from tests import terminal

BUDGET, ROUNDS, BATCH = 900, 6, 32
SEARCH = {"algorithm": "OPPS-DS", "space": "Q2/Q0; Q0/Q1*Q1; Q0/Q2", "budget": BUDGET, "c": 60.0}
TRAINING = {"algorithm": "BeliefPPO", "budget": ROUNDS * BATCH, "batch": BATCH}
TRAINING |= {"hidden_width": 8, "horizon": 10}
AGENTS: dict[str, dict[str, Any]] = {"searched": SEARCH, "trained": TRAINING}
TRAINED = pytest.param("trained", marks=pytest.mark.slow)


def tables(kind: str = "searched", **values: Any) -> dict[str, Any]:
    return {
        "study": {"name": "search", "n_environments": 5, "horizon": 60},
        "experiments": [{"name": name, "prior": "GC", "test": "GC"} for name in ("one", "two")],
        "agents": [AGENTS[kind] | values],
    }


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    return jbrl.run(tables(), tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return jbrl.run(tables("trained"), tmp_path_factory.mktemp("whole"))


@pytest.fixture
def results(request):
    """Of a search, or where a test asks for it of a training."""
    return request.getfixturevalue(getattr(request, "param", "searched"))


def files(results: jbrl.Results) -> list[str]:
    return sorted(path.name for path in results.store.knowledge_folder.iterdir())


def findings(results: jbrl.Results) -> pd.DataFrame:
    return results.strategies.drop(columns="offline_seconds")


@pytest.mark.slow
def test_one_search_serves_all_experiments_with_the_same_prior(results):
    assert len(files(results)) == 1
    searched = results.strategies["offline_seconds"].iloc[0]
    # counted for each, with the plan of the mean model on top
    assert (results.units["offline_seconds"] > searched).all()
    assert (results.units["offline_seconds"] < searched + 0.5).all()
    ids = [unit["knowledge"] for unit in results.manifest["units"]]
    assert ids == [files(results)[0].removesuffix(".npz")] * 2


def test_what_was_found_before_takes_no_time():
    known = SimpleNamespace(learned=lambda: "found")
    assert learn(None, 0, None, None, known) == ("found", 0.0)


def test_processor_seconds_of_a_search_are_kept_beside_its_wall_seconds(monkeypatch):
    """Each round waits for 2 s, and works for 1 s of them; one that goes on knows but its part."""
    clock, agent = iter(range(100)), SimpleNamespace(strategy=lambda _: Formula("Q0"))
    monkeypatch.setattr(offline.time, "perf_counter", lambda: 2.0 * next(clock))
    monkeypatch.setattr(offline.time, "process_time", lambda: next(clock) / 2)
    agent.arms = agent.weights = lambda _: {}
    findings = SimpleNamespace(consumed=1, simulated=1)
    agent.search = lambda *_: iter([findings] * 3)
    found, _ = learn(agent, 0, None, None, SearchCheckpoint())
    assert 0 < found.processor < found.seconds
    assert Learned.read(found.describe(), {}).processor == found.processor
    unfinished = SimpleNamespace(unfinished=lambda: (findings, 9.0), learned=lambda: None)
    unfinished.advanced, unfinished.concluded = lambda *_: None, lambda _: None
    later, _ = learn(agent, 0, None, None, unfinished)
    assert np.isnan(later.processor) and "processor_seconds" not in later.describe()


def test_what_was_tried_is_a_table(results):
    table = results.strategies
    assert set(table["strategy"]) == {"Q2/Q0", "Q0/Q1*Q1", "Q0/Q2"}
    assert table["strategy"][0] == "Q0/Q2" and table["chosen"].tolist() == [True, False, False]
    assert table["pulls"].sum() == table["consumed"][0] == BUDGET <= table["simulated"][0]
    assert table["pulls"].is_monotonic_decreasing
    np.testing.assert_allclose(
        table["ci95"][0], 1.96 * table["std"][0] / np.sqrt(table["pulls"][0])
    )


def printed(results: jbrl.Results, top: int) -> list[dict[str, str]]:
    return terminal.rows("strategies", results.store.folder, "--top", top)


def test_what_was_tried_is_printed(results):
    rows = printed(results, 2)
    assert [row["strategy"] for row in rows] == results.strategies["strategy"].tolist()[:2]
    assert rows[0]["chosen"] == "True" and rows[0]["pulls"] == str(results.strategies["pulls"][0])


@pytest.mark.parametrize("results", ["searched", TRAINED], indirect=True)
def test_what_was_found_plays_again(results):
    algorithm = results.manifest["agents"][0]["algorithm"]
    found = results.learned("one", algorithm)
    assert len(repr(found)) < 300 and repr(found).startswith("<Learned: ")
    assert algorithm == "BeliefPPO" or found.strategy == Formula("Q0/Q2")
    known = results.learned_on(jbrl.problem("GC").digest).values()
    assert [repr(one) for one in known] == [repr(found)]
    played = jbrl.play(found.strategy, prior="GC", n_environments=5, horizon=60)
    np.testing.assert_array_equal(
        played.returns, results.returns.query("experiment == 'one'")["score"]
    )


@pytest.mark.slow
def test_the_course_of_a_training_is_in_order(trained, tmp_path):
    """In the table, in what is printed of it, and in what an archive keeps."""
    table, stretches = trained.strategies, [f"to lifetime {BATCH * k}" for k in range(1, 7)]
    assert table["strategy"].tolist() == stretches
    assert table["chosen"].tolist() == [False] * 5 + [True]
    assert table["pulls"].sum() == table["consumed"][0] == table["simulated"][0] == ROUNDS * BATCH
    assert len(files(trained)) == 1 and (trained.units["offline_seconds"] > 0).all()
    assert [row["strategy"] for row in printed(trained, 3)] == stretches[1::2]
    trained.archive(tmp_path / "kept")
    kept = jbrl.Results(tmp_path / "kept").strategies
    assert kept["strategy"].tolist() == table["strategy"].tolist()


def test_agents_that_do_not_search_have_found_nothing(results):
    with pytest.raises(jbrl.JbrlError, match="0 units fit"):
        results.learned("one", "Random")


class Gone(BaseException):
    """Exception that no handler of errors sees: as good as `kill -9`."""


class Killed(Progress):
    """Ends the process after some rounds, in one of two ways."""

    def __init__(self, how: type[BaseException], rounds: int) -> None:
        self.how, self.left, self.seen = how, rounds, list[int]()

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        self.seen.append(consumed)
        self.left -= 1
        if not self.left:
            raise self.how


@pytest.mark.parametrize(
    ("results", "how"),
    [
        ("searched", KeyboardInterrupt),
        pytest.param("searched", Gone, marks=pytest.mark.slow),
        pytest.param("trained", Gone, marks=pytest.mark.slow),
    ],
    indirect=["results"],
)
def test_a_search_or_training_that_is_killed_goes_on(tmp_path, results, how, monkeypatch):
    algorithm = results.manifest["agents"][0]["algorithm"]
    kind, least = ("trained", 2 * BATCH) if algorithm == "BeliefPPO" else ("searched", 201)
    monkeypatch.setattr(resume, "CHECKPOINT_SECONDS", -1.0)
    with pytest.raises(how):
        plan(tables(kind), tmp_path).execute(Killed(how, 4))
    (left,) = (tmp_path / "knowledge").iterdir()
    assert left.name.endswith(".partial.npz")
    watched = Killed(how, 10**6)
    plan(tables(kind), tmp_path).execute(watched)
    again = jbrl.Results(tmp_path)
    assert watched.seen[0] >= least and watched.seen[-1] == AGENTS[kind]["budget"]
    pd.testing.assert_frame_equal(findings(again), findings(results), check_exact=True)
    pd.testing.assert_frame_equal(again.returns, results.returns, check_exact=True)
    assert files(again) == files(results)
    if kind == "trained":
        for name, value in results.learned("one", algorithm).weights.items():
            np.testing.assert_array_equal(again.learned("one", algorithm).weights[name], value)


def test_another_budget_is_another_search(tmp_path):
    jbrl.run(tables(budget=50), tmp_path, only="one/")
    found = jbrl.run(tables(budget=60), tmp_path, only="one/")
    assert len(files(found)) == 2
    assert found.strategies["consumed"].unique().tolist() == [60]


@pytest.mark.parametrize(
    ("kind", "values", "memory", "reason"),
    [
        ("searched", {"space": "Q0/Q1*Q1", "budget": 30}, None, "no arm to recommend"),
        (
            *("trained", {"learning_rate": 1e9}, None),
            "training has diverged; a smaller learning_rate may help",
        ),
        (
            *("trained", {"hidden_width": 4096, "hidden_layers": 4}, "500MB"),
            "0.466 GiB, the memory that may be used (--memory)",
        ),
    ],
    ids=["nothing", "diverged", "memory"],
)
@pytest.mark.first_case_quick
def test_what_finds_nothing_diverges_or_takes_too_much_fails_alone(
    tmp_path, kind, values, memory, reason
):
    study = tables(kind, **values)
    study["agents"].append({"algorithm": "Random"})
    found = jbrl.run(study, tmp_path, only="one/", memory=memory)
    assert found.units["status"].tolist() == ["failed", "done", "missing", "missing"]
    assert reason in str(found.units["reason"][0])
