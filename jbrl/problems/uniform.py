"""Uniform priors: the rewards of a problem, without information about its transitions."""

import dataclasses

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.chain import chain
from jbrl.problems.double_loop import double_loop
from jbrl.problems.grid import grid
from jbrl.problems.problem import (
    DirichletProblem,
    Problem,
    distribution,
    register_derived,
    register_problem,
)


def unknown(mdps: DirichletMDPs) -> DirichletMDPs:
    """Make every transition possible and every row uniform: all concentrations 1."""
    return distribution(np.ones_like(mdps.concentrations), mdps.rewards, int(mdps.initial_state))


@register_derived("uniform")
def uniform(of: Problem) -> Problem:
    """Uniform prior of any problem: each transition counts as seen once, impossible ones too.

    Castronovo et al. 2016, section 5.2, the inaccurate case.

    Raises:
      JbrlError: the problem is not a distribution over finite MDPs.
    """
    if not isinstance(of, DirichletProblem):
        raise JbrlError(
            f"uniform({of.short_name}): expected a Dirichlet distribution over finite MDPs, for "
            "example uniform(GC)"
        )
    return dataclasses.replace(
        of,
        name=f"Uniform {of.name}",
        short_name=f"uniform({of.short_name})",
        mdps=unknown(of.mdps),
        description=(
            f"Uniform prior with the rewards of {of.short_name}: every transition is as likely as "
            "any other."
        ),
    )


@register_problem("UGC", title="Uniform GChain distribution", cite="castronovo2016")
def uniform_chain(n_states: int = 5, n_actions: int = 3) -> DirichletMDPs:
    """Uniform prior with the rewards of GC: nothing is known of the transitions.

    Castronovo et al. 2016, section 5.2.
    """
    return unknown(chain(n_states, n_actions))


@register_problem("UGDL", title="Uniform GDouble-Loop distribution", cite="castronovo2016")
def uniform_double_loop(length: int = 4) -> DirichletMDPs:
    """Uniform prior with the rewards of GDL: nothing is known of the transitions.

    Castronovo et al. 2016, section 5.2.
    """
    return unknown(double_loop(length))


@register_problem("UGrid", title="Uniform Grid distribution", cite="castronovo2016")
def uniform_grid(rows: int = 5, columns: int = 5) -> DirichletMDPs:
    """Uniform prior with the rewards of Grid: nothing is known of the transitions.

    Castronovo et al. 2016, section 5.2.
    """
    return unknown(grid(rows, columns))
