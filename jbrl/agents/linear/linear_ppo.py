"""Proximal policy optimisation with linear functions, as a complete algorithm."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents.deep import sequence
from jbrl.agents.linear import adam, softmax
from jbrl.agents.linear.drawn import (
    CompleteLinear,
    Drawing,
    Progress,
    log_uniform,
    step_size,
    uniform,
)
from jbrl.agents.linear.drawn import integer as drawn_integer
from jbrl.agents.linear.features import Features
from jbrl.agents.linear.traces import Orders
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Observation
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition

MINIBATCHES = (16, 32, 64)  # sizes that programs are compiled for
# exponents of 2: steps of a buffer, steps of a minibatch
LOG_STEPS, LOG_BATCH = (6.0, 8.0), (4.0, 6.0)
STEPS = 256  # the longest buffer


@record
class Buffer:
    """The last transitions, of one episode or several; entries from `length` on are not set."""

    observations: jax.Array  # [T, d] float32, or [T, 1] int32 where observations are indices
    last: jax.Array  # [d] float32 or [1] int32, the observation after the last transition
    actions: jax.Array  # [T, 1] int32
    rewards: jax.Array  # [T, 1] float32
    ends: jax.Array  # [T, 1] int32, 1: the episode has terminated
    length: jax.Array  # [] int32


@record
class Learner:
    """Weights, preferences first and the value function in the last row, and what Adam keeps."""

    weights: jax.Array  # [A + 1, F] float32
    first: jax.Array  # [A + 1, F] float32
    second: jax.Array  # [A + 1, F] float32
    step: jax.Array  # [] int32, of Adam
    skipped: jax.Array  # [] int32, minibatches that were passed over, an error being NaN


@record
class Sample:
    """Transitions of a buffer, with all that learning from them needs."""

    observations: jax.Array  # as those of the buffer
    actions: jax.Array  # [T] int32
    logs: jax.Array  # [T] float32, of the probabilities that they were chosen with
    advantages: jax.Array  # [T] float32
    targets: jax.Array  # [T] float32, of the value function


@record
class Rules:
    """Numbers that an update depends on."""

    drawn: dict  # name: [] float32
    orders: Orders
    sign: jax.Array  # [] float32, of the second term of the gradient of the entropy
    words: jax.Array  # [2] uint32, of a random key


@record
class LinearPPOState:
    learner: Learner
    buffer: Buffer
    progress: Progress


@register_agent("PPO-linear", cite="jordan2020,schulman2017")
class LinearPPO(CompleteLinear):
    """Proximal policy optimisation with linear functions and Adam, its hyperparameters drawn for
    each lifetime.

    Every 64 to 256 decisions, 1 to 10 passes over them in minibatches of 16 to 64. Schulman et al.
    2017; Jordan et al. 2020, table 4. A decision is a pass over the weights of the policy; learning
    two for each sample of each pass and six for each minibatch, O(F A).
    """

    passes = 10.0
    beside = 3e-6  # minibatches, of whatever size
    compiling = 5.0

    alpha_low: float = step_size(1e-3, "least step size for tables, drawn log-uniformly")
    alpha_high: float = step_size(0.1, "greatest step size for tables")
    fourier_alpha_low: float = step_size(1e-6, "least step size for Fourier bases")
    fourier_alpha_high: float = step_size(1e-3, "greatest step size for Fourier bases")
    clip_low: float = parameter(
        0.1, "least distance from 1 of a ratio that counts, drawn uniformly", low=0, high=1
    )
    clip_high: float = parameter(0.3, "greatest distance from 1 of a ratio that counts", low=0)
    entropy_low: float = step_size(1e-8, "least weight of the entropy, drawn log-uniformly")
    entropy_high: float = step_size(1e-2, "greatest weight of the entropy")
    epochs_low: int = parameter(
        1, "least number of passes over the buffer, drawn uniformly", low=1, high=1000
    )
    epochs_high: int = parameter(10, "greatest number of passes over the buffer", low=1, high=1000)
    exact_entropy: bool = parameter(
        False,
        "the gradient of the entropy as it is; False: with the sign of the published program in "
        "its second term",
    )

    def reset(self, key: jax.Array, knowledge: Prior) -> LinearPPOState:
        """Draw the hyperparameters; all weights are 0."""
        drawing = self.drawing(key, knowledge)
        self._draw(drawing)
        progress = drawing.progress()
        shape = (knowledge.spec.actions.n + 1, progress.features.capacity)
        zeros, none = jnp.zeros(shape, jnp.float32), jnp.int32(0)
        learner = Learner(zeros, zeros, zeros, none, none)
        return LinearPPOState(learner, empty(knowledge.spec.observation), progress)

    def _draw(self, drawing: Drawing) -> None:
        self.draw_alpha(drawing, "alpha")
        number = drawing.number
        drawing.keep("clip", uniform(number("clip"), self.clip_low, self.clip_high))
        ends = self.entropy_low, self.entropy_high
        drawing.keep("entropy", log_uniform(number("entropy"), *ends))
        steps = jnp.round(2 ** uniform(number("steps"), *LOG_STEPS))
        low, high = LOG_BATCH
        batch = 2 ** uniform(number("batch"), low, jnp.minimum(high, jnp.log2(steps)))
        drawing.keep("steps", steps)
        drawing.keep("batch", jnp.round(batch))
        epochs = drawn_integer(number("epochs"), self.epochs_low, self.epochs_high)
        drawing.keep("epochs", epochs)

    def act(
        self, key: jax.Array, state: LinearPPOState, observation: jax.Array
    ) -> tuple[jax.Array, LinearPPOState]:
        """Draw an action from the policy."""
        progress = state.progress
        features, orders = progress.features, progress.orders
        here = features.encoded(observation, orders)
        values = features.values(state.learner.weights, here, orders)
        now = softmax.policy(values[:-1])
        return softmax.draw(now, sampling.uniforms(key)[0]), state

    def observe(
        self, key: jax.Array, state: LinearPPOState, transition: Transition
    ) -> LinearPPOState:
        """Keep the transition; learn where the buffer is full."""
        progress = state.progress
        learns = self.learns(progress)
        buffer = append(state.buffer, transition)
        full = learns & (buffer.length >= progress.drawn["steps"].astype(jnp.int32))
        features = progress.features

        def update(learner: Learner, context: Any, sizes: tuple[int, ...]) -> Learner:
            del sizes
            return learned(features, learner, *context)

        sign = jnp.where(self.exact_entropy, jnp.float32(-1), jnp.float32(1))
        rules = Rules(progress.drawn, progress.orders, sign, jax.random.key_data(key))
        learner = sequence.update_where(full, update, state.learner, (buffer, rules), STEPS)
        length = jnp.where(full | ~learns, 0, buffer.length)
        after = progress.after(transition, learns, jnp.float32(0), jnp.float32(0))
        after = dataclasses.replace(after, skipped=learner.skipped)
        return LinearPPOState(learner, dataclasses.replace(buffer, length=length), after)


def empty(observation: Observation) -> Buffer:
    """Return a buffer without transitions."""
    none = sequence.empty(observation, STEPS)
    rows = none.observations[:-1]
    return Buffer(rows, rows[0], none.actions, none.rewards, none.actions, jnp.int32(0))


def append(buffer: Buffer, transition: Transition) -> Buffer:
    """Return the buffer with one more transition; it must not be full."""
    at = buffer.length
    end = transition.terminated.astype(jnp.int32)
    return Buffer(
        sequence.put_row(buffer.observations, at, transition.observation.reshape(-1)),
        transition.next_observation.reshape(-1),
        sequence.put_row(buffer.actions, at, transition.action[None]),
        sequence.put_row(buffer.rewards, at, transition.reward[None]),
        sequence.put_row(buffer.ends, at, end[None]),
        at + 1,
    )


# What follows is of one lane: on CPUs lanes that learn take turns.


def learned(features: Features, learner: Learner, buffer: Buffer, rules: Rules) -> Learner:
    """Return the learner after all passes over a full buffer."""
    # or XLA works at every step, before it is known whether the buffer is full
    words, buffer, _ = lax.optimization_barrier((rules.words, buffer, learner.step))
    sample = judged(features, learner, buffer, rules)
    key = jax.random.wrap_key_data(words)

    epochs, batch = (rules.drawn[name].astype(jnp.int32) for name in ("epochs", "batch"))

    def sized(size: int) -> Learner:
        def epoch(number: jax.Array, learner: Learner) -> Learner:
            order = shuffled(jax.random.fold_in(key, number), buffer.length)
            return passed(features, learner, sample, Pass(order, buffer.length, batch, size), rules)

        return lax.fori_loop(0, epochs, epoch, learner)

    # chosen here and not for each minibatch, where a choice would copy the weights
    return sequence.by_length(sized, batch, MINIBATCHES)


@record
class Pass:
    """One pass over a buffer."""

    order: jax.Array  # [T + 64] int32
    length: jax.Array  # [] int32, of the buffer
    batch: jax.Array  # [] int32, transitions of a minibatch
    size: int = static(MINIBATCHES[-1])  # of the arrays of a minibatch


def shuffled(key: jax.Array, length: jax.Array) -> jax.Array:
    """Return the numbers below `length` in random order, and then others: [T + 64] int32."""
    bits = jax.random.bits(key, (STEPS,)) >> 1
    place = jnp.arange(STEPS, dtype=jnp.int32)
    order = jnp.argsort(jnp.where(place < length, bits, jnp.uint32(2**32 - 1)))
    return jnp.pad(order.astype(jnp.int32), (0, MINIBATCHES[-1]))


def judged(features: Features, learner: Learner, buffer: Buffer, rules: Rules) -> Sample:
    """Return advantages and targets of a buffer, by the weights that it was played with.

    A_t = delta_t + gamma lambda A_{t+1} within an episode; the target is A_t + v(s_t).
    """
    seen = jnp.concatenate([buffer.observations, buffer.last[None]])
    found = features.rows(learner.weights, inputs(seen), rules.orders)
    logs, values = softmax.policy(found[:-1, :-1]).logs, found[:, -1]
    place = jnp.arange(STEPS, dtype=jnp.int32)
    # the observation after the last transition, which may have ended an episode, stands at the end
    following = jnp.where(place + 1 < buffer.length, values[1:], values[-1])
    gamma, decay = rules.drawn["gamma"], rules.drawn["lambda"]
    goes_on = jnp.where(buffer.ends[:, 0] > 0, 0.0, gamma)
    counts = place < buffer.length
    errors = buffer.rewards[:, 0] + goes_on * following - values[:-1]
    errors = jnp.where(counts, errors, 0.0)

    def back(later: jax.Array, step: tuple) -> tuple[jax.Array, jax.Array]:
        error, factor = step
        now = error + factor * later
        return now, now

    factors = jnp.where(counts, goes_on * decay, 0.0)
    _, advantages = lax.scan(back, jnp.float32(0), (errors, factors), reverse=True)
    actions = buffer.actions[:, 0]
    chosen = jnp.take_along_axis(logs, actions[:, None], axis=1)[:, 0]
    return Sample(buffer.observations, actions, chosen, advantages, advantages + values[:-1])


def inputs(observations: jax.Array) -> jax.Array:
    """Return rows of observations as features take them: [B, d] float32 or [B] int32."""
    if jnp.issubdtype(observations.dtype, jnp.floating):
        return observations
    return observations[:, 0]


def passed(
    features: Features,
    learner: Learner,
    sample: Sample,
    over: Pass,
    rules: Rules,
) -> Learner:
    """Return the learner after one pass in minibatches, the last of which may be smaller."""

    def one(number: jax.Array, learner: Learner) -> Learner:
        start = number * over.batch
        count = jnp.minimum(over.batch, over.length - start)
        chosen = lax.dynamic_slice_in_dim(over.order, start, over.size)
        part = jax.tree.map(lambda v: v.at[chosen].get(mode="promise_in_bounds"), sample)
        counts = jnp.arange(over.size, dtype=jnp.int32) < count
        return ascended(features, learner, part, counts, rules)

    return lax.fori_loop(0, (over.length + over.batch - 1) // over.batch, one, learner)


def ascended(
    features: Features, learner: Learner, part: Sample, counts: jax.Array, rules: Rules
) -> Learner:
    """Return the learner after one minibatch, of which the transitions count that `counts`, [B]
    bool, says.
    """
    xs = inputs(part.observations)
    found = features.rows(learner.weights, xs, rules.orders)
    gradients = direction(found, part, rules)
    gradients = jnp.where(counts[:, None], gradients, 0.0) / counts.sum().astype(jnp.float32)
    learns = ~jnp.isnan(gradients).any()
    step = learner.step + learns.astype(jnp.int32)
    ascent = adam.ascent(rules.drawn["alpha"], jnp.maximum(step, 1), learns)
    arrays = (learner.weights, learner.first, learner.second)
    arrays = features.ascended(arrays, xs, gradients, rules.orders, adam.ascended, (ascent,))
    skipped = learner.skipped + 1 - learns.astype(jnp.int32)
    return Learner(*arrays, step, skipped)


def direction(found: jax.Array, part: Sample, rules: Rules) -> jax.Array:
    """Return the direction of preferences and value of each transition, [B, A + 1], from
    preferences and value `found`, of the same shape.

    The gradient of min(r A, clip(r) A), of the entropy and of -(G - v)^2 / 2. Schulman et al. 2017,
    equation 7.
    """
    now = softmax.policy(found[:, :-1])
    chosen = jnp.arange(now.logs.shape[1], dtype=jnp.int32)[None] == part.actions[:, None]
    ratios = jnp.exp(jnp.where(chosen, now.logs, 0.0).sum(1) - part.logs)
    clip = rules.drawn["clip"]
    limited = jnp.clip(ratios, 1 - clip, 1 + clip)
    gains = jnp.where(
        ratios * part.advantages <= limited * part.advantages, ratios * part.advantages, 0.0
    )
    policy = gains[:, None] * (chosen.astype(jnp.float32) - now.probabilities)
    entropy = entropy_gradient(now, rules.sign)
    preferences = policy + rules.drawn["entropy"] * entropy
    return jnp.concatenate([preferences, (part.targets - found[:, -1])[:, None]], axis=1)


def entropy_gradient(now: softmax.Policy, sign: jax.Array) -> jax.Array:
    """Return -pi ln pi + sign * pi H by each preference: [..., A]; with -1 the gradient of the
    entropy H, with 1 that of the published program.
    """
    terms = now.probabilities * now.logs
    entropy = -terms.sum(-1, keepdims=True)
    return -terms + sign * now.probabilities * entropy
