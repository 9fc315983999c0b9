"""Walks of Jordan et al. 2020: the way to the end of a chain, and across an empty square."""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Perturbed, Step, register_environment
from jbrl.environments.spec import Discrete, Episodes, Spec
from jbrl.mdp import sampling

LARGEST_SLIP = 0.25  # of the slips that are drawn


class Slipping(Perturbed):
    """Mixin of walks whose `slip` is drawn for each lifetime where they are `stochastic`."""

    def perturb(self, key: Array) -> Self:
        this: Any = self
        drawn = jax.random.uniform(key, maxval=LARGEST_SLIP)
        return dataclasses.replace(this, slip=jnp.where(this.stochastic, drawn, this.slip))


@record
class ChainState:
    """Position in the chain, and step of the episode."""

    position: Array  # [] int32, from 0
    steps: Array  # [] int32, of this episode


@register_environment("Chain", cite="jordan2020")
class Chain(Environment[ChainState], Slipping):
    """Chain of N states: walk from the first to the last, left or right, for -1 per step.

    Observation: the state, 0 to N - 1. Action 0 goes left, action 1 right; nothing leads beyond the
    ends. With probability slip / 2 the agent stays, with probability slip / 2 it goes the
    other way.

    Reward: -1, but `last_reward` for the last step of an episode. An episode terminates in state
    N - 1 or after 20 N steps: running out of time is terminal, as in the published comparison.
    Returns lie in [-(20 N - 1), -(N - 2)], plus `last_reward`, and both ends are attained.

    Source: Jordan et al. 2020; the published program (ScottJordan/EvaluationOfRLAlgs) where it
    says more, and where it differs: the last step earns -1 in the paper, 0 in the program.
    """

    lifetime = Episodes(100)

    n_states: int = parameter(10, "N, length of the chain", low=2, high=5000, static=True)
    slip: float = parameter(
        0.0, "probability that a step does not go where it is meant to", low=0, high=1
    )
    stochastic: bool = parameter(
        False, f"draw `slip` for each lifetime, uniformly from [0, {LARGEST_SLIP}]"
    )
    # Static: with its default the compiled program is the one without it, to the last bit.
    last_reward: float = parameter(
        0.0,
        "reward of the last step of an episode; -1: that of every other step, as in the paper",
        low=-1,
        high=0,
        static=True,
        late=True,
    )

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.n_states), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return 10.0 * self.n_states

    def reset(self, key: Array) -> tuple[ChainState, Array]:
        del key
        first = jnp.int32(0)
        return ChainState(first, jnp.int32(0)), first

    def step(self, key: Array, state: ChainState, action: Array) -> tuple[ChainState, Step]:
        uniform = sampling.uniforms(key)[0]
        wanted = 2 * action - 1
        move = jnp.where(
            uniform >= self.slip, wanted, jnp.where(uniform < 0.5 * self.slip, 0, -wanted)
        )
        position = vectorize.prevent_fusion_index(
            jnp.clip(state.position + move, 0, self.n_states - 1)
        )
        steps = state.steps + 1
        ended = (position == self.n_states - 1) | (steps >= 20 * self.n_states)
        reward = jnp.where(ended, jnp.float32(self.last_reward), jnp.float32(-1))
        return ChainState(position, steps), Step(position, reward, ended)


@record
class GridworldState:
    """Position in the square, and step of the episode."""

    x: Array  # [] int32, from 0
    y: Array  # [] int32, from 0
    steps: Array  # [] int32, of this episode


@register_environment("Gridworld", cite="jordan2020")
class Gridworld(Environment[GridworldState], Slipping):
    """Gridworld of N x N cells: walk from corner (0, 0) to corner (N - 1, N - 1), for -1 per step.

    Observation: the number of the cell, x N + y. Actions: 0 for y - 1, 1 for y + 1, 2 for x - 1, 3
    for x + 1; nothing leads beyond the border. With probability slip / 2 the agent stays, with
    probability slip / 4 each it takes the action whose number is one above or one below, 0
    following upon 3, or, with `perpendicular`, one of the two actions along the other axis.

    Reward: -1 at each step, the last one included. An episode terminates in the far corner or after
    20 N^2 steps: running out of time is terminal, as in the published comparison. Returns lie in
    [-20 N^2, -2 (N - 1)], and both ends are attained.

    Source: Jordan et al. 2020; the published program (ScottJordan/EvaluationOfRLAlgs) where it
    says more, and where it differs: slips are perpendicular in the paper.
    """

    lifetime = Episodes(100)

    size: int = parameter(5, "N, cells along one side", low=2, high=70, static=True)
    slip: float = parameter(
        0.0, "probability that a step does not go where it is meant to", low=0, high=1
    )
    stochastic: bool = parameter(
        False, f"draw `slip` for each lifetime, uniformly from [0, {LARGEST_SLIP}]"
    )
    # Static: with its default the compiled program is the one without it, to the last bit.
    perpendicular: bool = parameter(
        False,
        "a step that slips goes to one side of where it is meant to, as in the paper, instead of "
        "taking the action one above or one below",
        static=True,
        late=True,
    )

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.size**2), Discrete(4))

    @property
    def typical_steps(self) -> float:
        return 4.5 * self.size**2

    def reset(self, key: Array) -> tuple[GridworldState, Array]:
        del key
        zero = jnp.int32(0)
        return GridworldState(zero, zero, zero), zero

    def step(self, key: Array, state: GridworldState, action: Array) -> tuple[GridworldState, Step]:
        uniform = sampling.uniforms(key)[0]
        turn = jnp.where(uniform >= self.slip, 0, jnp.where(uniform < 0.75 * self.slip, 1, -1))
        stays = uniform < 0.5 * self.slip
        taken = _to_the_side(action, turn) if self.perpendicular else (action + turn) & 3
        move = jnp.where(stays, 0, 2 * (taken & 1) - 1)
        last = self.size - 1
        x = vectorize.prevent_fusion_index(
            jnp.clip(state.x + jnp.where(taken >= 2, move, 0), 0, last)
        )
        y = vectorize.prevent_fusion_index(
            jnp.clip(state.y + jnp.where(taken >= 2, 0, move), 0, last)
        )
        steps = state.steps + 1
        ended = ((x == last) & (y == last)) | (steps >= 20 * self.size**2)
        return GridworldState(x, y, steps), Step(x * self.size + y, jnp.float32(-1), ended)


def _to_the_side(action: Array, turn: Array) -> Array:
    """Return the action along the other axis, forwards for a turn of 1 and backwards for -1; the
    action itself for 0.
    """
    side = (2 - (action & 2)) + jnp.where(turn > 0, 1, 0)
    return jnp.where(turn == 0, action, side)
