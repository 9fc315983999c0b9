"""Two scores of one lifetime: the episodes that count, and those after them."""

import jax
import numpy as np
import pytest

import jbrl
from jbrl.base.errors import JbrlError
from jbrl.problems.jordan import END, LifeAndEnd
from jbrl.problems.lookup import problem
from jbrl.problems.recorder import EpisodeMean
from jbrl.study.file import load_study


@pytest.mark.slow
def test_score_is_that_of_the_problem_and_the_end_is_kept_beside(tmp_path):
    """The same lifetimes: the first 100 episodes are those of the problem itself."""
    study = {
        "study": {"name": "end", "n_environments": 3},
        "experiments": [
            {"name": "plain", "problem": "Chain-10s"},
            {"name": "end", "problem": "with_end(Chain-10s)"},
        ],
        "agents": [{"algorithm": "Q-learning"}],
    }
    results = jbrl.run(study, tmp_path, progress=False)
    plain, end = (results.metrics(name, "Q-learning") for name in ("plain", "end"))
    by = results.returns.groupby("experiment")["score"].apply(np.asarray)
    np.testing.assert_array_equal(by["plain"], by["end"])
    assert list(plain["episodes"]) == [100] * 3
    assert list(end["episodes"]) == [100 + END] * 3
    assert ((end["end"] <= -8) & (end["end"] >= -199)).all()
    assert (end["end"] != by["end"]).all()


def test_totals_by_hand():
    """Episodes of one step, rewards 1 to 5: the first three have the mean 2, the others 4.5."""
    environment = problem("Chain-10d").environment
    state, _ = environment.reset(jax.random.key(0))
    recorder = LifeAndEnd(3)
    totals = recorder.begin(environment, state)
    for reward in range(1, 6):
        step = jbrl.Step(np.int32(0), np.float32(reward), np.bool_(True), np.bool_(False))
        totals = recorder.record(totals, environment, state, step)
        lanes = jax.tree.map(lambda v: np.asarray(v)[None], totals)
        if reward == 3:
            assert np.isnan(recorder.metrics(lanes)["end"]).all()
    assert recorder.scores(lanes) == [2.0]
    assert recorder.metrics(lanes)["end"] == [4.5]
    assert recorder.metrics(lanes)["episodes"] == [5]


def test_digest_and_lifetime_are_its_own():
    plain, end = problem("MountainCar"), problem("with_end(MountainCar)")
    assert plain.digest != end.digest != problem("with_end(Acrobot)").digest
    assert (plain.lifetime.episodes, end.lifetime.episodes) == (100, 130)
    assert problem("with_end(Pinball-single)").lifetime.episodes == 230
    assert isinstance(plain.recorder, EpisodeMean)


@pytest.mark.parametrize("name", ["GC", "bsuite/catch/0", "with_end(MountainCar)"])
def test_problems_with_other_scores_are_refused(name):
    with pytest.raises(JbrlError, match=r"expected a problem whose score is the mean return"):
        problem(f"with_end({name})")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"learning_episodes = 0: expected 100 for 'with_end\(Chain-10d\)', whose last 30"),
        ({"learning_episodes": [100, 130]}, "learning_episodes = 130: expected 100"),
        ({"learning_episodes": {"choice": [50, 100]}}, "learning_episodes is drawn: expected 100"),
        ({"learning_episodes": 100}, None),
        ({"learning_episodes": 100, "epsilon_low": {"uniform": [0, 0.1]}}, None),
    ],
    ids=["default", "grid", "drawn", "set", "other drawn"],
)
def test_agents_that_would_learn_to_the_end_are_refused(given, message):
    study = {
        "study": {"name": "end"},
        "experiments": [{"name": "e", "problem": "with_end(Chain-10d)"}],
        "agents": [{"algorithm": "Q-lambda", **given}, {"algorithm": "Q-learning"}],
    }
    if message is None:
        assert len(load_study(study).units) == 2
        return
    with pytest.raises(JbrlError, match=f"Q-lambda in experiment 'e': {message}"):
        load_study(study)


def test_elsewhere_agents_may_learn_as_long_as_they_like():
    agents = [{"algorithm": "Q-lambda", "learning_episodes": [0, 5]}]
    experiments = [{"name": "e", "problem": "Chain-10d"}]
    study = {"study": {"name": "plain"}, "experiments": experiments, "agents": agents}
    assert len(load_study(study).units) == 2
    with pytest.raises(JbrlError, match="learning_episodes = 0: expected 500"):
        jbrl.play("AC", test="with_end(Acrobot)", n_environments=1)
