"""Proximal policy optimisation over lifetimes drawn from the prior: one round, a pure function.

A round plays N new lifetimes for H decisions each, in G groups of a fixed width, then takes some
passes over what was played: a minibatch is one time step of all lifetimes, which lies in memory in
one piece. Groups are computed one after the other, since each fits into the cache of a core.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jbrl.agents import selection
from jbrl.agents.deep import adam
from jbrl.agents.deep.returns import lambda_returns
from jbrl.agents.prior_trained import prior_lifetimes
from jbrl.agents.prior_trained.belief_inputs import BeliefInputs
from jbrl.agents.prior_trained.networks import Dense, Gru, each, total
from jbrl.agents.prior_trained.trained import MOST_GROUPS
from jbrl.base.pytree import record, static
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior

INITIAL_SCALE = 0.01  # of the weights that outputs start with: the first policy is nearly uniform
ROUNDING = 1e-5  # a deviation below this part of the mean is that of sums in single precision
LEAST_SCALE = 1e-6  # of values


@record
class Training:
    """State of a training: what the next round starts from."""

    parameters: jax.Array  # [P] float32
    optimiser: Any  # of `optax.scale_by_adam`
    # [2] float32, mean and standard deviation of the returns of the first round, or what stands in
    # for it (`scale_of`), which values are expressed in
    returns: jax.Array
    round: jax.Array  # [] int32, rounds done


@record
class Settings:
    """Settings of a round. Numbers are leaves, sizes are static."""

    learning_rate: jax.Array
    trace_decay: jax.Array
    clip: jax.Array
    value_cost: jax.Array
    entropy_cost: jax.Array
    max_gradient_norm: jax.Array
    greatest_reward: jax.Array
    network: Dense = static()
    width: int = static()  # W, lifetimes of a group
    groups: int = static()  # G
    horizon: int = static()  # H
    ends: bool = static()  # a lifetime is over after H decisions
    epochs: int = static()
    unit: bool = static()  # all concentrations are 0 or 1


class Played(NamedTuple):
    """Transitions of the lifetimes of a group."""

    inputs: jax.Array  # [H, I, W]
    actions: jax.Array  # [H, W] int32
    logs: jax.Array  # [H, W], log-probabilities of the actions
    values: jax.Array  # [H + 1, W], in units of `Training.returns`
    rewards: jax.Array  # [H, W]


class Slice(NamedTuple):
    """Decisions of one time step of a group, to be learned from."""

    inputs: jax.Array  # [I, W]
    actions: jax.Array  # [W] int32
    logs: jax.Array  # [W]
    advantages: jax.Array  # [W], normalised
    returns: jax.Array  # [W], that values are fitted to


def begin(network: Dense | Gru, key: jax.Array) -> Training:
    """Return the state before the first round: a policy that is nearly uniform."""
    parameters = network.init(key, INITIAL_SCALE)
    return Training(parameters, adam.begin(parameters), jnp.array([0.0, 1.0]), jnp.int32(0))


def collect(
    settings: Settings,
    parameters: jax.Array,
    known: tuple[BeliefInputs, DirichletPrior],
    key: jax.Array,
    number: jax.Array,
) -> Played:
    """Play the lifetimes of group `number`, [] int32, by the stochastic policy."""
    inputs_of, prior = known
    width, horizon, network = settings.width, settings.horizon, settings.network
    rows = inputs_of.rows
    luck = prior_lifetimes.draw_luck(key, number, horizon, width)
    thresholds = prior_lifetimes.draw_thresholds(key, number, rows, width, unit=settings.unit)
    first = prior_lifetimes.first_states(prior.mdps.initial_state, inputs_of.n_states, luck)
    layers = network.layers(parameters)
    see = jax.vmap(inputs_of.inputs, in_axes=-1, out_axes=-1)
    note = jax.vmap(inputs_of.note, in_axes=-1, out_axes=-1)

    def decide(carry: tuple, drawn: tuple) -> tuple[tuple, tuple]:
        seen, x = carry
        noise, choice = drawn
        inputs = see(seen, x)
        outputs = network.apply(layers, inputs)
        action, log = selection.softmax_sample_lanes(outputs[:-1], choice)
        y, reward = prior_lifetimes.step(rows, thresholds, x * inputs_of.n_actions + action, noise)
        return (note(seen, x, action, y, reward), y), (inputs, action, log, outputs[-1], reward)

    start = (across(inputs_of.begin(), width), first)
    (seen, last), found = lax.scan(decide, start, (luck.noise, luck.choices))
    inputs, actions, logs, values, rewards = found
    after = network.apply(layers, see(seen, last))[-1]
    return Played(inputs, actions, logs, jnp.concatenate([values, after[None]]), rewards)


def across(tree: Any, width: int) -> Any:
    """Return the pytree repeated along a last axis of `width`."""
    return jax.tree.map(lambda v: jnp.broadcast_to(v[..., None], (*v.shape, width)), tree)


def targets(
    settings: Settings, played: Played, discount: jax.Array, scale: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return advantages and returns, [H, W] each, in units of `scale`, mean and deviation.

    Where the lifetime goes on after step H, by the value of the state that it has reached.
    """
    values = played.values * scale[1] + scale[0]
    trace = jnp.full(settings.horizon, 1.0).at[-1].set(0.0) * settings.trace_decay
    discounts = jnp.full(settings.horizon, 1.0) * discount
    if settings.ends:
        discounts = discounts.at[-1].set(0.0)
    found = jax.vmap(lambda_returns, in_axes=(1, None, 1, None), out_axes=1)(
        played.rewards, discounts, values[1:], trace
    )
    advantages = (found - values[:-1]) / scale[1]
    return advantages, (found - scale[0]) / scale[1]


def loss(
    network: Dense,
    parameters: jax.Array,
    part: Slice,
    settings: Settings,
    share: jax.Array | float = 1.0,
) -> jax.Array:
    """Return the loss of a slice: []."""
    outputs = network.apply(network.layers(parameters), part.inputs)
    return surrogate(outputs, part, settings, share)


def surrogate(
    outputs: jax.Array, part: Any, settings: Any, share: jax.Array | float = 1.0
) -> jax.Array:
    """Return the sum of -min(r A, clip(r) A) + value_cost (v - G)^2 - entropy_cost H over N
    decisions: [].

    Schulman et al. 2017, equations 7 and 9.

    Args:
      outputs: [A + 1, N], logits and the value.
      part: has `actions`, `logs`, `advantages` and `returns`, [N] each.
      settings: has `clip`, `value_cost` and `entropy_cost`.
      share: of the entropy's weight that is left, [].
    """
    logits, values = outputs[:-1], outputs[-1]
    logs = jax.nn.log_softmax(logits, axis=0)
    chosen = part.actions[None] == jnp.arange(logits.shape[0], dtype=jnp.int32)[:, None]
    ratios = jnp.exp(jnp.where(chosen, logs, jnp.zeros_like(logs)).sum(0) - part.logs)
    limited = jnp.clip(ratios, 1 - settings.clip, 1 + settings.clip)
    gains = jnp.minimum(ratios * part.advantages, limited * part.advantages)
    entropies = -(jnp.exp(logs) * logs).sum(0)
    errors = values - part.returns
    bonus = settings.entropy_cost * share * entropies
    each = settings.value_cost * errors * errors - gains - bonus
    return each.sum()


def play_and_learn(
    arguments: tuple[Training, jax.Array, jax.Array, tuple],
) -> tuple[Training, jax.Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns up to H, [2].

    Args:
      arguments: the state; the share of the step size that is left, [] float32; a key; the settings
        and what is known, inputs and prior.
    """
    training, share, key, (settings, known) = arguments
    horizon, discount = settings.horizon, known[1].discount
    weights = discount ** jnp.arange(horizon, dtype=jnp.float32)
    count = jnp.float32(settings.groups * settings.width)

    def play(group: jax.Array) -> tuple[Played, jax.Array]:
        number = training.round * MOST_GROUPS + group
        played = collect(settings, training.parameters, known, key, number)
        return played, (played.rewards * weights[:, None]).sum(0)

    played, returns = lax.map(play, jnp.arange(settings.groups, dtype=jnp.int32))
    first = total(lambda _, v: v.sum(), returns) / count
    squares = total(lambda _, v: ((v - first) ** 2).sum(), returns)
    spread = jnp.sqrt(jnp.maximum(squares / count, 0))
    scale = jnp.where(
        training.round == 0, scale_of(first, spread, settings.greatest_reward), training.returns
    )
    advantages, fitted = each(lambda _, one: targets(settings, one, discount, scale), played)
    advantages = normalised(advantages)
    steps = Slice(played.inputs, played.actions, played.logs, advantages, fitted)
    words = jax.random.bits(stream(key, training.round, "parameters"), (settings.epochs, horizon))
    order = jnp.argsort(words, axis=1).astype(jnp.int32).reshape(-1)

    def gradient(parameters: jax.Array, t: jax.Array) -> jax.Array:
        def of_group(_: jax.Array, one: Slice) -> jax.Array:
            part = Slice(*(lax.dynamic_index_in_dim(v, t, keepdims=False) for v in one))
            return jax.grad(lambda p: loss(settings.network, p, part, settings, share))(parameters)

        return total(of_group, steps) / count

    def descend(state: tuple, t: jax.Array) -> tuple[tuple, None]:
        parameters, moments = state
        slope = gradient(parameters, t)
        rate, max_norm = settings.learning_rate * share, settings.max_gradient_norm
        return adam.optimiser_step(rate, slope, moments, parameters, max_norm), None

    (parameters, moments), _ = lax.scan(descend, (training.parameters, training.optimiser), order)
    state = Training(parameters, moments, scale, training.round + 1)
    return state, jnp.stack([first, spread])


def scale_of(mean: jax.Array, deviation: jax.Array, greatest_reward: jax.Array) -> jax.Array:
    """Return what values are expressed in, by the returns of the first round: their mean and
    standard deviation, [2].

    The greatest reward stands in for a deviation that is none, as where the first round met no
    reward, or played one lifetime: in a unit near 0 no later return could be fitted.
    """
    spread = deviation > ROUNDING * jnp.abs(mean)
    return jnp.stack(
        [mean, jnp.where(spread, jnp.maximum(deviation, LEAST_SCALE), greatest_reward)]
    )


def normalised(
    advantages: jax.Array,
) -> jax.Array:
    """Return advantages [G, H, W] without their mean and divided by their standard deviation."""
    size = jnp.float32(advantages.size)
    centre = total(lambda _, v: v.sum(), advantages) / size
    squares = total(lambda _, v: ((v - centre) ** 2).sum(), advantages)
    width = jnp.sqrt(squares / size) + 1e-8
    return each(lambda _, v: (v - centre) / width, advantages)
