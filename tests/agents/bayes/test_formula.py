"""Formula and Linear: decision by decision like their twin, on average like the
published program.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.twins.opps import Formula as Twin
from jbrl import play
from jbrl.agents.opps.formulas import parse
from jbrl.agents.opps.ranking import Formula, Linear, linear_policies
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_parameters
from jbrl.problems.lookup import problem
from tests.reference.trajectories import decisions, disagreements


# Two variables and three: then one plan has to wait for the others. Returns of many formulas are
# those of the same twin in `test_opps.py`.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "prior", "test", "n_environments", "horizon"),
    [
        ("Q0/Q2", "GC", "GC", 4, 250),
        ("max(Q0,Q1)", "UGDL", "GDL", 3, 250),
        ("max(Q0,Q1)*Q2", "GC", "GC", 8, 60),
    ],
)
def test_its_twin_decides_alike(formula, prior, test, n_environments, horizon):
    for _, steps in decisions(
        Formula(formula), prior, test, n_environments=n_environments, horizon=horizon
    ):
        assert disagreements(steps, Twin(problem(prior).mdps, parse(formula).tokens)) == []


def test_a_weighted_sum_by_hand():
    policies = linear_policies(["Q0", "Q2"], np.array([[3.0, 7.0], [1.0, -2.0]]))
    q = (jnp.array([1.0, 0.0]), jnp.array([0.5, 2.0]))
    values, defined = jax.vmap(lambda policy: policy.rank(q))(policies)
    np.testing.assert_array_equal(values, [[6.5, 14.0], [0.0, -4.0]])
    assert defined.all()
    traced = jax.vmap(lambda w: Linear(w0=3.0, w2=w, variables="Q0,Q2").player().rank(q)[0])
    np.testing.assert_array_equal(traced(jnp.array([7.0])), values[:1])


# The C++ program, N = 500. Both have a standard error: a difference of 3 combined ones has a
# false-alarm rate of 0.3 % each.
PROGRAM = [
    ("Q0/Q2", "GC", "GC", 40.5),
    ("Q2/Q0", "GC", "GC", 27.8),
    ("max(Q0,|Q2|)", "GDL", "GDL", 3.00),
    ("max(Q0,Q1)", "UGDL", "GDL", 2.91),
    ("Q0", "UGC", "GC", 37.9),
    ("Q0+Q2", "Grid", "Grid", 6.85),
]


@pytest.mark.slow
def test_a_weighted_sum_is_a_formula():
    agents = (Formula("Q0+Q2"), Linear(3.0, 7.0, 3.0, "Q0,Q2"))
    of_formula, of_weights = (
        play(agent, prior="GC", n_environments=8, record=True) for agent in agents
    )
    np.testing.assert_array_equal(of_formula.returns, of_weights.returns)


@pytest.mark.slow
@pytest.mark.parametrize(("formula", "prior", "test", "published"), PROGRAM)
def test_its_mean_return_is_that_of_the_published_program(formula, prior, test, published):
    # the program that the twin's trajectories come from
    played = play(Formula(formula), prior=prior, test=test, record=True)
    error = played.returns.std(ddof=1) / np.sqrt(500)
    assert abs(played.returns.mean() - published) < 3 * np.sqrt(2) * error


@pytest.mark.slow
def test_where_it_is_undefined_the_trajectory_cannot_be_played():
    with pytest.raises(JbrlError, match="the formula is undefined for Q-values met on the way"):
        play(Formula("Q0/Q1"), prior="GC", record=True)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"formula": "Q0/Q3"}, "position 4: unknown variable or function 'Q3'"),
        ({"formula": "log(Q0-Q0)"}, "undefined at every point"),
    ],
)
def test_what_is_no_formula_is_refused(parameters, message):
    with pytest.raises(JbrlError, match="study: .*" + message.replace("(", r"\(")):
        check_parameters(Formula, parameters, "study")


@pytest.mark.parametrize("text", ["", "Q0,Q3", "Q0,Q0", "Q0;Q1"])
def test_what_are_no_variables_is_refused(text):
    with pytest.raises(JbrlError, match="Q0, Q1, Q2"):
        check_parameters(Linear, {"variables": text}, "study")
