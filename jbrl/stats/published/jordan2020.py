"""Published numbers of Jordan et al. 2020 as tables: means of 165 cells (appendix I), aggregate
scores with intervals (table 1).

Algorithms and environments have the names that jbrl has for them. README.md says where the numbers
come from.
"""

from collections.abc import Iterable, Mapping

import pandas as pd

from jbrl.stats.published import read_table

TRIALS = 10_000  # of each cell
END = 30  # episodes after a lifetime, whose mean return the program records too
ROUNDING = 0.05  # half a unit of the last printed digit of a mean
LEVEL = 0.05  # probability that any interval of a table misses

# names in the published files: names here
ALGORITHMS: Mapping[str, str] = {
    "sarsa-normal": "Sarsa-lambda",
    "sarsa-scaled": "Sarsa-lambda-s",
    "sarsa-parl2": "Sarsa-Parl2",
    "qlambda-normal": "Q-lambda",
    "qlambda-scaled": "Q-lambda-s",
    "q-parl2": "Q-Parl2",
    "ac-normal": "AC",
    "ac-scaled": "AC-s",
    "ac-parl2": "AC-Parl2",
    "nactd": "NAC-TD",
    "ppo": "PPO-linear",
}
PROBLEMS: Mapping[str, str] = {
    "chain10d": "Chain-10d",
    "chain10s": "Chain-10s",
    "chain50d": "Chain-50d",
    "chain50s": "Chain-50s",
    "gw5d": "Gridworld-5d",
    "gw5s": "Gridworld-5s",
    "gw10d": "Gridworld-10d",
    "gw10s": "Gridworld-10s",
    "mountaincar": "MountainCar",
    "cartpole": "CartPole",
    "acrobot": "Acrobot",
    "pinball_empty": "Pinball-empty",
    "pinball_box": "Pinball-box",
    "pinball_medium": "Pinball-medium",
    "pinball_single": "Pinball-single",
}
DISCRETE = tuple(name for name in PROBLEMS.values() if name.startswith(("Chain", "Gridworld")))
# the same definition where states are discrete; the paper takes the same samples for both
SAME = (("Sarsa-lambda", "Sarsa-lambda-s"), ("Q-lambda", "Q-lambda-s"), ("AC", "AC-s"))


def episodes(problem: str) -> int:
    """Return the number of episodes of a lifetime."""
    return {"Acrobot": 500, "Pinball-single": 200}.get(problem, 100)


def cells() -> pd.DataFrame:
    """Return the 165 cells.

    Returns:
      Columns environment, algorithm; mean, lower and upper, rounded to one decimal; rank,
      rank_worst, rank_best.
    """
    found = _numbers(read_table("jordan2020_cells.csv"), ("environment", "algorithm"))
    order = {name: place for place, name in enumerate(PROBLEMS.values())}
    named = found.assign(
        environment=[PROBLEMS[name] for name in found["environment"]],
        algorithm=[ALGORITHMS[name] for name in found["algorithm"]],
    )
    return named.sort_values(
        "environment", key=lambda names: names.map(order), kind="stable", ignore_index=True
    )


def aggregate() -> pd.DataFrame:
    """Return the aggregate scores by each method, as released at full precision.

    Returns:
      Columns method, algorithm, score, lower, upper, rank_best, rank_worst, and printed, the score
      in table 1: that of Q-Parl2 is misprinted.
    """
    found = _numbers(read_table("jordan2020_aggregate.csv"), ("algorithm",))
    parts = [
        pd.DataFrame(
            {
                "method": method,
                "algorithm": [ALGORITHMS[name] for name in found["algorithm"]],
                "score": found["code_score"],
                "lower": found[f"code_{column}_lower"],
                "upper": found[f"code_{column}_upper"],
                "rank_best": found[f"code_{column}_rank_best"].astype(int),
                "rank_worst": found[f"code_{column}_rank_worst"].astype(int),
                "printed": found["score"],
            }
        )
        for method, column in (("pbp", "pbp"), ("pbp-t", "pbpt"), ("bootstrap", "bootstrap"))
    ]
    return pd.concat(parts, ignore_index=True)


def identical(environments: Iterable[str], algorithms: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (environment, algorithm, algorithm) of cells with the same definition, among those
    that are given.
    """
    known = set(algorithms)
    return [
        (environment, *pair)
        for environment in environments
        if environment in DISCRETE
        for pair in SAME
        if known.issuperset(pair)
    ]


def _numbers(table: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return a table of texts with numbers in all columns but `names`."""
    return table.assign(
        **{column: table[column].astype(float) for column in table if column not in names}
    )
