"""A windy corridor: walk to its end, in a wind that differs from one lifetime to the next."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

import jbrl


@jbrl.record
class State:
    cell: Array  # [] int32, from 0
    steps: Array  # [] int32, of this episode
    gusts: Array  # [] int32, of this episode


@jbrl.register_environment("Corridor")
class Corridor(jbrl.Environment[State], jbrl.Perturbed):
    """Walk from the first of N cells to the last, for -1 per step; a gust blows one cell back."""

    lifetime = jbrl.Episodes(50)
    version = 1

    length: int = jbrl.parameter(6, "N, number of cells", low=2, high=1000, static=True)
    wind: float = jbrl.parameter(0.4, "greatest probability of a gust", low=0, high=0.5)

    @property
    def spec(self) -> jbrl.Spec:
        return jbrl.Spec(jbrl.Discrete(self.length), jbrl.Discrete(2))

    def perturb(self, key: Array) -> "Corridor":
        return dataclasses.replace(self, wind=self.wind * jax.random.uniform(key))

    def reset(self, key: Array) -> tuple[State, Array]:
        zero = jnp.int32(0)
        return State(zero, zero, zero), zero

    def step(self, key: Array, state: State, action: Array) -> tuple[State, jbrl.Step]:
        gust = (jbrl.sampling.uniforms(key)[0] < self.wind).astype(jnp.int32)
        move = 2 * action - 1 - gust
        cell = jnp.clip(state.cell + move, 0, self.length - 1)
        after = State(cell, state.steps + 1, state.gusts + gust)
        arrived = cell == self.length - 1
        too_long = ~arrived & (after.steps >= 20 * self.length)
        return after, jbrl.Step(cell, jnp.float32(-1), arrived, too_long)

    def metrics(self, state: State) -> dict[str, Array]:
        return {"gusts": state.gusts.astype(jnp.float32)}
