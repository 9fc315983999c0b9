"""Prior of an agent before it acts: a distribution over environments, the lifetime and the
criterion.
"""

from typing import Any

from jax import Array

from jbrl.base.pytree import record, static
from jbrl.environments.environment import Environment, Tabular, drawn
from jbrl.environments.spec import Discrete, Episodes, Lifetime, Spec, Steps
from jbrl.mdp.dirichlet import DirichletMDPs, draw_mdp


class Prior:
    """The contract. A pytree that JAX can trace; what is static is part of the compiled program.

    Attributes:
      discount: [] float32 in [0, 1), of the criterion; 1 where returns are not discounted.
    """

    discount: Array

    @property
    def spec(self) -> Spec:
        """Observations and actions of every environment that `sample` returns."""
        raise NotImplementedError

    @property
    def lifetime(self) -> Lifetime:
        """Lifetime of the agent in each environment."""
        raise NotImplementedError

    def sample(self, key: Array) -> Environment:
        """Draw one environment."""
        raise NotImplementedError


@record
class DirichletPrior(Prior):
    """A Dirichlet distribution over finite MDPs, and the criterion."""

    mdps: DirichletMDPs
    discount: Array  # [] float32 in [0, 1)
    horizon: int = static()  # decisions in a lifetime

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.mdps.n_states), Discrete(self.mdps.n_actions))

    @property
    def lifetime(self) -> Steps:
        return Steps(self.horizon)

    def sample(self, key: Array) -> Tabular:
        return Tabular.of(draw_mdp(key, self.mdps, unit=False))


class EpisodicPrior(Prior):
    """Prior of an agent that lives in one environment with episodes."""


@record
class EnvironmentPrior(EpisodicPrior):
    """An environment whose settings are known, its physics perturbed as `Perturbed` says."""

    environment: Any  # an `Environment`
    discount: Array  # [] float32
    # the default puts the field in the place of the contract's property
    lifetime: Lifetime = static(Episodes(100))

    @property
    def spec(self) -> Spec:
        return self.environment.spec

    def sample(self, key: Array) -> Environment:
        return drawn(self.environment, key)
