"""Statistics of any scores as functions: what `jbrl evaluate` and `jbrl subset` print.

A source of scores is a file (`jbrl.stats.score_files`), results of a study or an archive of them
(a folder or `jbrl.Results`), or a table in memory with the columns algorithm, environment, score.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from jbrl.base.errors import JbrlError, JbrlWarning, expect, listed
from jbrl.base.schema import AGENT
from jbrl.results import Results
from jbrl.stats.evaluation import EvaluateOptions
from jbrl.stats.evaluation.ranking import Evaluation
from jbrl.stats.evaluation.ranking import evaluate as evaluate_samples
from jbrl.stats.evaluation.samples import Effort, Samples, check_effort, effort, samples_of
from jbrl.stats.score_files import check_trials, read_companion, read_score_table
from jbrl.stats.score_table import LABELS, SCORE_TABLE, alike, check_score_table, restrict, together
from jbrl.stats.table import agent_names, check_columns, oracles_of

if TYPE_CHECKING:  # subsets need JAX, evaluations mostly do not
    from jbrl.stats.subset.preparation import Preparation
    from jbrl.stats.subset.problem import Search
    from jbrl.stats.subset.search import Outcome

Source: TypeAlias = str | Path | pd.DataFrame | Results
Place: TypeAlias = str | Path | pd.DataFrame
Progress = Callable[[str, int, int], Any]  # what is being done, how much is done, and of how much
LOW, HIGH = "Random", "Optimal"  # the algorithms whose scores are the references of a study


def evaluate(
    sources: Source | Sequence[Source] | Samples,
    options: EvaluateOptions | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate scores: which algorithm performs well, and how sure is that (Jordan et al. 2020).

    Args:
      sources: one or several, whose rows are joined; or what `samples_from` has made of them.

    Raises:
      JbrlError: a source cannot be read, trials occur twice, an option is not accepted, or a method
        would take more than `minutes` or too much memory.

    >>> scores = pd.DataFrame({"algorithm": [*"aabb"], "environment": "x", "score": [1, 2, 3, 4]})
    >>> jbrl.evaluate(scores).aggregate["algorithm"].tolist()
    ['b', 'a']
    """
    options = options or EvaluateOptions()
    samples = samples_from(sources, options)
    costs(samples, options)
    return evaluate_samples(samples, options.methods, options, progress)


def metrics(
    sources: Source | Sequence[Source] | Samples,
    options: EvaluateOptions | None = None,
    progress: Progress | None = None,
) -> dict[str, pd.DataFrame]:
    """Return the statistics of Agarwal et al. 2021: tables `metrics` (mean, median, IQM, optimality
    gap), `profiles` (performance profiles) and `improvement` (probability of improvement).

    Raises:
      JbrlError: see `evaluate`.

    >>> trials = itertools.product(["a", "b"], ["x", "y"], range(6))
    >>> rows = [(a, e, n + (a == "b")) for a, e, n in trials]
    >>> table = pd.DataFrame(rows, columns=["algorithm", "environment", "score"])
    >>> sorted(jbrl.metrics(table))
    ['improvement', 'metrics', 'profiles']
    """
    from jbrl.stats.evaluation import metrics as statistics

    options = options or EvaluateOptions()
    samples = samples_from(sources, options)
    ways: dict[str, Callable[..., pd.DataFrame]] = {
        "metrics": statistics.metrics,
        "profiles": statistics.performance_profiles,
        "improvement": statistics.probability_of_improvement,
    }
    tables = {}
    for number, (name, compute) in enumerate(ways.items(), 1):
        tables[name] = compute(samples, delta=options.delta, seed=options.seed)
        if progress:
            progress("metrics", number, len(ways))
    return tables


def costs(samples: Samples, options: EvaluateOptions) -> list[Effort]:
    """Estimate time and memory of each method of an evaluation.

    Raises:
      JbrlError: one takes more than `minutes`, or too much memory.
    """
    n, m = samples.shape
    efforts = effort(n, m, int(samples.totals.sum()), options.methods, options.resamples)
    check_effort(efforts, n, m, options.minutes)
    return efforts


def samples_from(
    sources: Source | Sequence[Source] | Samples, options: EvaluateOptions | None = None
) -> Samples:
    """Return the scores of sources as `evaluate` takes them.

    Raises:
      JbrlError: see `evaluate`.
    """
    if isinstance(sources, Samples):
        return sources
    options = options or EvaluateOptions()
    expect("options", options, EvaluateOptions, "jbrl.EvaluateOptions(…)")
    given: Any = sources
    if isinstance(given, Source) or not isinstance(given, Iterable):
        given = [given]
    places = [_place(source) for source in given]
    studies = {
        number: Results(place)
        for number, place in enumerate(places)
        if not isinstance(place, pd.DataFrame) and Path(place).is_dir()
    }
    agents = [one.returns[list(AGENT[1:])].drop_duplicates() for one in studies.values()]
    # of all studies together: an algorithm may have other parameters in another one
    names = agent_names(who for rows in agents for who in rows.itertuples(index=False, name=None))
    tables = [
        (str(place), studies[number].score_table(oracles=options.oracles, trials=True, names=names))
        if number in studies
        else _trials(place, number + 1, options)
        for number, place in enumerate(places)
    ]
    every = together(tables)
    if every.empty:  # files have rows
        raise JbrlError(
            f"{', '.join(map(str, places))}: no scores: expected a unit that is done, of an agent "
            "that does not see the environment itself"
        )
    rows = restrict(every, algorithms=options.algorithms, environments=options.environments)
    for column in LABELS:
        for sentence in alike(rows[column].unique()):
            warnings.warn(f"{column}s {sentence}", JbrlWarning, stacklevel=2)
    bounds, identical = None, []
    if options.bounds is not None:
        given = read_companion(options.bounds, ["environment"], ["low", "high"])
        twice = given["environment"][given["environment"].duplicated()]
        if len(twice):
            raise JbrlError(
                f"{options.bounds}: environment '{twice.iloc[0]}' occurs twice: expected one row "
                "for each"
            )
        bounds = {name: (low, high) for name, low, high in given.itertuples(index=False, name=None)}
    if options.identical is not None:
        given = read_companion(options.identical, ["environment", "algorithm", "algorithm"])
        left_out = {  # a misspelt name is in neither
            column: set(every[column]) - set(rows[column])
            for column in ("environment", "algorithm")
        }
        identical = [
            (place, one, other)
            for place, one, other in given.itertuples(index=False, name=None)
            if place not in left_out["environment"] and not left_out["algorithm"] & {one, other}
        ]
    return samples_of(rows, bounds=bounds, identical=identical, self_half=not options.plug_in)


def _place(source: Source) -> Place:
    """Return the folder of results; other sources are returned as they are.

    Raises:
      JbrlError: none of the kinds of source.
    """
    expect("scores", source, Source, "a file, a table of pandas, or results of a study")
    return source.store.folder if isinstance(source, Results) else source


def _trials(source: Place, number: int, options: EvaluateOptions) -> tuple[str, pd.DataFrame]:
    """Return the name of a source, and its score table with the columns that distinguish trials."""
    if isinstance(source, pd.DataFrame):
        name = f"table {number}"
        check_columns(source, SCORE_TABLE, name)
        if "seed" in source and "unit" not in source:
            check_trials(source, name)
        return name, source
    columns = {
        "algorithm": options.algorithm_column,
        "environment": options.environment_column,
        "score": [options.score_column],
    }
    mapping = {name: tuple(value) for name, value in columns.items() if value}
    return str(source), read_score_table(source, columns=mapping, trials=True)


def subset(
    source: Source,
    search: "Search | None" = None,
    preparation: "Preparation | None" = None,
    *,
    references: Place | None = None,
    columns: Mapping[str, str] | None = None,
    ask: Sequence[Sequence[str]] = (),
    progress: Callable[[int, int], None] | None = None,
) -> "Outcome":
    """Search for the few environments that predict the summary score over all of them best
    (Aitchison et al. 2022).

    Args:
      search: which subsets, and how they are compared (default: five environments, by 10-fold
        cross-validation).
      preparation: how scores become comparable, and what is predicted (default: medians; log10 of
        scores in per cent of the references of a file, per cent for a study, else as they are).
      references: columns environment, low, high (default: of a study, the means of Random and
        Optimal).
      columns: where the columns algorithm, environment, score are found, if elsewhere.
      ask: subsets whose place among all is wanted.
      progress: called with how many subsets are done and how many there are.

    Raises:
      JbrlError: the source cannot be read or used, or a setting is not accepted.
    """
    from jbrl.stats.subset.preparation import Preparation, prepare
    from jbrl.stats.subset.problem import Search
    from jbrl.stats.subset.search import search as search_all

    source = _place(source)
    expect("search", search, Search | None, "a Search of jbrl.stats.subset.problem")
    expect(
        "preparation",
        preparation,
        Preparation | None,
        "a Preparation of jbrl.stats.subset.preparation",
    )
    table, known = subset_table(source, columns, references)
    name = "table" if isinstance(source, pd.DataFrame) else str(source)
    prepared = prepare(table, preparation or preparation_of(source, known), known, name=name)
    asked = tuple(map(tuple, ask))
    return search_all(prepared, search or Search(), asked=asked, progress=progress)


def preparation_of(source: Place, references: pd.DataFrame | None) -> "Preparation":
    """Return how scores of a source are prepared, unless told otherwise."""
    from jbrl.stats.subset.preparation import Preparation

    study = not isinstance(source, pd.DataFrame) and Path(source).is_dir()
    if references is None:
        return Preparation()
    return Preparation("references", "identity" if study else "log10")


def subset_table(
    source: Place, columns: Mapping[str, str] | None = None, references: Place | None = None
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the columns algorithm, environment, score of a source, missing scores having no row,
    and its references; arguments as of `subset`.

    Raises:
      JbrlError: the table cannot be read, or an algorithm has no score at all.
    """
    table, known = _subset_table(source, columns or {})
    if isinstance(references, pd.DataFrame):
        return table, references
    if references is not None:
        return table, read_companion(references, ["environment"], ["low", "high"])
    if known is None:
        return table, None
    scaled = table["environment"].isin(known["environment"])
    if not scaled.all():
        names = listed(table.loc[~scaled, "environment"].unique())
        outcome = "they are left out" if len(known) else "scores stay as they are"
        text = f"{source}: {HIGH} has no greater mean than {LOW} in {names}: {outcome}"
        warnings.warn(text, JbrlWarning, stacklevel=2)
    return (table[scaled], known) if len(known) else (table, None)


def _subset_table(
    source: Place, columns: Mapping[str, str]
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the scores of a source; and, of a study, the means of Random and of Optimal."""
    if isinstance(source, pd.DataFrame):
        return check_score_table(source), None
    if Path(source).is_dir():
        return _study_table(Path(source))
    return read_score_table(source, columns=columns, missing=True), None


def _study_table(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the mean score of each agent except oracles in each experiment, and those of Random
    and Optimal as columns environment, low, high; None if the study lacks one of them.

    Experiments where Optimal gains nothing over Random are not in the references: they carry no
    information.
    """
    results = Results(folder)
    done = results.scores[results.scores["status"] == "done"]
    if done.empty:
        raise JbrlError(f"{folder}: no unit of this study is done: expected scores")
    if len(done) < len(results.scores):
        lacking = f"{len(results.scores) - len(done)} of {len(results.scores)} units"
        text = f"{folder}: {lacking} are not done: means are over the others"
        warnings.warn(text, JbrlWarning, stacklevel=2)
    means = done.groupby(list(AGENT), sort=False)["mean"].mean().reset_index()
    names = agent_names(zip(means["algorithm"], means["parameters"], strict=True))
    agents = means[["algorithm", "parameters"]].itertuples(index=False, name=None)
    table = means.assign(environment=means["experiment"], score=means["mean"])
    oracle = means["algorithm"].isin(oracles_of(results.manifest))
    table = table.assign(algorithm=[names[agent] for agent in agents])[~oracle]
    table = table.reset_index(drop=True)
    if not {LOW, HIGH} <= set(means["algorithm"]):
        return table, None
    ends = means[means["algorithm"].isin((LOW, HIGH))]
    wide = ends.pivot(index="experiment", columns="algorithm", values="mean")[[LOW, HIGH]]
    references = wide.reset_index().set_axis(["environment", "low", "high"], axis=1)
    return table, references[references["high"] > references["low"]].reset_index(drop=True)


def column_of(
    source: str | Path, column: str, columns: Mapping[str, str], *, number: bool
) -> dict[str, Any]:
    """Return a column of a file that has the same value in all rows of an algorithm: algorithm ->
    number or text.

    Raises:
      JbrlError: it has not, or the source is no file.
    """
    if Path(source).is_dir():
        raise JbrlError(
            f"{source}: column '{column}': results of a study have no further columns: expected a "
            "file"
        )
    name = columns.get("algorithm", "algorithm")
    if column == name:
        raise JbrlError(f"{source}: column '{column}' has the algorithms: expected another one")
    labels, numbers = ([name], [column]) if number else ([name, column], [])
    values: dict[str, Any] = {}
    for algorithm, value in read_companion(source, labels, numbers).itertuples(index=False):
        if values.setdefault(algorithm, value) != value:
            raise JbrlError(
                f"{source}: column '{column}': algorithm '{algorithm}' has both "
                f"{values[algorithm]} and {value}: expected one value"
            )
    return values
