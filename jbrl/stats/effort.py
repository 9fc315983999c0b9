"""Time and memory of an evaluation, known before it starts.

The constants are rounded up from `benchmarks/evaluation.py` on two cores of 2024.
"""

import dataclasses
import math
import os
from collections.abc import Sequence

from jbrl.base.errors import JbrlError

GREATEST = 6e9  # bytes that an evaluation may take
PRODUCT = 3e-6  # seconds of one core for each joint strategy, level of the lists, and end
RATE = 2.5e-8  # seconds of a resample for each rate of its game
DRAW = 4e-8  # and for each score drawn
ENTRY = 40  # bytes for each joint strategy and level of the lists
DENSE = 3 * 8  # bytes for each rate of a resampled game
TABLE = 6 * 8  # bytes for each algorithm and distinct score of one environment


@dataclasses.dataclass(frozen=True)
class Effort:
    """The cost of a method, estimated."""

    method: str
    seconds: float
    bytes: float


def workers(n: int, m: int) -> int:
    """Return the number of threads that bounds are propagated in: one for each core, fewer where
    memory is short.
    """
    return max(1, min(os.cpu_count() or 1, 8, int(GREATEST / 2 / _lists(n, m))))


def effort(
    n: int, m: int, scores: int, methods: Sequence[str], resamples: int = 10_000
) -> list[Effort]:
    """Estimate the cost of each method for n algorithms on m environments with so many scores in
    all.
    """
    cores = os.cpu_count() or 1
    found = []
    for method in methods:
        if method == "bootstrap":
            each = RATE * n * (n * m) ** 2 + DRAW * scores
            found.append(Effort(method, resamples * each / cores, cores * DENSE * n * (n * m) ** 2))
        else:
            joint, levels = n * n * m, math.log2(n * m + 1)
            used = workers(n, m)
            seconds = PRODUCT * 2 * n * joint * levels / used
            found.append(Effort(method, seconds, used * _lists(n, m)))
    return found


def check_effort(costs: Sequence[Effort], n: int, m: int, minutes: float) -> None:
    """Refuse what takes too much memory or time.

    Raises:
      JbrlError: a method takes more than `GREATEST` bytes or `minutes`.
    """
    for cost in costs:
        if cost.bytes > GREATEST:
            raise JbrlError(
                f"{cost.method}: {n:,} algorithms on {m:,} environments need about "
                f"{cost.bytes / 1e9:,.0f} GB: expected at most {GREATEST / 1e9:.0f} GB; leave some "
                "out with --algorithms or --environments, or take another --method"
            )
        if cost.seconds > 60 * minutes:
            raise JbrlError(
                f"{cost.method}: {n:,} algorithms on {m:,} environments take about "
                f"{cost.seconds / 60:,.0f} minutes: expected at most {minutes:g}; leave some out, "
                "take another --method or fewer --resamples, or raise --minutes"
            )


def check_table(n: int, distinct: int, environment: str) -> None:
    """Refuse an environment whose distribution functions do not fit into memory.

    Raises:
      JbrlError: n algorithms with so many distinct scores take more than `GREATEST` bytes.
    """
    needed = TABLE * n * distinct
    if needed > GREATEST:
        raise JbrlError(
            f"score table: {n:,} algorithms with {distinct:,} different scores on environment "
            f"'{environment}' need about {needed / 1e9:,.0f} GB: expected at most "
            f"{GREATEST / 1e9:.0f} GB; leave some algorithms out with --algorithms"
        )


def _lists(n: int, m: int) -> float:
    """Return bytes of the lists of one policy at worst: two quadrants of each player."""
    return ENTRY * n * n * m * 2 * (math.log2(n) + math.log2(n * m) + 2)
