"""Latency: what one decision takes a caller in Python who plays one lifetime, dispatch included.

The caller asks for an action, waits for it, and hands in what came of it. The environment has its
own time, which does not count.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from jbrl.base.pytree import record, select
from jbrl.play import compilation
from jbrl.play.compilation import Program
from jbrl.play.timing import timed
from jbrl.play.unit import LATENCY_DECISIONS
from jbrl.rollout.contract import Transition
from jbrl.rollout.faults import observe_key

WARM = 8  # decisions before those that count: the first calls of a program take longer


class Latency(NamedTuple):
    """Wall seconds of one decision: median and 99th percentile."""

    seconds: float
    p99_seconds: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency":
        """Return the latency by decisions that took `seconds` each."""
        return cls(*(float(v) for v in np.quantile(seconds, [0.5, 0.99])))

    def columns(self) -> dict[str, float]:
        """Return the latency as a result keeps it."""
        return {"latency_seconds": self.seconds, "latency_p99_seconds": self.p99_seconds}


@record
class Life:
    """A lifetime before its first decision."""

    agent: Any
    state: Any  # of the agent
    environment: Any
    inner: Any  # state of the environment
    observation: jax.Array
    key: jax.Array


Begin = Callable[[Any, jax.Array], Life]


def measured(begin: Begin, shared: Any, length: int, device: jax.Device) -> tuple[Latency, float]:
    """Measure `LATENCY_DECISIONS` decisions of lifetimes that are played one at a time.

    Args:
      begin: function of the module level that JAX traces: lifetime number [] int32 of `shared`.
      length: decisions after which the next lifetime begins.

    Returns: the latency, and the wall seconds of compilation.
    """
    shared, place = jax.device_put(shared, device), [device]
    (starting,), one = compilation.compile_together(
        lambda: _compiled(begin, (), (shared, np.int32(0)), place)
    )
    life = starting.call(shared, np.int32(0))
    programs, others = compilation.compile_together(*_steps(life, place))
    seconds: list[float] = []
    number = 0
    while len(seconds) < WARM + LATENCY_DECISIONS:
        count = min(length, WARM + LATENCY_DECISIONS - len(seconds))
        seconds += _decisions(life, count, *(program.call for program in programs))
        number += 1
        life = starting.call(shared, np.int32(number))
    return Latency.of(seconds[WARM:]), one + others


def _steps(life: Life, place: list[jax.Device]) -> list[Callable[[], Program]]:
    """Return the tasks that compile a decision, learning from it, and the environment."""
    step = np.int32(0)
    deciding = (life.agent, life.key, step, life.state, life.observation)
    action, state = jax.eval_shape(_act, *deciding)
    moving = (life.environment, life.key, step, life.inner, life.observation, action)
    _, _, transition = jax.eval_shape(_move, *moving)
    learning = (life.agent, life.key, step, state, transition)
    return [
        lambda: _compiled(_act, (3,), deciding, place),
        lambda: _compiled(_observe, (3,), learning, place),
        lambda: _compiled(_move, (), moving, place),
    ]


def _compiled(
    fn: Callable[..., Any], donated: tuple[int, ...], args: tuple[Any, ...], place: list[jax.Device]
) -> Program:
    # unused arguments are kept, as in `batching`
    jitted = jax.jit(fn, donate_argnums=donated, keep_unused=True)
    return compilation.compile_for(fn, jitted, args, place, (1, 1))


def _decisions(
    life: Life,
    count: int,
    act: Callable[..., Any],
    observe: Callable[..., Any],
    move: Callable[..., Any],
) -> list[float]:
    """Play decisions of one lifetime: wall seconds of each, learning from its outcome included."""
    state, inner, observation = life.state, life.inner, life.observation
    taken: list[float] = []
    for step in np.arange(count, dtype=np.int32):
        given = jax.device_get(observation)  # what a caller has: numbers of the host
        (action, state), deciding = timed(
            lambda *now: _chosen(*act(life.agent, life.key, *now)), step, state, given
        )
        inner, observation, transition = move(
            life.environment, life.key, step, inner, observation, action
        )
        state, learning = timed(
            observe, life.agent, life.key, step, state, jax.device_get(transition)
        )
        taken.append(deciding + learning)
    return taken


def _chosen(action: jax.Array, state: Any) -> tuple[np.int32, Any]:
    """Wait for the action."""
    return np.int32(action), state


# What follows is traced.


def _distinct(state: Any) -> Any:
    """Return a state whose leaves are arrays of their own, so that each can be donated."""
    return lax.optimization_barrier(
        jax.tree.map(lambda v: lax.convert_element_type(v, v.dtype), state)
    )


def _act(agent: Any, key: jax.Array, step: Any, state: Any, observation: Any) -> Any:
    action, state = agent.act(jax.random.fold_in(key, step), state, observation)
    return action, _distinct(state)


def _observe(agent: Any, key: jax.Array, step: Any, state: Any, transition: Any) -> Any:
    return _distinct(agent.observe(observe_key(jax.random.fold_in(key, step)), state, transition))


@compilation.untimed
def _move(
    environment: Any, key: jax.Array, step: Any, inner: Any, observation: Any, action: Any
) -> Any:
    """Return the state of the environment, the next observation, and the transition."""
    key = jax.random.fold_in(key, step)
    after, result = environment.step(key, inner, action)
    transition = Transition(
        observation, action, result.reward, result.observation, result.terminated, result.truncated
    )
    ended = result.terminated | result.truncated
    restarted, first = environment.reset(jax.random.fold_in(key, 1))
    return select(ended, restarted, after), select(ended, first, result.observation), transition
