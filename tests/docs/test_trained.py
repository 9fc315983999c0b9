"""docs/trained.md says what the kept scores say."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from experiments import curves, distillation, expert_iteration, trained
from jbrl.agents.prior_trained import belief_policy
from jbrl.agents.prior_trained.belief_ppo import BeliefPPO
from jbrl.agents.prior_trained.imitation import ANN
from jbrl.agents.prior_trained.networks import Dense
from jbrl.environments.spec import Steps
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Transition

PAPER = trained.ROOT / "experiments" / "published" / "paper-cpu"


def test_the_figure_is_drawn(tmp_path):
    trained.main(["--out", str(tmp_path)])
    assert (tmp_path / "trained.png").stat().st_size > 10_000


def test_every_unit_of_the_study_is_kept():
    assert (trained.jbrl.Results(trained.KEPT).scores["status"] == "done").all()
    lines = set(trained.scores()["line"])
    assert lines == {"Random", "e-Greedy", *trained.LINES}


def test_imitation_is_as_the_page_says():
    """Of the kept rows: scores and processor seconds, in the mean over trainings."""
    rows = pd.read_csv(curves.KEPT, keep_default_na=False)
    paired = pd.read_csv(curves.PAIRED)
    assert curves.TABLE.read_text() == curves.table(rows)
    assert curves.PAIRED_TABLE.read_text() == curves.paired_table(paired)
    found = rows.groupby(curves.KEY[:-1])[["mean", "seconds"]].mean()
    mean = found["mean"]
    assert mean["GC", "DPT", "belief", 10_240] > mean["GC", "BeliefPPO", "belief", 56_320]
    grid = mean["Grid", "DPT", "mean and belief", 10_240]
    assert grid > mean["Grid", "BeliefPPO", "mean and belief", 49_152] - 0.1
    ahead = paired[paired["seconds"] == 22].set_index("problem")
    low, high = (ahead["ahead"] + sign * 1.96 * ahead["error"] for sign in (-1, 1))
    assert all(low[name] < 0 < high[name] for name in ("GC", "GDL")) and low["Grid"] > 0
    few = paired[paired["seconds"] < 22]
    assert (few["ahead"] > 1.96 * few["error"]).all()
    seconds = found["seconds"]
    assert round(seconds["GC", "DPT", "belief", 10_240], 1) == 0.4
    assert round(seconds["GC", "BeliefPPO", "belief", 56_320], 1) == 3.5
    own, ann = (found.loc["GC", name].xs(10_240, level="budget")["mean"] for name in ("DPT", "ANN"))
    assert round(own.item() - ann.item()) == 8
    slow, quick = (
        found.loc["GDL", "DPT", *key] for key in (("history", 20_480), ("belief", 10_240))
    )
    assert abs(slow["mean"] - quick["mean"]) < 0.015 and slow["seconds"] > 10 * quick["seconds"]
    assert [round(one["seconds"], 1) for one in (slow, quick)] == [3.6, 0.3]
    attention = mean["Grid", "DPT", "history", 768]
    assert attention < mean["Grid", "DPT", "mean and belief", 1024] - 1
    for name, inputs, budgets in (
        ("RL2", "", (2560, 138_240)),
        ("ANN", "mean and belief", (10_240, 552_960)),
    ):
        early, late = (mean["GC", name, inputs, budget] for budget in budgets)
        assert abs(late - early) < 0.5
    assert round(mean["GC", "RL2", "", 645_120], 1) == 37.1
    late = paired[paired["seconds"] == 110].set_index("problem")
    assert abs(late.loc["GC", "ahead"]) < 1.96 * late.loc["GC", "error"]
    assert round(late.loc["GDL", "ahead"], 2) == round(late.loc["GDL", "greatest"], 2) == 0.02


def test_students_are_as_the_page_says():
    rows = pd.read_csv(distillation.KEPT)
    assert distillation.TABLE.read_text() == distillation.table(rows.astype(str).to_dict("records"))
    found = rows.groupby(["problem", "teacher", "inputs", "budget"]).mean()
    search = found.loc["GC", "BAMCP", "belief", 20_480]
    assert (round(search["mean"], 1), round(search["taught"], 1)) == (41.1, 34.7)
    noisy = found.drop(index="BEB", level="teacher")
    assert (noisy["mean"] - noisy["taught"] > 1.96 * noisy["error"]).all()
    dpt = pd.read_csv(curves.KEPT, keep_default_na=False).query("agent == 'DPT'")
    dpt = dpt.groupby(["problem", "inputs", "budget"])[["seconds", "mean"]].mean()
    for (problem_name, *_), student in found.iterrows():
        quicker = dpt.loc[problem_name].query("seconds <= @student.seconds * 1.05")
        assert quicker["mean"].max() > student["mean"]
    paper = trained.jbrl.Results(PAPER).scores.query("experiment == 'GC' and algorithm == 'BAMCP'")
    (best,) = paper[paper["parameters"].str.contains('"simulations": 2500}')]["mean"]
    assert round(best, 1) == 36.2


def test_expert_iteration_is_as_the_page_says():
    """No better than DPT on GC and GDL by more than chance, and behind it on Grid."""
    rows = pd.read_csv(expert_iteration.KEPT)
    table = expert_iteration.table(rows.astype(str).to_dict("records"))
    assert expert_iteration.TABLE.read_text() == table
    found = rows.groupby(["problem", "inputs", "budget"]).mean()
    ahead = (found["planner"] - found["dpt"]) / (1.96 * found["error"])
    assert (ahead.drop("Grid").abs() < 1).all()
    assert (ahead["Grid"] < -1).all()


@pytest.mark.parametrize("name", ["GC", "GDL"])
def test_the_planner_weighs_all_outcomes_of_a_decision(name):
    """By the posterior mean of what has been counted; GDL has rows that are certain."""
    prior = problem(name).prior(Steps(250), 0.95)
    see = belief_policy.belief_inputs(prior, "belief", 100)
    alpha, rewards = (np.asarray(v) for v in (prior.mdps.concentrations, prior.mdps.rewards))
    generator = np.random.default_rng(1)
    weights = generator.normal(size=see.size).astype(np.float32)

    def moved(seen: belief_policy.Seen, x: int, u: int, y: int) -> belief_policy.Seen:
        numbers = jnp.int32(x), jnp.int32(u), jnp.float32(rewards[x, u, y]), jnp.int32(y)
        return see.updated(seen, Transition(*numbers, jnp.bool_(False), jnp.bool_(False)))

    def after(seen: belief_policy.Seen, x: int, u: int, y: int) -> float:
        inputs = see.inputs(moved(seen, x, u, y), jnp.int32(y))
        return float(rewards[x, u, y] + 0.95 * np.asarray(inputs) @ weights)

    seen, counts, x = see.begin(), alpha.copy(), 0
    for _ in range(12):
        u = int(generator.integers(alpha.shape[1]))
        y = int(generator.choice(np.flatnonzero(alpha[x, u])))
        seen = moved(seen, x, u, y)
        counts[x, u, y] += 1
        x = y
    for x in range(len(alpha)):
        posterior = counts[x] / counts[x].sum(-1, keepdims=True)
        expected = [
            sum(p * after(seen, x, u, y) for y, p in enumerate(row) if p > 0)
            for u, row in enumerate(posterior)
        ]
        found = expert_iteration.action_values(
            see, jnp.float32(0.95), lambda inputs: inputs @ weights, seen, jnp.int32(x)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_training_pays_with_an_accurate_prior():
    found = trained.scores()
    for experiment in ("GC", "GDL"):
        here = found[found["experiment"] == experiment].set_index(["line", "budget"])["mean"]
        assert here["BeliefPPO", 327_680] > here["e-Greedy", 0] > here["BeliefPPO", 5120]


def of_experiment(returns: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return a column of scores for each (algorithm, parameters), a row for each MDP."""
    here = returns[returns["experiment"] == experiment]
    return here.pivot(index="unit", columns=["algorithm", "parameters"], values="score")


def trained_policy(scores: pd.DataFrame, experiment: str, budget: int) -> pd.Series:
    """Return the scores of BeliefPPO with the inputs that the page has on a problem."""
    inputs = {"GC": "belief", "GDL": "belief", "Grid": "mean and belief"}[experiment]
    texts = (f'"budget": {budget},', f'"inputs": "{inputs}"')
    return next(
        scores[key]
        for key in scores
        if key[0] == "BeliefPPO" and all(text in key[1] for text in texts)
    )


def standard_errors(ahead: pd.Series) -> float:
    """Return the mean in standard errors of it; 0 where all are 0."""
    return float(ahead.mean() / ahead.sem()) if ahead.any() else 0.0


def test_paired_tests_are_those_of_the_page():
    returns = trained.jbrl.Results(trained.KEPT).returns
    cases = (
        *(("GC", 1_310_720, 3.0), ("Grid", 1_310_720, 1.6)),
        *(("GC", 15_728_640, 2.0), ("Grid", 2_097_152, 2.4)),
    )
    for experiment, budget, least in cases:
        scores = of_experiment(returns, experiment)
        mine = trained_policy(scores, experiment, budget)
        for key in scores:
            if key[0] in ("e-Greedy", "OPPS-DS", "ANN"):
                assert standard_errors(mine - scores[key]) > least - 0.05


@pytest.mark.parametrize(
    ("experiment", "budget", "agents", "behind"),
    [("GC", 15_728_640, 98, 0.0), ("GDL", 15_728_640, 95, 1.15), ("Grid", 2_097_152, 94, 0.0)],
)
def test_no_other_agent_is_ahead_of_half_an_hour(experiment, budget, agents, behind):
    mine = trained_policy(
        of_experiment(trained.jbrl.Results(trained.KEPT).returns, experiment), experiment, budget
    )
    others = of_experiment(trained.jbrl.Results(PAPER).returns, experiment)
    others = others.drop(columns=["ANN", "BeliefPPO", "DPT", "RL2", "Optimal"], level="algorithm")
    assert others.shape == (500, agents)
    for key in others:
        assert standard_errors(mine[:500] - others[key]) >= -behind


@pytest.mark.slow
def test_sizes_of_networks_are_those_of_the_page():
    text = " ".join((trained.STATIC.parent / "trained.md").read_text().split())
    prior = problem("GC").prior(Steps(250), 0.95)

    def parameters(agent: ANN | BeliefPPO) -> int:
        network: Dense = agent.lesson(prior).settings[0].network
        return network.parameters

    assert f"a network of {parameters(ANN()):,} weights" in text
    shape = f"({parameters(BeliefPPO(budget=81_920))},)"
    assert f'weights["parameters"].shape # {shape}' in text
