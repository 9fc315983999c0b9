"""Names of agents and facts of experiments, from what a study has stored."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LETTERS = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "eta"),
    *("kappa", "lambda", "mu", "rho", "sigma", "tau"),
)
_GREEK = dict(zip(_LETTERS, "αβγδεηκλμρστ", strict=True))
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def oracles_of(manifest: Mapping[str, Any]) -> set[str]:
    """Return algorithms that see the environment itself, the true MDP."""
    units = manifest.get("units") or []
    return {*(manifest.get("oracles") or ()), *(u["algorithm"] for u in units if u.get("oracle"))}


def named_of(manifest: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return names of the parameters that a study sets, of each algorithm that it lists by name."""
    tables = manifest.get("agents") or []
    return {t["algorithm"]: [name for name in t if name != "algorithm"] for t in tables}


def lifetimes_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the lifetimes of experiments in words ("250 steps", "100 episodes"), by name, where
    they are known.
    """
    tables = manifest.get("experiments") or []
    return {table["name"]: table["lifetime"] for table in tables if "criterion" in table}


def agent_names(agents: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a name for each algorithm and its parameters.

    An algorithm with one setting of its parameters has its name; several settings have names that
    say in which parameters they differ: `e-Greedy(ε = 0.1; c = 2)`. Commas separate algorithms.
    """
    settings: dict[str, dict[str, None]] = {}
    for algorithm, parameters in agents:
        settings.setdefault(algorithm, {})[parameters] = None
    names = {}
    for algorithm, mine in settings.items():
        shown = varied(mine)
        for parameters in mine:
            text = parameters_text(parameters, shown).replace(", ", "; ") if len(mine) > 1 else ""
            names[algorithm, parameters] = f"{algorithm}({text})" if text else algorithm
    return names


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


def _value(value: object) -> str:
    if isinstance(value, dict):  # a distribution
        return ", ".join(
            f"{kind}({', '.join(map(_value, values))})" for kind, values in value.items()
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
