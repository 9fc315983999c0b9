"""Single entries of flat arrays, read and written where they are.

Inside `native` code an array is updated in place on two conditions: it is indexed by these
functions (slices, not gathers and scatters), and within one iteration of a loop no read of the
array *before* an update feeds anything but that update. Loops that read and write the same array
therefore write first: they carry what the previous iteration wants written. Break the rule and the
results stay right, but the array is copied at each iteration.
"""

import jax
from jax import lax


def read(array: jax.Array, i: jax.Array) -> jax.Array:
    """Return array[i] of [N]; `i` must lie in range."""
    return read_row(array, i, 1)[0]


def read_row(array: jax.Array, i: jax.Array, length: int) -> jax.Array:
    """Return array[i : i + length] of [N]; must lie in range."""
    return lax.dynamic_slice(array, (i,), (length,), allow_negative_indices=False)


def write(array: jax.Array, i: jax.Array, value: jax.Array) -> jax.Array:
    """Return `array` [N] with entry `i`, which must lie in range, replaced by `value` []."""
    return write_row(array, i, value[None])


def write_row(array: jax.Array, i: jax.Array, values: jax.Array) -> jax.Array:
    """Return `array` [N] with entries i, i + 1, ..., which must lie in range, replaced by
    `values`.
    """
    return lax.dynamic_update_slice(array, values, (i,), allow_negative_indices=False)
