"""Tables and figures of docs/jordan.md, from the trials in experiments/published/jordan.

python experiments/jordan_published.py [--tables] [--out DIR] [--beside RESULTS] [--end RESULTS …]

RESULTS of experiments/jordan-beside.toml are archived in experiments/published/jordan/beside, the
two scores of those of experiments/jordan-end.toml, or of parts of it, are added to those in
experiments/published/jordan/end.parquet.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jbrl  # noqa: E402
from experiments import jordan_kept, jordan_ranking  # noqa: E402
from jbrl.report import evaluation  # noqa: E402
from jbrl.report.axes import Drawing, styles  # noqa: E402
from jbrl.report.html import alone  # noqa: E402
from jbrl.report.sensitivity import sensitivity as sensitivity_figure  # noqa: E402
from jbrl.stats import sensitivity  # noqa: E402
from jbrl.stats.evaluation import Options  # noqa: E402
from jbrl.stats.evaluation.ranking import Evaluation, evaluate  # noqa: E402
from jbrl.stats.evaluation.samples import samples_of  # noqa: E402
from jbrl.stats.published import jordan2020  # noqa: E402

ALGORITHMS = tuple(jordan2020.ALGORITHMS.values())
METHODS = ("pbp", "pbp-t", "bootstrap")
QUANTILES = ("Chain-50d", "MountainCar")
SENSITIVE = (("Chain-50d", "AC"), ("MountainCar", "Sarsa-lambda-s"))
BESIDE = jordan_kept.FOLDER / "beside"
END = jordan_kept.FOLDER / "end.parquet"
FEWEST = 8  # environments that all algorithms have played, for an aggregate
BOOTSTRAP = Options()
DECIMALS = 3  # of the scores that are kept
HALF_WIDTH = 1.96  # of a 95% interval, in standard errors


def counts_of_shared(found: pd.DataFrame) -> int:
    """Return the number of environments that all eleven algorithms have played."""
    by = found.groupby("environment")["algorithm"].nunique()
    return int((by == len(ALGORITHMS)).sum())


def evaluated(found: pd.DataFrame) -> Evaluation:
    """Return the evaluation of all environments that all algorithms have played."""
    samples = jordan_ranking.shared_samples(jordan2020.known(found))
    assert samples is not None
    return evaluate(samples, METHODS, BOOTSTRAP)


def aggregate_table(found: Evaluation) -> list[str]:
    """Return the lines of a table: scores with bootstrap intervals, beside those released."""
    table = jordan_ranking.compare_aggregate(found)
    by = {method: rows.set_index("algorithm") for method, rows in table.groupby("method")}
    lines = [
        "| algorithm | score | bootstrap | published | its PBP-t |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in by["bootstrap"].iterrows():
        theirs = by["pbp-t"].loc[name]
        lines.append(
            f"| {name} | {row['score']:.3f} | {_interval(row)} | {row['published']:.3f} | "
            f"{_interval(theirs, 'published_')} |"
        )
    return lines


def _interval(row: pd.Series, before: str = "") -> str:
    ends = f"{row[f'{before}lower']:.3f} to {row[f'{before}upper']:.3f}".replace("-", "−")
    return f"{ends} ({_ranks(row, before)})"


def _ranks(row: pd.Series, before: str = "") -> str:
    best, worst = (int(row[f"{before}rank_{end}"]) for end in ("best", "worst"))
    return f"{best}" if best == worst else f"{best}–{worst}"


def beside_table(found: pd.DataFrame, others: pd.DataFrame) -> list[str]:
    """Return the lines of a table: means and half-widths of 95% intervals of other agents, beside
    the best of the eleven algorithms.

    Args:
      others: `Results.returns` of experiments/jordan-beside.toml.
    """
    agents = list(dict.fromkeys(others["algorithm"]))
    lines = [
        "| " + " | ".join(["", *agents, "best of the eleven"]) + " |",
        "|---|" + "---:|" * len(agents) + "---|",
    ]
    for environment, rows in others.groupby("experiment", sort=False):
        scores = {name: group["score"] for name, group in rows.groupby("algorithm")}
        known = found[found["environment"] == environment].groupby("algorithm")["score"]
        best = known.mean().idxmax()
        shown = [_mean(scores[name]) if name in scores else "" for name in agents]
        shown.append(f"{best}: {_mean(known.get_group(best))}")
        lines.append("| " + " | ".join([environment, *shown]) + " |")
    return lines


def _mean(scores: pd.Series) -> str:
    width = HALF_WIDTH * scores.std() / len(scores) ** 0.5
    digits = 2 if width < 0.1 else 1 if width < 10 else 0
    return f"{scores.mean():,.{digits}f} ± {width:,.{digits}f}".replace("-", "−")


def life_and_end(results: jbrl.Results) -> pd.DataFrame:
    """Return a row for each trial: environment, algorithm, unit, life, end."""
    parts = []
    for cell, rows in results.returns.groupby(["experiment", "algorithm"], sort=False):
        end = results.metrics(*cell)["end"][rows["unit"]]
        parts.append(
            rows[["unit"]].assign(
                environment=cell[0], algorithm=cell[1], life=rows["score"], end=end
            )
        )
    columns = ["environment", "algorithm", "unit", "life", "end"]
    return pd.concat(parts, ignore_index=True)[columns].round(DECIMALS)


def joined_ends(old: pd.DataFrame, new: list[pd.DataFrame]) -> pd.DataFrame:
    """Return all rows of `life_and_end`, the newest of each trial, in the order of the published
    tables.
    """
    trial = ["environment", "algorithm", "unit"]
    every = pd.concat([old, *new], ignore_index=True).drop_duplicates(trial, keep="last")
    orders = {"environment": tuple(jordan2020.PROBLEMS.values()), "algorithm": ALGORITHMS}
    places = every[trial].assign(
        **{column: every[column].map(order.index) for column, order in orders.items()}
    )
    return every.loc[places.sort_values(trial).index].reset_index(drop=True)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def drawings(found: pd.DataFrame, whole: Evaluation | None) -> Iterator[tuple[str, Drawing]]:
    """Yield the figures by name."""
    looks = styles(ALGORITHMS)
    if whole is not None:
        yield "aggregate", evaluation.aggregate(whole, looks)
    for name in QUANTILES:
        rows = found[found["environment"] == name]
        if rows["algorithm"].nunique() > 1:
            samples = samples_of(jordan2020.known(rows))
            drawing = evaluation.curves(samples, 0, BOOTSTRAP.delta, looks, quantiles=True)
            yield f"quantiles-{name}", drawing
    for environment, algorithm in SENSITIVE:
        trials = found[(found["environment"] == environment) & (found["algorithm"] == algorithm)]
        if len(trials):
            yield (f"sensitivity-{environment}-{algorithm}", _sensitivity(trials, looks[algorithm]))


def _sensitivity(trials: pd.DataFrame, look: object) -> Drawing:
    named, names = _drawn(trials)
    curves, shares = sensitivity.curves(named, names), sensitivity.shares(named, names)
    return sensitivity_figure(curves, shares, look)


def _drawn(trials: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the trials of a cell as `jbrl.stats.sensitivity` takes them, and the parameters."""
    names = [c for c in trials if c.startswith(jordan_kept.DRAWN) and trials[c].nunique() > 1]
    drawn = [name for name in names if name not in jordan_kept.DERIVED]
    short = {name: name.removeprefix(jordan_kept.DRAWN) for name in drawn}
    named = trials.rename(columns={**short, "environment": "experiment"}).assign(parameters="")
    if "gamma" in named:
        named = named.assign(gamma=1 - named["gamma"]).rename(columns={"gamma": "1 - gamma"})
    return named, ["1 - gamma" if name == "gamma" else name for name in short.values()]


def main(arguments: list[str] | None = None) -> None:
    """Write the tables and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static" / "jordan")
    parser.add_argument("--tables", action="store_true", help="only those that take no bootstrap")
    parser.add_argument("--beside", type=Path, metavar="RESULTS", help="archive these first")
    parser.add_argument(
        "--end", type=Path, nargs="+", metavar="RESULTS", help="keep their two scores first"
    )
    chosen = parser.parse_args(arguments)
    if chosen.beside:
        jbrl.Results(chosen.beside).archive(BESIDE, decimals=DECIMALS)
    if chosen.end:
        more = [life_and_end(jbrl.Results(place)) for place in chosen.end]
        joined_ends(pd.read_parquet(END), more).to_parquet(END, index=False)
    folder = chosen.out
    folder.mkdir(parents=True, exist_ok=True)
    found = jordan_kept.trials()
    _write(folder / "beside.md", beside_table(found, jbrl.Results(BESIDE).returns))
    if chosen.tables:
        return
    complete = counts_of_shared(found)
    whole = evaluated(found) if complete >= FEWEST else None
    if whole is not None:
        _write(folder / "aggregate.md", aggregate_table(whole))
    for name, drawing in drawings(found, whole):
        (folder / f"{name}.svg").write_text(alone(drawing.figure), encoding="utf-8")


if __name__ == "__main__":
    main()
