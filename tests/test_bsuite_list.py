"""Output of the command line about the problems of bsuite."""

import pytest

from jbrl.base.bsuite_sweep import SWEEP
from tests.test_cli import call


def test_every_id_has_a_line():
    result = call("list", "problems", "--suite", "bsuite")
    assert result.exit_code == 0
    head, *lines = result.output.splitlines()
    assert head.split() == ["experiment", "index", "settings", "episodes", "tags"]
    assert len(lines) == 468
    assert [tuple(line.split()[:2]) for line in lines] == [tuple(n.split("/")) for n in SWEEP]
    said = {tuple(line.split()[:2]): line for line in lines}
    assert "noise_scale=10, mapping_seed=3" in said["bandit_noise", "19"]
    assert "10,000" in said["deep_sea", "20"]
    assert "scale, credit_assignment" in said["catch_scale", "0"]


@pytest.mark.slow
def test_all_problems_name_the_suite_and_its_groups():
    result = call("list", "problems")
    assert result.exit_code == 0
    assert "jbrl list problems --suite" in result.output
    for group in ("bsuite/all", "bsuite/testing", "bsuite/tag/memory"):
        assert group in result.output


def test_a_problem_in_wrappers_is_shown_with_all_settings():
    result = call("show", "bsuite/catch_noise/7")
    assert result.exit_code == 0
    assert "Settings of RewardNoise\n  scale = 0.3" in result.output
    assert "Settings of Catch\n  rows = 10" in result.output
    result = call("show", "ImageBandit")
    assert 'folder = ""' in result.output
    assert "wrap = true" in result.output


def test_other_suites_and_kinds_are_refused():
    for arguments, message in (
        (("list", "problems", "--suite", "bsuit"), "unknown suite; did you mean 'bsuite'?"),
        (("list", "agents", "--suite", "bsuite"), "expected 'jbrl list problems --suite bsuite'"),
        (("show", "bsuite/catch/20"), "index = 20: expected an integer from 0 to 19"),
    ):
        result = call(*arguments)
        assert result.exit_code == 2
        assert message in " ".join(result.output.split())
