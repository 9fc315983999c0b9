"""`jbrl bsuite score`, `table`, `import`, `export` and `report`."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.options import Format
from jbrl.cli.output import complain, print_table

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.bsuite.logs import Logs

USER_ERROR = 2
Places = Annotated[
    list[str],
    typer.Argument(
        metavar="PLACE",
        help="A folder of CSV logs, a folder of such folders, results of 'jbrl run', or a table; "
        "NAME=PLACE names its agent.",
    ),
]
Release = Annotated[
    str,
    typer.Option("--version", help="Release of the original whose rules count: 0.3.6 or 0.3.5."),
]
HELP = "The Behaviour Suite: score, report and exchange its logs, jbrl's or the original's."


def score(
    places: Places,
    *,
    table: Literal["experiments", "tags", "settings", "tests"] = "experiments",
    intervals: bool = False,
    release: Release = "0.3.6",
    format: Format = "table",
) -> None:
    """Print the scores of one agent or several.

    A file that cannot be read is named on standard error and left out, and the exit
    code is 2; everything else is scored. Runs that are not finished are scored as the
    original does, and flagged.

    Args:
      table: Scores of the 23 experiments, of the 7 tags or of the 468 settings; or tests of each
        two agents.
      intervals: Add a 95% interval over runs to scores of experiments and tags. Default where
        settings were played several times.
      format: How to print it.

    Examples:
      jbrl bsuite score logs/dqn
      jbrl bsuite score DQN=logs/dqn Random=out/random --table tags
      jbrl bsuite score logs --version 0.3.5 --format csv > scores.csv
    """
    from jbrl.stats.bsuite import scores

    logs = _read(places)
    if table == "tests":
        rows = scores.compare(logs, release)
    elif table == "settings":
        rows = scores.setting_scores(logs, release)
    else:
        runs = Counter((run.agent, run.bsuite_id) for run in logs.runs)
        compute = scores.summary if table == "experiments" else scores.tag_scores
        rows = compute(logs, release, intervals=intervals or max(runs.values()) > 1)
    print_table(rows, format)
    _finish(logs)


def table(
    places: Places,
    *,
    of: Literal["experiments", "settings"] = "experiments",
    release: Release = "0.3.6",
    format: Format = "csv",
) -> None:
    """Print the scores as a score table: algorithm, environment, score.

    There is one row for each time that an agent has played the sweep, so that 'jbrl
    evaluate' ranks agents over the 23 experiments. Settings come with the mean of the 23
    scores, suite_score, as a target for 'jbrl subset search'.

    Args:
      of: An environment for each experiment, or for each setting.
      format: How to print it.

    Examples:
      jbrl bsuite table DQN=logs/dqn Random=out/random > scores.csv
      jbrl evaluate scores.csv
      jbrl bsuite table logs --of settings > settings.csv
      jbrl subset search settings.csv --target suite_score --size 2 --criterion loo
    """
    from jbrl.stats.bsuite.scores import score_table

    logs = _read(places)
    print_table(score_table(logs, release, of=of), format)
    _finish(logs)


def import_(places: Places, *, to: Path | None = None, format: Format = "table") -> None:
    """Check logs and print what is there: runs, settings and episodes of each agent.

    All other commands read such folders as they are; with --to, many files become one
    table, which they read too.

    Args:
      to (FILE): Write all rows as one table, CSV or Parquet.
      format: How to print it.

    Example:
      jbrl bsuite import logs/dqn --to dqn.parquet
    """
    from jbrl.bsuite_logs import write_table

    logs = _read(places)
    if to is not None:
        write_table(logs, to)
    print_table(_contents(logs), format)
    _finish(logs)


def export(places: Places, *, to: Path) -> None:
    """Write the CSV files of the original, which its own analysis reads.

    One agent with one run goes to FOLDER itself; several agents get a folder each, and
    several runs a folder run-0, run-1, … each.

    Args:
      to (FOLDER): Output directory.

    Example:
      jbrl bsuite export out/random --to logs/random
    """
    from jbrl.bsuite_logs import export as write

    logs = _read(places)
    typer.echo(f"{to}: {len(write(logs, to))} files")
    _finish(logs)


def report(places: Places, *, out: Path, latex: bool = False, release: Release = "0.3.6") -> None:
    """Write one page with the radar, all scores and the detail plots of each experiment.

    Figures and tables are beside it as files: SVG, PNG and CSV.

    Args:
      out (DIR): Where to write it.
      latex: A page for a paper's appendix as well, in DIR/latex.

    Example:
      jbrl bsuite report DQN=logs/dqn Random=out/random --out report --latex
    """
    from jbrl.report.bsuite import write_report

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

    logs = read_places(places)
    if not logs.runs:
        more = f" (and {len(logs.problems) - 1} more)" if len(logs.problems) > 1 else ""
        raise JbrlError(f"{logs.problems[0]}{more}")
    for note in (*logs.notes, *unfinished(logs)):
        complain(note, "note")
    return logs


def _finish(logs: "Logs") -> None:
    """Name what could not be used, and end with an error if there is something."""
    from jbrl.stats.bsuite.scores import incomplete

    problems = [*logs.problems, *incomplete(logs)]
    for problem in problems:
        complain(" ".join(problem.splitlines()))
    if problems:
        raise typer.Exit(USER_ERROR)


def _contents(logs: "Logs") -> "pd.DataFrame":
    """Return one row per agent and experiment: settings, runs, rows, episodes."""
    import pandas as pd

    from jbrl.base.bsuite_sweep import EXPERIMENTS

    rows: list[dict[str, Any]] = []
    for agent in logs.agents:
        for name in logs.experiments:
            if runs := logs.of(agent, name):
                episodes = [run.episodes for run in runs]
                rows.append(
                    {
                        "agent": agent,
                        "bsuite_env": name,
                        "settings": len({run.bsuite_id for run in runs}),
                        "of": len(EXPERIMENTS[name].settings),
                        "runs": len(runs),
                        "fewest_episodes": min(episodes),
                        "most_episodes": max(episodes),
                        "finished": sum(run.finished for run in runs),
                    }
                )
    return pd.DataFrame(rows)
