"""Lifetimes in environments drawn from the prior, thousands side by side, for training on it.

Arrays have a last axis that runs over N lifetimes. The rows of a finite MDP that are certain are
neither drawn nor stored.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.environments.environment import step_or_reset
from jbrl.mdp import mdp, sampling
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior, Prior
from jbrl.rollout.contract import Transition

NEVER = 2.0  # above any uniform number


class Lifetimes(NamedTuple):
    """N lifetimes of H decisions that are about to begin."""

    state: Any  # of the environments
    observation: Array  # [..., N]
    # of what is random about a step, states and actions: the next states, observations and rewards,
    # whether an episode has terminated, and whether one was cut off
    step: Callable[[Any, Any, Array], Any]
    noise: Any  # what is random about the steps, along a leading axis [H]
    choices: Array  # [H, N] float32 in [0, 1), for the decisions


def play(
    lifetimes: Lifetimes,
    memory: Any,
    decide: Callable[[Any, Array, Array], tuple[Any, Array, Any]],
    learn: Callable[[Any, Transition], Any],
) -> tuple[Any, Array, Any, tuple[Array, ...]]:
    """Play lifetimes by an agent.

    Args:
      memory: of the agent, before the first decision.
      decide: of memory, observations and uniform numbers: returns memory, actions [N], and what is
        kept of the decision.
      learn: of memory and transitions: returns memory.

    Returns: the last memory and observations; what was kept, [H, ...]; rewards, whether an episode
      has terminated, and whether one has ended, [H, N] each.
    """

    def step(carry: tuple[Any, ...], drawn: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        (state, observation, memory), (noise, choice) = carry, drawn
        memory, action, kept = decide(memory, observation, choice)
        state, following, reward, terminated, truncated = lifetimes.step(noise, state, action)
        seen = Transition(observation, action, reward, following, terminated, truncated)
        ended = terminated | truncated
        return (state, following, learn(memory, seen)), (kept, (reward, terminated, ended))

    start = (lifetimes.state, lifetimes.observation, memory)
    drawn = (lifetimes.noise, lifetimes.choices)
    (_, last, memory), (kept, outcomes) = lax.scan(step, start, drawn)
    return memory, last, kept, outcomes


@record
class Rows:
    """The uncertain rows of a Dirichlet distribution over MDPs, and where transitions are in them.

    `D` = S A + 1: rows of the MDP, and one that stands for none.
    """

    concentrations: Array  # [R, K] float32, 0 where a row has fewer successors
    row: Array  # [S A] int32, the uncertain row of (state, action), R where it is certain
    place: Array  # [S A S] int32, entry of a transition in [R, K], R K where it is certain
    successor: Array  # [S A K] int32, the next state of each entry; certain ones repeated
    reward: Array  # [S A K] float32

    @property
    def shape(self) -> tuple[int, int]:
        """R and K."""
        return self.concentrations.shape[-2], self.concentrations.shape[-1]


def rows_of(prior: DirichletPrior) -> Rows:
    """Return the uncertain rows. On the host; NumPy arrays."""
    alpha, rewards = np.asarray(prior.mdps.concentrations), np.asarray(prior.mdps.rewards)
    n_states = alpha.shape[0]
    alpha, rewards = alpha.reshape(-1, n_states), rewards.reshape(-1, n_states)
    possible = alpha > 0
    uncertain = possible.sum(1) > 1
    n_rows, width = int(uncertain.sum()), max(2, int(possible.sum(1).max()))
    row = np.where(uncertain, np.cumsum(uncertain) - 1, n_rows)
    # the possible successors first, in order; where there are fewer, the first again
    order = np.argsort(~possible, axis=1, kind="stable")
    order = np.pad(order, ((0, 0), (0, max(0, width - n_states))), mode="edge")[:, :width]
    exists = np.arange(width) < possible.sum(1, keepdims=True)
    order = np.where(exists, order, order[:, :1])
    place = np.full(alpha.shape, n_rows * width)
    for pair in np.flatnonzero(uncertain):
        k = possible[pair].sum()
        place[pair, order[pair, :k]] = row[pair] * width + np.arange(k)
    columns: tuple[Any, ...] = (
        np.where(exists, np.take_along_axis(alpha, order, 1), 0)[uncertain].astype(np.float32),
        row.astype(np.int32),
        place.reshape(-1).astype(np.int32),
        order.reshape(-1).astype(np.int32),
        np.take_along_axis(rewards, order, 1).reshape(-1).astype(np.float32),
    )
    return Rows(*columns)


@record
class RandomNumbers:
    """Everything random about N lifetimes of H decisions in finite MDPs, except the MDPs."""

    first: Array  # [N] float32 in [0, 1), for the first state
    noise: Array  # [H, N] float32 in [0, 1), for transitions
    choices: Array  # [H, N] float32 in [0, 1), for the decisions


def draw_numbers(key: Array, number: Array, horizon: int, width: int) -> RandomNumbers:
    """Draw what is random about lifetimes of batch `number`, [] int32: from streams of their own
    for environments and decisions.
    """

    def uniforms(name: str, rows: int) -> Array:
        bits = jax.random.bits(stream(key, number, name), (rows * width,))
        return sampling.words_to_uniforms(bits).reshape(rows, width)

    noise = uniforms("environment", horizon + 1)
    return RandomNumbers(noise[-1], noise[:-1], uniforms("agent", horizon))


def draw_thresholds(key: Array, number: Array, rows: Rows, width: int, *, unit: bool) -> Array:
    """Draw the MDPs of batch `number`: cumulative probabilities [R + 1, K - 1, N] of all but the
    last successor of each uncertain row, and a last row that stands for those that are certain.

    Args:
      unit: all concentrations are 0 or 1.
    """
    n_rows, most = rows.shape
    mine = stream(key, number, "mdp")
    if unit:
        drawn = sampling.exponentials(mine, (n_rows, most, width))
        weights = drawn * jnp.asarray(rows.concentrations)[:, :, None]
    else:
        keys = jax.random.split(mine, width)
        weights = jax.vmap(sampling.dirichlet, in_axes=(0, None), out_axes=-1)(
            keys, jnp.asarray(rows.concentrations)
        )
    sums = [weights[:, 0]]
    for k in range(1, most):
        sums.append(sums[-1] + weights[:, k])
    thresholds = jnp.stack(sums[:-1], axis=1) / sums[-1][:, None]
    return jnp.concatenate([thresholds, jnp.full((1, most - 1, width), NEVER, jnp.float32)])


def dirichlet_lifetimes(
    prior: DirichletPrior, rows: Rows, thresholds: Array, numbers: RandomNumbers
) -> Lifetimes:
    """Return lifetimes in the MDPs of `thresholds`, one endless episode each."""
    n_states, n_actions, width = prior.mdps.n_states, prior.mdps.n_actions, numbers.first.shape

    def advance(noise: Array, x: Array, action: Array) -> tuple[Any, ...]:
        y, reward = step(rows, thresholds, x * n_actions + action, noise)
        never = jnp.zeros(width, jnp.bool_)
        return y, y, reward, never, never

    first = mdp.start(prior.mdps.initial_state, n_states, numbers.first)
    first = jnp.broadcast_to(first, width)
    return Lifetimes(first, first, advance, numbers.noise, numbers.choices)


def step(rows: Rows, thresholds: Array, pair: Array, noise: Array) -> tuple[Array, Array]:
    """Return next states and rewards, [N] int32 and [N] float32.

    Args:
      pair: [N] int32, numbers of (state, action).
      noise: [N] float32 in [0, 1).
    """
    most = rows.shape[1]
    pair = vectorize.prevent_fusion_index(pair)
    row = vectorize.prevent_fusion_index(vectorize.pick(rows.row[:, None], pair))
    limits = vectorize.pick(thresholds, row)
    k = vectorize.fold(jnp.add, lambda j: (limits[j] <= noise).astype(jnp.float32), most - 1)
    entry = vectorize.prevent_fusion_index(pair * most + k.astype(jnp.int32))
    return (
        vectorize.prevent_fusion_index(vectorize.pick(rows.successor[:, None], entry)),
        vectorize.pick(rows.reward[:, None], entry),
    )


def environment_lifetimes(
    prior: Prior, key: Array, number: Array, horizon: int, width: int
) -> Lifetimes:
    """Return lifetimes of batch `number`, [] int32, in environments of any prior, which are stepped
    by their own methods. Where an episode has ended, the next one begins.
    """
    drawn = jax.random.split(stream(key, number, "mdp"), width)
    environments = jax.vmap(lambda k: prior.sample(k), out_axes=-1)(drawn)
    keys = jax.random.split(stream(key, number, "environment"), (horizon + 1, width))
    bits = jax.random.bits(stream(key, number, "agent"), (horizon * width,))
    choices = sampling.words_to_uniforms(bits).reshape(horizon, width)
    reset: Any = jax.vmap(lambda e, k: e.reset(k), in_axes=(-1, 0), out_axes=-1)
    advance: Any = jax.vmap(step_or_reset, in_axes=(-1, 0, -1, -1), out_axes=-1)

    def step(keys: Array, state: Any, action: Array) -> Any:
        state, observation, outcome = advance(environments, keys, state, action)
        return state, observation, outcome.reward, outcome.terminated, outcome.truncated

    state, observation = reset(environments, keys[-1])
    return Lifetimes(state, observation, step, keys[:-1], choices)
