"""Environments made of others: a finite MDP, and an environment with other rewards."""

import dataclasses
from typing import Any, ClassVar, Self

import jax
from jax import Array

from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Perturbed, Step, drawn
from jbrl.environments.spec import Discrete, Spec, Steps
from jbrl.mdp import mdp as mdps
from jbrl.mdp import sampling
from jbrl.mdp.mdp import MDP


@record
class Tabular(Environment[Array]):
    """One finite MDP. Its state is the observation."""

    lifetime = Steps(250)

    mdp: MDP
    cdf: Array  # [S, A, S] float32, cumulative transition probabilities

    @classmethod
    def of(cls, mdp: MDP) -> Self:
        """Return the environment of an MDP."""
        return cls(mdp, sampling.cumulative(mdp.transitions))

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.mdp.n_states), Discrete(self.mdp.n_actions))

    def reset(self, key: Array) -> tuple[Array, Array]:
        first = mdps.start(self.mdp.initial_state, self.mdp.n_states, sampling.uniforms(key)[0])
        return first, first

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Step]:
        y, reward = mdps.step(self.cdf, self.mdp.rewards, state, action, sampling.uniforms(key)[0])
        never = y < 0
        return y, Step(y, reward, never, never)


@record
class _Wrapper(Environment[Any], Perturbed):
    """An environment in which `reward` replaces each reward; all else, metrics included, is
    its own.
    """

    environment: Any  # an `Environment`

    @property
    def spec(self) -> Spec:
        return self.environment.spec

    @property
    def typical_steps(self) -> float:
        return self.environment.typical_steps

    def perturb(self, key: Array) -> Self:
        """Draw the wrapped environment, if it is `Perturbed`."""
        return dataclasses.replace(self, environment=drawn(self.environment, key))

    def reset(self, key: Array) -> tuple[Any, Any]:
        return self.environment.reset(key)

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, Step]:
        after, step = self.environment.step(key, state, action)
        return after, dataclasses.replace(step, reward=self.reward(key, step.reward))

    def reward(self, key: Array, reward: Array) -> Array:
        """Return the agent's reward, [] float32, for a reward of the environment."""
        raise NotImplementedError

    def metrics(self, state: Any) -> dict[str, Array]:
        return self.environment.metrics(state)


@record
class RewardNoise(_Wrapper):
    """Wrapper that adds `scale` times a standard normal number to each reward, those of 0 included.

    Metrics are those of the environment, without the noise. Source: google-deepmind/bsuite 0.3.6,
    `utils/wrappers.py`.
    """

    STREAM: ClassVar[int] = 2  # folded into the key of a step; the driver folds in 1 for a reset

    scale: float = parameter(1.0, "standard deviation of the noise", low=0, high=1e6)

    def reward(self, key: Array, reward: Array) -> Array:
        uniform = sampling.uniforms(jax.random.fold_in(key, self.STREAM))[0]
        return reward + self.scale * sampling.standard_normal(uniform)


@record
class RewardScale(_Wrapper):
    """Wrapper that multiplies each reward by `scale`.

    Metrics are those of the environment, not scaled. Source: google-deepmind/bsuite 0.3.6,
    `utils/wrappers.py`.
    """

    scale: float = parameter(1.0, "factor", low=-1e6, high=1e6)

    def reward(self, key: Array, reward: Array) -> Array:
        del key
        return reward * self.scale


def unwrapped(environment: Environment) -> Environment:
    """Return the environment inside all wrappers."""
    while isinstance(environment, _Wrapper):
        environment = environment.environment
    return environment
