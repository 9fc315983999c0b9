"""Discounting chain: the first action chooses when a reward comes, the best one at one of
five times.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec

DELAYS = (1, 3, 10, 30, 100)  # number of the step that is rewarded, for each chain
LENGTH = 100  # steps of an episode
BEST = 1.1  # reward of one of the chains; 1 of the others


@record
class DiscountingChainState:
    """Index of the chain, and step of the episode."""

    chain: jax.Array  # [] int32, -1 before the first action
    steps: jax.Array  # [] int32, of this episode


@register_environment("DiscountingChain", cite="osband2020bsuite")
class DiscountingChain(Environment[DiscountingChainState]):
    """Discounting chain of bsuite: choose one of five delays, then wait; one reward is a
    little higher.

    Observation: the chain, -1 before the first action, and the steps taken, divided by 100; [2].
    The first action, 0 to 4, chooses the chain; later ones change nothing. The chains pay at step
    1, 3, 10, 30 or 100: 1.1 in chain `mapping_seed` modulo 5, 1 in the others. An episode
    terminates after 100 steps. The best return is 1.1, that of random actions 1.02.

    No metrics, as in the original.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime: ClassVar[Lifetime] = Episodes(1000)

    mapping_seed: int = parameter(0, "number of the best chain, modulo 5", low=0, high=2**31 - 1)

    @property
    def spec(self) -> Spec:
        return Spec(Box((2,), (-1.0, 0.0), (len(DELAYS) - 1.0, 1.0)), Discrete(len(DELAYS)))

    @property
    def typical_steps(self) -> float:
        return float(LENGTH)

    def reset(self, key: jax.Array) -> tuple[DiscountingChainState, jax.Array]:
        del key
        state = DiscountingChainState(jnp.int32(-1), jnp.int32(0))
        return state, _observation(state)

    def step(
        self, key: jax.Array, state: DiscountingChainState, action: jax.Array
    ) -> tuple[DiscountingChainState, Step]:
        del key
        chain = jnp.where(state.steps == 0, action, state.chain)
        after = DiscountingChainState(chain, state.steps + 1)
        delay = jnp.int32(DELAYS[-1])
        for number, steps in enumerate(DELAYS[:-1]):
            delay = jnp.where(chain == number, steps, delay)
        pays = jnp.where(
            chain == self.mapping_seed % len(DELAYS), jnp.float32(BEST), jnp.float32(1)
        )
        reward = jnp.where(after.steps == delay, pays, jnp.float32(0))
        ended = after.steps == LENGTH
        return after, Step(_observation(after), reward, ended, jnp.bool_(False))


def _observation(state: DiscountingChainState) -> jax.Array:
    time = state.steps.astype(jnp.float32) * jnp.float32(1 / LENGTH)
    return jnp.stack([state.chain.astype(jnp.float32), time])
