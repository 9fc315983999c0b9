"""RL2: a network with memory, trained on the prior, that learns within a lifetime by its memory."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.deep.actor_critic import DIVERGED
from jbrl.agents.prior_trained import prior_ppo, prior_recurrent
from jbrl.agents.prior_trained.belief_inputs import greatest_reward
from jbrl.agents.prior_trained.networks import Gru
from jbrl.agents.prior_trained.prior_recurrent import Noticed
from jbrl.agents.prior_trained.trained import (
    WIDTH,
    Lesson,
    TrainedOnPrior,
    batch_parameter,
    budget_parameter,
    check_batch,
    horizon_parameter,
    seconds_parameter,
    training_horizon,
)
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Steps
from jbrl.mdp import sampling
from jbrl.problems.prior import DirichletPrior, Prior
from jbrl.rollout.contract import Agent, MadeOfWeights, Transition

UNDISCOUNTED = 0.99  # discount that stands in for 1
EPISODES_HORIZON = 256  # decisions of a lifetime of episodes, in training
PARAMETER_SECONDS = 2e-10  # of a decision in training, for each parameter and pass


@record
class RL2State:
    """Memory of a lifetime."""

    memory: jax.Array  # [units] float32
    noticed: Noticed


@record
class RecurrentPolicy(MadeOfWeights, Agent[Prior, RL2State]):
    """The action of greatest output of a network with memory; or one drawn from the softmax of its
    outputs.
    """

    parameters: jax.Array  # [P] float32
    reward_scale: jax.Array  # [] float32
    network: Gru = static()
    sample: bool = static(False)  # draw

    def reset(self, key: jax.Array, knowledge: Prior) -> RL2State:
        return RL2State(jnp.zeros(self.network.units), prior_recurrent.nothing_noticed())

    def act(
        self, key: jax.Array, state: RL2State, observation: jax.Array
    ) -> tuple[jax.Array, RL2State]:
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

    def observe(self, key: jax.Array, state: RL2State, transition: Transition) -> RL2State:
        ended = transition.terminated | transition.truncated
        return RL2State(state.memory, Noticed(transition.action, transition.reward, ended))


@functools.cache
def advance_of(network: Gru) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return the function of parameters [P], reward scale [], memory [units], an observation and
    what is noticed, that computes the next memory and the logits [A].
    """
    n_actions = network.outputs - 1
    sizes = (network.inputs - n_actions - 2, n_actions)

    @vectorize.over_lanes
    def advance(
        parameters: jax.Array,
        reward_scale: jax.Array,
        memory: jax.Array,
        observation: jax.Array,
        noticed: Noticed,
    ) -> tuple[jax.Array, jax.Array]:
        layers = network.layers(parameters[:, 0])
        inputs = prior_recurrent.inputs_of(sizes, observation, noticed, reward_scale)
        state = network.advance(layers, memory, inputs)
        return state, network.read(layers, state)[:-1]

    return advance


@register_agent("RL2", cite="duan2016,schulman2017")
class RL2(TrainedOnPrior, Agent[None, None]):
    """A network with memory, trained by PPO on lifetimes drawn from the prior.

    The network, gated recurrent units, sees the observation, the last action and its reward, and
    whether an episode has ended with it. No belief is handed to it, and no weight changes in a
    lifetime: what it learns there is in its memory, which goes on from one episode to the next.
    Duan et al. 2016; Wang et al. 2016. Works for every problem, perturbed environments too.

    One decision is one pass of the network: O(P) for P parameters.
    """

    budget: int = budget_parameter(100_000)
    seconds: float = seconds_parameter()
    units: int = parameter(32, "units of the memory", low=1, high=4096, static=True)
    batch: int = batch_parameter(256, low=4)
    horizon: int = horizon_parameter(", and 256 where there is none")
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
    trace_decay: float = parameter(0.95, "lambda of the advantages", low=0, high=1)
    clip: float = parameter(
        0.2, "epsilon: the ratio of probabilities counts from 1 - clip to 1 + clip", low=0, high=1e6
    )
    value_cost: float = parameter(0.5, "weight of the squared error of the value", low=0, high=1e6)
    entropy_cost: float = parameter(
        0.01, "weight of the policy's entropy, at the start", low=0, high=1e6
    )
    max_gradient_norm: float = parameter(
        0.5, "length that longer gradients are scaled down to", low=0, high=1e9, open_low=True
    )

    def __post_init__(self) -> None:
        check_batch(self.batch)
        width = min(WIDTH, self.batch)
        if type(self.minibatches) is int and width % self.minibatches:
            raise JbrlError(
                f"minibatches = {self.minibatches}: expected a divisor of {width}, the lifetimes "
                "of a group"
            )

    def lesson(self, prior: Prior) -> Lesson:
        horizon, criterion = self._horizon(prior), float(prior.discount)
        discount = self.discount or (criterion if criterion < 1 else UNDISCOUNTED)
        spec, width = prior.spec, min(WIDTH, self.batch)
        size = prior_recurrent.input_size(spec)
        network = Gru(size, self.units, spec.actions.n + 1)
        settings = prior_recurrent.RecurrentSettings(
            jnp.float32(self.learning_rate),
            jnp.float32(discount),
            jnp.float32(self.trace_decay),
            jnp.float32(self.clip),
            jnp.float32(self.value_cost),
            jnp.float32(self.entropy_cost),
            jnp.float32(self.max_gradient_norm),
            jnp.float32(_reward_scale(prior)),
            network,
            width,
            self.batch // width,
            horizon,
            prior.lifetime == Steps(horizon),
            self.epochs,
            self.minibatches,
        )
        unrolled = self.batch // self.minibatches * 8 * self.units
        return Lesson(
            prior_recurrent.remember_and_learn,
            self.batch,
            4 * horizon * (2 * self.batch * (size + 8) + unrolled),
            network.parameters,
            (settings, prior),
            lambda key: prior_ppo.begin(network, key),
            {
                "reward_scale": np.array(_reward_scale(prior), np.float32),
                "sizes": np.array([network.inputs, network.units, network.outputs]),
            },
        )

    def _horizon(self, prior: Prior) -> int:
        if isinstance(prior.lifetime, Steps):
            return training_horizon(prior.lifetime.steps, float(prior.discount), self.horizon)
        return self.horizon or EPISODES_HORIZON

    def trained(self, weights: dict[str, np.ndarray]) -> Agent:
        inputs, units, outputs = (int(v) for v in weights["sizes"])
        scale: Any = weights["reward_scale"]
        return RecurrentPolicy(
            weights["parameters"], scale, Gru(inputs, units, outputs), self.sample
        )

    def search_seconds(self, prior: Prior) -> float:
        lesson = self.lesson(prior)
        rounds = math.ceil(self.budget / lesson.lifetimes)
        settings = lesson.settings[0]
        each = PARAMETER_SECONDS * settings.network.parameters * (1 + self.epochs)
        found = rounds * lesson.lifetimes * settings.horizon * (5e-7 + each)
        return min(found, self.seconds) if self.seconds else found


def _reward_scale(prior: Prior) -> float:
    """Return the factor that rewards are multiplied with as inputs: 1 over the greatest reward,
    where it is known.
    """
    if not isinstance(prior, DirichletPrior):
        return 1.0
    return 1 / greatest_reward(prior)
