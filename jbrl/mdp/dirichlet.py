"""Flat Dirichlet-multinomial distributions over MDPs: priors, posteriors, test distributions.

Each row (state, action) of the transition tensor has an independent Dirichlet distribution; rewards
are known. Castronovo et al. 2016, section 2.2 and S1 appendix.
"""

import jax
import numpy as np

from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.mdp.mdp import MDP


@record
class DirichletMDPs:
    """A distribution over MDPs.

    A concentration of 0 makes a transition impossible: exactly 0 in every draw and in the mean.
    """

    concentrations: jax.Array  # [S, A, S] float32, each row with at least one positive entry
    rewards: jax.Array  # [S, A, S] float32
    initial_state: jax.Array  # [] int32; -1: uniformly random

    @property
    def n_states(self) -> int:
        return int(self.concentrations.shape[-3])

    @property
    def n_actions(self) -> int:
        return int(self.concentrations.shape[-2])


def mean_transitions(concentrations: jax.Array) -> jax.Array:
    """Return the mean transition probabilities: [..., S] from concentrations [..., S]."""
    return concentrations / concentrations.sum(-1, keepdims=True)


def has_unit_concentrations(mdps: DirichletMDPs) -> bool:
    """Return whether all concentrations are 0 or 1, so that normalised exponentials are draws.

    On the host.
    """
    return bool(np.isin(np.asarray(mdps.concentrations), (0, 1)).all())


def draw_mdp(key: jax.Array, mdps: DirichletMDPs, *, unit: bool) -> MDP:
    """Draw one MDP: each row an independent Dirichlet draw, transitions of concentration 0 exactly
    impossible.

    Args:
      unit: all concentrations are 0 or 1 (`has_unit_concentrations`): the fast way.
    """
    if unit:
        weights = mdps.concentrations * sampling.exponentials(key, mdps.concentrations.shape)
        rows = weights / weights.sum(-1, keepdims=True)
    else:
        rows = sampling.dirichlet(key, mdps.concentrations)
    return MDP(rows, mdps.rewards, mdps.initial_state)
