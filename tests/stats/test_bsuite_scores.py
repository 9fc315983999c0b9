"""Scores are those of the original, to 1e-12; several runs add intervals and tests; the sweep is
the original's.
"""

import dataclasses
import json

import numpy as np
import pytest

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, TESTING, logged_episodes, tagged
from jbrl.base.errors import JbrlError
from jbrl.stats.bsuite import curves, scores
from jbrl.stats.bsuite.logs import Logs, merged
from jbrl.stats.bsuite.measures import level_of, played
from jbrl.stats.bsuite.scores import compare, permutation_test
from tests.stats.bsuite_cases import GOLDEN, arrays, expected, golden, made_up, whole


@pytest.mark.parametrize("name", GOLDEN)
def test_scores_and_flags_of_the_original(name):
    table = scores.summary(golden(name)).set_index("bsuite_env")
    wanted = expected(name).loc[table.index]
    np.testing.assert_allclose(table["score"], wanted["score"], rtol=0, atol=1e-12)
    assert table["finished"].tolist() == wanted["finished"].tolist()
    assert np.isnan(wanted["score"]).sum() == (2 if name == "scores_partial" else 0)


@pytest.mark.parametrize("name", ["scores_a", "scores_b", "scores_partial"])
def test_tag_scores_of_the_original(name):
    table = scores.tag_scores(golden(name)).set_index("tag")
    wanted = arrays(name)
    assert table.index.tolist() == json.loads(str(wanted["tags"]))
    np.testing.assert_allclose(table["score"], wanted["tag_score"], rtol=0, atol=1e-12)
    assert table["of"].tolist() == [5, 7, 3, 10, 2, 8, 5]
    if name == "scores_partial":
        assert table.loc["noise", "experiments"] == 7  # mnist_noise has no score
        assert not table["finished"].any()


@pytest.mark.parametrize("name", ["deep_sea", "deep_sea_stochastic"])
def test_solutions_of_the_original_at_the_edges(name):
    table = curves.solutions(golden("scores_deep_sea_edge"), name)
    wanted = arrays("scores_deep_sea_edge")
    solved = wanted[f"{name}_solved"]
    assert table["size"].tolist() == wanted[f"{name}_size"].tolist()
    assert table["episode"].notna().tolist() == solved.tolist()
    at = wanted[f"{name}_solve_episode"][solved]
    assert table["episode"][solved].tolist() == at.tolist()


def changed(run, **columns):
    """A run with other values in some columns."""
    episode = run.columns["episode"]
    new = {name: value + 0 * episode for name, value in columns.items()}
    return dataclasses.replace(run, columns=run.columns | new)


@pytest.mark.parametrize(
    ("experiment", "most", "threshold"), [("cartpole", 1000, 500), ("cartpole_swingup", 700, 100)]
)
def test_balancing_is_solved_by_one_episode_above_the_threshold(experiment, most, threshold):
    """The score is half of the share that is earned and half of that of solved settings."""

    def score(best, share):
        runs = whole("x", experiment, [[0.0] * 20]).runs
        earned = share * most * runs[0].columns["episode"]
        columns = {"best_episode": best, "raw_return": earned, "total_return": earned}
        return scores.summary(Logs(tuple(changed(run, **columns) for run in runs)))["score"].item()

    assert (score(threshold, 1), score(threshold + 1, 1)) == (0.5, 1.0)
    assert score(threshold + 1, 0.75) == pytest.approx(0.875)


def test_runs_count_up_to_the_last_episode_that_one_of_them_has_reached():
    """A shorter one is left out, however low its regret is, and so is what a longer one adds to the
    episodes of the experiment.
    """
    runs = whole("x", "catch", [[0.4] * 20]).runs
    short = made_up("x", "catch/0", 0.0, episodes=5000)
    long = made_up("x", "catch/0", 0.0, episodes=20_000)
    regret = 0.4 * np.minimum(long.columns["episode"], 10_000)
    for one in (short, changed(long, total_regret=regret)):
        table = scores.summary(Logs((one, *runs[1:])))
        assert table["score"].item() == pytest.approx(0.75)
    cut = [made_up("x", run.bsuite_id, 0.8, episodes=5000) for run in runs]
    assert scores.summary(Logs(tuple(cut)))["score"].item() == pytest.approx(0.5)


def rows_at(run, *episodes, **columns):
    """A run with rows at these episodes only, some columns a multiple of them."""
    episode = np.array(episodes, float)
    values = dict.fromkeys(run.columns, 0 * episode) | {"episode": episode, "steps": episode}
    return dataclasses.replace(run, columns=values | {k: v * episode for k, v in columns.items()})


def cut_score(experiment, *runs):
    """The score of runs of settings 0, 1, …; each has its episodes and multiples of columns."""
    made = (made_up("x", f"{experiment}/{i}", 0.0) for i, _ in enumerate(runs))
    logs = [rows_at(run, *at, **columns) for run, (at, columns) in zip(made, runs, strict=True)]
    return scores.summary(Logs(tuple(logs)))["score"].item()


def test_deep_sea_leaves_out_sizes_without_a_row_that_counts():
    """Scores are those that release 0.3.6 of the original computes for these logs."""
    solved, bad = {"total_bad_episodes": 0.1}, {"total_bad_episodes": 1.0}
    name = "deep_sea_stochastic"
    assert cut_score(name, ((10, 200), solved), ((10, 60), solved)) == 1.0
    assert cut_score(name, ((10, 200), solved), ((10, 100), bad), ((50,), solved)) == 0.5
    assert np.isnan(cut_score(name, ((10, 60), solved)))
    assert cut_score("deep_sea", ((10,), solved), ((20_000,), solved)) == 1.0


@pytest.mark.parametrize("experiment", ["cartpole", "cartpole_noise", "cartpole_scale"])
def test_balancing_drops_rows_after_the_last_episode(experiment):
    """The original cuts these logs first, so that one without a row at episode 1000 counts up to
    the row before it, and a height without any row that counts is no height.
    """
    run = ((500, 900, 1200), {"raw_return": 800.0, "best_episode": 1.0})
    assert cut_score(experiment, run) == pytest.approx((0.8 + 1) / 2)
    late = ((900, 1200), {"raw_return": 800.0, "best_episode": 0.5})  # 450, then 600: too late
    assert cut_score(experiment, late) == pytest.approx(0.4)
    assert np.isnan(cut_score(experiment, ((1200,), {"raw_return": 800.0})))


def test_heights_without_rows_that_count_are_left_out():
    good = ((500, 900, 1200), {"total_return": 700.0, "best_episode": 1.0})
    assert cut_score("cartpole_swingup", good, ((1200,), {})) == pytest.approx(1.0)
    assert cut_score("cartpole_swingup", good, ((900,), {})) == pytest.approx(0.5)
    # elsewhere the episode itself must have been logged
    assert np.isnan(cut_score("catch", ((9000, 12_000), {"total_regret": 0.4})))


def test_each_sweep_counts_up_to_its_own_last_episode():
    """A second sweep that was cut off is scored as it would be alone."""
    first = whole("x", "catch", [[0.4] * 20]).runs
    second = [made_up("x", run.bsuite_id, 0.8, number=1, episodes=5000) for run in first]
    both = scores.summary(Logs((*first, *second)), intervals=True)
    assert both["score"].item() == pytest.approx((0.75 + 0.5) / 2)
    assert np.isfinite(both[["lower", "upper"]].to_numpy()).all()


def test_release_changes_deep_sea_alone():
    new = scores.summary(golden("scores_a")).set_index("bsuite_env")["score"]
    old = scores.summary(golden("scores_a"), "0.3.5").set_index("bsuite_env")["score"]
    differing = new.index[new != old].tolist()
    assert differing == ["deep_sea"] and old["deep_sea"] < new["deep_sea"]
    rates = [[0.85] * 21]  # bad episodes between both thresholds
    assert scores.summary(whole("x", "deep_sea", rates))["score"].item() == 1.0
    assert scores.summary(whole("x", "deep_sea", rates), "0.3.5")["score"].item() == 0.0
    with pytest.raises(JbrlError, match=r"release '0\.3\.4'"):
        scores.summary(golden("scores_a"), "0.3.4")


def test_columns_and_order_of_the_summary():
    table = scores.summary(golden("scores_a"))
    assert tuple(table.columns) == scores.COLUMNS
    assert table["bsuite_env"].tolist() == list(EXPERIMENTS)
    cartpole = table.set_index("bsuite_env").loc["cartpole"]
    assert cartpole["type"] == "basic"
    assert cartpole["tags"] == "basic, credit_assignment, generalization"


def test_order_of_runs_does_not_matter():
    logs = golden("scores_partial")
    ours, theirs = (
        scores.summary(one).set_index("bsuite_env")["score"]
        for one in (logs, Logs(tuple(reversed(logs.runs))))
    )
    np.testing.assert_array_equal(ours, theirs.loc[ours.index])


def test_a_missing_setting_is_not_finished_and_is_named():
    rates = [[0.8] * 20]
    logs = whole("x", "catch", rates)
    short = Logs(logs.runs[:-3])
    assert scores.summary(logs)["finished"].item()
    assert not scores.summary(short)["finished"].item()
    assert scores.unfinished(short) == ["agent x: settings are missing: catch has 17 of 20"]


def test_unfinished_runs_are_named_with_the_shortest():
    runs = (made_up("x", "catch/0", 1.0), made_up("x", "catch/1", 1.0, episodes=300))
    sentence = scores.unfinished(Logs(runs))[1]
    assert sentence.startswith("agent x: 1 of 2 runs are not finished")
    assert "catch/1: 300 of 10,000 episodes" in sentence


def test_runs_without_the_row_that_their_score_is_read_from_are_named():
    beyond = [made_up("x", f"catch/{k}", 1.0, episodes=20_000) for k in range(2)]
    columns = beyond[0].columns
    kept = {name: values[columns["episode"] != 10_000] for name, values in columns.items()}
    logs = Logs((dataclasses.replace(beyond[0], columns=kept), beyond[1]))
    assert scores.unfinished(logs)[1:] == [
        "agent x: 1 of 2 runs go beyond the last episode that counts and have no row of it "
        "(the first, catch/0: 10,000): average regrets leave them out"
    ]
    assert scores.summary(Logs(logs.runs[:1]))["score"].isna().all()
    levels = [made_up("x", f"mnist_noise/{k}", 0.1, episodes=9_000) for k in (3, 4)]
    early = Logs((made_up("x", "mnist_noise/0", 0.1), *levels))
    assert scores.summary(early)["score"].isna().all()
    sentence = "agent x: no score in mnist_noise: expected episodes after 9,000"
    assert scores.unfinished(early)[2:] == [sentence]
    ended = Logs(early.runs[:2])
    assert scores.summary(ended)["score"].notna().all() and len(scores.unfinished(ended)) == 2


def test_an_experiment_that_others_have_is_an_empty_row_and_a_sentence():
    logs = merged([whole("x", "catch", [[1.0] * 20]), whole("y", "bandit", [[0.1] * 20])])
    table = scores.summary(logs).set_index(["agent", "bsuite_env"])
    assert np.isnan(table.loc[("y", "catch"), "score"])
    assert not table.loc[("y", "catch"), "finished"]
    assert scores.incomplete(logs)[1].startswith("agent y: no logs of catch, which x has")
    assert scores.incomplete(whole("x", "catch", [[1.0] * 20])) == []


# ---- several runs ----


def test_one_sweep_twice_has_the_score_of_one():
    once = golden("scores_a")
    twice = merged([once, once])
    assert max(run.number for run in twice.runs) == 1
    ours = scores.summary(twice, intervals=True)
    np.testing.assert_allclose(ours["score"], scores.summary(once)["score"], rtol=0, atol=1e-12)
    assert (ours["runs"] == 2).all()


def test_score_of_several_sweeps_is_their_mean():
    a, b = whole("x", "catch", [[0.4] * 20]), whole("x", "catch", [[1.6] * 20])
    table = scores.summary(merged([a, b]), intervals=True)
    assert table["score"].item() == pytest.approx((0.75 + 0.0) / 2)
    assert table["lower"].item() < table["score"].item() < table["upper"].item()


def test_a_setting_with_fewer_runs_takes_part_again():
    runs = (*whole("x", "bandit", [[0.1] * 20]).runs, made_up("x", "bandit/0", 0.3, number=1))
    table = scores.summary(Logs(runs), intervals=True)
    first, second = 1 - 0.1 / 0.5, 1 - (0.1 * 19 + 0.3) / 20 / 0.5
    assert table["score"].item() == pytest.approx((first + second) / 2)
    assert table["runs"].item() == 2


def test_intervals_need_several_runs_of_a_setting_or_settings_that_are_equal():
    table, again = (
        scores.summary(golden("scores_a"), intervals=True).set_index("bsuite_env") for _ in "12"
    )
    assert table.equals(again)  # the same each time
    known = table.index[table["lower"].notna()]
    families = {EXPERIMENTS[name].family for name in known}
    assert families == {"catch", "mnist", "cartpole", "mountain_car"}
    assert (table.loc[known, "lower"] <= table.loc[known, "upper"]).all()
    tags = scores.tag_scores(golden("scores_a"), intervals=True)
    assert tags["lower"].isna().all()  # each tag has an experiment without an interval


def test_intervals_cover_the_true_score():
    """300 agents whose true score in catch is 0.5, 20 runs each; nominal level 95%.

    Percentile intervals of 20 samples are a little too narrow: about 92% cover. At that rate fewer
    than 258 of 300 have a probability below 1e-4 (binomial), at 95% more than 297 below 1e-3.
    """
    generator = np.random.default_rng(7)
    covered = 0
    for k in range(300):
        rates = generator.normal(0.8, 0.2, 20).tolist()
        row = scores.summary(whole(f"x{k}", "catch", [rates]), intervals=True, resamples=400)
        covered += int(row["lower"].item() <= 0.5 <= row["upper"].item())
    assert 258 <= covered <= 297


# ---- two agents ----


def test_agents_that_differ_are_told_apart_and_equal_ones_are_not():
    logs = merged([whole("x", "catch", [[0.4] * 20]), whole("y", "catch", [[1.2] * 20])])
    row = compare(logs).iloc[0]
    assert row["difference"] == pytest.approx(0.5)
    assert row["p_value"] < 0.001 and row["differs"]
    same = merged([whole("x", "catch", [[0.4] * 20]), whole("y", "catch", [[0.4] * 20])])
    assert compare(same).iloc[0]["p_value"] == 1.0


def test_no_more_experiments_are_counted_than_are_left_out():
    assert scores._listed(list("abcd")) == "a, b, c, d"
    assert scores._listed(list("abcdef")) == "a, b, c, d and 2 more experiments"


def test_the_best_episodes_of_swing_up_are_means_over_runs():
    logs = golden("scores_a")
    table = curves.bests(logs, "cartpole_swingup").set_index(["agent", "level"])
    runs = [run for run in logs.runs if run.experiment.name == "cartpole_swingup"]
    assert table["n"].sum() == len(runs) > 1
    for (agent, level), row in table.iterrows():
        bests = [
            run.columns["best_episode"].max()
            for run in runs
            if (run.agent, level_of(run)) == (agent, level)
        ]
        assert (len(bests), np.mean(bests)) == (row["n"], row["mean"])


@pytest.mark.first_case_quick
@pytest.mark.parametrize("experiment", ["catch_noise", "umbrella_length"])
def test_level_of_the_test(experiment):
    """Two agents with the same distribution in each setting: p <= 0.1 in at most a tenth.

    400 trials, each exact at its level; 61 or more at a rate of 0.1 have a probability below
    1e-4 (binomial). Seed fixed.
    """
    generator = np.random.default_rng(11)
    count = len(EXPERIMENTS[experiment].settings)
    base = np.linspace(0.1, 0.9, count)
    small = 0
    for k in range(400):
        both = [
            whole(name, experiment, [(base + generator.normal(0, 0.2, count)).tolist()])
            for name in ("x", "y")
        ]
        x, y = (played(one, one.agents[0], experiment) for one in both)
        small += permutation_test(x, y, permutations=99, seed=k).p_value <= 0.1
    assert small <= 60


@pytest.mark.parametrize(("experiment", "p_value"), [("bandit", 1 / 2), ("catch", 1 / 3)])
def test_permutations_stay_within_equal_settings(experiment, p_value):
    """bandit/0 and bandit/1 are different settings: with one run each there are 4 arrangements.

    The observed one and its mirror are as extreme as can be, hence p near 1/2; settings of catch
    are equal: 2 of 6 arrangements. The standard error is 0.011.
    """
    x, y = (
        Logs(tuple(made_up(name, f"{experiment}/{index}", rate) for index in (0, 1)))
        for name, rate in (("x", 0.0), ("y", 0.4))
    )
    result = permutation_test(played(x, "x", experiment), played(y, "y", experiment), 2000)
    assert result.difference == pytest.approx(0.8 if experiment == "bandit" else 0.25)
    assert result.p_value == pytest.approx(p_value, abs=0.05)


def test_unfinished_runs_are_not_tested():
    logs = merged([golden("scores_a"), golden("scores_partial")])
    assert compare(logs, permutations=9)["p_value"].isna().all()


def test_holm_is_over_the_experiments_of_a_pair():
    logs = merged([golden("scores_a"), golden("scores_b")])
    table = compare(logs, permutations=999).set_index("bsuite_env")
    assert len(table) == 23 and table.loc["catch", "differs"]
    assert not table.loc["deep_sea", "differs"]


# ---- tables for others ----


def test_score_table_has_a_row_for_each_sweep():
    logs = merged([golden("scores_a"), golden("scores_a"), golden("scores_b")])
    table = scores.score_table(logs)
    assert list(table.columns) == ["algorithm", "environment", "score"]
    assert len(table) == 2 * 23 + 23
    one = table[(table["algorithm"] == "scores_b") & (table["environment"] == "catch")]
    assert one["score"].item() == pytest.approx(expected("scores_b").loc["catch", "score"])


def test_settings_table_has_468_environments_and_the_mean_score_as_target():
    table = scores.score_table(golden("scores_a"), of="settings")
    assert table["environment"].tolist() == list(SWEEP)
    assert table["suite_score"].nunique() == 1
    assert table["suite_score"].iloc[0] == pytest.approx(expected("scores_a")["score"].mean())
    catch = table[table["environment"].str.startswith("catch/")]["score"]
    assert catch.mean() == pytest.approx(expected("scores_a").loc["catch", "score"])
    sea = table[table["environment"].str.startswith("deep_sea/")]["score"]
    assert set(sea) <= {0.0, 1.0}
    assert sea.mean() == pytest.approx(expected("scores_a").loc["deep_sea", "score"])
    with pytest.raises(JbrlError, match="of = 'tags'"):
        scores.score_table(golden("scores_a"), of="tags")


# ---- curves ----


def test_curves_of_regret_and_return():
    logs = whole("x", "memory_len", [[0.5] * 23])
    ratio = curves.regrets(logs, "memory_len")
    np.testing.assert_allclose(ratio["average"], 0.5)  # errors 0.25 per episode, guessing has 0.5
    right = curves.returns(logs, "memory_len")
    np.testing.assert_allclose(right["average"], 0.75)
    assert right["level"].max() == 100
    mean = curves.mean_curves(ratio)
    assert (mean["n"] == 1).all() and mean["ci95"].isna().all()
    assert len(mean) == 23 * 49


def test_discounting_chain_is_grouped_by_the_horizon_of_its_best_chain():
    table = curves.final_regrets(golden("scores_a"), "discounting_chain")
    assert sorted(table["level"]) == [1, 3, 10, 30, 100]
    assert (table["n"] == 4).all()


def test_ids_are_the_468_of_the_original_in_its_order():
    assert list(SWEEP) == json.loads(str(arrays("scores_a")["bsuite_ids"]))
    assert len(EXPERIMENTS) == 23


def test_tags_have_the_numbers_of_ids_of_the_original():
    tags = "basic noise scale exploration credit_assignment generalization memory"
    counts = dict(zip(tags.split(), (100, 167, 100, 62, 146, 200, 40), strict=True))
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
    assert SWEEP["memory_len/0"].experiment.seed == 0 and SWEEP["catch/0"].experiment.seed is None
