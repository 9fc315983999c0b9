"""The double loop: a safe loop with a small reward against a loop that pays twice as much when
every step succeeds.
"""

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.problem import distribution, register_problem


@register_problem("GDL", title="GDouble-Loop distribution", cite="castronovo2016,dearden1998")
def double_loop(length: int = 4) -> DirichletMDPs:
    """Generalised Double Loop: one loop is certain and ends with 1, each step of the other may fall
    back and its end pays 2.

    Both loops have `length` states and cross in state 0. Castronovo et al. 2016, section 5.2.2,
    after Dearden et al. 1998.
    """
    if length < 1:
        raise JbrlError(f"length = {length}: expected an integer from 1")
    certain, risky = np.arange(1, length + 1), np.arange(length + 1, 2 * length + 1)
    concentrations = np.zeros((2 * length + 1, 2, 2 * length + 1))
    concentrations[0, :, [certain[0], risky[0]]] = 1
    concentrations[certain, :, np.append(certain[1:], 0)] = 1
    concentrations[risky, :, 0] = 1
    concentrations[risky[:-1], :, risky[1:]] = 1
    rewards = np.zeros_like(concentrations)
    rewards[certain[-1], :, 0] = 1
    rewards[risky[-1], :, 0] = 2
    return distribution(concentrations, rewards)
