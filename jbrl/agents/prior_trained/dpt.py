"""DPT: a network that imitates optimal actions, and plays the lifetimes that it learns from.

What is known of an MDP must come from its transitions alone: were lifetimes played by an agent that
knows the MDP, its actions would show which are optimal, and a network would learn to trust them.
"""

from typing import Any

import jax.numpy as jnp
import numpy.typing as npt
from jax import Array

from jbrl.agents.prior_trained import ann, belief_policy, rounds
from jbrl.agents.prior_trained.networks import Attention, Dense
from jbrl.agents.prior_trained.trained import Lesson, TrainedOnPrior, budget_parameter
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent

INPUTS = ("belief", "mean and belief", "history")
PARAMETER_SECONDS = 4e-10  # of a decision in training, for each parameter of the network


@register_agent("DPT", cite="lee2023")
class DPT(TrainedOnPrior):
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
    inputs: str = parameter("belief", "what the network sees", choices=INPUTS)
    sample: bool = parameter(
        False, "play actions drawn from the softmax of the outputs, not the greatest", static=True
    )
    hidden_width: int = parameter(32, "units of each layer", low=1, high=4096, static=True)
    hidden_layers: int = parameter(2, "layers", low=1, high=8, static=True)
    heads: int = parameter(4, "heads of each layer of a transformer", low=1, high=64, static=True)
    learning_rate: float = parameter(3e-3, "step size of Adam, at the start", low=0, high=1e9)

    requires = BAYESIAN

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = type(self.heads) is type(self.hidden_width) is int
        if numbers and self.inputs == "history" and self.hidden_width % self.heads:
            raise JbrlError(
                f"heads = {self.heads}: expected a divisor of hidden_width, {self.hidden_width}"
            )

    def lesson(self, prior: DirichletPrior) -> Lesson:
        horizon, discount = self.training_horizon(prior), float(prior.discount)
        inputs = belief_policy.belief_inputs(prior, self.inputs, horizon)
        network = self._network(prior)
        settings = self.settings(prior, network, discount, sweeps=ann.sweeps_for(discount))
        return Lesson(
            play_and_imitate,
            (settings, (inputs, prior)),
            8 * self.batch * horizon * (inputs.size + prior.mdps.n_actions + 2),
            lambda key: rounds.begin(network, key),
            belief_policy.known_arrays(inputs, network),
        )

    def _network(self, prior: DirichletPrior) -> Dense | Attention:
        size, n_actions = belief_policy.number_of_inputs(prior, self.inputs), prior.mdps.n_actions
        if self.inputs != "history":
            return Dense((size, *(self.hidden_width,) * self.hidden_layers, n_actions))
        others = prior.mdps.n_states + 1
        layers = (self.hidden_width, self.heads, self.hidden_layers)
        return Attention((others, size - others, *layers, n_actions))

    def trained(self, weights: dict[str, npt.NDArray[Any]]) -> Agent:
        return belief_policy.policy_of(weights, sample=self.sample)

    def decision_seconds(self, prior: DirichletPrior) -> float:
        network = PARAMETER_SECONDS * self._network(prior).parameters
        if self.inputs != "mean and belief":
            return 3e-7 + network
        return ann.DECISION_SECONDS + prior.mdps.concentrations.size * ann.ENTRY_SECONDS + network


def play_and_imitate(
    arguments: tuple[rounds.Training, Array, Array, tuple[rounds.Settings, Any]],
) -> tuple[rounds.Training, Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns of the lifetimes that the network has played, up to H, [2].

    Args:
      arguments: as of `ann.label_and_learn`.
    """
    training, _, _, (settings, _) = arguments
    return ann.imitated(arguments, greedily(settings.network, training.parameters))


def greedily(network: Dense | Attention, parameters: Array) -> ann.Behaviour:
    """Return the behaviour of a network: the actions of greatest output."""
    layers = network.layers(parameters)

    def behave(_: Array, inputs: Array) -> Array:
        outputs = network.apply(layers, inputs)
        return (outputs >= outputs.max(0, keepdims=True)).astype(jnp.float32)

    return behave
