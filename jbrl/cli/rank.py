"""`jbrl rank` and `jbrl sensitivity`: agents compared, and the parameters that they draw."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jbrl.base.errors import JbrlError, nearest
from jbrl.cli.options import Folder, Format, Natural, Positive
from jbrl.cli.output import complain, count, print_table, readable, terminal_width

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.results import Results
    from jbrl.stats.paired_bootstrap import Paired
    from jbrl.stats.rank_stability import Stability


def rank(
    folder: Folder,
    *,
    table: Literal["ranks", "pairs", "orders"] = "ranks",
    experiment: list[str] | None = None,
    best_per_algorithm: Annotated[bool, typer.Option("--best-per-algorithm/--all")] = True,
    resamples: Positive = 10_000,
    seed: Natural = 0,
    level: float = 0.95,
    format: Format = "table",
    wide: bool = False,
) -> None:
    """Rank the agents of a study, and measure how firm their ranks are.

    Agents are compared environment by environment (MDP by MDP): difference of the
    means, probability of improvement (how often one is better in an environment
    that both play), effect size d_z. The environments are resampled: the ranks that
    they leave open follow each rank, first is the share of resamples in which no
    other agent is better. With several experiments, '(all)' ranks agents that occur
    in each by their mean rank. Oracles do not compete. A table takes 100 columns;
    --wide and the other formats have every figure.

    Args:
      table: ranks: agents, each compared with the first; pairs: all pairs of agents; orders: how
        firm each order is.
      experiment (NAME): Only this experiment; may be repeated.
      best_per_algorithm: The best agent of each algorithm, or all agents.
      resamples: Bootstrap resamples of the environments.
      seed: Seed of the resamples.
      level: Level of each interval, between 0 and 1.
      format: How to print it.
      wide: With --format table: every column that the other formats have.

    Examples:
      jbrl rank out/quick
      jbrl rank out/quick --experiment GC --table pairs --format csv > pairs.csv
      jbrl rank out/quick --all --table orders
    """
    from jbrl.results import Results
    from jbrl.stats.rank_stability import orders_table, pairs_table, ranks_table
    from jbrl.stats.table import check_level

    check_level(level)
    results = Results(folder)
    experiments = _experiments(results, experiment or [], best_per_algorithm)
    tables = {"ranks": ranks_table, "pairs": pairs_table, "orders": orders_table}
    shown = tables[table](_orders(results, experiments, resamples, seed), level)
    if format in ("table", "md"):
        shown = readable(shown, results.units)
    if format != "table" or wide:
        print_table(shown, format)
        return
    for number, (name, rows) in enumerate(shown.groupby("experiment", sort=False)):
        if number:
            typer.echo()
        typer.echo(f"{name}, {count(int(rows['n'].iloc[0]), 'environment')}")
        print_table(_compact(table, rows), format, terminal_width())


def _experiments(results: "Results", names: list[str], best_per_algorithm: bool) -> list["Paired"]:
    """Return the agents of the experiments asked for, or of all."""
    from jbrl.stats.paired_bootstrap import pair
    from jbrl.stats.table import oracles_of

    known = results.units["experiment"].unique()
    returns = _only(results.returns, "experiment", names, known, "unknown experiment '{}'")
    missing = int((results.units["status"] != "done").sum())
    folder = results.store.folder
    if returns.empty:
        advice = "run the study first ('jbrl run')"
        if (results.units["status"] == "failed").any():
            advice = f"'jbrl scores {folder}' says why units have failed"
        whose = f" of {', '.join(names)}" if names else ""
        raise JbrlError(f"{folder}: no scores{whose}: {advice}")
    if missing:
        complain(f"{missing} units of the study have no scores; ranks are of the others", "note")
    pairings = pair(returns, without=oracles_of(results.manifest))
    pairings = [paired.champions() for paired in pairings] if best_per_algorithm else pairings
    alone = [paired for paired in pairings if len(paired.agents) < 2]
    if len(alone) == len(pairings):
        hint = "; '--all' compares agents of the same algorithm" if best_per_algorithm else ""
        raise JbrlError(
            f"rank: experiment {alone[0].experiment}: {alone[0].name(0)} stands alone: expected "
            f"two agents or more{hint}"
        )
    for paired in alone:
        complain(
            f"experiment {paired.experiment} is left out: {paired.name(0)} stands alone", "note"
        )
    return [paired for paired in pairings if len(paired.agents) > 1]


def _only(
    table: "pd.DataFrame", column: str, names: list[str], known: Collection[str], message: str
) -> "pd.DataFrame":
    """Return the rows with the names that an option asks for; all rows if it is not given.

    Raises:
      JbrlError: a name is not known, as `message` says.
    """
    for name in names:
        if name not in known:
            raise JbrlError(f"--{column}: {message.format(name)}{nearest(name, known)}")
    return table[table[column].isin(names)] if names else table


def _compact(table: str, rows: "pd.DataFrame") -> "pd.DataFrame":
    """Return a table of one experiment as few columns for people."""
    import pandas as pd

    if table == "orders":
        counts = rows[["agents", "resamples", "same_first", "same_order"]]
        return pd.concat([counts, _interval(rows, "tau").rename("tau")], axis=1)
    agent = _agent(rows, "algorithm", "parameters")
    if table == "pairs":
        columns = {
            "agent": agent,
            "other": _agent(rows, "other", "other_parameters"),
            "agent minus other": _interval(rows, "difference"),
            "agent better": _interval(rows, "improvement"),
        }
    else:
        mean = "mean" if rows["mean"].notna().any() else "mean_rank"
        columns = {
            "rank": _interval(rows, "rank"),
            "agent": agent,
            mean.replace("_", " "): rows[mean],
            "first": rows["first"],
            "first minus agent": _interval(rows, "best_difference"),
            "first better": _interval(rows, "best_improvement"),
        }
    return pd.DataFrame(columns)


def _agent(rows: "pd.DataFrame", name: str, parameters: str) -> "pd.Series":
    """Return algorithms with their parameters: `e-Greedy (ε = 0.1)`."""
    shown = rows[parameters].map(lambda text: f" ({text})" if text else "")
    return rows[name] + shown


def _interval(rows: "pd.DataFrame", name: str) -> "pd.Series":
    """Return values with their intervals: `0.58 [0.52, 0.64]`; empty where there are none."""
    import pandas as pd

    columns = (rows[name], rows[f"{name}_lower"], rows[f"{name}_upper"])
    texts = [
        "" if pd.isna(value) else f"{value:.3g}" + _ends(low, high)
        for value, low, high in zip(*columns, strict=True)
    ]
    return pd.Series(texts, rows.index, dtype=object)


def _ends(low: float, high: float) -> str:
    return "" if math.isnan(low) else f" [{low:.3g}, {high:.3g}]"


def _orders(
    results: "Results", experiments: list["Paired"], resamples: int, seed: int
) -> list["Stability"]:
    """Return the order of each experiment by itself, then of all together."""
    from jbrl.stats.rank_stability import overall, rank_stability, resample_all

    tests = dict(zip(results.units["experiment"], results.units["test"], strict=True))
    parts = resample_all(experiments, tests=tests, resamples=resamples, seed=seed)
    orders = [rank_stability([part]) for part in parts]
    if len(parts) > 1:
        one_each = all(not part.paired.agents["algorithm"].duplicated().any() for part in parts)
        try:
            agent = ["algorithm"] if one_each else ["algorithm", "parameters"]
            orders.append(overall(parts, agent))
        except JbrlError as error:
            complain(f"there are no ranks over all experiments: {error}", "note")
    return orders


def sensitivity(
    folder: Folder,
    *,
    table: Literal["shares", "curves", "tuning"] = "shares",
    experiment: list[str] | None = None,
    algorithm: list[str] | None = None,
    groups: Annotated[int, typer.Option(min=2)] = 10,
    permutations: Positive = 2000,
    seed: Natural = 0,
    out: Path | None = None,
    format: Format = "table",
) -> None:
    """Print how the score depends on the parameters of an algorithm.

    A parameter is drawn where a study gives a distribution, such as
    learning_rate = { log_uniform = [1e-4, 1e-2] }. Trials with like values of it are
    a group; all other parameters of a group keep their distributions. share is the
    part of the variance of the score that the groups explain, with a 95% interval.

    Where a study lists values instead, in several experiments, --table tuning prints
    what settings for each of them gain over one for all (Adkins et al. 2024): sensitivity,
    and as dimension how few parameters must be chosen for 95% of the best performance.

    Args:
      table: shares: of the variance that each parameter explains; curves: the mean score of each
        group of trials; tuning: of listed values, the gain by settings for each experiment.
      experiment (NAME): Only this experiment; may be repeated.
      algorithm (NAME): Only this algorithm; may be repeated.
      groups: Groups of trials by a parameter, at most.
      permutations: Permutations in the test of each parameter.
      seed: Seed of the permutations, and of the resamples of tuning.
      out (DIR2): Write a page with the figures or the table of each algorithm.
      format: How to print it.

    Examples:
      jbrl sensitivity out/complete
      jbrl sensitivity out/complete --algorithm BEB --table curves --format csv
      jbrl sensitivity out/complete --out out/sensitivity
      jbrl sensitivity out/paper --table tuning
    """
    if table == "tuning":
        from jbrl.report.sensitivity import write_tuning
        from jbrl.results import Results
        from jbrl.stats.sensitivity import MEASURES

        gains = _tuning(Results(folder), experiment or [], algorithm or [], seed)
        texts = {name: _interval(gains, name) for name in MEASURES}
        ends = [f"{name}_{end}" for name in MEASURES for end in ("lower", "upper")]
        short = gains.assign(**texts).drop(columns=ends)
        print_table(short if format in ("table", "md") else gains, format)
        if out is not None:
            typer.echo(write_tuning(gains, out))
        return
    from jbrl.stats import sensitivity as statistics

    trials, drawn = _trials(folder, experiment or [], algorithm or [])
    curves = statistics.curves(trials, drawn, groups)
    shares = statistics.shares(trials, drawn, groups, permutations=permutations, seed=seed)
    shown = shares if table == "shares" else curves
    print_table(_without_needless_columns(shown) if format in ("table", "md") else shown, format)
    for text in statistics.few_differ(trials):
        complain(text, "note")
    if out is not None:
        from jbrl.report.sensitivity import write_page

        typer.echo(write_page(curves, shares, out))


def _tuning(
    results: "Results", experiments: list[str], algorithms: list[str], seed: int
) -> "pd.DataFrame":
    """Return the gain by settings for each experiment; oracles do not count."""
    from jbrl.stats.sensitivity import tuning
    from jbrl.stats.table import oracles_of

    returns = results.returns[~results.returns["algorithm"].isin(oracles_of(results.manifest))]
    message = "unknown experiment '{}'"
    returns = _only(returns, "experiment", experiments, returns["experiment"].unique(), message)
    found, message = tuning(returns, seed=seed), "'{}' has one setting here"
    return _only(found, "algorithm", algorithms, found["algorithm"].unique(), message)


def _trials(
    folder: Path, experiments: list[str], algorithms: list[str]
) -> tuple["pd.DataFrame", list[str]]:
    """Return the trials asked for, and the names of the parameters drawn."""
    from jbrl.results import Results

    results = Results(folder)
    trials = results.trials
    for column, names, message in (
        ("experiment", experiments, "unknown experiment '{}'"),
        ("algorithm", algorithms, "'{}' draws no parameters here"),
    ):
        trials = _only(trials, column, names, trials[column].unique(), message)
    return trials, [name for name in trials.columns if name not in results.returns.columns]


def _without_needless_columns(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return the table without parameters in full, which distinguish settings of one algorithm, and
    without the numbers of failures where there are none.
    """
    settings = table.groupby("algorithm")["parameters"].nunique()
    needless = [] if (settings > 1).any() else ["parameters"]
    return table.drop(columns=needless if table["failed"].any() else [*needless, "failed"])
