"""Wrong priors of any degree: what an agent is told where its MDPs come from another distribution.

`wrong(GC,kind="uniform",degree=0.5)` has the rewards of GC and other concentrations. At degree 0 it
is GC, bit for bit. Degrees need no powers or logarithms, so priors are the same on every processor.
"""

import dataclasses
import json
from numbers import Real
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.families import unknown
from jbrl.problems.problem import DirichletProblem, Problem, register_derived

KINDS = ("scaled", "uniform", "family", "support")
STEEPEST = 999  # degree of a scaled prior, on either side


@register_derived("wrong")
def wrong(
    of: Problem, kind: str = "uniform", degree: float = 0.0, towards: Problem | None = None
) -> Problem:
    """Wrong prior of any degree for a distribution over finite MDPs; at degree 0 it is the right
    one.

    `kind` is "scaled" (concentrations times 1 + degree, or divided by 1 - degree where degree is
    negative: too sure, or too unsure), "uniform" (a mixture of concentrations with those of the
    uniform prior, whose weight is degree), "family" (a mixture with those of the problem
    `towards`), or "support" (a share of the concentration of the last possible successor of each
    row, degree, goes to the first one: at 1 what is possible is held to be impossible).

    Raises:
      JbrlError: a problem that is not a distribution over finite MDPs; a kind, a degree or a family
        that is not accepted.
    """
    where = f"wrong({_named(of)})"
    if not isinstance(of, DirichletProblem):
        raise JbrlError(f"{where}: expected a Dirichlet distribution over finite MDPs, as GC is")
    if kind not in KINDS:
        raise JbrlError(f"{where}: kind = {shown(kind)}{nearest(kind, KINDS)}")
    low, high = (-STEEPEST, STEEPEST) if kind == "scaled" else (0, 1)
    if not isinstance(degree, Real) or not low <= degree <= high:
        raise JbrlError(
            f"{where}: degree = {shown(degree)}: expected a number from {low} to {high}"
        )
    degree = float(degree)
    right = np.asarray(of.mdps.concentrations, np.float64)
    if kind == "family":
        changed = _mixed(right, _family(towards, of, where), degree)
    elif towards is not None:
        given = _named(towards)
        raise JbrlError(f"{where}: towards = '{given}': expected none where kind is no family")
    elif kind == "uniform":
        changed = _mixed(right, np.asarray(unknown(of.mdps).concentrations), degree)
    elif kind == "scaled":
        changed = right * (1 + degree) if degree >= 0 else right / (1 - degree)
    else:
        changed = _without_last(right, degree)
    said = f"kind={json.dumps(kind)},degree={json.dumps(degree + 0.0).removesuffix('.0')}"
    if towards is not None:
        said += f",towards='{towards.short_name}'"
    return dataclasses.replace(
        of,
        name=f"Wrong {of.name}",
        short_name=f"wrong({of.short_name},{said})",
        mdps=distribution(changed, of.mdps.rewards, of.mdps.initial_state),
        description=f"Wrong prior for {of.short_name}: {kind}, of degree {degree:g}.",
    )


def _named(problem: Any) -> str:
    return shown(getattr(problem, "short_name", problem), str)


def _mixed(right: np.ndarray, other: np.ndarray, degree: float) -> np.ndarray:
    return (1 - degree) * right + degree * other


def _family(towards: Problem | None, of: DirichletProblem, where: str) -> np.ndarray:
    """Return the concentrations of the other family."""
    shape = of.mdps.concentrations.shape
    if not isinstance(towards, DirichletProblem) or towards.mdps.concentrations.shape != shape:
        spec = getattr(towards, "spec", "no problem")
        given = f"'{_named(towards)}' ({spec})" if towards else "missing"
        raise JbrlError(
            f"{where}: towards is {given}: expected a Dirichlet distribution over MDPs of "
            f"{shape[0]} states and {shape[1]} actions, in quotes"
        )
    return np.asarray(towards.mdps.concentrations, np.float64)


def _without_last(right: np.ndarray, degree: float) -> np.ndarray:
    """Move a share of the concentration of the last possible successor of each row to the first."""
    first = (right > 0).argmax(-1)
    last = right.shape[-1] - 1 - (right[..., ::-1] > 0).argmax(-1)
    row = tuple(np.indices(first.shape))
    moved = np.where(first < last, degree * right[*row, last], 0)
    changed = right.copy()
    changed[*row, last] -= moved
    changed[*row, first] += moved
    return changed
