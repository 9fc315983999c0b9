"""Deep Q-networks: action values by a neural network, learned from a replay buffer."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jbrl import vectorize
from jbrl.agents.deep import replay
from jbrl.agents.deep.cost import ADAM, PRODUCT, cost_of
from jbrl.agents.deep.q_network import Layers, QNetwork, adam_step, taken
from jbrl.agents.deep.replay import Batch, Replay
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import NO_ACTION, Agent, Cost, HasCost, MayDiverge, Transition

MAX_BYTES = 4 << 30  # of one lifetime
DIVERGED = "its action values are NaN: learning has diverged; a smaller learning_rate may help"


@record
class Learner:
    """The part of the state that an update changes."""

    online: Layers  # of the network that acts
    target: Layers  # of the network that values next observations
    adam: Any  # state of the optimiser
    updates: jax.Array  # [] int32, updates so far


@record
class DQNState:
    learner: Learner
    replay: Replay
    network: QNetwork = static()


@register_agent("DQN", cite="mnih2015,osband2020bsuite")
class DQN(HasCost, MayDiverge, Agent[Prior, DQNState]):
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
        4, "updates from one copy of the network to the target to the next", low=1, high=2**24
    )
    learning_rate: float = parameter(1e-3, "step size of Adam", low=0, high=1e3)
    discount: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )
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

    def __post_init__(self) -> None:
        """Refuse a buffer that never holds enough transitions, where their number is known."""
        replay.check_sizes(self.min_replay, self.replay_capacity)

    def cost(self, prior: Prior) -> Cost:
        """Count four passes of the network with a batch, and a step of Adam, for each update."""
        network = QNetwork.of(prior.spec, self.hidden_layers, self.hidden_width)
        seconds = 4 * self.batch_size * network.products * PRODUCT
        seconds += network.parameters * ADAM
        return cost_of(self, prior, seconds / int(self.sgd_period))

    def reset(self, key: jax.Array, knowledge: Prior) -> DQNState:
        spec = knowledge.spec
        network = QNetwork.of(spec, self.hidden_layers, self.hidden_width)
        kept = replay.row_numbers(spec.observation) * self.replay_capacity
        refuse_too_large("DQN", 4 * (4 * network.parameters + kept))
        online_key, target_key = jax.random.split(key)
        online = network.init(online_key)
        target = network.init(target_key) if self.target_start == "independent" else online
        memory = replay.empty(spec.observation, self.replay_capacity)
        return DQNState(begun(online, target), memory, network)

    def act(
        self, key: jax.Array, state: DQNState, observation: jax.Array
    ) -> tuple[jax.Array, DQNState]:
        values = state.network.values_of(state.learner.online, observation)
        epsilon = self._epsilon(state.replay.added)
        return epsilon_greedy(values, epsilon, sampling.uniforms(key)), state

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def _epsilon(self, step: jax.Array) -> jax.Array:
        """Return the probability of a random action after `step` steps."""
        steps = jnp.asarray(self.epsilon_steps, jnp.float32)
        done = step.astype(jnp.float32) / jnp.maximum(steps, 1)
        left = jnp.where(self.epsilon_steps > 0, jnp.maximum(0.0, 1 - done), 0.0)
        return self.epsilon + left * (self.epsilon_start - self.epsilon)

    def observe(self, key: jax.Array, state: DQNState, transition: Transition) -> DQNState:
        memory, network = replay.add(state.replay, transition), state.network
        batch = replay.sample(memory, key, self.batch_size)
        due = (memory.size >= self.min_replay) & (memory.added % self.sgd_period == 0)

        learner = update(self, network, state.learner, batch, memory.added, due)
        return DQNState(learner, memory, network)


def begun(online: Layers, target: Layers) -> Learner:
    """Return a learner before its first update."""
    return Learner(online, target, optax.adam(0.0).init(online), jnp.int32(0))


def update(
    agent: DQN,
    network: QNetwork,
    learner: Learner,
    batch: Batch,
    step: jax.Array,
    due: jax.Array,
) -> Learner:
    """Take one step of Adam if it is `due`, [] bool, and copy the network to the target if it is
    time.

    Args:
      step: [] int32, steps so far, the present one included.
    """

    def updated(now: Learner) -> Learner:
        operands = (now.online, now.target, batch, agent)
        slopes = vectorize.compute_apart(functools.partial(_slopes, network), *operands)
        online, adam = adam_step(agent.learning_rate, slopes, now.adam, now.online)
        updates = now.updates + 1
        count = step if agent.target_clock == "steps" else updates
        copies = count % agent.target_period == 0
        target = jax.tree.map(lambda new, old: jnp.where(copies, new, old), online, now.target)
        return Learner(online, target, adam, updates)

    return vectorize.updated_where(due, updated, learner)


def _slopes(network: QNetwork, online: Layers, target: Layers, batch: Batch, agent: DQN) -> Layers:
    """Return the gradient of the mean loss of a batch with respect to `online`."""
    following = network.values(target, batch.next_observation)
    best = following.max(0)
    if agent.double_q:
        chosen = network.values(online, batch.next_observation).argmax(0)
        best = taken(following, chosen.astype(jnp.int32))
    goal = batch.reward + agent.discount * batch.goes_on * best

    def loss(layers: Layers) -> jax.Array:
        error = goal - taken(network.values(layers, batch.observation), batch.action)
        return _losses(error, agent.loss).mean()

    return jax.grad(loss)(online)


def epsilon_greedy(values: jax.Array, epsilon: jax.Array, uniforms: jax.Array) -> jax.Array:
    """Return an action, [] int32: uniform over all of them with probability `epsilon`, else greedy,
    ties uniform; `NO_ACTION` where a value is NaN.

    Args:
      values: [A] float32.
      uniforms: [2] float32 in [0, 1): the first decides whether to explore, the second is for the
        action.
    """
    greedy = sampling.choose_maximiser(values, uniforms[1])
    explored = sampling.uniform_index(uniforms[1], values.shape[0])
    action = jnp.where(uniforms[0] < epsilon, explored, greedy)
    # or each of the operations that use it finds the greatest value again
    return vectorize.prevent_fusion_index(jnp.where(jnp.isnan(values).any(), NO_ACTION, action))


def _losses(error: jax.Array, kind: str) -> jax.Array:
    """Return the loss of each error, same shape."""
    if kind == "huber":
        return optax.huber_loss(error)
    return error**2 if kind == "squared" else error**2 / 2


def refuse_too_large(name: str, needed: int) -> None:
    """Refuse an agent whose state takes too much memory.

    Args:
      name: of the agent, for the message.
      needed: bytes of one lifetime.

    Raises:
      JbrlError: says how much.
    """
    if needed > MAX_BYTES:
        raise JbrlError(
            f"{name} takes {needed / 2**30:.3g} GiB for one lifetime: expected at most "
            f"{MAX_BYTES >> 30} GiB; smaller hidden layers or a smaller replay_capacity take less"
        )
