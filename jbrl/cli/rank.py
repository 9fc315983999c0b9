"""`jbrl rank`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.base.errors import JbrlError, nearest
from jbrl.cli.tables import Folder, Format, print_table
from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.results import Results
    from jbrl.stats.paired_bootstrap import Paired
    from jbrl.stats.rank_stability import Stability


WIDTH = 100  # of a table for people


class What(StrEnum):
    """Tables about ranks."""

    ranks = "ranks"
    pairs = "pairs"
    orders = "orders"


def rank(
    folder: Folder,
    table: Annotated[
        What,
        typer.Option(
            help=(
                "ranks: agents, each compared with the first; pairs: all pairs of agents; "
                "orders: how firm each order is."
            )
        ),
    ] = What.ranks,
    experiment: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this experiment; may be repeated."),
    ] = None,
    best_per_algorithm: Annotated[
        bool,
        typer.Option(
            "--best-per-algorithm/--all", help="The best agent of each algorithm, or all agents."
        ),
    ] = True,
    resamples: Annotated[
        int, typer.Option(min=1, help="Bootstrap resamples of the environments.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    level: Annotated[float, typer.Option(help="Level of each interval, between 0 and 1.")] = 0.95,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide", help="With --format table: every column that the other formats have."
        ),
    ] = False,
) -> None:
    """Rank the agents of a study, and measure how firm their ranks are.

    Agents are compared environment by environment (MDP by MDP): difference of the
    means, probability of improvement (how often one is better in an environment
    that both play), effect size d_z. The environments are resampled: the ranks that
    they leave open follow each rank, first is the share of resamples in which no
    other agent is better. With several experiments, '(all)' ranks agents that occur
    in each by their mean rank. Oracles do not compete. A table takes 100 columns;
    --wide and the other formats have every figure.

    [bold]Examples[/bold]

    \b
    jbrl rank out/quick
    jbrl rank out/quick --experiment GC --table pairs --format csv > pairs.csv
    jbrl rank out/quick --all --table orders
    """
    from jbrl.results import Results
    from jbrl.stats.paired_bootstrap import check_level
    from jbrl.stats.rank_stability import orders_table, pairs_table, ranks_table

    show_warnings()
    check_level(level)
    results = Results(folder)
    found = _orders(
        results, _experiments(results, experiment or [], best_per_algorithm), resamples, seed
    )
    tables = {What.ranks: ranks_table, What.pairs: pairs_table, What.orders: orders_table}
    shown = tables[table](found, level)
    if format in (Format.table, Format.md):
        shown = _readable(shown, results)
    if format is not Format.table or wide:
        print_table(shown, format)
        return
    for number, (name, rows) in enumerate(shown.groupby("experiment", sort=False)):
        typer.echo(f"{chr(10) * bool(number)}{name}, {rows['n'].iloc[0]} environments")
        print_table(COMPACT[table](rows), format, WIDTH)


def _experiments(results: "Results", names: list[str], best_per_algorithm: bool) -> list["Paired"]:
    """Return the agents of the experiments asked for, or of all."""
    from jbrl.stats.labels import oracles_of
    from jbrl.stats.paired_bootstrap import pair

    returns, known = results.returns, list(results.units["experiment"].unique())
    for name in names:
        if name not in known:
            raise JbrlError(f"--experiment: unknown experiment '{name}'{nearest(name, known)}")
    if names:
        returns = returns[returns["experiment"].isin(names)]
    missing = int((results.units["status"] != "done").sum())
    if returns.empty:
        raise JbrlError(
            f"{results.store.folder}: no scores{' of ' + ', '.join(names) if names else ''}: run "
            "the study first ('jbrl run')"
        )
    if missing:
        complain(f"{missing} units of the study have no scores; ranks are of the others", "note")
    found = pair(returns, without=oracles_of(results.manifest))
    found = [paired.champions() for paired in found] if best_per_algorithm else found
    alone = [paired for paired in found if len(paired.agents) < 2]
    if len(alone) == len(found):
        hint = "; '--all' compares agents of the same algorithm" if best_per_algorithm else ""
        raise JbrlError(
            f"rank: experiment {alone[0].experiment}: {alone[0].name(0)} stands alone: expected "
            f"two agents or more{hint}"
        )
    for paired in alone:
        complain(
            f"experiment {paired.experiment} is left out: {paired.name(0)} stands alone", "note"
        )
    return [paired for paired in found if len(paired.agents) > 1]


def _readable(table: "pd.DataFrame", results: "Results") -> "pd.DataFrame":
    """Return parameters in words, and only those in which the agents of an algorithm differ."""
    from jbrl.stats.labels import parameters_text, varied

    shown = {
        name: varied(rows["parameters"]) or [] for name, rows in results.units.groupby("algorithm")
    }
    for who, parameters in (("algorithm", "parameters"), ("other", "other_parameters")):
        if who in table.columns:
            texts = [
                parameters_text(p, shown[a]) if p else ""
                for a, p in zip(table[who], table[parameters], strict=True)
            ]
            table = table.assign(**{parameters: texts})
    return table


def _compact_ranks(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Return ranks of one experiment, as few columns for people."""
    import pandas as pd

    return pd.DataFrame(
        {
            "rank": _interval(rows, "rank"),
            "agent": _agent(rows, "algorithm", "parameters"),
            "mean" if rows["mean"].notna().any() else "mean rank": (
                rows["mean"] if rows["mean"].notna().any() else rows["mean_rank"]
            ),
            "first": rows["first"],
            "first minus agent": _interval(rows, "best_difference"),
            "first better": _interval(rows, "best_improvement"),
        }
    )


def _compact_pairs(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Return pairs of one experiment, as few columns for people."""
    import pandas as pd

    return pd.DataFrame(
        {
            "agent": _agent(rows, "algorithm", "parameters"),
            "other": _agent(rows, "other", "other_parameters"),
            "agent minus other": _interval(rows, "difference"),
            "agent better": _interval(rows, "improvement"),
        }
    )


def _compact_order(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Describe the firmness of the order of one experiment, in few columns for people."""
    import pandas as pd

    kept = rows[["agents", "resamples", "same_first", "same_order"]]
    return pd.concat([kept, _interval(rows, "tau").rename("tau")], axis=1)


COMPACT = {What.ranks: _compact_ranks, What.pairs: _compact_pairs, What.orders: _compact_order}


def _agent(rows: "pd.DataFrame", name: str, parameters: str) -> "pd.Series":
    """Return algorithms with their parameters: `e-Greedy (ε = 0.1)`."""
    shown = rows[parameters].map(lambda text: f" ({text})" if text else "")
    return rows[name] + shown


def _interval(rows: "pd.DataFrame", name: str) -> "pd.Series":
    """Return values with their intervals: `0.58 [0.52, 0.64]`; empty where there are none."""
    import pandas as pd

    columns = (rows[name], rows[f"{name}_lower"], rows[f"{name}_upper"])
    texts = [
        "" if pd.isna(value) else f"{value:.3g} [{low:.3g}, {high:.3g}]"
        for value, low, high in zip(*columns, strict=True)
    ]
    return pd.Series(texts, rows.index, dtype=object)


def _orders(
    results: "Results", experiments: list["Paired"], resamples: int, seed: int
) -> list["Stability"]:
    """Return the order of each experiment by itself, then of all together."""
    from jbrl.stats.rank_stability import overall, rank_stability, resample_all

    tests = dict(zip(results.units["experiment"], results.units["test"], strict=True))
    parts = resample_all(experiments, tests=tests, resamples=resamples, seed=seed)
    found = [rank_stability([part]) for part in parts]
    if len(parts) > 1:
        one_each = all(not part.paired.agents["algorithm"].duplicated().any() for part in parts)
        try:
            found.append(overall(parts, ["algorithm"] if one_each else ("algorithm", "parameters")))
        except JbrlError as error:
            complain(f"there are no ranks over all experiments: {error}", "note")
    return found
