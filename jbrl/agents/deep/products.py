"""Matrix products of a few rows with large weights, as a network with memory needs them."""

import jax
import jax.numpy as jnp

# On CPUs, a product of at most so many rows with the transpose of weights of at least so many
# entries takes 3 to 12 times as long as one row after the other, and their outer products 2 to 7
# times as long as sums written out.
FEW_ROWS = 9
MANY_WEIGHTS = 128 * 128


def product(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """Return `rows @ weights`, [B, O] from [B, I] and [I, O], with a backward pass that suits few
    rows.
    """
    few = 1 < rows.shape[0] <= FEW_ROWS and weights.size >= MANY_WEIGHTS
    return _product(rows, weights) if few else rows @ weights


@jax.custom_vjp
def _product(rows: jax.Array, weights: jax.Array) -> jax.Array:
    return rows @ weights


def _forward(rows: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple]:
    return rows @ weights, (rows, weights)


def _backward(saved: tuple, slopes: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, weights = saved
    earlier = jnp.stack([weights @ slopes[b] for b in range(slopes.shape[0])])
    return earlier, outer(rows, slopes)


_product.defvjp(_forward, _backward)


def outer(rows: jax.Array, slopes: jax.Array) -> jax.Array:
    """Return `rows.T @ slopes`, [I, O] from [B, I] and [B, O]: the gradient of the weights of a
    layer.
    """
    few = rows.shape[0] <= FEW_ROWS and rows.shape[1] * slopes.shape[1] >= MANY_WEIGHTS
    if not few:
        return rows.T @ slopes
    return sum(
        (rows[b][:, None] * slopes[b][None] for b in range(1, rows.shape[0])),
        start=rows[0][:, None] * slopes[0][None],
    )
