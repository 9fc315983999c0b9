"""The search against a loop over all subsets in NumPy: same winners, same losses, whatever
the table.
"""

import dataclasses
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.twins import subset as twin
from jbrl.base.errors import JbrlError
from jbrl.stats.subset import kernel
from jbrl.stats.subset import problem as problems
from jbrl.stats.subset.fit import Folds, _leave_one_out, coefficients, fit_subset, shuffled
from jbrl.stats.subset.model import model_of, predict
from jbrl.stats.subset.preparation import Preparation, Prepared, prepare
from jbrl.stats.subset.problem import Problem, Search, candidates
from jbrl.stats.subset.robustness import (
    over_algorithms,
    over_resamples,
    over_seeds,
    per_environment,
    single_environments,
)
from jbrl.stats.subset.search import search, seed_spread
from tests import kept
from tests.stats.subset.tables import matrix, prepared_of, table_of

K = 3
GROUPS = tuple("uuvvvwwwwxxxyyzzzz")
LOOPED = (K, 1982, 1, None, False)  # folds, seed, repeats, assigned, pooled


@st.composite
def awkward(draw):
    """A prepared table with holes, copied, constant, zero and collinear columns; sums of integers,
    so that what is equal is exactly so.
    """
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    scores = np.round(64 * matrix(int(rng.integers(10**6)))) / 64
    kind = st.sampled_from(["copy", "constant", "zero", "sum", "double"])
    kinds = draw(st.lists(kind, max_size=2, unique=True))
    for kind, j in zip(kinds, (5, 4), strict=False):
        made = {
            "copy": scores[:, 0],
            "constant": 2.0,
            "zero": 0.0,
            "sum": scores[:, 0] + scores[:, 1],
            "double": 2 * scores[:, 2],
        }
        scores[:, j] = made[kind]
    target = scores.mean(1)
    scores[rng.random(scores.shape) < draw(st.sampled_from([0.0, 0.1, 0.2]))] = np.nan
    scores[0] = np.nan_to_num(scores[0], nan=1.0)  # the first algorithm is complete
    names = {f"a{i:02d}": value for i, value in enumerate(target)}
    return prepare(table_of(scores), Preparation(target=names))


def agrees(prepared: Prepared, chosen: Search, folds: tuple = LOOPED) -> None:
    """The best subset and its loss, the counts and the losses after it are those of the loop."""
    options = {name: getattr(chosen, name) for name in ("intercept", "non_negative", "min_rows")}
    losses = twin.search(
        prepared.features, prepared.target, chosen.size, chosen.criterion, folds, **options
    )
    forced = {prepared.column(name) for name in chosen.force_in}
    losses = {c: loss for c, loss in losses.items() if forced <= set(c)}
    finite = {c: loss for c, loss in losses.items() if np.isfinite(loss)}
    if not finite:
        with pytest.raises(JbrlError, match="can be fitted"):
            search(prepared, chosen)
        return
    outcome = search(prepared, chosen)
    least = min(finite.values())
    assert outcome.best.loss == pytest.approx(least, rel=1e-9, abs=1e-20)
    tied = [c for c, loss in finite.items() if loss <= least * (1 + 1e-9) + 1e-20]
    assert tuple(sorted(outcome.best.columns)) in tied
    if not forced:
        assert outcome.best.columns == min(tied)
    assert outcome.counts["evaluated"] == len(finite)
    assert outcome.counts["total"] == len(losses) and outcome.counts["tied"] >= 0
    assert outcome.counts["singular"] + outcome.counts["skipped"] == len(losses) - len(finite)
    expected = sorted(finite.values())[1 : 1 + len(outcome.next)]
    np.testing.assert_allclose([fit.loss for fit in outcome.next], expected, rtol=1e-9, atol=1e-20)
    assert all(np.isfinite(fit.loss) for fit in outcome.next)


@pytest.mark.parametrize("offset", [1e5, 1e6])
def test_what_all_scores_have_in_common_makes_no_columns_dependent(offset):
    scores = matrix(3) + offset
    names = {f"a{i:02d}": value for i, value in enumerate(scores.mean(1))}
    prepared = prepare(table_of(scores), Preparation(target=names))
    for intercept in (False, True):
        chosen = Search(2, "in-sample", intercept=intercept)
        outcome = search(prepared, chosen)
        arguments = (prepared.features, prepared.target, prepared.environments)
        losses = {
            pair: fit_subset(*arguments, pair, Folds(K), intercept=intercept).mse
            for pair in itertools.combinations(range(scores.shape[1]), 2)
        }
        assert outcome.counts["singular"] == 0
        assert outcome.best.columns == min(losses, key=losses.get)


# A row that alone determines a coefficient has no closed form in leave-one-out: seldom, and then
# the subset is singular in both.
@pytest.mark.parametrize(
    "criterion", [pytest.param("kfold", marks=pytest.mark.slow), "in-sample", "loo"]
)
@settings(max_examples=5)
@given(awkward(), st.booleans(), st.sampled_from([6, 12]))
def test_each_criterion_is_the_loop(criterion, prepared, intercept, min_rows):
    agrees(prepared, Search(2, criterion, Folds(K), min_rows=min_rows, intercept=intercept))


def mirrored(prepared):
    """Weights of the wrong sign: such a target makes some of them 0."""
    target = prepared.target - 2 * prepared.target.mean() * (np.arange(18) % 2)
    return dataclasses.replace(prepared, target=target)


@settings(max_examples=5)
@given(awkward(), st.booleans())
def test_non_negative_is_the_loop(prepared, kfold):
    criterion = "kfold" if kfold else "in-sample"
    agrees(mirrored(prepared), Search(2, criterion, Folds(K), non_negative=True, min_rows=6))


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("search_options", "folds", "looped"),
    [
        ({"force_in": ("C",)}, Folds(K, seed=5, repeats=2), (K, 5, 2, None, False)),
        ({"force_in": ("C",), "intercept": True}, Folds(K), LOOPED),
        ({"force_in": ("C",), "non_negative": True}, Folds(K), LOOPED),
        ({}, Folds(K, seed=5, repeats=2, pooled=True), (K, 5, 2, None, True)),
    ],
    ids=["forced, repeats", "forced, intercept", "forced, non-negative", "pooled, repeats"],
)
def test_options_are_the_loop(search_options, folds, looped):
    chosen = Search(2, "kfold", folds, min_rows=6, **search_options)
    agrees(prepared_of(matrix(3, holes=0.1)), chosen, looped)


def test_grouped_folds_hold_out_whole_groups():
    folds = Folds(K, groups=GROUPS, pooled=True)
    assigned = folds.of_rows(np.arange(18))[0]
    assert all(len(set(assigned[np.array(GROUPS) == group])) == 1 for group in GROUPS)
    chosen = Search(2, "kfold", folds, min_rows=6)
    agrees(prepared_of(matrix(4, holes=0.1)), chosen, (K, 1982, 1, assigned, True))


@pytest.mark.parametrize(
    ("criterion", "options"),
    [
        ("kfold", {"force_in": ("B",), "intercept": True, "non_negative": True}),
        ("loo", {"intercept": True}),
    ],
)
def test_losses_with_and_without_tables(criterion, options):
    """Tables with too many sets of rows are not made: subsets sum up their own normal equations."""
    chosen = Search(2, criterion, Folds(K), min_rows=6, **options)
    problem = candidates(mirrored(prepared_of(matrix(5, holes=0.15))), chosen)
    subsets = np.array(list(itertools.combinations(range(len(problem.free)), 2)))
    with_tables, without = (
        problem.compiled(2, tables=tables).of_subsets(subsets) for tables in (True, False)
    )
    assert np.isfinite(without.loss).sum() > 5
    np.testing.assert_allclose(without.loss, with_tables.loss, rtol=1e-9)


@pytest.mark.parametrize("loss", ["in-sample", "kfold", "loo"])
def test_there_are_as_many_tables_as_memory_may_hold(loss, monkeypatch):
    asked, folds = [], Folds(K, repeats=2)
    monkeypatch.setattr(problems, "row_masks", lambda *given: asked.append(given[-1]))
    given = matrix(5, m=9, n=4), np.zeros((9, 0)), np.ones(9, bool)
    assert problems.make(*given, 2, loss, folds) is None
    train, held, _, rows, _ = problems._table(*given, loss, folds)
    assert asked == [int(problems.BYTES / (train.nbytes + held.nbytes + rows.nbytes))]


def test_sets_of_rows_by_hand():
    """All three rows, or two, or the first; one column leads from all to two."""
    observed, start = np.array([[1, 1], [0, 1], [1, 0]], bool), np.ones(3, bool)
    masks, following = problems.row_masks(observed, start, 2, 4)
    assert sorted(map(sum, masks.tolist())) == [1, 2, 2, 3] and masks[0].all()
    for mask, after in zip(masks, following, strict=True):
        np.testing.assert_array_equal(masks[after], mask & observed.T)
    assert len(problems.row_masks(observed, start, 1, 3)[0]) == 3
    assert problems.row_masks(observed, start, 2, 3) is None


@pytest.mark.parametrize(
    ("second", "t", "expected"),
    [
        (1, [1, 3], 4),  # 2 is off by 1 twice, by 2 if the row is left out
        (0, [1, 0], math.nan),
        (3e-5, [1, 0], math.nan),  # 1 - h = 9e-10
        (4e-5, [1, 0], 0.5),  # 1.6e-9: without the first row it is 0
    ],
)
def test_a_row_of_leverage_one_cannot_be_left_out(second, t, expected):
    a, t = np.array([[1], [second]]), np.array(t)
    error = t - a @ np.linalg.lstsq(a, t)[0]
    found = _leave_one_out(a, t, a, error, {"non_negative": False})
    assert found == pytest.approx(expected, rel=1e-5, nan_ok=True)


@pytest.mark.slow
def test_any_chunk_gives_the_same():
    prepared = prepared_of(matrix(6, m=12, n=20, holes=0.05))
    outcomes = [
        search(prepared, Search(4, "in-sample", min_rows=6, chunk=chunk, top=50))
        for chunk in (3000, 2**18)
    ]
    for other in outcomes[1:]:
        assert [fit.columns for fit in other.next] == [fit.columns for fit in outcomes[0].next]
        assert other.counts == outcomes[0].counts and other.quantiles == outcomes[0].quantiles


def test_progress_counts_to_the_end():
    told: list[tuple[int, int]] = []
    found = search(
        prepared_of(matrix(6, m=12, n=20)),
        Search(4, "in-sample", min_rows=6, chunk=3000, top=100),
        progress=lambda *n: told.append(n),
    )
    parts = {"places": [fit.columns for fit in found.next], "counts": found.counts}
    parts["quantiles"] = found.quantiles
    kept.compare("search of 4,845 subsets", {name: str(part) for name, part in parts.items()})
    assert told == [(3072, 4845), (4845, 4845)]


def test_numbers_of_subsets_are_a_bijection():
    n, size = 9, 4
    with kernel.jax.enable_x64(True):
        table = kernel.jnp.asarray(kernel.binomials(n, size))
        members = np.asarray(kernel.unrank(kernel.jnp.arange(math.comb(n, size)), table))
    assert sorted(map(tuple, members)) == list(itertools.combinations(range(n), size))


def test_order_of_rows_and_names_of_other_algorithms_do_not_matter():
    scores = matrix(7, holes=0.1)
    table = table_of(scores)
    shuffled = table.sample(frac=1, random_state=3)
    chosen = Search(2, "kfold", Folds(K), min_rows=6)
    preparation = Preparation(target="mean")
    first, second = (search(prepare(t, preparation), chosen) for t in (table, shuffled))
    assert first.best.subset == second.best.subset and first.best.loss == second.best.loss


def test_the_place_of_a_subset_counts_those_that_are_better():
    prepared = prepared_of(matrix(8))
    chosen = Search(2, "kfold", Folds(K), min_rows=6, top=14)
    outcome = search(prepared, chosen, asked=(("E", "B"),))
    ranking = [set(fit.subset) for fit in (outcome.best, *outcome.next)]
    assert outcome.better == {("E", "B"): ranking.index({"B", "E"})}


def test_shortlist_is_the_published_rule():
    prepared = prepared_of(matrix(9))
    chosen = Search(2, "kfold", Folds(K), min_rows=6, top=14)
    every = search(prepared, chosen)
    fits = sorted((every.best, *every.next), key=lambda fit: fit.mse)[:4]
    short = search(prepared, dataclasses.replace(chosen, shortlist=4))
    assert [fit.subset for fit in (short.best, *short.next)] == [
        fit.subset for fit in sorted(fits, key=lambda fit: fit.cv_mse)
    ]


def test_forward_selection_finds_what_is_there():
    scores = matrix(10, n=8)
    target = {f"a{i:02d}": scores[i, 2] + 2 * scores[i, 6] for i in range(18)}
    prepared = prepare(table_of(scores), Preparation(target=target))
    outcome = search(prepared, Search(2, "in-sample", min_rows=6, heuristic=True))
    assert outcome.best.subset == ("C", "G")
    np.testing.assert_allclose(outcome.best.coefficients, [1, 2], rtol=1e-9)


def test_forward_selection_exchanges_what_was_best_alone():
    """A is nearer to the target than any other column, and not needed where C and G are there."""
    scores = matrix(10, n=8)
    target = scores[:, 2] + 2 * scores[:, 6]
    scores[:, 0] = target - scores[:, 6] / 2 + 0.02 * np.random.default_rng(1).normal(size=18)
    names = {f"a{i:02d}": value for i, value in enumerate(target)}
    prepared = prepare(table_of(scores), Preparation(target=names))
    alone, both = (
        search(prepared, Search(size, "in-sample", min_rows=6, heuristic=True)).best.subset
        for size in (1, 2)
    )
    assert (alone, both) == (("A",), ("C", "G"))


def test_each_repeat_has_folds_of_its_own():
    rows = np.arange(12)
    folds = Folds(3, seed=5, repeats=2).of_rows(rows)
    assert (folds[0] != folds[1]).any()
    for repeat, seed in zip(folds, (5, 6), strict=True):
        np.testing.assert_array_equal(repeat, Folds(3, seed=seed).of_rows(rows)[0])


def test_rows_common_and_imputed():
    prepared = prepared_of(matrix(11, holes=0.04))
    common = search(prepared, Search(2, "in-sample", rows="common"))
    complete = int((~np.isnan(prepared.features).any(1)).sum())
    assert common.best.n == complete < 18
    assert {fit.n for fit in common.next} == {complete}
    assert search(prepared, Search(2, "in-sample", rows="impute")).best.n == 18
    grouped = search(prepared, Search(2, folds=Folds(K, groups=GROUPS), rows="common", min_rows=6))
    kept = common.prepared.algorithms
    groups = tuple(GROUPS[prepared.algorithms.index(name)] for name in kept)
    plain = search(common.prepared, Search(2, folds=Folds(K, groups=groups), min_rows=6))
    assert [fit.loss for fit in grouped.next] == [fit.loss for fit in plain.next]
    assert over_algorithms(grouped, parts=3).honest_n == complete


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.booleans())
@example(0, True)
def test_non_negative_weights_with_intercept_are_optimal(seed, intercept):
    # The conditions of Karush, Kuhn and Tucker, which are sufficient: the gradient vanishes where a
    # weight is positive, and is not negative where it is 0.
    rng = np.random.default_rng(seed)
    a, t = rng.normal(0, 1, (12, 4)), rng.normal(0, 1, 12)
    b, b0 = coefficients(a, t, intercept=intercept, non_negative=True)
    gradient = a.T @ (a @ b + b0 - t)
    assert (b >= 0).all() and (gradient > -1e-9).all() and abs(gradient @ b) < 1e-9
    assert not intercept or abs((t - a @ b - b0).sum()) < 1e-9


def test_leaving_one_out_is_having_as_many_folds_as_rows():
    prepared = mirrored(prepared_of(matrix(2)))
    given = prepared.features, prepared.target, prepared.environments, (0, 1), Folds(18)
    for non_negative in (False, True):
        fit = fit_subset(*given, non_negative=non_negative)
        assert fit.loo_mse == pytest.approx(fit.cv_mse)
        again = fit_subset(*given[:-1], Folds(18, repeats=3), non_negative=non_negative)
        assert again.cv_predictions == pytest.approx(fit.cv_predictions)
        assert again.cv_mse == pytest.approx(fit.cv_mse)
    scores, target, *rest = given
    nothing = fit_subset(0 * scores, target, *rest)  # weighs nothing, and predicts 0
    assert nothing.loo_mse == pytest.approx(np.mean(target**2)) == nothing.cv_mse
    twice = fit_subset(scores[:, [0, 0]], target, *rest)
    assert twice.loo_mse == pytest.approx(twice.cv_mse)


def test_other_folds_choose_by_each_and_by_all_together():
    prepared = prepared_of(matrix(18, holes=0.05))
    rules = Search(2, "kfold", Folds(K), min_rows=6, top=20)
    outcome, sums, winners, losses = search(prepared, rules), Counter(), Counter(), []
    choice = over_seeds(outcome, seeds=4)
    for seed in range(4):
        found = search(prepared, dataclasses.replace(rules, folds=Folds(K, seed)))
        winners[found.best.subset] += 1
        own = {fit.subset: fit.loss for fit in (found.best, *found.next)}
        sums.update(own)
        losses.append(own[outcome.best.subset])
    assert choice.winners == winners and choice.repeats == 4
    assert seed_spread(outcome, seeds=4) == pytest.approx(np.std(losses, ddof=1))
    assert choice.first == min(sums, key=sums.__getitem__)
    in_sample = search(prepared, dataclasses.replace(rules, criterion="in-sample"))
    assert choice.first != in_sample.best.subset


def test_the_bootstrap_of_the_choice_is_a_search_on_each_resample():
    prepared = prepared_of(matrix(3, holes=0.05))
    outcome = search(prepared, Search(2, "kfold", Folds(K), min_rows=6))
    told: list[tuple[int, int]] = []
    choice = over_resamples(outcome, resamples=5, seed=1, progress=lambda *n: told.append(n))
    rng, m, expected, squares = np.random.default_rng(1), len(prepared.algorithms), [], []
    for _ in range(5):
        rows = np.sort(rng.integers(0, m, m))
        options = {"intercept": False, "non_negative": False, "min_rows": 6}
        losses = twin.search(
            prepared.features[rows], prepared.target[rows], 2, "in-sample", LOOPED, **options
        )
        best = min(
            (c for c, loss in losses.items() if np.isfinite(loss)), key=lambda c: (losses[c], c)
        )
        expected.append(tuple(prepared.environments[c] for c in best))
        a, t = prepared.features[:, best], prepared.target
        whole = ~np.isnan(a).any(1)
        drawn = rows[whole[rows]]
        weights = np.linalg.lstsq(a[drawn], t[drawn], rcond=None)[0]
        out = whole & ~np.isin(np.arange(m), rows)
        squares += list((t - a @ weights)[out] ** 2)
    assert sorted(choice.winners.elements()) == sorted(expected)
    assert choice.repeats == 5 and choice.honest_n == len(squares)
    assert choice.honest_mse == pytest.approx(np.mean(squares), rel=1e-9)
    assert told[-1] == (5, 5)


def test_each_environment_is_a_predictor_and_is_predicted():
    prepared = prepared_of(matrix(3, m=12))
    a, t = prepared.features, prepared.target
    table = single_environments(prepared, Folds(K)).set_index("environment")
    assert (np.diff(table["r2"]) <= 0).all() and len(table) == a.shape[1]
    for j, name in enumerate(prepared.environments):
        slope, intercept = np.polyfit(a[:, j], t, 1)
        alone, r = a[:, j] @ t / (a[:, j] @ a[:, j]), np.corrcoef(a[:, j], t)[0, 1]
        r2_alone = 1 - ((t - alone * a[:, j]) ** 2).sum() / ((t - t.mean()) ** 2).sum()
        found = table.loc[name, ["n", "intercept", "slope", "r2", "slope_alone", "r2_alone"]]
        expected = [12, intercept, slope, r**2, alone, r2_alone]
        np.testing.assert_allclose(found.astype(float), expected, rtol=1e-9)
        assert table.loc[name, "pearson"] == pytest.approx(r)
    table = per_environment(prepared, (0, 2), Folds(K))
    assert list(table["in_subset"]) == [True, False, True, False, False, False]
    for j, row in enumerate(table.to_dict("records")):
        for suffix, ones in (("no_intercept", 0), ("intercept", 1)):
            design = np.column_stack([a[:, [0, 2]], np.ones((12, ones))])
            errors = a[:, j] - design @ np.linalg.lstsq(design, a[:, j], rcond=None)[0]
            sse, tss = (errors**2).sum(), ((a[:, j] - a[:, j].mean()) ** 2).sum()
            r2 = 1 - sse / tss
            adjusted = 1 - (1 - r2) * 11 / (12 - 2 - ones)
            found = [row[f"{name}_{suffix}"] for name in ("sse", "r2", "adj_r2")]
            np.testing.assert_allclose(found, [sse, r2, adjusted], rtol=1e-9, atol=1e-9)
            assert row["tss"] == pytest.approx(tss) and row["n"] == 12
            assert row[f"cv_r2_{suffix}"] == 1 if j in (0, 2) else row[f"cv_r2_{suffix}"] < r2
    a[3:, 4] = np.nan  # as many rows as parameters with an intercept
    few = per_environment(prepared, (0, 2), Folds(2)).to_dict("records")[4]
    assert few["n"] == 3 and few["r2_no_intercept"] < 1 and np.isnan(few["adj_r2_intercept"])
    a[:, 5] = a[0, 5]  # nothing to explain
    (last,) = per_environment(prepared, (0, 2), Folds(K)).tail(1).to_dict("records")
    assert last["tss"] == 0 and np.isnan([last["r2_intercept"], last["sse_no_intercept"]]).all()


@pytest.mark.parametrize("intercept", [False, True])
def test_predictions_are_those_of_the_linear_model(intercept):
    """Its prediction interval by hand; whatever the order of the model's environments."""
    prepared, columns = prepared_of(matrix(3, m=12)), (1, 3)
    names = tuple(prepared.environments[c] for c in columns)
    fit = fit_subset(*prepared.data, columns, Folds(K), intercept=intercept)
    model = model_of(prepared, fit, intercept=intercept)
    new = matrix(4, m=3)
    scores = table_of(new)
    found = predict(model, scores).set_index("algorithm")
    a, t, x = (
        np.column_stack([v[:, columns], np.ones((len(v), int(intercept)))])
        for v in (prepared.features, prepared.target[:, None].repeat(6, 1), new)
    )
    t = t[:, 0]
    weights, squares, *_ = np.linalg.lstsq(a, t, rcond=None)
    free = len(t) - a.shape[1]
    leverage = np.einsum("ij,jk,ik->i", x, np.linalg.inv(a.T @ a), x)
    half = stats.t.ppf(0.975, free) * np.sqrt(squares[0] / free * (1 + leverage))
    for i, name in enumerate(("a00", "a01", "a02")):
        one, y = found.loc[name], x[i] @ weights
        expected = [y, y - half[i], y + half[i], leverage[i]]
        np.testing.assert_allclose(
            one[["estimate", "lower", "upper", "leverage"]].astype(float), expected, rtol=1e-8
        )
        outside = ((x[i] < a.min(0)) | (x[i] > a.max(0))).sum()
        assert one["warnings"].count("is outside the range of the fit") == outside
        far = leverage[i] > np.einsum("ij,jk,ik->i", a, np.linalg.inv(a.T @ a), a).max()
        assert ("farther out than any" in one["warnings"]) == far
    turned = dataclasses.replace(
        model,
        environments=model.environments[::-1],
        coefficients=model.coefficients[::-1],
        scale=prepared.scale.only(np.array(columns[::-1])),
        gram_inverse=model.gram_inverse if intercept else model.gram_inverse[::-1, ::-1],
        ranges=model.ranges[::-1],
    )
    estimates = predict(turned, scores).set_index("algorithm")["estimate"]
    np.testing.assert_allclose(estimates, found["estimate"])
    with pytest.raises(JbrlError, match=f"'a02' has no score in {names[1]}"):
        predict(model, scores[scores["environment"] != names[1]])


@pytest.mark.parametrize("intercept", [False, True])
def test_each_part_of_the_algorithms_is_predicted_from_the_others(intercept):
    prepared = prepared_of(matrix(3, m=12))
    outcome = search(prepared, Search(2, "kfold", Folds(K), min_rows=6, intercept=intercept))
    choice = over_algorithms(outcome, parts=3, seed=1)
    part, winners, squares, spread = shuffled(12, 3, 1), [], 0.0, 0.0
    for number in range(3):
        out, a, t = part == number, prepared.features, prepared.target
        options = {"intercept": intercept, "non_negative": False, "min_rows": 4}
        losses = twin.search(a[~out], t[~out], 2, "loo", LOOPED, **options)
        best = min(losses, key=lambda c: losses[c])
        design = np.column_stack([a[:, best], np.ones((12, int(intercept)))])
        weights = np.linalg.lstsq(design[~out], t[~out], rcond=None)[0]
        squares += ((t - design @ weights)[out] ** 2).sum()
        spread += ((t[out] - t[~out].mean()) ** 2).sum()
        winners.append(tuple(prepared.environments[c] for c in best))
    assert sorted(choice.winners.elements()) == sorted(winners)
    assert (choice.repeats, choice.honest_n) == (3, 12)
    assert choice.honest_mse == pytest.approx(squares / 12, rel=1e-9)
    assert choice.honest_r2 == pytest.approx(1 - squares / spread, rel=1e-9)


def test_another_criterion_counts_rows_as_before():
    scores = table_of(matrix(0, m=10, n=4), list("ABCD"))
    prepared = prepare(scores, Preparation(target="mean"))
    k = len(prepared.algorithms) - 1
    problem = Problem(prepared, Search(1, "kfold", Folds(k)), (0, 1), ())
    by = problem.by("in-sample")
    assert by.settings.criterion == "in-sample" and by.min_rows == problem.min_rows == k
