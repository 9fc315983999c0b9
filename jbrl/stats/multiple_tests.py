"""Several tests at once: the hypotheses rejected when the chance of any error is bounded."""

from collections.abc import Sequence
from typing import Literal

Correction = Literal["none", "holm"]


def rejected(
    p_values: Sequence[float], alpha: float, correction: Correction = "none"
) -> list[bool]:
    """Return the hypotheses rejected at level `alpha`: each by itself, or in Holm's order, from the
    least p-value to the first that is not rejected.
    """
    if correction == "none":
        return [p <= alpha for p in p_values]
    result, standing = [False] * len(p_values), False
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        standing = standing or p_values[index] > alpha / (len(p_values) - place)
        result[index] = not standing
    return result
