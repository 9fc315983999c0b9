"""Score tables for `jbrl subset`: files, or the results of a study."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jbrl.base.errors import JbrlError

if TYPE_CHECKING:
    import pandas as pd

LOW, HIGH = "Random", "Optimal"  # the algorithms whose scores are the references of a study


def mapping_of(columns: str | None) -> dict[str, str]:
    """Parse `environment=game,score=return` as a mapping."""
    pairs = [text.split("=", 1) for text in columns.split(",")] if columns else []
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise JbrlError(
            f"--columns '{columns}': expected NAME=COLUMN, separated by commas, as "
            "environment=game,score=return"
        )
    return {name.strip(): column.strip() for name, column in pairs}


def read_scores(path: Path, columns: str | None) -> "pd.DataFrame":
    """Read the columns algorithm, environment, score; missing scores have no row.

    Raises:
      JbrlError: the table cannot be read, or an algorithm has no score at all.
    """
    from jbrl.stats.score_files import read_companion, read_score_table

    if path.is_dir():
        return _of_results(path)[0]
    mapping = mapping_of(columns)
    table = read_score_table(path, columns=mapping, missing=True)
    every = read_companion(path, [mapping.get("algorithm", "algorithm")]).iloc[:, 0]
    silent = sorted(set(every) - set(table["algorithm"]))
    if silent:
        raise JbrlError(
            f"{path}: algorithm '{silent[0]}' has no score at all: expected at least one, or no row"
        )
    return table


def read_column(path: Path, column: str, columns: str | None, *, number: bool) -> dict[str, Any]:
    """Read a column that has the same value in all rows of an algorithm: algorithm -> number or
    text.
    """
    from jbrl.stats.score_files import read_companion

    if path.is_dir():
        raise JbrlError(
            f"{path}: column '{column}': results of a study have no further columns: expected a "
            "file"
        )
    name = mapping_of(columns).get("algorithm", "algorithm")
    table = (
        read_companion(path, [name], [column]) if number else read_companion(path, [name, column])
    )
    found: dict[str, Any] = {}
    for algorithm, value in table.itertuples(index=False):
        if found.setdefault(algorithm, value) != value:
            raise JbrlError(
                f"{path}: column '{column}': algorithm '{algorithm}' has both "
                f"{found[algorithm]} and {value}: expected one value"
            )
    return found


def references_of_results(folder: Path) -> "pd.DataFrame | None":
    """Return the mean returns of Random and of Optimal in each experiment as references low and
    high; None if the study lacks one of them.

    Experiments where Optimal gains nothing over Random are left out: such experiments carry no
    information.
    """
    _, means = _of_results(folder)
    if not {LOW, HIGH} <= set(means["algorithm"]):
        return None
    wide = means.pivot(index="experiment", columns="algorithm", values="mean")
    found = wide[[LOW, HIGH]].reset_index().set_axis(["environment", "low", "high"], axis=1)
    return found[found["high"] > found["low"]].reset_index(drop=True)


def _of_results(folder: Path) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Return the score table of a study: the mean return of each agent except oracles in each
    experiment; and the means of Random and Optimal.
    """
    from jbrl.results import Results
    from jbrl.stats.labels import agent_names, oracles_of

    results = Results(folder)
    done = results.scores[results.scores["status"] == "done"]
    if done.empty:
        raise JbrlError(f"{folder}: no unit of this study is done: expected scores")
    means = (
        done.groupby(["experiment", "algorithm", "parameters"], sort=False)["mean"]
        .mean()
        .reset_index()
    )
    agents = list(zip(means["algorithm"], means["parameters"], strict=True))
    known = agent_names(agents)
    names = [known[agent] for agent in agents]
    table = means.assign(environment=means["experiment"], score=means["mean"])
    oracle = means["algorithm"].isin(oracles_of(results.manifest))
    return table.assign(algorithm=names)[~oracle].reset_index(drop=True), means[
        means["algorithm"].isin((LOW, HIGH))
    ]
