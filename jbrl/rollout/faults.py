"""The beginning of a lifetime and one decision, checked: legal actions, states that keep their
shape, the keys of the methods, and the faults of a lifetime as codes that compiled code returns.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.errors import JbrlError, shown
from jbrl.base.host_values import find_host_values, refusal
from jbrl.base.plugins import explained, is_outside
from jbrl.environments.environment import Environment
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import (
    Agent,
    DrawsParameters,
    OfflineSearch,
    Oracle,
    Stepwise,
    Transition,
    as_arrays,
)

ILLEGAL_ACTION, BAD_REWARD, BAD_OBSERVATION, TWO_ENDS, NO_END = 1, 2, 3, 4, 5
NAN = 6  # in the first floating leaf of the states; NAN + i: in leaf number i


def nan_fault(states: Any, *, lanes_last: bool = False) -> Array:
    """Return `NAN` + the number of the first floating leaf of `states` that holds NaN, 0 for none:
    [] int32.

    Infinities are no fault: agents use them as bounds and as values of excluded actions.

    Args:
      lanes_last: mapped, `states` come from a loop that keeps lanes on the last axis
        (`vectorize.while_active`): read them in that layout.
    """
    fault = jnp.int32(0)
    floating = [leaf for _, leaf in _floating_leaves(states)]
    for i, leaf in reversed(list(enumerate(floating))):
        holds_nan = _any_nan(leaf) if lanes_last else jnp.isnan(leaf).any()
        fault = jnp.where(holds_nan, NAN + i, fault)
    return fault


@vectorize.over_lanes
def _any_nan(leaf: Array) -> Array:
    """Return whether a leaf holds NaN: [N] bool from [..., N]."""
    return jnp.isnan(leaf.reshape(-1, leaf.shape[-1])).any(0)  # once in a lifetime: no `fold`


def nan_path(states: Any, fault: int) -> tuple[Any, ...]:
    """Return the path, as JAX has it, of the leaf that a fault of `nan_fault` means.

    Args:
      states: of the same structure and dtypes; arrays or `jax.ShapeDtypeStruct`.
    """
    return _floating_leaves(states)[fault - NAN][0]


def said_of_nan(path: tuple[Any, ...]) -> str:
    """Return the end of a sentence about a state with NaN in the leaf at `path`: empty where the
    state is one array.
    """
    field = jax.tree_util.keystr(path)
    return (
        f"NaN in {field} of its state: expected numbers or infinities"
        if field
        else "its state is NaN: expected numbers or infinities"
    )


def _floating_leaves(tree: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return paths and floating leaves of a pytree. Random keys are no floating leaves."""
    leaves = jax.tree.leaves_with_path(tree)
    return [(path, leaf) for path, leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def reset_key(own: Array) -> Array:
    """Return the key of `reset`, from the agent's own key.

    Costs nothing where it is not used: the compiler drops it.
    """
    return jax.random.fold_in(own, 2**32 - 1)


def observe_key(act_key: Array) -> Array:
    """Return the key of `observe`, from that of the decision before.

    Costs nothing where it is not used: the compiler drops it.
    """
    return jax.random.fold_in(act_key, 1)


def begin(agent: Any, knowledge: Any, own: Array, environment: Environment) -> tuple[Any, Any]:
    """Return the agent that plays, drawn if it `DrawsParameters`, and its state before the first
    decision.

    Args:
      own: key of the agent.
    """
    if isinstance(agent, DrawsParameters):
        agent, knowledge = agent.draw_and_train(own, knowledge)
    if isinstance(agent, Oracle):
        knowledge = agent.reveal(knowledge, environment)
    state = traced(agent, "reset", reset_key(own), knowledge)
    return agent, _of_arrays(agent, "reset", state)


def act(
    agent: Any, key: Array, state: Any, observation: Array, n_actions: int
) -> tuple[Array, Any, Array]:
    """Return a legal action, the state after deciding, and whether the action chosen was legal.

    Raises:
      JbrlError: `act` returned something else than one action and the state, while it is traced.
    """
    returned = traced(agent, "act", key, state, observation)
    if not (isinstance(returned, tuple) and len(returned) == 2):
        what = f"{len(returned)} values" if isinstance(returned, tuple) else _kind(returned)
        raise JbrlError(
            f"{_named(agent, 'act')} returned {what}: expected the action and the state, also "
            "where that stays as it is: return action, state"
        )
    chosen, state = returned
    if not (_is_array(chosen) and jnp.shape(chosen) == () and jnp.result_type(chosen) == jnp.int32):
        raise JbrlError(
            f"{type(agent).__name__}.act returned {_kind(chosen)}: expected one action as a "
            "scalar int32"
        )
    action = jnp.clip(chosen, 0, n_actions - 1)
    return action, state, action == chosen


def traced(agent: Any, method: str, *given: Any) -> Any:
    """Call a method of an agent while it is traced.

    Raises:
      JbrlError: it asks Python for a number that is known only when the program runs; the message
        names the method, the file and the line.
    """
    try:
        return getattr(agent, method)(*given)
    except jax.errors.JAXTypeError as error:
        raise JbrlError(f"{type(agent).__name__}.{method}: {explained(error)}") from error


def train(agent: Any, key: Array, prior: Any) -> Any:
    """Return what an agent learns from the prior, while it is traced.

    Raises:
      JbrlError: something else than arrays and numbers, or as `traced`.
    """
    return _of_arrays(agent, "train", traced(agent, "train", key, prior))


def _of_arrays(agent: Any, method: str, returned: Any) -> Any:
    """Return what a method has returned, if it is made of arrays and numbers."""
    for path, leaf in jax.tree.leaves_with_path(returned):
        if not _is_array(leaf):
            field = jax.tree_util.keystr(path)
            raise JbrlError(
                f"{type(agent).__name__}.{method} returned {shown(leaf)}"
                f"{f' in {field}' if field else ''}: expected arrays and numbers"
            )
    return returned


def _named(agent: Any, method: str) -> str:
    """Return the name of a method, with its file and line where they are known."""
    called: Any = getattr(type(agent), method, None)
    code: Any = getattr(inspect.unwrap(called), "__code__", None)
    place = f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
    return f"{type(agent).__name__}.{method}{place}"


def _is_array(value: Any) -> bool:
    """Return whether a value is an array or a number to JAX."""
    try:
        jax.typeof(value)
    except TypeError:
        return False
    return True


def _kind(value: Any) -> str:
    return str(jax.typeof(value)) if isinstance(value, Array) else type(value).__name__


def check_state(agent: Any, before: Any, decided: Any, learned: Any) -> None:
    """Refuse a state that changes its shapes or dtypes in a step, while the step is traced.

    Args:
      before: the state before the step.
      decided: what `act` made of it.
      learned: what `observe` made of that.

    Raises:
      JbrlError: a leaf has another shape or dtype; the message names the method and the leaf.
    """
    method, after = ("observe", learned) if _change(before, decided) is None else ("act", decided)
    if _change(before, learned) is not None:
        raise JbrlError(
            f"{_named(agent, method)} returned {_change(before, after)}: expected a state that "
            "keeps its fields, shapes and dtypes"
        )


def _change(before: Any, after: Any) -> str | None:
    """Return the first difference of two states in words; None if JAX takes the one for the
    other.
    """
    structures: list[Any] = [jax.tree.structure(state) for state in (before, after)]
    if structures[0] != structures[1]:
        if after is None or (isinstance(after, tuple) and not isinstance(before, tuple)):
            return f"{_kind(after)} as its state, where {_kind(before)} was before"
        return "a state with other fields than before"
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        one, other = jax.typeof(old), jax.typeof(new)
        # a Python number has no dtype of its own yet
        if one.shape != other.shape or (one.dtype != other.dtype and not one.weak_type):
            field = jax.tree_util.keystr(path)
            return f"{other}{f' in {field}' if field else ''} as its state, where {one} was before"
    return None


_CHECKED: set[Any] = set()  # agents that take no values from the host, and with which priors


def check_host_values(agent: Agent, name: str, prior: Prior) -> None:
    """Refuse an agent outside jbrl whose traced methods take random numbers or times from the host.

    Raises:
      JbrlError: names the method.
    """
    if not is_outside(type(agent)):
        return
    checked = (type(agent), jax.tree.structure(agent), type(prior), prior.spec)
    if checked in _CHECKED:
        return
    frozen = find_host_values(lambda: programs_of(agent, prior))
    if frozen:
        raise JbrlError(f"{name}: {refusal(frozen)}")
    _CHECKED.add(checked)


def programs_of(agent: Agent, prior: Prior) -> Iterator[tuple[str, Any]]:
    """Trace the methods of an agent: their names and programs."""
    player: Any = as_arrays(agent)
    shape: Any = jax.ShapeDtypeStruct
    key, spec = jax.eval_shape(lambda: jax.random.key(0)), prior.spec
    seen = shape(spec.observation.shape, spec.observation.dtype)
    number, truth, reward = (shape((), dtype) for dtype in (jnp.int32, jnp.bool_, jnp.float32))
    transition = Transition(seen, number, reward, seen, truth, truth)

    def trace(method: str, *given: Any) -> tuple[tuple[str, Any], Any]:
        """Return a method's name and program, and the shapes of what it returns."""
        traced = jax.make_jaxpr(lambda a, *given: getattr(a, method)(*given), return_shape=True)
        program, result = traced(player, *given)
        return (method, program), result

    knowledge: Any = prior
    if not isinstance(player, OfflineSearch):
        program, knowledge = trace("train", key, prior)
        yield program
    if isinstance(player, Oracle):
        environment = jax.eval_shape(lambda p, k: p.sample(k), prior, key)
        program, knowledge = trace("reveal", knowledge, environment)
        yield program
    program, state = trace("reset", key, knowledge)
    yield program
    program, (_, state) = trace("act", key, state, seen)
    yield program
    yield trace("observe", key, state, transition)[0]
    if isinstance(player, Stepwise):
        yield trace("add_transition", state, transition)[0]
        yield trace("improve", state)[0]
        yield trace("converged", state)[0]
