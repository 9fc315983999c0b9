"""Faults found in the states of a lifetime after its end."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.rollout import faults

NAN, INF = float("nan"), float("inf")


def states(a: list[float], b: float) -> dict:
    """Floating leaves `.a` and `.b` beside others that cannot be NaN."""
    others = {"key": jax.random.key(0), "numbers": jnp.arange(3), "said": jnp.bool_(True)}
    return {"agent": {"a": jnp.array(a), "c": others}, "environment": (jnp.float32(b),)}


@pytest.mark.parametrize(
    ("a", "b", "expected", "sentence"),
    [
        ([1.0, NAN], 0.0, 0, "NaN in ['agent']['a'] of its state: expected numbers or infinities"),
        (
            [1.0, 2.0],
            NAN,
            1,
            "NaN in ['environment'][0] of its state: expected numbers or infinities",
        ),
        ([NAN, NAN], NAN, 0, "NaN in ['agent']['a'] of its state: expected numbers or infinities"),
    ],
)
def test_the_first_leaf_with_nan_is_named(a, b, expected, sentence):
    given = states(a, b)
    fault = int(jax.jit(faults.nan_fault)(given))
    assert fault == faults.NAN + expected
    assert faults.said_of_nan(faults.nan_path(given, fault)) == sentence
    shapes = jax.eval_shape(lambda: given)
    assert faults.nan_path(shapes, fault) == faults.nan_path(given, fault)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"a": 1}, "a state with other fields than before"),
        (None, "NoneType as its state, where dict was before"),
        (({"a": 1}, {"a": 1}), "tuple as its state, where dict was before"),
        ({"a": jnp.int32(0), "b": jnp.zeros(3)}, "float32[3] in ['b'] as its state, where float32"),
        ({"a": jnp.float32(0), "b": jnp.zeros(2)}, "float32[] in ['a'] as its state, where int32"),
    ],
)
@pytest.mark.parametrize("method", ["act", "observe"])
def test_a_state_that_changes_names_the_method_and_the_field(after, words, method):
    before = {"a": jnp.int32(1), "b": jnp.ones(2)}
    faults.check_state("an agent", before, before, {"a": jnp.int32(2), "b": jnp.zeros(2)})
    with pytest.raises(JbrlError) as error:
        faults.check_state("an agent", before, after if method == "act" else before, after)
    assert f"str.{method} returned {words}" in str(error.value)


def test_a_method_that_returns_nothing_is_named_with_its_line():
    agent = type("Forgets", (), {"observe": lambda self, key, state, transition: None})()
    words = r"Forgets.observe \(.*test_faults.py, line \d+\) returned NoneType as its state"
    with pytest.raises(JbrlError, match=words):
        faults.check_state(agent, {"a": 1}, {"a": 1}, None)


def test_a_first_state_is_made_of_arrays():
    agent = type("Says", (), {"reset": lambda self, key, knowledge: {"a": 1.0, "b": "yes"}})()
    with pytest.raises(JbrlError, match=r"Says.reset returned 'yes' in \['b'\]: expected arrays"):
        faults.begin(agent, None, jax.random.key(0), None)


def test_infinities_and_states_without_floats_are_no_fault():
    assert int(faults.nan_fault(states([INF, -INF], INF))) == 0
    assert int(faults.nan_fault({"n": jnp.arange(3), "key": jax.random.key(1)})) == 0
    assert int(faults.nan_fault(None)) == 0


def test_a_state_that_is_one_array_has_no_field():
    assert (
        faults.said_of_nan(faults.nan_path(jnp.array([NAN]), faults.NAN))
        == "its state is NaN: expected numbers or infinities"
    )


def test_lanes_are_told_apart():
    given = {"x": jnp.array([[1.0, 2.0], [NAN, 0.0], [3.0, 4.0]]), "y": jnp.array([0.0, 0.0, NAN])}
    for lanes_last in (False, True):
        find = functools.partial(faults.nan_fault, lanes_last=lanes_last)
        codes = jax.jit(jax.vmap(find))(given)
        np.testing.assert_array_equal(codes, [0, faults.NAN, faults.NAN + 1])


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ((jnp.float32(0), jnp.int32(0)), "float32[]: expected one action as a scalar int32"),
        (({"q": jnp.ones(2)}, jnp.int32(0)), "dict: expected one action as a scalar int32"),
        ((jnp.zeros(2, jnp.int32), 0), "int32[2]: expected one action as a scalar int32"),
    ],
)
def test_what_is_no_action_is_named(returned, words):
    agent = type("Swaps", (), {"act": lambda self, key, state, observation: returned})()
    with pytest.raises(JbrlError, match=re.escape(f"Swaps.act returned {words}")):
        faults.act(agent, jax.random.key(0), None, jnp.int32(0), 2)


def test_what_is_learned_are_arrays():
    agent = type("Says", (), {"train": lambda self, key, prior: prior})()
    known = {"a": jnp.ones(2), "b": 1.0, "key": jax.random.key(0), "none": None}
    assert faults.train(agent, jax.random.key(0), known) is known
    with pytest.raises(JbrlError, match=r"Says.train returned 'yes' in \['c'\]: expected arrays"):
        faults.train(agent, jax.random.key(0), known | {"c": "yes"})
