"""Two studies: against SciPy's tests, and with studies that are the same or differ by
known amounts.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from jbrl.base.errors import JbrlError
from jbrl.stats.two_studies import beside, only_in_one, played, same_problems
from tests.published_study import rows

RNG = np.random.default_rng(0)
A, B = RNG.normal(10, 2, 60), RNG.normal(11, 3, 60)


def table(first, second, **options):
    return beside(played(first, first), first, played(second, second), second, **options)


def agent(scores, name="Random", seed=0, **parameters):
    return rows("accurate", "GC", name, parameters, np.asarray(scores, float), seed=seed)


def test_the_same_mdps_are_paired():
    row = table(agent(A), agent(B).sample(frac=1, random_state=0)).iloc[0]
    error = (A - B).std(ddof=1) / np.sqrt(60)
    z = (A - B).mean() / error
    assert (row["test"], row["difference"]) == ("paired", pytest.approx(A.mean() - B.mean()))
    assert row["interval"] == pytest.approx(float(stats.t(59).ppf(0.975)) * error)
    assert row["p_value"] == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-12)
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
