"""Two studies: against SciPy's tests, and with studies that are the same or differ by known
amounts; known brackets, and shares of them.
"""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import jbrl
from experiments.bounds import collect
from jbrl.base.errors import JbrlError
from jbrl.report.tables import _share
from jbrl.stats.brackets import (
    Bracket,
    find,
    known,
    of_experiments,
    share,
    share_text,
    with_digests,
    with_shares,
)
from jbrl.stats.two_studies import beside, only_in_one, played, same_problems
from tests.published_study import rows
from tests.terminal import call

RNG = np.random.default_rng(0)
A, B = RNG.normal(10, 2, 60), RNG.normal(11, 3, 60)


def table(first, second, **options):
    return beside(played(first, first), first, played(second, second), second, **options)


def agent(scores, name="Random", seed=0, **parameters):
    return rows("accurate", "GC", name, parameters, np.asarray(scores, float), seed=seed)


def test_the_same_mdps_are_paired():
    row = table(agent(A), agent(B).sample(frac=1, random_state=0)).iloc[0]
    error = (A - B).std(ddof=1) / np.sqrt(60)
    assert (row["test"], row["difference"]) == ("paired", pytest.approx(A.mean() - B.mean()))
    assert row["interval"] == pytest.approx(float(stats.t(59).ppf(0.975)) * error)
    assert row["p_value"] == pytest.approx(stats.ttest_rel(A, B).pvalue, rel=1e-12)
    assert row["combined"] == pytest.approx(row["ci95"] + row["other_ci95"])


@pytest.mark.parametrize("other", [agent(B, seed=1), agent(B[:40])])
def test_other_mdps_are_compared_by_welch(other):
    row = table(agent(A), other).iloc[0]
    expected = stats.ttest_ind(A, other["score"], equal_var=False)
    low, high = expected.confidence_interval(0.95)
    assert row["test"] == "Welch"
    assert row["p_value"] == pytest.approx(expected.pvalue, rel=1e-10)
    assert row["interval"] == pytest.approx((high - low) / 2, rel=1e-10)


@pytest.mark.parametrize(
    ("first", "second", "options", "verdict"),
    [
        (agent(A), agent(A), {}, "identical"),
        (agent(A), agent(A + 1), {}, "differs"),
        (agent(A), agent(A + np.resize([1, -1], 60)), {}, "agrees"),
        (agent(A[:1]), agent(B[:1]), {}, "no test"),
        (agent(np.ones(5)), agent(np.ones(5), seed=1), {}, "agrees"),
        (agent(A), agent(A.round(3)), {"rounding": 0.0005}, "identical"),
        (agent(A), agent(A.round(3) + 0.002), {"rounding": 0.0005}, "differs"),
    ],
)
def test_verdicts(first, second, options, verdict):
    [row] = table(first, second, **options).to_dict("records")
    assert row["verdict"] == verdict
    assert len(first) != 5 or row["p_value"] == 1.0


def test_agents_are_matched_by_experiment_algorithm_and_parameters():
    first = pd.concat([agent(A), agent(A, "BEB", beta=1.0), agent(A, "BEB", beta=2.0)])
    second = pd.concat([agent(A, "BEB", beta=2.0), agent(A, "BEB", beta=4.0)])
    assert list(table(first, second)["parameters"]) == ['{"beta": 2.0}']
    ours, theirs = only_in_one(played(first, first), played(second, second))
    assert sorted(ours["algorithm"]) == ["BEB", "Random"]
    assert list(theirs["parameters"]) == ['{"beta": 4.0}']


def test_holm_marks_what_stands_among_all():
    """Three p-values: one far below 0.05/3, one below 0.05 only, one above."""
    noise = RNG.normal(size=400)
    # mean 0, standard error 1
    noise = (noise - noise.mean()) / noise.std(ddof=1) / np.sqrt(1 / 400)
    shifts = {1.0: 6.0, 2.0: 2.1, 3.0: 0.5}
    base = np.zeros(400)
    first = pd.concat([agent(base, "BEB", beta=b) for b in shifts])
    second = pd.concat([agent(base + noise + shift, "BEB", beta=b) for b, shift in shifts.items()])
    row = table(first, second)
    assert list(row["verdict"]) == ["differs", "differs", "agrees"]
    assert list(row["holm"]) == [True, False, False]


@pytest.mark.slow
def test_false_alarms_of_either_test_are_five_in_a_hundred():
    """200 pairs of equal agents, fixed seed: 0.05 ± 4 standard errors of a share of 200, a false
    alarm of this test in 16,000 seeds.
    """
    rng = np.random.default_rng(3)
    share = {}
    for seed, name in ((0, "paired"), (1, "Welch")):
        pairs = [(rng.normal(size=50), rng.normal(size=50)) for _ in range(200)]
        first = pd.concat([agent(a, "BEB", beta=float(i)) for i, (a, _) in enumerate(pairs)])
        second = pd.concat(
            [agent(b, "BEB", seed=seed, beta=float(i)) for i, (_, b) in enumerate(pairs)]
        )
        row = table(first, second)
        assert set(row["test"]) == {name}
        share[name] = (row["verdict"] == "differs").mean()
    assert all(abs(s - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 200) for s in share.values()), share


def test_what_cannot_be_compared_is_refused():
    other = agent(A).assign(prior="UGC")
    message = "experiment GC has prior GC and test GC in one study and prior UGC and test GC in the"
    with pytest.raises(JbrlError, match=message):
        table(agent(A), other)
    with pytest.raises(JbrlError, match=r"no agent is in both studies.*experiments found: GC / GC"):
        table(agent(A), agent(A, "BEB", beta=1.0))


def test_mdps_of_another_problem_of_that_name_are_not_paired():
    """Identical scores and numbers, but the distributions differ, or are not known to."""
    first = agent(A)
    given = (played(first, first), first) * 2
    for digests, expected in (
        (({"GC": "a"}, {"GC": "a"}), ("same", "paired", "identical")),
        (({"GC": "a"}, {"GC": "b"}), ("differs", "Welch", "agrees")),
        (({"GC": "a"}, {"GC": None}), ("", "paired", "identical")),
    ):
        row = beside(*given, problems=same_problems(*digests)).iloc[0]
        assert tuple(row[["problem", "test", "verdict"]]) == expected


ROOT = Path(__file__).parents[2]
TWO = Bracket("two", "", 0.9, 5, 3, 4.0, 5.0, 6.0)


def test_kept_brackets_are_of_the_problems_that_they_name():
    assert {"GC", "GDL"} <= {bracket.problem for bracket in known()}
    for bracket in known():
        assert jbrl.problem(bracket.problem).digest == bracket.digest
        assert bracket.lower <= bracket.upper
        assert not bracket.upper > bracket.clairvoyant * 1.01  # NaN: not known


def test_the_table_and_the_page_are_made_of_the_kept_files():
    kept = {one["problem"]: one for one in collect.narrowest()}
    assert {b.problem: (b.lower, b.upper) for b in known()} == {
        name: (one["lower"], one["upper"]) for name, one in kept.items()
    }
    assert collect.rows() in (ROOT / "docs/bounds.md").read_text()
    assert len(collect.every()) == len(jbrl.load_results("brackets"))
    for file in (ROOT / "experiments/bounds").glob("*.json"):
        entries = json.loads(file.read_text())
        assert entries["lower"] <= entries["upper"]
        assert file == collect.file(entries["problem"], entries["decisions"])


def test_no_agent_of_the_published_comparison_earns_more_than_the_upper_end():
    """At 3.5 standard errors 500 means give a false alarm at most once in nine times, and only if
    all of them are at the upper end, which the best agents on GDL alone are near.
    """
    scores = jbrl.Results(ROOT / "experiments/published/paper-cpu").scores
    scores = scores[(scores["status"] == "done") & (scores["algorithm"] != "Optimal")]
    error = scores["std"] / scores["n"] ** 0.5
    ends = scores["test"].map({bracket.problem: bracket.upper for bracket in known()})
    assert ends.notna().sum() > 300
    assert not (scores["mean"] - 3.5 * error > ends).any()


def test_shares_by_hand():
    assert share(4.0, 0.5, TWO) == pytest.approx((3.5 / 5, 4.5 / 4))
    assert np.isnan(share(4.0, np.nan, TWO)).all()  # one MDP
    assert share(-1.0, 0.5, TWO) == pytest.approx((-1.5 / 4, -0.5 / 5))
    assert np.isnan(share(np.nan, 0.1, TWO)).all()
    assert share_text((0.899, 1.002)) == "89–101 %"
    assert share_text((0.29, 0.57)) == "29–57 %"  # times 100: 28.999…, 56.999…
    assert share_text((np.nan, np.nan)) == ""


def test_columns_appear_where_a_bracket_is_known():
    columns = {"experiment": ["a", "b"], "algorithm": "Known", "mean": [4.0, 1.0]}
    scores = pd.DataFrame(columns | {"ci95": [0.5, 0.1], "seed": 0})
    assert with_shares(scores, {}) is scores
    table = with_shares(scores, {"a": TWO})
    assert list(table.columns)[2:] == ["mean", "ci95", "share_low", "share_high", "seed"]
    assert table["share_low"].tolist() == pytest.approx([0.7, np.nan], nan_ok=True)
    assert with_shares(scores, {"a": TWO}, ["Known"])["share_low"].isna().all()


def test_experiments_are_found_by_test_discount_and_horizon():
    study = {"discount": 0.95, "horizon": 250}
    experiments = [
        {"name": "right", "prior": "GDL", "test": "GDL"},
        {"name": "wrong prior", "prior": "UGDL", "test": "GDL"},
        {"name": "short", "test": "GDL", "horizon": 10},
        {"name": "other", "test": "two.json"},
    ]
    brackets = of_experiments({"study": study, "experiments": experiments})
    assert brackets == {"right": find("GDL", 0.95, 250), "wrong prior": find("GDL", 0.95, 250)}
    assert of_experiments({"study": {}, "experiments": experiments[:1]}) == {}


def test_a_problem_is_known_by_its_digest_whatever_its_name():
    names = ["GC(n_states=5,n_actions=3)", "GC", "GDL"]
    digests = [jbrl.problem(names[0]).digest, "that of another problem", None]
    experiments = [{"name": str(n), "test": name} for n, name in enumerate(names)]
    manifest = {"study": {"discount": 0.95, "horizon": 250}, "experiments": experiments}
    units = pd.DataFrame({"experiment": ["0", "1", "2"], "test_digest": digests})
    brackets = of_experiments(with_digests(manifest, units))
    assert brackets == {"0": find("GC", 0.95, 250), "2": find("GDL", 0.95, 250)}


@pytest.mark.parametrize(
    ("mean", "oracle", "text"), [(9.0, False, "70–112 %"), (9.0, True, "–"), (np.nan, False, "–")]
)
def test_the_share_of_an_oracle_or_of_nothing_is_not_said(mean, oracle, text):
    bracket = Bracket("GC", "", 0.95, 250, 1, 8.5, 12.0, 20.0)
    cell = _share(bracket, {"mean": mean, "ci95": 0.5, "oracle": oracle})
    assert cell.text == text and (text == "–" or cell.value == 8.5 / 12)


def test_the_command_gives_no_share_of_an_agent_that_is_shown_the_mdp():
    result = call("scores", ROOT / "experiments/published/paper-cpu", "--format", "csv")
    table = pd.read_csv(io.StringIO(result.stdout))
    shown = table["algorithm"] == "Optimal"
    assert shown.any()
    assert table.loc[shown, "share_low"].isna().all()
    assert table.loc[~shown, "share_low"].notna().any()
