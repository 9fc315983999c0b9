"""Experiments of bsuite (Osband et al. 2020) that are not the default of an environment.

`deep_sea` needs no entry: `DeepSea(size=N)` names it, with 10,000 episodes.
"""

from jbrl.environments.deep_sea import DeepSea
from jbrl.errors import JbrlError
from jbrl.problems.problem import Setting, register_problem


@register_problem("DeepSea-stochastic", title="Deep sea, stochastic", cite="osband2020bsuite")
def deep_sea_stochastic(size: int = 10) -> Setting:
    """Deep sea of N x N cells in which moves to the right may fail, 10,000 episodes: `deep_sea_stochastic` of bsuite (Osband et al. 2020).

    Raises:
      JbrlError: `size` is not accepted.
    """
    if not 2 <= size <= 1000:
        raise JbrlError(f"size = {size}: expected an integer from 2 to 1000")
    return Setting(DeepSea(size, stochastic=True), DeepSea.lifetime)
