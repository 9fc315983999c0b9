"""The policy beyond the tree: half random, half greedy for Q-values learned from real transitions.

    Q(x, u) += 0.2 (r + g max_v Q(y, v) - Q(x, u))        after each real transition

A simulated step takes, with probability 1/2 each, any action or one of those of greatest Q(x, .).
Guez et al. 2012, section 3.4, with the numbers of the program of Castronovo et al. 2016. Without
learning all actions stay greedy and the policy is uniform.
"""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.search.memory import read
from jbrl.base.pytree import record
from jbrl.mdp import sampling

RATE = 0.2


@record
class RolloutPolicy:
    """Q-values, and the greedy actions they imply."""

    q: jax.Array  # [S, A] float32
    greedy: jax.Array  # [S, A] int32: greedy actions of each state, in front of the others
    n_greedy: jax.Array  # [S] int32


def uniform(n_states: int, n_actions: int) -> RolloutPolicy:
    """Return a policy with all actions greedy."""
    greedy = jnp.broadcast_to(jnp.arange(n_actions, dtype=jnp.int32), (n_states, n_actions))
    return RolloutPolicy(
        jnp.zeros((n_states, n_actions)), greedy, jnp.full(n_states, n_actions, jnp.int32)
    )


def learn(
    policy: RolloutPolicy,
    x: jax.Array,
    u: jax.Array,
    y: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
) -> RolloutPolicy:
    """Take one step of Q-learning."""
    row = vectorize.get_row(policy.q, x)
    step = reward + discount * vectorize.get_row(policy.q, y).max() - row
    row = row + jnp.where(
        jnp.arange(row.shape[0], dtype=u.dtype) == u, jnp.float32(RATE) * step, 0.0
    )
    best = row >= row.max()
    order = jnp.argsort(~best, stable=True).astype(jnp.int32)
    n_greedy = vectorize.set_row(policy.n_greedy[:, None], x, best.sum(dtype=jnp.int32)[None])[:, 0]
    return RolloutPolicy(
        vectorize.set_row(policy.q, x, row), vectorize.set_row(policy.greedy, x, order), n_greedy
    )


def act(
    greedy: jax.Array, n_greedy: jax.Array, x: jax.Array, word: jax.Array, n_actions: int
) -> jax.Array:
    """Return an action in state `x` by one random word, [] int32, from `RolloutPolicy.greedy` as [S
    * A] and `RolloutPolicy.n_greedy`.
    """
    uniform = sampling.words_to_uniforms(word << 1)
    anything = (uniform * n_actions).astype(jnp.int32)
    place = (uniform * read(n_greedy, x).astype(jnp.float32)).astype(jnp.int32)
    return jnp.where(word >> 31 == 0, anything, read(greedy, x * n_actions + place))
