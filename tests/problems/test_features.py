"""Features of distributions over MDPs: cases solved by hand, and the planner."""

import json
import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jbrl
from jbrl.mdp import planning
from jbrl.problems import features
from jbrl.stats import brackets
from tests.terminal import call


def made(weights, rewards, initial_state: int = 0) -> jbrl.DirichletProblem:
    weights, rewards = (np.asarray(values, np.float32) for values in (weights, rewards))
    mdps = jbrl.DirichletMDPs(weights, rewards, np.int32(initial_state))
    return jbrl.DirichletProblem("hand", "by hand", mdps)


def test_a_known_mdp():
    """State 0: stay for 0 or go for 1; state 1: back for 0, by either action. Discount 1/2: going
    and coming back is worth 1 + V(0) / 4 = 4/3, staying and then going 2/3.
    """
    stay, go = [1, 0], [0, 1]
    problem = made([[stay, go], [stay, stay]], [[[0, 0], [0, 1]], [[0, 0], [0, 0]]])
    found = jbrl.problem_features(problem, discount=0.5, n_draws=3)
    assert (found.n_states, found.n_actions, found.n_successors) == (2, 2, 1)
    assert (found.prior_weight, found.rare_rewards) == (1, 0.25)
    assert found.reward_spread == pytest.approx(3**0.5 / 4)  # one of four transitions pays 1
    assert found.diameter == pytest.approx(1, rel=1e-4)
    assert found.clairvoyant == pytest.approx(4 / 3)
    assert found.mean_model == pytest.approx(4 / 3)
    assert found.information == 0
    # at random: v0 = (v0 / 2) / 2 + (1 + v1 / 2) / 2 and v1 = v0 / 2, v0 = 4 / 5
    assert found.random == pytest.approx(4 / 5)
    # action values 2/3 and 4/3, then 2/3 twice: gaps 2/3 and 0, of a spread of 2/3
    assert found.gap == pytest.approx(1 / 2)


@pytest.mark.parametrize("unit", [2.0**-90, 2.0**90])
def test_shares_do_not_depend_on_the_unit_of_rewards(unit):
    weights, rewards = np.ones((2, 2, 2)), np.arange(8).reshape(2, 2, 2) % 3
    one, other = (jbrl.problem_features(made(weights, rewards * u)) for u in (1, unit))
    assert (other.gap, other.information) == pytest.approx((one.gap, one.information))
    assert other.reward_spread == pytest.approx(one.reward_spread)
    assert min(one.gap, one.information) > 0.01
    level = jbrl.problem_features(made(np.add(weights, [1, 0]), np.full((2, 2, 2), unit)))
    assert (level.gap, level.information, level.reward_spread) == (0, 0, 0)


def test_where_the_mean_model_knows_best_knowing_the_mdp_is_worth_nothing():
    """Each action pays the same wherever it leads: clairvoyants earn less by rounding alone."""
    weights = [[[1e6, 1e6], [0.01, 7], [0.001, 1]], [[0.1, 0.01], [1, 0.001], [0.01, 0.1]]]
    pay = np.array([[[0.41], [1], [0.71]], [[1.71], [-0.57], [2.34]]])
    problem = made(weights, pay * np.ones(2), 1)
    assert jbrl.problem_features(problem, discount=0.3, n_draws=400).information == 0


def test_the_standard_error_of_information_is_that_of_other_draws(monkeypatch):
    """The mean model knows nothing: both actions are alike in it, and the first is that of random
    ones but for chance.
    """
    problem, generator = made(np.ones((2, 2, 2)), [[[0, 1]] * 2] * 2), np.random.default_rng
    found = []
    for seed in range(40):
        monkeypatch.setattr(np.random, "default_rng", lambda _, seed=seed: generator(seed))
        found.append(jbrl.problem_features(problem, n_draws=50))
    shares, errors = np.array([(one.information, one.information_error) for one in found]).T
    assert shares.max() > 1 > shares.min()
    assert shares.std() == pytest.approx(errors.mean(), rel=0.3)
    assert np.isnan(jbrl.problem_features(problem, n_draws=1).information_error)


def test_steps_to_the_farthest_state_are_those_of_the_quickest_way():
    """By the second action the other state is met with probability 1/4: four steps on average."""
    often, seldom = [1e6, 1e3], [3e6, 1e6]
    problem = made([[often, seldom], [[1, 0], [1, 0]]], np.zeros((2, 2, 2)))
    assert jbrl.problem_features(problem).diameter == pytest.approx(4, rel=0.01)
    lost = made([[[1, 0]], [[0, 1]]], np.zeros((2, 1, 2)))
    found = jbrl.problem_features(lost)
    assert (found.diameter, found.gap, found.information) == (math.inf, 0, 0)


@pytest.mark.parametrize("name", ["GC", "GDL"])
def test_action_values_are_those_of_the_planner(name):
    mdps = jbrl.problem(name).mdps
    weights, rewards = np.asarray(mdps.concentrations, float), np.asarray(mdps.rewards, float)
    transitions = features.draw(weights, 2, np.random.default_rng(1))
    paid = (transitions * rewards).sum(-1)
    for p, r, q in zip(transitions, paid, features.solve(transitions, paid, 0.95), strict=True):
        arrays = (jnp.float32(p), jnp.float32(r), jnp.float32(0.95))
        expected = planning.value_iteration(*arrays, tolerance=1e-5).q
        np.testing.assert_allclose(q, expected, rtol=1e-4, atol=1e-3)


def test_draws_are_of_the_prior_however_small_or_large_its_weights():
    weights = np.array([[[1e-30, 3e-30, 0.0]], [[2.0, 6.0, 0.0]], [[1e20, 1e20, 2e20]]])
    drawn = features.draw(weights, 4000, np.random.default_rng(2))
    np.testing.assert_allclose(drawn.sum(-1), 1)
    assert (drawn[:, :2, :, 2] == 0).all()
    # five standard errors of a share of 1/4 in 4,000 draws are 0.034
    expected = weights[:, 0] / weights[:, 0].sum(-1, keepdims=True)
    np.testing.assert_allclose(drawn[:, :, 0].mean(0), expected, atol=0.034)


def test_what_a_clairvoyant_earns_is_that_of_the_bracket():
    """An agent that is shown the MDP earns 73.22 in 250 decisions, later ones add less than 1e-3.
    The standard error of 20,000 MDPs is 0.15: four of them.
    """
    found = jbrl.problem_features("GC", n_draws=20_000)
    assert found.random < found.mean_model < found.clairvoyant
    assert found.clairvoyant == pytest.approx(73.22, abs=0.6)


def test_the_command_prints_what_the_function_returns():
    shown = "show", "GC", "--features"
    found, text = json.loads(call(*shown, "--json").stdout), call(*shown).stdout
    assert [line.split()[0] for line in text.splitlines()] == list(found)
    low, high = found.pop("information_low"), found.pop("information_high")
    assert found == vars(jbrl.problem_features("GC"))
    bracket = brackets.find("GC", 0.95, 250)
    assert bracket.lower < bracket.upper < bracket.clairvoyant
    way = bracket.clairvoyant - found["random"]
    assert low == pytest.approx((bracket.clairvoyant - bracket.upper) / way)
    assert low < high < found["information"]
    # no bracket is kept for another discount
    done = call(*shown, "--json", "--discount", 0.9)
    assert json.loads(done.stdout) == vars(jbrl.problem_features("GC", discount=0.9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problem": "CartPole"}, "features of CartPole: expected a distribution over finite MDPs"),
        ({"problem": "GC", "discount": 1}, "discount = 1: expected a number .* not including, 1"),
        ({"problem": "GC", "discount": "a"}, "discount = 'a': expected a number"),
        ({"problem": "GC", "n_draws": 0}, "n_draws = 0"),
        ({"problem": Path("no.json")}, r"no\.json: cannot be read"),
    ],
)
def test_what_cannot_be_computed_is_refused(arguments, message):
    with pytest.raises(jbrl.JbrlError, match=message):
        jbrl.problem_features(arguments.pop("problem"), **arguments)
