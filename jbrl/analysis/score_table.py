"""Any table of scores: one row per sample, columns found by name or mapped to it.

Files are CSV or Parquet, long (columns algorithm, environment, score) or wide (a column of
algorithms, then one for each environment), or arrays of runs by environments for each algorithm,
as rliable has them, in JSON or npz files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.errors import JbrlError, nearest

SCORE_TABLE = ("algorithm", "environment", "score")
LABELS = ("algorithm", "environment")
PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".csv.gz", ".csv.xz", ".csv.zst", ".tsv")
ARRAYS = (".json", ".npz")
TRIAL = ("unit", "seed", "parameters")  # columns that distinguish trials of one cell, where present
MISSING = frozenset({"", "nan", "na", "null", "none", "-"})  # texts that mean a missing score

Columns = Mapping[str, str | Sequence[str]]
Paths = str | Path | Iterable[str | Path]


def read_score_table(
    paths: Paths, *, columns: Columns | None = None, missing: bool = False, trials: bool = False
) -> pd.DataFrame:
    """Read the score table of one file, or of several joined in their order.

    A table that has neither a column "environment" nor one called "score", and neither mapped, is
    wide: each of its columns but those of the algorithms and of `TRIAL` is an environment, empty
    cells are missing scores.

    Args:
      paths: files `.csv` (also `.csv.gz`, `.csv.xz`, `.csv.zst`, `.tsv`) or `.parquet` (`.pq`), or
        arrays for `from_arrays`: `.npz` with one array for each algorithm (and, if wanted, one of
        names called "environments"), or `.json` with an object of lists of lists, or with one like
        {"environments": [names], "scores": {algorithm: lists of lists}}.
      columns: where the columns "algorithm", "environment" and "score" are found; each has its own
        name unless it is mapped to another. "algorithm" and "environment" may be mapped to several
        columns, whose texts are joined by a space.
      missing: leave out rows whose score is missing (empty, NaN, "-") instead of refusing them.
      trials: keep the columns of `TRIAL` that a file has, as text, for `together`.

    Returns:
      Columns algorithm, environment (text), score (float64, finite).

    Raises:
      JbrlError: a file cannot be read, lacks a column, has no rows, an empty label or a score that
        is not a finite number. The message names file, row (1 is the first after the header)
        and column.
    """
    files = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    if not files:
        raise JbrlError("score table: no file given: expected at least one CSV or Parquet file")
    parts = [_read(path, columns or {}, missing, trials) for path in files]
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def check_score_table(table: pd.DataFrame, *, name: str = "score table") -> pd.DataFrame:
    """Check a table made in memory by the rules for a file: its columns `SCORE_TABLE`, labels as
    text, scores as float64.

    Raises:
      JbrlError: see `read_score_table`; `name` stands in place of the file.
    """
    return _standard(table, _mapping({}), name, missing=False)


def read_companion(
    path: str | Path, labels: Sequence[str], numbers: Sequence[str] = ()
) -> pd.DataFrame:
    """Read a small table that goes with a score table (bounds, references …).

    Args:
      labels: columns of text; a name that occurs twice in `labels` requires two columns of that
        name.
      numbers: columns of finite numbers.

    Returns:
      Columns `labels`, then `numbers` (float64), in the order asked for; of equal names the second
      is called `name.1`.

    Raises:
      JbrlError: the file cannot be read, lacks a column, has no rows, an empty label or a number
        that is not finite.
    """
    wanted = [
        f"{name}.{labels[:i].count(name)}" if name in labels[:i] else name
        for i, name in enumerate(labels)
    ]
    table = _load(Path(path), (*wanted, *numbers))
    if not len(table):
        raise JbrlError(f"{path}: no rows: expected at least one")
    found = pd.DataFrame(
        {
            **{name: _label(table, (name,), str(path)) for name in wanted},
            **{name: _numbers(table[name]) for name in numbers},
        }
    )
    for name in numbers:
        bad = np.flatnonzero(~np.isfinite(found[name].to_numpy()))
        if bad.size:
            row = table.iloc[bad[0]]
            raise JbrlError(
                f"{path}: row {bad[0] + 1} ({row[wanted[0]]}): {name} = {row[name]!r}: expected a "
                "finite number"
            )
    return found


def restrict(
    table: pd.DataFrame,
    *,
    algorithms: Iterable[str] | None = None,
    environments: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Return the rows of the algorithms and environments named, ordered as they are named; None
    keeps all.

    Raises:
      JbrlError: a name does not occur in the table; the message lists those that do.
    """
    for column, names in (("algorithm", algorithms), ("environment", environments)):
        if names is None:
            continue
        wanted = list(dict.fromkeys(names))
        present = set(table[column].unique())
        for name in wanted:
            if name not in present:
                raise JbrlError(f"--{column}s: unknown {column} '{name}'{nearest(name, present)}")
        kept = table[table[column].isin(wanted)]
        places = {name: place for place, name in enumerate(wanted)}
        table = kept.iloc[
            np.argsort(kept[column].map(places).to_numpy(), kind="stable")
        ].reset_index(drop=True)
    return table


def _mapping(columns: Columns) -> dict[str, tuple[str, ...]]:
    unknown = [name for name in columns if name not in SCORE_TABLE]
    if unknown:
        raise JbrlError(
            f"columns: unknown column '{unknown[0]}' to be mapped{nearest(unknown[0], SCORE_TABLE)}"
        )
    found = {name: columns.get(name, name) for name in SCORE_TABLE}
    mapped = {
        name: (source,) if isinstance(source, str) else tuple(source)
        for name, source in found.items()
    }
    if len(mapped["score"]) != 1:
        raise JbrlError(f"columns: score = {list(mapped['score'])}: expected one column")
    return mapped


def from_arrays(
    scores: Mapping[str, Any], environments: Sequence[str] | None = None, *, name: str = "arrays"
) -> pd.DataFrame:
    """Return the score table of arrays [runs, environments], one for each algorithm, as in rliable.

    Args:
      scores: algorithm -> array; numbers of runs may differ, NaN is a run that is missing.
      environments: names of the columns (default: environment 1, environment 2, …).
      name: name of the arrays in messages.

    Raises:
      JbrlError: no algorithm, an array that is not two-dimensional or of another width, a value
        that is no number or infinite.
    """
    if not isinstance(scores, Mapping) or not scores:
        raise JbrlError(
            f"{name}: no arrays: expected one of shape [runs, environments] for each algorithm"
        )
    parts, width = [], None if environments is None else len(environments)
    for algorithm, given in scores.items():
        try:
            array = np.asarray(given, np.float64)
        except (TypeError, ValueError):
            raise JbrlError(
                f"{name}: algorithm '{algorithm}': expected numbers, as many in each row"
            ) from None
        width = array.shape[1] if width is None and array.ndim == 2 else width
        if array.ndim != 2 or array.shape[1] != width or not array.size:
            wanted = "any" if width is None else width
            raise JbrlError(
                f"{name}: algorithm '{algorithm}': an array of shape {array.shape}: "
                f"expected [runs, environments] with {wanted} environments"
            )
        parts.append(array)
    assert width is not None
    names = environments or [f"environment {j + 1}" for j in range(width)]
    runs = [len(array) for array in parts]
    table = pd.DataFrame(
        {
            "algorithm": np.repeat(np.array(list(scores), object), np.multiply(runs, width)),
            "environment": np.tile(np.array(names, object), sum(runs)),
            "score": np.concatenate([array.ravel() for array in parts]),
        }
    )
    return _standard(table, _mapping({}), name, missing=True)


def to_arrays(table: pd.DataFrame) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return arrays [runs, environments] float64 of each algorithm, and the names of the
    environments.

    Args:
      table: a score table; its rows of a cell are runs 1, 2, …; missing ones are NaN.
    """
    table = check_score_table(table)
    names = list(table["environment"].unique())
    run = table.groupby(["algorithm", "environment"], sort=False).cumcount()
    wide = table.assign(run=run).pivot(
        index=["algorithm", "run"], columns="environment", values="score"
    )
    order = table["algorithm"].unique()
    return {str(who): wide.loc[who, names].to_numpy(np.float64) for who in order}, names


def together(tables: Sequence[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Join score tables one after the other, columns `SCORE_TABLE`; none of their trials twice.

    Args:
      tables: names of files or folders, and their tables, with the columns of `TRIAL` if known.

    Raises:
      JbrlError: a trial (algorithm, environment, unit, seed, parameters) occurs twice in tables
        that have a column `unit`; or two tables are the same, row by row.
    """
    whole = pd.concat([part.assign(source=name) for name, part in tables], ignore_index=True)
    if "unit" in whole:
        keys = ["algorithm", "environment", *(name for name in TRIAL if name in whole)]
        text = whole[keys].astype(str)
        twice = np.flatnonzero(text.duplicated() & whole["unit"].notna())
        if twice.size:
            row = text.iloc[twice[0]]
            trial = ", ".join(f"{key} {row[key]}" for key in keys)
            first = int(np.argmax((text == row).all(axis=1)))
            sources = dict.fromkeys(whole["source"].iloc[[first, twice[0]]])
            more = f" (and {twice.size - 1} more)" if twice.size > 1 else ""
            raise JbrlError(
                f"{', '.join(sources)}: {trial} occurs twice{more}: expected each trial once; give "
                "a file once, or name the columns that distinguish trials with --algorithm-column"
            )
    for place, (name, part) in enumerate(tables):
        for before, other in tables[:place]:
            if part[list(SCORE_TABLE)].equals(other[list(SCORE_TABLE)]):
                raise JbrlError(
                    f"{name}: has the same rows as {before}: expected each trial once; give it once"
                )
    return whole[list(SCORE_TABLE)]


def _read(path: Path, columns: Columns, missing: bool, trials: bool) -> pd.DataFrame:
    if path.name.lower().endswith(ARRAYS):
        return _load_arrays(path)
    mapping = _mapping(columns)
    wanted = tuple(dict.fromkeys(source for sources in mapping.values() for source in sources))
    names = _header(path)
    if _is_wide(names, columns, mapping["algorithm"]):
        return _melted(_load(path, tuple(names)), mapping["algorithm"], str(path))
    extra = [name for name in TRIAL if name in names] if trials and "unit" in names else []
    table = _load(path, tuple(dict.fromkeys((*wanted, *extra))))
    found = _standard(table, mapping, str(path), missing)
    return found.join(table[extra].astype(str)) if extra and not missing else found


def _header(path: Path) -> list[str]:
    """Return the names of a file's columns; none where it cannot be read (reported later)."""
    name = path.name.lower()
    try:
        if name.endswith(PARQUET):
            import pyarrow.parquet as parquet

            return [str(column) for column in parquet.read_schema(path).names]
        if name.endswith(TEXT):
            separator = "\t" if path.suffix == ".tsv" else ","
            return list(pd.read_csv(path, sep=separator, nrows=0, dtype=str, skipinitialspace=True))
    except (OSError, ValueError):
        pass
    return []


def _is_wide(names: list[str], columns: Columns, algorithm: tuple[str, ...]) -> bool:
    """Return whether a table of these columns has one for each environment."""
    long = {"environment", "score"}
    return not long & {*columns, *names} and bool(names) and set(algorithm) <= set(names)


def _melted(table: pd.DataFrame, algorithm: tuple[str, ...], name: str) -> pd.DataFrame:
    """Return the long table of a wide one."""
    environments = [c for c in table.columns if c not in algorithm and c not in TRIAL]
    if not environments:
        raise JbrlError(
            f"{name}: no column 'environment' or 'score', and no other column: expected one for "
            "each environment"
        )
    who = _label(table, algorithm, name)
    parts = [
        pd.DataFrame({"algorithm": who, "environment": c, "score": table[c].reset_index(drop=True)})
        for c in environments
    ]
    return _standard(pd.concat(parts, ignore_index=True), _mapping({}), name, missing=True)


def _load_arrays(path: Path) -> pd.DataFrame:
    """Return the score table of a file of arrays."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as file:
                arrays: Any = {key: file[key] for key in file.files}
        else:
            arrays = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise JbrlError(f"{path}: cannot be read as arrays of scores: {reason}") from None
    if not isinstance(arrays, dict):
        raise JbrlError(f"{path}: expected an object with an array for each algorithm")
    names = arrays.pop("environments", None)
    arrays = arrays["scores"] if isinstance(arrays.get("scores"), dict) else arrays
    return from_arrays(arrays, None if names is None else [str(n) for n in names], name=str(path))


def _load(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    """Read columns `wanted` of a file.

    Those of text files stay text: algorithms may be named 1.10 or NA.
    """
    try:
        if path.name.lower().endswith(PARQUET):
            return _load_parquet(path, wanted)
        if path.name.lower().endswith(TEXT):
            return _load_text(path, wanted)
    except (
        OSError,
        UnicodeDecodeError,
        pd.errors.ParserError,
        pd.errors.EmptyDataError,
        ValueError,
    ) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise JbrlError(f"{path}: cannot be read as a score table: {reason}") from None
    raise JbrlError(
        f"{path}: cannot be read as a score table: expected a file ending in "
        f"{', '.join((*TEXT, *PARQUET, *ARRAYS))}"
    )


def _load_parquet(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    import pyarrow.parquet as parquet  # slow to import, and few tables need it

    with path.open("rb"):  # a file that is not there, said as for text files
        _check_columns(parquet.read_schema(path).names, wanted, path)
    return parquet.read_table(path, columns=list(wanted)).to_pandas()


def _load_text(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    separator = "\t" if path.suffix == ".tsv" else ","
    # of two equal names the second gets «.1»
    header = pd.read_csv(path, sep=separator, nrows=0, dtype=str, skipinitialspace=True)
    _check_columns(header.columns, wanted, path)
    table = pd.read_csv(path, sep=separator, dtype=str, na_filter=False, skipinitialspace=True)
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError(
            f"its rows have more fields than its header, which names {len(header.columns)}"
        )
    return table[list(wanted)]


def _check_columns(found: Iterable[Any], wanted: Iterable[str], path: Path) -> None:
    names = [str(name) for name in found]
    for name in wanted:
        if name not in names:
            raise JbrlError(
                f"{path}: no column '{name}': map another one to it, or rename "
                f"it{nearest(name, names)}"
            )


def _standard(
    table: pd.DataFrame, mapping: dict[str, tuple[str, ...]], name: str, missing: bool
) -> pd.DataFrame:
    absent = [
        source for sources in mapping.values() for source in sources if source not in table.columns
    ]
    if absent:
        raise JbrlError(
            f"{name}: no column '{absent[0]}'{nearest(absent[0], map(str, table.columns))}"
        )
    if not len(table):
        raise JbrlError(f"{name}: no rows: expected one row per score")
    labels = {label: _label(table, mapping[label], name) for label in LABELS}
    source = mapping["score"][0]
    found = pd.DataFrame({**labels, "score": _numbers(table[source])}, columns=list(SCORE_TABLE))
    bad = ~np.isfinite(found["score"].to_numpy())
    if missing:
        given = table[source]
        lacking = (
            bad
            & (given.isna() | given.astype(str).str.strip().str.casefold().isin(MISSING)).to_numpy()
        )
        _refuse(found, table[source], bad & ~lacking, name, source)
        kept = found[~lacking].reset_index(drop=True)
        if kept.empty:
            raise JbrlError(f"{name}: all {len(table)} scores are missing: expected at least one")
        return kept
    _refuse(found, table[source], bad, name, source)
    return found


def _label(table: pd.DataFrame, sources: tuple[str, ...], name: str) -> pd.Series:
    """Return the text of one or more columns."""
    joined: pd.Series | None = None
    for source in sources:
        column = table[source]
        text = column.astype(str)
        empty = (column.isna() | (text == "")).to_numpy()
        if empty.any():
            row = int(np.argmax(empty))
            raise JbrlError(f"{name}: row {row + 1}: column '{source}' is empty: expected a name")
        joined = text if joined is None else joined + " " + text
    assert joined is not None
    return joined.reset_index(drop=True)


def _numbers(values: pd.Series) -> np.ndarray:
    """Convert numbers or texts to float64, NaN for what is none.

    Python's conversion is exact, so that ties stay ties; pandas's need not be.
    """
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values.to_numpy(np.float64, na_value=np.nan)
    try:
        return np.fromiter(map(float, values), np.float64, len(values))
    except (TypeError, ValueError):
        return np.fromiter(map(_number, values), np.float64, len(values))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan


def _refuse(found: pd.DataFrame, given: pd.Series, bad: np.ndarray, name: str, source: str) -> None:
    rows = np.flatnonzero(bad)
    if rows.size:
        row = rows[0]
        where = (
            f"algorithm {found['algorithm'].iloc[row]}, environment "
            f"{found['environment'].iloc[row]}"
        )
        more = f" (and {rows.size - 1} more)" if rows.size > 1 else ""
        value = given.iloc[row]
        text = f"'{value}'" if isinstance(value, str) else f"{value}"
        raise JbrlError(
            f"{name}: row {row + 1} ({where}): {source} = {text}: expected a finite number{more}"
        )
