"""Reference lines: uniformly random actions, and scripted policies, what is known to be good in the
environments of bsuite.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, static
from jbrl.environments import bsuite_cartpole, bsuite_tasks
from jbrl.environments.bsuite_tasks import DeepSea
from jbrl.environments.environment import Environment, unwrapped
from jbrl.environments.images import ImageBandit
from jbrl.environments.mountain_car import BsuiteMountainCar
from jbrl.environments.spec import Box, OneHot
from jbrl.mdp import sampling
from jbrl.problems.prior import EnvironmentPrior, Prior
from jbrl.rollout.contract import Agent, Oracle, Requirements

LARGEST = 1 << 20  # bytes of images that each lifetime holds, at most


@record
class RandomState:
    n_actions: int = static()


@register_agent("Random", cite="castronovo2016")
class Random(Agent[Prior, RandomState]):
    """Uniformly random actions.

    Castronovo et al. 2016, section 5.1.1. Needs no prior and takes any observation. O(1)
    per decision.
    """

    def reset(self, key: Array, knowledge: Prior) -> RandomState:
        return RandomState(knowledge.spec.actions.n)

    def act(self, key: Array, state: RandomState, observation: Array) -> tuple[Array, RandomState]:
        return (sampling.uniforms(key)[0] * state.n_actions).astype(jnp.int32), state


class View(NamedTuple):
    """Inputs of a policy's decision."""

    environment: Any
    seen: Array  # the observation
    memory: Array  # of `MemoryChain`, the first observation of the episode


@record
class ScriptedState:
    """The environment, and what is remembered of the episode."""

    environment: Any
    memory: Array  # [n] float32: the first observation after that of the end


@register_agent("Scripted", cite="osband2020bsuite")
class Scripted(Agent[Any, ScriptedState], Oracle):
    """A rule written for each of bsuite's environments, with knowledge of their fixed maps.

    Best possible in `Bandit` (the best arm), `ImageBandit` (looks the image up), `Catch` (below the
    ball), `DeepSea` (right), `DiscountingChain` (the best chain), `MemoryChain` and `UmbrellaChain`
    (what was shown at the start); good in `BsuiteMountainCar` (pushes as it moves),
    `BsuiteCartPole` (feedback of the state) and `BsuiteCartPoleSwingup` (gives the pole energy,
    then balances it). Learns nothing.

    O(1) per decision, but for `ImageBandit`, where it compares all images with the one that
    is shown.

    Source: Osband et al. 2020 for the environments and the best returns; the policies are
    jbrl's own.

    Raises:
      JbrlError: another environment, or more than a megabyte of images.
    """

    requires = Requirements(prior=EnvironmentPrior, observations=(OneHot, Box))

    def reveal(self, knowledge: Any, environment: Environment) -> Any:
        del knowledge
        inner = unwrapped(environment)
        if type(inner) not in POLICIES:
            names = ", ".join(kind.__name__ for kind in POLICIES)
            raise JbrlError(f"Scripted has no policy for {type(inner).__name__}: expected {names}")
        if isinstance(inner, ImageBandit) and inner.pixels.size > LARGEST:
            raise JbrlError(
                f"Scripted holds all images for each lifetime: {inner.pixels.size} bytes: "
                f"expected at most {LARGEST}, for example by a smaller fraction"
            )
        return inner

    def reset(self, key: Array, knowledge: Any) -> ScriptedState:
        shape = (
            knowledge.spec.observation.shape
            if isinstance(knowledge, bsuite_tasks.MemoryChain)
            else (1,)
        )
        return ScriptedState(knowledge, jnp.zeros(shape, jnp.float32))

    def act(
        self, key: Array, state: ScriptedState, observation: Array
    ) -> tuple[Array, ScriptedState]:
        environment, memory = state.environment, state.memory
        if isinstance(
            environment, bsuite_tasks.MemoryChain
        ):  # the bits are on screen while the first entry is 1
            memory = jnp.where(observation[0] == 1, observation, memory)
        action = POLICIES[type(environment)](View(environment, observation, memory))
        return action.astype(jnp.int32), ScriptedState(environment, memory)


def _images(view: View) -> Array:
    known = view.environment._shown(jnp.asarray(view.environment.pixels))
    same = jnp.argmin(jnp.abs(known - view.seen[None]).sum((1, 2)))
    return jnp.asarray(view.environment.labels).at[same].get(mode="promise_in_bounds")


def _catch(view: View) -> Array:
    columns = jnp.arange(view.environment.columns, dtype=jnp.float32)
    ball = (view.seen[:-1] * columns[None]).sum()
    paddle = (view.seen[-1] * columns).sum()
    return 1 + jnp.sign(ball - paddle)


def _deep_sea(view: View) -> Array:
    cell = jnp.maximum(view.seen, 0)
    return jnp.ravel(view.environment.mapping).at[cell].get(mode="promise_in_bounds")


def _memory(view: View) -> Array:
    asked = jnp.arange(view.environment.num_bits, dtype=jnp.float32) == view.seen[1]
    return (asked & (view.memory[2:] > 0)).any()


# Found by a random search of 1,200 policies, for the mean return at `height_threshold` 0.5 and
# `x_reward_threshold` 0.5.
BALANCE = (0.4, 1.7, 8.3, 2.1)  # weights of x, x', θ, θ'
DEAD = 0.1  # of the weighted sum: below, no push
CAPTURE = (0.53, 6.1)  # |θ| and |θ'| below which the pole is balanced
ENERGY = 1.5  # that may be missing, in units of m l²: below, no push
HOME = (0.7, 0.35, 1.5)  # weights of x and x', and the sum from which the cart is driven back


def _balanced(x: Any, x_dot: Any, theta: Any, theta_dot: Any) -> Array:
    """Return the action that keeps a pole up that is nearly upright."""
    lean = BALANCE[0] * x + BALANCE[1] * x_dot + BALANCE[2] * theta + BALANCE[3] * theta_dot
    return jnp.where(lean > DEAD, 2, jnp.where(lean < -DEAD, 0, 1))


def _cart(view: View) -> tuple[Array, Array]:
    """Return position and speed of the cart."""
    threshold = view.environment.x_threshold
    return view.seen[0] * threshold, view.seen[1] * threshold


def _cartpole(view: View) -> Array:
    x, x_dot = _cart(view)
    return _balanced(x, x_dot, jnp.arctan2(view.seen[2], view.seen[3]), view.seen[4])


def _swingup(view: View) -> Array:
    x, x_dot = _cart(view)
    theta, cos, theta_dot = jnp.arctan2(view.seen[2], view.seen[3]), view.seen[3], view.seen[4]
    # Energy of the pole beyond that of standing upright, in units of m l², l being half its length.
    energy = 2 / 3 * theta_dot**2 + bsuite_cartpole.GRAVITY / bsuite_cartpole.HALF_LENGTH * (
        cos - 1
    )
    pump = jnp.where(jnp.abs(energy) < ENERGY, 0.0, jnp.sign(energy) * theta_dot * cos)
    home = HOME[0] * x + HOME[1] * x_dot
    push = jnp.where(jnp.abs(home) > HOME[2], -home, pump)
    swung = jnp.where(jnp.abs(push) < 0.05, 1, jnp.where(push > 0, 2, 0))
    resting = (jnp.abs(theta_dot) < 0.05) & (cos < -0.9)  # nothing to pump: push anywhere
    caught = (jnp.abs(theta) < CAPTURE[0]) & (jnp.abs(theta_dot) < CAPTURE[1])
    balanced = _balanced(x, x_dot, theta, theta_dot)
    return jnp.where(caught, balanced, jnp.where(resting, 2, swung))


POLICIES: dict[type, Callable[[View], Array]] = {
    bsuite_tasks.Bandit: lambda view: jnp.argmax(jnp.asarray(view.environment.arms)),
    ImageBandit: _images,
    bsuite_tasks.Catch: _catch,
    bsuite_cartpole.BsuiteCartPole: _cartpole,
    bsuite_cartpole.BsuiteCartPoleSwingup: _swingup,
    BsuiteMountainCar: lambda view: jnp.where(view.seen[1] >= 0, 2, 0),
    DeepSea: _deep_sea,
    bsuite_tasks.DiscountingChain: lambda view: jnp.asarray(view.environment.mapping_seed % 5),
    bsuite_tasks.MemoryChain: _memory,
    bsuite_tasks.UmbrellaChain: lambda view: view.seen[0],
}
