"""Score against processor seconds of training, trainings repeated: tables of docs/trained.md.

python experiments/curves.py OUT [--problems NAME …] [--agents NAME …] [--seconds N …]
    measures what is missing; weights and returns of each policy go to OUT
python experiments/curves.py OUT --table
    compares the returns in OUT, and writes the tables

Rows are kept in benchmarks/results/curves.csv, and what is there is not measured again. The
policies of a problem play the same 2,000 MDPs, on which none was trained and nothing was chosen.
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
import numpy as np
import pandas as pd

import jbrl
from benchmarks import kept
from jbrl.environments.spec import Steps
from jbrl.play.offline import Trials
from jbrl.problems.lookup import problem

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
KEPT, PAIRED = RESULTS / "curves.csv", RESULTS / "curves-paired.csv"
TABLE, PAIRED_TABLE = RESULTS / "tables" / "curves.md", RESULTS / "tables" / "curves-paired.md"
KEY = ["problem", "agent", "inputs", "budget", "training"]
N_ENVIRONMENTS, TEST_SEED, FIRST_TRAINING = 2000, 1307, 5000
SECONDS = (0.4, 4.0, 22.0, 110.0)  # of a fast core, about: one budget for each
CASES: dict[str, tuple[tuple[str, str, tuple[int, ...]], ...]] = {
    "GC": (
        ("DPT", "belief", (10_240, 102_400, 614_400, 3_072_000)),
        ("BeliefPPO", "belief", (5_632, 56_320, 337_920, 1_843_200)),
        ("DPT", "history", (2_048, 20_480)),
        ("RL2", "", (2_560, 23_040, 138_240, 645_120)),
        ("ANN", "mean and belief", (10_240, 92_160, 552_960)),
    ),
    "GDL": (
        ("DPT", "belief", (10_240, 102_400, 614_400, 3_481_600)),
        ("BeliefPPO", "belief", (6_144, 61_440, 368_640, 2_048_000)),
        ("DPT", "history", (2_048, 20_480)),
        ("RL2", "", (2_560, 23_040, 138_240, 645_120)),
        ("ANN", "mean", (12_800, 128_000, 768_000)),
    ),
    "Grid": (
        ("DPT", "mean and belief", (1_024, 10_240, 61_440, 281_600)),
        ("BeliefPPO", "mean and belief", (1_024, 8_192, 49_152, 245_760)),
        ("DPT", "history", (768, 6_144)),
        ("ANN", "mean and belief", (1_024, 10_240, 61_440)),
    ),
}


def trained(made: Any, name: str, training: int) -> tuple[Any, float]:
    """Train an agent on a problem; return its findings and processor seconds, without compiling."""
    prior = problem(name).prior(Steps(250), 0.95)
    trials = Trials(prior, 0.95, jax.random.key(FIRST_TRAINING + training), jax.devices()[:1])
    findings = made.search(0, prior, trials, None)
    found = next(findings)  # compiled
    started = time.process_time()
    for found in findings:  # noqa: B007
        pass
    return found, time.process_time() - started


def measure(out: Path, name: str, agent: str, inputs: str, budget: int, training: int) -> Any:
    """Train an agent once on a problem, keep what came of it, and return the row."""
    made: Any = jbrl.AGENTS[agent].agent(
        **{"budget": budget} | ({"inputs": inputs} if inputs else {})
    )
    found, seconds = trained(made, name, training)
    played = jbrl.play(
        made.strategy(found), prior=name, n_environments=N_ENVIRONMENTS, seed=TEST_SEED
    )
    key = (name, agent, inputs, budget, training)
    np.savez(file(out, *key), **made.weights(found), returns=played.returns)
    mean, error = played.returns.mean(), played.returns.std(ddof=1) / N_ENVIRONMENTS**0.5
    row = dict(zip(KEY, key, strict=True))
    return row | {"seconds": round(seconds, 2), "mean": round(mean, 4), "error": round(error, 4)}


def file(out: Path, *key: Any) -> Path:
    """Return where the weights and returns of a training are."""
    return out / ("-".join(map(str, key)).replace(" ", "_") + ".npz")


def wanted(options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of the rows asked for, the quickest first."""
    levels = [SECONDS.index(seconds) for seconds in options.seconds]
    for level, name in itertools.product(levels, options.problems):
        for agent, inputs, budgets in CASES[name]:
            if agent in options.agents and level < len(budgets):
                for training in range(options.trainings):
                    yield name, agent, inputs, budgets[level], training


def table(rows: pd.DataFrame) -> str:
    """Return means over trainings, and their range."""
    header = ("problem", "agent", "sees", "lifetimes", "seconds", "trainings", "mean", "range")
    lines = []
    for name, cases in CASES.items():
        for agent, inputs, budgets in cases:
            for budget in budgets:
                here = rows_of(rows, name, agent, inputs, budget)
                if len(here):
                    lines.append((name, agent, inputs, f"{budget:,}", *_cells(here)))
    return kept.table(header, lines, texts=3)


def rows_of(rows: pd.DataFrame, *key: Any) -> pd.DataFrame:
    """Return the rows of the first columns of `KEY`."""
    given = dict(zip(KEY, key, strict=False))
    return rows[(rows[list(given)] == pd.Series(given)).all(axis=1)]


def _cells(here: pd.DataFrame) -> tuple[str, ...]:
    scores = here["mean"]
    spread = f"{scores.min():.2f} to {scores.max():.2f}" if len(here) > 1 else ""
    return f"{here['seconds'].mean():.1f}", str(len(here)), f"{scores.mean():.2f}", spread


def paired(out: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """Return how far DPT is ahead of BeliefPPO at equal seconds: means over trainings, with
    standard errors over MDPs, and the least and the greatest difference of two trainings. Rows
    whose returns are not in `out` stay as they are kept.
    """
    before = pd.read_csv(PAIRED)
    found = []
    for name, level in itertools.product(CASES, range(len(SECONDS))):
        own, other = (
            _returns(out, rows, name, *case[:2], case[2][level]) for case in CASES[name][:2]
        )
        if not (len(own) and len(other)):
            stands = (before["problem"] == name) & (before["seconds"] == SECONDS[level])
            found += before[stands].to_dict("records")
        else:
            ahead = own.mean(0) - other.mean(0)
            means = np.subtract.outer(own.mean(1), other.mean(1))
            found.append(
                {
                    "problem": name,
                    "seconds": SECONDS[level],
                    "ahead": ahead.mean(),
                    "error": ahead.std(ddof=1) / N_ENVIRONMENTS**0.5,
                    "least": means.min(),
                    "greatest": means.max(),
                }
            )
    return pd.DataFrame(found).round(4)


def _returns(out: Path, rows: pd.DataFrame, *key: Any) -> np.ndarray:
    """Return what policies have earned, [trainings, MDPs]; nothing where one is missing."""
    files = [file(out, *one) for one in rows_of(rows, *key)[KEY].itertuples(index=False, name=None)]
    whole = all(path.exists() for path in files)
    return np.array([np.load(path)["returns"] for path in files if whole])


def paired_table(found: pd.DataFrame) -> str:
    """Return the differences of `paired`."""
    header = ("problem", "seconds", "DPT − BeliefPPO", "single trainings")
    lines = [
        (
            one.problem,
            f"{one.seconds:g}",
            f"{_signed(one.ahead)} ± {1.96 * one.error:.2f}",
            _between(one.least, one.greatest),
        )
        for one in found.itertuples()
    ]
    return kept.table(header, lines, texts=1)


def _between(least: float, greatest: float) -> str:
    return f"{_signed(least)} to {_signed(greatest)}" if least < greatest else "one each"


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path, help="folder of weights and returns")
    parser.add_argument("--problems", nargs="+", default=list(CASES), choices=list(CASES))
    agents = [case[0] for case in CASES["GC"]]
    parser.add_argument("--agents", nargs="+", default=agents, choices=agents)
    parser.add_argument("--seconds", nargs="+", type=float, default=list(SECONDS), choices=SECONDS)
    parser.add_argument("--trainings", type=int, default=3, metavar="N")
    parser.add_argument("--table", action="store_true", help="write the tables")
    options = parser.parse_args(arguments)
    if options.table:
        rows = pd.read_csv(KEPT, keep_default_na=False)
        paired(options.out, rows).to_csv(PAIRED, index=False)
        TABLE.write_text(table(rows))
        PAIRED_TABLE.write_text(paired_table(pd.read_csv(PAIRED)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for key in wanted(options):
        done = pd.read_csv(KEPT, keep_default_na=False)[KEY]
        if key not in set(done.itertuples(index=False, name=None)):
            row = pd.DataFrame([measure(options.out, *key)])
            row.to_csv(KEPT, mode="a", index=False, header=False)


if __name__ == "__main__":
    main()
