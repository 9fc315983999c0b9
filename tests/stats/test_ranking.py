"""The published method on data with known results, against the twin, and its properties."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.twins import evaluation as twin
from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation.game import Moves, bicgstab, equilibrium, moves, sides_of
from jbrl.stats.evaluation.propagation import payoff_bounds, payoff_t_intervals, propagate
from jbrl.stats.evaluation.ranking import Options, decisive_ends, evaluate, ranks, significant
from jbrl.stats.evaluation.samples import effort, payoffs, percentile, samples_of
from jbrl.stats.score_files import read_companion, read_score_table
from tests.stats.evaluation_cases import DATA, expected, mini, random_samples, table_of

EXACT = 1e-9
NEAR = {"check_exact": False, "rtol": 0, "atol": 1e-9}
RESIMULATED = {
    "q-parl2": 0.4941,
    "sarsa-parl2": 0.4405,
    "ac-parl2": 0.1528,
    "sarsa-scaled": 0.1002,
    "ac-scaled": 0.0882,
    "qlambda-scaled": 0.0872,
    "ac-normal": 0.0474,
    "sarsa-normal": 0.0454,
    "qlambda-normal": 0.0443,
    "nactd": 0.0417,
    "ppo": 0.0386,
}


@pytest.fixture(scope="module")
def mini_samples():
    return samples_of(mini())


def quantity(name: str, column: str = "algorithm") -> pd.Series:
    rows = expected().query("quantity == @name")
    return rows.set_index(column)["value"].astype(float)


# ---- known results ----


def test_point_estimate_of_the_closed_form_case(mini_samples):
    game = equilibrium(payoffs(mini_samples))
    assert game.scores == pytest.approx(quantity("score").to_numpy(), abs=EXACT)
    assert game.p == pytest.approx(quantity("p_star").to_numpy(), abs=EXACT)
    assert game.q.sum(axis=1) == pytest.approx(
        quantity("q_star_environment", "environment").to_numpy(), abs=EXACT
    )
    assert game.q.sum(axis=0) == pytest.approx(
        quantity("q_star_reference_algorithm").to_numpy(), abs=EXACT
    )


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(
    ("prefix", "quantile"), [("pbp", None), ("pbpt", "code"), ("pbpt_paperquantile", "paper")]
)
def test_interval_ends_of_the_closed_form_case(mini_samples, prefix, quantile, published):
    if quantile is None:
        low, high = payoff_bounds(mini_samples, 0.05)
    else:
        low, high = payoff_t_intervals(mini_samples, 0.05, quantile)
    lower, upper = propagate(low, high, mini_samples.same, published=published)
    assert lower == pytest.approx(quantity(f"{prefix}_lower").to_numpy(), abs=EXACT)
    assert upper == pytest.approx(quantity(f"{prefix}_upper").to_numpy(), abs=EXACT)


def test_tables_of_the_closed_form_case(mini_samples):
    evaluation = evaluate(mini_samples, ["pbp-t", "pbp"])
    assert evaluation.aggregate["method"].drop_duplicates().tolist() == ["pbp", "pbp-t"]
    for method, prefix in (("pbp", "pbp"), ("pbp-t", "pbpt")):
        rows = evaluation.aggregate[evaluation.aggregate["method"] == method].set_index("algorithm")
        for name in ("rank", "rank_best", "rank_worst"):
            assert rows[name].sort_index().tolist() == quantity(f"{prefix}_{name}").tolist()
    cells = expected().query("quantity == 'mean'")[["environment", "algorithm"]]
    rows = evaluation.environments.set_index(["environment", "algorithm"]).loc[
        list(cells.itertuples(index=False, name=None))
    ]
    names = {"mean": "mean", "lower": "mean_lower", "upper": "mean_upper", "rank": "env_rank"}
    for ours, theirs in names.items():
        assert rows[ours].to_numpy() == pytest.approx(quantity(theirs).to_numpy(), abs=EXACT)
    for end in ("best", "worst"):
        assert rows[f"rank_{end}"].tolist() == quantity(f"env_rank_{end}").tolist()
    assert evaluation.weights["weight"].sum() == pytest.approx(1, abs=EXACT)


def test_scores_of_the_resimulated_experiment():
    """Four digits as the reference computation printed them; 11 algorithms, 9 environments, sizes
    from 200 to 10,000.
    """
    pairs = read_companion(DATA / "identical.csv", ["environment", "algorithm", "algorithm"])
    identical = list(pairs.itertuples(index=False, name=None))
    table = read_score_table(DATA / "resimulated.parquet")

    def scores(rows, **options):
        samples = samples_of(rows, **options)
        values = equilibrium(payoffs(samples)).scores.round(4).tolist()
        return dict(zip(samples.algorithms, values, strict=True))

    assert scores(table, identical=identical) == RESIMULATED
    # not declared: no algorithm moves for that
    copy = table[table["algorithm"] == "q-parl2"].assign(algorithm="copy")
    more = scores(pd.concat([table, copy]), identical=identical)
    del more["copy"]
    assert sorted(more, key=more.get) == sorted(RESIMULATED, key=RESIMULATED.get)
    plain = scores(table, self_half=False)
    assert (plain["sarsa-parl2"], plain["ac-parl2"]) == (0.4524, 0.1622)


def test_ranks_of_the_published_tables():
    table = pd.read_csv(DATA / "expected.csv")
    for method in ("pbp", "pbpt", "bootstrap"):
        ends = [table[f"code_{method}_{end}"].to_numpy() for end in ("lower", "upper")]
        rank, best, worst = ranks(table["code_score"].to_numpy(), *ends)
        assert rank.tolist() == table["rank"].tolist()
        assert best.tolist() == table[f"code_{method}_rank_best"].tolist()
        assert worst.tolist() == table[f"code_{method}_rank_worst"].tolist()
    printed = pd.read_csv(DATA / "paper_environment_tables.csv")
    agree = 0
    for _, rows in printed.groupby("environment"):
        rank, best, worst = ranks(*(rows[c].to_numpy() for c in ("mean", "lower", "upper")))
        agree += (
            (rank == rows["rank"]) & (best == rows["rank_best"]) & (worst == rows["rank_worst"])
        ).sum()
    assert agree == 161  # of 165; the others are ties that come from rounding to one decimal


def test_ranks_with_ties_and_without_width():
    score = np.array([3.0, 3.0, 1.0])
    rank, best, worst = ranks(score, score, score)
    assert (rank.tolist(), best.tolist(), worst.tolist()) == ([1, 1, 3], [1, 1, 3], [1, 1, 3])
    lower, upper = np.array([2.0, 0.0, 0.0]), np.array([3.0, 2.5, 1.0])
    for unit in (1.0, 1e-12):
        assert significant(unit * lower, unit * upper).tolist() == [
            [False, False, True],
            [False, False, False],
            [True, False, False],
        ]
    assert [ends.tolist() for ends in decisive_ends(score, lower, upper)] == [
        [True, False, False],
        [False, False, True],
    ]
    assert not np.any(decisive_ends(score, score - 9, score + 9))
    published = pd.read_csv(DATA / "expected.csv")
    ends = decisive_ends(*(published[c].to_numpy() for c in ("score", "lower", "upper")))
    assert [published["algorithm"][e].tolist() for e in ends] == [
        ["sarsa-parl2", "q-parl2"],
        ["ac-parl2"],
    ]


# ---- the twin ----

CASES = [(0, 2, 2, 5), (1, 3, 2, 4), (2, 2, 3, 3), (3, 3, 1, None)]


@pytest.mark.parametrize(("seed", "n", "m", "values"), CASES)
@pytest.mark.parametrize("declared", [False, True])
def test_twin(seed, n, m, values, declared):
    raw = random_samples(seed, n, m, sizes=(12, 30), values=values)
    if declared:
        raw[1, 0] = raw[0, 0]
    pairs = [("E0", "A1", "A0")] if declared else []
    samples = samples_of(table_of(raw), identical=pairs)

    def same(i, j, k):
        return i == k or (declared and j == 0 and {i, k} == {0, 1})

    z = payoffs(samples)
    assert z == pytest.approx(twin.payoff(raw, n, m, same), abs=1e-12)
    scores, p, q = twin.solve(z)
    game = equilibrium(z)
    assert game.scores == pytest.approx(scores, abs=1e-11)
    assert game.p == pytest.approx(p, abs=1e-11)
    assert game.q == pytest.approx(q, abs=1e-11)
    ends = payoff_bounds(samples, 0.4)
    for ours, theirs in zip(ends, twin.anderson(raw, n, m, same, 0.4, samples.bounds), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("student", [False, True])
def test_policy_iteration_agrees_with_the_linear_programme(declared, student):
    raw = random_samples(7, 2, 2, sizes=(60, 90), values=9)
    if declared:
        raw[1, 0] = raw[0, 0]
    samples = samples_of(table_of(raw), identical=[("E0", "A0", "A1")] if declared else [])
    low, high = payoff_t_intervals(samples, 0.4) if student else payoff_bounds(samples, 0.5)

    def same(i, j, k):
        return i == k or (declared and j == 0)

    assert any((side.low < side.high).any() for side in sides_of(low, high, samples.same))
    lower, upper = propagate(low, high, samples.same)
    for i in range(2):
        assert upper[i] == pytest.approx(twin.bound(low, high, same, i, upper=True), abs=1e-9)
        assert lower[i] == pytest.approx(twin.bound(low, high, same, i, upper=False), abs=1e-9)


def test_elimination_gives_what_iteration_gives(mini_samples, monkeypatch):
    z = payoffs(mini_samples)
    games = equilibrium(z)
    game: Moves = moves(z)
    right = np.random.default_rng(0).normal(size=game.shape)
    matrix = np.stack([game.apply(row) for row in np.eye(right.size)], axis=1)
    assert game.solve(right).ravel() == pytest.approx(np.linalg.solve(matrix, right.ravel()))
    by_rows = np.stack([game.apply_transposed(row) for row in np.eye(right.size)])
    assert by_rows == pytest.approx(matrix, abs=1e-13)
    # GMRES, for where BiCGSTAB breaks down
    monkeypatch.setattr("jbrl.stats.evaluation.game.RESTARTS", 0)
    assert equilibrium(z).scores == pytest.approx(games.scores, abs=1e-12)


def rates_one_by_one(low, high, same, w):
    """κ - G as a matrix, move by move from the definition: the twin of `Moves`."""
    n, m, _ = low.shape
    B = n * m
    states = [(i, j, k) for i in range(n) for j in range(m) for k in range(n)]
    matrix = np.zeros((n * B, n * B))
    for s, (i, j, k) in enumerate(states):
        for t, (a, b, c) in enumerate(states):
            mine, theirs = (low[i, j, k], high[i, j, k]), (low[a, b, c], high[a, b, c])
            if s == t or (i != a and (j, k) != (b, c)):
                continue
            by_p = i != a
            mine, theirs = (
                (mine, theirs) if by_p else ((-mine[1], -mine[0]), (-theirs[1], -theirs[0]))
            )
            declared = same[i, j, a] if by_p else j == b and same[k, j, c]
            coincide = np.allclose(mine, theirs, rtol=1e-8, atol=0)
            exact = mine[0] == mine[1]
            if coincide and (exact or declared):
                rate = 1 / 50
            else:
                rate = float(theirs[0] > mine[1] or (theirs[1] >= mine[0] and w[t] > w[s]))
            matrix[s, t] -= rate
            matrix[s, s] += rate
    return matrix + np.eye(n * B) * (n + B - 2) / (n * B - 1)


@pytest.mark.parametrize("width", [0.0, 0.15, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_products_are_those_of_the_matrix(seed, width):
    rng = np.random.default_rng(seed)
    n, m = 4, 3
    z = rng.integers(0, 9, (n, m, n)) / 8
    wide = width * rng.integers(0, 2, z.shape)
    same = np.zeros((n, m, n), bool)
    same[:, :, :] = np.eye(n, dtype=bool)[:, None, :]
    same[0, 1, 1] = same[1, 1, 0] = True
    z[0, 1], wide[0, 1] = z[1, 1], wide[1, 1]
    z[:, 1, 0], wide[:, 1, 0] = z[:, 1, 1], wide[:, 1, 1]
    low, high = z - wide, z + wide
    w, x = rng.permutation(n * n * m) / 48.0, rng.normal(size=n * n * m)
    game = Moves.greedy((n, n * m), sides_of(low, high, same), w.reshape(n, -1))
    expected_matrix = rates_one_by_one(low, high, same, w)
    assert game.apply(x) == pytest.approx(expected_matrix @ x, abs=1e-11)


# ---- properties ----

tables = st.builds(
    random_samples,
    st.integers(0, 10**6),
    st.integers(2, 4),
    st.integers(1, 3),
    st.sampled_from([(2, 6), (10, 40)]),
    st.sampled_from([None, 2, 5]),
)
few = settings(max_examples=8)


@few
@given(tables, st.sampled_from([0.01, 0.05, 0.5]), st.booleans())
def test_intervals_contain_the_point_estimate(raw, delta, student):
    samples = samples_of(table_of(raw))
    z = payoffs(samples)
    low, high = payoff_t_intervals(samples, delta) if student else payoff_bounds(samples, delta)
    assert (low <= z + 1e-12).all() and (z <= high + 1e-12).all()
    scores = equilibrium(z).scores
    lower, upper = propagate(low, high, samples.same)
    assert (lower <= scores + 1e-9).all() and (scores <= upper + 1e-9).all()


@few
@given(tables, st.booleans())
def test_a_larger_delta_gives_narrower_intervals(raw, student):
    samples = samples_of(table_of(raw))
    of = payoff_t_intervals if student else payoff_bounds
    wide, narrow = (propagate(*of(samples, delta), samples.same) for delta in (0.01, 0.3))
    assert (wide[0] <= narrow[0] + 1e-9).all() and (narrow[1] <= wide[1] + 1e-9).all()


@few
@given(tables)
def test_a_monotone_change_of_an_environment_changes_nothing(raw):
    table = table_of(raw)
    first = table["environment"] == "E0"
    changed = table.assign(
        score=np.where(first, np.exp(table["score"] / 2) * 1000 - 5, table["score"])
    )
    before, after = (evaluate(samples_of(t)) for t in (table, changed))
    for name in ("aggregate", "weights"):
        pd.testing.assert_frame_equal(getattr(before, name), getattr(after, name), **NEAR)


@few
@given(tables, st.randoms(use_true_random=False))
def test_a_permutation_permutes_the_results(raw, random):
    table = table_of(raw)
    order = sorted(table["algorithm"].unique())
    random.shuffle(order)
    shuffled = table.iloc[np.argsort(table["algorithm"].map(order.index), kind="stable")].iloc[::-1]
    before, after = (evaluate(samples_of(t)) for t in (table, shuffled))
    left, right = (e.aggregate.sort_values("algorithm", ignore_index=True) for e in (before, after))
    pd.testing.assert_frame_equal(left, right, **NEAR)


def with_copy(table, name):
    """The table and a copy of one of its algorithms, declared to be the same definition."""
    copy = table[table["algorithm"] == name].assign(algorithm="copy")
    pairs = [(environment, name, "copy") for environment in table["environment"].unique()]
    return samples_of(pd.concat([table, copy], ignore_index=True), identical=pairs)


@few
@given(tables, st.integers(0, 3))
def test_a_copy_scores_what_its_original_scores_and_keeps_dominance(raw, which):
    """Without exception: an algorithm that is nowhere worse against anybody
    stays ahead.
    """
    table = table_of(raw)
    names = list(table["algorithm"].unique())
    name = names[which % len(names)]
    z, after = payoffs(samples_of(table)), equilibrium(payoffs(with_copy(table, name)))
    assert after.scores[-1] == pytest.approx(after.scores[names.index(name)], abs=1e-9)
    assert after.d.sum() == pytest.approx(1, abs=1e-9)
    for i in range(len(names)):
        for k in range(len(names)):
            if (z[i] >= z[k]).all():
                assert after.scores[i] >= after.scores[k] - 1e-9


apart = st.builds(
    random_samples,
    st.integers(0, 10**6),
    st.integers(3, 4),
    st.integers(2, 3),
    st.just((60, 120)),
    st.none(),
)


@few
@given(apart, st.integers(0, 3))
def test_a_copy_does_not_reorder_the_others(raw, which):
    """Ties are rare and scores 0.05 apart.

    It is no theorem: with two distinct scores in all, damping can reorder.
    """
    table = table_of(raw)
    names = list(table["algorithm"].unique())
    old = equilibrium(payoffs(samples_of(table))).scores
    new = equilibrium(payoffs(with_copy(table, names[which % len(names)]))).scores
    for i in range(len(names)):
        for k in range(len(names)):
            assert not old[i] > old[k] + 0.05 or new[i] > new[k]


# ---- details ----


def test_an_iteration_that_diverges_ends_without_a_warning():
    matrix, b = np.array([[0.0, 1e200], [1e-200, 0.0]]), np.array([1e160, 1.0])
    x = bicgstab(lambda v: matrix @ v, lambda v: 1e150 * v, b, np.zeros(2), 1, 0.0)
    np.testing.assert_array_equal(x, [0, 0])  # as before


def test_percentile_of_a_score():
    samples = samples_of(table_of({(0, 0): [1, 2, 3, 4], (1, 0): [3, 3]}))
    assert percentile(samples, "E0", 2.5) == 0.25
    assert percentile(samples, "E0", 3) == pytest.approx(0.875)
    assert percentile(samples, "E0", 0) == 0
    assert percentile(samples, "E0", 3, {"A0": 1.0}) == 0.75
    with pytest.raises(JbrlError, match="sum to 1"):
        percentile(samples, "E0", 3, {"A0": 0.5})
    with pytest.raises(JbrlError, match="unknown environment 'E1'"):
        percentile(samples, "E1", 3)


def test_zero_width_intervals_give_the_point_estimate(mini_samples):
    z = payoffs(mini_samples)
    lower, upper = propagate(z, z, mini_samples.same)
    assert lower == pytest.approx(equilibrium(z).scores, abs=1e-11)
    assert upper == pytest.approx(equilibrium(z).scores, abs=1e-11)


@pytest.mark.parametrize("shape", [(2, 2), (2, 7), (3, 2), (4, 1)])
def test_ends_of_constant_scores_meet_in_the_score(shape):
    cells = product(range(shape[0]), range(shape[1]))
    samples = samples_of(table_of(dict.fromkeys(cells, [1.0] * 5)))
    for ends in (payoff_bounds(samples, 0.05), payoff_t_intervals(samples, 0.05)):
        lower, upper = propagate(*ends, samples.same)
        assert (lower <= upper).all()
    rows = evaluate(samples, ["pbp", "pbp-t"]).aggregate
    assert (rows["lower"] <= rows["score"]).all() and (rows["score"] <= rows["upper"]).all()
    assert set(rows["rank"]) == set(rows["rank_worst"]) == {1}


def test_the_published_absolute_value_moves_lower_ends_up():
    """At ten samples the published PBP-t lower ends may lie above the point estimate: why its
    failure rate is 1.000 there.
    """
    generator = np.random.default_rng(0)
    raw = {(i, j): generator.normal(size=10) + 0.5 * i for i in range(4) for j in range(9)}
    samples = samples_of(table_of(raw))
    ends = payoff_t_intervals(samples, 0.05)
    scores = equilibrium(payoffs(samples)).scores
    assert (propagate(*ends, samples.same, published=True)[0] > scores).any()
    assert (propagate(*ends, samples.same)[0] < scores).all()


def test_true_bounds_widen_what_observed_ones_leave(mini_samples):
    wide = samples_of(mini(), bounds={"E0": (-10, 10), "E1": (-10, 10)})
    observed, true = (propagate(*payoff_bounds(s, 0.05), s.same) for s in (mini_samples, wide))
    assert (true[0] <= observed[0] + 1e-12).all() and (true[1] >= observed[1] - 1e-12).all()


TWO = {(0, 0): [1.0, 2.0], (1, 0): [0.0, 3.0]}


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ({(0, 0): [1.0]}, {}, r"one algorithm only \('A0'\)"),
        (
            TWO | {(0, 1): [1.0]},
            {},
            "'A1' has no score on environment 'E1': expected every algorithm on the same env",
        ),
        (TWO, {"bounds": {"E0": (0, 2.5)}}, r"'E0': score 3\.0 lies outside \[0, 2\.5\]"),
        (TWO, {"bounds": {"E9": (0, 5)}}, "environment 'E0' is missing"),
        (TWO, {"bounds": {"E0": (5, 0)}}, "expected low below high"),
        (TWO, {"identical": [("E0", "A0", "A7")]}, "unknown algorithm .*'A7'"),
    ],
)
def test_samples_that_are_refused(cells, options, message):
    with pytest.raises(JbrlError, match=message):
        samples_of(table_of(cells), **options)


@pytest.mark.parametrize(
    ("cells", "method", "options", "message"),
    [
        (TWO | {(1, 0): [1.0]}, "pbp-t", {}, r"pbp-t: .*'A1' has one sample on .*'E0'"),
        (TWO, "pbp", {"delta": 0}, r"delta = 0: expected a number above 0 up to 0\.5"),
        (TWO, "pbp", {"delta": 0.51}, r"delta = 0\.51"),
        (TWO, "pbp", {"delta": float("nan")}, "delta = nan"),
        (TWO, "bpb", {}, "unknown method 'bpb'; did you mean 'pbp'"),
        (TWO, "pbp-t", {"quantile": "t"}, "expected 'code' or 'paper'"),
    ],
)
def test_bad_input(cells, method, options, message):
    with pytest.raises(JbrlError, match=message):
        evaluate(samples_of(table_of(cells)), [method], Options(**options))


def test_what_is_small_but_legal():
    """One environment, one sample, all scores equal."""
    one = evaluate(samples_of(table_of({(0, 0): [1.0], (1, 0): [2.0]})))
    assert one.aggregate["algorithm"].tolist() == ["A1", "A0"]
    assert (one.aggregate["lower"] >= -1e-12).all() and (one.aggregate["upper"] <= 1 + 1e-12).all()
    equal = evaluate(
        samples_of(table_of({(i, j): [3.0, 3.0] for i in range(2) for j in range(2)})),
        ["pbp", "pbp-t"],
    )
    assert equal.aggregate["rank"].tolist() == [1] * 4


def test_a_bootstrap_takes_as_much_as_it_has_pairs_of_joint_strategies():
    one, other = (effort(n, m, 0, ["bootstrap"])[0] for n, m in ((2, 3), (4, 6)))
    assert (other.seconds / one.seconds, other.bytes / one.bytes) == pytest.approx((32, 32))
