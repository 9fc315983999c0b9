"""BRL-5: the five problems of experiments/suite.toml that represent all, validated on agents that
had no part in choosing them.

jbrl run experiments/suite.toml --out out/suite
python experiments/suite_report.py out/suite [--table experiments/suite/scores.csv]
"""

import argparse
import collections
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.analysis import subset_table
from jbrl.stats.subset.fit import Folds
from jbrl.stats.subset.model import model_of, save
from jbrl.stats.subset.preparation import Preparation, Prepared, prepare
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.robustness import over_algorithms
from jbrl.stats.subset.search import fit_of, search

RULE = Search(size=5, criterion="loo")
RANDOM_SUBSETS = 1000


def load(folder: Path) -> tuple[pd.DataFrame, Prepared]:
    """Return scores and references of the suite, and the table prepared: per cent of Random to
    Optimal, the target is their mean.
    """
    table, references = subset_table(folder)
    table = table[["algorithm", "environment", "score"]]
    return table.merge(references), prepare(
        table, Preparation("references", target="mean"), references
    )


def family(algorithm: str) -> str:
    """Return an agent's algorithm: its name without parameters."""
    return algorithm.partition("(")[0].strip()


def left_out_families(prepared: Prepared) -> pd.DataFrame:
    """Search without one algorithm at all its parameters, and predict these agents."""
    rows = []
    for name in dict.fromkeys(map(family, prepared.algorithms)):
        agents = [a for a in prepared.algorithms if family(a) == name]
        best = search(prepared.without(agents), RULE).best
        inside = np.array([family(a) == name for a in prepared.algorithms])
        truth = prepared.target[inside]
        predicted = prepared.features[inside][:, best.columns] @ best.coefficients
        error = predicted - truth
        rows.append(
            {
                "left out": name,
                "agents": len(agents),
                "chosen": ", ".join(best.subset),
                "mean true": truth.mean(),
                "mean absolute error": np.abs(error).mean(),
                "largest error": np.abs(error).max(),
            }
        )
    return pd.DataFrame(rows)


def chance(prepared: Prepared) -> np.ndarray:
    """Leave-one-out errors of random subsets of five, for comparison."""
    rng = np.random.default_rng(0)
    n = len(prepared.environments)
    chosen = [
        tuple(sorted(rng.choice(n, 5, replace=False).tolist())) for _ in range(RANDOM_SUBSETS)
    ]
    return np.array([fit_of(prepared, columns, RULE).loo_mse for columns in chosen])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="results of experiments/suite.toml")
    parser.add_argument("--table", type=Path, help="write scores and references to this CSV file")
    parser.add_argument("--model", type=Path, help="write the model of BRL-5 to this JSON file")
    arguments = parser.parse_args()
    table, prepared = load(arguments.folder)
    if arguments.table:
        table.round(6).to_csv(arguments.table, index=False, lineterminator="\n")
    found = search(prepared, RULE)
    best = found.best
    print(
        f"{len(prepared.environments)} problems, {len(prepared.algorithms)} agents, "
        f"{found.counts['evaluated']:,} subsets"
    )
    terms = zip(best.subset, best.coefficients, strict=True)
    print("BRL-5: " + ", ".join(f"{c:.4f} x {e}" for e, c in terms))
    print(
        f"R² {best.r2:.5f}, 10-fold R² {best.cv_r2:.5f}, leave-one-out RMSE "
        f"{best.loo_mse**0.5:.3f} points, tau {best.cv_kendall:.3f}"
    )
    print(
        f"RMSE of random subsets of five: median {np.sqrt(np.median(chance(prepared))):.3f} points"
    )
    parts = over_algorithms(found)
    print(
        f"agents left out by tenths: RMSE {parts.honest_mse**0.5:.3f} points on {parts.honest_n}, "
        f"{len(parts.winners)} different winners"
    )
    print("chosen most often:", collections.Counter(parts.environments).most_common(8))
    groups = tuple(map(family, prepared.algorithms))
    grouped = dataclasses.replace(
        RULE, criterion="kfold", folds=Folds(len(set(groups)), groups=groups)
    )
    by_family = search(prepared, grouped).best
    print(
        f"chosen by leaving out families: {', '.join(by_family.subset)}; RMSE "
        f"{by_family.loss**0.5:.3f} points; BRL-5 by that rule: ",
        end="",
    )
    print(f"{fit_of(prepared, best.columns, grouped).cv_mse ** 0.5:.3f} points\n")
    print(left_out_families(prepared).round(3).to_string(index=False))
    if arguments.model:
        save(model_of(prepared, best, intercept=False), arguments.model)


if __name__ == "__main__":
    main()
