"""Resampling: the twin fed the same random words, laws of the resamples, and the intervals made
of them.
"""

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr, ndtri

from benchmarks.twins import evaluation as twin
from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation import bootstrap as resampling
from jbrl.stats.evaluation.bootstrap import (
    acceleration,
    aggregate_scores,
    bootstrap,
    resampled_payoffs,
    resampled_scores,
)
from jbrl.stats.evaluation.game import equilibrium
from jbrl.stats.evaluation.ranking import Options, evaluate
from jbrl.stats.evaluation.samples import payoffs, samples_of
from tests.stats.evaluation_cases import random_samples, table_of

SEED = 5


@pytest.fixture(scope="module", params=[4, None], ids=["ties", "no ties"])
def raw(request):
    # all environments padded to the same shapes: one program
    return random_samples(3, 3, 2, sizes=(17, 31), values=request.param)


def words(samples, environment, resample):
    """The random words of a resample, for each algorithm."""
    with jax.enable_x64(True):
        cells = resampling._cells(samples, environment)
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(SEED), environment), resample)
        bits = np.asarray(jax.random.bits(key, cells.entry.shape, "uint32"))
    return np.split(bits, np.cumsum(samples.totals[:, environment]))[: len(samples.algorithms)]


@pytest.mark.first_case_quick
def test_twin(raw):
    samples = samples_of(table_of(raw), identical=[("E1", "A0", "A2")])
    resampled = np.concatenate(list(resampled_payoffs(samples, 5, SEED)))
    assert resampled.shape == (5, 3, 2, 3)
    assert resampled.dtype == np.float64

    def same(i, j, k):
        return i == k or (j == 1 and {i, k} == {0, 2})

    for r in range(5):
        drawn = {(i, j): w for j in range(2) for i, w in enumerate(words(samples, j, r))}
        payoff = twin.payoff(twin.resample(raw, drawn), 3, 2, same)
        assert resampled[r] == pytest.approx(payoff, abs=1e-12)
    scores = aggregate_scores(resampled, payoffs(samples))
    for r in range(5):
        assert scores[r] == pytest.approx(twin.solve(resampled[r])[0], abs=1e-8)


def test_array_operations_give_what_loops_give(raw):
    samples = samples_of(table_of(raw))
    with jax.enable_x64(True):
        cells = resampling._cells(samples, 1)
        words = np.random.default_rng(0).integers(0, 2**32, cells.entry.shape, np.uint32)
        drawn = jax.jit(resampling._drawn)(cells, words)
        loops, arrays = (
            jax.jit(f)(cells, drawn)
            for f in (resampling._compared_by_loops, resampling._compared_by_arrays)
        )
        assert (np.asarray(loops) == np.asarray(arrays)).all()


@pytest.mark.first_case_quick
def test_resamples_do_not_depend_on_their_number_or_grouping(raw):
    samples = samples_of(table_of(raw))
    assert (resampled_scores(samples, 150, SEED)[:5] == resampled_scores(samples, 5, SEED)).all()
    assert not (resampled_scores(samples, 5, SEED + 1) == resampled_scores(samples, 5, SEED)).all()


def test_x64_stays_where_it_is_needed(raw):
    for _ in resampled_payoffs(samples_of(table_of(raw)), 2, SEED):
        assert jax.numpy.zeros(1).dtype == np.float32
    assert jax.numpy.zeros(1).dtype == np.float32


def test_a_game_on_which_iteration_fails_is_solved_by_elimination(raw, monkeypatch):
    z = payoffs(samples_of(table_of(raw)))
    monkeypatch.setattr(resampling, "TOLERANCE", -1.0)
    assert (aggregate_scores(z[None], z)[0] == equilibrium(z).scores.round(10)).all()


def test_laws_of_the_resamples():
    """Means and spreads of a payoff over 4,000 resamples; with 2·6 comparisons at 4.5 sigma a false
    alarm is rarer than 1 in 10,000.
    """
    raw = random_samples(8, 3, 2, sizes=(17, 31), values=4)
    samples = samples_of(table_of(raw))
    z = payoffs(samples)
    resampled = np.concatenate(list(resampled_payoffs(samples, 4000, 11)))
    generator = np.random.default_rng(0)
    for i, k in ((0, 1), (1, 0), (2, 1)):
        for j in range(2):
            x, y = raw[i, j], raw[k, j]
            drawn = [generator.choice(v, (4000, len(v))) for v in (x, y)]
            again = (drawn[0][:, :, None] >= drawn[1][:, None, :]).mean(axis=(1, 2))
            ours = resampled[:, i, j, k]
            # E of the resampled payoff is the payoff itself
            assert abs(ours.mean() - z[i, j, k]) < 4.5 * ours.std() / 4000**0.5
            # two spreads, each known to 1/sqrt(2·4000)
            assert abs(np.log(ours.std() / again.std())) < 4.5 * (1 / 4000) ** 0.5


@pytest.mark.first_case_quick
def test_percentile_interval_is_that_of_the_resampled_scores(raw):
    samples = samples_of(table_of(raw))
    intervals = bootstrap(samples, 0.2, resamples=99, seed=SEED)
    assert intervals.lower == pytest.approx(np.quantile(intervals.scores, 0.2 / 12, axis=0))
    assert intervals.upper == pytest.approx(np.quantile(intervals.scores, 1 - 0.2 / 12, axis=0))


def test_bca_agrees_with_scipy_on_one_environment():
    """Two algorithms on one environment whose order is certain: q plays but one strategy, and the
    score is a smooth statistic.
    """
    generator = np.random.default_rng(4)
    raw = {(0, 0): generator.normal(size=30), (1, 0): generator.normal(size=25) + 1.5}
    samples = samples_of(table_of(raw))
    point = equilibrium(payoffs(samples))
    intervals = bootstrap(samples, 0.2, resamples=4000, seed=1, interval="bca")

    def score(x, y, axis=-1):
        """Of algorithm 0 with q's strategy held fixed."""
        z = (x[..., :, None] >= y[..., None, :]).mean(axis=(-1, -2))
        return point.q[0, 0] * 0.5 + point.q[0, 1] * z

    theirs = stats.bootstrap(
        (raw[0, 0], raw[1, 0]),
        score,
        n_resamples=4000,
        confidence_level=0.9,
        method="BCa",
        rng=np.random.default_rng(2),
        batch=500,
    )
    width = intervals.scores[:, 0].std()
    assert intervals.lower[0] == pytest.approx(theirs.confidence_interval.low, abs=0.15 * width)
    assert intervals.upper[0] == pytest.approx(theirs.confidence_interval.high, abs=0.15 * width)
    a = acceleration(samples, point)[0]
    assert a == pytest.approx(jackknife(raw, score), rel=0.1)
    # The levels of Efron 1987, with this acceleration; without it they are others.
    scores = intervals.scores[:, 0]
    below = (scores < point.scores[0]).mean() + (scores == point.scores[0]).mean() / 2
    for level, end in ((0.05, intervals.lower[0]), (0.95, intervals.upper[0])):
        shifted = ndtri(below) + ndtri(level)
        levels = [ndtr(ndtri(below) + shifted / (1 - k * shifted)) for k in (a, 0)]
        assert end == pytest.approx(np.quantile(scores, levels[0]), rel=1e-9)
        assert abs(levels[0] - levels[1]) > 1e-3


def jackknife(raw, score):
    """Acceleration by leaving out each sample in turn (several samples: Davison and
    Hinkley 1997).
    """
    x, y = raw[0, 0], raw[1, 0]
    left = [
        [score(np.delete(x, t), y) for t in range(len(x))],
        [score(x, np.delete(y, t)) for t in range(len(y))],
    ]
    influence = [(len(part) - 1) * (np.mean(part) - np.array(part)) for part in left]
    squares = sum((u**2).sum() / len(u) ** 2 for u in influence)
    return sum((u**3).sum() / len(u) ** 3 for u in influence) / (6 * squares**1.5)


def test_bad_input(raw):
    samples = samples_of(table_of(raw))
    for options, message in (
        ({"resamples": 0}, "resamples = 0: expected an integer from 1"),
        ({"seed": -1}, "seed = -1: expected an integer from 0"),
        ({"interval": "t"}, "expected 'percentile' or 'bca'"),
        ({"delta": 0.7}, r"delta = 0\.7"),
    ):
        with pytest.raises(JbrlError, match=message):
            bootstrap(samples, **options)


@pytest.mark.first_case_quick
def test_all_methods_tell_how_far_they_are(raw):
    told = []
    evaluation = evaluate(
        samples_of(table_of(raw)),
        ["bootstrap", "pbp"],
        Options(resamples=20, seed=SEED),
        lambda *a: told.append(a),
    )
    first = [(done, total) for method, done, total in told if method == "pbp"]
    assert first[0][0] == 0 and first[-1][0] == first[-1][1] == first[0][1]
    assert told[-1] == ("bootstrap", 20, 20)
    assert evaluation.settings["resamples"] == 20 and "quantile" not in evaluation.settings
