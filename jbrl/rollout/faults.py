"""Faults of a lifetime: codes that compiled code returns, and their messages."""

from typing import Any

import jax
import jax.numpy as jnp

from jbrl import vectorize

ILLEGAL_ACTION, BAD_REWARD, BAD_OBSERVATION, TWO_ENDS, NO_END = 1, 2, 3, 4, 5
NAN = 6  # in the first floating leaf of the states; NAN + i: in leaf number i


def nan_fault(states: Any, *, lanes_last: bool = False) -> jax.Array:
    """Return `NAN` + the number of the first floating leaf of `states` that holds NaN, 0 for none:
    [] int32.

    Infinities are no fault: agents use them as bounds and as values of excluded actions.

    Args:
      lanes_last: mapped, `states` come from a loop that keeps lanes on the last axis
        (`vectorize.while_active`): read them in that layout.
    """
    fault = jnp.int32(0)
    floating = [leaf for _, leaf in _floating_leaves(states)]
    for i, leaf in reversed(list(enumerate(floating))):
        found = _any_nan(leaf) if lanes_last else jnp.isnan(leaf).any()
        fault = jnp.where(found, NAN + i, fault)
    return fault


@vectorize.over_lanes
def _any_nan(leaf: jax.Array) -> jax.Array:
    """Return whether a leaf holds NaN: [N] bool from [..., N]."""
    return jnp.isnan(leaf.reshape(-1, leaf.shape[-1])).any(0)  # once in a lifetime: no `fold`


def nan_path(states: Any, fault: int) -> tuple[Any, ...]:
    """Return the path, as JAX has it, of the leaf that a fault of `nan_fault` means.

    Args:
      states: of the same structure and dtypes; arrays or `jax.ShapeDtypeStruct`.
    """
    return _floating_leaves(states)[fault - NAN][0]


def said_of_nan(path: tuple[Any, ...]) -> str:
    """Return the end of a sentence about a state with NaN in the leaf at `path`: empty where the
    state is one array.
    """
    field = jax.tree_util.keystr(path)
    return (
        f"NaN in {field} of its state: expected numbers or infinities"
        if field
        else "its state is NaN: expected numbers or infinities"
    )


def _floating_leaves(tree: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return paths and floating leaves of a pytree. Random keys are no floating leaves."""
    leaves = jax.tree.leaves_with_path(tree)
    return [(path, leaf) for path, leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
