import dataclasses
import math

import numpy as np
import pytest

from jbrl.agents.opps.stosoo import StoSOO
from jbrl.base.errors import JbrlError


def answer(rules: StoSOO, function) -> tuple[np.ndarray, object]:
    *_, tree = rules.search(function)
    return tree.centres[rules.best(tree)], tree


def test_defaults_are_those_of_the_publication():
    """k = n / log(n)^3, depth sqrt(n / k)."""
    rules = StoSOO((0.0,), (1.0,), budget=1000)
    assert (rules.k, rules.depth) == (3, 18)
    assert StoSOO((0.0,), (1.0,), budget=1).k == 1
    assert StoSOO((0.0,), (1.0,), budget=30).k == 1


@pytest.mark.parametrize(
    ("linger", "points"),
    [
        # Sweeps: root; root cut, first part; second; third; third part cut, its first part; second
        # part cut, …
        (False, [4.5, 1.5, 4.5, 7.5, 6.5, 7.5, 8.5, 3.5, 4.5]),
        # One sweep: root, cut; its parts, the third cut; its parts, the third cut; …
        (True, [4.5, 1.5, 4.5, 7.5, 6.5, 7.5, 8.5, 8 + 1 / 6, 8.5]),
    ],
)
def test_first_steps_by_hand(linger, points):
    """f(x) = x on [0, 9], one evaluation before a cell is cut, bounds without width."""
    rules = StoSOO((0.0,), (9.0,), budget=9, scale=0.0, linger=linger)
    seen = []
    for _ in rules.search(lambda x: seen.append(float(x[0])) or seen[-1]):
        pass
    assert seen == pytest.approx(points)


def test_bounds_by_hand():
    """Two values, 1 and 2, of a range of 3."""
    rules = StoSOO((0.0,), (1.0,), budget=1000, scale=3.0)
    tree = dataclasses.replace(rules.start(), counts=np.array([2]), sums=np.array([3.0]))
    assert rules._bounds(tree, np.array([0])) == pytest.approx(
        1.5 + 3 * math.sqrt(math.log(1000 * 3 * 1000**0.5) / (2 * 2))
    )


@pytest.mark.parametrize(
    ("linger", "noise", "regret"),
    [(False, 0.0, 0.001), (True, 0.0, 1e-6), (False, 0.1, 0.05), (True, 0.1, 0.02)],
)
def test_smooth_function_of_one_number(linger, noise, regret):
    """Mean over 3 seeds of what the answer loses against the maximum, 1 at 0.7; a point at random
    loses 0.8 on average.
    """
    lost = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rules = StoSOO((-1.0,), (2.0,), budget=400, linger=linger)
        point, tree = answer(
            rules, lambda x, rng=rng: 1 - (x[0] - 0.7) ** 2 + noise * rng.standard_normal()
        )
        lost.append((point[0] - 0.7) ** 2)
        assert tree.evaluations == 400
        assert tree.counts.max() <= rules.k
    assert np.mean(lost) < regret


def test_several_numbers_and_several_maxima():
    def function(x):
        return math.sin(13 * x[0]) * math.sin(27 * x[0]) / 2 + 0.5 - abs(x[1] - 0.2)

    grid = np.linspace(0, 1, 2001)
    greatest = (np.sin(13 * grid) * np.sin(27 * grid) / 2 + 0.5).max()
    point, _ = answer(StoSOO((0.0, 0.0), (1.0, 1.0), budget=400, linger=True), function)
    assert function(point) > greatest - 0.01


def test_a_search_can_be_taken_up_again():
    rules = StoSOO((0.0, -1.0), (1.0, 1.0), budget=120, seed=4)
    whole = list(rules.search(lambda x: float(-np.abs(x).sum())))
    rest = list(rules.search(lambda x: float(-np.abs(x).sum()), whole[49]))
    assert len(whole) == 120
    assert len(rest) == 70
    np.testing.assert_array_equal(rest[-1].centres, whole[-1].centres)
    np.testing.assert_array_equal(rest[-1].sums, whole[-1].sums)


def test_cells_tile_the_box():
    rules = StoSOO((0.0, -1.0), (1.0, 1.0), budget=100)
    _, tree = answer(rules, lambda x: float(x[0]))
    leaves = ~tree.cut
    assert np.prod(tree.high - tree.low, axis=1)[leaves].sum() == pytest.approx(2.0)
    assert tree.depth.max() <= rules.depth + 1
    assert (tree.counts[tree.depth > rules.depth] == 0).all()


def test_bad_values_are_refused():
    rules = StoSOO((0.0,), (1.0,), budget=10)
    with pytest.raises(JbrlError, match="value nan at"):
        next(rules.search(lambda x: math.nan))
    with pytest.raises(JbrlError, match="before the first evaluation"):
        rules.best(rules.start())


@pytest.mark.parametrize("linger", [False, True])
@pytest.mark.parametrize("budget", [*range(1, 13), 250, 1000])
def test_fewest_is_the_budget_from_which_a_part_of_the_box_is_cut(budget, linger):
    rules = StoSOO((-1.0,) * 3, (1.0,) * 3, budget, linger=linger)
    noise = np.random.default_rng(budget)
    *_, tree = rules.search(lambda x: float(x.sum() + noise.normal()))
    assert tree.cut[1:].any() == (budget >= rules.fewest)
    if budget < rules.fewest:
        assert not tree.centres[rules.best(tree)].any()
