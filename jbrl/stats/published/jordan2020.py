"""Published means of Jordan et al. 2020, 165 cells (appendix I), and a comparison of scores with
them.

Algorithms and environments have the names that jbrl has for them. README.md says where the numbers
come from.

The published means are rounded to one decimal and have no standard error. Under the hypothesis that
both come from one distribution, the standard error of the difference between a mean of n trials
here and one of 10,000 there is s √(1/n + 1/10,000), s being the standard deviation of the trials
here. The difference, less what rounding explains (0.05), is divided by it.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.published import read_table

TRIALS = 10_000  # of each cell
END = 30  # episodes after a lifetime, whose mean return the program records too
ROUNDING = 0.05  # half a unit of the last printed digit of a mean
FAR = 3.5  # standard errors from which on a cell differs
AGREES, DIFFERS, ABSENT, SINGLE = "agrees", "differs", "not played", "one trial"
CELLS = ("environment", "algorithm", "n", "mean", "error", "published", "difference", "z")
UNDEFINED = "undefined"  # of a trial: its agent has met NaN; of a cell: how many trials have
SHOWN = 10  # cells named in one line

_NAMES = read_table("jordan2020_names.csv")
# names in the published files: names here
ALGORITHMS, PROBLEMS = (
    dict(_NAMES.loc[_NAMES["kind"] == kind, ["published", "name"]].to_numpy().tolist())
    for kind in ("algorithm", "environment")
)
DISCRETE = tuple(name for name in PROBLEMS.values() if name.startswith(("Chain", "Gridworld")))


def episodes(problem: str) -> int:
    """Return the number of episodes of a lifetime."""
    return int(_NAMES.set_index("name")["episodes"][problem])


def cells() -> pd.DataFrame:
    """Return the 165 cells.

    Returns:
      Columns environment, algorithm; mean, lower and upper, rounded to one decimal; rank,
      rank_worst, rank_best.
    """
    table = numbers(read_table("jordan2020_cells.csv"), ("environment", "algorithm"))
    names = table["environment"].map(PROBLEMS), table["algorithm"].map(ALGORITHMS)
    place = names[0].map(list(PROBLEMS.values()).index)
    named = table.assign(environment=names[0], algorithm=names[1])
    return named.iloc[np.argsort(place, kind="stable")].reset_index(drop=True)


def numbers(table: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Return a table of texts with numbers in all columns but `names`."""
    return table.astype({column: float for column in table if column not in names})


def known(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a score table that belong to the comparison, under its names.

    Args:
      table: columns algorithm, environment, score; names of jbrl or of the published files.

    Raises:
      JbrlError: no row belongs to it.
    """
    who = table["algorithm"].map(lambda name: ALGORITHMS.get(name, name))
    where = table["environment"].map(lambda name: PROBLEMS.get(name, name))
    ours = who.isin(ALGORITHMS.values()) & where.isin(PROBLEMS.values())
    if not ours.any():
        raise JbrlError(
            "no score of one of the algorithms "
            f"{', '.join(ALGORITHMS.values())} on one of the environments "
            f"{', '.join(PROBLEMS.values())}"
        )
    return table.assign(algorithm=who, environment=where)[ours].reset_index(drop=True)


def compare_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Compare means with the 165 published ones.

    Args:
      table: of `known`; with a column `UNDEFINED` where agents have counted NaN, 1 or 0, or NaN for
        an agent that has not.

    Returns:
      Columns `CELLS` and verdict. `error` is the standard error of the difference, `z` the
      difference beyond rounding in such errors; both NaN for fewer than two trials. Before verdict
      `UNDEFINED` where `table` has it.
    """
    by = ["environment", "algorithm"]
    means = table.groupby(by, sort=False)["score"].agg(n="size", mean="mean", std="std")
    known = cells().rename(columns={"mean": "published"})
    known = known.merge(means.reset_index(), on=by, how="left")
    n = known["n"].to_numpy(float)
    error = known["std"].to_numpy() * np.sqrt(1 / n + 1 / TRIALS)
    difference = (known["mean"] - known["published"]).to_numpy()
    beyond = np.sign(difference) * np.maximum(np.abs(difference) - ROUNDING, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(beyond == 0, 0 * error, beyond / error)
    verdict = np.select(
        [np.isnan(n), n < 2, np.abs(z) <= FAR], [ABSENT, SINGLE, AGREES], default=DIFFERS
    )
    counted = _undefined(table, known)
    columns = {"error": error, "difference": difference, "z": z, **counted, "verdict": verdict}
    known = known.assign(n=np.nan_to_num(n).astype(int), **columns)
    return known[[*CELLS, *counted, "verdict"]]


def _undefined(table: pd.DataFrame, cells: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the column `UNDEFINED` of cells, where the table has it: NaN where it is not known."""
    if UNDEFINED not in table:
        return {}
    by = ["environment", "algorithm"]
    sums = table.groupby(by, sort=False)[UNDEFINED].sum(min_count=1)
    values = cells[by].join(sums, on=by)[UNDEFINED].where(cells["n"].notna(), 0.0).to_numpy()
    return {UNDEFINED: values if np.isnan(values).any() else values.astype(int)}


def in_words(cells: pd.DataFrame) -> str:
    """Return the outcome in words, a line for each part."""
    count = cells["verdict"].value_counts()
    z = cells.loc[cells["verdict"].isin((AGREES, DIFFERS)), "z"].to_numpy()
    lines = [
        f"{int(count.get(AGREES, 0))} of {len(cells)} cells within {FAR:g} standard errors of the "
        f"published mean, {int(count.get(DIFFERS, 0))} beyond, {int(count.get(ABSENT, 0))} not "
        "played"
    ]
    if len(z) and np.isfinite(z).all():
        root = np.sqrt(np.mean(z**2))
        lines.append(
            f"differences beyond rounding: {root:.2f} standard errors in the root mean square, at "
            f"most {np.abs(z).max():.2f}"
        )
    return "\n".join([*lines, *_undefined_words(cells)])


def _undefined_words(cells: pd.DataFrame) -> Iterator[str]:
    """Describe the trials in which agents have met NaN; nothing where there are none."""
    if UNDEFINED not in cells:
        return
    bad = cells[cells[UNDEFINED] > 0]
    if not len(bad):
        return
    columns = ("algorithm", "environment", UNDEFINED, "n")
    which = [
        f"{algorithm} on {environment} {count:,.0f} of {n:,}"
        for algorithm, environment, count, n in zip(*(bad[c] for c in columns), strict=True)
    ]
    more = f", and {len(which) - SHOWN} more cells" if len(which) > SHOWN else ""
    yield (
        f"{bad[UNDEFINED].sum():,.0f} of {cells['n'].sum():,} trials with NaN, as weights that "
        "overflow make it: updates were skipped or steps were undefined, and their scores count; "
        f"{', '.join(which[:SHOWN])}{more}"
    )
