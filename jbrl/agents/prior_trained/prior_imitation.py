"""Supervised training on lifetimes drawn from the prior, whose labels are optimal actions: one
round, a pure function.

The agent that plays knows the MDP: it takes an optimal action of it with probability 1 - epsilon,
any action otherwise. What the network is given is what an agent would know that does not.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jbrl import vectorize
from jbrl.agents.deep import adam
from jbrl.agents.prior_trained import prior_lifetimes
from jbrl.agents.prior_trained.belief_inputs import BeliefInputs, Rows
from jbrl.agents.prior_trained.networks import Dense, total
from jbrl.agents.prior_trained.prior_ppo import Training, across
from jbrl.agents.prior_trained.trained import MOST_GROUPS
from jbrl.base.pytree import record, static
from jbrl.mdp.mdp import decisions_until
from jbrl.mdp.planning import TIE_TOLERANCE
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior

MOST_SWEEPS = 2000


@record
class Settings:
    """Settings of a round. Numbers are leaves, sizes are static."""

    learning_rate: jax.Array
    network: Dense = static()
    width: int = static()  # W, lifetimes of a group
    groups: int = static()  # G
    horizon: int = static()  # H
    sweeps: int = static()  # of value iteration, for the optimal actions
    unit: bool = static()  # all concentrations are 0 or 1


def begin(network: Dense, key: jax.Array) -> Training:
    """Return the state before the first round."""
    parameters = network.init(key)
    none = jnp.zeros(2)
    return Training(parameters, adam.begin(parameters), none, jnp.int32(0))


def optimal_actions(
    rows: Rows, thresholds: jax.Array, discount: jax.Array, sweeps: int
) -> jax.Array:
    """Return which actions are optimal in each state, up to rounding: [S A, N] float32, 0 or 1.

    Value iteration from 0, of which the error is at most discount^sweeps times the greatest value.

    Args:
      thresholds: as `prior_lifetimes.draw_thresholds` draws them.
    """
    width, pairs = rows.shape[1], rows.row.shape[0]
    n_states = rows.place.shape[0] // pairs
    sums = jnp.concatenate(
        [
            jnp.zeros_like(thresholds[:, :1]),
            jnp.minimum(thresholds, 1),
            jnp.ones_like(thresholds[:, :1]),
        ],
        axis=1,
    )
    chances = (sums[:, 1:] - sums[:, :-1]).at[rows.row].get(mode="promise_in_bounds")
    successor, reward = rows.successor.reshape(pairs, width), rows.reward.reshape(pairs, width)
    gains = (chances * reward[:, :, None]).sum(1)

    def action_values(values: jax.Array) -> jax.Array:
        after = [
            chances[:, k] * values.at[successor[:, k]].get(mode="promise_in_bounds")
            for k in range(width)
        ]
        return gains + discount * sum(after[1:], start=after[0])

    def sweep(_: jax.Array, values: jax.Array) -> jax.Array:
        return action_values(values).reshape(n_states, -1, values.shape[-1]).max(1)

    none = jnp.zeros((n_states, thresholds.shape[-1]))
    values = lax.fori_loop(0, sweeps, sweep, none)
    found = action_values(values).reshape(n_states, -1, none.shape[-1])
    greatest = found.max(1, keepdims=True)
    ties = found >= greatest - 10 * TIE_TOLERANCE * jnp.abs(greatest).max(0, keepdims=True)
    return ties.astype(jnp.float32).reshape(pairs, -1)


def choose(best: jax.Array, coin: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Return actions, [N] int32: any where `coin` is below `epsilon`, else one of the best.

    Args:
      best: [A, N], 1 for optimal actions.
      coin: [N] in [0, 1), the only random number of each.
    """
    random = coin < epsilon
    # what is left of the coin is uniform as well
    left = jnp.where(random, coin / jnp.maximum(epsilon, 1e-6), (coin - epsilon) / (1 - epsilon))
    weights = jnp.where(random[None], jnp.ones_like(best), best)
    sums = jnp.cumsum(weights, axis=0)
    wanted = jnp.clip(left, 0, 1) * sums[-1]
    number = (sums[:-1] <= wanted[None]).sum(0, dtype=jnp.int32)
    return vectorize.prevent_fusion_index(number)


def label_and_learn(
    arguments: tuple[Training, jax.Array, jax.Array, tuple],
) -> tuple[Training, jax.Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns of the agent that plays, up to H, [2].

    Args: as `prior_ppo.play_and_learn`.
    """
    training, share, key, (settings, known) = arguments
    network, count = settings.network, jnp.float32(settings.width * settings.groups)

    weights = known[1].discount ** jnp.arange(settings.horizon, dtype=jnp.float32)

    def play(group: jax.Array) -> tuple[tuple, jax.Array]:
        inputs, labels, rewards = demonstrate(settings, known, key, (training.round, group))
        return (inputs, labels), (rewards * weights[:, None]).sum(0)

    steps, returns = lax.map(play, jnp.arange(settings.groups, dtype=jnp.int32))
    mean = total(lambda _, v: v.sum(), returns) / count
    squares = total(lambda _, v: ((v - mean) ** 2).sum(), returns)
    spread = jnp.sqrt(squares / count)

    def loss(parameters: jax.Array, inputs: jax.Array, labels: jax.Array) -> jax.Array:
        outputs = network.apply(network.layers(parameters), inputs)
        return -(labels * jax.nn.log_softmax(outputs, axis=0)).sum()

    def descend(state: tuple, t: jax.Array) -> tuple[tuple, None]:
        parameters, moments = state

        def of_group(_: jax.Array, one: tuple) -> jax.Array:
            return jax.grad(loss)(
                parameters, *(lax.dynamic_index_in_dim(v, t, keepdims=False) for v in one)
            )

        slope = total(of_group, steps) * weights[t] / count
        rate = settings.learning_rate * share
        return adam.optimiser_step(rate, slope, moments, parameters), None

    words = jax.random.bits(stream(key, training.round, "parameters"), (settings.horizon,))
    order = jnp.argsort(words).astype(jnp.int32)
    state, _ = lax.scan(descend, (training.parameters, training.optimiser), order)
    return Training(*state, training.returns, training.round + 1), jnp.stack([mean, spread])


def demonstrate(
    settings: Settings,
    known: tuple[BeliefInputs, DirichletPrior],
    key: jax.Array,
    number: tuple[jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Play the lifetimes of a group by the agent that knows the MDP.

    Lifetime i of N in all takes a random action with probability i / (N - 1).

    Args:
      number: of the round and of the group, [] int32 each.

    Returns: inputs [H, I, W]; labels [H, A, W], equal shares of the optimal actions; rewards
      [H, W].
    """
    (see, prior), (round, group) = known, number
    width, horizon, rows = settings.width, settings.horizon, see.rows
    batch = round * MOST_GROUPS + group
    luck = prior_lifetimes.draw_luck(key, batch, horizon, width)
    thresholds = prior_lifetimes.draw_thresholds(key, batch, rows, width, unit=settings.unit)
    best = optimal_actions(rows, thresholds, prior.discount, settings.sweeps)
    best = best.reshape(see.n_states, see.n_actions, width)
    lane = group * width + jnp.arange(width, dtype=jnp.int32)
    epsilon = lane.astype(jnp.float32) / max(settings.width * settings.groups - 1, 1)
    inputs_of = jax.vmap(see.inputs, in_axes=-1, out_axes=-1)
    note = jax.vmap(see.note, in_axes=-1, out_axes=-1)

    def decide(carry: tuple, drawn: tuple) -> tuple[tuple, tuple]:
        seen, x = carry
        noise, coin = drawn
        here = vectorize.pick(best, x)
        action = choose(here, coin, epsilon)
        y, reward = prior_lifetimes.step(rows, thresholds, x * see.n_actions + action, noise)
        labels = here / here.sum(0, keepdims=True)
        return (note(seen, x, action, y, reward), y), (inputs_of(seen, x), labels, reward)

    first = prior_lifetimes.first_states(prior.mdps.initial_state, see.n_states, luck)
    start = (across(see.begin(), width), first)
    return lax.scan(decide, start, (luck.noise, luck.choices))[1]


def sweeps_for(discount: float) -> int:
    """Return the sweeps of value iteration after which the error is a part in 10^4, at most
    `MOST_SWEEPS`.
    """
    if discount <= 0:
        return 1
    return min(MOST_SWEEPS, decisions_until(1e-4, discount))
