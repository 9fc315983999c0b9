"""Cost of an evaluation, and what is said where bounds tell nothing apart."""

import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation.bands import payoff_bounds
from jbrl.stats.evaluation.game import Moves
from jbrl.stats.evaluation.propagation import propagate
from jbrl.stats.evaluation.samples import check_effort, check_table, effort, samples_of
from jbrl.stats.evaluation.separation import scores_needed, separation
from jbrl.stats.evaluation.strategies import sides_of
from tests.stats.evaluation_cases import table_of


@pytest.fixture(scope="module")
def few():
    """Three algorithms, one of them far better, ten scores each."""
    rng = np.random.default_rng(0)
    raw = {(i, j): rng.normal(size=10) + 3 * (i == 2) for i in range(3) for j in range(2)}
    return samples_of(table_of(raw))


def test_bounds_that_tell_nothing_apart_say_why(few):
    ends = propagate(*payoff_bounds(few, 0.05), few.same)
    separated = separation(few, *ends, 0.05)
    assert (
        separated is not None
        and separated.best == "A2"
        and separated.pairs == 3
        and separated.scores == 10
    )
    assert separated.half_width == pytest.approx(np.sqrt(np.log(2 * 6 / 0.05) / 20))
    assert separated.first == 1.0 and separated.apart >= 2  # of 400 resamples
    text = " ".join(separated.sentences())
    for words in ("none of 3 pairs", "±0.52", "an estimate", "A2 from", "100% of them"):
        assert words in text


def test_the_number_of_scores_that_is_named_suffices_and_half_of_it_does_not(few):
    needed = scores_needed(few, 2, 0, 0.05)
    assert needed is not None and needed > 10
    for number, apart in ((1.05 * needed, True), (needed / 2, False)):
        low, high = payoff_bounds(few, 0.05, scale=(10 / number) ** 0.5)
        lower, upper = propagate(low, high, few.same)
        assert (lower[2] > upper[0]) == apart
    assert scores_needed(few, 0, 0, 0.05) is None


def test_what_would_take_minutes_is_left_out_and_said(few, monkeypatch):
    monkeypatch.setattr("jbrl.stats.evaluation.separation.LARGEST", 10)
    separated = separation(few, np.zeros(3), np.ones(3), 0.05)
    assert separated is not None and not separated.others and separated.first is None
    assert "--method bootstrap" in separated.sentences()[-1]


def test_bounds_that_tell_algorithms_apart_need_no_words(few):
    assert separation(few, np.array([0.0, 0.1, 0.9]), np.array([0.2, 0.3, 1.0]), 0.05) is None


def test_costs_are_known_and_refused_beforehand():
    small, large = (effort(n, m, n * m * 30, ["pbp"])[0] for n, m in ((12, 20), (100, 40)))
    assert small.seconds < 60 and large.seconds > 30 * small.seconds
    assert large.bytes < 4e9
    check_effort([small], 12, 20, 60)
    with pytest.raises(
        JbrlError, match=r"pbp: 100 algorithms on 40 environments take about .* min"
    ):
        check_effort([large], 100, 40, 0.1)
    dense = effort(100, 40, 120_000, ["bootstrap"])
    with pytest.raises(JbrlError, match=r"bootstrap: 100 algorithms .* GB: expected at most 6 GB"):
        check_effort(dense, 100, 40, 1e9)
    with pytest.raises(JbrlError, match=r"3,000 algorithms with 90,000 different scores on .*'e0'"):
        check_table(3_000, 90_000, "e0")


@pytest.mark.parametrize("width", [0.05, 0.4])
def test_memory_grows_with_the_strategies_not_with_their_squares(width):
    """30 algorithms on 20 environments: 18,000 joint strategies with 11 million moves."""
    rng = np.random.default_rng(0)
    n, m = 30, 20
    z = rng.uniform(0, 1, (n, m, n))
    same = np.broadcast_to(np.eye(n, dtype=bool)[:, None, :], z.shape)
    z[same], wide = 0.5, np.where(same, 0, width)
    sides = sides_of(z - wide, z + wide, same)
    game = Moves.greedy((n, n * m), sides, rng.random((n, n * m)))
    stored = game._members.nbytes + game._stretches.data.nbytes + game._stretches.indices.nbytes
    assert stored < 18_000 * 2_000  # bytes; the matrix of all moves takes 90 MB
    assert game.apply(np.ones(18_000)) == pytest.approx(game.damping, abs=1e-12)
