"""BRL-5: the published choice follows from the published scores, and the suite is what it says."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from jbrl.problems.lookup import problem
from jbrl.stats.score_files import read_score_table
from jbrl.stats.subset.model import load, predict
from jbrl.stats.subset.preparation import Preparation, prepare
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.search import search

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@pytest.fixture(scope="module")
def study():
    return tomllib.loads((EXPERIMENTS / "suite.toml").read_text())


@pytest.fixture(scope="module")
def prepared():
    path = EXPERIMENTS / "suite" / "scores.csv"
    references = pd.read_csv(path).drop_duplicates("environment")[["environment", "low", "high"]]
    return prepare(read_score_table(path), Preparation("references", target="mean"), references)


def test_the_suite_is_large_enough_and_its_problems_exist(study, prepared):
    names = [experiment["name"] for experiment in study["experiments"]]
    assert len(names) == len(set(names)) >= 40
    assert set(names) == set(prepared.environments)
    assert len(prepared.algorithms) >= 60
    for experiment in study["experiments"]:
        prior, test = (problem(experiment[field], EXPERIMENTS) for field in ("prior", "test"))
        assert prior.mdps.concentrations.shape == test.mdps.concentrations.shape


@pytest.mark.slow
def test_brl_5_is_the_best_of_all_and_predicts_agents(prepared):
    outcome = search(prepared, Search(5, "loo"))
    model = load(EXPERIMENTS / "suite" / "brl-5.json")
    weights = dict(zip(model.environments, model.coefficients, strict=True))
    assert set(outcome.best.subset) == set(weights)
    # The scores in the table have six decimals.
    np.testing.assert_allclose(
        outcome.best.coefficients, [weights[name] for name in outcome.best.subset], rtol=1e-4
    )
    # points of per cent, of 67 agents between 0 and about 50
    assert outcome.best.loo_mse**0.5 < 0.5
    scores = read_score_table(EXPERIMENTS / "suite" / "scores.csv")
    predicted = predict(model, scores).set_index("algorithm").loc[list(prepared.algorithms)]
    np.testing.assert_allclose(predicted["estimate"], prepared.target, atol=1.5)
