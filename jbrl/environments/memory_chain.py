"""Memory chain: keep bits in mind until one of them is asked for."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Spec
from jbrl.mdp import sampling

KEY_BITS = 40  # that the words of a key hold beside the 24 bits that choose the query


@record
class MemoryChainState:
    """Context to remember, query to come, and step of the episode."""

    words: (
        jax.Array
    )  # [⌈num_bits / 32⌉] uint32, bit i of the context is bit i mod 32 of word ⌊i / 32⌋
    query: jax.Array  # [] int32, number of the bit that is asked for
    steps: jax.Array  # [] int32, of this episode
    right: jax.Array  # [] bool, of the last answer, once the episode has ended


@register_environment("MemoryChain", cite="osband2020bsuite")
class MemoryChain(Environment[MemoryChainState]):
    """Memory chain of bsuite: bits are shown at the start, and one of them is asked for at the end.

    With t the steps taken before an observation is made and L the `memory_length`, the observation
    is [num_bits + 2]: 1 - t / L; the number of the query if t = L - 1, else 0; the bits as -1 or 1
    if t = 0, else 0. As in the original, the observation of a step is made before its steps
    are counted:
    the first observation is seen twice, and an episode has L + 1 steps. The last action counts: 1
    for a bit of 1, 0 for a bit of 0. So L = 1 needs no memory.

    Reward: 1 for the right answer, -1 for the wrong one, 0 before. An episode terminates with it.

    Metrics: `total_perfect`, 1 for a right answer; `total_regret`, 2 for a wrong one.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6, which differs from
    the paper.
    """

    lifetime: ClassVar[Lifetime] = Episodes(10_000)

    memory_length: int = parameter(1, "L, steps from the bits to the query", low=1, high=100_000)
    num_bits: int = parameter(1, "bits to remember", low=1, high=1000, static=True)

    @property
    def spec(self) -> Spec:
        bits = self.num_bits
        low, high = (0.0, 0.0, *[-1.0] * bits), (1.0, max(bits - 1.0, 1.0), *[1.0] * bits)
        return Spec(Box((bits + 2,), low, high), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.memory_length) + 1

    def reset(self, key: jax.Array) -> tuple[MemoryChainState, jax.Array]:
        if self.num_bits <= KEY_BITS:
            data = jax.random.key_data(key)
            words = data[: -(-self.num_bits // 32)]
            uniform = sampling.words_to_uniforms(data[1])
        else:
            words = jax.random.bits(key, (-(-self.num_bits // 32) + 1,))
            words, uniform = words[1:], sampling.words_to_uniforms(words[0])
        query = sampling.uniform_index(uniform, self.num_bits)
        state = MemoryChainState(words, query, jnp.int32(0), jnp.bool_(False))
        return state, self._observation(state)

    def step(
        self, key: jax.Array, state: MemoryChainState, action: jax.Array
    ) -> tuple[MemoryChainState, Step]:
        del key
        ended = state.steps == self.memory_length
        bits = sampling.bits_of(state.words, self.num_bits)
        asked = jnp.arange(self.num_bits, dtype=jnp.int32) == state.query
        answer = (bits & asked.astype(jnp.int32)).sum(dtype=jnp.int32)
        right = ended & (action == answer)
        outcome = jnp.where(right, jnp.float32(1), jnp.float32(-1))
        reward = jnp.where(ended, outcome, jnp.float32(0))
        after = MemoryChainState(state.words, state.query, state.steps + 1, right)
        return after, Step(self._observation(state), reward, ended, jnp.bool_(False))

    def metrics(self, state: MemoryChainState) -> dict[str, jax.Array]:
        wrong = (state.steps > self.memory_length) & ~state.right
        regret = jnp.where(wrong, jnp.float32(2), jnp.float32(0))
        return {"total_perfect": state.right.astype(jnp.float32), "total_regret": regret}

    def _observation(self, state: MemoryChainState) -> jax.Array:
        length = jnp.asarray(self.memory_length, jnp.int32)
        left = 1 - state.steps.astype(jnp.float32) / length.astype(jnp.float32)
        query = jnp.where(state.steps == length - 1, state.query, 0).astype(jnp.float32)
        bits = sampling.bits_of(state.words, self.num_bits)
        shown = jnp.where(state.steps == 0, 2 * bits - 1, 0).astype(jnp.float32)
        return jnp.concatenate([jnp.stack([left, query]), shown])
