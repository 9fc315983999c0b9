"""A windy corridor: walk to its end, in a wind whose strength differs from one lifetime to the next."""

import dataclasses

import jax
import jax.numpy as jnp

import jbrl


@jbrl.record
class CorridorState:
    cell: jax.Array  # [] int32, from 0
    steps: jax.Array  # [] int32, of this episode
    gusts: jax.Array  # [] int32, of this episode


@jbrl.register_environment("Corridor")
class Corridor(jbrl.Environment[CorridorState], jbrl.Perturbed):
    """Corridor of N cells: walk from the first to the last, left or right, for -1 per step; a gust of wind blows one cell back."""

    lifetime = jbrl.Episodes(50)
    version = 1

    length: int = jbrl.parameter(6, "N, number of cells", low=2, high=1000, static=True)
    wind: float = jbrl.parameter(0.4, "probability of a gust at each step; each lifetime draws its own, from 0 to this", low=0, high=0.5)

    @property
    def spec(self) -> jbrl.Spec:
        return jbrl.Spec(jbrl.Discrete(self.length), jbrl.Discrete(2))

    def perturb(self, key: jax.Array) -> "Corridor":
        return dataclasses.replace(self, wind=self.wind * jax.random.uniform(key))

    def reset(self, key: jax.Array) -> tuple[CorridorState, jax.Array]:
        zero = jnp.int32(0)
        return CorridorState(zero, zero, zero), zero

    def step(self, key: jax.Array, state: CorridorState, action: jax.Array) -> tuple[CorridorState, jbrl.Step]:
        gust = (jbrl.sampling.uniforms(key)[0] < self.wind).astype(jnp.int32)
        move = 2 * action - 1 - gust
        cell = jnp.clip(state.cell + move, 0, self.length - 1)
        after = CorridorState(cell, state.steps + 1, state.gusts + gust)
        arrived = cell == self.length - 1
        too_long = ~arrived & (after.steps >= 20 * self.length)
        return after, jbrl.Step(cell, jnp.float32(-1), arrived, too_long)

    def metrics(self, state: CorridorState) -> dict[str, jax.Array]:
        return {"gusts": state.gusts.astype(jnp.float32)}
