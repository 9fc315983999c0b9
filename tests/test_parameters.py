"""Parameters are checked as they are used, in float32 and int32; what JAX sees of records."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.bayes.mean_model import BEB
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.parameters import GREATEST_NUMBER, SMALLEST_NUMBER, check_parameters, parameter
from jbrl.base.pytree import record, static
from jbrl.environments.environment import ENVIRONMENTS
from jbrl.environments.walks import Gridworld
from jbrl.problems.problem import PROBLEMS


@dataclasses.dataclass(frozen=True)
class Fields:
    any: float = parameter(0.0, "a number")
    above: float = parameter(1.0, "a number above 0", low=0.0, open_low=True)
    beyond: float = parameter(7.0, "a number above 5", low=5.0, open_low=True)
    share: float = parameter(0.2, "a number", low=0.1, high=0.3)
    count: int = parameter(1, "K, an integer", low=1)
    size: int = parameter(1, "an integer", low=1, high=2**24, static=True)


REFUSED = [
    ("any", 1e39, "any = 1e+39: expected a number up to 3.4e+38"),
    ("any", -1e39, "any = -1e+39: expected a number from -3.4e+38"),
    ("any", 10**400, "expected a number up to 3.4e+38"),
    ("any", -(10**400), "expected a number from -3.4e+38"),
    ("any", 10**5000, "any = an integer of thousands of digits: expected a number up to 3.4e+38"),
    ("any", float("nan"), "any = nan: expected a number"),
    ("above", 1e-50, "above = 1e-50: expected a number above 0 in float32, from 1.2e-38"),
    ("above", 0.0, "above = 0.0: expected a number above 0"),
    ("beyond", 5 + 1e-9, "expected a number above 5 in float32"),
    ("share", 0.0999, "share = 0.0999: expected a number from 0.1 up to 0.3"),
    ("count", 2**31, "count = 2147483648: expected an integer from 1 up to 2147483647"),
    ("count", 0, "count = 0: expected an integer from 1"),
    ("size", 2**24 + 1, "size = 16777217: expected an integer from 1 up to 16777216"),
    (
        "size",
        10**5000,
        "size = an integer of thousands of digits: expected an integer from 1 up to 16777216",
    ),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_numbers_that_float32_or_int32_do_not_hold_are_refused(name, value, message):
    with pytest.raises(JbrlError, match=re.escape(message)) as caught:
        check_parameters(Fields, {name: value}, "study")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("any", sign * GREATEST_NUMBER) for sign in (1, -1)),
        *(("share", end) for end in (0.1, 0.3)),
        ("above", SMALLEST_NUMBER),
        ("count", 2**31 - 1),
        ("size", 2**24),
    ],
)
def test_limits_that_messages_name_are_accepted(name, value):
    assert check_parameters(Fields, {name: value}, "study")[name] == value
    if isinstance(value, float):
        assert np.isfinite(np.float32(value)) and (value == 0) == (np.float32(value) == 0)


@pytest.mark.parametrize(
    ("algorithm", "name", "value", "most"),
    [
        ("SBOSS", "epsilon", 1e39, "3.4e+38"),
        ("OPPS-DS", "c", 1e39, "3.4e+38"),
        ("BEB", "beta", 1e38, "1e+30"),
        ("BEB-published", "beta", 1e38, "1e+30"),
        ("Look-ahead", "beta", 1e38, "1e+30"),
        ("BAMCP", "exploration", 1e38, "1e+30"),
    ],
)
def test_no_agent_runs_with_a_parameter_that_overflows(algorithm, name, value, most):
    given, most = re.escape(f"{name} = {value}"), re.escape(most)
    expected = rf"{given}: expected a number from \S+ up to {most}$"
    with pytest.raises(JbrlError, match=expected):
        check_parameters(AGENTS[algorithm].agent, {name: value}, "study")


@pytest.mark.parametrize(
    ("cls", "letter", "meant"),
    [
        (AGENTS["BAMCP"].agent, "K", "simulations"),
        (AGENTS["BAMCP"].agent, "c", "exploration"),
        (AGENTS["BFS3"].agent, "C", "samples"),
        (Gridworld, "N", "size"),
    ],
)
def test_the_letter_of_the_literature_leads_to_the_parameter(cls, letter, meant):
    with pytest.raises(
        JbrlError, match=f"study: unknown parameter '{letter}'; did you mean '{meant}'\\?"
    ):
        check_parameters(cls, {letter: 50}, "study")


def test_values_in_messages_are_short():
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) == "a value nested too deeply"
    assert shown(10**5000) == "an integer of thousands of digits"
    assert (
        shown("x" * 1000) == "'" + "x" * 78 + "…" and shown("x") == "'x'" and shown("x", str) == "x"
    )
    assert "did you mean" not in nearest("GC" * 1000, ["GC"])
    while nested:  # taken apart from outside, which needs no recursion
        nested = nested[0]


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        (lambda: AGENTS["BEBE"], KeyError, "unknown agent 'BEBE'; did you mean 'BEB'?"),
        (lambda: PROBLEMS["CG"], JbrlError, "unknown problem 'CG'; did you mean 'GC'?"),
        (lambda: ENVIRONMENTS["DeepSee"], KeyError, "did you mean 'DeepSea'?"),
        (lambda: BEB(bta=1), TypeError, "BEB: unknown parameter 'bta'; did you mean 'beta'?"),
        (lambda: Gridworld(siz=2), TypeError, "unknown parameter 'siz'; did you mean"),
        (lambda: BEB(1, "pair", 3), TypeError, "positional arguments"),
    ],
)
def test_python_says_what_was_meant(asked, kind, message):
    with pytest.raises(kind) as caught:
        asked()
    assert message in str(caught.value)


@record
class Circle:
    size: float
    filled: bool = static(False)


@record
class Square:
    size: float
    filled: bool = static(False)


def test_static_fields_belong_to_the_structure():
    leaves, structure = jax.tree.flatten(Circle(2.0, True))
    assert leaves == [2.0]
    assert jax.tree.unflatten(structure, [3.0]) == Circle(3.0, True)
    assert structure != jax.tree.structure(Circle(2.0))
    assert structure == jax.tree.structure(Circle(5.0, True))


def test_two_classes_alike_are_two():
    # Equal structures of unequal hashes would share compiled functions now and then.
    assert jax.tree.structure(Circle(1.0)) != jax.tree.structure(Square(1.0))


@pytest.mark.parametrize("n", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_a_compiled_function_is_compiled_for_each_class(n):
    # With `jax.tree_util.register_dataclass` and jaxlib 0.10.2, 435 of 3000 classes were taken for
    # another one.
    seen = []

    @jax.jit
    def grow(shape):
        seen.append(type(shape))
        return dataclasses.replace(shape, size=shape.size + 1)

    classes = [
        record(type(f"Shape{i}", (), {"__annotations__": {"size": float}})) for i in range(n)
    ]
    assert all(type(grow(cls(jnp.float32(1)))) is cls for cls in classes)
    assert seen == classes


def test_fields_are_named():
    ((path, _),) = jax.tree_util.tree_leaves_with_path(Circle(1.0))
    assert jax.tree_util.keystr(path) == ".size"


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Circle(1.0).size = 2.0
