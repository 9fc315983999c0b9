"""Numbers, times and names as people write them."""

import json
import math
import re
from collections.abc import Iterable, Sequence

import numpy as np

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
_GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eta": "η",
    "kappa": "κ",
    "mu": "μ",
    "rho": "ρ",
}
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_GREEK |= {"lambda": "λ", "sigma": "σ", "tau": "τ"}


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


def parameters_text(parameters: str, shown: Sequence[str] | None = None) -> str:
    """Write JSON text of parameters as `ε = 0.1, K = 500`; text that is no JSON object stays as it
    is.

    Args:
      shown: names to show; default: all but capacities that are left open.
    """
    try:
        values = json.loads(parameters)
    except ValueError:
        return str(parameters)
    if not isinstance(values, dict):
        return str(parameters)
    told = {
        name: v
        for name, v in values.items()
        if (not _left_open(name, v) if shown is None else name in shown)
    }
    return ", ".join(
        f"{symbol(name)} {'~' if isinstance(v, dict) else '='} {_value(v)}"
        for name, v in told.items()
    )


def _left_open(name: str, value: object) -> bool:
    """Return whether a parameter is a capacity that is left to the agent: it carries no information
    about the agent.
    """
    return name.startswith("max_") and value == 0


def varied(parameters: Iterable[str]) -> list[str] | None:
    """Return names of the parameters in which several agents of an algorithm differ; None (show
    all) when there is only one agent.
    """
    different = list(dict.fromkeys(parameters))
    try:
        tables = [json.loads(p) for p in different]
    except ValueError:
        return None
    if len(tables) < 2 or not all(isinstance(t, dict) for t in tables):
        return None
    names = dict.fromkeys(name for table in tables for name in table)
    return [name for name in names if len({json.dumps(table.get(name)) for table in tables}) > 1]


def symbol(name: str) -> str:
    """Return Greek letters where the name of a parameter is one: `epsilon` is `ε`, `epsilon0` and
    `epsilon_0` are `ε₀`.
    """
    parts = re.fullmatch(r"([a-z]+)_?(\d*)", name)
    if not parts or parts.group(1) not in _GREEK:
        return name
    return _GREEK[parts.group(1)] + parts.group(2).translate(_SUBSCRIPTS)


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


def _value(value: object) -> str:
    if isinstance(value, dict):  # a distribution
        return ", ".join(
            f"{kind}({', '.join(map(_value, values))})" for kind, values in value.items()
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
