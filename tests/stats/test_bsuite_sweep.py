"""The sweep has the original's ids, in its order, with its schedule and columns."""

import json

import numpy as np
import pytest

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, TESTING, logged_episodes, tagged
from tests.stats.bsuite_cases import arrays


def test_ids_are_the_468_of_the_original_in_its_order():
    assert list(SWEEP) == json.loads(str(arrays("scores_a")["bsuite_ids"]))
    assert len(EXPERIMENTS) == 23


def test_tags_have_the_numbers_of_ids_of_the_original():
    tags = [
        "basic",
        "noise",
        "scale",
        "exploration",
        "credit_assignment",
        "generalization",
        "memory",
    ]
    counts = dict(zip(tags, (100, 167, 100, 62, 146, 200, 40), strict=True))
    assert {tag: len(tagged(tag)) for tag in TAGS} == counts


def test_the_testing_sweep_is_the_first_setting_of_what_has_no_wrapper():
    assert len(TESTING) == 13
    assert "catch/0" in TESTING and "catch_noise/0" not in TESTING
    assert all(SWEEP[name].index == 0 for name in TESTING)


def test_schedule_has_49_rows_for_10000_episodes_and_36_for_1000():
    assert len(logged_episodes(10_000)) == 49 and len(logged_episodes(1000)) == 36
    assert logged_episodes(30) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_schedule_and_columns_are_those_of_the_logs_of_the_original(name):
    stored = arrays("scores_a")
    rows = stored["bsuite_index"] == list(SWEEP).index(f"{name}/0")
    rules = EXPERIMENTS[name]
    assert tuple(stored["episode"][rows].astype(int)) == logged_episodes(rules.episodes)
    values = {
        k: v[rows] for k, v in stored.items() if v.shape == rows.shape and k != "bsuite_index"
    }
    assert {k for k, v in values.items() if np.isfinite(v).all()} == set(rules.log_columns)


def test_settings_by_index():
    assert SWEEP["bandit_noise/7"].settings == {"noise_scale": 0.3, "mapping_seed": 3}
    assert SWEEP["catch_scale/19"].settings == {"reward_scale": 1000.0}
    assert SWEEP["deep_sea/20"].all_settings == {"mapping_seed": 42, "size": 50}
    assert SWEEP["cartpole_swingup/19"].settings["height_threshold"] == 0.95
    assert SWEEP["umbrella_length/22"].all_settings == {"n_distractor": 20, "chain_length": 100}
    assert SWEEP["memory_size/16"].all_settings == {"memory_length": 2, "num_bits": 40}
    assert SWEEP["memory_len/0"].experiment.seed == 0 and SWEEP["catch/0"].experiment.seed is None
