"""`jbrl status`, `scores`, `returns`, `strategies`, `report` and `archive`: how far a study is and
what it has found.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from jbrl.cli.options import Folder, Format, Natural, Positive
from jbrl.cli.output import (
    complain,
    count,
    duration,
    fitting,
    for_people,
    print_table,
    terminal_width,
)

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.report.files import Form
    from jbrl.results import Results
    from jbrl.study.status import Status, Worker

FAILURES = 20  # that `jbrl status` lists
# columns of scores that a table for people lacks, and those that it has where they differ
BESIDE = (
    *("std", "offline_seconds_spread", "online_seconds_spread"),
    *("offline_processor_seconds", "online_processor_seconds"),
)
ONE_VALUED = ("device", "seed", "criterion", "lifetime", "parameters")
# columns that a narrow terminal goes without, the first one first
SPARED = (
    *(("compile",), ("alone",), ("latency p99",), ("latency",), ("prior",), ("n",), ("test",)),
    ("share low", "share high"),
)
TRIED_SPARED = (("simulated",), ("consumed",), ("offline",), ("std",), ("discarded",))
LEFT_OUT = "no place for {}: --format csv has all columns"
ParameterColumns = Annotated[
    bool, typer.Option(help="One column for each parameter, instead of the column parameters.")
]


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    *,
    watch: Positive | None = None,
    format: Literal["text", "json"] = "text",
) -> None:
    """Show the progress of a study: done, failed and why, running, queued, left, and the time left.

    Works while it runs, here or on a cluster, and afterwards.

    Args:
      folder: Directory of results.
      watch (SECONDS): Repeat at this interval, until nothing is running or queued.
      format: Output format.

    Examples:
      jbrl status out/quick
      jbrl status out/quick --watch 10
    """
    from jbrl.study.status import Observer

    observer, console = Observer(folder), Console()
    while True:
        state = observer.look()
        if watch and console.is_terminal:
            console.clear()
        typer.echo(
            json.dumps(state.as_dict()) if format == "json" else "\n".join(lines(state, folder))
        )
        if not (watch and state.active):
            return
        time.sleep(watch)


def lines(state: "Status", folder: Path) -> list[str]:
    """Describe the state: a summary, and a line for each failure, each process and each group of
    queued tasks.
    """
    counts = [f"{state.done} of {state.units} units done"]
    counts += [f"{len(state.failed)} failed"] if state.failed else []
    counts += [f"{state.left} left"] if state.left else []
    text = [f"{state.study}: {', '.join(counts)}{_time_left(state)}"]
    for unit, reason in list(state.failed.items())[:FAILURES]:
        text.append(f"  failed   {unit}: {reason.partition(chr(10))[0]}")
    if len(state.failed) > FAILURES:
        text.append(f"  failed   … and {len(state.failed) - FAILURES} more")
    if state.outside:
        text.append(
            f"  done     with {', '.join(state.outside)} as the source was then: if it has "
            "changed, 'jbrl run' plays anew"
        )
    alone = state.seconds_left is None
    text += [f"  running  {_work(w, alone=alone)}" for w in state.workers if w.alive]
    text += [
        f"  waiting  {count(len(group.tasks), 'task')}, {count(len(group.units), 'unit')} "
        f"({group.why})"
        for group in state.waiting
    ]
    text += [
        f"  lost     {_who(worker)}: no heartbeat for {duration(worker.silent)}, at "
        f"{worker.unit or 'the start'}"
        for worker in state.workers
        if not worker.alive
    ]
    tasks_by_state = defaultdict(list)
    for task, ended in state.ended.items():
        tasks_by_state[ended].append(task)
    for ended, tasks in tasks_by_state.items():
        text.append(
            f"  ended    {ended} before the units were done: {count(len(tasks), 'task')} "
            f"{' '.join(tasks[:8])}"
        )
    if state.unheard and state.left:
        text.append(
            "SLURM cannot be asked from here (squeue does not answer): of its queue nothing is "
            "known."
        )
    if (state.left or state.failed) and not state.active:
        text.append(
            f"Nothing is running: 'jbrl run' with --out {folder} goes "
            f"on{' and tries again what failed' if state.failed else ''}."
        )
    return text


def _time_left(state: "Status") -> str:
    if state.seconds_left is not None and state.left:
        return f", about {duration(state.seconds_left)} to go"
    if state.work_left is not None and state.left:
        return f", about {duration(state.work_left)} of work"
    return ""


def _work(worker: "Worker", *, alone: bool) -> str:
    """Describe the work of a process; `alone`: and the time it will take, since that of the whole
    study is not known.
    """
    if worker.unit is None:
        what = "between two units"
    elif worker.search:
        what = f"{worker.unit}: search {worker.search[0]:,}/{worker.search[1]:,}"
    elif worker.n:
        what = f"{worker.unit}: {worker.n}/{worker.of} lifetimes"
    else:
        what = f"{worker.unit}: begins"
    facts = [_who(worker), f"for {duration(worker.seconds)}"]
    if len(worker.left) > 1:
        facts.append(f"{count(len(worker.left) - 1, 'unit')} to come")
    if alone and worker.seconds_left is not None:
        facts.append(f"about {duration(worker.seconds_left)} to go")
    return f"{what} ({', '.join(facts)})"


def _who(worker: "Worker") -> str:
    process = f"task {worker.task}" if worker.task else f"process {worker.pid}"
    return f"{process} on {worker.host}"


def scores(
    folder: Folder, *, format: Format = "table", parameter_columns: ParameterColumns = False
) -> None:
    """Print one row per unit: mean score, its 95% interval, and the times.

    A score is the discounted return on an MDP; in other environments, it is the
    mean return per episode of a lifetime. Times are wall seconds: offline in all;
    online per decision, amortised over the MDPs or environments played at once;
    latency of one decision to a caller who plays one lifetime, median and 99th
    percentile; compile for the unit that had to compile. Status is done, failed or missing.

    share_low and share_high, where a bracket of the Bayes-optimal value is kept:
    the least and the greatest part of it that the mean can be; empty for agents
    that are shown the MDP.

    Args:
      format: Output format.

    Examples:
      jbrl scores out/quick
      jbrl scores out/quick --format csv > scores.csv
      jbrl scores out/quick --parameter-columns --format csv > wide.csv
    """
    from jbrl.results import Results
    from jbrl.stats.brackets import of_experiments, with_digests, with_shares
    from jbrl.stats.table import oracles_of

    results = Results(folder)
    table = _with_rules(results) if format in ("table", "md") else results.scores
    brackets = of_experiments(with_digests(results.manifest, results.units))
    table = with_shares(table, brackets, oracles_of(results.manifest))
    if format == "table" and not parameter_columns:
        shown = table.drop(columns=[name for name in BESIDE if name in table])
        shown, left = fitting(for_people(shown, results.units, ONE_VALUED), SPARED)
        print_table(shown, format, terminal_width())
        if left:
            complain(LEFT_OUT.format(", ".join(left)), "note")
    else:
        print_table(_in_columns(table) if parameter_columns else table, format)
    for unit in results.units.query("status == 'failed'").itertuples():
        complain(
            f"{unit.experiment}/{unit.algorithm} {unit.parameters} seed {unit.seed}: {unit.reason}",
            "failed",
        )
    for text in nan_notes(results):
        complain(text, "note")


def _in_columns(table: "pd.DataFrame") -> "pd.DataFrame":
    from jbrl.stats.table import parameter_columns

    return parameter_columns(table)


def _with_rules(results: "Results") -> "pd.DataFrame":
    """Return the scores with their criterion and the length of lifetimes, where some are no
    discounted returns; without priors that carry no information.
    """
    from jbrl.report.text import MDPS, Rules, rules_of

    table, known = results.scores.copy(), rules_of(results.manifest)
    if all(rules.terms is MDPS for rules in known.values()):
        return table
    rules = [known.get(name, Rules()) for name in table["experiment"]]
    place = table.columns.get_loc("n")
    table.insert(place, "criterion", [one.criterion for one in rules])
    table.insert(place + 1, "lifetime", [one.lifetime for one in rules])
    return table.drop(columns="prior") if (table["prior"] == table["test"]).all() else table


def nan_notes(results: "Results") -> Iterator[str]:
    """Describe the units in which agents have met NaN and have gone on."""
    for unit in results.manifest["units"]:
        met = results.undefined(unit["id"])
        if met is not None and met.any():
            yield (
                f"{unit['experiment']}/{unit['algorithm']} seed {unit['seed']}: {met.sum():,} of "
                f"{len(met):,} lifetimes with NaN, as weights that overflow make it: updates were "
                "skipped or steps were undefined, and their scores count"
            )


def returns(
    folder: Folder, *, format: Format = "csv", parameter_columns: ParameterColumns = False
) -> None:
    """Print the score table: one row per MDP or environment of each finished unit.

    With the same seed, the same number in column unit is the same environment for
    every agent of an experiment.

    Args:
      format: Output format.

    Example:
      jbrl returns out/quick --format csv > returns.csv
    """
    from jbrl.results import Results

    table = Results(folder).returns
    print_table(_in_columns(table) if parameter_columns else table, format)


def strategies(folder: Folder, *, top: Positive = 5, format: Format = "table") -> None:
    """Print what agents that search offline have tried, and how often.

    One search serves all experiments with the same prior. Consumed and simulated
    are trajectories of the whole search: made use of, and played. A training has a
    row for each stretch of it, up to 50.

    Args:
      top: Strategies of each search, the most pulled first; of each training, stretches in order,
        evenly spaced up to the last.
      format: Output format.

    Examples:
      jbrl strategies out/quick
      jbrl strategies out/quick --top 10000 --format csv > strategies.csv
    """
    from jbrl.results import Results
    from jbrl.stats.table import few

    results = Results(folder)
    tried = results.strategies
    if tried.empty:
        complain(f"{folder}: no agent of this study has searched", "note")
    shown = few(tried, top)
    left: list[str] = []
    if format == "table":
        shown = for_people(shown, results.units, ("seed", "parameters"))
        shown, left = fitting(shown, TRIED_SPARED)
    print_table(shown, format, terminal_width())
    if left:
        complain(LEFT_OUT.format(", ".join(left)), "note")


def report(
    folder: Folder,
    *,
    out: Path | None = None,
    html: bool = False,
    latex: bool = False,
    markdown: bool = False,
) -> None:
    """Write the report of a study, in one form or several, and print the path of each.

    Args:
      out (DIR2): Output directory (default: DIR/report).
      html: One page, with tables as CSV and Markdown beside it: what is written by default.
      latex: LaTeX source with figures as PDF, in DIR2/latex.
      markdown: One Markdown page with figures as SVG, in DIR2/markdown.

    Examples:
      jbrl report out/quick
      jbrl report out/quick --html --latex
    """
    from jbrl.results import Results

    results = Results(folder)
    wanted: dict[Form, bool] = {"html": html, "latex": latex, "markdown": markdown}
    for form in [form for form in wanted if wanted[form]] or ["html"]:
        typer.echo(results.report(out, form))


def archive(folder: Folder, *, out: Path, decimals: Natural | None = None) -> None:
    """Write the scores of a study as a few small files, to be kept or handed on.

    study.json, units.parquet, returns.parquet, and strategies.parquet where agents
    have searched: what jbrl scores, returns, rank, strategies, report and compare
    read like the directory itself. Trajectories stay behind.

    Args:
      out (DIR2): Output directory.
      decimals: Digits after the point of each return (default: all).

    Example:
      jbrl archive out/paper --out kept/paper --decimals 3
    """
    from jbrl.results import Results

    for path in Results(folder).archive(out, decimals=decimals):
        typer.echo(path)
