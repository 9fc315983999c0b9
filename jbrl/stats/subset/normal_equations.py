"""Least squares of many small systems at once, by unrolled LDL': no LAPACK.

Entries of a system are arrays of one shape, with one element for each system, so that every
operation runs over whole arrays. float64 within `jax.enable_x64`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

# a pivot below this share of its diagonal entry: the columns are taken for linearly dependent
SINGULAR = 1e-10
FLIPS = 200  # steps of the non-negative solver, far more than it takes
Entry = Callable[[int, int], jax.Array]
Lower = dict[tuple[int, int], jax.Array]


def solve(
    gram: Entry, size: int, non_negative: tuple[bool, ...]
) -> tuple[list[jax.Array], list[jax.Array], Lower, jax.Array]:
    """Solve least squares by the normal equations: coefficients, pivots and unit lower triangle of
    the LDL' form, and where it is singular.

    Where asked for, coefficients are at least 0.
    """
    rhs = [gram(i, size) for i in range(size)]
    b, pivots, lower, singular = _ldl(gram, rhs)
    if any(non_negative):
        b, stuck = _non_negative(gram, rhs, b, non_negative)
        singular = singular | stuck
    return b, pivots, lower, singular


def _ldl(
    gram: Entry, rhs: list[jax.Array]
) -> tuple[list[jax.Array], list[jax.Array], Lower, jax.Array]:
    size = len(rhs)
    scaled: Lower = {}  # L times D
    lower: Lower = {}
    pivots: list[jax.Array] = []
    singular = jnp.zeros(rhs[0].shape, bool)
    for k in range(size):
        for i in range(k, size):
            scaled[i, k] = gram(i, k) - sum(
                (lower[i, q] * scaled[k, q] for q in range(k)), jnp.zeros_like(rhs[0])
            )
        pivots.append(scaled[k, k])
        singular = singular | ~(pivots[k] > SINGULAR * gram(k, k))
        inverse = 1.0 / pivots[k]
        for i in range(k + 1, size):
            lower[i, k] = scaled[i, k] * inverse
    b: list[jax.Array] = []
    for i in range(size):
        b.append(rhs[i] - sum((lower[i, q] * b[q] for q in range(i)), jnp.zeros_like(rhs[0])))
    b = [b[i] / pivots[i] for i in range(size)]
    for i in reversed(range(size)):
        b[i] = b[i] - sum((lower[q, i] * b[q] for q in range(i + 1, size)), jnp.zeros_like(rhs[0]))
    return b, pivots, lower, singular


def _non_negative(
    gram: Entry, rhs: list[jax.Array], b: list[jax.Array], wanted: tuple[bool, ...]
) -> tuple[list[jax.Array], jax.Array]:
    """Return the best coefficients that are at least 0, from the free ones `b`; and where they were
    not found.

    Principal pivoting: of all columns whose coefficient is negative, or which are left out and
    would reduce the error, the last one changes sides, until there is none. Terminates for positive
    definite systems (Murty 1974).
    """
    size = len(rhs)

    def violated(b: list[jax.Array], inside: list[jax.Array]) -> list[jax.Array]:
        found = []
        for i in range(size):
            slope = sum((gram(i, j) * b[j] for j in range(size)), -rhs[i])
            outside = slope < -1e-12 * jnp.abs(rhs[i])
            found.append(
                jnp.where(inside[i], b[i] < 0, outside) if wanted[i] else jnp.zeros_like(inside[i])
            )
        return found

    def step(carry: tuple) -> tuple:
        n, b, inside, wrong = carry
        later = jnp.zeros_like(wrong[0])
        flipped = [inside[0]] * size
        for i in reversed(range(size)):
            flipped[i] = inside[i] ^ (wrong[i] & ~later)
            later = later | wrong[i]

        def face(i: int, j: int) -> jax.Array:
            return jnp.where(flipped[i] & flipped[j], gram(i, j), gram(i, i) if i == j else 0.0)

        b = _ldl(face, [jnp.where(flipped[i], rhs[i], 0.0) for i in range(size)])[0]
        b = [jnp.where(flipped[i], b[i], 0.0) for i in range(size)]
        return n + 1, b, flipped, violated(b, flipped)

    def unfinished(carry: tuple) -> jax.Array:
        n, _, _, wrong = carry
        return (n < FLIPS) & jnp.any(jnp.stack(wrong))

    everything = [jnp.ones(rhs[0].shape, bool)] * size
    start = (jnp.int32(0), b, everything, violated(b, everything))
    _, b, _, wrong = lax.while_loop(unfinished, step, start)
    return b, jnp.stack(wrong).any(0)
