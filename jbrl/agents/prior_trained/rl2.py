"""RL2: a network with memory, trained on the prior, that learns within a lifetime by its memory.

Any prior of the house will do for training. The memory goes on where an episode ends. Minibatches
are lifetimes, unrolled whole.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.deep.actor_critic import DIVERGED
from jbrl.agents.prior_trained import rounds, trained
from jbrl.agents.prior_trained.belief_policy import greatest_reward
from jbrl.agents.prior_trained.lifetimes import environment_lifetimes
from jbrl.agents.prior_trained.networks import Gru
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Box, Spec, Steps
from jbrl.mdp import sampling
from jbrl.problems.prior import DirichletPrior, Prior
from jbrl.rollout.contract import Agent, MadeOfWeights, Transition

UNDISCOUNTED = 0.99  # discount that stands in for 1
EPISODES_HORIZON = 256  # decisions of a lifetime of episodes, in training
TABLES = 5  # of [S, A, S], that an MDP takes as it is drawn and played
ORDINARY = 16  # power of two, up to which advantages are normalised as they are
PARAMETER_SECONDS = 2e-10  # of a decision in training, for each parameter and pass


@record
class Noticed:
    """The last action and its outcome, as an agent has noticed them."""

    action: Array  # [...] int32, -1 before the first
    reward: Array  # [...] float32
    ended: Array  # [...] bool, an episode has ended with it

    @classmethod
    def of(cls, transition: Transition) -> "Noticed":
        """Return what is noticed of transitions."""
        ended = transition.terminated | transition.truncated
        return cls(transition.action, transition.reward, ended)

    @classmethod
    def nothing(cls, *shape: int) -> "Noticed":
        """Return what is noticed before the first step."""
        zeros = jnp.zeros(shape)
        return cls(jnp.full(shape, -1, jnp.int32), zeros, jnp.zeros(shape, jnp.bool_))


def observed(spec: Spec) -> int:
    """Return the numbers that an observation consists of: indices are taken as one-hot vectors."""
    kind = spec.observation
    return math.prod(kind.shape) if isinstance(kind, Box) else kind.n


def input_size(spec: Spec) -> int:
    """Return I: an observation, the last action as a one-hot vector, the reward, the end."""
    return observed(spec) + spec.actions.n + 2


def inputs_of(
    sizes: tuple[int, int], observation: Array, noticed: Noticed, reward_scale: Array
) -> Array:
    """Return the inputs [I, W] from W observations along a last axis.

    Args:
      sizes: numbers of an observation, and actions.
      observation: [..., W] float32, or [W] int32.
    """
    width = max(observation.shape[-1], noticed.reward.shape[-1])
    if jnp.issubdtype(observation.dtype, jnp.floating):
        seen = observation.reshape(-1, observation.shape[-1])
    else:
        seen = _one_hot(observation, sizes[0])
    parts = (
        seen,
        _one_hot(noticed.action, sizes[1]),
        (noticed.reward * reward_scale)[None],
        noticed.ended.astype(jnp.float32)[None],
    )
    return jnp.concatenate([jnp.broadcast_to(v, (v.shape[0], width)) for v in parts])


def _one_hot(index: Array, n: int) -> Array:
    return (jnp.arange(n, dtype=jnp.int32)[:, None] == index[None]).astype(jnp.float32)


@record
class RL2State:
    """Memory of a lifetime."""

    memory: Array  # [units] float32
    noticed: Noticed


@record
class RecurrentPolicy(MadeOfWeights, Agent[Prior, RL2State]):
    """The action of greatest output of a network with memory; or one drawn from the softmax of its
    outputs.
    """

    parameters: Array  # [P] float32
    reward_scale: Array  # [] float32
    network: Gru = static()
    sample: bool = static(False)  # draw

    def reset(self, key: Array, knowledge: Prior) -> RL2State:
        return RL2State(jnp.zeros(self.network.units), Noticed.nothing())

    def act(self, key: Array, state: RL2State, observation: Array) -> tuple[Array, RL2State]:
        memory, values = advance_of(self.network)(
            self.parameters, self.reward_scale, state.memory, observation, state.noticed
        )
        if self.sample:
            action = selection.softmax_sample(values, sampling.uniforms(key)[0])
        else:
            action = selection.greatest(values)
        return action, RL2State(memory, state.noticed)

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def observe(self, key: Array, state: RL2State, transition: Transition) -> RL2State:
        return RL2State(state.memory, Noticed.of(transition))


@functools.cache
def advance_of(network: Gru) -> Callable[..., tuple[Array, Array]]:
    """Return the function of parameters [P], reward scale [], memory [units], an observation and
    what is noticed, that computes the next memory and the logits [A].
    """
    n_actions = network.outputs - 1
    sizes = (network.inputs - n_actions - 2, n_actions)

    @vectorize.over_lanes
    def advance(
        parameters: Array, reward_scale: Array, memory: Array, observation: Array, noticed: Noticed
    ) -> tuple[Array, Array]:
        layers = network.layers(parameters[:, 0])
        inputs = inputs_of(sizes, observation, noticed, reward_scale)
        state = network.advance(layers, memory, inputs)
        return state, network.read(layers, state)[:-1]

    return advance


@register_agent("RL2", cite="duan2016,schulman2017")
class RL2(rounds.PPOParameters, trained.TrainedOnPrior):
    """A network with memory, trained by PPO on lifetimes drawn from the prior.

    The network, gated recurrent units, sees the observation, the last action and its reward, and
    whether an episode has ended with it. No belief is handed to it, and no weight changes in a
    lifetime: what it learns there is in its memory, which goes on from one episode to the next.
    Duan et al. 2016; Wang et al. 2016. Works for every problem, perturbed environments too.

    One decision is one pass of the network: O(P) for P parameters.
    """

    units: int = parameter(32, "units of the memory", low=1, high=4096, static=True)
    batch: int = trained.batch_parameter(256, low=4)
    horizon: int = trained.horizon_parameter(", and 256 where there is none")
    epochs: int = parameter(2, "passes over a round", low=1, high=100, static=True)
    minibatches: int = parameter(
        8, "parts of a round, one step of Adam each", low=1, high=256, static=True
    )
    sample: bool = parameter(
        False, "play actions drawn from the policy, not the most probable", static=True
    )
    discount: float = parameter(
        0.0,
        "discount factor that it learns with; 0: the criterion's, and 0.99 where it has none",
        low=0,
        high=1,
    )
    learning_rate: float = parameter(3e-3, "step size of Adam, at the start", low=0, high=1e9)
    entropy_cost: float = parameter(
        0.01, "weight of the policy's entropy, at the start", low=0, high=1e6
    )

    version = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        width = min(trained.WIDTH, self.batch)
        if type(self.minibatches) is int and width % self.minibatches:
            raise JbrlError(
                f"minibatches = {self.minibatches}: expected a divisor of {width}, the lifetimes "
                "of a group"
            )

    def lesson(self, prior: Prior) -> trained.Lesson:
        criterion = float(prior.discount)
        discount = self.discount or (criterion if criterion < 1 else UNDISCOUNTED)
        network = self.network(prior)
        greatest = greatest_reward(prior) if isinstance(prior, DirichletPrior) else 1.0
        reward_scale = jnp.float32(1 / greatest)  # that rewards are multiplied with as inputs
        return trained.Lesson(
            remember_and_learn,
            (self.settings(prior, network, discount), (prior, reward_scale)),
            # or the network's first values would hide smaller rewards in the first returns
            lambda key: rounds.begin(network, key, unit=min(1.0, 1 / float(reward_scale))),
            {
                "reward_scale": np.array(reward_scale),
                "sizes": np.array([network.inputs, network.units, network.outputs]),
            },
        )

    def round_bytes(self, prior: Prior) -> int:
        unrolled = self.batch // self.minibatches * 8 * self.units
        steps = 2 * self.batch * (input_size(prior.spec) + 8) + unrolled
        numbers = prior.mdps.concentrations.size if isinstance(prior, DirichletPrior) else 0
        return 4 * (self.training_horizon(prior) * steps + TABLES * self.group_width() * numbers)

    def network(self, prior: Prior) -> Gru:
        return Gru(input_size(prior.spec), self.units, prior.spec.actions.n + 1)

    def training_horizon(self, prior: Prior) -> int:
        if isinstance(prior.lifetime, Steps):
            return super().training_horizon(prior)
        return self.horizon or EPISODES_HORIZON

    def trained(self, weights: dict[str, npt.NDArray[Any]]) -> Agent:
        network = Gru(*(int(v) for v in weights["sizes"]))
        arrays: Any = weights
        return RecurrentPolicy(arrays["parameters"], arrays["reward_scale"], network, self.sample)

    def decision_seconds(self, prior: Prior) -> float:
        return 5e-7 + PARAMETER_SECONDS * self.network(prior).parameters * (1 + self.epochs)


def remember_and_learn(
    arguments: tuple[rounds.Training, Array, Array, tuple[rounds.Settings, Any]],
) -> tuple[rounds.Training, Array]:
    """Return the state after one more round, and the mean and the standard deviation of the
    discounted returns up to H or, where returns are not discounted, of the mean return of an
    episode, [2].

    Args:
      arguments: as of `belief_ppo.play_and_learn`; beside the settings, prior and scale of rewards.
    """
    training, share, key, (settings, (prior, reward_scale)) = arguments
    agent = settings.agent

    def play(number: Array) -> tuple[rounds.Played, Array]:
        played = remember(settings, training.parameters, (prior, reward_scale), key, number)
        return played, scores(played, prior.discount)

    played, mean, spread = rounds.played_in_groups(settings, training, play)
    returns, values = rounds.each(
        lambda one: rounds.targets(settings, one, training.returns), played
    )
    level, deviation = rounds.moments(returns, jnp.float32(settings.lifetimes * settings.horizon))
    # without a reward, returns are sums of what the network says before it has learned
    rewarded = (played.rewards != 0).any()
    measured = rounds.scale_of(level, jnp.where(rewarded, deviation, 0.0), 1 / reward_scale)
    scale = jnp.where(training.round == 0, measured, training.returns)
    # far from 1 in units of a power of two, or squares leave the range of float32
    _, exponent = jnp.frexp(scale[1])
    shift = jnp.where(jnp.abs(exponent) > ORDINARY, -exponent, 0)
    advantages, fitted = rounds.each(
        lambda g, v: (jnp.ldexp(g - v, shift), (g - scale[0]) / scale[1]), returns, values
    )
    parts = rounds.Batch(
        played.inputs, played.actions, played.logs, rounds.normalised(advantages), fitted
    )
    size = settings.width // agent.minibatches
    n_steps = jnp.float32(settings.lifetimes // agent.minibatches * settings.horizon)

    def gradient(parameters: Array, number: Array) -> Array:
        def of_group(group: rounds.Batch) -> Array:
            part = rounds.Batch(
                *(lax.dynamic_slice_in_dim(v, number * size, size, v.ndim - 1) for v in group)
            )
            return jax.grad(lambda p: loss(settings.network, p, part, agent, share))(parameters)

        return rounds.total(of_group, parts) / n_steps

    order = jnp.tile(jnp.arange(agent.minibatches, dtype=jnp.int32), agent.epochs)
    rate, max_norm = agent.learning_rate * share, agent.max_gradient_norm
    state = rounds.learned(training, order, gradient, rate, max_norm, scale)
    return state, jnp.stack([mean, spread])


def remember(
    settings: rounds.Settings,
    parameters: Array,
    given: tuple[Prior, Array],
    key: Array,
    number: Array,
) -> rounds.Played:
    """Play the lifetimes of batch `number`, [] int32, by the stochastic policy."""
    (prior, reward_scale), network, width = given, settings.network, settings.width
    sizes, layers = (observed(prior.spec), prior.spec.actions.n), network.layers(parameters)

    def look(memory: Any, observation: Array) -> tuple[Any, Array, Array]:
        state, noticed = memory
        inputs = inputs_of(sizes, observation, noticed, reward_scale)
        state = network.advance(layers, state, inputs)
        return (state, noticed), inputs, network.read(layers, state)

    def notice(memory: Any, transition: Transition) -> Any:
        return memory[0], Noticed.of(transition)

    lifetimes = environment_lifetimes(prior, key, number, settings.horizon, width)
    return rounds.collect(lifetimes, (network.start(width), Noticed.nothing(width)), look, notice)


def unroll(network: Gru, parameters: Array, inputs: Array) -> Array:
    """Return the outputs [H, O, w] of sequences of inputs [H, I, w]."""
    layers = network.layers(parameters)

    def step(memory: Array, inputs: Array) -> tuple[Array, Array]:
        memory = network.advance(layers, memory, inputs)
        return memory, network.read(layers, memory)

    return lax.scan(step, network.start(inputs.shape[-1]), inputs)[1]


def loss(
    network: Gru,
    parameters: Array,
    part: rounds.Batch,
    agent: rounds.PPOParameters,
    share: Array | float = 1.0,
) -> Array:
    """Return `rounds.surrogate` summed over some lifetimes: []."""
    outputs = jnp.moveaxis(unroll(network, parameters, part.inputs), 1, 0)
    flat = rounds.Batch(part.inputs, *(v.reshape(-1) for v in part[1:]))
    return rounds.surrogate(outputs.reshape(outputs.shape[0], -1), flat, agent, share)


def scores(played: rounds.Played, discount: Array) -> Array:
    """Return the discounted return of each lifetime, [W]; where the discount is 1, the mean
    return of an episode, the last one included as far as it went.
    """
    weights = discount ** jnp.arange(played.rewards.shape[0], dtype=jnp.float32)
    returns = (played.rewards * weights[:, None]).sum(0)
    episodes = 1 + played.ended[:-1].sum(0).astype(jnp.float32)
    return jnp.where(discount < 1, returns, returns / episodes)
