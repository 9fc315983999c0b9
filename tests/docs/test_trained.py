"""docs/trained.md: its table is that of the kept scores."""

from pathlib import Path

import pytest

from experiments import trained
from jbrl.agents.deep.ann import ANN
from jbrl.agents.deep.belief_ppo import BeliefPPO
from jbrl.agents.deep.dense import Dense
from jbrl.environments.lifetime import Steps
from jbrl.problems.lookup import problem


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    trained.main(["--out", str(folder)])
    return folder


def test_the_table_is_that_of_the_kept_scores(drawn: Path) -> None:
    kept = trained.STATIC / "trained.md"
    assert (drawn / "trained.md").read_text() == kept.read_text()
    assert (drawn / "trained.png").stat().st_size > 10_000


def test_every_unit_of_the_study_is_kept() -> None:
    assert (trained.jbrl.Results(trained.KEPT).scores["status"] == "done").all()
    lines = set(trained.scores()["line"])
    assert lines == {"Random", "e-Greedy", *trained.LINES}


def test_training_pays_with_an_accurate_prior() -> None:
    found = trained.scores()
    for experiment in ("GC", "GDL"):
        here = found[found["experiment"] == experiment].set_index(["line", "budget"])["mean"]
        assert here["BeliefPPO", 327_680] > here["e-Greedy", 0] > here["BeliefPPO", 5120]


def test_paired_tests_are_those_of_the_page() -> None:
    returns = trained.jbrl.Results(trained.KEPT).returns
    inputs = {"GC": "belief", "Grid": "mean and belief"}
    cases = (
        *(("GC", 1_310_720, 3.0), ("Grid", 1_310_720, 1.6)),
        *(("GC", 15_728_640, 2.0), ("Grid", 2_097_152, 2.4)),
    )
    for experiment, budget, least in cases:
        here = returns[returns["experiment"] == experiment]
        scores = here.pivot(index="unit", columns=["algorithm", "parameters"], values="score")
        mine = next(
            scores[key]
            for key in scores
            if key[0] == "BeliefPPO"
            and f'"budget": {budget},' in key[1]
            and f'"inputs": "{inputs[experiment]}"' in key[1]
        )
        for key in scores:
            if key[0] in ("e-Greedy", "OPPS-DS", "ANN"):
                ahead = mine - scores[key]
                assert ahead.mean() / ahead.sem() > least - 0.05


def test_sizes_of_networks_are_those_of_the_page() -> None:
    text = " ".join((trained.STATIC.parent / "trained.md").read_text().split())
    prior = problem("GC").prior(Steps(250), 0.95)

    def parameters(agent: ANN | BeliefPPO) -> int:
        network: Dense = agent.lesson(prior).settings[0].network
        return network.parameters

    assert f"a network of {parameters(ANN()):,} weights" in text
    shape = f"({parameters(BeliefPPO(budget=81_920))},)"
    assert f'weights["parameters"].shape # {shape}' in text
