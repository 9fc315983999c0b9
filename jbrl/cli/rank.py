"""`jbrl rank`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.cli.tables import Folder, Format, print_table
from jbrl.cli.text import complain, show_warnings
from jbrl.errors import JbrlError, nearest

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.analysis.pairing import Paired
    from jbrl.analysis.rank_stability import Stability
    from jbrl.results import Results


class What(StrEnum):
    """Tables about ranks."""

    ranks = "ranks"
    pairs = "pairs"
    orders = "orders"


def rank(
    folder: Folder,
    table: Annotated[
        What, typer.Option(help="ranks: agents, each beside the first; pairs: each beside each; orders: how firm each order is.")
    ] = What.ranks,
    experiment: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this experiment; may be repeated.")] = None,
    best_per_algorithm: Annotated[
        bool, typer.Option("--best-per-algorithm/--all", help="The best agent of each algorithm, or all agents.")
    ] = True,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples of the environments.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples.")] = 0,
    level: Annotated[float, typer.Option(help="Of each interval, between 0 and 1.")] = 0.95,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
) -> None:
    """Rank the agents of a study, and say how firm their ranks are.

    Agents are compared environment by environment (MDP by MDP): difference of the
    means, probability of improvement (how often one is better in an environment
    that both play), effect size d_z. The environments are resampled: rank_lower to
    rank_upper are the ranks they leave open, first is the share of resamples in
    which no other agent is better. With several experiments, '(all)' ranks agents
    that occur in each by their mean rank. Oracles do not compete.

    [bold]Examples[/bold]

    \b
    jbrl rank out/quick
    jbrl rank out/quick --experiment GC --table pairs --format csv > pairs.csv
    jbrl rank out/quick --all --table orders
    """
    from jbrl.analysis.mdp_bootstrap import check_level
    from jbrl.analysis.rank_stability import orders_table, pairs_table, ranks_table
    from jbrl.results import Results

    show_warnings()
    check_level(level)
    results = Results(folder)
    found = _orders(results, _experiments(results, experiment or [], best_per_algorithm), resamples, seed)
    tables = {What.ranks: ranks_table, What.pairs: pairs_table, What.orders: orders_table}
    shown = tables[table](found, level)
    print_table(_readable(shown, results) if format in (Format.table, Format.md) else shown, format)


def _experiments(results: "Results", names: list[str], best_per_algorithm: bool) -> list["Paired"]:
    """The agents of the experiments asked for, or of all."""
    from jbrl.analysis.pairing import pair
    from jbrl.report.chapters import oracles_of

    returns, known = results.returns, list(results.units["experiment"].unique())
    for name in names:
        if name not in known:
            raise JbrlError(f"--experiment: unknown experiment '{name}'{nearest(name, known)}")
    if names:
        returns = returns[returns["experiment"].isin(names)]
    missing = int((results.units["status"] != "done").sum())
    if returns.empty:
        raise JbrlError(f"{results.store.folder}: no scores{' of ' + ', '.join(names) if names else ''}: run the study first ('jbrl run')")
    if missing:
        complain(f"{missing} units of the study have no scores; ranks are of the others", "note")
    found = pair(returns, without=oracles_of(results.manifest))
    found = [paired.champions() for paired in found] if best_per_algorithm else found
    alone = [paired for paired in found if len(paired.agents) < 2]
    if len(alone) == len(found):
        hint = "; '--all' compares agents of the same algorithm" if best_per_algorithm else ""
        raise JbrlError(f"rank: experiment {alone[0].experiment}: {alone[0].name(0)} stands alone: expected two agents or more{hint}")
    for paired in alone:
        complain(f"experiment {paired.experiment} is left out: {paired.name(0)} stands alone", "note")
    return [paired for paired in found if len(paired.agents) > 1]


def _readable(table: "pd.DataFrame", results: "Results") -> "pd.DataFrame":
    """Parameters in words, and only those in which the agents of an algorithm differ."""
    from jbrl.report.text import parameters_text, varied

    shown = {name: varied(rows["parameters"]) or [] for name, rows in results.units.groupby("algorithm")}
    for who, parameters in (("algorithm", "parameters"), ("other", "other_parameters")):
        if who in table.columns:
            texts = [parameters_text(p, shown[a]) if p else "" for a, p in zip(table[who], table[parameters], strict=True)]
            table = table.assign(**{parameters: texts})
    return table


def _orders(results: "Results", experiments: list["Paired"], resamples: int, seed: int) -> list["Stability"]:
    """Each experiment by itself, then all together."""
    from jbrl.analysis.rank_stability import overall, rank_stability, resample_all

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
