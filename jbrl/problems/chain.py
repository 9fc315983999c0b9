"""Chains: advance to the end, or fall back to the start."""

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.problem import distribution, register_problem


@register_problem("GC", title="GChain distribution", cite="castronovo2016,dearden1998")
def chain(n_states: int = 5, n_actions: int = 3) -> DirichletMDPs:
    """Generalised Chain: each action advances one state or falls back to the start; 2 for falling
    back, 10 at the end.

    Castronovo et al. 2016, section 5.2.1, with the concentrations of the published program; after
    the chain of Dearden et al. 1998.
    """
    if n_states < 2:
        raise JbrlError(f"n_states = {n_states}: expected an integer from 2")
    if n_actions < 1:
        raise JbrlError(f"n_actions = {n_actions}: expected an integer from 1")
    last = n_states - 1
    concentrations = np.zeros((n_states, n_actions, n_states))
    concentrations[:, :, 0] = 1
    for x in range(n_states):
        concentrations[x, :, min(x + 1, last)] = 1
    rewards = np.zeros_like(concentrations)
    rewards[:, :, 0] = 2
    rewards[:, :, last] = 10
    return distribution(concentrations, rewards)


@register_problem(
    "GC-appendix", title="GChain distribution of the appendix", cite="castronovo2016,dearden1998"
)
def chain_of_appendix(n_states: int = 5, n_actions: int = 3) -> DirichletMDPs:
    """Generalised Chain as printed: the last state may also lead to the second one.

    Castronovo et al. 2016, S2 file. The published program, and the published scores, use GC.
    """
    mdps = chain(n_states, n_actions)
    concentrations = mdps.concentrations.copy()
    concentrations[-1, :, 1] = 1
    return distribution(concentrations, mdps.rewards)
