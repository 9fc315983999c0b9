"""The subset search on the published Atari scores, on one core: one JSON line for each figure.

python benchmarks/subset.py

Seconds are those of a whole search after compilation: tables, every subset, and the exact fits of
the best. Each is the least of three.
"""

import argparse
import dataclasses
import json
import os
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before JAX counts the cores

import jax  # noqa: E402

sys.path.insert(0, str(ROOT))
from experiments.atari5.reproduce import FIFTH, atari  # noqa: E402
from jbrl.stats.subset.preparation import Prepared  # noqa: E402
from jbrl.stats.subset.problem import Search  # noqa: E402
from jbrl.stats.subset.search import search  # noqa: E402
from jbrl.stats.subset.study import read_plan, run_plan  # noqa: E402

REPETITIONS = 3
AUTHORS_HOURS = (25, 38)  # the published program, for the five-game search


def measure(prepared: Prepared, name: str, settings: Search) -> tuple[str, ...]:
    """Time one search, print it, and return its winner."""
    started = time.perf_counter()
    found = search(prepared, settings)
    first = time.perf_counter() - started
    seconds = []
    for _ in range(REPETITIONS):
        started = time.perf_counter()
        found = search(prepared, settings)
        seconds.append(time.perf_counter() - started)
    total, best = found.counts["total"], min(seconds)
    line = {
        "benchmark": name,
        "subsets": total,
        "seconds": round(best, 2),
        "first_call_seconds": round(first, 2),
    }
    print(
        json.dumps(
            {
                **line,
                "microseconds_per_subset": round(best / total * 1e6, 3),
                "winner": found.best.subset,
            }
        ),
        flush=True,
    )
    return found.best.subset


def main() -> None:
    prepared = atari()
    five = Search()
    measure(prepared, "five of 56, every subset by 10 folds", five)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(json.dumps({"benchmark": "peak memory so far", "mebibytes": round(peak)}), flush=True)
    same = {
        search(prepared, dataclasses.replace(five, chunk=chunk)).best.subset
        for chunk in (2**14, 10**5, 2**22)
    }
    print(json.dumps({"benchmark": "other chunks", "same_winner": same == {FIFTH}}), flush=True)
    measure(prepared, "five of 56, in sample", dataclasses.replace(five, criterion="in-sample"))
    measure(prepared, "five of 56, leave-one-out", dataclasses.replace(five, criterion="loo"))
    measure(
        prepared, "five of 56, 10 folds, non-negative", dataclasses.replace(five, non_negative=True)
    )
    known = dict(
        run_plan(
            prepared,
            read_plan(ROOT / "experiments" / "atari5" / "plan.toml")[:5],
            Search(shortlist=20),
        )
    )
    validation = known["Atari-5-Val"].best.subset
    ten = Search(size=10, force_in=FIFTH, force_out=validation)
    measure(prepared, "Atari-10: five more of 46, every subset by 10 folds", ten)
    print(
        json.dumps(
            {
                "device": str(jax.devices()[0]),
                "jax": jax.__version__,
                "authors_hours_for_five": AUTHORS_HOURS,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    main()
