"""Numbers, times and names as people write them."""

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

from jbrl.stats.labels import parameters_text as parameters_text
from jbrl.stats.labels import symbol as symbol
from jbrl.stats.labels import varied as varied

ABSENT = "–"
_UNITS = (
    (1e-9, "ns"),
    (1e-6, "µs"),
    (1e-3, "ms"),
    (1.0, "s"),
    (60.0, "min"),
    (3600.0, "h"),
    (86400.0, "d"),
)


def seconds_text(seconds: float) -> str:
    """Return a duration in the largest unit that keeps it at 1 or above, two significant digits,
    since more do not repeat: `0.000000412` is `410 ns`.
    """
    if seconds is None or math.isnan(seconds):
        return ABSENT
    if seconds == 0:
        return "0 s"
    for (size, unit), (following, _) in zip(_UNITS, (*_UNITS[1:], (math.inf, "")), strict=True):
        value = float(f"{seconds / size:.2g}")
        if value * size < following * (1 - 1e-9):
            return f"{value:g} {unit}"
    return f"{seconds:g} s"


def decimals_for(widths: Iterable[float]) -> int:
    """Return digits after the point that show two significant digits of a typical half-width, three
    from 1 to 10 (as in the paper); up to 6.
    """
    known = [w for w in widths if w is not None and math.isfinite(w) and w > 0]
    if not known:
        return 2
    exponent = math.floor(math.log10(float(np.median(known))))
    return 2 if exponent == 0 else min(6, max(0, 1 - exponent))


def score_text(mean: float, ci95: float, decimals: int) -> str:
    """Write `42.47 ± 1.91`; without interval when there is none (one MDP), a dash when there is no
    mean.
    """
    if mean is None or not math.isfinite(mean):
        return ABSENT
    value = f"{mean:.{decimals}f}".replace("-", "−")
    return value if ci95 is None or not math.isfinite(ci95) else f"{value} ± {ci95:.{decimals}f}"


def slug(name: str, taken: Iterable[str] = ()) -> str:
    """Write `name` in letters, digits and hyphens, different from all in `taken`: fit for an HTML
    id and a file name.
    """
    base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x"
    taken, found, count = set(taken), base, 2
    while found in taken:
        found, count = f"{base}-{count}", count + 1
    return found


def listing(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def count(n: int, noun: str) -> str:
    """Count in words: `1 agent`, `2,000 agents`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
