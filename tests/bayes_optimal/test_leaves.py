"""Values at the end of the look-ahead, against sampling from each posterior, and policies that are
played.
"""

import dataclasses

import numpy as np
import pytest
from scipy.special import betaincinv

from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.samples import (
    Control,
    Weights,
    estimate,
    first_moments,
    fit_control,
    second_moments,
    variables,
)
from jbrl.mdp.backward import mean_values, solve
from jbrl.mdp.counts import Cell, Layers
from jbrl.mdp.dirichlet import distribution
from jbrl.mdp.model import Model, make_model
from tests.bayes_optimal.exact import PRIORS, iterated, problem

DISCOUNT, LEFT = 0.9, 12


def posterior_draws(model: Model, cell: Cell, layers: Layers, n: int) -> tuple[tuple, np.ndarray]:
    """Return the first split of each block, and MDPs drawn given its counts, [n, S, A, S]."""
    generator = np.random.default_rng(5)
    weights = np.asarray(model.mdps.concentrations, float).copy()
    for block, total in zip(layers.blocks, cell.totals, strict=True):
        counts = block.splits(total).counts[0]
        at = np.ix_([block.block.state], block.block.actions, block.block.successors)
        weights[at] += counts
    found = np.zeros((n, *weights.shape))
    for x, u in np.ndindex(*weights.shape[:2]):
        some = np.flatnonzero(weights[x, u])
        found[:, x, u, some] = generator.dirichlet(weights[x, u, some], n)
    return (0,) * len(layers.blocks), found


@pytest.mark.parametrize("name", PRIORS)
def test_draws_follow_the_prior(name):
    """Means and second moments of 2^15 draws are those of the Dirichlet prior, but for 4.5 standard
    errors of a number between 0 and 1; the seed is fixed.
    """
    model = make_model(problem(PRIORS[name]).mdps)
    p = variables(model, samples.draw(model, 2**15, 3))
    column = 0
    layers = Layers(model)
    for block in layers.blocks:
        splits = block.splits(block.nothing)
        mean, second = first_moments(splits)[0], second_moments(splits)[0]
        own = p[column : column + len(mean)]
        column += len(mean)
        assert own.mean(1) == pytest.approx(mean, abs=0.0125)
        assert own @ own.T / own.shape[1] == pytest.approx(second, abs=0.0125)


def test_draws_of_great_concentrations_are_normal():
    uniforms = (np.arange(9) + 0.5) / 9
    found = samples.beta_quantiles(2e9, 5e9, uniforms)
    np.testing.assert_allclose(found, betaincinv(2e9, 5e9, uniforms), rtol=1e-9)
    logs = samples.log_row(np.array([1e20, 1e28, 1e30]), uniforms[None].repeat(2, 0))
    np.testing.assert_allclose(np.exp(logs[:2, 0]), (1e-10, 1e-2), rtol=0.02)


@pytest.mark.parametrize("small", [0.3, 10.0, 1000.0])
@pytest.mark.parametrize("great", [1e9, 1e12, 1e18, 1e30])
def test_outcomes_that_are_known_to_be_rare_are_drawn_as_rarely(small, great):
    """Quantiles of the Beta distribution are wrong there in some versions of SciPy: 1.5e-8."""
    uniforms = (np.arange(100_000) + 0.5) / 100_000
    rare = samples.beta_quantiles(small, great, uniforms)
    assert rare.mean() * great == pytest.approx(small, rel=1e-3)
    assert rare.std() * great == pytest.approx(small**0.5, rel=3e-3)
    common = samples.beta_quantiles(great, small, 1 - uniforms)
    np.testing.assert_allclose(1 - common, rare, rtol=1e-9, atol=3e-16)


def test_clairvoyant_values_against_value_iteration_by_hand():
    mdps = problem(PRIORS["zeros"]).mdps
    model = make_model(mdps)
    drawn = samples.draw(model, 4, 1)
    found = samples.values(model, drawn, DISCOUNT, (0, LEFT))
    assert not found[0].any()
    for m in range(4):
        transitions = (np.asarray(mdps.concentrations) > 0).astype(float)
        for block, log_rows in zip(model.blocks, drawn.log_rows, strict=True):
            at = np.ix_([block.state], block.actions, block.successors)
            transitions[at] = np.exp(log_rows[..., m])
        expected = iterated(transitions, np.asarray(mdps.rewards), DISCOUNT, LEFT)
        assert found[LEFT][:, m] == pytest.approx(expected, rel=1e-6)


def test_curvatures_that_are_0_take_no_memory(monkeypatch):
    monkeypatch.setattr(samples, "MOST_SQUARED", 0)
    model = make_model(problem(PRIORS["fractions"]).mdps)
    layers = Layers(model)
    pilot = samples.draw(model, 256, 7)
    values = samples.values(model, pilot, DISCOUNT, (LEFT,))[LEFT]
    linear = fit_control(layers, pilot, values)
    assert linear.curvatures is None
    n = linear.slopes.shape[1]
    whole = samples.Control(layers, linear.constant, linear.slopes, np.zeros((len(values), n, n)))
    for cell in layers.layer(3):
        assert np.array_equal(linear.mean(cell), whole.mean(cell))
    p = variables(model, pilot)
    assert np.array_equal(linear.of_mdps(p), whole.of_mdps(p))
    ones = np.ones_like(whole.curvatures)
    ones[1] = 0
    parts = [Control(layers, linear.constant, linear.slopes, c) for c in (0 * ones + 1, ones)]
    for axis, block in enumerate(layers.blocks):  # of each state by itself
        everywhere, but_one = (part.own(axis, block.nothing)[0] for part in parts)
        assert np.array_equal(np.delete(everywhere, 1, 0), np.delete(but_one, 1, 0))


@pytest.mark.parametrize("name", ["zeros", "fractions"])
def test_leaves_against_the_posterior(name):
    """5 combined standard errors: missed by chance in 1 of 90,000 comparisons, of which there are
    about ten; the seeds are fixed.
    """
    mdps = problem(PRIORS[name]).mdps
    model = make_model(mdps)
    layers = Layers(model)
    cells = layers.layer(3)
    pilot = samples.draw(model, 2048, 7)
    fitted = fit_control(layers, pilot, samples.values(model, pilot, DISCOUNT, (LEFT,))[LEFT])
    replications = []
    for seed in range(8):
        drawn = samples.draw(model, 1024, seed)
        values = samples.values(model, drawn, DISCOUNT, (LEFT,))[LEFT]
        replications.append(estimate(layers, cells, drawn, values, fitted, 1)[0])
    rewards = np.asarray(mdps.rewards, float)
    for cell in cells[:5]:
        split, transitions = posterior_draws(model, cell, layers, 400)
        drawn_values = [iterated(p, rewards, DISCOUNT, LEFT)[cell.state] for p in transitions]
        found = [one[cell][split] for one in replications]
        error = np.hypot(np.std(found, ddof=1) / 8**0.5, np.std(drawn_values) / 20)
        assert np.mean(found) == pytest.approx(np.mean(drawn_values), abs=5 * error + 1e-9)


def test_what_an_mdp_adds_to_a_policy_is_a_mean_of_its_values():
    """With three exchangeable rows in a state and the values 1 everywhere, each MDP alone makes all
    policies worth 1 after the look-ahead; the best policy would be worth more if weights did not
    count all ways to exchange rows.
    """
    weights = np.ones((2, 3, 2))
    model = make_model(distribution(weights, 0 * weights, 0))
    layers = Layers(model, merge_states=False)
    nothing = Control(layers, np.zeros(2), np.zeros((2, 6)), None)
    for seed in range(3):
        mdp = samples.draw(model, 1, seed)
        leaves, _ = estimate(layers, layers.layer(4), mdp, np.ones((2, 1)), nothing, 1)
        assert solve(layers, 4, leaves, DISCOUNT, 1) == pytest.approx(DISCOUNT**4, rel=1e-5)


@pytest.mark.parametrize("k", range(7, 13))
def test_weights_of_outcomes_that_are_very_rare_are_finite(k):
    """After 60 or 100 of them the probability of counts is less than double precision holds."""
    weights = np.array([[[1, 10.0**k], [1, 10.0**k]], [[1, 0], [1, 0]]])
    layers = Layers(make_model(distribution(weights, 0 * weights, 0)))
    chance = np.array([1, 10, 20]) / 10.0**k
    log_rows = np.log(np.array([[chance, 1 - chance]] * 2))  # both rows alike
    for total in ((60, 0), (100, 0), (60, 40)):
        splits = layers.blocks[0].splits(total)
        logs = splits.counts.astype(float).sum(1) @ log_rows[0] - splits.log_probability[:, None]
        found = Weights(layers, [log_rows]).of(0, total)
        np.testing.assert_allclose(found, np.exp(logs), rtol=1e-4, atol=1e-30)
        assert found.max() > 1  # where outcomes are less rare than on average


@pytest.mark.parametrize("most", [2**15, 8])
def test_bounds_of_the_control_function_hold(most, monkeypatch):
    """In MDPs of all kinds, with all vertices tried and with few of them."""
    monkeypatch.setattr(samples, "MOST_VERTICES", most)
    weights = np.full((3, 2, 3), 0.3)
    model = make_model(distribution(weights, weights, 0))
    generator = np.random.default_rng(1)
    slopes, curvatures = generator.normal(size=(3, 12)), generator.normal(size=(3, 12, 12))
    curvatures += curvatures.transpose(0, 2, 1)
    control = Control(Layers(model), generator.normal(size=3), slopes, curvatures)
    negative = dataclasses.replace(
        control, constant=-control.constant, slopes=-slopes, curvatures=-curvatures
    )
    low, high = control.least(), -negative.least()
    found = control.of_mdps(variables(model, samples.draw(model, 2**12, 2)))
    assert (low <= found.min(1)).all()
    assert (found.max(1) <= high).all()
    if most > 8:  # within 2.5 times of what is seen
        assert ((high - low) < 2.5 * np.ptp(found, axis=1)).all()


def test_where_each_step_pays_the_same_means_are_worth_all_of_them():
    """After one sweep nothing changes any more but by the same in each state: 1 / (1 - g)."""
    layers = Layers(make_model(distribution(np.ones((2, 2, 2)), np.ones((2, 2, 2)), 0)))
    cells = layers.layer(1)
    for value in mean_values(layers, cells, DISCOUNT, 10**6, 1).values():
        np.testing.assert_allclose(value, 1 / (1 - DISCOUNT), rtol=1e-9)
