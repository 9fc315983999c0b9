"""Checks of an environment against its contract, on the host, before anything is compiled."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.base.host_values import find_host_values, refusal
from jbrl.base.plugins import explained, is_outside
from jbrl.environments.environment import Environment, Step, as_arrays, drawn
from jbrl.environments.spec import Box, Discrete, Observation, Spec


def check_environment(environment: Environment[Any], where: str) -> None:
    """Trace an environment, without compiling, and check it against its contract.

    Args:
      where: place to name in messages.

    Raises:
      JbrlError: a method fails, returns something of the wrong structure, shape or dtype, or, in a
        class outside jbrl, takes random numbers or times from the host.
    """
    environment = as_arrays(environment)
    for path, leaf in jax.tree.leaves_with_path(environment):
        if not hasattr(leaf, "dtype"):
            field = jax.tree_util.keystr(path).lstrip(".")
            raise JbrlError(
                f"{where}: field '{field}' = {leaf!r}: expected a number or an array; "
                "parameter(…) and static() hold others"
            )
    with _errors_named(f"{where}: spec"):
        spec = environment.spec
    _check_spec(spec, f"{where}: spec")
    programs = _check_methods(environment, spec.observation, where)
    if is_outside(type(environment)):
        method = find_host_values(lambda: ((name, trace()) for name, trace in programs.items()))
        if method:
            raise JbrlError(f"{where}: {refusal(method)}")


def _check_methods(
    environment: Environment[Any], space: Observation, where: str
) -> dict[str, Callable[[], Any]]:
    """Check what the methods return; return, by name, what traces them."""
    programs: dict[str, Callable[[], Any]] = {}

    def shapes(method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        programs[method] = lambda: jax.make_jaxpr(lambda *args: function(*args))(*arguments)
        with _errors_named(f"{where}: {method}"):
            return jax.eval_shape(function, *arguments)

    key, action = jax.random.key(0), jax.ShapeDtypeStruct((), jnp.int32)
    lane = shapes("perturb", drawn, environment, key)
    if _shapes(lane) != _shapes(environment):
        raise JbrlError(
            f"{where}: perturb returned another structure or other shapes: expected those of the "
            "environment itself"
        )
    first = shapes("reset", lambda e, k: e.reset(k), lane, key)
    if not (isinstance(first, tuple) and len(first) == 2):
        raise JbrlError(f"{where}: reset returned {_kind(first)}: expected (state, observation)")
    _check_observation(space, first[1], f"{where}: reset")
    after = shapes("step", lambda e, k, s, a: e.step(k, s, a), lane, key, first[0], action)
    if not (isinstance(after, tuple) and len(after) == 2 and isinstance(after[1], Step)):
        raise JbrlError(f"{where}: step returned {_kind(after)}: expected (state, Step)")
    if _shapes(after[0]) != _shapes(first[0]):
        raise JbrlError(
            f"{where}: step returned a state {_described(after[0])}: expected "
            f"{_described(first[0])}, as reset returns it"
        )
    _check_observation(space, after[1].observation, f"{where}: step")
    for name, dtype in (("reward", jnp.float32), ("terminated", bool), ("truncated", bool)):
        _check_scalar(getattr(after[1], name), dtype, f"{where}: step returned {name}")
    counters = shapes("metrics", lambda e, s: e.metrics(s), lane, after[0])
    if not isinstance(counters, dict):
        raise JbrlError(f"{where}: metrics returned {_kind(counters)}: expected a dictionary")
    for name, value in counters.items():
        _check_scalar(value, jnp.float32, f"{where}: metrics returned {name}")
    return programs


@contextlib.contextmanager
def _errors_named(where: str) -> Iterator[None]:
    """Raise errors of code outside jbrl as `JbrlError` with the place in that code."""
    try:
        yield
    except JbrlError:
        raise
    except Exception as error:
        raise JbrlError(f"{where}: {explained(error)}") from error


def _check_spec(spec: Any, where: str) -> None:
    if (
        not isinstance(spec, Spec)
        or not isinstance(spec.actions, Discrete)
        or not isinstance(spec.observation, Observation)
    ):
        raise JbrlError(
            f"{where} = {spec!r}: expected Spec(observation, actions) with actions Discrete(n)"
        )
    for name in ("observation", "actions"):
        space = getattr(spec, name)
        if type(getattr(space, "n", 1)) is not int or getattr(space, "n", 1) < 1:
            raise JbrlError(
                f"{where}.{name} = {space!r}: expected n to be an integer from 1, made of static "
                "fields"
            )
    box, where = spec.observation, f"{where}.observation = {spec.observation!r}"
    if not isinstance(box, Box):
        return
    if not isinstance(box.shape, tuple) or not all(isinstance(n, int) and n > 0 for n in box.shape):
        raise JbrlError(f"{where}: expected shape to be a tuple of integers from 1")
    size = math.prod(box.shape)
    if any(isinstance(bound, tuple) and len(bound) != size for bound in (box.low, box.high)):
        raise JbrlError(
            f"{where}: expected low and high to be one number, or {size}, one for each entry"
        )


def _check_observation(space: Observation, value: Any, where: str) -> None:
    if not hasattr(value, "dtype") or value.shape != space.shape or value.dtype != space.dtype:
        expected = f"{np.dtype(space.dtype).name}{list(space.shape)}"
        raise JbrlError(
            f"{where} returned an observation {_described(value)}: expected {expected}, as spec "
            f"says ({space})"
        )


def _check_scalar(value: Any, dtype: Any, where: str) -> None:
    if not hasattr(value, "dtype") or value.shape != () or value.dtype != dtype:
        raise JbrlError(f"{where} {_described(value)}: expected a scalar {np.dtype(dtype).name}")


def _shapes(tree: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the structure of a tree, and shapes and dtypes of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [
        (np.shape(v), v.dtype if hasattr(v, "dtype") else jax.dtypes.result_type(v)) for v in leaves
    ]


def _described(tree: Any) -> str:
    """Return shapes and dtypes, for messages."""
    texts = [
        f"{v.dtype}{list(v.shape)}" if hasattr(v, "dtype") else type(v).__name__
        for v in jax.tree.leaves(tree)
    ]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _kind(value: Any) -> str:
    """Describe a value's type, for messages."""
    return f"{len(value)} values" if isinstance(value, tuple) else type(value).__name__
