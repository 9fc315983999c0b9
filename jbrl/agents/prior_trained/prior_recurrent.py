"""Proximal policy optimisation of a network with memory over lifetimes in environments drawn from
the prior: one round, a pure function.

Any prior of the house will do: environments are stepped by their own methods, mapped over
lifetimes. The memory goes on where an episode ends. Minibatches are lifetimes, unrolled whole.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents import selection
from jbrl.agents.deep import adam
from jbrl.agents.deep.returns import lambda_returns
from jbrl.agents.prior_trained.networks import Gru, each, total
from jbrl.agents.prior_trained.prior_ppo import (
    Training,
    normalised,
    scale_of,
    surrogate,
)
from jbrl.agents.prior_trained.trained import MOST_GROUPS
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Box, Spec
from jbrl.mdp import sampling
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import Prior


@record
class RecurrentSettings:
    """Settings of a round. Numbers are leaves, sizes are static."""

    learning_rate: jax.Array
    discount: jax.Array
    trace_decay: jax.Array
    clip: jax.Array
    value_cost: jax.Array
    entropy_cost: jax.Array
    max_gradient_norm: jax.Array
    reward_scale: jax.Array  # inputs are rewards times this
    network: Gru = static()
    width: int = static()  # W, lifetimes of a group
    groups: int = static()  # G
    horizon: int = static()  # H
    ends: bool = static()  # a lifetime is over after H decisions
    epochs: int = static()
    minibatches: int = static()  # M; divides W


@record
class Noticed:
    """The last action and its outcome, as an agent has noticed them."""

    action: jax.Array  # [...] int32, -1 before the first
    reward: jax.Array  # [...] float32
    ended: jax.Array  # [...] bool, an episode has ended with it


class Played(NamedTuple):
    """Transitions of the lifetimes of a group."""

    inputs: jax.Array  # [H, I, W]
    actions: jax.Array  # [H, W] int32
    logs: jax.Array  # [H, W], log-probabilities of the actions
    values: jax.Array  # [H + 1, W], in units of `Training.returns`
    rewards: jax.Array  # [H, W]
    terminated: jax.Array  # [H, W] bool
    ended: jax.Array  # [H, W] bool


class Sequences(NamedTuple):
    """Decisions of some lifetimes, to be learned from."""

    inputs: jax.Array  # [H, I, w]
    actions: jax.Array  # [H, w] int32
    logs: jax.Array  # [H, w]
    advantages: jax.Array  # [H, w], normalised
    returns: jax.Array  # [H, w]


def observed(spec: Spec) -> int:
    """Return the numbers that an observation consists of: indices are taken as one-hot vectors."""
    kind = spec.observation
    return math.prod(kind.shape) if isinstance(kind, Box) else kind.n


def input_size(spec: Spec) -> int:
    """Return I: an observation, the last action as a one-hot vector, the reward, the end."""
    return observed(spec) + spec.actions.n + 2


def inputs_of(
    sizes: tuple[int, int], observation: jax.Array, noticed: Noticed, reward_scale: jax.Array
) -> jax.Array:
    """Return the inputs [I, W] from W observations along a last axis.

    Args:
      sizes: numbers of an observation, and actions.
      observation: [..., W] float32, or [W] int32.
    """
    width = max(observation.shape[-1], noticed.reward.shape[-1])
    if jnp.issubdtype(observation.dtype, jnp.floating):
        seen = observation.reshape(-1, observation.shape[-1])
    else:
        seen = _one_hot(observation, sizes[0])
    parts = (
        seen,
        _one_hot(noticed.action, sizes[1]),
        (noticed.reward * reward_scale)[None],
        noticed.ended.astype(jnp.float32)[None],
    )
    return jnp.concatenate([jnp.broadcast_to(v, (v.shape[0], width)) for v in parts])


def _one_hot(index: jax.Array, n: int) -> jax.Array:
    return (jnp.arange(n, dtype=jnp.int32)[:, None] == index[None]).astype(jnp.float32)


def nothing_noticed(*shape: int) -> Noticed:
    """Return what is noticed before the first step."""
    return Noticed(jnp.full(shape, -1, jnp.int32), jnp.zeros(shape), jnp.zeros(shape, jnp.bool_))


def collect(
    settings: RecurrentSettings,
    parameters: jax.Array,
    prior: Prior,
    key: jax.Array,
    number: jax.Array,
) -> Played:
    """Play the lifetimes of group `number`, [] int32, by the stochastic policy."""
    width, horizon, network = settings.width, settings.horizon, settings.network
    sizes, layers = (observed(prior.spec), prior.spec.actions.n), network.layers(parameters)
    drawn = jax.random.split(stream(key, number, "mdp"), width)
    environments = jax.vmap(prior.sample, out_axes=-1)(drawn)
    luck = jax.random.split(stream(key, number, "environment"), (horizon + 1, width))
    bits = jax.random.bits(stream(key, number, "agent"), (horizon * width,))
    choices = sampling.words_to_uniforms(bits).reshape(horizon, width)
    reset = jax.vmap(lambda e, k: e.reset(k), in_axes=(-1, 0), out_axes=-1)
    step = jax.vmap(_step_or_reset, in_axes=(-1, 0, -1, -1), out_axes=-1)

    def decide(carry: tuple, drawn: tuple) -> tuple[tuple, tuple]:
        state, observation, memory, noticed = carry
        keys, choice = drawn
        inputs = inputs_of(sizes, observation, noticed, settings.reward_scale)
        memory = network.advance(layers, memory, inputs)
        outputs = network.read(layers, memory)
        action, log = selection.softmax_sample_lanes(outputs[:-1], choice)
        state, after, reward, terminated, ended = step(environments, keys, state, action)
        noticed = Noticed(action, reward, ended)
        found = (inputs, action, log, outputs[-1], reward, terminated, ended)
        return (state, after, memory, noticed), found

    state, observation = reset(environments, luck[-1])
    start = (state, observation, network.start(width), nothing_noticed(width))
    (_, last, memory, noticed), found = lax.scan(decide, start, (luck[:-1], choices))
    inputs, actions, logs, values, rewards, terminated, ended = found
    inputs_after = inputs_of(sizes, last, noticed, settings.reward_scale)
    memory = network.advance(layers, memory, inputs_after)
    after = network.read(layers, memory)[-1]
    values = jnp.concatenate([values, after[None]])
    return Played(inputs, actions, logs, values, rewards, terminated, ended)


def _step_or_reset(environment: Any, key: jax.Array, state: Any, action: jax.Array) -> tuple:
    """Take a step, and start the next episode where one has ended.

    Returns: the state, the observation, the reward, whether the episode has terminated, and whether
      it has ended.
    """
    state, found = environment.step(key, state, action)
    ended = found.terminated | found.truncated
    anew, first = environment.reset(jax.random.fold_in(key, 1))
    state, observation = jax.tree.map(
        lambda a, b: jnp.where(ended, a, b), (anew, first), (state, found.observation)
    )
    return state, observation, found.reward, found.terminated, ended


def unroll(network: Gru, parameters: jax.Array, inputs: jax.Array) -> jax.Array:
    """Return the outputs [H, O, w] of sequences of inputs [H, I, w]."""
    layers = network.layers(parameters)

    def step(memory: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        memory = network.advance(layers, memory, inputs)
        return memory, network.read(layers, memory)

    return lax.scan(step, network.start(inputs.shape[-1]), inputs)[1]


def loss(
    network: Gru,
    parameters: jax.Array,
    part: Sequences,
    settings: RecurrentSettings,
    share: jax.Array | float = 1.0,
) -> jax.Array:
    """Return the sum of the loss of `prior_ppo.surrogate` over some lifetimes: []."""
    outputs = jnp.moveaxis(unroll(network, parameters, part.inputs), 1, 0)
    flat = Sequences(part.inputs, *(v.reshape(-1) for v in part[1:]))
    return surrogate(outputs.reshape(outputs.shape[0], -1), flat, settings, share)


def remember_and_learn(
    arguments: tuple[Training, jax.Array, jax.Array, tuple],
) -> tuple[Training, jax.Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns up to H or, where returns are not discounted, of the mean return of an
    episode, [2].

    Args: as `prior_ppo.play_and_learn`.
    """
    training, share, key, (settings, prior) = arguments
    network, width = settings.network, settings.width

    count = settings.groups * width

    def play(group: jax.Array) -> tuple[Played, jax.Array]:
        number = training.round * MOST_GROUPS + group
        played = collect(settings, training.parameters, prior, key, number)
        return played, scores(played, prior.discount)

    def mean_of(parts: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = total(lambda _, v: v.sum(), parts) / size
        squares = total(lambda _, v: ((v - mean) ** 2).sum(), parts)
        return mean, jnp.sqrt(jnp.maximum(squares / size, 0))

    played, earned = lax.map(play, jnp.arange(settings.groups, dtype=jnp.int32))
    mean, spread = mean_of(earned, jnp.float32(count))
    found, values = each(lambda _, one: targets(settings, one, training.returns), played)
    decisions = jnp.float32(count * settings.horizon)
    level, deviation = mean_of(found, decisions)
    # without a reward, returns are sums of what the network says before it has learned
    rewarded = (played.rewards != 0).any()
    measured = scale_of(level, jnp.where(rewarded, deviation, 0.0), 1 / settings.reward_scale)
    scale = jnp.where(training.round == 0, measured, training.returns)
    advantages, fitted = each(lambda _, g, v: (g - v, (g - scale[0]) / scale[1]), found, values)
    advantages = normalised(advantages)
    parts = Sequences(played.inputs, played.actions, played.logs, advantages, fitted)
    size = width // settings.minibatches

    def descend(state: tuple, number: jax.Array) -> tuple[tuple, None]:
        parameters, moments = state

        def of_group(_: jax.Array, one: Sequences) -> jax.Array:
            part = Sequences(
                *(lax.dynamic_slice_in_dim(v, number * size, size, v.ndim - 1) for v in one)
            )
            return jax.grad(lambda p: loss(network, p, part, settings, share))(parameters)

        n_steps = jnp.float32(count // settings.minibatches * settings.horizon)
        slope = total(of_group, parts) / n_steps
        rate, max_norm = settings.learning_rate * share, settings.max_gradient_norm
        return adam.optimiser_step(rate, slope, moments, parameters, max_norm), None

    order = jnp.tile(jnp.arange(settings.minibatches, dtype=jnp.int32), settings.epochs)
    state, _ = lax.scan(descend, (training.parameters, training.optimiser), order)
    return Training(*state, scale, training.round + 1), jnp.stack([mean, spread])


def scores(played: Played, discount: jax.Array) -> jax.Array:
    """Return the discounted return of each lifetime, [W]; where the discount is 1, the mean
    return of an episode, the last one included as far as it went.
    """
    weights = discount ** jnp.arange(played.rewards.shape[0], dtype=jnp.float32)
    returns = (played.rewards * weights[:, None]).sum(0)
    episodes = 1 + played.ended[:-1].sum(0).astype(jnp.float32)
    return jnp.where(discount < 1, returns, returns / episodes)


def targets(
    settings: RecurrentSettings, played: Played, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the lambda-returns and the values of all steps, [H, W] each.

    A return ends where an episode terminates. Where the lifetime goes on after step H, it does so
    by the value of the observation that it has reached; and where an episode is cut off, by that of
    the first observation of the next one.
    """
    values = played.values * scale[1] + scale[0]
    trace = jnp.full(settings.horizon, 1.0).at[-1].set(0.0) * settings.trace_decay
    discounts = jnp.where(played.terminated, 0.0, settings.discount)
    if settings.ends:
        discounts = discounts.at[-1].set(0.0)
    found = jax.vmap(lambda_returns, in_axes=(1, 1, 1, None), out_axes=1)(
        played.rewards, discounts, values[1:], trace
    )
    return found, values[:-1]
