"""`jbrl bsuite score`, `table`, `import`, `export` and `report`."""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.tables import Format, print_table
from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.bsuite.logs import Logs

USER_ERROR = 2
FOLDER = "A folder of CSV logs, a folder of such folders, results of 'jbrl run', or a table"
Places = Annotated[
    list[str],
    typer.Argument(metavar="PLACE", help=f"{FOLDER}; NAME=PLACE names its agent."),
]
Release = Annotated[
    str,
    typer.Option("--version", help="Release of the original whose rules count: 0.3.6 or 0.3.5."),
]


class Which(StrEnum):
    """Tables of scores."""

    experiments = "experiments"
    tags = "tags"
    settings = "settings"
    tests = "tests"


class Rows(StrEnum):
    """Environments of a score table."""

    experiments = "experiments"
    settings = "settings"


app = typer.Typer(
    help="The Behaviour Suite: score, report and exchange its logs, jbrl's or the original's.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command("score")
def score(
    places: Places,
    table: Annotated[
        Which,
        typer.Option(
            help="Scores of the 23 experiments, of the 7 tags or of the 468 settings; or tests "
            "of each two agents."
        ),
    ] = Which.experiments,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals",
            help="Add a 95% interval over runs to scores of experiments and tags. Default "
            "where settings were played several times.",
        ),
    ] = False,
    release: Release = "0.3.6",
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
) -> None:
    """Print the scores of one agent or several.

    A file that cannot be read is named on standard error and left out, and the exit
    code is 2; everything else is scored. Runs that are not finished are scored as the
    original does, and flagged.

    [bold]Examples[/bold]

    \b
    jbrl bsuite score logs/dqn
    jbrl bsuite score DQN=logs/dqn Random=out/random --table tags
    jbrl bsuite score logs --version 0.3.5 --format csv > scores.csv
    """
    from jbrl.stats.bsuite import scores

    logs = _read(places)
    played = Counter((run.agent, run.bsuite_id) for run in logs.runs)
    several = max(played.values()) > 1
    if table is Which.tests:
        found = scores.compare(logs, release)
    elif table is Which.settings:
        found = scores.setting_scores(logs, release)
    else:
        compute = scores.summary if table is Which.experiments else scores.tag_scores
        found = compute(logs, release, intervals=intervals or several)
    print_table(found, format)
    _finish(logs)


@app.command("table")
def table(
    places: Places,
    of: Annotated[
        Rows, typer.Option(help="An environment for each experiment, or for each setting.")
    ] = Rows.experiments,
    release: Release = "0.3.6",
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.csv,
) -> None:
    """Print the scores as a score table: algorithm, environment, score.

    There is one row for each time that an agent has played the sweep, so that 'jbrl
    evaluate' ranks agents over the 23 experiments. Settings come with the mean of the 23
    scores, suite_score, as a target for 'jbrl subset search'.

    [bold]Examples[/bold]

    \b
    jbrl bsuite table DQN=logs/dqn Random=out/random > scores.csv
    jbrl evaluate scores.csv
    jbrl bsuite table logs --of settings > settings.csv
    jbrl subset search settings.csv --target suite_score --size 2 --criterion loo
    """
    from jbrl.stats.bsuite.scores import score_table

    logs = _read(places)
    print_table(score_table(logs, release, of=of.value), format)
    _finish(logs)


@app.command("import")
def import_(
    places: Places,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write all rows as one table, CSV or Parquet."),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
) -> None:
    """Check logs and print what is there: runs, settings and episodes of each agent.

    All other commands read such folders as they are; with --to, many files become one
    table, which they read too.

    [bold]Example[/bold]

    \b
    jbrl bsuite import logs/dqn --to dqn.parquet
    """
    from jbrl.bsuite_logs import write_table

    logs = _read(places)
    if to is not None:
        write_table(logs, to)
    print_table(_contents(logs), format)
    _finish(logs)


@app.command("export")
def export(
    places: Places,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Output directory.")],
) -> None:
    """Write the CSV files of the original, which its own analysis reads.

    One agent with one run goes to FOLDER itself; several agents get a folder each, and
    several runs a folder run-0, run-1, … each.

    [bold]Example[/bold]

    \b
    jbrl bsuite export out/random --to logs/random
    """
    from jbrl.bsuite_logs import export as write

    logs = _read(places)
    paths = write(logs, to)
    typer.echo(f"{to}: {len(paths)} files")
    _finish(logs)


@app.command("report")
def report(
    places: Places,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write it.")],
    latex: Annotated[
        bool, typer.Option("--latex", help="A page for a paper's appendix as well, in DIR/latex.")
    ] = False,
    release: Release = "0.3.6",
) -> None:
    """Write one page with the radar, all scores and the detail plots of each experiment.

    Figures and tables are beside it as files: SVG, PNG and CSV.

    [bold]Example[/bold]

    \b
    jbrl bsuite report DQN=logs/dqn Random=out/random --out report --latex
    """
    from jbrl.report.bsuite.page import write_report

    logs = _read(places)
    for path in write_report(logs, out, release, latex=latex):
        typer.echo(path)
    _finish(logs)


def _read(places: list[str]) -> "Logs":
    """Read the logs, and print warnings about them on standard error.

    Raises:
      JbrlError: nothing can be read.
    """
    from jbrl.bsuite_logs import read_places
    from jbrl.stats.bsuite.scores import unfinished

    show_warnings()
    logs = read_places(places)
    if not logs.runs:
        raise JbrlError(_all_problems(logs))
    for note in (*logs.notes, *unfinished(logs)):
        complain(note, "note")
    return logs


def _all_problems(logs: "Logs") -> str:
    more = f" (and {len(logs.problems) - 1} more)" if len(logs.problems) > 1 else ""
    return f"{logs.problems[0]}{more}"


def _finish(logs: "Logs") -> None:
    """Name what could not be used, and end with an error if there is something."""
    from jbrl.stats.bsuite.scores import incomplete

    problems = [*logs.problems, *incomplete(logs)]
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(USER_ERROR)


def _contents(logs: "Logs") -> "pd.DataFrame":
    """Return one row per agent and experiment: settings, runs, rows, episodes."""
    import pandas as pd

    from jbrl.base.bsuite_sweep import EXPERIMENTS

    rows = []
    for agent in logs.agents:
        for name in logs.experiments:
            runs = logs.of(agent, name)
            if runs:
                ends = [run.episodes for run in runs]
                row: dict[str, Any] = {"agent": agent, "bsuite_env": name}
                row["settings"] = len({run.bsuite_id for run in runs})
                row |= {"of": len(EXPERIMENTS[name].settings), "runs": len(runs)}
                row |= {"fewest_episodes": min(ends), "most_episodes": max(ends)}
                row["finished"] = sum(run.finished for run in runs)
                rows.append(row)
    return pd.DataFrame(rows)
