"""Rounds of training on the prior: groups of lifetimes that are played and learned from.

Groups are computed one after the other, since each fits into the cache of a core. Proximal policy
optimisation (Schulman et al. 2017) of perceptrons (`belief_ppo`) and of networks with memory
(`rl2`) shares the parts that stand here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents import selection
from jbrl.agents.deep import adam
from jbrl.agents.deep.sequence import lambda_returns
from jbrl.agents.prior_trained.lifetimes import Lifetimes, play
from jbrl.agents.prior_trained.networks import FlatNetwork
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.rollout.contract import Transition

MOST_ROUNDS, MOST_GROUPS = 2**19, 2**12  # of which each batch of lifetimes has a number of 32 bits
INITIAL_SCALE = 0.01  # of the weights that outputs start with: the first policy is nearly uniform
ROUNDING = 1e-5  # a deviation below this part of the mean is that of sums in single precision
LEAST_SCALE = 1e-6  # of values, in units of the greatest reward


@record
class Training:
    """State of a training: what the next round starts from."""

    parameters: Array  # [P] float32
    optimiser: Any  # of `optax.scale_by_adam`
    # [2] float32, mean and standard deviation of the returns of the first round, or what stands in
    # for it (`scale_of`), which values are expressed in
    returns: Array
    round: Array  # [] int32, rounds done


@record
class Settings:
    """Settings of a round. Numbers are leaves, sizes are static."""

    agent: Any  # whose parameters are those of learning
    discount: Array  # [] float32, that it learns with
    network: Any = static()
    width: int = static()  # W, lifetimes of a group
    groups: int = static()  # G
    horizon: int = static()  # H
    ends: bool = static()  # a lifetime is over after H decisions
    unit: bool = static()  # all concentrations of a Dirichlet prior are 0 or 1
    sweeps: int = static()  # of value iteration, for optimal actions

    @property
    def lifetimes(self) -> int:
        """Lifetimes of a round."""
        return self.width * self.groups


def begin(
    network: FlatNetwork, key: Array, last: float = INITIAL_SCALE, unit: float = 1.0
) -> Training:
    """Return the state before the first round.

    Args:
      last: factor of the weights of the last layer.
      unit: of values in the first round.
    """
    parameters = network.init(key, last)
    return Training(parameters, adam.begin(parameters), jnp.array([0.0, unit]), jnp.int32(0))


def each(fn: Callable[..., Any], *trees: Any) -> Any:
    """Return the results of `fn(*parts)` for each group, stacked along a leading axis.

    Args:
      trees: pytrees with a leading axis of G groups.
    """
    return lax.map(lambda parts: fn(*parts), trees)


def total(fn: Callable[..., Array], *trees: Any) -> Array:
    """Return the sum of `fn(*parts)` over all groups."""
    return each(fn, *trees).sum(0)


def moments(parts: Array, size: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of `size` numbers, [G, ...]."""
    mean = total(jnp.sum, parts) / size
    # in units of a power of two, which rounds nothing, or squares leave the range of float32
    _, exponent = jnp.frexp(jnp.abs(parts - mean).max())
    squares = total(lambda v: (jnp.ldexp(v - mean, -exponent) ** 2).sum(), parts)
    return mean, jnp.ldexp(jnp.sqrt(jnp.maximum(squares / size, 0)), exponent)


def played_in_groups(
    settings: Settings, training: Training, play: Callable[[Array], tuple[Any, Array]]
) -> tuple[Any, Array, Array]:
    """Return what the groups of a round have played, [G, ...], and mean and standard deviation of
    what lifetimes have earned.

    Args:
      play: of the number of a batch of lifetimes: returns what was played and what was earned, [W].
    """

    def of_group(group: Array) -> tuple[Any, Array]:
        number = training.round * MOST_GROUPS + group
        return play(number)

    played, earned = lax.map(of_group, jnp.arange(settings.groups, dtype=jnp.int32))
    return played, *moments(earned, jnp.float32(settings.lifetimes))


def learned(
    training: Training,
    order: Array,
    gradient: Callable[[Array, Array], Array],
    rate: Array,
    max_norm: float | Array,
    returns: Array,
) -> Training:
    """Return the state after a round: a step of Adam for each entry of `order`.

    Args:
      gradient: of parameters and an entry.
      returns: as in the state.
    """

    def descend(state: tuple[Any, Any], entry: Array) -> tuple[tuple[Any, Any], None]:
        parameters, optimiser = state
        slope = gradient(parameters, entry)
        return adam.optimiser_step(rate, slope, optimiser, parameters, max_norm), None

    start = (training.parameters, training.optimiser)
    return Training(*lax.scan(descend, start, order)[0], returns, training.round + 1)


def across(tree: Any, width: int) -> Any:
    """Return the pytree repeated along a last axis of `width`."""
    return jax.tree.map(lambda v: jnp.broadcast_to(v[..., None], (*v.shape, width)), tree)


@record
class PPOParameters:
    """Parameters of proximal policy optimisation on the prior."""

    learning_rate: float = parameter(1e-3, "step size of Adam, at the start", low=0, high=1e9)
    trace_decay: float = parameter(0.95, "lambda of the advantages", low=0, high=1)
    clip: float = parameter(
        0.2, "epsilon: the ratio of probabilities counts from 1 - clip to 1 + clip", low=0, high=1e6
    )
    value_cost: float = parameter(0.5, "weight of the squared error of the value", low=0, high=1e6)
    entropy_cost: float = parameter(
        0.03, "weight of the policy's entropy, at the start", low=0, high=1e6
    )
    max_gradient_norm: float = parameter(
        0.5, "length that longer gradients are scaled down to", low=0, high=1e9, open_low=True
    )


class Played(NamedTuple):
    """Transitions of the lifetimes of a group."""

    inputs: Array  # [H, I, W]
    actions: Array  # [H, W] int32
    logs: Array  # [H, W], log-probabilities of the actions
    values: Array  # [H + 1, W], in units of `Training.returns`
    rewards: Array  # [H, W]
    terminated: Array  # [H, W] bool
    ended: Array  # [H, W] bool


class Batch(NamedTuple):
    """Decisions to be learned from: of some lifetimes, [H, w], or of one time step, [w]."""

    inputs: Array  # [..., I, w]
    actions: Array  # [..., w] int32
    logs: Array  # [..., w]
    advantages: Array  # [..., w], normalised
    returns: Array  # [..., w], that values are fitted to


def collect(
    lifetimes: Lifetimes,
    memory: Any,
    look: Callable[[Any, Array], tuple[Any, Array, Array]],
    learn: Callable[[Any, Transition], Any],
) -> Played:
    """Play lifetimes by the stochastic policy.

    Args:
      look: of memory and observations: returns memory, inputs [I, W], and logits and value of the
        network, [A + 1, W].
      learn: as in `lifetimes.play`.
    """

    def decide(memory: Any, observation: Array, choice: Array) -> tuple[Any, ...]:
        memory, inputs, outputs = look(memory, observation)
        action, log = selection.softmax_sample_lanes(outputs[:-1], choice)
        return memory, action, (inputs, action, log, outputs[-1])

    memory, last, kept, outcomes = play(lifetimes, memory, decide, learn)
    inputs, actions, logs, values = kept
    after = look(memory, last)[2][-1]
    return Played(inputs, actions, logs, jnp.concatenate([values, after[None]]), *outcomes)


def targets(settings: Settings, played: Played, scale: Array) -> tuple[Array, Array]:
    """Return the lambda-returns and the values of all steps, [H, W] each.

    A return ends where an episode terminates. Where the lifetime goes on after step H, it does so
    by the value of the observation that it has reached; and where an episode is cut off, by that of
    the first observation of the next one.
    """
    values = played.values * scale[1] + scale[0]
    trace = jnp.full(settings.horizon, 1.0).at[-1].set(0.0) * settings.agent.trace_decay
    discounts = jnp.where(played.terminated, 0.0, settings.discount)
    if settings.ends:
        discounts = discounts.at[-1].set(0.0)
    returns = jax.vmap(lambda_returns, in_axes=(1, 1, 1, None), out_axes=1)(
        played.rewards, discounts, values[1:], trace
    )
    return returns, values[:-1]


def surrogate(
    outputs: Array, part: Batch, agent: PPOParameters, share: Array | float = 1.0
) -> Array:
    """Return the sum of -min(r A, clip(r) A) + value_cost (v - G)^2 - entropy_cost H over N
    decisions: [].

    Schulman et al. 2017, equations 7 and 9.

    Args:
      outputs: [A + 1, N], logits and the value.
      part: all but its inputs are [N].
      share: of the entropy's weight that is left, [].
    """
    logits, values = outputs[:-1], outputs[-1]
    logs = jax.nn.log_softmax(logits, axis=0)
    chosen = part.actions[None] == jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None]
    ratios = jnp.exp(jnp.where(chosen, logs, jnp.zeros_like(logs)).sum(0) - part.logs)
    limited = jnp.clip(ratios, 1 - agent.clip, 1 + agent.clip)
    gains = jnp.minimum(ratios * part.advantages, limited * part.advantages)
    entropies = -(jnp.exp(logs) * logs).sum(0)
    errors = values - part.returns
    bonus = agent.entropy_cost * share * entropies
    terms = agent.value_cost * errors * errors - gains - bonus
    return terms.sum()


def scale_of(mean: Array, deviation: Array, greatest_reward: Array) -> Array:
    """Return what values are expressed in, by the returns of the first round: their mean and
    standard deviation, [2].

    The greatest reward stands in for a deviation that is none, as where the first round met no
    reward, or played one lifetime: in a unit near 0 no later return could be fitted.
    """
    spread = deviation > ROUNDING * jnp.abs(mean)
    unit = jnp.where(spread, jnp.maximum(deviation, LEAST_SCALE * greatest_reward), greatest_reward)
    return jnp.stack([mean, unit])


def normalised(advantages: Array) -> Array:
    """Return advantages [G, H, W] without their mean and divided by their standard deviation."""
    size = jnp.float32(advantages.size)
    centre = total(jnp.sum, advantages) / size
    squares = total(lambda v: ((v - centre) ** 2).sum(), advantages)
    width = jnp.sqrt(squares / size) + 1e-8
    return each(lambda v: (v - centre) / width, advantages)
