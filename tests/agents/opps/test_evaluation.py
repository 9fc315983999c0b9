import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchmarks.twins import formulas as reference
from jbrl.agents.opps.evaluation import FormulaProgram, evaluate, in_common_shape, programs
from jbrl.agents.opps.formulas import BINARY, UNARY, VARIABLES, Expression, parse
from jbrl.base.errors import JbrlError

N_ACTIONS = 3
lanes = jax.jit(jax.vmap(evaluate))


def random_expression(rng: np.random.Generator, size: int) -> tuple[str, ...]:
    if size == 1:
        return (str(rng.choice(VARIABLES)),)
    if size == 2 or rng.random() < 0.4:
        return (*random_expression(rng, size - 1), str(rng.choice(UNARY)))
    left = int(rng.integers(1, size - 1))
    return (
        *random_expression(rng, left),
        *random_expression(rng, size - 1 - left),
        str(rng.choice(BINARY)),
    )


def expected(expression: Expression, q: np.ndarray) -> tuple[np.ndarray, bool]:
    try:
        return np.array(
            [reference.evaluate(expression.tokens, tuple(column), np.float32) for column in q.T]
        ), True
    except reference.UndefinedError:
        return np.zeros(q.shape[1], np.float32), False


def batch(seed: int, sizes: tuple[int, ...]) -> tuple[list[Expression], np.ndarray]:
    """Formulas, and Q-values among which zeros, ones and equal values are frequent."""
    rng = np.random.default_rng(seed)
    expressions = [Expression(random_expression(rng, size)) for size in sizes]
    special = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0, 7.25], (len(sizes), 3, N_ACTIONS))
    generic = rng.uniform(0.01, 50, special.shape)
    return expressions, np.where(rng.random((len(sizes), 1, 1)) < 0.5, special, generic).astype(
        np.float32
    )


def test_values_are_those_of_the_twin():
    """600 different formulas of 1 to 11 tokens in one call."""
    expressions, q = batch(0, tuple(range(1, 12)) * 54)
    values, valid = lanes(programs(expressions), q)
    twins = [expected(e, row) for e, row in zip(expressions, q, strict=True)]
    agree = np.array([ok for _, ok in twins]) == np.asarray(valid)
    assert agree.all(), [expressions[i].text for i in np.flatnonzero(~agree)]
    assert 100 < np.sum(valid) < 500
    np.testing.assert_allclose(values, np.stack([v for v, _ in twins]), rtol=2e-5, atol=2e-5)


def test_undefined_at_one_action_is_undefined():
    """Even where a later operator would hide the infinity; values are then equal, so that no action
    wins silently.
    """
    cases = [
        ("Q0/Q1", [[1, 2], [3, 0], [5, 5]]),
        ("1/Q1", [[1, 2], [0, 3], [5, 5]]),
        ("1/(Q0-Q2)", [[1, 5], [0, 3], [5, 5]]),
        ("log(Q1)", [[1, 2], [0, 3], [5, 5]]),
        ("log(-Q1)", [[1, 2], [2, 3], [5, 5]]),
        ("sqrt(Q0-Q1)", [[1, 2], [2, 1], [5, 5]]),
        ("1/(Q0/Q1)", [[1, 2], [2, 0], [5, 5]]),
        ("max(Q0,1/Q1)", [[1, 2], [2, 0], [5, 5]]),
        ("min(Q0,log(Q1))", [[1, 2], [2, 0], [5, 5]]),
        ("Q0*Q1*Q1*Q1", [[1, 2], [2, 1e15], [5, 5]]),
    ]
    texts, q = zip(*cases, strict=True)
    values, valid = lanes(programs([parse(text) for text in texts]), np.array(q, np.float32))
    assert not np.asarray(valid).any()
    np.testing.assert_array_equal(values, 0)


def test_edges_of_the_domain_are_defined_and_unused_variables_may_be_anything():
    q = np.array([[0, 2], [0, 3], [5, 5], [np.nan, np.inf]], np.float32)
    cases = (
        ("sqrt(Q0)", [0, 1, 2], [0, 2**0.5]),
        ("Q0/Q2", [0, 3, 2], [0, 0.4]),
        ("-Q0*Q1", [0, 1, 3], [0, -6]),
        ("Q1", [3, 1, 3], [0, 3]),
    )
    texts, rows, wanted = zip(*cases, strict=True)
    values, valid = lanes(programs([parse(text) for text in texts]), q[np.array(rows)])
    assert np.asarray(valid).all()
    np.testing.assert_allclose(values, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "length"), [("Q0", 2), ("Q0+Q1", 2), ("ln(Q0)", 5), ("(Q0+Q1)*(Q0-Q2)", 5)]
)
def test_formulas_share_the_first_shape_that_they_fit(text, length):
    one = programs([parse(text)])
    shaped = in_common_shape(one)
    assert shaped.words.shape[-1] == length and set(one.families) <= set(shaped.families)
    longest = programs([parse("+".join(["Q0*Q1"] * 4))])
    assert in_common_shape(longest) is longest


def test_mapped_is_one_by_one():
    expressions, q = batch(2, (5, 6, 7, 6, 5, 4, 3, 7))
    stacked = programs(expressions)
    values, valid = lanes(stacked, q)
    one = jax.jit(evaluate)
    for i in range(len(expressions)):
        value, ok = one(FormulaProgram(stacked.words[i], stacked.families, stacked.reach), q[i])
        assert ok == valid[i]
        np.testing.assert_array_equal(value, values[i])


def test_mapped_over_one_argument_or_twice():
    expressions, q = batch(3, (3, 4, 5))
    stacked = programs(expressions)
    every = jax.jit(jax.vmap(jax.vmap(evaluate, (None, 0)), (0, None)))(stacked, q)
    some = [
        lanes(jax.tree.map(lambda words, i=i: np.stack([words[i]] * 3), stacked), q)
        for i in range(3)
    ]
    np.testing.assert_array_equal(every[0], np.stack([s[0] for s in some]))
    shared = jax.jit(jax.vmap(evaluate, (0, None)))(stacked, q[0])
    np.testing.assert_array_equal(shared[0], every[0][:, 0])


def test_runs_inside_a_scan():
    stacked = programs([parse("Q0/Q2"), parse("max(Q0,|Q2|)")])

    @jax.jit
    def total(q):
        def step(carry, _):
            return carry + jax.vmap(evaluate)(stacked, q)[0], None

        return lax.scan(step, jnp.zeros((2, 2), jnp.float32), None, length=3)[0]

    q = jnp.broadcast_to(jnp.array([[1, 2], [0, 0], [4, 5]], jnp.float32), (2, 3, 2))
    np.testing.assert_allclose(total(q), [[0.75, 1.2], [12, 15]], rtol=1e-6)


def test_no_formula_is_refused():
    with pytest.raises(JbrlError, match="no formula is given"):
        programs([])
