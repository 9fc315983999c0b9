"""Programs of the methods of an agent, and what must not be in them: values of the host."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from jbrl.base.errors import JbrlError
from jbrl.base.host_values import find_host_values, refusal
from jbrl.base.plugins import is_outside
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Agent, OfflineSearch, Oracle, Stepwise, Transition, as_arrays


def check_host_values(agent: Agent, name: str, prior: Prior) -> None:
    """Refuse an agent outside jbrl whose traced methods take random numbers or times from the host.

    Raises:
      JbrlError: names the method.
    """
    if not is_outside(type(agent)):
        return
    frozen = find_host_values(lambda: programs_of(agent, prior))
    if frozen:
        raise JbrlError(f"{name}: {refusal(frozen)}")


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
