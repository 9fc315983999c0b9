"""Flat Dirichlet-multinomial distributions over MDPs: priors, posteriors, test distributions.

Each row (state, action) of the transition tensor has an independent Dirichlet distribution; rewards
are known. Castronovo et al. 2016, section 2.2 and S1 appendix.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl import vectorize
from jbrl.base.errors import JbrlError, shown
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.mdp.mdp import MDP


@record
class DirichletMDPs:
    """A distribution over MDPs.

    A concentration of 0 makes a transition impossible: exactly 0 in every draw and in the mean.
    """

    concentrations: Array  # [S, A, S] float32, each row with at least one positive entry
    rewards: Array  # [S, A, S] float32
    initial_state: Array  # [] int32; -1: uniformly random

    @property
    def n_states(self) -> int:
        return int(self.concentrations.shape[-3])

    @property
    def n_actions(self) -> int:
        return int(self.concentrations.shape[-2])


def distribution(concentrations: Any, rewards: Any, initial_state: Any = 0) -> DirichletMDPs:
    """Make a distribution over MDPs from two arrays [S, A, S] of any kind, in NumPy's."""
    kinds = ((concentrations, np.float32), (rewards, np.float32), (initial_state, np.int32))
    arrays: list[Any] = [np.array(value, kind) for value, kind in kinds]
    return DirichletMDPs(*arrays)


def mean_transitions(concentrations: Array) -> Array:
    """Return the mean transition probabilities: [..., S] from concentrations [..., S]."""
    return concentrations / concentrations.sum(-1, keepdims=True)


def has_unit_concentrations(mdps: DirichletMDPs) -> bool:
    """Return whether all concentrations are 0 or 1, so that normalised exponentials are draws.

    On the host.
    """
    return bool(np.isin(np.asarray(mdps.concentrations), (0, 1)).all())


def draw_mdp(key: Array, mdps: DirichletMDPs, *, unit: bool) -> MDP:
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


# Wide limits within which float32 arithmetic neither overflows nor loses a concentration
# to underflow.
SMALLEST, GREATEST = 1e-30, 1e30


def check_mdps(
    mdps: DirichletMDPs, where: str, concentrations: str = "concentrations"
) -> DirichletMDPs:
    """Return the same distribution in NumPy arrays of the right types, read only.

    Args:
      where: place to name in messages.
      concentrations: name of the concentrations in that place.

    Raises:
      JbrlError: wrong shapes, a concentration that is negative, not finite or beyond 1e-30..1e30, a
        row without a positive concentration, a reward that is not finite or beyond 1e30, an initial
        state that does not exist.
    """
    if not isinstance(mdps, DirichletMDPs):
        raise JbrlError(f"{where}: {shown(mdps)}: expected DirichletMDPs")
    weights = _numbers(mdps.concentrations, where, concentrations)
    n_states = weights.shape[0]
    if weights.shape[2] != n_states:
        raise JbrlError(
            f"{where}: {concentrations} has shape {weights.shape}: expected (S, A, S), one entry "
            "for each next state"
        )
    rewards = _numbers(mdps.rewards, where, "rewards")
    if rewards.shape != weights.shape:
        raise JbrlError(
            f"{where}: rewards has shape {rewards.shape}: expected {weights.shape}, that of "
            f"{concentrations}"
        )
    used = _in_float32(weights)
    # false where NaN
    possible = (weights == 0) | ((used >= np.float32(SMALLEST)) & (used <= np.float32(GREATEST)))
    _refuse(
        ~possible,
        weights,
        f"{where}: {concentrations}",
        f"expected 0 or a positive number ({SMALLEST:g} to {GREATEST:g})",
    )
    finite = np.abs(_in_float32(rewards)) <= np.float32(GREATEST)
    _refuse(~finite, rewards, f"{where}: rewards", f"expected a finite number (up to {GREATEST:g})")
    empty = np.argwhere((weights == 0).all(-1))
    if len(empty):
        x, u = empty[0]
        raise JbrlError(
            f"{where}: {concentrations}[{x}][{u}] is all zeros: expected at least one possible "
            "next state"
        )
    first = np.asarray(mdps.initial_state)
    if first.dtype.kind not in "iu" or first.shape != () or not -1 <= first < n_states:
        raise JbrlError(
            f"{where}: initial_state = {first}: expected a state from 0 to {n_states - 1}, or -1 "
            "for one drawn uniformly"
        )
    checked = distribution(weights, rewards, first)
    for array in jax.tree.leaves(checked):
        array.setflags(write=False)
    return checked


def _numbers(values: object, where: str, field: str) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise JbrlError(f"{where}: {field} holds {array.dtype}: expected numbers")
    if array.ndim != 3 or 0 in array.shape:
        raise JbrlError(f"{where}: {field} has shape {array.shape}: expected (S, A, S)")
    return array.astype(np.float64)


def _in_float32(values: np.ndarray) -> np.ndarray:
    """Return numbers as they are used.

    The limits are rounded alike: that of 1e30 is the number of float32 next to it.
    """
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _refuse(wrong: np.ndarray, values: np.ndarray, where: str, accepted: str) -> None:
    places = np.argwhere(wrong)
    if len(places):
        x, u, y = places[0]
        raise JbrlError(f"{where}[{x}][{u}][{y}] = {values[x, u, y]:.9g}: {accepted}")


def add_count(counts: Array, row: Array, y: Array) -> tuple[Array, Array]:
    """Count one transition to `y`.

    Args:
      counts: [R, S] float32, one row for each pair of state and action.
      row: [] int32, number of the pair.
      y: [] int32.

    Returns: the new row, [S], and the table with it, [R, S].
    """
    seen = vectorize.get_row(counts, row) + (
        jnp.arange(counts.shape[1], dtype=jnp.int32) == y
    ).astype(counts.dtype)
    return seen, vectorize.set_row(counts, row, seen)


def count_transition(counts: Array, x: Array, u: Array, y: Array) -> Array:
    """Return `counts` [S, A, S] float32 with one transition more."""
    n_states, n_actions, _ = counts.shape
    _, table = add_count(counts.reshape(-1, n_states), x * n_actions + u, y)
    return table.reshape(counts.shape)
