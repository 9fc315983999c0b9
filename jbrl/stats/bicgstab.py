"""Linear systems whose matrix is known by its products alone."""

from collections.abc import Callable

import numpy as np

ITERATIONS = 300  # at most; some 15 are usual
Apply = Callable[[np.ndarray], np.ndarray]


def bicgstab(
    apply: Apply, scale: Apply, b: np.ndarray, x: np.ndarray, order: float, target: float
) -> np.ndarray:
    """Solve `apply`(x) = b by BiCGSTAB, preconditioned from the right, from x on; return the best
    x.

    Unlike SciPy's it measures the residual in the norm of any order, and sums products without
    BLAS, whose threads wait for each other when problems are solved side by side.

    Source: van der Vorst 1992, Bi-CGSTAB, SIAM Journal on Scientific and Statistical Computing 13.
    """
    r = b - apply(x)
    shadow, p, v = r.copy(), np.zeros_like(b), np.zeros_like(b)
    rho = alpha = omega = 1.0
    best, least = x, float(np.linalg.norm(r, order))
    for _ in range(ITERATIONS):
        if not least > target:
            break
        before, rho = rho, _dot(shadow, r)
        if rho == 0 or omega == 0:
            break
        p = r + (rho / before) * (alpha / omega) * (p - omega * v)
        step = scale(p)
        v = apply(step)
        along = _dot(shadow, v)
        if along == 0:
            break
        alpha = rho / along
        half = r - alpha * v
        other = scale(half)
        t = apply(other)
        square = _dot(t, t)
        omega = _dot(t, half) / square if square else 0.0
        x = x + alpha * step + omega * other
        r = half - omega * t
        size = float(np.linalg.norm(r, order))
        if not np.isfinite(size):
            break
        if size < least:
            best, least = x, size
    return best


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum())
