"""Proximal policy optimisation: several passes over a rollout, with steps of the policy clipped."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.deep import adam, networks, sequence
from jbrl.agents.deep.actor_critic import DIVERGED
from jbrl.agents.deep.adam import Learner
from jbrl.agents.deep.sequence import TERMINATED, Rollout, generalised_advantages, log_probabilities
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Spec
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Agent, Cost, HasCost, MayDiverge, Transition

INITIAL_SCALE = 0.01  # of the weights that logits start with: the first policy is nearly uniform


class Batch(NamedTuple):
    """Steps that are learned from, B of them."""

    inputs: Array  # [B, D] float32, or [B] int32
    actions: Array  # [B] int32
    logs: Array  # [B], log-probabilities of the actions by the policy that chose them
    advantages: Array  # [B]
    returns: Array  # [B], that values are fitted to


@record
class PPOState:
    learner: Learner
    rollout: Rollout
    network: networks.PolicyValue = static()


@register_agent("PPO", cite="schulman2017,schulman2016")
class PPO(HasCost, MayDiverge, Agent[Prior, PPOState]):
    """Proximal policy optimisation with a clipped objective and generalised advantages, by Adam.

    One environment: every T decisions, some epochs over the last T steps, in minibatches drawn
    without replacement. Schulman et al. 2017. A decision is one forward pass of P multiplications,
    and learning three for each epoch: O(P) and a pass over the parameters for each minibatch.
    """

    lanes = 1

    learning_rate: float = parameter(1e-3, "step size of Adam", low=0, high=1e9)
    discount: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )
    trace_decay: float = parameter(0.95, "lambda of the advantages", low=0, high=1)
    clip: float = parameter(
        0.2, "epsilon: the ratio of probabilities counts from 1 - clip to 1 + clip", low=0, high=1e6
    )
    value_cost: float = parameter(0.5, "weight of the squared error of the value", low=0, high=1e6)
    entropy_cost: float = parameter(0.01, "weight of the policy's entropy", low=0, high=1e6)
    max_gradient_norm: float = parameter(
        0.5, "length that longer gradients are scaled down to", low=0, high=1e9, open_low=True
    )
    hidden_width: int = parameter(64, "units of each hidden layer", low=1, high=65_536, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=1, high=16, static=True)
    rollout_length: int = parameter(
        128, "T, decisions between updates", low=2, high=1_000_000, static=True
    )
    epochs: int = parameter(4, "passes over a rollout", low=1, high=1000, static=True)
    minibatches: int = parameter(
        4,
        "parts of a rollout, of equal size, two steps or more; one step of Adam each",
        low=1,
        high=100_000,
        static=True,
    )

    def __post_init__(self) -> None:
        if self.rollout_length % self.minibatches:
            raise JbrlError(
                f"minibatches = {self.minibatches}: expected a divisor of "
                f"rollout_length = {self.rollout_length}"
            )
        if self.rollout_length // self.minibatches < 2:
            # the advantage of a lone step minus its own mean is 0: no policy would be learned
            raise JbrlError(
                f"minibatches = {self.minibatches}: expected at most half of "
                f"rollout_length = {self.rollout_length}, so that each has two steps or more"
            )

    def cost(self, prior: Prior) -> Cost:
        """Count three passes of the network in each epoch, and a step of Adam for each
        minibatch.
        """
        network = self._network(prior.spec)
        parameters = networks.parameter_count(network)
        products = parameters - network.looked_up
        steps = self.epochs * self.minibatches / self.rollout_length
        seconds = 3 * self.epochs * products * networks.PRODUCT + steps * parameters * networks.ADAM
        return networks.cost_of(self, prior, seconds)

    def _network(self, spec: Spec) -> networks.PolicyValue:
        widths = (self.hidden_width,) * self.hidden_layers
        return networks.PolicyValue.of(spec, widths, final_activation=True)

    def reset(self, key: Array, knowledge: Prior) -> PPOState:
        spec = knowledge.spec
        network = self._network(spec)
        rollout = Rollout.empty(spec.observation, self.rollout_length)
        networks.check_size("PPO", network, rollout)
        torso, heads = network.init(key)
        scales = jnp.full(network.n_actions + 1, INITIAL_SCALE).at[-1].set(1)
        heads = networks.Linear(heads.weights * scales[None], heads.bias)
        return PPOState(adam.learner((torso, heads)), rollout, network)

    def act(self, key: Array, state: PPOState, observation: Array) -> tuple[Array, PPOState]:
        uniform = sampling.uniforms(key)[0]
        return state.network.act(state.learner.parameters, observation, uniform), state

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def observe(self, key: Array, state: PPOState, transition: Transition) -> PPOState:
        rollout = state.rollout.append(transition)
        full = rollout.length == rollout.capacity

        def update(learner: Learner, context: Any, _: tuple[int, ...]) -> Learner:
            return learn(state.network, learner, *context)  # rollouts are all of one length

        context = jax.tree.map(jnp.asarray, (rollout, jax.random.key_data(key), self))
        learner = sequence.update_where(full, update, state.learner, context, rollout.capacity)
        return PPOState(learner, rollout.emptied(full), state.network)


def learn(
    network: networks.PolicyValue, learner: Learner, rollout: Rollout, words: Array, agent: PPO
) -> Learner:
    """Return the learner after the epochs over a full rollout.

    Args:
      words: of a random key, [2] uint32.
    """
    steps = batch(network, learner.parameters, rollout, agent)
    epochs, minibatches = agent.epochs, agent.minibatches
    size = rollout.capacity // minibatches
    # or XLA draws and sorts at every step, before it is known whether the rollout is full
    words, _ = lax.optimization_barrier((words, learner.optimiser.count))
    drawn = jax.random.bits(jax.random.wrap_key_data(words), (epochs, rollout.capacity))
    order = jnp.argsort(drawn, axis=1).astype(jnp.int32).reshape(epochs * minibatches, size)

    def one(learner: Learner, chosen: Array) -> tuple[Learner, None]:
        part = Batch(*(v.at[chosen].get(mode="promise_in_bounds") for v in steps))
        gradient = jax.grad(lambda p: loss(network, p, part, agent))(learner.parameters)
        max_norm = agent.max_gradient_norm
        return adam.descend(learner, gradient, agent.learning_rate, max_norm=max_norm), None

    return lax.scan(one, learner, order)[0]


def batch(network: networks.PolicyValue, parameters: Any, rollout: Rollout, agent: PPO) -> Batch:
    """Return the steps of a full rollout with advantages and returns, by the parameters that it was
    played with.
    """
    inputs, following = (
        sequence.as_inputs(v) for v in (rollout.observations, rollout.next_observations)
    )
    ends, actions = rollout.ends[:, 0], rollout.actions[:, 0]
    logits, values = network.apply(parameters, inputs)
    next_values = network.apply(parameters, following)[1]
    none = jnp.zeros_like(values)
    last = jnp.arange(rollout.capacity, dtype=jnp.int32) == rollout.capacity - 1
    advantages = generalised_advantages(
        rollout.rewards[:, 0].astype(values.dtype),
        jnp.where(ends == TERMINATED, none, agent.discount),
        values,
        next_values,
        jnp.where((ends > 0) | last, none, agent.trace_decay),
    )
    logs = log_probabilities(logits, actions)[0]
    return Batch(inputs, actions, logs, advantages, advantages + values)


def loss(network: networks.PolicyValue, parameters: Any, part: Batch, agent: PPO) -> Array:
    """Return the loss of a minibatch: [].

    The mean of -min(r A, clip(r, 1 - clip, 1 + clip) A) + value_cost (v - R)^2 - entropy_cost H,
    where r is the probability of the action divided by that of the policy that chose it, and A the
    advantage with the mean and the standard deviation of the minibatch taken out. Schulman et al.
    2017, equations 7 and 9.
    """
    logits, values = network.apply(parameters, part.inputs)
    logs, entropies = log_probabilities(logits, part.actions)
    advantages = part.advantages - part.advantages.mean()
    advantages = advantages / (jnp.sqrt((advantages * advantages).mean()) + 1e-8)
    ratios = jnp.exp(logs - part.logs)
    limited = jnp.clip(ratios, 1 - agent.clip, 1 + agent.clip)
    gains = jnp.minimum(ratios * advantages, limited * advantages)
    errors = values - part.returns
    return (agent.value_cost * errors * errors - gains - agent.entropy_cost * entropies).mean()
