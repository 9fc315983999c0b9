"""Choices of an action from values or preferences that several agents share.

An action is drawn from a softmax in three ways, whose last bits differ, so that each agent draws
what it drew when its results were stored: `softmax_sample` from logits, in one pass;
`softmax_sample_lanes` from arrays whose last axis runs over lanes, with log-probabilities;
`softmax_draw` from a `SoftmaxPolicy`, of which the linear agents need the probabilities as well.
"""

import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.rollout.contract import NO_ACTION

GREATEST_PREFERENCE = 32.0  # preferences count as at most this, and at least as minus this


def epsilon_greedy(
    greedy: Array, n_actions: int, epsilon: float | Array, uniforms: Array | tuple[Array, ...]
) -> Array:
    """Return `greedy`, or any of the actions with probability `epsilon`: [] int32.

    Args:
      uniforms: [2] float32 in [0, 1): the first decides whether to explore, the second is for
        the action.
    """
    explored = (uniforms[1] * n_actions).astype(jnp.int32)  # below `n_actions`, also when rounded
    return jnp.where(uniforms[0] < epsilon, explored, greedy)


@vectorize.over_lanes
def greatest(values: Array) -> Array:
    """Return the first action of greatest value among [A]: [] int32; `NO_ACTION` where a value is
    NaN.
    """
    most = vectorize.fold(jnp.maximum, lambda u: values[u], values.shape[0])
    first = vectorize.fold(
        jnp.minimum, lambda u: jnp.where(values[u] >= most, u, values.shape[0]), values.shape[0]
    )
    first = jnp.where(first < values.shape[0], first, NO_ACTION)
    return vectorize.prevent_fusion_index(first)


def softmax_sample(logits: Array, uniform: Array) -> Array:
    """Return an action drawn from the softmax of `logits` [A], by one uniform number in [0, 1):
    [] int32.

    The first whose cumulative probability exceeds the number; `NO_ACTION` with NaN among
    the logits.
    """
    weights = jnp.exp(logits - logits.max())
    sums = jnp.cumsum(weights)
    # the last sum need not be compared: it is the total
    action = (sums[:-1] <= uniform * sums[-1]).sum(dtype=jnp.int32)
    action = jnp.where(jnp.isnan(sums[-1]), NO_ACTION, action)
    # or XLA chooses it anew in each operation that uses it
    return vectorize.prevent_fusion_index(action)


def softmax_sample_lanes(logits: Array, uniform: Array) -> tuple[Array, Array]:
    """Return actions drawn from the softmax of `logits` [A, N], by one uniform number each, [N]
    int32, and their log-probabilities [N].
    """
    n_actions = logits.shape[0]
    greatest = vectorize.fold(jnp.maximum, lambda u: logits[u], n_actions)
    weights = jnp.exp(logits - greatest[None])
    sums = [weights[0]]
    for u in range(1, n_actions):
        sums.append(sums[-1] + weights[u])
    wanted = uniform * sums[-1]
    number = sum(((s <= wanted).astype(jnp.int32) for s in sums[:-1]), start=jnp.int32(0))
    action = vectorize.prevent_fusion_index(jnp.broadcast_to(number, uniform.shape))
    return action, vectorize.pick(logits, action) - greatest - jnp.log(sums[-1])


@record
class SoftmaxPolicy:
    """Softmax policy in one state."""

    probabilities: Array  # [A] float32
    logs: Array  # [A] float32


def softmax(preferences: Array) -> SoftmaxPolicy:
    """Return the policy of preferences [..., A] float32, limited to [-32, 32]."""
    limited = jnp.clip(preferences, -GREATEST_PREFERENCE, GREATEST_PREFERENCE)
    shifted = limited - limited.max(-1, keepdims=True)
    weights = jnp.exp(shifted)
    total = weights.sum(-1, keepdims=True)
    return SoftmaxPolicy(weights / total, shifted - jnp.log(total))


def softmax_draw(now: SoftmaxPolicy, uniform: Array) -> Array:
    """Return an action by a number in [0, 1): [] int32; the first one where a preference is NaN."""
    return sampling.inverse_cdf(sampling.cumulative(now.probabilities), uniform)


def log_probability(now: SoftmaxPolicy, action: Array) -> Array:
    """Return log pi(action): [] float32."""
    here = jnp.arange(now.logs.shape[-1], dtype=jnp.int32) == action
    return jnp.where(here, now.logs, 0.0).sum()


def log_gradient(now: SoftmaxPolicy, action: Array) -> Array:
    """Return the gradient of log pi(action) by the preferences: [A] float32.

    Limits of the preferences are passed over.
    """
    here = jnp.arange(now.logs.shape[-1], dtype=jnp.int32) == action
    return here.astype(jnp.float32) - now.probabilities
