"""Indexing and loops that stay fast when mapped over many MDPs.

Under `jax.vmap`, a scatter, a `while_loop` or a `cond` copies the whole carried state at each
iteration, and a sum over 5 or 25 states cannot use vector instructions. The functions here are
called for one MDP like any other; mapped, they run their own batching rule. Rules call the function
they belong to, so maps may be nested.

Three layers:

- `get_row`, `set_row`, `when_any`, `while_active`: written for one lane.
- `over_lanes`: a decorator for functions written on arrays whose *last* axis runs over lanes, so
  that every operation is a vector instruction across lanes. Called for one lane, such a function
  sees a last axis of length 1. Arrays common to all lanes keep length 1 when mapped: write
  operations that broadcast along the last axis. `while_active(..., lanes_last=True)` keeps what it
  carries in that order, so that nothing is transposed from one iteration to the next.
- `fold`, `pick`, `add_at`, `prevent_fusion`: for use inside such functions.
"""

from jbrl.vectorize.lanes import (
    add_at,
    at,
    compute_apart,
    fold,
    get_entry,
    get_row,
    get_rows,
    like,
    over_lanes,
    pick,
    prevent_fusion,
    prevent_fusion_index,
    set_at,
    set_entry,
    set_row,
)
from jbrl.vectorize.loops import (
    computed_if_any,
    computed_where,
    updated_where,
    when_any,
    while_active,
)

__all__ = [
    "add_at",
    "at",
    "compute_apart",
    "computed_if_any",
    "computed_where",
    "fold",
    "get_entry",
    "get_row",
    "get_rows",
    "like",
    "over_lanes",
    "pick",
    "prevent_fusion",
    "prevent_fusion_index",
    "set_at",
    "set_entry",
    "set_row",
    "updated_where",
    "when_any",
    "while_active",
]
