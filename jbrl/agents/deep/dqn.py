"""Deep Q-networks: action values by a neural network, learned from a replay buffer."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.deep import adam, replay
from jbrl.agents.deep.networks import ADAM, PRODUCT, Layers, QNetwork, check_bytes, cost_of, taken
from jbrl.agents.deep.replay import Batch, Replay
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, select, static
from jbrl.environments.spec import Spec
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import NO_ACTION, Agent, Cost, HasCost, MayDiverge, Transition

DIVERGED = "its action values are NaN: learning has diverged; a smaller learning_rate may help"


@record
class Learner:
    """The part of the state that an update changes."""

    online: Layers  # of the network that acts
    target: Any  # of the network that values next observations: layers, or several of them
    optimiser: Any  # state of Adam
    updates: Array  # [] int32, updates so far


@record
class ReplayLearner(HasCost, MayDiverge, Agent[Prior, Any]):
    """Base of the agents that learn action values from a replay buffer."""

    hidden_layers: int = parameter(2, "hidden layers", low=0, high=16, static=True)
    hidden_width: int = parameter(50, "units of a hidden layer", low=1, high=16_384, static=True)
    batch_size: int = parameter(32, "transitions of an update", low=1, high=65_536, static=True)
    replay_capacity: int = parameter(
        10_000, "transitions that are kept, the last ones", low=1, high=2**24, static=True
    )
    min_replay: int = parameter(
        100, "transitions that are kept before the first update", low=1, high=2**24
    )
    sgd_period: int = parameter(1, "steps from one update to the next", low=1, high=2**24)
    target_period: int = parameter(
        4, "updates from one copy of a network to its target to the next", low=1, high=2**24
    )
    learning_rate: float = parameter(1e-3, "step size of Adam", low=0, high=1e3)
    discount: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )

    def __post_init__(self) -> None:
        """Refuse a buffer that never holds enough transitions, where their number is known."""
        replay.check_sizes(self.min_replay, self.replay_capacity)

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def _network(self, spec: Spec) -> QNetwork:
        return QNetwork.of(spec, self.hidden_layers, self.hidden_width)

    def _cost(self, prior: Prior, networks: int) -> Cost:
        """Count four passes of each network with a batch, and a step of Adam, for each update."""
        network = self._network(prior.spec)
        seconds = 4 * self.batch_size * network.products * PRODUCT + network.parameters * ADAM
        return cost_of(self, prior, networks * seconds / int(self.sgd_period))

    def _empty_replay(self, spec: Spec, parameters: int, extra: int = 0) -> Replay:
        """Return an empty buffer.

        Raises:
          JbrlError: with so many parameters, its gradient and moments included, a lifetime takes
            too much memory.
        """
        kept = replay.row_numbers(spec.observation, extra) * self.replay_capacity
        advice = "smaller hidden layers or a smaller replay_capacity take less"
        check_bytes(type(self).__name__, parameters + kept, "", advice)
        return replay.empty(spec.observation, self.replay_capacity, extra)

    def _due(self, memory: Replay) -> Array:
        """Return whether an update follows the last transition: [] bool."""
        return (memory.size >= self.min_replay) & (memory.added % self.sgd_period == 0)


@record
class DQNState:
    learner: Learner
    replay: Replay
    network: QNetwork = static()


@register_agent("DQN", cite="mnih2015,osband2020bsuite")
class DQN(ReplayLearner):
    """A deep Q-network with a replay buffer and a target network, epsilon-greedy.

    After each transition a batch is drawn from the last ones, and Adam takes one step down the
    gradient of

        mean (r + gamma max_v Q_target(y, v) - Q(x, u))^2,

    without the maximum where the episode has terminated; an episode that is truncated counts as
    going on from y. Ties among greatest values are broken uniformly. Mnih et al. 2015, without
    convolutions, clipping and frames; the defaults are those of the JAX agent of bsuite 0.3.6
    and the network of its sweeps (Osband et al. 2020). A decision costs one pass of the network
    forward for an action and about four with a batch for the update.
    """

    # more would cost little less for each, and families of problems whose sizes differ, or single
    # problems, would leave most of them empty
    lanes = 2

    epsilon: float = parameter(0.05, "probability of a uniformly random action", low=0, high=1)
    epsilon_start: float = parameter(
        1.0, "that probability at the first step, where `epsilon_steps` is above 0", low=0, high=1
    )
    epsilon_steps: int = parameter(
        0, "steps in which it falls from `epsilon_start` to `epsilon`, linearly", low=0, high=2**30
    )
    double_q: bool = parameter(
        False, "choose the next action by the network, value it by the target", static=True
    )
    loss: str = parameter(
        "squared",
        "of an error e: e^2, e^2 / 2, or Huber's, e^2 / 2 up to 1 and |e| - 1/2 above",
        choices=("squared", "half squared", "huber"),
    )
    target_start: str = parameter(
        "copy",
        "the target at the start: a copy of the network, or drawn independently",
        choices=("copy", "independent"),
    )
    target_clock: str = parameter(
        "updates", "what `target_period` counts: updates, or steps", choices=("updates", "steps")
    )

    def cost(self, prior: Prior) -> Cost:
        """See `ReplayLearner`."""
        return self._cost(prior, 1)

    def reset(self, key: Array, knowledge: Prior) -> DQNState:
        network = self._network(knowledge.spec)
        memory = self._empty_replay(knowledge.spec, 4 * network.parameters)
        online_key, target_key = jax.random.split(key)
        online = network.init(online_key)
        target = network.init(target_key) if self.target_start == "independent" else online
        return DQNState(begun(online, target), memory, network)

    def act(self, key: Array, state: DQNState, observation: Array) -> tuple[Array, DQNState]:
        values = state.network.values_of(state.learner.online, observation)
        epsilon = self._epsilon(state.replay.added)
        return epsilon_greedy(values, epsilon, sampling.uniforms(key)), state

    def _epsilon(self, step: Array) -> Array:
        """Return the probability of a random action after `step` steps."""
        steps = jnp.asarray(self.epsilon_steps, jnp.float32)
        done = step.astype(jnp.float32) / jnp.maximum(steps, 1)
        left = jnp.where(self.epsilon_steps > 0, jnp.maximum(0.0, 1 - done), 0.0)
        return self.epsilon + left * (self.epsilon_start - self.epsilon)

    def observe(self, key: Array, state: DQNState, transition: Transition) -> DQNState:
        memory, network = replay.add(state.replay, transition), state.network
        batch = replay.sample(memory, key, self.batch_size)
        learner = update(self, network, state.learner, batch, memory.added, self._due(memory))
        return DQNState(learner, memory, network)


def begun(online: Layers, target: Any) -> Learner:
    """Return a learner before its first update."""
    return Learner(online, target, adam.begin(online), jnp.int32(0))


def update(
    agent: DQN, network: QNetwork, learner: Learner, batch: Batch, step: Array, due: Array
) -> Learner:
    """Return `updated` by a batch."""
    slopes = functools.partial(_slopes, network)
    return updated(agent, learner, slopes, (batch,), step, due, lambda online: online)


def updated(
    agent: Any,
    learner: Learner,
    slopes: Callable[..., Layers],
    given: tuple[Any, ...],
    step: Array,
    due: Array,
    source: Callable[[Layers], Any],
) -> Learner:
    """Take one step of Adam if it is `due`, [] bool, and copy the network to the target if it is
    time.

    Args:
      agent: has `learning_rate`, `target_clock` and `target_period`.
      slopes: returns the gradient, of (online, target, *given, agent).
      step: [] int32, steps so far, the present one included.
      source: what is copied to the target, of the layers.
    """

    def changed(now: Learner) -> Learner:
        gradient = vectorize.compute_apart(slopes, now.online, now.target, *given, agent)
        rate = agent.learning_rate
        online, optimiser = adam.optimiser_step(rate, gradient, now.optimiser, now.online)
        updates = now.updates + 1
        counts = {"updates": updates, "steps": step, "updates from 1": updates + 1}
        copies = counts[agent.target_clock] % agent.target_period == 0
        return Learner(online, select(copies, source(online), now.target), optimiser, updates)

    return vectorize.updated_where(due, changed, learner)


def _slopes(network: QNetwork, online: Layers, target: Layers, batch: Batch, agent: DQN) -> Layers:
    """Return the gradient of the mean loss of a batch with respect to `online`."""
    following = network.values(target, batch.next_observation)
    best = following.max(0)
    if agent.double_q:
        chosen = network.values(online, batch.next_observation).argmax(0)
        best = taken(following, chosen.astype(jnp.int32))
    goal = batch.reward + agent.discount * batch.goes_on * best

    def loss(layers: Layers) -> Array:
        error = goal - taken(network.values(layers, batch.observation), batch.action)
        return _losses(error, agent.loss).mean()

    return jax.grad(loss)(online)


def epsilon_greedy(values: Array, epsilon: Array, uniforms: Array) -> Array:
    """Return an action, [] int32: uniform over all of them with probability `epsilon`, else greedy,
    ties uniform; `NO_ACTION` where a value is NaN.

    Args:
      values: [A] float32.
      uniforms: [2] float32 in [0, 1): the first decides whether to explore, the second is for the
        action.
    """
    greedy = sampling.choose_maximiser(values, uniforms[1])
    action = selection.epsilon_greedy(greedy, values.shape[0], epsilon, uniforms)
    # or each of the operations that use it finds the greatest value again
    return vectorize.prevent_fusion_index(jnp.where(jnp.isnan(values).any(), NO_ACTION, action))


def _losses(error: Array, kind: str) -> Array:
    """Return the loss of each error, same shape."""
    if kind == "huber":
        return optax.huber_loss(error)
    return error**2 if kind == "squared" else error**2 / 2
