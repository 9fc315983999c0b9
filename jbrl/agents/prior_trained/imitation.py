"""ANN and DPT: networks that imitate optimal actions, trained on the prior by supervision.

What a network is given is what an agent would know that does not know the MDP. ANN is shown how an
agent plays that knows it. DPT plays the lifetimes that it learns from: else the actions in them
would show which are optimal, and a network that sees transitions would learn to trust them.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy.typing as npt
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents.prior_trained import belief_policy, rounds
from jbrl.agents.prior_trained.lifetimes import (
    Rows,
    dirichlet_lifetimes,
    draw_numbers,
    draw_thresholds,
    play,
)
from jbrl.agents.prior_trained.networks import Attention, Dense
from jbrl.agents.prior_trained.trained import Lesson, TrainedOnPrior, budget_parameter
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp.mdp import decisions_until
from jbrl.mdp.planning import TIE_TOLERANCE
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent

INPUTS = ("mean", "mean and belief")
DPT_INPUTS = ("belief", "mean and belief", "history")
DECISION_SECONDS = 1e-6  # of a lifetime in training: the mean model is solved at each
ENTRY_SECONDS = 1e-8  # for each number of the transition tensor
MOST_SWEEPS = 2000
LEAST_ROUNDS, SMALLEST_ROUND = 16, 32  # rounds of DPT are smaller where a budget has fewer of them
PARAMETER_SECONDS = 4e-10  # of a decision in training, for each parameter of DPT's network

# of the optimal actions in the present states, [A, N], 1 where one is, and the inputs [I, N]:
# the actions among which one is drawn, [A, N], 1 where one is
Behaviour = Callable[[Array, Array], Array]


@record
class Imitator(TrainedOnPrior):
    """Base of the networks that imitate optimal actions of MDPs drawn from the prior.

    Class attributes:
      first_scale: of the weights that outputs start with.
    """

    inputs: str = parameter("mean", "what the network sees", choices=INPUTS)
    sample: bool = parameter(
        False, "play actions drawn from the softmax of the outputs, not the greatest", static=True
    )
    hidden_width: int = parameter(32, "units of each hidden layer", low=1, high=4096, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=1, high=8, static=True)
    learning_rate: float = parameter(3e-3, "step size of Adam, at the start", low=0, high=1e9)

    requires = BAYESIAN
    first_scale: ClassVar[float] = rounds.INITIAL_SCALE

    def network(self, prior: DirichletPrior) -> Dense | Attention:
        """Return the network, here a perceptron."""
        size = belief_policy.number_of_inputs(prior, self.inputs)
        return Dense((size, *(self.hidden_width,) * self.hidden_layers, prior.mdps.n_actions))

    def behaviour(self, network: Dense | Attention, parameters: Array) -> Behaviour:
        """Return how the agent that plays in training chooses."""
        raise NotImplementedError(f"{type(self).__name__} has no method behaviour")

    def demonstrate(
        self, settings: rounds.Settings, given: Any, key: Array, number: Array, parameters: Array
    ) -> tuple[Array, Array, Array]:
        """Return what a group of lifetimes shows: inputs [H, I, W]; labels [H, A, W], which sum to
        1 over actions; rewards [H, W].

        Args:
          given: inputs and prior, as in `lesson`.
          number: of the batch of lifetimes, [] int32.
          parameters: of the network, [P].
        """
        behave = self.behaviour(settings.network, parameters)
        return demonstrate(settings, given, key, number, behave)

    def lesson(self, prior: DirichletPrior) -> Lesson:
        horizon, discount = self.training_horizon(prior), float(prior.discount)
        inputs = belief_policy.belief_inputs(prior, self.inputs, horizon)
        network = self.network(prior)
        settings = self.settings(prior, network, discount, sweeps=sweeps_for(discount))
        return Lesson(
            play_and_imitate,
            (settings, (inputs, prior)),
            lambda key: rounds.begin(network, key, self.first_scale),
            belief_policy.known_arrays(inputs, network),
        )

    def round_bytes(self, prior: DirichletPrior) -> int:
        numbers = belief_policy.number_of_inputs(prior, self.inputs) + prior.mdps.n_actions + 2
        played = 8 * self.round_size() * self.training_horizon(prior) * numbers
        return played + belief_policy.group_bytes(prior, self.inputs, self.group_width())

    def trained(self, weights: dict[str, npt.NDArray[Any]]) -> Agent:
        return belief_policy.policy_of(weights, sample=self.sample)


@register_agent("ANN", cite="castronovo2017,lee2023")
class ANN(Imitator):
    """A network that imitates optimal actions of MDPs drawn from the prior, by supervision.

    In training, lifetime i of N is played by the optimal policy of its MDP, with any action in its
    place with probability i / (N - 1). The network learns to tell the optimal action from the
    action values of the mean model, Q_mean(x, .), by cross-entropy with weights discount^t. Then
    the action of greatest output plays. The agent of the published program; Castronovo et al. 2017.

    With `mean and belief` the network sees the state, the posterior means and the numbers of
    observations as well. These numbers show where an agent that knows the MDP has gone, so the
    outputs are not the posterior probabilities that an action is optimal; those of DPT are.

    One decision costs what it costs e-Greedy, and a pass of the network.
    """

    budget: int = budget_parameter(20_000)

    first_scale = 1.0

    def behaviour(self, network: Dense | Attention, parameters: Array) -> Behaviour:
        return lambda best, _: best

    def decision_seconds(self, prior: DirichletPrior) -> float:
        return DECISION_SECONDS + prior.mdps.concentrations.size * ENTRY_SECONDS


@register_agent("DPT", cite="lee2023")
class DPT(Imitator):
    """A network that imitates optimal actions in lifetimes that it plays itself.

    The label of a decision is the optimal action of the MDP that was drawn, and the loss the
    cross-entropy with weights discount^t: outputs approach the probability, given what is known,
    that an action is optimal. Then the most probable action plays; with `sample` actions are drawn
    from the probabilities, which is posterior sampling, as the decision-pretrained transformer does
    (Lee et al. 2023). Lifetime i of N in a round is played by the most probable actions of the
    network, with any action in their place with probability i / (N - 1).

    The network is a perceptron that sees the belief, or with the inputs `history` a transformer, in
    which the state attends to all transitions so far; they have no positions, since what is known
    of a finite MDP does not depend on their order.

    One decision is one pass of the network: O(P) for P parameters, at any time.
    """

    budget: int = budget_parameter(40_000)
    inputs: str = parameter("belief", "what the network sees", choices=DPT_INPUTS)
    heads: int = parameter(4, "heads of each layer of a transformer", low=1, high=64, static=True)

    version = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = type(self.heads) is type(self.hidden_width) is int
        if numbers and self.inputs == "history" and self.hidden_width % self.heads:
            raise JbrlError(
                f"heads = {self.heads}: expected a divisor of hidden_width, {self.hidden_width}"
            )

    def round_size(self) -> int:
        fewer = 1 << (max(1, self.budget // LEAST_ROUNDS).bit_length() - 1)
        return min(self.batch, max(SMALLEST_ROUND, fewer))

    def network(self, prior: DirichletPrior) -> Dense | Attention:
        if self.inputs != "history":
            return super().network(prior)
        size, n_actions = belief_policy.number_of_inputs(prior, self.inputs), prior.mdps.n_actions
        others = prior.mdps.n_states + 1
        layers = (self.hidden_width, self.heads, self.hidden_layers)
        return Attention((others, size - others, *layers, n_actions))

    def behaviour(self, network: Dense | Attention, parameters: Array) -> Behaviour:
        return greedily(network, parameters)

    def decision_seconds(self, prior: DirichletPrior) -> float:
        network = PARAMETER_SECONDS * self.network(prior).parameters
        if self.inputs != "mean and belief":
            return 3e-7 + network
        return DECISION_SECONDS + prior.mdps.concentrations.size * ENTRY_SECONDS + network


def greedily(network: Dense | Attention, parameters: Array) -> Behaviour:
    """Return the behaviour of a network: the actions of greatest output."""
    layers = network.layers(parameters)

    def behave(_: Array, inputs: Array) -> Array:
        outputs = network.apply(layers, inputs)
        return (outputs >= outputs.max(0, keepdims=True)).astype(jnp.float32)

    return behave


def play_and_imitate(
    arguments: tuple[rounds.Training, Array, Array, tuple[rounds.Settings, Any]],
) -> tuple[rounds.Training, Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns of the agent that plays, up to H, [2].

    Args:
      arguments: as of `belief_ppo.play_and_learn`, without a greatest reward.
    """
    training, share, key, (settings, given) = arguments
    network, count = settings.network, jnp.float32(settings.lifetimes)
    weights = settings.discount ** jnp.arange(settings.horizon, dtype=jnp.float32)

    def play(number: Array) -> tuple[Any, Array]:
        shown = settings.agent.demonstrate(settings, given, key, number, training.parameters)
        inputs, labels, rewards = shown
        return (inputs, labels), (rewards * weights[:, None]).sum(0)

    steps, mean, spread = rounds.played_in_groups(settings, training, play)

    def loss(parameters: Array, inputs: Array, labels: Array) -> Array:
        outputs = network.apply(network.layers(parameters), inputs)
        return -(labels * jax.nn.log_softmax(outputs, axis=0)).sum()

    def gradient(parameters: Array, t: Array) -> Array:
        def of_group(*step: Array) -> Array:
            now = (lax.dynamic_index_in_dim(v, t, keepdims=False) for v in step)
            return jax.grad(loss)(parameters, *now)

        return rounds.total(of_group, *steps) * weights[t] / count

    words = jax.random.bits(stream(key, training.round, "parameters"), (settings.horizon,))
    order = jnp.argsort(words).astype(jnp.int32)
    rate = settings.agent.learning_rate * share
    # an infinite limit changes no number but the rounding, of which stored results know
    state = rounds.learned(training, order, gradient, rate, jnp.inf, training.returns)
    return state, jnp.stack([mean, spread])


def demonstrate(
    settings: rounds.Settings,
    given: tuple[belief_policy.BeliefInputs, DirichletPrior],
    key: Array,
    number: Array,
    behave: Behaviour,
) -> tuple[Array, Array, Array]:
    """Play the lifetimes of a group.

    Lifetime i of N in all takes a random action with probability i / (N - 1).

    Args:
      number: of the batch of lifetimes, [] int32.
      behave: chooses the other actions.

    Returns: inputs [H, I, W]; labels [H, A, W], equal shares of the optimal actions; rewards
      [H, W].
    """
    (see, prior), width, rows = given, settings.width, given[0].rows
    numbers = draw_numbers(key, number, settings.horizon, width)
    thresholds = draw_thresholds(key, number, rows, width, unit=settings.unit)
    best = optimal_actions(rows, thresholds, prior.discount, settings.sweeps)
    best = best.reshape(see.n_states, see.n_actions, width)
    lane = (number % rounds.MOST_GROUPS) * width + jnp.arange(width, dtype=jnp.int32)
    epsilon = lane.astype(jnp.float32) / max(settings.lifetimes - 1, 1)
    inputs_of, learn = belief_policy.over_lifetimes(see)

    def decide(seen: Any, x: Array, coin: Array) -> tuple[Any, ...]:
        here = vectorize.pick(best, x)
        labels, inputs = here / here.sum(0, keepdims=True), inputs_of(seen, x)
        return seen, choose(behave(here, inputs), coin, epsilon), (inputs, labels)

    lifetimes = dirichlet_lifetimes(prior, rows, thresholds, numbers)
    _, _, (inputs, labels), (rewards, *_) = play(
        lifetimes, rounds.across(see.begin(), width), decide, learn
    )
    return inputs, labels, rewards


def optimal_actions(rows: Rows, thresholds: Array, discount: Array, sweeps: int) -> Array:
    """Return which actions are optimal in each state, up to rounding: [S A, N] float32, 0 or 1.

    Value iteration from 0, of which the error is at most discount^sweeps times the greatest value.

    Args:
      thresholds: as `lifetimes.draw_thresholds` draws them.
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

    def action_values(values: Array) -> Array:
        after = [
            chances[:, k] * values.at[successor[:, k]].get(mode="promise_in_bounds")
            for k in range(width)
        ]
        return gains + discount * sum(after[1:], start=after[0])

    def sweep(_: Array, values: Array) -> Array:
        return action_values(values).reshape(n_states, -1, values.shape[-1]).max(1)

    none = jnp.zeros((n_states, thresholds.shape[-1]))
    values = lax.fori_loop(0, sweeps, sweep, none)
    final = action_values(values).reshape(n_states, -1, none.shape[-1])
    greatest = final.max(1, keepdims=True)
    ties = final >= greatest - 10 * TIE_TOLERANCE * jnp.abs(greatest).max(0, keepdims=True)
    return ties.astype(jnp.float32).reshape(pairs, -1)


def choose(best: Array, coin: Array, epsilon: Array) -> Array:
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


def sweeps_for(discount: float) -> int:
    """Return the sweeps of value iteration after which the error is a part in 10^4, at most
    `MOST_SWEEPS`.
    """
    if discount <= 0:
        return 1
    return min(MOST_SWEEPS, decisions_until(1e-4, discount))
