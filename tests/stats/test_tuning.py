"""Sensitivity across environments and effective dimensionality: definition, invariances, misses."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest

from jbrl.base.errors import JbrlError
from jbrl.base.schema import RETURNS
from jbrl.report.sensitivity import write_tuning
from jbrl.stats.sensitivity import tuning

GRID = list(itertools.product([0.1, 0.2, 0.3], [1, 2], ["a"]))  # the last one never differs


def returns_of(scores: np.ndarray, name: str = "A", grid=GRID) -> pd.DataFrame:
    """A score table of scores [E, H, N]."""
    names = [json.dumps(dict(zip("xyz", setting, strict=False))) for setting in grid]
    rows = [
        (f"e{e}", name, names[h], 0, i, scores[e, h, i]) for e, h, i in np.ndindex(scores.shape)
    ]
    return pd.DataFrame(rows, columns=list(RETURNS))


def naive(means: dict, grid=GRID) -> tuple[float, float, int, set]:
    """By loops: means {environment: {setting: mean}}; what reaches 95 % of the tuned score."""
    scaled = {}
    for e, column in means.items():
        low, high = np.percentile(list(column.values()), [5, 95])
        scaled[e] = {h: (m - low) / (high - low) for h, m in column.items()}
    tuned = np.mean([max(column.values()) for column in scaled.values()])
    single = max(grid, key=lambda h: sum(column[h] for column in scaled.values()))
    for count in range(4):
        reached = {}
        for free in itertools.combinations(range(3), count):
            like = [h for h in grid if all(h[k] == single[k] or k in free for k in range(3))]
            score = np.mean([max(column[h] for h in like) for column in scaled.values()])
            if score >= 0.95 * tuned:
                reached[free] = score
        if reached:
            break
    whole = np.mean([column[single] for column in scaled.values()])
    return float(tuned), float(whole), count, {"xyz"[k] for k in max(reached, key=reached.get)}


@pytest.mark.parametrize("seed", range(6))
def test_the_measures_are_those_of_the_definition(seed):
    generator = np.random.default_rng(seed)
    scores = generator.normal(size=(4, 6, 1)) + 0.1 * generator.normal(size=(4, 6, 5))
    if seed % 2:  # one parameter decides
        scores[:, 1::2] += 5 * np.array([1, -1, 1, -1])[:, None, None]
    (row,) = tuning(returns_of(scores), resamples=20).to_dict("records")
    means = {e: dict(zip(GRID, scores[e].mean(-1), strict=True)) for e in range(4)}
    tuned, single, dimension, chosen = naive(means)
    found = [row[name] for name in ("tuned", "single", "sensitivity")]
    assert found == pytest.approx([tuned, single, tuned - single], abs=1e-9)
    assert (row["dimension"], set(row["choose"].split(", ")) - {""}) == (dimension, chosen)
    assert (row["experiments"], row["settings"], row["parameters"]) == (4, 6, 2)
    assert row["sensitivity_lower"] >= 0 and row["dimension_upper"] <= 2


def test_by_hand():
    """Two settings of which each environment prefers another, and one that suits both."""
    scores = np.array([[[1.0], [0.0], [0.9]], [[0.0], [1.0], [0.9]]])
    scaled = (scores - 0.09) / (0.99 - 0.09)  # percentiles of 0, 0.9, 1 are 0.09 and 0.99
    (row,) = tuning(returns_of(scores, grid=GRID[::2])).to_dict("records")
    assert row["tuned"] == pytest.approx(scaled.max()) and row["tuned"] > 1
    assert row["single"] == pytest.approx((0.9 - 0.09) / 0.9)
    assert row["dimension"] == 1 and row["choose"] == "x"  # 0.9 is less than 95 % of 1.011


def test_units_of_scores_do_not_matter_and_other_algorithms_do():
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(3, 6, 4))
    one = tuning(returns_of(scores), resamples=50)
    scaled = tuning(returns_of(scores * np.array([2.0, 64, 0.5])[:, None, None]), resamples=50)
    pd.testing.assert_frame_equal(one, scaled)
    other = returns_of(scores[:, :1] + 40, "B", GRID[:1])
    beside = tuning(pd.concat([returns_of(scores), other], ignore_index=True), resamples=50)
    assert list(beside["algorithm"]) == ["A"]  # B has one setting
    assert beside["sensitivity"][0] < one["sensitivity"][0]


def test_equal_settings_need_no_tuning():
    (row,) = tuning(returns_of(np.ones((2, 6, 3))), resamples=20).to_dict("records")
    assert [row[name] for name in ("tuned", "single", "sensitivity", "dimension")] == [0, 0, 0, 0]


def test_settings_that_are_equally_bad_need_no_tuning_beside_good_ones():
    good = returns_of(np.ones((2, 60, 1)) * np.arange(60)[:, None], grid=[(k,) for k in range(60)])
    bad = returns_of(np.full((2, 2, 1), -9.0), "B", GRID[::3])
    row = tuning(pd.concat([good, bad]), resamples=20).set_index("algorithm").loc["B"]
    assert row["tuned"] < 0 == row["sensitivity"] == row["dimension"]


def test_one_lifetime_has_no_intervals(tmp_path):
    scores = np.random.default_rng(1).normal(size=(3, len(GRID), 1))
    found = tuning(returns_of(scores), resamples=20)
    known = found[[name for name in found if name.endswith(("_lower", "_upper"))]]
    assert known.shape == (1, 8) and known.isna().all(axis=None)
    assert found[["tuned", "single", "sensitivity", "dimension"]].notna().all(axis=None)
    text = write_tuning(found, tmp_path).read_text()
    assert f"<td>{found['tuned'].item():.2f}</td>" in re.sub("<td[^>]*>", "<td>", text)
    assert "nan" not in text[text.index("<tbody") : text.index("</tbody")]


def test_intervals_miss_as_often_as_they_say():
    """80 studies of 40 lifetimes, in each environment a setting that is the best: at a level of
    90 %, 3 to 16 misses (a false alarm in 100 where 8 are due; 12 found).
    """
    truth = np.array([[2.0, 0, 1, 0.5, 0.2, 0], [0.0, 2, 1, 0.2, 0.5, 0], [0.0, 0.5, 2, 0, 1, 0.2]])
    means = {e: dict(zip(GRID, truth[e], strict=True)) for e in range(3)}
    tuned, single, *_ = naive(means)
    generator, missed = np.random.default_rng(5), 0
    for seed in range(80):
        scores = truth[:, :, None] + generator.normal(size=(3, 6, 40))
        (row,) = tuning(returns_of(scores), resamples=200, level=0.9, seed=seed).to_dict("records")
        missed += not row["sensitivity_lower"] <= tuned - single <= row["sensitivity_upper"]
    assert 3 <= missed <= 16


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t[t["experiment"] == "e0"], "1 experiments, and 1 algorithms with several"),
        (lambda t: t[t["parameters"] == t["parameters"][0]], "2 experiments, and 0 algorithms"),
        (lambda t: t.iloc[:0], "0 experiments"),
        (lambda t: t.iloc[:-3], "was not played in e1: expected each setting in all experiments"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, words):
    with pytest.raises(JbrlError, match=words):
        tuning(change(returns_of(np.random.default_rng(0).normal(size=(2, 6, 3)))))
