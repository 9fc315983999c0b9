"""Contract of an agent as a rollout knows it, and the mixins that it finds by type."""

from typing import Any, Protocol

import jax
import numpy as np

from jbrl.base.pytree import record
from jbrl.environments.environment import Environment
from jbrl.problems.prior import Prior


@record
class Transition:
    """One step of a lifetime, as an agent sees it."""

    observation: jax.Array  # as the spec says
    action: jax.Array  # [] int32
    reward: jax.Array  # [] float32
    next_observation: jax.Array  # after the last step of an episode the terminal observation
    terminated: jax.Array  # [] bool, the episode has ended: nothing can be earned afterwards
    truncated: jax.Array  # [] bool, the episode was cut off


class Player(Protocol):
    """The four methods of an agent: pure functions that JAX can trace, for one lane.

    `jbrl.agents.agent.Agent` has their defaults.
    """

    def train(self, key: jax.Array, prior: Prior) -> Any: ...

    def reset(self, key: jax.Array, knowledge: Any) -> Any: ...

    def act(self, key: jax.Array, state: Any, observation: jax.Array) -> tuple[jax.Array, Any]: ...

    def observe(self, key: jax.Array, state: Any, transition: Transition) -> Any: ...


class Oracle:
    """Mixin of agents that see the true environment: reference lines, not competitors."""

    def reveal(self, knowledge: Any, environment: Environment) -> Any:
        """Return the knowledge after being shown the environment of a lifetime, before
        it starts.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method reveal")


class Stepwise:
    """Mixin of agents whose `observe` is a number of equal steps that differs from lane to lane.

    In place of `observe`, the driver for T steps calls `note`, then `think` until `ready`, each
    lane at its own pace; the outcome is the same. The state must keep lanes independent and be
    handled by `vectorize.over_lanes` functions.
    """

    def note(self, state: Any, transition: Transition) -> Any:
        """Take in one transition.

        Must return a state that is not `ready` unchanged, as must `act`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method note")

    def think(self, state: Any) -> Any:
        """Take one step of learning. Must return a state that is `ready` unchanged."""
        raise NotImplementedError(f"{type(self).__name__} has no method think")

    def ready(self, state: Any) -> jax.Array:
        """Return whether the next decision may be taken, [] bool."""
        raise NotImplementedError(f"{type(self).__name__} has no method ready")


class Sized:
    """Mixin of agents whose work at each step differs from lane to lane, since they draw how many
    weights they have.

    Lifetimes of similar size are played in one group. Results do not depend on it.
    """

    def sizes(self, state: Any) -> np.ndarray:
        """Return the work of a step of each lane, [n] int64 in any unit, from the states of n lanes
        stacked along a leading axis. On the host.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method sizes")


class Measured:
    """Mixin of agents that keep numbers of a lifetime, which stand beside those of the recorder."""

    def metrics(self, state: Any) -> dict[str, Any]:
        """Return entries of the state by name, [] float32 or int32 each: those at the end of the
        block in which the lifetime ended.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method metrics")


class StaysWithNaN:
    """Mixin of agents that go on with NaN in their state: it is no fault, and they keep count of
    it.
    """


def watched(agent: Any, state: Any) -> Any:
    """Return the part of an agent's state in which NaN is a fault: all, unless it
    `StaysWithNaN`.
    """
    return () if isinstance(agent, StaysWithNaN) else state


class MayDiverge:
    """Mixin of agents whose learning may diverge: where the state of the agent becomes NaN, or it
    has no action to choose, only that lifetime fails, and the others go on.

    `refusal` says that learning has diverged.
    """


class DrawsParameters:
    """Mixin of agents that stand for a distribution over agents, one drawn for each lifetime."""

    def draw(self, key: jax.Array) -> Any:
        """Draw the agent of one lifetime."""
        raise NotImplementedError(f"{type(self).__name__} has no method draw")

    def draw_and_train(self, key: jax.Array, prior: Prior) -> tuple[Any, Any]:
        """Draw the agent of one lifetime, and what it learns on the prior."""
        raise NotImplementedError(f"{type(self).__name__} has no method draw_and_train")

    def values(self, key: jax.Array) -> dict[str, jax.Array]:
        """Return the values that `draw` draws with this key, numbers [] by parameter."""
        raise NotImplementedError(f"{type(self).__name__} has no method values")
