"""Dirichlet distributions over finite MDPs: chains, loops, grids, bandits, paths; and wrong priors
of any degree, what an agent is told where its MDPs come from another distribution.

`wrong(GC,kind="uniform",degree=0.5)` has the rewards of GC and other concentrations. At degree 0 it
is GC, bit for bit. Degrees need no powers or logarithms, so priors are the same on every processor.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from jbrl.base.errors import JbrlError, check_count, nearest, shown
from jbrl.mdp.dirichlet import GREATEST, SMALLEST, DirichletMDPs, distribution
from jbrl.problems.problem import DirichletProblem, Problem, register_derived, register_problem


@register_problem("GC", title="GChain distribution", cite="castronovo2016,dearden1998")
def chain(n_states: int = 5, n_actions: int = 3) -> DirichletMDPs:
    """Generalised Chain: each action advances one state or falls back to the start; 2 for falling
    back, 10 at the end.

    Castronovo et al. 2016, section 5.2.1, with the concentrations of the published program; after
    the chain of Dearden et al. 1998.
    """
    check_count("n_states", n_states, low=2)
    check_count("n_actions", n_actions)
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


@register_problem("GDL", title="GDouble-Loop distribution", cite="castronovo2016,dearden1998")
def double_loop(length: int = 4) -> DirichletMDPs:
    """Generalised Double Loop: one loop is certain and ends with 1, each step of the other may fall
    back and its end pays 2.

    Both loops have `length` states and cross in state 0. Castronovo et al. 2016, section 5.2.2,
    after Dearden et al. 1998.
    """
    check_count("length", length)
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


MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # left, right, up, down as (rows, columns)


@register_problem("Grid", title="Grid distribution", cite="castronovo2016,dearden1998")
def grid(rows: int = 5, columns: int = 5) -> DirichletMDPs:
    """Grid: left, right, up, down, each of which may fail; reaching the far corner pays 10 and
    returns to the start.

    State = columns * row + column. Nothing leads to the last state: a move that would enter it
    leads to the start. Castronovo et al. 2016, section 5.2.3, after the maze of Dearden et al.
    1998; the order of actions is that of the published program.
    """
    if rows < 1 or columns < 1 or rows + columns < 4:
        raise JbrlError(
            f"rows = {rows}, columns = {columns}: expected a cell between start and goal, as in 1 "
            "x 3 or 2 x 2"
        )
    n_states = rows * columns
    concentrations = np.zeros((n_states, len(MOVES), n_states))
    rewards = np.zeros_like(concentrations)
    for x in range(n_states):
        for u, (down, right) in enumerate(MOVES):
            row, column = x // columns + down, x % columns + right
            concentrations[x, u, x] = 1
            if not (0 <= row < rows and 0 <= column < columns):
                continue
            y = row * columns + column
            if y == n_states - 1:
                y, rewards[x, u, 0] = 0, 10
            concentrations[x, u, y] = 1
    return distribution(concentrations, rewards)


@register_problem("Bandit", title="Bandit", cite="gittins1979")
def bandit(arms: int = 2, prior: str = "1 1", states: int = 1) -> DirichletMDPs:
    """Bandit: in a state each action pulls an arm of it, which pays one of K rewards from 1 down
    to 0 in even steps.

    `prior` has the K concentrations of an arm, that of the reward 1 first: "1 2" is Beta(1, 2). Of
    arms that differ each has its own, "1 2; 3 1". Each outcome is a state of its own and leads on,
    so a pull takes two decisions; with several `states` it leads to the arms of the next one in
    turn. Gittins 1979.
    """
    check_count("arms", arms, low=2)
    check_count("states", states, high=4)
    weights = _concentrations(prior, arms)
    outcomes = weights.shape[1]
    concentrations = np.zeros((states * (outcomes + 1), arms, states * (outcomes + 1)))
    rewards = np.zeros_like(concentrations)
    for x in range(states):
        after = states + x * outcomes + np.arange(outcomes)
        concentrations[x][:, after] = weights
        rewards[x][:, after] = np.linspace(1, 0, outcomes)
        concentrations[after, :, (x + 1) % states] = 1
    return distribution(concentrations, rewards)


def _concentrations(prior: str, arms: int) -> np.ndarray:
    """Return what a text says of arms, [A, K].

    Raises:
      JbrlError: no numbers, not as many as arms and outcomes need, or one out of range.
    """
    accepted = (
        f"expected two to ten positive concentrations of outcomes ({SMALLEST:g} to {GREATEST:g}), "
        f'such as "1 1", for all arms, or for each of {arms} arms, separated by ";"'
    )
    try:
        rows = [[float(v) for v in row.replace(",", " ").split()] for row in prior.split(";")]
    except ValueError:
        rows = []
    same = {len(row) for row in rows}
    if len(rows) not in (1, arms) or len(same) != 1 or not 2 <= same.pop() <= 10:
        raise JbrlError(f"prior = {shown(prior)}: {accepted}")
    values = np.array(rows * (arms if len(rows) == 1 else 1))
    if not ((values >= SMALLEST) & (values <= GREATEST)).all():  # false where NaN
        raise JbrlError(f"prior = {shown(prior)}: {accepted}")
    return values


@register_problem("BernoulliBandit", title="Bernoulli bandit", cite="gittins1979")
def bernoulli_bandit(arms: int = 2, wins: int = 1, losses: int = 1) -> DirichletMDPs:
    """Bernoulli bandit: the `Bandit` whose arms win with a chance that has the prior Beta(wins,
    losses).
    """
    check_count("wins", wins)
    check_count("losses", losses)
    return bandit(arms, f"{wins} {losses}")


@register_problem("ShortestPath", title="Shortest-path distribution", cite="bertsekas1991")
def shortest_path(n_states: int = 10, n_actions: int = 2) -> DirichletMDPs:
    """Shortest path: every step costs 1 until the last state is reached, which nothing leaves.

    From each other state and under each action, every state may follow; the concentrations of a row
    sum to 1, as if a single transition had been seen. States and actions are those of the
    `Chain` of as many states, or of the `Gridworld` of sqrt(n_states) cells along one side, so that
    it serves as `prior` where one of these is `test`. Bertsekas and Tsitsiklis 1991.
    """
    check_count("n_states", n_states, low=2)
    check_count("n_actions", n_actions)
    goal = n_states - 1
    concentrations = np.full((n_states, n_actions, n_states), 1 / n_states)
    concentrations[goal] = np.arange(n_states) == goal
    rewards = np.full(concentrations.shape, -1.0)
    rewards[goal] = 0
    return distribution(concentrations, rewards)


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


def _register_uniform(name: str, of: str, make: Callable[..., DirichletMDPs]) -> None:
    @functools.wraps(make)
    def uniform_prior(**parameters: int) -> DirichletMDPs:
        return unknown(make(**parameters))

    uniform_prior.__doc__ = (
        f"Uniform prior with the rewards of {name[1:]}: nothing is known of the transitions.\n\n"
        "Castronovo et al. 2016, section 5.2."
    )
    title = f"Uniform {of} distribution"
    register_problem(name, title=title, cite="castronovo2016")(uniform_prior)


_register_uniform("UGC", "GChain", chain)
_register_uniform("UGDL", "GDouble-Loop", double_loop)
_register_uniform("UGrid", "Grid", grid)


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
