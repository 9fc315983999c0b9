"""Proximal policy optimisation with linear functions, as a complete algorithm."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.complete import log_uniform, uniform
from jbrl.agents.deep import sequence
from jbrl.agents.deep.sequence import TERMINATED, TRUNCATED, Rollout
from jbrl.agents.linear import complete
from jbrl.agents.linear.features import Features, Orders
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition

MINIBATCHES = (16, 32, 64)  # sizes that programs are compiled for
# exponents of 2: steps of a buffer, steps of a minibatch
LOG_STEPS, LOG_BATCH = (6.0, 8.0), (4.0, 6.0)
STEPS = 256  # the longest buffer
FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-5  # of Adam


@record
class Learner:
    """Weights, preferences first and the value function in the last row, and what Adam keeps."""

    weights: Array  # [A + 1, F] float32
    first: Array  # [A + 1, F] float32
    second: Array  # [A + 1, F] float32
    step: Array  # [] int32, of Adam
    skipped: Array  # [] int32, minibatches that were passed over, an error being NaN


@record
class Sample:
    """Transitions of a buffer, with all that learning from them needs."""

    observations: Array  # as those of the buffer
    actions: Array  # [T] int32
    logs: Array  # [T] float32, of the probabilities that they were chosen with
    advantages: Array  # [T] float32
    targets: Array  # [T] float32, of the value function


@record
class Rules:
    """Numbers that an update depends on."""

    drawn: dict[str, Array]  # [] float32 each
    orders: Orders
    sign: Array  # [] float32, of the second term of the gradient of the entropy
    words: Array  # [2] uint32, of a random key


@record
class LinearPPOState:
    learner: Learner
    buffer: Rollout
    progress: complete.Progress


@register_agent("PPO-linear", cite="jordan2020,schulman2017")
class LinearPPO(complete.CompleteLinear):
    """Proximal policy optimisation with linear functions and Adam, its hyperparameters drawn for
    each lifetime.

    Every 64 to 256 decisions, 1 to 10 passes over them in minibatches of 16 to 64. Schulman et al.
    2017; Jordan et al. 2020, table 4. A decision is a pass over the weights of the policy; learning
    two for each sample of each pass and six for each minibatch, O(F A).
    """

    passes = 10.0
    beside = 3e-6  # minibatches, of whatever size
    compiling = 5.0

    alpha_low: float = complete.table_alpha("least", 1e-3)
    alpha_high: float = complete.table_alpha("greatest", 0.1)
    fourier_alpha_low: float = complete.fourier_alpha("least", 1e-6)
    fourier_alpha_high: float = complete.fourier_alpha("greatest", 1e-3)
    clip_low: float = parameter(
        0.1, "least distance from 1 of a ratio that counts, drawn uniformly", low=0, high=1
    )
    clip_high: float = parameter(0.3, "greatest distance from 1 of a ratio that counts", low=0)
    entropy_low: float = complete.positive(1e-8, "least weight of the entropy, drawn log-uniformly")
    entropy_high: float = complete.positive(1e-2, "greatest weight of the entropy")
    epochs_low: int = parameter(
        1, "least number of passes over the buffer, drawn uniformly", low=1, high=1000
    )
    epochs_high: int = parameter(10, "greatest number of passes over the buffer", low=1, high=1000)
    exact_entropy: bool = parameter(
        False,
        "the gradient of the entropy as it is; False: with the sign of the published program in "
        "its second term",
    )

    def draw(self, drawing: complete.Drawing) -> None:
        """See `CompleteLinear`."""
        self.draw_alpha(drawing, "alpha")
        drawing.draw("clip", uniform, self.clip_low, self.clip_high)
        drawing.draw("entropy", log_uniform, self.entropy_low, self.entropy_high)
        steps = jnp.round(2 ** drawing.draw("steps", uniform, *LOG_STEPS))
        low, high = LOG_BATCH
        batch = drawing.draw("batch", uniform, low, jnp.minimum(high, jnp.log2(steps)))
        drawing.drawn |= {"steps": steps, "batch": jnp.round(2**batch)}
        drawing.draw("epochs", complete.integer, self.epochs_low, self.epochs_high)

    def reset(self, key: Array, knowledge: Prior) -> LinearPPOState:
        """Draw the hyperparameters; all weights are 0."""
        progress = self.begin(key, knowledge)
        shape = (knowledge.spec.actions.n + 1, progress.features.capacity)
        zeros, none = jnp.zeros(shape, jnp.float32), jnp.int32(0)
        learner = Learner(zeros, zeros, zeros, none, none)
        return LinearPPOState(learner, Rollout.empty(knowledge.spec.observation, STEPS), progress)

    def act(
        self, key: Array, state: LinearPPOState, observation: Array
    ) -> tuple[Array, LinearPPOState]:
        """Draw an action from the policy."""
        progress = state.progress
        features, orders = progress.features, progress.orders
        here = features.encoded(observation, orders)
        values = features.values(state.learner.weights, here, orders)
        now = selection.softmax(values[:-1])
        return selection.softmax_draw(now, sampling.uniforms(key)[0]), state

    def observe(self, key: Array, state: LinearPPOState, transition: Transition) -> LinearPPOState:
        """Keep the transition; learn where the buffer is full."""
        progress = state.progress
        learns = self.learns(progress)
        buffer = state.buffer.append(transition)
        full = learns & (buffer.length >= progress.drawn["steps"].astype(jnp.int32))
        features = progress.features

        def update(learner: Learner, context: Any, _: tuple[int, ...]) -> Learner:
            return learned(features, learner, *context)

        sign = jnp.where(self.exact_entropy, jnp.float32(-1), jnp.float32(1))
        rules = Rules(progress.drawn, progress.orders, sign, jax.random.key_data(key))
        learner = sequence.update_where(full, update, state.learner, (buffer, rules), STEPS)
        after = progress.after(transition, learns, jnp.float32(0), jnp.float32(0))
        after = dataclasses.replace(after, skipped=learner.skipped)
        return LinearPPOState(learner, buffer.emptied(full | ~learns), after)


# What follows is of one lane: on CPUs lanes that learn take turns.


def learned(features: Features, learner: Learner, buffer: Rollout, rules: Rules) -> Learner:
    """Return the learner after all passes over a full buffer."""
    # or XLA works at every step, before it is known whether the buffer is full
    barred = (rules.words, buffer, learner.step)
    words, buffer, _ = lax.optimization_barrier(barred)
    sample = judged(features, learner, buffer, rules)
    key, length = jax.random.wrap_key_data(words), buffer.length
    epochs, batch = (rules.drawn[name].astype(jnp.int32) for name in ("epochs", "batch"))

    def sized(size: int) -> Learner:
        """Learn in minibatches of which the arrays have `size` transitions."""

        def epoch(number: Array, learner: Learner) -> Learner:
            order = shuffled(jax.random.fold_in(key, number), length)

            def minibatch(number: Array, learner: Learner) -> Learner:
                start = number * batch
                count = jnp.minimum(batch, length - start)  # the last one may be smaller
                chosen = lax.dynamic_slice_in_dim(order, start, size)
                part = jax.tree.map(lambda v: v.at[chosen].get(mode="promise_in_bounds"), sample)
                counts = jnp.arange(size, dtype=jnp.int32) < count
                return ascended(features, learner, part, counts, rules)

            return lax.fori_loop(0, (length + batch - 1) // batch, minibatch, learner)

        return lax.fori_loop(0, epochs, epoch, learner)

    # chosen here and not for each minibatch, where a choice would copy the weights
    return sequence.by_length(sized, batch, MINIBATCHES)


def shuffled(key: Array, length: Array) -> Array:
    """Return the numbers below `length` in random order, and then others: [T + 64] int32."""
    bits = jax.random.bits(key, (STEPS,)) >> 1
    place = jnp.arange(STEPS, dtype=jnp.int32)
    order = jnp.argsort(jnp.where(place < length, bits, jnp.uint32(2**32 - 1)))
    return jnp.pad(order.astype(jnp.int32), (0, MINIBATCHES[-1]))


def judged(features: Features, learner: Learner, buffer: Rollout, rules: Rules) -> Sample:
    """Return advantages and targets of a buffer, by the weights that it was played with.

    A_t = delta_t + gamma lambda A_{t+1} within an episode; the target is A_t + v(s_t). The last
    delta of an episode that was cut off has the value of its own last observation.
    """
    last = buffer.next_observations[buffer.length - 1]
    seen = sequence.as_inputs(jnp.concatenate([buffer.observations, last[None]]))
    outputs = features.rows(learner.weights, seen, rules.orders)
    logs, values = selection.softmax(outputs[:-1, :-1]).logs, outputs[:, -1]
    place = jnp.arange(STEPS, dtype=jnp.int32)
    # the observation after the last transition, which may have ended an episode, stands at the end
    following = jnp.where(place + 1 < buffer.length, values[1:], values[-1])
    counts, ends = place < buffer.length, buffer.ends[:, 0]
    cut = counts & (ends == TRUNCATED)

    def with_own(following: Array) -> Array:
        seen = sequence.as_inputs(buffer.next_observations)
        own = features.rows(learner.weights, seen, rules.orders)[:, -1]
        return jnp.where(cut, own, following)

    following = lax.cond(cut.any(), with_own, lambda following: following, following)
    gamma, decay = rules.drawn["gamma"], rules.drawn["lambda"]
    goes_on = jnp.where(ends == TERMINATED, 0.0, gamma)
    errors = buffer.rewards[:, 0] + goes_on * following - values[:-1]
    errors = jnp.where(counts, errors, 0.0)

    def back(later: Array, step: tuple[Any, Any]) -> tuple[Array, Array]:
        error, factor = step
        now = error + factor * later
        return now, now

    factors = jnp.where(counts & (ends == 0), gamma * decay, 0.0)
    _, advantages = lax.scan(back, jnp.float32(0), (errors, factors), reverse=True)
    actions = buffer.actions[:, 0]
    chosen = jnp.take_along_axis(logs, actions[:, None], axis=1)[:, 0]
    return Sample(buffer.observations, actions, chosen, advantages, advantages + values[:-1])


def ascended(
    features: Features, learner: Learner, part: Sample, counts: Array, rules: Rules
) -> Learner:
    """Return the learner after one minibatch, of which the transitions count that `counts`, [B]
    bool, says.
    """
    xs = sequence.as_inputs(part.observations)
    outputs = features.rows(learner.weights, xs, rules.orders)
    gradients = direction(outputs, part, rules)
    gradients = jnp.where(counts[:, None], gradients, 0.0) / counts.sum().astype(jnp.float32)
    learns = ~jnp.isnan(gradients).any()
    step = learner.step + learns.astype(jnp.int32)
    rate = adam_rate(rules.drawn["alpha"], jnp.maximum(step, 1))
    weights, *moments = features.ascended(
        (learner.weights, learner.first, learner.second),
        xs,
        gradients,
        rules.orders,
        adam_ascended,
        (rate, learns),
    )
    skipped = learner.skipped + 1 - learns.astype(jnp.int32)
    return Learner(weights, moments[0], moments[1], step, skipped)


def adam_rate(alpha: Array, step: Array) -> Array:
    """Return the step size of Adam times its corrections of both moments at step number `step`, []
    int32 from 1.
    """
    steps = step.astype(jnp.float32)
    first, second = (1 - jnp.float32(decay) ** steps for decay in (FIRST_DECAY, SECOND_DECAY))
    return alpha * jnp.sqrt(second) / first


def adam_ascended(
    arrays: tuple[Array, ...], gradient: Array, rate: Array, learns: Array
) -> tuple[Array, ...]:
    """Return weights, first and second moments, all of one shape, after a step of Adam up a
    gradient; where `learns`, [] bool, is False nothing changes.

    Kingma and Ba 2015, section 2. Not the step of optax, which the deep agents take: as in the
    published program, epsilon is added to the root of the second moment as it is.
    """
    weights, first, second = arrays
    # moments are computed once, or XLA computes them for the weights again, from copies
    prevent_fusion = vectorize.prevent_fusion
    new_first = prevent_fusion(FIRST_DECAY * first + (1 - FIRST_DECAY) * gradient)
    new_second = prevent_fusion(SECOND_DECAY * second + (1 - SECOND_DECAY) * gradient * gradient)
    moved = weights + rate * new_first / (jnp.sqrt(new_second) + EPSILON)
    new = (moved, new_first, new_second)
    return tuple(jnp.where(learns, n, o) for n, o in zip(new, arrays, strict=True))


def direction(outputs: Array, part: Sample, rules: Rules) -> Array:
    """Return the direction of preferences and value of each transition, [B, A + 1], from
    preferences and value, `outputs` of the same shape.

    The gradient of min(r A, clip(r) A), of the entropy and of -(G - v)^2 / 2. Schulman et al. 2017,
    equation 7.
    """
    now = selection.softmax(outputs[:, :-1])
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
    return jnp.concatenate([preferences, (part.targets - outputs[:, -1])[:, None]], axis=1)


def entropy_gradient(now: selection.SoftmaxPolicy, sign: Array) -> Array:
    """Return -pi ln pi + sign * pi H by each preference: [..., A]; with -1 the gradient of the
    entropy H, with 1 that of the published program.
    """
    terms = now.probabilities * now.logs
    entropy = -terms.sum(-1, keepdims=True)
    return -terms + sign * now.probabilities * entropy
