"""Score against processor seconds of training, trainings repeated: table of docs/trained.md.

python experiments/curves.py [--problems NAME …] [--trainings N]
python experiments/curves.py --table

Rows are kept in benchmarks/results/curves.csv, and what is there is not measured again.
The trained policies of a problem play the same 2,000 MDPs, on which none was trained.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import pandas as pd

import jbrl
from benchmarks import kept
from jbrl.environments.spec import Steps
from jbrl.play.offline import Trials
from jbrl.problems.lookup import problem

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "results" / "curves.csv"
TABLE = ROOT / "benchmarks" / "results" / "tables" / "curves.md"
KEY = ["problem", "agent", "inputs", "budget", "training"]
N_ENVIRONMENTS, TEST_SEED = 2000, 77
CASES = {
    "GC": (
        ("DPT", "belief", (10_240, 20_480, 102_400)),
        ("DPT", "history", (2_560, 20_480)),
        ("BeliefPPO", "belief", (7_680, 76_800)),
        ("RL2", "", (3_840, 38_400)),
        ("ANN", "mean and belief", (20_480,)),
    ),
    "GDL": (
        ("DPT", "belief", (20_480,)),
        ("DPT", "history", (20_480,)),
        ("BeliefPPO", "belief", (20_480,)),
    ),
    "Grid": (
        ("DPT", "belief", (10_240,)),
        ("DPT", "mean and belief", (1_536, 10_240)),
        ("DPT", "history", (768, 10_240)),
        ("BeliefPPO", "mean and belief", (10_240,)),
    ),
}


def measure(name: str, agent: str, inputs: str, budget: int, training: int) -> dict[str, Any]:
    """Train an agent once on a problem, and return the row of it."""
    prior = problem(name).prior(Steps(250), 0.95)
    made: Any = jbrl.AGENTS[agent].agent(budget=budget, **({"inputs": inputs} if inputs else {}))
    trials = Trials(prior, 0.95, jax.random.key(1000 + training), jax.devices()[:1])
    findings = made.search(0, prior, trials, None)
    found = next(findings)  # compiled
    started = time.process_time()
    for found in findings:  # noqa: B007
        pass
    seconds = time.process_time() - started
    played = jbrl.play(
        made.strategy(found), prior=name, n_environments=N_ENVIRONMENTS, seed=TEST_SEED
    )
    mean, error = played.returns.mean(), played.returns.std(ddof=1) / N_ENVIRONMENTS**0.5
    row = dict(zip(KEY, (name, agent, inputs, budget, training), strict=True))
    return row | {"seconds": round(seconds, 2), "mean": round(mean, 4), "error": round(error, 4)}


def wanted(problems: Sequence[str], trainings: int) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of the rows asked for."""
    for name in problems:
        for agent, inputs, budgets in CASES[name]:
            yield from itertools.product([name], [agent], [inputs], budgets, range(trainings))


def table(rows: pd.DataFrame) -> str:
    """Return means over trainings, and the range where there are several."""
    header = ("problem", "agent", "sees", "lifetimes", "seconds", "trainings", "mean", "range")
    lines = []
    for name, cases in CASES.items():
        for agent, inputs, budgets in cases:
            for budget in budgets:
                key = dict(zip(KEY, (name, agent, inputs, budget), strict=False))
                here = rows[(rows[list(key)] == pd.Series(key)).all(axis=1)]
                if len(here):
                    lines.append((*key.values(), *_cells(here)))
    texts = [(*line[:3], f"{line[3]:,}", *line[4:]) for line in lines]
    return kept.table(header, texts, texts=3)


def _cells(here: pd.DataFrame) -> tuple[str, ...]:
    scores = here["mean"]
    spread = f"{scores.min():.2f} to {scores.max():.2f}" if len(here) > 1 else ""
    return f"{here['seconds'].mean():.1f}", str(len(here)), f"{scores.mean():.2f}", spread


def main(arguments: list[str] | None = None) -> None:
    """Measure what is missing, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--problems", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--trainings", type=int, default=3, metavar="N")
    parser.add_argument("--table", action="store_true", help="write the table")
    options = parser.parse_args(arguments)
    if options.table:
        TABLE.write_text(table(pd.read_csv(KEPT, keep_default_na=False)))
        return
    for key in wanted(options.problems, options.trainings):
        done = pd.read_csv(KEPT, keep_default_na=False)[KEY]
        if key not in set(done.itertuples(index=False, name=None)):
            row = pd.DataFrame([measure(*key)])
            row.to_csv(KEPT, mode="a", index=False, header=False)


if __name__ == "__main__":
    main()
