"""Actor-critic: a policy and a value function learned from short sequences of one episode."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.deep import adam, networks, sequence
from jbrl.agents.deep.adam import Learner
from jbrl.agents.deep.sequence import Sequence, log_probabilities, sequence_returns
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Spec
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Agent, Cost, HasCost, MayDiverge, Transition

DIVERGED = "its policy is NaN: learning has diverged; a smaller learning_rate may help"


@record
class SequenceLearner(HasCost, MayDiverge, Agent[Prior, Any]):
    """Base of the actor-critics: parameters of the loss of a sequence, and its optimiser.

    Class attributes:
      compiling: as in `Cost`.
    """

    lanes = 1
    compiling: ClassVar[float] = networks.COMPILING

    learning_rate: float = parameter(3e-3, "step size of Adam", low=0, high=1e9)
    discount: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )
    trace_decay: float = parameter(
        0.9, "lambda of the returns; 1: rewards up to the end of the sequence", low=0, high=1
    )
    value_cost: float = parameter(
        1.0, "weight of the squared error of the value; 0.5 in the TF variant", low=0, high=1e6
    )
    entropy_cost: float = parameter(0.0, "weight of the policy's entropy", low=0, high=1e6)
    sum_losses: bool = parameter(
        False, "sum losses over the steps of a sequence, as the TF variant; else: average"
    )

    def _network(self, spec: Spec) -> Any:
        """Return the network for observations and actions of an environment."""
        raise NotImplementedError(f"{type(self).__name__} has no method _network")

    def cost(self, prior: Prior) -> Cost:
        """Count three passes of the network, and a step of Adam every eight steps."""
        network = self._network(prior.spec)
        parameters = networks.parameter_count(network)
        products = parameters - network.looked_up
        seconds = 3 * products * networks.LONE_PRODUCT + parameters * networks.ADAM / 8
        return networks.cost_of(self, prior, seconds, self.compiling)

    def refusal(self, n_actions: int) -> str:
        return DIVERGED


def sequence_loss(
    logits: Array, values: Array, played: Sequence, terminated: Array, agent: SequenceLearner
) -> Array:
    """Return the loss of a sequence: [].

    With returns G_t that end with the value of the last observation, advantages A_t = G_t - v_t and
    no gradient through G_t, it is the mean over the steps of

        value_cost A_t^2 - log pi(u_t | o_t) A_t - entropy_cost H(pi(. | o_t)),

    without gradient through A_t in the second term; the sum with `sum_losses`.

    Args:
      logits: [S + 1, A] for the first S + 1 observations, S no less than the sequence's length.
      values: [S + 1], as well.
      terminated: [] bool, the episode has terminated with the last step.
    """
    size = values.shape[0] - 1
    length = played.length
    returns = sequence_returns(
        played.rewards[:size, 0].astype(values.dtype),
        values[1:],
        length,
        terminated,
        discount=agent.discount,
        trace_decay=agent.trace_decay,
    )
    advantages = lax.stop_gradient(returns) - values[:-1]
    logs, entropies = log_probabilities(logits[:-1], played.actions[:size, 0])
    terms = (
        agent.value_cost * advantages**2
        - logs * lax.stop_gradient(advantages)
        - agent.entropy_cost * entropies
    )
    within = jnp.arange(size, dtype=jnp.int32) < length
    total = jnp.where(within, terms, jnp.zeros_like(terms)).sum()
    return total / jnp.where(agent.sum_losses, 1, length).astype(total.dtype)


@record
class ActorCriticState:
    learner: Learner
    played: Sequence  # transitions since the last update
    network: networks.PolicyValue = static()


@register_agent("ActorCritic", cite="williams1992,osband2020bsuite")
class ActorCritic(SequenceLearner):
    """Actor-critic with a feed-forward network and lambda-returns, by Adam.

    Actions are drawn from the policy. Sequences of one episode are learned from as soon as they are
    `sequence_length` steps long or the episode ends, and then forgotten. Williams 1992; the agent
    of bsuite (Osband et al. 2020). A decision is one forward pass of P multiplications, and
    learning three more for each step: O(P).
    """

    hidden_width: int = parameter(64, "units of each hidden layer", low=1, high=65_536, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=1, high=16, static=True)
    final_activation: bool = parameter(
        False, "ReLU after the last hidden layer as well, as the TF variant", static=True
    )
    sequence_length: int = parameter(
        32, "T, steps of a sequence, at most", low=1, high=10_000, static=True
    )

    def _network(self, spec: Spec) -> networks.PolicyValue:
        widths = (self.hidden_width,) * self.hidden_layers
        return networks.PolicyValue.of(spec, widths, final_activation=self.final_activation)

    def reset(self, key: Array, knowledge: Prior) -> ActorCriticState:
        spec = knowledge.spec
        network = self._network(spec)
        played = Sequence.empty(spec.observation, self.sequence_length)
        networks.check_size("ActorCritic", network, played)
        return ActorCriticState(adam.learner(network.init(key)), played, network)

    def act(
        self, key: Array, state: ActorCriticState, observation: Array
    ) -> tuple[Array, ActorCriticState]:
        uniform = sampling.uniforms(key)[0]
        return state.network.act(state.learner.parameters, observation, uniform), state

    def observe(
        self, key: Array, state: ActorCriticState, transition: Transition
    ) -> ActorCriticState:
        played = state.played.append(transition)
        ended = transition.terminated | transition.truncated
        due = ended | (played.length == played.capacity)

        def update(learner: Learner, context: Any, sizes: tuple[int, ...]) -> Learner:
            played, terminated, agent = context
            return learn(state.network, learner, played, terminated, agent, sizes)

        context = jax.tree.map(jnp.asarray, (played, transition.terminated, self))
        learner = sequence.update_where(due, update, state.learner, context, self.sequence_length)
        return ActorCriticState(learner, played.emptied(due), state.network)


def learn(
    network: networks.PolicyValue,
    learner: Learner,
    played: Sequence,
    terminated: Array,
    agent: ActorCritic,
    sizes: tuple[int, ...],
) -> Learner:
    """Return the learner after one update from a sequence.

    Args:
      sizes: lengths that a program is compiled for; the shortest that suffices computes
        the gradient.
    """

    def loss(parameters: Any, size: int) -> Array:
        logits, values = network.apply(parameters, played.inputs(size))
        return sequence_loss(logits, values, played, terminated, agent)

    def gradient(size: int) -> Any:
        return jax.grad(loss)(learner.parameters, size)

    slope = sequence.by_length(gradient, played.length, sizes)
    return adam.descend(learner, slope, agent.learning_rate)
