"""`jbrl evaluate`."""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jbrl.cli.tables import Format, print_table
from jbrl.cli.text import complain, duration, show_warnings

if TYPE_CHECKING:
    import pandas as pd

    from jbrl.stats.evaluation.ranking import Evaluation, Options
    from jbrl.stats.evaluation.samples import Samples


LONG = 10  # seconds from which on a method's time is printed beforehand


class Method(StrEnum):
    """Ways to compute intervals."""

    pbp = "pbp"
    pbp_t = "pbp-t"
    bootstrap = "bootstrap"
    all = "all"


class Table(StrEnum):
    """Tables of an evaluation."""

    aggregate = "aggregate"
    environments = "environments"
    weights = "weights"
    metrics = "metrics"


class Quantile(StrEnum):
    """Quantiles of PBP-t."""

    code = "code"
    paper = "paper"


class Interval(StrEnum):
    """Intervals from bootstrap resamples."""

    percentile = "percentile"
    bca = "bca"


def evaluate(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE",
            help=(
                "Score tables (CSV, Parquet; long or wide), arrays (JSON, npz), or directories of "
                "results."
            ),
        ),
    ],
    delta: Annotated[
        float, typer.Option(help="Probability that any interval misses, above 0 up to 0.5.")
    ] = 0.05,
    method: Annotated[Method, typer.Option(help="Method of the intervals.")] = Method.pbp,
    bounds: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Columns environment, low, high: what scores can be (default: the extremes "
                "observed)."
            ),
        ),
    ] = None,
    identical: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Columns environment, algorithm, algorithm: which are the same definition there.",
        ),
    ] = None,
    algorithms: Annotated[str | None, typer.Option(metavar="A,B…", help="Only these.")] = None,
    environments: Annotated[str | None, typer.Option(metavar="X,Y…", help="Only these.")] = None,
    algorithm_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Column of algorithms. May be repeated: the names are joined.",
        ),
    ] = None,
    environment_column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Column of environments. May be repeated: the names are joined.",
        ),
    ] = None,
    score_column: Annotated[str, typer.Option(metavar="NAME", help="Column of scores.")] = "score",
    resamples: Annotated[int, typer.Option(help="Number of bootstrap resamples.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of all resampling.")] = 0,
    interval: Annotated[
        Interval, typer.Option(help="Type of the bootstrap intervals.")
    ] = Interval.percentile,
    quantile: Annotated[
        Quantile,
        typer.Option(
            help="PBP-t quantiles: as in the published program, or as in the paper's text."
        ),
    ] = Quantile.code,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Keep two defects of the published program, to compare with it."
        ),
    ] = False,
    plug_in: Annotated[
        bool,
        typer.Option(
            "--plug-in",
            help=(
                "Compare an algorithm with itself by its samples, as in the paper's text, instead "
                "of counting 1/2."
            ),
        ),
    ] = False,
    oracles: Annotated[
        bool,
        typer.Option(
            "--oracles",
            help=(
                "Of directories of results, take algorithms that see the environment itself as "
                "well."
            ),
        ),
    ] = False,
    metrics: Annotated[
        bool,
        typer.Option(
            "--metrics",
            help="Add mean, median, IQM, optimality gap, profiles, probability of improvement.",
        ),
    ] = False,
    table: Annotated[Table, typer.Option(help="Table to print, unless as JSON.")] = Table.aggregate,
    format: Annotated[
        Format, typer.Option(help="Output format; JSON has all tables.")
    ] = Format.table,
    html: Annotated[
        bool, typer.Option("--html", help="Write a page with all tables and figures.")
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Write the tables for a paper.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Output directory (default: beside the first TABLE)."
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(help="Refuse a method that is expected to take longer.", min=0)
    ] = 60,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print no notes about time and about open ranks."),
    ] = False,
) -> None:
    """Evaluate a table of scores: which algorithm performs well, and how sure is that?

    A score table has one row per trial, with the columns algorithm, environment,
    score. Scores of different environments are made comparable by ranking
    algorithms against each other, and weighed by a game against an adversary
    (Jordan et al. 2020). Intervals by pbp hold all together; pbp-t and bootstrap
    are narrower and have no guarantee.

    [bold]Examples[/bold]

    \b
    jbrl evaluate scores.csv
    jbrl evaluate scores.parquet --method all --html --latex --out evaluation
    jbrl evaluate out/quick --format json
    jbrl evaluate runs.csv --algorithm-column agent --environment-column task --score-column return
    """
    from jbrl.stats.evaluation.ranking import METHODS, Options
    from jbrl.stats.evaluation.ranking import evaluate as evaluated

    show_warnings()
    columns = {
        "algorithm": algorithm_column,
        "environment": environment_column,
        "score": [score_column],
    }
    rows = _read(
        tables, {name: tuple(value) for name, value in columns.items() if value}, oracles=oracles
    )
    samples = _samples(rows, algorithms, environments, bounds, identical, plug_in=plug_in)
    methods = METHODS if method is Method.all else (method.value,)
    options = Options(delta, quantile.value, published, resamples, seed, interval.value)
    _check_effort(samples, methods, resamples, minutes, quiet=quiet)
    if "bootstrap" in methods or metrics:
        from jbrl.play.batching import use_all_cores

        use_all_cores()
    from jbrl.cli.progress import Steps

    with Steps() as steps:
        found = evaluated(samples, methods, options, steps.tell)
        extras = _extras(samples, options, steps) if metrics or table is Table.metrics else {}
    if html or latex:
        _write(found, out or _beside(tables[0]), extras, html=html, latex=latex)
    if format is Format.json:
        typer.echo(
            json.dumps(
                found.record()
                | ({"metrics": extras["metrics"].to_dict("records")} if extras else {}),
                indent=1,
            )
        )
    else:
        print_table(
            extras["metrics"] if table is Table.metrics else getattr(found, table.value), format
        )
    for sentence in () if quiet else _doubts(found, seed):
        complain(sentence, "note")


def _read(
    paths: list[Path], columns: dict[str, tuple[str, ...]], *, oracles: bool
) -> "pd.DataFrame":
    """Read the score tables of files and directories of results, one after the other."""
    import pandas as pd

    from jbrl.stats.score_files import read_score_table
    from jbrl.stats.score_table import together

    parts: list[tuple[str, pd.DataFrame]] = []
    for path in paths:
        if path.is_dir():
            from jbrl.results import Results

            parts.append((str(path), Results(path).score_table(oracles=oracles, trials=True)))
        else:
            parts.append((str(path), read_score_table(path, columns=columns, trials=True)))
    return together(parts)


def _check_effort(
    samples: "Samples", methods: Sequence[str], resamples: int, minutes: float, *, quiet: bool
) -> None:
    """Refuse what takes too much; print how long it takes where that is long."""
    from jbrl.stats.evaluation.samples import check_effort, effort

    n, m = samples.shape
    costs = effort(n, m, int(samples.totals.sum()), methods, resamples)
    check_effort(costs, n, m, minutes)
    for cost in costs:
        if cost.seconds > LONG and not quiet:
            memory = f"{cost.bytes / 1e9:.1f} GB at most"
            complain(f"{cost.method}: about {duration(cost.seconds)}, {memory}", "note")


def _doubts(found: "Evaluation", seed: int) -> list[str]:
    """Return the explanation where bounds separate no algorithms."""
    rows = found.aggregate[found.aggregate["method"] == "pbp"].set_index("algorithm")
    if rows.empty:
        return []
    from jbrl.stats.evaluation.separation import separation

    ends = rows.loc[list(found.samples.algorithms), ["lower", "upper"]].to_numpy().T
    told = separation(found.samples, ends[0], ends[1], found.settings["delta"], seed)
    return told.sentences() if told else []


def _samples(
    rows: "pd.DataFrame",
    algorithms: str | None,
    environments: str | None,
    bounds: Path | None,
    identical: Path | None,
    *,
    plug_in: bool,
) -> "Samples":
    """Return the samples, restricted to the selected ones, with the contents of companion files."""
    from jbrl.stats.evaluation.samples import samples_of
    from jbrl.stats.score_files import read_companion
    from jbrl.stats.score_table import restrict

    everything = rows
    rows = restrict(rows, algorithms=_names(algorithms), environments=_names(environments))
    limits = pairs = None
    if bounds is not None:
        given = read_companion(bounds, ["environment"], ["low", "high"])
        limits = {name: (low, high) for name, low, high in given.itertuples(index=False, name=None)}
    if identical is not None:
        given = read_companion(identical, ["environment", "algorithm", "algorithm"])
        pairs = [
            row
            for row in given.itertuples(index=False, name=None)
            if not _left_out(row, everything, rows)
        ]
    return samples_of(rows, bounds=limits, identical=pairs or (), self_half=not plug_in)


def _left_out(pair: tuple[str, str, str], everything: "pd.DataFrame", rows: "pd.DataFrame") -> bool:
    """Return whether a declaration is about something that --algorithms or --environments leave
    out; a misspelt name is not.
    """
    environment, *names = pair
    named = [("environment", environment), *(("algorithm", name) for name in names)]
    return any(
        name in everything[column].unique() and name not in rows[column].unique()
        for column, name in named
    )


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _extras(samples: "Samples", options: "Options", steps: Any) -> "dict[str, pd.DataFrame]":
    """Return tables of metrics that are not the paper's."""
    from jbrl.stats.evaluation import metrics

    given: dict[str, Any] = {"delta": options.delta, "seed": options.seed}
    found = {}
    ways: dict[str, Callable[..., Any]] = {
        "metrics": metrics.metrics,
        "profiles": metrics.performance_profiles,
        "improvement": metrics.probability_of_improvement,
    }
    for number, (name, compute) in enumerate(ways.items()):
        steps.tell("metrics", number, len(ways))
        found[name] = compute(samples, **given)
    steps.tell("metrics", len(ways), len(ways))
    return found


def _beside(path: Path) -> Path:
    """Return the default place of output: in a directory of results, or beside a file."""
    return (
        path / "evaluation"
        if path.is_dir()
        else path.with_name(f"{path.name.split('.')[0]}-evaluation")
    )


def _write(
    found: "Evaluation", out: Path, extras: "dict[str, pd.DataFrame]", *, html: bool, latex: bool
) -> None:
    from jbrl.report.evaluation_page import write_evaluation

    for path in write_evaluation(found, out, extras=extras, html=html, latex=latex):
        if path.suffix in (".html", ".tex"):
            typer.echo(path, err=True)
