"""From scores to predictors and target: summaries, scales, transforms, thresholds, and what
is refused.
"""

import dataclasses
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.problems.lookup import problem
from jbrl.stats.score_files import read_score_table
from jbrl.stats.subset.model import _doubts, load, predict
from jbrl.stats.subset.preparation import ATARI5, Preparation, prepare
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.search import search
from jbrl.stats.subset.transform import transform_of
from tests.stats.subset.tables import matrix, prepared_of, table_of

SCORES = np.array([[1.0, 2, 3, 10], [4, 4, 4, 5], [0, 1, 2, 3], [9, 8, 7, 6]])
CONSTANT = np.column_stack([SCORES, np.ones(4)])
NAMES = ("a00", "a01", "a02", "a03")
REFERENCES = pd.DataFrame(
    {"environment": ["B", "A", "D", "C"], "low": [0.0, 0, 0, 0], "high": [10.0, 10, 20, 5]}
)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("median", [2.5, 4, 1.5, 7.5]),
        ("mean", [4, 4.25, 1.5, 7.5]),
        ("iqm", [2.5, 4, 1.5, 7.5]),
        (np.max, [10, 5, 3, 9]),
        ("gap", [0, 0, 0.25, 0]),  # what is missing to 1, of 0, 1, 2, 3
    ],
)
def test_summaries_by_hand(target, expected):
    np.testing.assert_allclose(prepared_of(SCORES, target=target).target, expected)


def test_references_give_per_cent_and_the_order():
    prepared = prepare(table_of(SCORES), Preparation("references", "log10", "mean"), REFERENCES)
    assert prepared.environments == ("B", "A", "D", "C")
    np.testing.assert_allclose(prepared.normalised[0], [20, 10, 50, 60])
    np.testing.assert_allclose(prepared.features[0], np.log10([21, 11, 51, 61]))
    np.testing.assert_allclose(prepared.target[0], np.log10(36))
    np.testing.assert_allclose(prepared.target_transform.inverse(prepared.target), prepared.summary)


def test_transform_before_or_after_the_summary():
    options = {"transform": "log10", "target": "mean"}
    after = prepared_of(SCORES, **options)
    before = prepared_of(SCORES, **options, transform_first=True)
    np.testing.assert_allclose(after.target, np.log10(1 + SCORES.mean(1)))
    np.testing.assert_allclose(before.target, np.log10(1 + SCORES).mean(1))
    np.testing.assert_allclose(
        before.target, prepared_of(SCORES, transform="log10", target="meanlog").target
    )


def test_other_scales_and_ranks():
    np.testing.assert_allclose(
        prepared_of(SCORES, normalise="min-max").normalised[:, 0], [1 / 9, 4 / 9, 0, 1]
    )
    z = prepared_of(SCORES, normalise="z-score").normalised
    np.testing.assert_allclose((z.mean(0), z.std(0)), (np.zeros(4), np.ones(4)), atol=1e-12)
    ranks = prepared_of(SCORES, transform="rank", target="mean")
    np.testing.assert_allclose(ranks.features[:, 0], [0.5, 0.75, 0.25, 1])
    np.testing.assert_allclose(ranks.target_transform.inverse(ranks.target), SCORES.mean(1))


def test_transforms_of_negative_and_of_tied_scores_by_hand():
    """A negative score counts as 0; of ranks as shares, tied scores have the mean."""
    values = np.array([-5.0, 0.0, 99.0])
    np.testing.assert_allclose(transform_of("log10", values).forward(values), [0, 0, 2])
    ties = np.array([1.0, 2.0, 2.0, 3.0, np.nan])
    ranks = transform_of("rank", ties).forward(ties)
    np.testing.assert_allclose(ranks, [0.25, 0.625, 0.625, 1, np.nan])


def test_thresholds_once_or_until_stable():
    scores = matrix(1, m=8, n=4)
    scores[0, 1:] = np.nan  # one environment
    scores[1:4, 3] = np.nan
    once = prepared_of(scores, min_environments=2, min_algorithms=5)
    assert "a00" in once.dropped and once.usable.tolist() == [True, True, True, False]
    with pytest.raises(JbrlError, match=r"expected at least 3|no environment"):
        prepared_of(scores, min_environments=4, min_algorithms=5, until_stable=True)
    # without D, a00 has but C; without a00, C too few; without C, a07 but A
    scores = matrix(1, m=8, n=4)
    scores[0, :2] = scores[1:4, 2:] = scores[7, [1, 3]] = np.nan
    once, stable = (
        prepared_of(scores, min_environments=2, min_algorithms=5, until_stable=until)
        for until in (False, True)
    )
    assert (once.dropped, once.usable.tolist()) == ({}, [True, True, True, False])
    assert stable.dropped == dict.fromkeys(("a00", "a07"), "fewer than 2 environments")
    assert stable.usable.tolist() == [True, True, False, False]


def test_atari_5_wants_forty_of_each():
    """Aitchison et al. 2022: 40 environments of an algorithm, 40 algorithms of an environment, and
    a median above 40 %.
    """
    scores = matrix(3, m=43, n=42) + 100
    scores[40, :2] = scores[0, 2] = scores[:2, 3] = np.nan  # 40 of each but the last
    scores[41, :3] = np.nan  # 39
    scores[42], scores[39] = 40, 41
    plain = dataclasses.replace(ATARI5, normalise="none")
    left = prepare(table_of(scores, [f"e{j:02d}" for j in range(42)]), plain)
    assert set(left.dropped) == {"a41", "a42"} and "a40" in left.algorithms
    assert np.flatnonzero(~left.usable).tolist() == [3]


def test_names_order_copies_and_constants_are_told():
    scores = matrix(2, m=6, n=5)
    scores[1] = scores[0] * 1.02  # too far away
    scores[2, :2] = 0
    scores[3] = scores[2] * [1, 1, 1.5, np.nan, 1]
    scores[:, 4] = 7
    table = table_of(scores).replace({"a05": "A04"})
    notes = " | ".join(prepare(table, Preparation(target="mean")).warnings)
    assert "'A04' and 'a04' differ only in blanks" in notes
    assert "environment 'E' has the same score" in notes
    text = "'a02' and 'a03' agree within 1 % in 3 of 4 environments: one algorithm twice?"
    assert text in notes and notes.count("one algorithm twice") == 1
    scores[:] = scores[4] * np.linspace(1, 1.01004, 6)[:, None]
    *_, text = prepare(table_of(scores), Preparation(target="mean")).warnings
    assert text == "12 more pairs of algorithms agree as closely"
    scores[3:] *= np.array([[2], [4], [8]])
    *_, text = prepare(table_of(scores), Preparation(target="mean")).warnings
    assert text.startswith("'a01' and 'a02' agree")  # three pairs, all of them named


@pytest.mark.parametrize(
    ("a", "b", "leverage", "doubt"),
    [
        (0.0, 2.0, 0.5, None),
        (0.0, 2.0, 0.6, "extrapolation: this combination of scores is farther out than any in the"),
        (0.0, 2.1, 0.5, "extrapolation: B is outside the range of the fit"),
        (0.0, 0.9, 0.5, "extrapolation: B is outside the range of the fit"),
        (-0.1, 2.0, 0.5, "A is below its low reference and counts as equal to it"),
    ],
)
def test_doubts_about_a_prediction(a, b, leverage, doubt):
    names, ranges = ("A", "B"), ((-1.0, 1.0), (1.0, 2.0))
    transforms = [transform_of(name, np.ones(3)) for name in ("log10", "identity")]
    known = {"environments": names, "ranges": ranges, "transforms": transforms}
    found = _doubts(SimpleNamespace(**known, highest_leverage=0.5), [a, -9.0], [0.0, b], leverage)
    assert [text[: len(doubt or "")] for text in found] == [doubt] * (doubt is not None)


def test_equal_duplicates_are_kept_once_and_others_need_a_rule():
    table = table_of(SCORES)
    twice = prepare(pd.concat([table, table.head(1)]), Preparation(target="mean"))
    assert "several times" in twice.warnings[0]
    other = pd.concat([table, table.head(1).assign(score=100.0)])
    message = r"algorithm 'a03', environment 'D': 2 rows with .*--duplicates mean, first or last"
    with pytest.raises(JbrlError, match=message):
        prepare(other, Preparation(target="mean"))
    for rule, value in (("first", 6), ("last", 100), ("mean", 53)):
        chosen = prepare(other, Preparation(target="mean", duplicates=rule))
        assert chosen.normalised[3, 3] == value
        uneven = [text for text in chosen.warnings if "means of fewer than 2 scores" in text]
        assert bool(uneven) == (rule == "mean")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": [0.0, 10, 0, 0]}, r"environment 'A': low = high = 10"),
        ({"low": [0.0, 11, 0, 0]}, r"environment 'A': high = 10 is below low = 11.*flip"),
        ({"environment": ["B", "A", "D", "X"]}, r"no row for environment 'C'"),
        ({"environment": ["B", "A", "D", "A"]}, r"environment 'A' occurs twice"),
    ],
)
def test_references_that_are_not_accepted(change, message):
    preparation = Preparation("references", target="mean")
    with pytest.raises(JbrlError, match=message):
        prepare(table_of(SCORES), preparation, REFERENCES.assign(**change))


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        (np.ones((4, 3)), {}, "the target is 1 for all algorithms"),
        (SCORES, {"target": "medain"}, "target = 'medain': expected one of median, mean"),
        (SCORES, {"target": {"a00": 1.0}}, "target of algorithm 'a01': none given"),
        (SCORES, {"target": dict.fromkeys(NAMES, np.nan)}, "target of algorithm 'a00': nan"),
        (SCORES, {"min_environments": 5}, "0 algorithms are left"),
        (SCORES, {"min_algorithms": 5}, "no environment has scores of at least 5 of the 4 algo"),
        (SCORES, {"transform": "log"}, "transform = 'log': expected one of identity, log10, rank"),
        (SCORES, {"normalise": "references"}, "expected a table of references"),
        (CONSTANT, {"normalise": "min-max"}, "environment 'E': all algorithms have the score 1"),
        (SCORES, {"target_environments": ("A", "Z")}, "unknown environment 'Z'"),
    ],
)
def test_what_is_not_accepted(scores, options, message):
    with pytest.raises(JbrlError, match=message):
        prepared_of(scores, **options)


EXPERIMENTS = Path(__file__).parents[3] / "experiments"


@pytest.fixture(scope="module")
def study():
    return tomllib.loads((EXPERIMENTS / "suite.toml").read_text())


@pytest.fixture(scope="module")
def prepared():
    path = EXPERIMENTS / "suite" / "scores.csv"
    references = pd.read_csv(path).drop_duplicates("environment")[["environment", "low", "high"]]
    return prepare(read_score_table(path), Preparation("references", target="mean"), references)


def test_the_suite_is_large_enough_and_its_problems_exist(study, prepared):
    names = [experiment["name"] for experiment in study["experiments"]]
    assert len(names) == len(set(names)) >= 40
    assert set(names) == set(prepared.environments)
    assert len(prepared.algorithms) >= 60
    for experiment in study["experiments"]:
        prior, test = (problem(experiment[field], EXPERIMENTS) for field in ("prior", "test"))
        assert prior.mdps.concentrations.shape == test.mdps.concentrations.shape


@pytest.mark.slow
def test_brl_5_is_the_best_of_all_and_predicts_agents(prepared):
    outcome = search(prepared, Search(5, "loo"))
    model = load(EXPERIMENTS / "suite" / "brl-5.json")
    weights = dict(zip(model.environments, model.coefficients, strict=True))
    assert set(outcome.best.subset) == set(weights)
    # The scores in the table have six decimals.
    np.testing.assert_allclose(
        outcome.best.coefficients, [weights[name] for name in outcome.best.subset], rtol=1e-4
    )
    # points of per cent, of 67 agents between 0 and about 50
    assert outcome.best.loo_mse**0.5 < 0.5
    scores = read_score_table(EXPERIMENTS / "suite" / "scores.csv")
    predicted = predict(model, scores).set_index("algorithm").loc[list(prepared.algorithms)]
    np.testing.assert_allclose(predicted["estimate"], prepared.target, atol=1.5)
