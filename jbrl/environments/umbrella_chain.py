"""Umbrella chain: the first action decides the last reward, and noise comes between."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec
from jbrl.mdp import sampling

KEY_BITS = 64  # of a key's words


@record
class UmbrellaChainState:
    """The weather, the umbrella, and step of the episode."""

    need: jax.Array  # [] int32, 1: an umbrella is needed
    have: jax.Array  # [] int32, 1: the agent has one
    steps: jax.Array  # [] int32, of this episode


@register_environment("UmbrellaChain", cite="osband2020bsuite")
class UmbrellaChain(Environment[UmbrellaChainState]):
    """Umbrella chain of bsuite: take the umbrella at the start or not; whether it was right shows
    at the end.

    Observation, [3 + n_distractor]: need; have; 1 - t / L after t of L steps; distractors, bits
    drawn anew for each observation. `need` is drawn once per episode, and so is `have`, until the
    first action replaces it: 1 takes the umbrella, 0 leaves it. Later actions change nothing.

    Reward: 1 if have = need, else -1, at step L, where the episode terminates; before, -1 or 1 by a
    fair coin.

    Metrics: `total_regret`, 2 where have differs from need at the end.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime: ClassVar[Lifetime] = Episodes(10_000)

    chain_length: int = parameter(20, "L, steps of an episode", low=1, high=100_000)
    n_distractor: int = parameter(20, "distracting bits", low=0, high=1000, static=True)

    @property
    def spec(self) -> Spec:
        return Spec(Box((3 + self.n_distractor,), 0.0, 1.0), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.chain_length)

    def reset(self, key: jax.Array) -> tuple[UmbrellaChainState, jax.Array]:
        bits = _random_bits(key, self.n_distractor + 2)
        state = UmbrellaChainState(bits[0], bits[1], jnp.int32(0))
        return state, self._observation(state, bits[2:])

    def step(
        self, key: jax.Array, state: UmbrellaChainState, action: jax.Array
    ) -> tuple[UmbrellaChainState, Step]:
        bits = _random_bits(key, self.n_distractor + 2)  # as many as reset draws
        first = state.steps == 0
        have = vectorize.prevent_fusion_index(jnp.where(first, action, state.have))
        after = UmbrellaChainState(state.need, have, state.steps + 1)
        ended = after.steps == self.chain_length
        good = jnp.where(ended, have == state.need, bits[0] == 1)
        reward = jnp.where(good, jnp.float32(1), jnp.float32(-1))
        return after, Step(self._observation(after, bits[2:]), reward, ended, jnp.bool_(False))

    def metrics(self, state: UmbrellaChainState) -> dict[str, jax.Array]:
        wrong = (state.steps == self.chain_length) & (state.have != state.need)
        return {"total_regret": jnp.where(wrong, jnp.float32(2), jnp.float32(0))}

    def _observation(self, state: UmbrellaChainState, distractors: jax.Array) -> jax.Array:
        length = jnp.asarray(self.chain_length, jnp.int32).astype(jnp.float32)
        left = 1 - state.steps.astype(jnp.float32) / length
        known = [state.need.astype(jnp.float32), state.have.astype(jnp.float32), left]
        return jnp.concatenate([jnp.stack(known), distractors.astype(jnp.float32)])


def _random_bits(key: jax.Array, n: int) -> jax.Array:
    """Return n fair bits, [n] int32: those of the key's own words where they suffice."""
    if n <= KEY_BITS:
        return sampling.bits_of(jax.random.key_data(key), n)
    return sampling.bits_of(jax.random.bits(key, (-(-n // 32),)), n)
