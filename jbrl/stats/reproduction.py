r"""Comparison of a score table with the published results of Jordan et al. 2020.

*Cells.* The published means are rounded to one decimal and have no standard error. Under the
hypothesis that both come from one distribution, the standard error of the difference between a mean
of n trials here and one of 10,000 there is s √(1/n + 1/10,000), s being the standard deviation of
the trials here. The difference, less what rounding explains (0.05), is divided by it.

*Aggregate.* Scores, intervals and ranks by the same methods, on the environments that all
algorithms have played, beside the released ones.

*Moves.* The ranking again: with other probabilities of a miss, with fewer trials, and without each
environment. Scores depend on which environments and trials there are, intervals on delta too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation.ranking import Evaluation, Options, evaluate
from jbrl.stats.evaluation.samples import Samples, samples_of
from jbrl.stats.published import jordan2020

FAR = 3.5  # standard errors from which on a cell differs
AGREES, DIFFERS, ABSENT, SINGLE = "agrees", "differs", "not played", "one trial"
CELLS = ("environment", "algorithm", "n", "mean", "error", "published", "difference", "z")
UNDEFINED = "undefined"  # of a trial: its agent has met NaN; of a cell: how many trials have
AGGREGATE = (
    *("method", "algorithm", "score", "lower", "upper", "rank", "rank_best", "rank_worst"),
    *("published", "published_lower", "published_upper"),
    *("published_rank", "published_rank_best", "published_rank_worst"),
)
MOVES = (
    *("change", "value", "method", "algorithm"),
    *("score", "lower", "upper", "rank", "rank_best", "rank_worst"),
)
SHOWN = 10  # cells named in one line
DELTAS = (0.01, 0.05, 0.1, 0.2, 0.5)
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)  # of the trials of each cell, the first ones


def known(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a score table that belong to the comparison, under its names.

    Args:
      table: columns algorithm, environment, score; names of jbrl or of the published files.

    Raises:
      JbrlError: no row belongs to it.
    """
    who = table["algorithm"].map(lambda name: jordan2020.ALGORITHMS.get(name, name))
    where = table["environment"].map(lambda name: jordan2020.PROBLEMS.get(name, name))
    ours = who.isin(jordan2020.ALGORITHMS.values()) & where.isin(jordan2020.PROBLEMS.values())
    if not ours.any():
        raise JbrlError(
            "no score of one of the algorithms "
            f"{', '.join(jordan2020.ALGORITHMS.values())} on one of the environments "
            f"{', '.join(jordan2020.PROBLEMS.values())}"
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
    found = jordan2020.cells().rename(columns={"mean": "published"})
    found = found.merge(means.reset_index(), on=by, how="left")
    n = found["n"].to_numpy(float)
    error = found["std"].to_numpy() * np.sqrt(1 / n + 1 / jordan2020.TRIALS)
    difference = (found["mean"] - found["published"]).to_numpy()
    beyond = np.sign(difference) * np.maximum(np.abs(difference) - jordan2020.ROUNDING, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(beyond == 0, 0 * error, beyond / error)
    verdict = np.select(
        [np.isnan(n), n < 2, np.abs(z) <= FAR], [ABSENT, SINGLE, AGREES], default=DIFFERS
    )
    counted = _undefined(table, found)
    return found.assign(
        n=np.nan_to_num(n).astype(int),
        error=error,
        difference=difference,
        z=z,
        verdict=verdict,
        **counted,
    )[[*CELLS, *counted, "verdict"]]


def _undefined(table: pd.DataFrame, cells: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the column `UNDEFINED` of cells, where the table has it: NaN where it is not known."""
    if UNDEFINED not in table:
        return {}
    by = ["environment", "algorithm"]
    sums = table.groupby(by, sort=False)[UNDEFINED].sum(min_count=1)
    values = cells[by].join(sums, on=by)[UNDEFINED].where(cells["n"].notna(), 0.0).to_numpy()
    return {UNDEFINED: values if np.isnan(values).any() else values.astype(int)}


def shared_samples(table: pd.DataFrame) -> Samples | None:
    """Return the samples of all algorithms on the environments that all of them have played; None
    where that leaves fewer than two algorithms or no environment.

    Args:
      table: of `known`.
    """
    counts = table.groupby(["algorithm", "environment"], sort=False).size().unstack()
    complete = [name for name in jordan2020.PROBLEMS.values() if name in counts.dropna(axis=1)]
    if len(counts) < 2 or not complete:
        return None
    rows = table[table["environment"].isin(complete)]
    return samples_of(rows, identical=jordan2020.identical(complete, counts.index))


def compare_aggregate(found: Evaluation) -> pd.DataFrame:
    """Compare the aggregate scores of an evaluation with the released ones: columns `AGGREGATE`."""
    theirs = jordan2020.aggregate().drop(columns="printed")
    theirs["rank"] = theirs.groupby("method")["score"].rank(ascending=False).astype(int)
    names = {name: f"published_{name}" for name in theirs if name not in ("method", "algorithm")}
    names["score"] = "published"
    both = found.aggregate.merge(
        theirs.rename(columns=names), on=["method", "algorithm"], how="left"
    )
    return both[list(AGGREGATE)]


def moves(
    table: pd.DataFrame,
    methods: Sequence[str] = ("pbp", "pbp-t"),
    tell: Callable[[str, int, int], Any] | None = None,
) -> pd.DataFrame:
    """Return the ranking with other deltas, with fewer trials and without each environment.

    Args:
      table: of `known`.
      tell: called with what is being done, how much of it is done and how much there is.

    Returns:
      Columns `MOVES`. `change` is "delta", "trials" (the first so many of each cell; `value` is the
      largest number) or "without" (an environment). A change that leaves no environment, or too few
      trials for an interval, has no rows.

    Raises:
      JbrlError: fewer than two algorithms share an environment.
    """
    samples = shared_samples(table)
    if samples is None:
        raise JbrlError("no environment that two algorithms or more have played")
    cases = list(_changes(table, samples))
    parts = []
    for number, (change, value, changed, delta) in enumerate(cases):
        if tell:
            tell("rankings", number, len(cases))
        found = evaluate(changed, methods, Options(delta=delta)).aggregate
        parts.append(found.assign(change=change, value=value)[list(MOVES)])
    return pd.concat(parts, ignore_index=True)


def _changes(table: pd.DataFrame, samples: Samples) -> Iterator[tuple[str, Any, Samples, float]]:
    """Yield what is changed, its new value, the samples and delta."""
    delta = Options().delta
    for value in DELTAS:
        yield "delta", value, samples, value
    number = table.groupby(["algorithm", "environment"], sort=False).cumcount()
    size = table.groupby(["algorithm", "environment"], sort=False)["score"].transform("size")
    for share in SHARES:
        wanted = np.ceil(share * size)
        part = shared_samples(table[number < wanted]) if wanted.min() >= 2 else None
        if part is not None:
            yield "trials", int(wanted.max()), part, delta
    for name in samples.environments if len(samples.environments) > 1 else ():
        part = shared_samples(table[table["environment"] != name])
        if part is not None:
            yield "without", name, part, delta


def in_words(cells: pd.DataFrame, samples: Samples | None) -> str:
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
    lines += _undefined_words(cells)
    lines += _aggregate_words(samples)
    return "\n".join(lines)


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


def _aggregate_words(samples: Samples | None) -> Iterator[str]:
    """Describe what the aggregate is made of."""
    if samples is None:
        yield "no aggregate: no environment that two algorithms or more have played"
        return
    n, m = samples.shape
    full = (len(jordan2020.ALGORITHMS), len(jordan2020.PROBLEMS))
    if (n, m) != full:
        yield (
            f"aggregate of {n} algorithms on {m} environments; the published one is of {full[0]} "
            f"on {full[1]}, so scores are not comparable"
        )
    yield (
        "table 1 of the paper prints 0.4366 as the score of Q-Parl2, the files released with it "
        "have 0.4523, which is compared here"
    )
