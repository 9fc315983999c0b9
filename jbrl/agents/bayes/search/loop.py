"""One loop for a search alone and for many in lockstep."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap


def repeat(active: Callable[[Any, Any], chex.Array], body: Callable[[Any, Any], Any], carry: Any, consts: Any) -> Any:
    """`carry = body(carry, consts)` while `active(carry, consts)`, [] bool.

    Mapped, the loop goes on while any lane is active. The numbers (arrays of no dimension) of a lane that is not active stay as they are;
    its arrays are not kept by copying them: `body` must not write what matters to them. Alone, this is a plain `while_loop`.

    Args:
      active, body: must not close over traced arrays: hand those in as `consts`.
    """

    def keep_numbers(carry: Any, consts: Any) -> Any:
        live, new = active(carry, consts), body(carry, consts)
        return jax.tree.map(lambda n, o: jnp.where(live, n, o) if n.ndim == 0 else n, new, carry)

    @custom_vmap
    def loop(carry: Any, consts: Any) -> Any:
        return lax.while_loop(lambda c: active(c, consts), lambda c: body(c, consts), carry)

    @loop.def_vmap
    def _(size: int, batched: list, carry: Any, consts: Any) -> tuple:
        carry = jax.tree.map(lambda v, b: v if b else jnp.broadcast_to(v, (size, *v.shape)), carry, batched[0])
        axes = (0, jax.tree.map(lambda b: 0 if b else None, batched[1]))
        lanes_active = jax.vmap(active, in_axes=axes, axis_size=size)
        lanes_body = jax.vmap(keep_numbers, in_axes=axes, axis_size=size)
        done = lax.while_loop(lambda c: lanes_active(c, consts).any(), lambda c: lanes_body(c, consts), carry)
        return done, jax.tree.map(lambda _: True, done)

    return loop(carry, consts)
