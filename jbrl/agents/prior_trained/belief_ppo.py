"""BeliefPPO: a policy over what is sufficient to know, trained on the prior.

A round plays N new lifetimes for H decisions each, then takes some passes over what was played: a
minibatch is one time step of all lifetimes, which lies in memory in one piece.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy.typing as npt
from jax import Array, lax

from jbrl.agents.prior_trained import belief_policy, rounds
from jbrl.agents.prior_trained.lifetimes import dirichlet_lifetimes, draw_numbers, draw_thresholds
from jbrl.agents.prior_trained.networks import Dense
from jbrl.agents.prior_trained.trained import Lesson, TrainedOnPrior
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent

INPUTS = ("belief", "values", "both", "mean and belief")
PARAMETER_SECONDS = 1.2e-10  # of a decision in training, for each parameter of the network


@register_agent("BeliefPPO", cite="schulman2017,duff2002")
class BeliefPPO(rounds.PPOParameters, TrainedOnPrior):
    """A network that sees the belief, trained by PPO on lifetimes drawn from the prior.

    The belief about a finite MDP is sufficient to act optimally: its problem is a Markov decision
    process, whose states are an MDP's state and the counts of transitions (Duff 2002). Policy and
    value are one network over the state, the posterior mean and the number of observations of each
    row, or the action values of the models of `Formula`, and the time left. Training is proximal
    policy optimisation (Schulman et al. 2017), with many lifetimes side by side; afterwards the
    action of greatest probability plays.

    One decision is one pass of the network: O(P) for P parameters, and an update of the counts.
    """

    inputs: str = parameter(
        "belief", "what the network sees: counts, action values of models, or both", choices=INPUTS
    )
    hidden_width: int = parameter(64, "units of each hidden layer", low=1, high=4096, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=1, high=8, static=True)
    epochs: int = parameter(1, "passes over a round", low=1, high=100, static=True)

    requires = BAYESIAN

    def lesson(self, prior: DirichletPrior) -> Lesson:
        horizon = self.training_horizon(prior)
        inputs = belief_policy.belief_inputs(prior, self.inputs, horizon)
        network = self.network(prior)
        reward = jnp.float32(belief_policy.greatest_reward(prior))
        return Lesson(
            play_and_learn,
            (self.settings(prior, network, float(prior.discount)), (inputs, prior, reward)),
            lambda key: rounds.begin(network, key),
            belief_policy.known_arrays(inputs, network),
        )

    def round_bytes(self, prior: DirichletPrior) -> int:
        size = belief_policy.number_of_inputs(prior, self.inputs)
        played = 8 * self.batch * self.training_horizon(prior) * (size + 8)
        return played + belief_policy.group_bytes(prior, self.inputs, self.group_width())

    def network(self, prior: DirichletPrior) -> Dense:
        hidden = (self.hidden_width,) * self.hidden_layers
        return Dense(
            (belief_policy.number_of_inputs(prior, self.inputs), *hidden, prior.mdps.n_actions + 1)
        )

    def trained(self, weights: dict[str, npt.NDArray[Any]]) -> Agent:
        return belief_policy.policy_of(weights)

    def decision_seconds(self, prior: DirichletPrior) -> float:
        return 3e-7 + PARAMETER_SECONDS * self.network(prior).parameters * (1 + self.epochs) / 2


def play_and_learn(
    arguments: tuple[rounds.Training, Array, Array, tuple[rounds.Settings, Any]],
) -> tuple[rounds.Training, Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns up to H, [2].

    Args:
      arguments: the state; the share of the step size that is left, [] float32; a key; the settings
        and what is given beside them: inputs, prior and greatest reward.
    """
    training, share, key, (settings, (see, prior, reward)) = arguments
    agent, horizon, discount = settings.agent, settings.horizon, prior.discount
    weights = discount ** jnp.arange(horizon, dtype=jnp.float32)
    count = jnp.float32(settings.lifetimes)

    def play(number: Array) -> tuple[rounds.Played, Array]:
        played = collect_beliefs(settings, training.parameters, (see, prior), key, number)
        return played, (played.rewards * weights[:, None]).sum(0)

    played, first, spread = rounds.played_in_groups(settings, training, play)
    scale = jnp.where(training.round == 0, rounds.scale_of(first, spread, reward), training.returns)

    def fitted_to(played: rounds.Played) -> tuple[Array, Array]:
        returns, values = rounds.targets(settings, played, scale)
        return (returns - values) / scale[1], (returns - scale[0]) / scale[1]

    advantages, returns = rounds.each(fitted_to, played)
    steps = rounds.Batch(
        played.inputs, played.actions, played.logs, rounds.normalised(advantages), returns
    )
    words = jax.random.bits(stream(key, training.round, "parameters"), (agent.epochs, horizon))
    order = jnp.argsort(words, axis=1).astype(jnp.int32).reshape(-1)

    def gradient(parameters: Array, t: Array) -> Array:
        def of_group(step: rounds.Batch) -> Array:
            part = rounds.Batch(*(lax.dynamic_index_in_dim(v, t, keepdims=False) for v in step))
            return jax.grad(lambda p: loss(settings.network, p, part, agent, share))(parameters)

        return rounds.total(of_group, steps) / count

    rate, max_norm = agent.learning_rate * share, agent.max_gradient_norm
    state = rounds.learned(training, order, gradient, rate, max_norm, scale)
    return state, jnp.stack([first, spread])


def collect_beliefs(
    settings: rounds.Settings,
    parameters: Array,
    given: tuple[belief_policy.BeliefInputs, DirichletPrior],
    key: Array,
    number: Array,
) -> rounds.Played:
    """Play the lifetimes of batch `number`, [] int32, by the stochastic policy."""
    (see, prior), width, network = given, settings.width, settings.network
    numbers = draw_numbers(key, number, settings.horizon, width)
    thresholds = draw_thresholds(key, number, see.rows, width, unit=settings.unit)
    layers = network.layers(parameters)
    inputs_of, learn = belief_policy.over_lifetimes(see)

    def look(seen: Any, x: Array) -> tuple[Any, Array, Array]:
        inputs = inputs_of(seen, x)
        return seen, inputs, network.apply(layers, inputs)

    lifetimes = dirichlet_lifetimes(prior, see.rows, thresholds, numbers)
    return rounds.collect(lifetimes, rounds.across(see.begin(), width), look, learn)


def loss(
    network: Dense,
    parameters: Array,
    part: rounds.Batch,
    agent: rounds.PPOParameters,
    share: Array | float = 1.0,
) -> Array:
    """Return `rounds.surrogate` of decisions of one time step: []."""
    outputs = network.apply(network.layers(parameters), part.inputs)
    return rounds.surrogate(outputs, part, agent, share)
