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

from jbrl.vectorize.lanes import add_at as add_at
from jbrl.vectorize.lanes import at as at
from jbrl.vectorize.lanes import compute_apart as compute_apart
from jbrl.vectorize.lanes import fold as fold
from jbrl.vectorize.lanes import get_entry as get_entry
from jbrl.vectorize.lanes import get_row as get_row
from jbrl.vectorize.lanes import get_rows as get_rows
from jbrl.vectorize.lanes import is_passed_over as is_passed_over
from jbrl.vectorize.lanes import like as like
from jbrl.vectorize.lanes import over_lanes as over_lanes
from jbrl.vectorize.lanes import pick as pick
from jbrl.vectorize.lanes import prevent_fusion as prevent_fusion
from jbrl.vectorize.lanes import prevent_fusion_index as prevent_fusion_index
from jbrl.vectorize.lanes import set_at as set_at
from jbrl.vectorize.lanes import set_entry as set_entry
from jbrl.vectorize.lanes import set_row as set_row
from jbrl.vectorize.loops import computed_if_any as computed_if_any
from jbrl.vectorize.loops import computed_where as computed_where
from jbrl.vectorize.loops import updated_where as updated_where
from jbrl.vectorize.loops import when_any as when_any
from jbrl.vectorize.loops import while_active as while_active
