"""Bootstrapped DQN with randomised prior functions: an ensemble of Q-networks, one of which decides
in each episode.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jbrl.agents.deep import replay
from jbrl.agents.deep.dqn import Learner, ReplayLearner, begun, epsilon_greedy, updated
from jbrl.agents.deep.networks import Layers, QNetwork, taken
from jbrl.agents.deep.replay import Batch, Replay
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, select, static
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Cost, Transition


@record
class BootDQNState:
    # layers of all heads have an axis [K] in front; the target is that of the heads, and of the
    # prior functions where it was drawn independently, until the first copy, else None
    learner: Learner
    prior: Layers  # prior functions of all heads, which are not learned
    replay: Replay
    head: Array  # [] int32, the head that decides in this episode
    acting: tuple[Layers, Layers] | None  # its network and prior when the episode began, if frozen
    network: QNetwork = static()


@record
class Bootstrapped:
    """A batch, and what was drawn for each transition and head."""

    batch: Batch
    mask: Array  # [K, B] float32, 0 or 1: whether the head learns from the transition
    noise: Array  # [K, B] float32, standard normal, of the reward
    prior: Array  # [K, A, B] float32, prior functions at the observation
    next_prior: Array  # [K, A, B] float32, at the next one


@record
class Heads:
    """The first field of BootDQN: the random numbers of drawn parameters go by their places."""

    ensemble: int = parameter(20, "K, heads", low=1, high=1024, static=True)


@register_agent("BootDQN", cite="osband2016bootstrapped,osband2018prior,osband2020bsuite")
class BootDQN(ReplayLearner, Heads):
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

    batch_size: int = parameter(128, "transitions of an update", low=1, high=65_536, static=True)
    min_replay: int = parameter(
        128, "transitions that are kept before the first update", low=1, high=2**24
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

    def cost(self, prior: Prior) -> Cost:
        """See `ReplayLearner`."""
        return self._cost(prior, self.ensemble)

    def reset(self, key: Array, knowledge: Prior) -> BootDQNState:
        network = self._network(knowledge.spec)
        extra = self.ensemble * (2 + 2 * network.widths[-1])
        parameters = 6 * self.ensemble * network.parameters
        memory = self._empty_replay(knowledge.spec, parameters, extra)
        online, prior, *others = (
            jax.vmap(network.init)(jax.random.split(part, self.ensemble))
            for part in jax.random.split(key, 4)
        )
        target = tuple(others) if self.target_start == "independent" else (online, None)
        head = jnp.int32(0)
        acting = _head((online, prior), head) if self.frozen_head else None
        return BootDQNState(begun(online, target), prior, memory, head, acting, network)

    def act(
        self, key: Array, state: BootDQNState, observation: Array
    ) -> tuple[Array, BootDQNState]:
        acting = state.acting or _head((state.learner.online, state.prior), state.head)
        values, prior = (state.network.values_of(layers, observation) for layers in acting)
        values = values + self.prior_scale * prior
        epsilon = self._epsilon(state.replay.added, state.learner.updates)
        return epsilon_greedy(values, epsilon, sampling.uniforms(key)), state

    def _epsilon(self, steps: Array, updates: Array) -> Array:
        """Return the probability of a random action after so many steps and updates."""
        step = updates + 1 if self.target_clock == "updates from 1" else steps
        decay = jnp.asarray(self.epsilon_decay, jnp.float32)
        decayed = decay / jnp.maximum(decay + step.astype(jnp.float32), 1e-30)
        return jnp.maximum(self.epsilon, decayed)

    def observe(self, key: Array, state: BootDQNState, transition: Transition) -> BootDQNState:
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
        due = self._due(memory)
        learner = update(self, network, state.learner, state.prior, batch, memory.added, due)
        ended = transition.terminated | transition.truncated
        head = jnp.where(ended, sampling.uniform_index(heads[0], k), state.head)
        acting = state.acting
        if acting is not None:
            fresh = _head((state.learner.online, state.prior), head)
            acting = select(ended, fresh, acting)
        return BootDQNState(learner, state.prior, memory, head, acting, network)


def _head(layers: Any, head: Array) -> Any:
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
    learner: Learner,
    prior: Layers,
    batch: Bootstrapped,
    step: Array,
    due: Array,
) -> Learner:
    """Return `dqn.updated`: a step of Adam with each head.

    Args:
      prior: prior functions of the heads.
    """
    drawn_apart = learner.target[1] is not None
    slopes = functools.partial(_slopes, network)

    def source(online: Layers) -> tuple[Layers, Layers | None]:
        return online, prior if drawn_apart else None

    return updated(agent, learner, slopes, (batch,), step, due, source)


def _slopes(
    network: QNetwork,
    online: Layers,
    targets: tuple[Layers, Layers | None],
    batch: Bootstrapped,
    agent: BootDQN,
) -> Layers:
    """Return the gradient of the losses of all heads with respect to `online`."""
    heads = jax.vmap(network.values, (0, None))
    kept, next_prior, (target, target_prior) = batch.batch, batch.next_prior, targets
    if target_prior is not None:
        next_prior = heads(target_prior, kept.next_observation)
    following = heads(target, kept.next_observation) + agent.prior_scale * next_prior
    goal = agent.discount * kept.goes_on[None] * following.max(1)
    goal = goal + kept.reward[None] + agent.noise_scale * batch.noise
    action = jax.vmap(taken, (0, None))
    prior = agent.prior_scale * action(batch.prior, kept.action)
    divisor = jnp.where(agent.mean_over_heads, online[0].shape[0], 1).astype(goal.dtype)

    def loss(layers: Layers) -> Array:
        error = goal - prior - action(heads(layers, kept.observation), kept.action)
        return (batch.mask * error**2).mean(1).sum() / divisor

    return jax.grad(loss)(online)
