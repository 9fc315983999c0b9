"""Chain: walk to the end of a row of states, one state per step."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Perturbed, Step, register_environment
from jbrl.environments.spec import Discrete, Episodes, Lifetime, Spec
from jbrl.mdp import sampling

LARGEST_SLIP = 0.25  # of the slips that are drawn


@record
class ChainState:
    """Position in the chain, and step of the episode."""

    position: jax.Array  # [] int32, from 0
    steps: jax.Array  # [] int32, of this episode


@register_environment("Chain", cite="jordan2020")
class Chain(Environment[ChainState], Perturbed):
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

    lifetime: ClassVar[Lifetime] = Episodes(100)

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

    def perturb(self, key: jax.Array) -> "Chain":
        drawn = jax.random.uniform(key, maxval=LARGEST_SLIP)
        slip: jax.Array = jnp.where(self.stochastic, drawn, self.slip)
        return dataclasses.replace(self, slip=slip)

    @property
    def typical_steps(self) -> float:
        return 10.0 * self.n_states

    def reset(self, key: jax.Array) -> tuple[ChainState, jax.Array]:
        del key
        first = jnp.int32(0)
        return ChainState(first, jnp.int32(0)), first

    def step(self, key: jax.Array, state: ChainState, action: jax.Array) -> tuple[ChainState, Step]:
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
        return ChainState(position, steps), Step(position, reward, ended, jnp.bool_(False))
