"""The tables of Atari-5 from the published scores, beside those of its authors' program.

python experiments/atari5/reproduce.py [--out DIR] [--fragility]
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.stats.score_files import read_companion, read_score_table
from jbrl.stats.subset.fit import Folds
from jbrl.stats.subset.preparation import ATARI5, Prepared, prepare
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.robustness import (
    correlations,
    over_algorithms,
    over_seeds,
    per_environment,
    pooled_r2,
    single_environments,
)
from jbrl.stats.subset.search import Outcome, search
from jbrl.stats.subset.study import read_plan, run_plan

HERE = Path(__file__).parent
# the program's: of the 20 subsets of least in-sample error, the one of least 10-fold error
RULE = Search(shortlist=20)
FIFTH = ("battlezone", "doubledunk", "namethisgame", "phoenix", "qbert")
# ours: theirs
NUMBERS = {
    "mse": "in_sample_mse",
    "r2": "r2",
    "cv_mse": "cv10_mse",
    "cv_r2": "cv10_r2",
    "cv_mae": "cv10_mae",
}


def atari(**changes: object) -> Prepared:
    """Return the published scores, prepared as for Atari-5 but for `changes`."""
    references = read_companion(HERE / "references.csv", ["environment"], ["low", "high"])
    return prepare(
        read_score_table(HERE / "scores.csv"), dataclasses.replace(ATARI5, **changes), references
    )


def expected(name: str, **options: object) -> pd.DataFrame:
    """Read a table of the authors' program or, where it has none, of an independent computation
    with scikit-learn.
    """
    return pd.read_csv(HERE / "expected" / f"{name}.csv", keep_default_na=False, **options)


def subsets(prepared: Prepared) -> pd.DataFrame:
    """Return all searches of the plan, one row each, with the largest relative difference from the
    authors' program.
    """
    single = search(prepared, Search(1, shortlist=10, intercept=True))
    found = {
        "Atari-Single": single,
        **dict(run_plan(prepared, read_plan(HERE / "plan.toml"), RULE)),
    }
    published = expected("expected").set_index("name")
    return pd.DataFrame(
        [_row(name, outcome, published.loc[name]) for name, outcome in found.items()]
    )


def _row(name: str, outcome: Outcome, published: pd.Series) -> dict[str, object]:
    fit = outcome.best
    theirs = [*map(float, str(published["coefficients"]).split()), float(published["intercept"])]
    theirs += [float(published[column]) for column in NUMBERS.values()]
    ours = [*fit.coefficients, fit.intercept, *(getattr(fit, field) for field in NUMBERS)]
    apart = max(abs(a - b) / abs(b) if b else abs(a) for a, b in zip(ours, theirs, strict=True))
    same = list(fit.subset) == published["games"].split() and fit.n == int(
        published["n_algorithms"]
    )
    numbers = {field: getattr(fit, field) for field in (*NUMBERS, "loo_mse", "relative_error")}
    weights = " ".join(f"{c:.6f}" for c in fit.coefficients)
    facts = {
        "name": name,
        "subset": " ".join(fit.subset),
        "same_subset": same,
        "coefficients": weights,
        "intercept": fit.intercept,
    }
    return {
        **facts,
        "n": fit.n,
        **numbers,
        "total": outcome.counts["total"],
        "largest_relative_difference": apart,
    }


def beside(prepared: Prepared, ten: tuple[str, ...]) -> dict[str, pd.DataFrame]:
    """Return single games, every game from five and from ten, correlations."""
    tables = {
        "single": single_environments(prepared, Folds()),
        "correlation": correlations(prepared),
    }
    for name, subset in (("five", FIFTH), ("ten", ten)):
        tables[f"per-game-{name}"] = per_environment(
            prepared, tuple(map(prepared.column, subset)), Folds()
        )
    return tables


def per_game_summary(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return mean and pooled R² over the 57 games."""
    rows = []
    for name in ("five", "ten"):
        table = tables[f"per-game-{name}"]
        means = {
            column: table[column].mean() for column in table if column.startswith(("r2", "cv_r2"))
        }
        pooled = {
            f"pooled_{kind}": pooled_r2(table, intercept=kind == "intercept")
            for kind in ("no_intercept", "intercept")
        }
        rows.append({"subset": name, **means, **pooled})
    return pd.DataFrame(rows)


def fragility(prepared: Prepared) -> pd.DataFrame:
    """Repeat the search with other choices that are as plausible."""
    rows: list[dict[str, object]] = []

    def add(what: str, found: Outcome, asked: bool = True) -> None:
        best = found.best
        place = found.better.get(FIFTH, -1) + 1 if asked else None
        rows.append(
            {
                "what": what,
                "winner": " ".join(best.subset),
                "n": best.n,
                "loss": best.loss,
                "place_of_atari5": place,
            }
        )

    every = dataclasses.replace(RULE, shortlist=0)
    add("as published, every subset cross-validated", search(prepared, every, asked=(FIFTH,)))
    add(
        "67 algorithms: no rule about the median",
        search(atari(min_target=None), every, asked=(FIFTH,)),
    )
    add(
        "60 algorithms: without Human Ref and Planning",
        search(prepared.without(["Human Ref", "Planning"]), every, asked=(FIFTH,)),
    )
    for seed in (0, 1, 2, 3, 4):
        add(
            f"folds of seed {seed}",
            search(prepared, dataclasses.replace(every, folds=Folds(seed=seed)), asked=(FIFTH,)),
        )
    add(
        "leave-one-out",
        search(prepared, dataclasses.replace(every, criterion="loo"), asked=(FIFTH,)),
    )
    add(
        "in sample",
        search(prepared, dataclasses.replace(every, criterion="in-sample"), asked=(FIFTH,)),
    )
    columns = [prepared.column(name) for name in FIFTH]
    lacking = np.isnan(prepared.features[:, columns]).any(1)
    same_rows = prepared.without(
        [name for name, out in zip(prepared.algorithms, lacking, strict=True) if out]
    )
    holes = tuple(np.array(prepared.environments)[np.isnan(same_rows.features).any(0)])
    add(
        "the 44 algorithms of Atari-5, games complete there",
        search(same_rows, dataclasses.replace(every, force_out=holes), asked=(FIFTH,)),
    )
    return pd.DataFrame(rows)


def choices(prepared: Prepared) -> pd.DataFrame:
    """Count how often each game is chosen, over fold seeds and without each tenth of the rows."""
    found = search(prepared, dataclasses.replace(RULE, shortlist=0))
    seeds, parts = over_seeds(found, seeds=200, shortlist=3003), over_algorithms(found)
    print(
        f"200 seeds: Atari-5 wins {seeds.winners[FIFTH]} times, then "
        f"{seeds.winners.most_common(2)}; least mean: {' '.join(seeds.first)}"
    )
    print(
        f"10 parts of the algorithms: Atari-5 wins {parts.winners[FIFTH]} times; "
        f"{len(parts.winners)} different winners"
    )
    print(
        f"mean squared error of the winners on {parts.honest_n} algorithms left out: "
        f"{parts.honest_mse:.6f}"
    )
    counts = {"seeds": seeds.environments, "parts": parts.environments}
    table = (
        pd.DataFrame(counts).fillna(0).astype(int).sort_values(["parts", "seeds"], ascending=False)
    )
    return table.rename_axis("environment").reset_index()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, help="folder for the tables as CSV files")
    parser.add_argument(
        "--fragility",
        action="store_true",
        help="other rows, seeds and criteria as well: eleven more searches and 20 small ones",
    )
    arguments = parser.parse_args()
    prepared = atari()
    print(
        f"{len(prepared.algorithms)} algorithms, {prepared.usable.sum()} of "
        f"{len(prepared.environments)} games to choose from\n"
    )
    found = subsets(prepared)
    ten = tuple(found.set_index("name").loc["Atari-10", "subset"].split())
    tables = {"subsets": found, **beside(prepared, ten)}
    tables["per-game-summary"] = per_game_summary(tables)
    if arguments.fragility:
        tables |= {"fragility": fragility(prepared), "choices": choices(prepared)}
    with pd.option_context(
        "display.width",
        220,
        "display.max_columns",
        30,
        "display.max_colwidth",
        90,
        "display.precision",
        6,
    ):
        for name in [n for n in tables if n != "correlation"]:
            print(f"\n{name}\n{tables[name].head(12).to_string(index=False)}")
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(
                arguments.out / f"{name}.csv", index=name == "correlation", lineterminator="\n"
            )
    sys.exit(
        0
        if found["same_subset"].all() and (found["largest_relative_difference"] < 1e-9).all()
        else 1
    )


if __name__ == "__main__":
    main()
