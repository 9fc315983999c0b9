"""The contract: what `check_environment` refuses, and how environments are listed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.errors import MAX_COUNT, JbrlError
from jbrl.base.pytree import record
from jbrl.environments.environment import (
    ENVIRONMENTS,
    Environment,
    Perturbed,
    Step,
    as_arrays,
    check_environment,
    drawn,
    register_environment,
)
from jbrl.environments.spec import Box, Discrete, Episodes, OneHot, Spec, Steps
from jbrl.problems.lookup import problem
from tests import kept


class Fine(Environment):
    """Sound, with a method for each part that a test may spoil."""

    bias: float = 0.5

    @property
    def spec(self):
        return Spec(Box((2,)), Discrete(2))

    def observe(self, state):
        return jnp.stack([state, state])

    def reset(self, key):
        state = jnp.float32(0)
        return state, self.observe(state)

    def after(self, state):
        return state + self.bias

    def facts(self, state):
        return {
            "observation": self.observe(state),
            "reward": state,
            "terminated": state > 3,
            "truncated": jnp.bool_(False),
        }

    def step(self, key, state, action):
        state = self.after(state)
        return state, Step(**self.facts(state))

    def metrics(self, state):
        return {"regret": state}


def spoilt(**methods):
    return record(
        type("Spoilt", (Fine,), {"__annotations__": {"bias": float}, "bias": 0.5, **methods})
    )()


def fact(name, value):
    return {"facts": lambda self, state: Fine.facts(self, state) | {name: value}}


def without(name):
    return {name: getattr(Environment, name)}


def with_spec(observation, n=2):
    return {"spec": property(lambda self: Spec(observation, Discrete(n)))}


def test_a_sound_environment_is_accepted():
    check_environment(spoilt(), "mine")


def with_reset(outcome):
    return {"reset": lambda self, key: outcome}


SPEC = "expected Spec(observation, actions) with actions Discrete(n)"


def with_step(outcome):
    return {"step": lambda self, key, state, action: outcome(self, state)}


BROKEN = [
    (without("spec"), "spec: NotImplementedError: Spoilt has no spec"),
    (without("reset"), "reset: NotImplementedError: Spoilt has no method reset"),
    (without("step"), "step: NotImplementedError: Spoilt has no method step"),
    ({"spec": property(lambda self: 3)}, f"spec = 3: {SPEC}"),
    ({"spec": property(lambda self: Spec(Box((2,)), OneHot(2)))}, SPEC),
    (with_spec("Box"), SPEC),
    (with_spec(Box((2,)), 0), "spec.actions = Discrete(n=0): expected n to be an integer from 1"),
    (with_spec(Discrete(2**31)), "Discrete(n=2147483648): expected n to be an integer from 1 to 2"),
    (with_spec(OneHot(True)), "spec.observation = OneHot(n=True): expected n"),
    (with_spec(Box(2)), "expected shape to be a tuple of integers from 1"),
    (with_spec(Box((0,))), "expected shape to be a tuple of integers from 1"),
    *(
        (with_spec(Box((2,), low)), "expected low and high to be one number, or 2 in a tuple")
        for low in ((0.0,), [0.0, 1.0], np.zeros(2), "a", None)
    ),
    (
        {"spec": property(lambda self: Spec(Discrete(self.bias), Discrete(2)))},
        "Discrete(n=array(0.5, dtype=float32)): expected n to be an integer from 1",
    ),
    (with_reset(jnp.float32(0)), "returned ShapeDtypeStruct: expected (state, observation)"),
    (with_reset((1, 2, 3)), "reset returned 3 values: expected (state, observation)"),
    (
        with_reset((jnp.float32(0), jnp.zeros(3))),
        "reset returned an observation float32[3]: expected float32[2], as spec says (Box(2,))",
    ),
    (with_reset((jnp.float32(0), jnp.zeros(2, int))), "an observation int32[2]: expected float32"),
    ({"reset": lambda self, key: 1 / 0}, "reset: ZeroDivisionError: division by zero"),
    (with_step(lambda self, s: s), "step returned ShapeDtypeStruct: expected (state, Step)"),
    (with_step(lambda self, s: (s, 0.0)), "step returned 2 values: expected (state, Step)"),
    (
        {"after": lambda self, state: (state > 0).astype(jnp.int32)},
        "step returned a state int32[]: expected float32[], as reset returns it",
    ),
    (
        with_step(lambda self, s: ((s, s), Step(**self.facts(s)))),
        "step returned a state (float32[], float32[]): expected float32[], as reset returns it",
    ),
    (fact("observation", jnp.zeros((2, 1))), "an observation float32[2, 1]: expected float32[2]"),
    (fact("reward", jnp.zeros(1)), "step returned reward float32[1]: expected a scalar float32"),
    (fact("reward", jnp.int32(1)), "step returned reward int32[]: expected a scalar float32"),
    (fact("terminated", jnp.float32(1)), "returned terminated float32[]: expected a scalar bool"),
    (fact("truncated", jnp.zeros(2, bool)), "returned truncated bool[2]: expected a scalar bool"),
    ({"metrics": lambda self, s: s}, "returned ShapeDtypeStruct: expected a dictionary"),
    (
        {"metrics": lambda self, s: {"regret": jnp.int32(0)}},
        "metrics returned regret int32[]: expected a scalar float32",
    ),
    *(
        ({"metrics": lambda self, s, name=name: {name: s}}, f"metrics returned {name!r}: expected")
        for name in ("episodes", 3)
    ),
]


@pytest.mark.parametrize(("methods", "message"), BROKEN, ids=range(len(BROKEN)))
def test_what_breaks_the_contract_is_refused(methods, message):
    with pytest.raises(JbrlError) as caught:
        check_environment(spoilt(**methods), "mine")
    assert str(caught.value).startswith("mine: ")
    assert message in str(caught.value)


OTHER = "perturb returned another structure or other shapes"


@pytest.mark.parametrize(
    ("perturb", "message"),
    [
        (Perturbed.perturb, "perturb: NotImplementedError: Drawn has no method perturb"),
        (lambda self, key: dataclasses.replace(self, bias=jnp.zeros(2)), OTHER),
        (lambda self, key: dataclasses.replace(self, bias=jnp.int32(0)), OTHER),
        (lambda self, key: (self, self), OTHER),
    ],
)
def test_perturbations_that_change_more_than_values_are_refused(perturb, message):
    body = {"__annotations__": {"bias": float}, "bias": 0.5, "perturb": perturb}
    environment = record(type("Drawn", (Fine, Perturbed), body))()
    with pytest.raises(JbrlError) as caught:
        check_environment(environment, "mine")
    assert message in str(caught.value)


def test_what_is_not_perturbed_is_drawn_as_it_is():
    environment = spoilt()
    assert drawn(environment, jax.random.key(0)) is environment


def test_numbers_become_arrays_of_one_kind_each():
    @record
    class Mixed:
        a: float = 1.0
        b: int = 2
        c: bool = True
        d: object = None

    found = as_arrays(Mixed(d=np.zeros(3, np.int8)))
    kinds = [np.float32, np.int32, np.bool_, np.int8]
    assert [leaf.dtype for leaf in (found.a, found.b, found.c, found.d)] == kinds


def test_two_environments_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two environments are called Chain"):
        register_environment("Chain")(Fine)


def test_summary_is_the_first_line_of_the_docstring():
    assert ENVIRONMENTS["Chain"].summary.startswith("Chain of N states")


@pytest.mark.parametrize(
    ("space", "text", "shape", "dtype"),
    [
        (Discrete(3), "Discrete(3)", (), jnp.int32),
        (OneHot(4), "OneHot(4)", (), jnp.int32),
        (Box((2, 3)), "Box(2, 3)", (2, 3), jnp.float32),
    ],
)
def test_spaces_know_their_arrays(space, text, shape, dtype):
    assert (str(space), space.shape, space.dtype) == (text, shape, dtype)


@pytest.mark.parametrize("count", [1, 250, np.int64(7), MAX_COUNT])
def test_counts_from_one_are_accepted(count):
    assert Steps(count).steps == count
    assert Episodes(count).episodes == count


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "5", None, MAX_COUNT + 1])
def test_anything_else_is_refused(count):
    expected = "expected an integer from 1 to 2147483647"
    with pytest.raises(JbrlError, match=f"^horizon = {count!r}: {expected}"):
        Steps(count)
    with pytest.raises(JbrlError, match=f"^episodes = {count!r}: {expected}"):
        Episodes(count)
    with pytest.raises(JbrlError, match=f"^max_steps = {count!r}: {expected}"):
        Episodes(10, count)


def test_lifetimes_are_values():
    assert Steps(5) == Steps(5) != Steps(6)
    assert hash(Episodes(5)) == hash(Episodes(5, 100_000))
    assert Steps(5) != Episodes(5)


@pytest.mark.parametrize(
    "name", ["Acrobot", "CartPole", "MountainCar", "Pinball", "Chain-10s", "Gridworld-5s"]
)
def test_what_lifetimes_draw_is_the_kept_physics(name):
    environment = problem(name).environment
    parts = {}
    for number in range(2):
        one = drawn(environment, jax.random.key(number))
        values = {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}
        numbers = {k: v for k, v in values.items() if np.ndim(v) == 0 and type(v) is not str}
        parts[str(number)] = ", ".join(f"{k} {float(v):.4g}" for k, v in numbers.items())
    kept.compare(f"physics of {name}", parts)
