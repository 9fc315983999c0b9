"""The paired Z-test and fractions against numbers worked out by hand, their symmetries, and the
choice of the best agents.
"""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from jbrl.base.errors import JbrlError
from jbrl.stats.paired_test import best_and_tied, critical_value, fractions, paired_z
from tests.stats.tables import returns_of

PAIRS = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        *[arrays(np.float64, n, elements=st.integers(-100, 100).map(lambda k: k / 8)) for _ in "ab"]
    )
)


def test_by_hand():
    # d = 1, 2, 3, 2: mean 2, squared deviations 1 + 0 + 1 + 0, s_d = √(2/3), standard error
    # √(2/3) / 2 = 0.408248, Z = 4.898979
    result = paired_z([11, 4, 8, 9], [10, 2, 5, 7])
    assert (result.n, result.difference) == (4, 2)
    assert result.standard_error == pytest.approx(0.4082482905, abs=1e-10)
    assert result.z == pytest.approx(4.898979486, abs=1e-9)
    assert result.different


def test_critical_values():
    assert critical_value("one") == pytest.approx(1.6448536, abs=1e-7)
    assert critical_value("two") == pytest.approx(1.9599640, abs=1e-7)
    assert critical_value("two", 0.99) == pytest.approx(2.5758293, abs=1e-7)
    assert critical_value("one", 0.5) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("z", "one", "two"),
    [
        (1.60, False, False),
        (1.70, True, False),
        (1.90, True, False),
        (2, True, True),
        (-3, False, True),
    ],
)
def test_one_and_two_sided(z, one, two):
    # d = c ± 1 for 101 pairs of MDPs: mean c, s_d = √(202 / 201), so c = z √(1 / 201).
    d = np.tile([-1.0, 1.0], 101) + z / math.sqrt(201)
    base = np.arange(202.0)
    assert paired_z(base + d, base).z == pytest.approx(z, abs=1e-9)
    assert paired_z(base + d, base, sided="one").different is one
    assert paired_z(base + d, base, sided="two").different is two


def test_p_value_crosses_at_the_level():
    d = np.tile([-1.0, 1.0], 101) + 1.96 / math.sqrt(201)
    assert paired_z(d, 0 * d).p_value == pytest.approx(0.0499958, abs=1e-6)
    assert paired_z(d, 0 * d, sided="one").p_value == pytest.approx(0.0249979, abs=1e-6)
    assert not paired_z(d, 0 * d, level=0.99).different


def test_small_p_values_do_not_vanish():
    # 1 - Φ(10) = 7.619853e-24 (Abramowitz & Stegun, table 26.2), far below the rounding of 1.
    d = np.tile([-1.0, 1.0], 101) + 10 / math.sqrt(201)
    assert paired_z(d, 0 * d, sided="one").p_value == pytest.approx(7.619853e-24, rel=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "sided", "z", "p_value", "different"),
    [
        ([3, 3, 5], [3, 3, 5], "one", 0, 0.5, False),
        ([3, 3, 5], [3, 3, 5], "two", 0, 1, False),
        ([1, 2, 3], [2, 3, 4], "two", -math.inf, 0, True),
        ([1, 2, 3], [2, 3, 4], "one", -math.inf, 1, False),
        ([1], [9], "two", math.nan, math.nan, False),
        ([4], [4], "two", 0, 1, False),
    ],
)
def test_differences_without_spread(a, b, sided, z, p_value, different):
    result = paired_z(a, b, sided=sided)
    assert (result.z, result.p_value) == pytest.approx((z, p_value), nan_ok=True)
    assert result.different == different


def test_pairing_beats_overlapping_intervals():
    mdps = np.random.default_rng(1).normal(30, 10, 500)
    better = mdps + 0.2
    assert paired_z(better + np.tile([-0.1, 0.1], 250), mdps).different


def test_unequal_sets_of_mdps_are_refused_with_the_reason():
    index = pd.MultiIndex.from_tuples([(0, 0), (0, 1), (0, 2)], names=["seed", "unit"])
    a = pd.Series([1.0, 2, 3], index=index, name="BEB")
    message = r"BEB \(3 env.*\(2 env.*1 of BEB are missing.*first is seed 0, unit 2;"
    with pytest.raises(JbrlError, match=message):
        paired_z(a, a.iloc[:2].rename("Random"))
    with pytest.raises(JbrlError, match="1 of BEB are missing from Random"):
        paired_z(a.iloc[:2].rename("Random"), a)
    with pytest.raises(JbrlError, match="not played on the same environments"):
        paired_z([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("a", "b", "options", "message"),
    [
        ([], [], {}, "first sample is empty"),
        ([1, math.nan], [1, 2], {}, "first sample: score nan of environment 1"),
        ([1, 2], [math.inf, 2], {}, "second sample: score inf of environment 0"),
        (pd.Series([1, 2], index=[7, 7]), [1, 2], {}, "environment 7 occurs twice"),
        ([1, 2], [1, 2], {"sided": "three"}, "'one' or 'two'"),
        ([1, 2], [1, 2], {"level": 1.0}, "between 0 and 1"),
        ([1, 2], [1, 2], {"level": 95}, "between 0 and 1"),
    ],
)
def test_bad_input(a, b, options, message):
    with pytest.raises(JbrlError, match=message):
        paired_z(a, b, **options)


@settings(max_examples=60)
@given(PAIRS)
def test_antisymmetric(pair):
    a, b = pair
    forth, back = paired_z(a, b), paired_z(b, a)
    assert forth.z == -back.z
    assert forth.p_value == back.p_value
    assert forth.different == back.different
    # One-sided: if a is better than b, b is not better than a.
    assert not (paired_z(a, b, sided="one").different and paired_z(b, a, sided="one").different)


@settings(max_examples=60)
@given(PAIRS, st.integers(-64, 64), st.sampled_from([0.5, 2.0, 8.0]))
def test_invariant_under_shift_and_scale(pair, shift, scale):
    a, b = pair
    plain, moved = paired_z(a, b), paired_z(scale * (a + shift), scale * (b + shift))
    assert moved.z == pytest.approx(plain.z, rel=1e-9, abs=1e-12)
    assert moved.difference == pytest.approx(scale * plain.difference, rel=1e-12, abs=1e-12)


@settings(max_examples=60)
@given(PAIRS, st.randoms(use_true_random=False))
def test_order_of_mdps_does_not_matter(pair, random):
    a, b = (pd.Series(x) for x in pair)
    shuffled = list(a.index)
    random.shuffle(shuffled)
    assert paired_z(a.loc[shuffled], b).z == pytest.approx(paired_z(a, b).z, rel=1e-9)


@settings(max_examples=60)
@given(PAIRS)
def test_different_if_and_only_if_p_is_small(pair):
    result = paired_z(*pair)
    assume(abs(result.p_value - 0.05) > 1e-9)
    assert result.different == (result.p_value < 0.05)


def test_false_alarms():
    # 2,000 tests of equal agents, N = 100: 5.2% alarms expected (Student against normal), standard
    # deviation 0.5 points; outside 3.5 ... 7 with probability below 0.001.
    rng = np.random.default_rng(0)
    alarms = np.mean([paired_z(*rng.normal(size=(2, 100))).different for _ in range(2000)])
    assert 0.035 < alarms < 0.07


MDPS = np.linspace(0, 10, 40)
WAVE = np.tile([-1.0, 1.0], 20)


def agents():
    """Means over 40 MDPs: BEB(2) 7, BEB(1) 6.9 noisy, PSRL 7 - 0.1 noisy, Random 5."""
    return {
        ("Random", "{}"): MDPS,
        ("BEB", '{"beta": 1.0}'): MDPS + 1.9 + WAVE,
        ("BEB", '{"beta": 2.0}'): MDPS + 2,
        ("PSRL", "{}"): MDPS + 1.9 - WAVE,
    }


def test_best_and_tied():
    ranked = best_and_tied(returns_of(agents()))
    assert list(zip(ranked["algorithm"], ranked["parameters"], strict=True)) == [
        ("BEB", '{"beta": 2.0}'),
        ("BEB", '{"beta": 1.0}'),
        ("PSRL", "{}"),
        ("Random", "{}"),
    ]
    assert list(ranked["best_of_algorithm"]) == [True, False, True, True]
    assert list(ranked["best"]) == [True, False, False, False]
    # d = 0.1 ± 1, N = 40: s_d = √(40 / 39), Z = 0.1 √39 = 0.6245
    assert list(ranked["tied"]) == [False, True, True, False]
    assert ranked["z"].iloc[1] == pytest.approx(0.1 * math.sqrt(39), rel=1e-9)
    assert ranked["difference"].iloc[2] == pytest.approx(-0.1, rel=1e-9)
    assert ranked["z"].iloc[0] == 0
    assert ranked["z"].iloc[3] > 1e6


def test_a_difference_does_not_hide_a_later_tie():
    # The second agent differs from the best by a constant, the third by more on average
    # but noisily.
    table = returns_of(
        {("a", "{}"): MDPS + 1, ("b", "{}"): MDPS + 0.95, ("c", "{}"): MDPS + 0.9 + WAVE}
    )
    ranked = best_and_tied(table)
    assert list(ranked["algorithm"]) == ["a", "b", "c"]
    assert list(ranked["tied"]) == [False, False, True]


def test_sided_moves_the_border():
    # Z = 1.8 lies between 1.645 and 1.96.
    table = returns_of({("a", "{}"): MDPS + WAVE + 1.8 / math.sqrt(39), ("b", "{}"): MDPS})
    assert not best_and_tied(table)["tied"].iloc[1]
    one, other = (rows["score"].reset_index(drop=True) for _, rows in table.groupby("algorithm"))
    told = [paired_z(one, other, sided=sided).different for sided in ("one", "two")]
    assert told == [True, False]


def test_single_algorithm_and_single_mdp():
    assert list(best_and_tied(returns_of({("a", "{}"): [1, 2]}))["best"]) == [True]
    samples = best_and_tied(returns_of({("a", "{}"): [1], ("b", "{}"): [2]}))
    assert list(samples["algorithm"]) == ["b", "a"]
    assert list(samples["tied"]) == [False, True]
    assert math.isnan(samples["z"].iloc[1])


def test_equal_means_keep_the_order_of_the_table():
    samples = best_and_tied(returns_of({("z", "{}"): [1, 2, 3], ("a", "{}"): [1, 2, 3]}))
    assert list(samples["algorithm"]) == ["z", "a"]
    assert list(samples["tied"]) == [False, True]


def test_refuses_other_mdps_and_several_experiments():
    table = pd.concat(
        [returns_of({("BEB", "{}"): [1, 2]}), returns_of({("Random", "{}"): [1, 2]}, seed=1)]
    )
    with pytest.raises(
        JbrlError, match=r"BEB \{\} .*Random \{\}.*same environments.*seed 0, unit 0"
    ):
        best_and_tied(table)
    both = pd.concat([returns_of(agents()), returns_of(agents(), experiment="Grid")])
    with pytest.raises(JbrlError, match=r"2 experiments \(GC, Grid\)"):
        best_and_tied(both)


RANDOM, OPTIMAL, AGENT = ("Random", "{}"), ("Optimal", "{}"), ("A", "{}")


def played(n=200, seed=0):
    rng = np.random.default_rng(seed)
    mdps = rng.gamma(4.0, 5.0, n)
    return {
        RANDOM: mdps + rng.normal(0, 2, n),
        OPTIMAL: 2 * mdps + rng.normal(0, 2, n),
        AGENT: 1.5 * mdps + rng.normal(0, 2, n),
    }


def row(table, who):
    return table.set_index(["algorithm", "parameters"]).loc[who]


def test_ends_and_order():
    shares = fractions(returns_of(played()), RANDOM, OPTIMAL)
    assert list(shares["algorithm"]) == ["Random", "Optimal", "A"]
    assert tuple(row(shares, RANDOM)[["fraction", "ci95"]]) == pytest.approx((0, 0), abs=1e-12)
    assert tuple(row(shares, OPTIMAL)[["fraction", "ci95"]]) == pytest.approx((1, 0), abs=1e-12)


def test_the_exact_ratio_where_there_is_no_noise():
    mdps = np.linspace(1, 9, 20)
    shares = fractions(
        returns_of({RANDOM: 0 * mdps, OPTIMAL: 2 * mdps, AGENT: 0.5 * mdps}), RANDOM, OPTIMAL
    )
    assert tuple(row(shares, AGENT)[["n", "fraction", "ci95"]]) == pytest.approx(
        (20, 0.25, 0), abs=1e-12
    )


def test_the_interval_agrees_with_the_bootstrap():
    samples = played()
    shares = row(fractions(returns_of(samples), RANDOM, OPTIMAL), AGENT)
    a, low, high = (samples[who] for who in (AGENT, RANDOM, OPTIMAL))
    draws = np.random.default_rng(1).integers(0, 200, (4000, 200))
    resampled = (a[draws].mean(1) - low[draws].mean(1)) / (high[draws].mean(1) - low[draws].mean(1))
    assert shares["fraction"] == pytest.approx((a.mean() - low.mean()) / (high.mean() - low.mean()))
    # 4000 draws: 1.1% standard error
    assert shares["ci95"] == pytest.approx(1.96 * resampled.std(ddof=1), rel=0.06)


def test_the_order_of_mdps_does_not_matter():
    returns = returns_of(played())
    groups, rng = returns.groupby("algorithm", sort=False), np.random.default_rng(0)
    shuffled = pd.concat([rows.sample(frac=1, random_state=rng) for _, rows in groups])
    shares, again = (fractions(table, RANDOM, OPTIMAL) for table in (returns, shuffled))
    pd.testing.assert_frame_equal(shares, again)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[r["algorithm"] != "Optimal"], r"no returns of Optimal \{\}"),
        (lambda r: r.iloc[:-1], r"A \{\} and Random were not played on the same environments"),
        (
            lambda r: r.assign(score=1.0),
            r"Optimal is not significantly better than Random \(Z = 0.00 over 200 environments\)",
        ),
        (lambda r: r[r["unit"] == 0], r"Z = nan over 1 environments"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(JbrlError, match=message):
        fractions(change(returns_of(played())), RANDOM, OPTIMAL)
