"""DPT: a network that imitates optimal actions, and plays the lifetimes that it learns from.

What is known of an MDP must come from its transitions alone: were lifetimes played by an agent that
knows the MDP, its actions would show which are optimal, and a network would learn to trust them.
"""

import jax.numpy as jnp
from jax import Array

from jbrl.agents.prior_trained import ann, belief_policy
from jbrl.agents.prior_trained.networks import Attention, Dense
from jbrl.agents.prior_trained.trained import budget_parameter
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.problems.prior import DirichletPrior

INPUTS = ("belief", "mean and belief", "history")
LEAST_ROUNDS, SMALLEST_ROUND = 16, 32  # rounds are smaller where a budget has fewer of them
PARAMETER_SECONDS = 4e-10  # of a decision in training, for each parameter of the network


@register_agent("DPT", cite="lee2023")
class DPT(ann.Imitator):
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

    def behaviour(self, network: Dense | Attention, parameters: Array) -> ann.Behaviour:
        return greedily(network, parameters)

    def decision_seconds(self, prior: DirichletPrior) -> float:
        network = PARAMETER_SECONDS * self.network(prior).parameters
        if self.inputs != "mean and belief":
            return 3e-7 + network
        return ann.DECISION_SECONDS + prior.mdps.concentrations.size * ann.ENTRY_SECONDS + network


def greedily(network: Dense | Attention, parameters: Array) -> ann.Behaviour:
    """Return the behaviour of a network: the actions of greatest output."""
    layers = network.layers(parameters)

    def behave(_: Array, inputs: Array) -> Array:
        outputs = network.apply(layers, inputs)
        return (outputs >= outputs.max(0, keepdims=True)).astype(jnp.float32)

    return behave
