"""A finite MDP as an environment: it never ends, and all its randomness is one uniform number
a step.
"""

from typing import ClassVar

import jax

from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step
from jbrl.environments.spec import Discrete, Lifetime, Spec, Steps
from jbrl.mdp import mdp as mdps
from jbrl.mdp import sampling
from jbrl.mdp.mdp import MDP


@record
class Tabular(Environment[jax.Array]):
    """One finite MDP. Its state is the observation."""

    lifetime: ClassVar[Lifetime] = Steps(250)

    mdp: MDP
    cdf: jax.Array  # [S, A, S] float32, cumulative transition probabilities

    @classmethod
    def of(cls, mdp: MDP) -> "Tabular":
        """Return the environment of an MDP."""
        return cls(mdp, sampling.cumulative(mdp.transitions))

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.mdp.n_states), Discrete(self.mdp.n_actions))

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = mdps.start(self.mdp.initial_state, self.mdp.n_states, sampling.uniforms(key)[0])
        return first, first

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, Step]:
        y, reward = mdps.step(self.cdf, self.mdp.rewards, state, action, sampling.uniforms(key)[0])
        never = y < 0
        return y, Step(y, reward, never, never)
