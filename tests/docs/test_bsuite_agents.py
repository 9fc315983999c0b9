"""The tables of docs/bsuite/agents.md are those of the logs that are kept."""

from pathlib import Path

from experiments import bsuite_published
from jbrl.bsuite_sweep import EXPERIMENTS

ROOT = Path(__file__).parents[2]


def test_the_tables_are_those_of_the_kept_logs(tmp_path: Path) -> None:
    bsuite_published.main(["--out", str(tmp_path)])
    tables = sorted(tmp_path.glob("*.md"))
    assert len(tables) == 5
    for path in tables:
        kept = ROOT / "docs" / "_static" / "bsuite" / path.name
        assert path.read_text() == kept.read_text(), path.name


def test_every_agent_has_finished_all_that_it_is_said_to_have_finished() -> None:
    found = bsuite_published.whole_sweep()
    for agent in ("DQN", "ActorCritic", "PPO"):
        runs = [run for run in found.runs if run.agent == agent]
        assert len({run.bsuite_id for run in runs}) == len(runs) == 468
    assert all(run.finished for run in found.runs)


def test_an_agent_has_a_score_where_it_has_played_all_settings() -> None:
    found = bsuite_published.whole_experiments()
    for agent in found.agents:
        runs = [run for run in found.runs if run.agent == agent]
        ids = {run.bsuite_id for run in runs}
        assert len(runs) == len(ids)
        for name in {run.experiment.name for run in runs}:
            assert set(EXPERIMENTS[name].ids) <= ids
    assert found.agents.index("RecurrentActorCritic") == 2


def test_the_testing_sweep_was_played_once_or_three_times() -> None:
    found = bsuite_published.testing_sweep()
    assert tuple(found.agents) == bsuite_published.TESTED
    for agent in bsuite_published.TESTED:
        times = 3 if agent in bsuite_published.SEEDED else 1
        runs = [(run.bsuite_id, run.number) for run in found.runs if run.agent == agent]
        assert len(set(runs)) == len(runs) == times * len(bsuite_published.TESTING)
    assert all(run.finished for run in found.runs)


def test_only_the_agent_with_memory_answers_what_it_has_to_remember() -> None:
    """The chance that 10,000 guesses are right in more than 52 % is below 1e-4."""
    lines = [line.split("|")[1:-1] for line in bsuite_published.memory_table()[2:]]
    assert len(lines) == 40
    for setting, *shares in lines:
        remembers, *others = (float(share.strip(" %")) for share in shares)
        bits, steps = (int(part.split()[0]) for part in setting.split(",")[1:])
        if steps > 1:
            assert max(others) < 52
        if bits == 1 and steps <= 12:
            assert remembers > 60
