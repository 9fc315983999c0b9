"""Keep trials of the comparison of Jordan et al. 2020 in experiments/published/jordan, and read
them.

python experiments/jordan_kept.py DIR … [--share S] [--out FOLDER]

DIR has results of experiments/jordan.toml, of a part of it, or of another study with the same
problems and algorithms. Two files hold all that is kept:

    trials.parquet   a row per trial: environment, algorithm, seed, unit, score, the numbers that
                     the agent counts, and `drawn_NAME` for each hyperparameter that was drawn
    pieces.csv       a row per cell and seed: trials, decisions, seconds, versions

Seconds are processor time. Results have wall time: where other programs ran as well, S is the share
of its cores that the run had.

Pieces may be added at any time. More trials of a cell come from another seed, or from more
lifetimes with the same one, of which the first are those that are kept already: they replace
them, and must agree with them.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.base.errors import JbrlError  # noqa: E402
from jbrl.comparison import environments, jordan2020_scores  # noqa: E402
from jbrl.results import COUNTS_OF_NAN, Results  # noqa: E402
from jbrl.stats.published import jordan2020  # noqa: E402

FOLDER = ROOT / "experiments" / "published" / "jordan"
CELL = ("environment", "algorithm")
TRIAL = (*CELL, "seed", "unit")
DRAWN = "drawn_"
DERIVED = ("drawn_features",)  # from others; on tables a constant


def trials(folder: Path = FOLDER) -> pd.DataFrame:
    """Read the trials that are kept, in the order of the published tables."""
    return pd.read_parquet(folder / "trials.parquet")


def pieces(folder: Path = FOLDER) -> pd.DataFrame:
    """Read what is known of the pieces that are kept."""
    return pd.read_csv(folder / "pieces.csv")


def of_results(place: Path, share: float = 1.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return trials and pieces of results, as they are kept.

    Args:
      share: of its cores that the run had.

    Raises:
      JbrlError: results that cannot be compared with the published ones, or without any trial of
        the comparison.
    """
    jordan2020_scores(place)  # refuses lifetimes and settings that differ, and no trial
    results = Results(place)
    played = environments(results)
    parts, rows = [], []
    for unit in results.manifest["units"]:
        found = results.store.result(unit["id"])
        if found is None or found.header["status"] != "done":
            continue
        cell = {"environment": played[unit["experiment"]], "algorithm": unit["algorithm"]}
        seed = {"seed": unit["seed"]}
        mine = np.logical_and.reduce(
            [results.returns[name] == unit[name] for name in ("experiment", "algorithm", "seed")]
        )
        scores = results.returns.loc[mine, ["unit", "score"]].sort_values("unit")
        part = scores.assign(**cell, **seed, **_numbers(results.store.metrics(unit["id"])))
        parts.append(part)
        rows.append(cell | seed | {"trials": len(part)} | _times(found.header, share))
    return _ordered(pd.concat(parts)), _ordered(pd.DataFrame(rows))


def _numbers(metrics: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what is kept of the metrics of a unit."""
    drawn = {k: v.astype(np.float32) for k, v in metrics.items() if k.startswith(DRAWN)}
    if "drawn_dependent" not in drawn:
        drawn = {name: values for name, values in drawn.items() if name not in DERIVED}
    return {k: metrics[k].astype(np.int32) for k in COUNTS_OF_NAN if k in metrics} | drawn


def _times(header: dict, share: float) -> dict:
    elapsed = header["online_seconds"] * header["decisions"] * share
    return {
        "decisions": header["decisions"],
        "seconds": round(elapsed * header["machine"]["cores"], 2),
        "compile_seconds": round(header["compile_seconds"] * share, 1),
        **{name: header["versions"][name] for name in ("jbrl", "jax")},
    }


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in the order of the published tables."""
    names = (tuple(jordan2020.PROBLEMS.values()), tuple(jordan2020.ALGORITHMS.values()))
    known = np.logical_and.reduce(
        [table[column].isin(order) for column, order in zip(CELL, names, strict=True)]
    )
    keys = [table.loc[known, k].map(o.index) for k, o in zip(CELL, names, strict=True)]
    rest = [table.loc[known, name] for name in ("seed", "unit") if name in table]
    order = np.lexsort(tuple(key.to_numpy() for key in reversed([*keys, *rest])))
    return table[known].iloc[order].reset_index(drop=True)


def joined(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Return all trials of both tables.

    Raises:
      JbrlError: the same trial has two scores.
    """
    both = old.merge(new, on=list(TRIAL), suffixes=("", "_new"))
    differs = both[both["score"] != both["score_new"]]
    if len(differs):
        first = differs.iloc[0]
        raise JbrlError(
            f"{first['algorithm']} on {first['environment']}, seed {first['seed']}, lifetime "
            f"{first['unit']}: kept with a score of {first['score']:g}, now {first['score_new']:g}:"
            " expected results of the same version; remove the cells that are kept first"
        )
    every = pd.concat([old, new]).drop_duplicates(list(TRIAL), keep="last")
    numbers = {name: every[name].astype("Int32") for name in COUNTS_OF_NAN if name in every}
    return _ordered(every.assign(**numbers))


def keep(places: list[Path], folder: Path = FOLDER, share: float = 1.0) -> pd.DataFrame:
    """Add results to those that are kept; return how many trials each cell has: a row per
    environment, a column per algorithm.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "trials.parquet").is_file():
        found, known = trials(folder), pieces(folder)
    else:
        found, known = of_results(places[0], share)
    for place in places:
        more, their = of_results(place, share)
        found = joined(found, more)
        known = pd.concat([known, their]).sort_values("trials", kind="stable")
        known = _ordered(known.drop_duplicates([*CELL, "seed"], keep="last"))
    columns = [c for c in found.columns if c not in (*TRIAL, "score", *COUNTS_OF_NAN)]
    kept = [*TRIAL, "score", *(c for c in COUNTS_OF_NAN if c in found), *sorted(columns)]
    small = found[kept].astype({"seed": "int32", "unit": "int32"})
    small.to_parquet(folder / "trials.parquet", index=False, compression="zstd")
    known.to_csv(folder / "pieces.csv", index=False, lineterminator="\n")
    return counts(found)


def counts(found: pd.DataFrame) -> pd.DataFrame:
    """Return the number of trials of each cell: a row per environment, a column per algorithm."""
    table = found.groupby(list(CELL)).size().unstack(fill_value=0)
    rows = [name for name in jordan2020.PROBLEMS.values() if name in table.index]
    columns = [name for name in jordan2020.ALGORITHMS.values() if name in table.columns]
    return table.loc[rows, columns]


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--share", type=float, default=1.0, metavar="S")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER")
    chosen = parser.parse_args(arguments)
    try:
        print(keep(chosen.results, chosen.out, chosen.share).to_string())
    except JbrlError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
