"""The ranking of Jordan et al. 2020 anew: aggregate scores beside the released ones, and the
ranking with other probabilities of a miss, fewer trials, and without each environment.

python experiments/jordan_ranking.py SOURCE [--resamples R] [--out DIR]

SOURCE is what `jbrl compare SOURCE --to jordan2020` takes. Scores, intervals and ranks are of the
environments that all algorithms have played, by the same methods as the released ones. Scores
depend on which environments and trials there are, intervals on delta too.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.base.errors import JbrlError  # noqa: E402
from jbrl.comparison import jordan2020_scores  # noqa: E402
from jbrl.stats.evaluation import Options  # noqa: E402
from jbrl.stats.evaluation.ranking import Evaluation, evaluate  # noqa: E402
from jbrl.stats.evaluation.samples import Samples, samples_of  # noqa: E402
from jbrl.stats.published import jordan2020, read_table  # noqa: E402

AGGREGATE = (
    *("method", "algorithm", "score", "lower", "upper", "rank", "rank_best", "rank_worst"),
    *("published", "published_lower", "published_upper"),
    *("published_rank", "published_rank_best", "published_rank_worst"),
)
MOVES = (
    *("change", "value", "method", "algorithm"),
    *("score", "lower", "upper", "rank", "rank_best", "rank_worst"),
)
DELTAS = (0.01, 0.05, 0.1, 0.2, 0.5)
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)  # of the trials of each cell, the first ones
# the same definition where states are discrete; the paper takes the same samples for both
SAME = (("Sarsa-lambda", "Sarsa-lambda-s"), ("Q-lambda", "Q-lambda-s"), ("AC", "AC-s"))


def aggregate() -> pd.DataFrame:
    """Return the aggregate scores by each method, as released at full precision.

    Returns:
      Columns method, algorithm, score, lower, upper, rank_best, rank_worst, and printed, the score
      in table 1: that of Q-Parl2 is misprinted.
    """
    table = jordan2020.numbers(read_table("jordan2020_aggregate.csv"), ("algorithm",))
    table["algorithm"] = table["algorithm"].map(jordan2020.ALGORITHMS)
    parts = []
    for method in ("pbp", "pbp-t", "bootstrap"):
        before = f"code_{method.replace('-', '')}_"
        names = {f"{before}{end}": end for end in ("lower", "upper", "rank_best", "rank_worst")}
        names = {"algorithm": "algorithm", "code_score": "score", **names, "score": "printed"}
        part = table[list(names)].rename(columns=names)
        part.insert(0, "method", method)
        parts.append(part.astype({"rank_best": int, "rank_worst": int}))
    return pd.concat(parts, ignore_index=True)


def identical(environments: Iterable[str], algorithms: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (environment, algorithm, algorithm) of cells with the same definition, among those
    that are given.
    """
    known = set(algorithms)
    return [
        (environment, *pair)
        for environment in environments
        if environment in jordan2020.DISCRETE
        for pair in SAME
        if known.issuperset(pair)
    ]


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
    return samples_of(rows, identical=identical(complete, counts.index))


def compare_aggregate(found: Evaluation) -> pd.DataFrame:
    """Compare the aggregate scores of an evaluation with the released ones: columns `AGGREGATE`."""
    theirs = aggregate().drop(columns="printed")
    theirs["rank"] = theirs.groupby("method")["score"].rank(ascending=False).astype(int)
    names = {name: f"published_{name}" for name in theirs if name not in ("method", "algorithm")}
    names["score"] = "published"
    both = found.aggregate.merge(
        theirs.rename(columns=names), on=["method", "algorithm"], how="left"
    )
    return both[list(AGGREGATE)]


def moves(table: pd.DataFrame, methods: Sequence[str] = ("pbp", "pbp-t")) -> pd.DataFrame:
    """Return the ranking with other deltas, with fewer trials and without each environment.

    Args:
      table: of `known`.

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
    parts = []
    for change, value, changed, delta in _changes(table, samples):
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


def facts(samples: Samples | None) -> Iterator[str]:
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


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("--resamples", type=int, default=0, help="of the bootstrap; 0: without it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write CSV files")
    chosen = parser.parse_args(arguments)
    try:
        scores = jordan2020_scores(chosen.source)
        samples = shared_samples(scores)
        print(*facts(samples), "", sep="\n")
        if samples is None:
            return
        methods = ("pbp", "pbp-t", *(("bootstrap",) if chosen.resamples else ()))
        options = Options(resamples=chosen.resamples or 1)
        tables = {
            "aggregate": compare_aggregate(evaluate(samples, methods, options)),
            "moves": moves(scores),
        }
    except JbrlError as error:
        sys.exit(f"error: {error}")
    for name, table in tables.items():
        print(table.round(4).to_string(index=False), end="\n\n")
        if chosen.out:
            chosen.out.mkdir(parents=True, exist_ok=True)
            table.to_csv(chosen.out / f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
