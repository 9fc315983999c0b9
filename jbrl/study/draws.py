"""Values of parameters that each lifetime of a unit has drawn, found again from the seed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array

from jbrl.agents.complete import build
from jbrl.agents.registry import find_agent
from jbrl.base.errors import JbrlError
from jbrl.mdp.sampling import stream
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import DrawsParameters
from jbrl.study.storage.files import under

UNIT = ("experiment", "algorithm", "parameters", "seed")  # columns that name a unit
DRAWN = "drawn_"  # before the name of a parameter, in the metrics of a unit


def trials(
    manifest: dict[str, Any],
    returns: pd.DataFrame,
    metrics: Callable[[str], dict[str, np.ndarray]],
    place: str,
) -> pd.DataFrame:
    """Return the scores of algorithms that draw their parameters, with what each lifetime has
    drawn.

    Args:
      manifest: of the study (`Store.manifest`).
      returns: its score table, columns `UNIT`, unit and score.
      metrics: the metrics of a unit by its id, [n] by name. Where some are called `drawn_NAME`,
        they are what was drawn; elsewhere it is found again from the seed.
      place: to name in messages.

    Returns:
      Rows of `returns`, and one column for each parameter that is drawn, NaN where an algorithm has
      none of that name; `parameter_NAME` where `returns` has a column of that name.

    Raises:
      JbrlError: no algorithm draws a parameter, or one is not known here.
    """
    for table in manifest["agents"]:
        find_agent(table["algorithm"], Path.cwd())  # which registers those of other modules
    parts = []
    for unit in manifest["units"]:
        same = [unit[name] == returns[name] for name in UNIT]
        rows = returns[np.logical_and.reduce(same)]
        drawn = _drawn(unit, rows["unit"].to_numpy(), metrics, place) if len(rows) else {}
        if drawn:
            named = {f"parameter_{k}" if k in returns else k: v for k, v in drawn.items()}
            parts.append(rows.assign(**named))
    if not parts:
        raise JbrlError(
            f"{place}: no scores of an algorithm that draws its parameters: expected one such as "
            "epsilon = { uniform = [0, 1] }"
        )
    return pd.concat(parts, ignore_index=True)


def _drawn(
    unit: dict[str, Any],
    numbers: np.ndarray,
    metrics: Callable[[str], dict[str, np.ndarray]],
    place: str,
) -> dict[str, np.ndarray]:
    kept = {name: v[numbers] for name, v in under(DRAWN, metrics(unit["id"])).items()}
    decoded = unit | {"parameters": json.loads(unit["parameters"])}
    return kept or draws(decoded, numbers, place)


def draws(unit: dict[str, Any], numbers: np.ndarray, place: str) -> dict[str, np.ndarray]:
    """Draw the parameters of lifetimes anew, which depend on the seed and their number alone.

    Args:
      unit: a row of a manifest: `algorithm`, `parameters` (decoded), `test`, `seed`.
      numbers: [n] int, of lifetimes.
      place: to name in messages.

    Returns:
      [n] each, by parameter: numbers or Booleans as they were drawn; empty for an algorithm that
      draws none.

    Raises:
      JbrlError: the algorithm or the problem is not known here.
    """
    found = find_agent(unit["algorithm"], Path.cwd()).agent
    agent, _ = build(found, unit["parameters"], f"{place}: {unit['algorithm']}")
    if not isinstance(agent, DrawsParameters):
        return {}
    key = problem(unit["test"], Path.cwd()).key(unit["seed"])

    def values(number: Array) -> dict[str, Array]:
        return agent.values(stream(key, number, "parameters"))

    drawn = jax.jit(jax.vmap(values))(jnp.asarray(numbers, jnp.int32))
    return {name: np.asarray(column) for name, column in drawn.items()}
