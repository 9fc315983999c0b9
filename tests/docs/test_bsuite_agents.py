"""docs/bsuite/agents.md says what the kept logs say, and docs/published-comparison.md of deep
agents what their scores say.
"""

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from experiments import bsuite_published, bsuite_ten, deep_on_mdps
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import Run

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "bsuite" / "agents.md").read_text().split())


@pytest.fixture(scope="module")
def sweep():
    return bsuite_published.whole_sweep()


@pytest.mark.slow
def test_table_and_figures_are_those_of_the_kept_logs(tmp_path):
    bsuite_published.main(["--out", str(tmp_path)])
    kept = ROOT / "docs" / "_static" / "bsuite"
    table = "agents-scores.md"
    assert (tmp_path / table).read_text() == (kept / table).read_text()
    assert {path.name for path in tmp_path.glob("*.svg")} == {
        path.name for path in kept.glob("agents-*.svg")
    }


def test_every_agent_has_finished_all_that_it_is_said_to_have_finished(sweep):
    assert tuple(sweep.agents) == bsuite_published.SWEPT
    for agent in sweep.agents:
        runs = [run for run in sweep.runs if run.agent == agent]
        assert len({run.bsuite_id for run in runs}) == len(runs) == 468
    assert all(run.finished for run in sweep.runs)
    *others, last = (name for name in sweep.agents if name not in ("Random", "Scripted"))
    assert f"{', '.join(others)} and {last} have played all 468 settings" in PAGE


def last_and_best(run: Run) -> tuple[float, float]:
    """Return the last and the greatest mean return of stretches of a run, each between two rows of
    the log that are at least 2 % of its episodes apart.
    """
    episode, total = (np.asarray(run.columns[name]) for name in ("episode", "total_return"))
    apart = np.diff(episode)
    long = apart >= 0.02 * episode[-1]
    means = np.diff(total)[long] / apart[long]
    return float(means[-1]), float(means.max())


def test_how_often_an_agent_has_lost_its_policy(sweep):
    lost: dict[str, list[bool]] = {}
    for run in sweep.runs:
        if run.experiment.name == "cartpole":
            last, best = last_and_best(run)
            lost.setdefault(run.agent, []).append(last < best / 2)
    with_memory, without = lost["RecurrentActorCritic"], lost["ActorCritic"]
    assert len(with_memory) == len(without) == 20
    counts = f"in {sum(with_memory)} of its 20 runs on cartpole, and in {sum(without)} of those of"
    assert counts in PAGE


def test_where_the_agent_with_memory_is_ahead(sweep):
    found = scores.summary(sweep)
    table = found.pivot(index="bsuite_env", columns="agent", values="score").round(2)
    mine, without = table["RecurrentActorCritic"], table["ActorCritic"]
    for name in ("memory_len", "memory_size"):
        assert mine[name] > table.loc[name].drop(["RecurrentActorCritic", "Scripted"]).max()
    behind = ["cartpole", "umbrella_length", "deep_sea"]
    behind += [f"{name}{variant}" for name in ("catch", "mnist") for variant in ("", "_noise")]
    behind += ["catch_scale", "mnist_scale"]
    assert (mine[behind] < without[behind] - 0.01).all()
    # 0.13 and 0.14 on cartpole with noise
    assert (mine.drop(behind) >= without.drop(behind) - 0.01).all()


def test_few_cars_reach_the_goal(sweep):
    """An episode that reaches it is shorter than 1,000 steps."""
    reached: dict[str, int] = {}
    for run in sweep.runs:
        if run.experiment.family == "mountain_car":
            shorter = run.columns["steps"][-1] < 1000 * run.columns["episode"][-1]
            reached[run.agent] = reached.get(run.agent, 0) + int(shorter)
    assert (
        f"PPO in {reached['PPO']} of the 60 settings, ActorCritic in {reached['ActorCritic']}, "
        f"RecurrentActorCritic in {reached['RecurrentActorCritic']}"
    ) in PAGE


def test_only_the_agent_with_heads_finds_the_way_over_deep_sea():
    missed = bsuite_published.missed_episodes()
    heads = missed.pop("BootDQN")
    assert len(missed) == 16
    assert f"in {heads.min():.0f} to {heads.max():.0f} of 10,000 episodes" in PAGE
    assert f"in {missed.min(axis=None):,.0f} at least" in PAGE


def test_only_the_agent_with_memory_answers_what_it_has_to_remember():
    """The chance that 10,000 guesses are right in more than 52 % is below 1e-4."""
    shares = bsuite_published.remembered().set_index(["setting", "bits", "steps"])
    assert len(shares) == 40
    mine = shares.pop("RecurrentActorCritic")
    steps, bits = shares.index.get_level_values("steps"), shares.index.get_level_values("bits")
    assert shares[steps > 1].max(axis=None) < 0.52
    assert mine[(bits == 1) & (steps <= 12)].min() > 0.6


def test_the_steps_of_the_agent_with_memory_and_the_seeds_of_the_testing_sweep():
    steps = sum(float(run.columns["steps"][-1]) for run in bsuite_published.logs("recurrent").runs)
    assert f"The {steps / 1e6:.1f} million steps of the sweep" in PAGE
    found = bsuite_published.testing_sweep()
    assert tuple(found.agents) == bsuite_published.SEEDED
    for agent in bsuite_published.SEEDED:
        runs = [(run.bsuite_id, run.number) for run in found.runs if run.agent == agent]
        assert len(set(runs)) == len(runs) == 3 * len(bsuite_published.TESTING)
    assert all(run.finished for run in found.runs)
    *others, last = bsuite_published.SEEDED
    assert f"{', '.join(others)} and {last} have played each of them with three seeds" in PAGE


STATIC = ROOT / "docs" / "_static" / "bsuite"


def test_the_ten_settings_are_chosen_by_the_kept_logs(sweep):
    suite = bsuite_ten.suite_of(sweep)
    kept = (STATIC / "ten-settings.md").read_text().splitlines()
    steps = {run.bsuite_id: run.columns["steps"][-1] for run in sweep.runs if run.agent == "DQN"}
    assert bsuite_ten.settings_table(suite, steps) == kept
    study = tomllib.loads((ROOT / "experiments" / "bsuite-ten.toml").read_text())
    played = [one["test"].removeprefix("bsuite/") for one in study["experiments"]]
    assert sorted(played) == sorted(bsuite_ten.chosen(suite).values())
    hard = suite.settings.filter(regex="deep_sea|swingup").drop(index=["Scripted", "Random"])
    assert hard.shape[1] == 62
    assert (hard > 0.5).any().sum() == 2


def test_an_agent_that_is_left_out_has_no_part_in_the_choice(sweep):
    """Scores of the agent that is left out may be anything; those of another change the choice."""
    suite = bsuite_ten.suite_of(sweep)
    settings = suite.settings.copy()
    settings.loc["PPO"] = 1 - settings.loc["PPO"]
    other = dataclasses.replace(suite, settings=settings)
    assert bsuite_ten.chosen(other, "PPO") == bsuite_ten.chosen(suite, "PPO")
    assert bsuite_ten.chosen(other) != bsuite_ten.chosen(suite)


def test_of_equal_settings_the_first_of_the_sweep_is_chosen():
    names = [f"deep_sea/{number}" for number in range(21)]
    assert bsuite_ten.members("deep_sea")[:21] == names
    every = {name: [0.5, 0.1] for name in bsuite_ten.SWEEP}
    experiments = {name: [0.5, 0.1] for name in bsuite_ten.EXPERIMENTS}
    agents = ["A", "B"]
    suite = bsuite_ten.Suite(
        pd.DataFrame(experiments, agents), pd.DataFrame(every, agents), pd.DataFrame()
    )
    ten = bsuite_ten.chosen(suite)
    assert set(ten.values()) == {bsuite_ten.members(family)[0] for family in ten}
    assert bsuite_ten.estimates(suite.settings, ten).to_list() == pytest.approx([0.5, 0.1])


@pytest.mark.slow
def test_errors_on_agents_left_out_are_those_of_the_kept_logs(sweep):
    lines = bsuite_ten.errors_table(bsuite_ten.suite_of(sweep))
    assert lines == (STATIC / "ten-errors.md").read_text().splitlines()


COMPARISON = " ".join((deep_on_mdps.ROOT / "docs" / "published-comparison.md").read_text().split())
PAPER = deep_on_mdps.ROOT / "experiments" / "published" / "paper-cpu"
PROBLEMS = ("GC", "GDL", "Grid")


@pytest.fixture(scope="module")
def returns():
    return deep_on_mdps.returns()


def test_the_table_is_that_of_the_kept_scores(tmp_path):
    deep_on_mdps.main(["--out", str(tmp_path)])
    kept = (deep_on_mdps.STATIC / "deep-on-mdps.md").read_text()
    assert (tmp_path / "deep-on-mdps.md").read_text() == kept
    assert "{include} _static/deep-on-mdps.md" in COMPARISON


def test_every_agent_is_kept_on_every_problem(returns):
    agents = {*deep_on_mdps.DEEP, *deep_on_mdps.INFORMED, "Random"}
    scores = jbrl.Results(deep_on_mdps.KEPT).scores
    assert (scores["status"] == "done").all()
    assert set(zip(scores["experiment"], scores["algorithm"], strict=True)) == {
        (problem, agent) for problem in PROBLEMS for agent in agents
    }
    assert returns.shape == (250, len(PROBLEMS) * len(agents))


def test_the_mdps_are_those_of_the_published_comparison(returns):
    """Random and e-Greedy decide the same on them, but for what is rounded."""
    others = jbrl.Results(PAPER).returns.query("unit < 250")
    for agent, played in (("Random", "{}"), ("e-Greedy", '{"epsilon": 0.0}')):
        rows = others[(others["algorithm"] == agent) & (others["parameters"] == played)]
        for problem in PROBLEMS:
            same = rows[rows["experiment"] == problem].set_index("unit")["score"]
            assert (returns[problem, agent] - same).abs().max() < 0.0011


def test_deep_agents_are_behind_those_that_know_the_prior(returns):
    def z(problem: str, agent: str, other: str) -> float:
        return deep_on_mdps.against(returns, problem, agent, other).z

    informed = deep_on_mdps.INFORMED
    for problem, least in (("GDL", 4.4), ("Grid", 23.0)):
        for agent in deep_on_mdps.DEEP:
            assert max(z(problem, agent, other) for other in informed) <= -least
            assert z(problem, agent, "Random") < 1.96
    for agent in ("DQN", "BootDQN"):
        assert z("GC", agent, "Random") > 1.96
        assert abs(z("GC", agent, "BAMCP")) < 1.96
        assert all(-4.5 < z("GC", agent, other) < -2.4 for other in ("e-Greedy", "OPPS-DS"))
    for agent in ("ActorCritic", "RecurrentActorCritic", "PPO"):
        assert abs(z("GC", agent, "Random")) < 1.96
        assert all(z("GC", agent, other) < -3 for other in informed)


def test_shares_of_mdps_in_which_the_goal_is_found(returns):
    found = (returns["Grid"] > 0).mean()
    shares = {agent: f"{found[agent]:.0%}".replace("%", " %") for agent in found.index}
    text = f"Random finds the goal in {shares['Random']} of the MDPs, DQN in {shares['DQN']}"
    assert f"{text} and BootDQN in {shares['BootDQN']}." in COMPARISON


def test_the_first_updates_are_those_of_the_page():
    usual = {name: jbrl.AGENTS[name].agent() for name in deep_on_mdps.DEEP}
    dqn, later = usual["DQN"].min_replay, usual["BootDQN"].min_replay
    assert later == usual["PPO"].rollout_length
    assert f"DQN first updates after {dqn} transitions, BootDQN and PPO after {later}" in COMPARISON
    assert f"after the first {dqn} have {0.95**dqn:.1%}".replace("%", " %") in COMPARISON
    lengths = {usual[name].sequence_length for name in ("ActorCritic", "RecurrentActorCritic")}
    assert f"update after every {lengths.pop()} transitions" in COMPARISON and not lengths


@pytest.mark.slow
def test_a_network_that_never_learns_earns_what_dqn_does(returns):
    """Returns differ by what comes after 100 decisions, at a reward of at most 10."""
    untrained = jbrl.AGENTS["DQN"].agent(min_replay=10_000)
    scores = jbrl.play(untrained, prior="GC", n_environments=250, seed=0).returns.ravel()
    assert (returns["GC", "DQN"] - scores).abs().max() < 10 * 0.95**100 / 0.05 + 0.0011
    assert f"DQN that never learns has {scores.mean():.2f}" in COMPARISON
