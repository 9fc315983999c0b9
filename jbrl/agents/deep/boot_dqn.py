"""Bootstrapped DQN with randomised prior functions: an ensemble of Q-networks, one of which decides
in each episode.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jbrl import vectorize
from jbrl.agents.deep import replay
from jbrl.agents.deep.cost import ADAM, PRODUCT, cost_of
from jbrl.agents.deep.dqn import DIVERGED, epsilon_greedy, refuse_too_large
from jbrl.agents.deep.q_network import Layers, QNetwork, adam_step, taken
from jbrl.agents.deep.replay import Batch, Replay
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Agent, Cost, HasCost, MayDiverge, Transition


@record
class Ensemble:
    """The part of the state that an update changes. Layers of all heads have an axis [K] in
    front.
    """

    online: Layers
    target: Layers
    # prior functions of the target where it was drawn independently, until the first copy
    target_prior: Layers | None
    adam: Any  # state of the optimiser
    updates: jax.Array  # [] int32, updates so far


@record
class BootDQNState:
    ensemble: Ensemble
    prior: Layers  # prior functions of all heads, which are not learned
    replay: Replay
    head: jax.Array  # [] int32, the head that decides in this episode
    acting: tuple[Layers, Layers] | None  # its network and prior when the episode began, if frozen
    network: QNetwork = static()


@record
class Bootstrapped:
    """A batch, and what was drawn for each transition and head."""

    batch: Batch
    mask: jax.Array  # [K, B] float32, 0 or 1: whether the head learns from the transition
    noise: jax.Array  # [K, B] float32, standard normal, of the reward
    prior: jax.Array  # [K, A, B] float32, prior functions at the observation
    next_prior: jax.Array  # [K, A, B] float32, at the next one


@register_agent("BootDQN", cite="osband2016bootstrapped,osband2018prior,osband2020bsuite")
class BootDQN(HasCost, MayDiverge, Agent[Prior, BootDQNState]):
    """Bootstrapped DQN with randomised prior functions: an ensemble of K heads, one per episode.

    The value of head k is Q_k(x, u) + s P_k(x, u), where P_k is a network of fixed random weights.
    At the end of an episode the head that decides in the next one is drawn uniformly. Each head
    takes, after each transition, a step of its own Adam down the gradient of

        mean m_k (r + sigma z_k + gamma max_v (Q_k + s P_k)_target(y, v) - (Q_k + s P_k)(x, u))^2

    on a batch that all heads share; mask m_k, Bernoulli, and noise z_k, standard normal, are drawn
    once for each transition and head. Osband et al. 2016 and 2018; the defaults are those of bsuite
    0.3.6 (Osband et al. 2020), where a published program has a defect the defect is off. A decision
    costs one pass of a head forward and about three of each head with a batch for the update.
    """

    lanes = 1  # the heads of one are company enough

    ensemble: int = parameter(20, "K, heads", low=1, high=1024, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=0, high=16, static=True)
    hidden_width: int = parameter(50, "units of a hidden layer", low=1, high=16_384, static=True)
    batch_size: int = parameter(128, "transitions of an update", low=1, high=65_536, static=True)
    replay_capacity: int = parameter(
        10_000, "transitions that are kept, the last ones", low=1, high=2**24, static=True
    )
    min_replay: int = parameter(
        128, "transitions that are kept before the first update", low=1, high=2**24
    )
    sgd_period: int = parameter(1, "steps from one update to the next", low=1, high=2**24)
    target_period: int = parameter(
        4, "updates from one copy of the networks to the targets to the next", low=1, high=2**24
    )
    learning_rate: float = parameter(1e-3, "step size of Adam", low=0, high=1e3)
    discount: float = parameter(
        0.99, "discount factor that it learns with, independent of the criterion's", low=0, high=1
    )
    prior_scale: float = parameter(5.0, "s, factor of the prior functions", low=0, high=1e6)
    mask_probability: float = parameter(
        1.0, "with which a head learns from a transition", low=0, high=1
    )
    noise_scale: float = parameter(
        0.0, "sigma, standard deviation of the noise of rewards", low=0, high=1e6
    )
    epsilon: float = parameter(0.0, "least probability of a random action", low=0, high=1)
    epsilon_decay: float = parameter(
        0.0,
        "c; the probability of a random action at step t is c / (c + t) or more",
        low=0,
        high=1e9,
    )
    frozen_head: bool = parameter(
        False,
        "decide by the head as it was when the episode began, as the JAX program of bsuite does",
        static=True,
    )
    mean_over_heads: bool = parameter(
        False, "divide the loss by K, as one optimiser for all heads does"
    )
    target_start: str = parameter(
        "copy",
        "the targets at the start: copies of the heads, or networks and priors drawn independently",
        choices=("copy", "independent"),
    )
    target_clock: str = parameter(
        "updates",
        "what `target_period` counts: updates, steps, or updates from 1, which `epsilon_decay` "
        "then counts too, in place of steps, as the TensorFlow program of bsuite does",
        choices=("updates", "steps", "updates from 1"),
    )

    def __post_init__(self) -> None:
        """Refuse a buffer that never holds enough transitions, where their number is known."""
        replay.check_sizes(self.min_replay, self.replay_capacity)

    def cost(self, prior: Prior) -> Cost:
        """Count four passes of each head with a batch, and a step of Adam, for each update."""
        network = QNetwork.of(prior.spec, self.hidden_layers, self.hidden_width)
        seconds = 4 * self.batch_size * network.products * PRODUCT
        seconds = self.ensemble * (seconds + network.parameters * ADAM)
        return cost_of(self, prior, seconds / int(self.sgd_period))

    def reset(self, key: jax.Array, knowledge: Prior) -> BootDQNState:
        spec = knowledge.spec
        network = QNetwork.of(spec, self.hidden_layers, self.hidden_width)
        extra = self.ensemble * (2 + 2 * network.widths[-1])
        kept = replay.row_numbers(spec.observation, extra) * self.replay_capacity
        refuse_too_large("BootDQN", 4 * (6 * self.ensemble * network.parameters + kept))
        drawn = [
            jax.vmap(network.init)(jax.random.split(part, self.ensemble))
            for part in jax.random.split(key, 4)
        ]
        online, prior = drawn[:2]
        independent = self.target_start == "independent"
        target, target_prior = (drawn[2], drawn[3]) if independent else (online, None)
        ensemble = begun(online, target, target_prior)
        memory = replay.empty(spec.observation, self.replay_capacity, extra)
        head = jnp.int32(0)
        acting = _head((online, prior), head) if self.frozen_head else None
        return BootDQNState(ensemble, prior, memory, head, acting, network)

    def act(
        self, key: jax.Array, state: BootDQNState, observation: jax.Array
    ) -> tuple[jax.Array, BootDQNState]:
        acting = state.acting or _head((state.ensemble.online, state.prior), state.head)
        values, prior = (state.network.values_of(layers, observation) for layers in acting)
        values = values + self.prior_scale * prior
        epsilon = self._epsilon(state.replay.added, state.ensemble.updates)
        return epsilon_greedy(values, epsilon, sampling.uniforms(key)), state

    def _epsilon(self, steps: jax.Array, updates: jax.Array) -> jax.Array:
        """Return the probability of a random action after so many steps and updates."""
        step = updates + 1 if self.target_clock == "updates from 1" else steps
        decay = jnp.asarray(self.epsilon_decay, jnp.float32)
        decayed = decay / jnp.maximum(decay + step.astype(jnp.float32), 1e-30)
        return jnp.maximum(self.epsilon, decayed)

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def observe(self, key: jax.Array, state: BootDQNState, transition: Transition) -> BootDQNState:
        k, network = self.ensemble, state.network
        words = replay.random_words(key, self.batch_size + 2 * k + 1)
        uniforms = sampling.words_to_uniforms(words)
        chosen, masks, noises, heads = jnp.split(
            uniforms, (self.batch_size, self.batch_size + k, self.batch_size + 2 * k)
        )
        priors = [
            jax.vmap(network.values_of, (0, None))(state.prior, x).reshape(-1)
            for x in (transition.observation, transition.next_observation)
        ]
        mask = (masks < self.mask_probability).astype(jnp.float32)
        extra = jnp.concatenate([mask, sampling.standard_normal(noises), *priors])
        memory = replay.add(state.replay, transition, extra)
        batch = bootstrapped(replay.sample_by(memory, chosen), k, network.widths[-1])
        due = (memory.size >= self.min_replay) & (memory.added % self.sgd_period == 0)
        ensemble = update(self, network, state.ensemble, state.prior, batch, memory.added, due)
        ended = transition.terminated | transition.truncated
        head = jnp.where(ended, sampling.uniform_index(heads[0], k), state.head)
        acting = state.acting
        if acting is not None:
            fresh = _head((state.ensemble.online, state.prior), head)
            acting = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, acting)
        return BootDQNState(ensemble, state.prior, memory, head, acting, network)


def begun(online: Layers, target: Layers, target_prior: Layers | None) -> Ensemble:
    """Return an ensemble before its first update."""
    return Ensemble(online, target, target_prior, optax.adam(0.0).init(online), jnp.int32(0))


def _head(layers: Any, head: jax.Array) -> Any:
    """Return the layers of one head among those of all."""
    return jax.tree.map(lambda v: jax.lax.dynamic_index_in_dim(v, head, keepdims=False), layers)


def bootstrapped(batch: Batch, k: int, n_actions: int) -> Bootstrapped:
    """Return a batch with what was kept for K heads: mask, noise, and prior functions twice."""
    extra = batch.extra.T
    mask, noise, *priors = jnp.split(extra, (k, 2 * k, k * (2 + n_actions)))
    prior, next_prior = (v.reshape(k, n_actions, -1) for v in priors)
    return Bootstrapped(batch, mask, noise, prior, next_prior)


def update(
    agent: BootDQN,
    network: QNetwork,
    ensemble: Ensemble,
    prior: Layers,
    batch: Bootstrapped,
    step: jax.Array,
    due: jax.Array,
) -> Ensemble:
    """Take one step of Adam with each head if it is `due`, [] bool, and copy the networks to the
    targets if it is time.

    Args:
      prior: prior functions of the heads.
      step: [] int32, steps so far, the present one included.
    """

    def updated(now: Ensemble) -> Ensemble:
        operands = (now.online, now.target, now.target_prior, batch, agent)
        slopes = vectorize.compute_apart(functools.partial(_slopes, network), *operands)
        online, adam = adam_step(agent.learning_rate, slopes, now.adam, now.online)
        updates = now.updates + 1
        counts = {"updates": updates, "steps": step, "updates from 1": updates + 1}
        copies = counts[agent.target_clock] % agent.target_period == 0

        def copied(new: Layers, old: Layers) -> Layers:
            return jax.tree.map(lambda new, old: jnp.where(copies, new, old), new, old)

        target = copied(online, now.target)
        target_prior = None if now.target_prior is None else copied(prior, now.target_prior)
        return Ensemble(online, target, target_prior, adam, updates)

    return vectorize.updated_where(due, updated, ensemble)


def _slopes(
    network: QNetwork,
    online: Layers,
    target: Layers,
    target_prior: Layers | None,
    batch: Bootstrapped,
    agent: BootDQN,
) -> Layers:
    """Return the gradient of the losses of all heads with respect to `online`."""
    heads = jax.vmap(network.values, (0, None))
    kept, next_prior = batch.batch, batch.next_prior
    if target_prior is not None:
        next_prior = heads(target_prior, kept.next_observation)
    following = heads(target, kept.next_observation) + agent.prior_scale * next_prior
    goal = agent.discount * kept.goes_on[None] * following.max(1)
    goal = goal + kept.reward[None] + agent.noise_scale * batch.noise
    action = jax.vmap(taken, (0, None))
    prior = agent.prior_scale * action(batch.prior, kept.action)
    divisor = jnp.where(agent.mean_over_heads, online[0].shape[0], 1).astype(goal.dtype)

    def loss(layers: Layers) -> jax.Array:
        error = goal - prior - action(heads(layers, kept.observation), kept.action)
        return (batch.mask * error**2).mean(1).sum() / divisor

    return jax.grad(loss)(online)
