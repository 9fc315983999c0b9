"""Dirichlet distributions over finite MDPs: chains, loops, grids, bandits, paths."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from jbrl.base.errors import JbrlError, shown
from jbrl.environments.spec import check_count
from jbrl.mdp.dirichlet import DirichletMDPs, distribution
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
      JbrlError: no numbers, or not as many as arms and outcomes need.
    """
    accepted = (
        'expected two to ten positive concentrations of outcomes, such as "1 1", for all arms, or '
        f'for each of {arms} arms, separated by ";"'
    )
    try:
        rows = [[float(v) for v in row.replace(",", " ").split()] for row in prior.split(";")]
    except ValueError:
        rows = []
    same = {len(row) for row in rows}
    if len(rows) not in (1, arms) or len(same) != 1 or not 2 <= same.pop() <= 10:
        raise JbrlError(f"prior = {shown(prior)}: {accepted}")
    values = np.array(rows * (arms if len(rows) == 1 else 1))
    if not (np.isfinite(values) & (values > 0)).all():
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
