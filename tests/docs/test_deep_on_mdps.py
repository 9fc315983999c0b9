"""docs/published-comparison.md: the section on deep agents is that of the kept scores."""

from pathlib import Path

import pandas as pd
import pytest

import jbrl
from experiments import deep_on_mdps

PAGE = " ".join((deep_on_mdps.ROOT / "docs" / "published-comparison.md").read_text().split())
PAPER = deep_on_mdps.ROOT / "experiments" / "published" / "paper-cpu"
PROBLEMS = ("GC", "GDL", "Grid")


@pytest.fixture(scope="module")
def returns() -> pd.DataFrame:
    return deep_on_mdps.returns()


def test_the_table_is_that_of_the_kept_scores(tmp_path: Path) -> None:
    deep_on_mdps.main(["--out", str(tmp_path)])
    kept = (deep_on_mdps.STATIC / "deep-on-mdps.md").read_text()
    assert (tmp_path / "deep-on-mdps.md").read_text() == kept
    assert "{include} _static/deep-on-mdps.md" in PAGE


def test_every_agent_is_kept_on_every_problem(returns: pd.DataFrame) -> None:
    agents = {*deep_on_mdps.DEEP, *deep_on_mdps.INFORMED, "Random"}
    scores = jbrl.Results(deep_on_mdps.KEPT).scores
    assert (scores["status"] == "done").all()
    assert set(zip(scores["experiment"], scores["algorithm"], strict=True)) == {
        (problem, agent) for problem in PROBLEMS for agent in agents
    }
    assert returns.shape == (250, len(PROBLEMS) * len(agents))


def test_the_mdps_are_those_of_the_published_comparison(returns: pd.DataFrame) -> None:
    """Random and e-Greedy decide the same on them, but for what is rounded."""
    others = jbrl.Results(PAPER).returns.query("unit < 250")
    for agent, played in (("Random", "{}"), ("e-Greedy", '{"epsilon": 0.0}')):
        rows = others[(others["algorithm"] == agent) & (others["parameters"] == played)]
        for problem in PROBLEMS:
            same = rows[rows["experiment"] == problem].set_index("unit")["score"]
            assert (returns[problem, agent] - same).abs().max() < 0.0011


def test_deep_agents_are_behind_those_that_know_the_prior(returns: pd.DataFrame) -> None:
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


def test_shares_of_mdps_in_which_the_goal_is_found(returns: pd.DataFrame) -> None:
    found = (returns["Grid"] > 0).mean()
    shares = {agent: f"{found[agent]:.0%}".replace("%", " %") for agent in found.index}
    text = f"Random finds the goal in {shares['Random']} of the MDPs, DQN in {shares['DQN']}"
    assert f"{text} and BootDQN in {shares['BootDQN']}." in PAGE


def test_the_first_updates_are_those_of_the_page() -> None:
    usual = {name: jbrl.AGENTS[name].agent() for name in deep_on_mdps.DEEP}
    dqn, later = usual["DQN"].min_replay, usual["BootDQN"].min_replay
    assert later == usual["PPO"].rollout_length
    assert f"DQN first updates after {dqn} transitions, BootDQN and PPO after {later}" in PAGE
    assert f"after the first {dqn} have {0.95**dqn:.1%}".replace("%", " %") in PAGE
    lengths = {usual[name].sequence_length for name in ("ActorCritic", "RecurrentActorCritic")}
    assert f"update after every {lengths.pop()} transitions" in PAGE and not lengths


@pytest.mark.slow
def test_a_network_that_never_learns_earns_what_dqn_does(returns: pd.DataFrame) -> None:
    """Returns differ by what comes after 100 decisions, at a reward of at most 10."""
    untrained = jbrl.AGENTS["DQN"].agent(min_replay=10_000)
    scores = jbrl.play(untrained, prior="GC", n_environments=250, seed=0).returns.ravel()
    assert (returns["GC", "DQN"] - scores).abs().max() < 10 * 0.95**100 / 0.05 + 0.0011
    assert f"DQN that never learns has {scores.mean():.2f}" in PAGE
