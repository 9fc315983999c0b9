"""Shortest paths: what an agent may believe of chains and gridworlds before its first step."""

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.problem import distribution, register_problem


@register_problem("ShortestPath", title="Shortest-path distribution", cite="bertsekas1991")
def shortest_path(n_states: int = 10, n_actions: int = 2) -> DirichletMDPs:
    """Shortest path: every step costs 1 until the last state is reached, which nothing leaves.

    From each other state and under each action, every state may follow; the concentrations of a row
    sum to 1, as if a single transition had been seen. States and actions are those of the
    `Chain` of as many states, or of the `Gridworld` of sqrt(n_states) cells along one side, so that
    it serves as `prior` where one of these is `test`. Bertsekas and Tsitsiklis 1991.
    """
    if n_states < 2:
        raise JbrlError(f"n_states = {n_states}: expected an integer from 2")
    if n_actions < 1:
        raise JbrlError(f"n_actions = {n_actions}: expected an integer from 1")
    goal = n_states - 1
    concentrations = np.full((n_states, n_actions, n_states), 1 / n_states)
    concentrations[goal] = np.arange(n_states) == goal
    rewards = np.full(concentrations.shape, -1.0)
    rewards[goal] = 0
    return distribution(concentrations, rewards)
