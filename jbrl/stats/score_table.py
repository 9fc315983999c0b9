"""Any table of scores: one row per sample, columns found by name or mapped to it.

Files are CSV or Parquet, long (columns algorithm, environment, score) or wide (a column of
algorithms, then one for each environment), or arrays of runs by environments for each algorithm, as
rliable has them, in JSON or npz files.
"""

import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.files import NO_TEXT, check_file

SCORE_TABLE = ("algorithm", "environment", "score")
LABELS = ("algorithm", "environment")
TRIAL = ("unit", "seed", "parameters")  # columns that distinguish trials of one cell, where present
MISSING = frozenset({"", "nan", "na", "null", "none", "-"})  # texts that mean a missing score
Columns = Mapping[str, str | Sequence[str]]


def check_score_table(table: pd.DataFrame, *, name: str = "score table") -> pd.DataFrame:
    """Check a table made in memory by the rules for a file: its columns `SCORE_TABLE`, labels as
    text, scores as float64.

    Raises:
      JbrlError: see `read_score_table`; `name` stands in place of the file.
    """
    return standard(table, sources_of({}), name, missing=False)


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
        table = kept.sort_values(
            column, key=lambda names: names.map(places), kind="stable", ignore_index=True
        )
    return table


def sources_of(columns: Columns) -> dict[str, tuple[str, ...]]:
    """Return the columns that each one of `SCORE_TABLE` is made of: its own name, or what `columns`
    maps to it.

    Raises:
      JbrlError: a column that score tables do not have, or scores in several columns.
    """
    unknown = [name for name in columns if name not in SCORE_TABLE]
    if unknown:
        raise JbrlError(
            f"columns: unknown column '{unknown[0]}' to be mapped{nearest(unknown[0], SCORE_TABLE)}"
        )
    mapped = {}
    for name in SCORE_TABLE:
        source = columns.get(name, name)
        mapped[name] = (source,) if isinstance(source, str) else tuple(source)
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
    return standard(table, sources_of({}), name, missing=True)


def together(tables: Sequence[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    """Join score tables one after the other, columns `SCORE_TABLE`; none of their trials twice.

    Args:
      tables: names of files or folders, and their tables, with the columns of `TRIAL` if known.

    Raises:
      JbrlError: a trial (algorithm, environment, unit, seed, parameters) occurs twice in tables
        that have a column `unit`; a seed of an algorithm on an environment occurs in two tables,
        and at most once in each; or two tables are the same, row by row.
    """
    if not tables:
        raise JbrlError("score table: none given: expected at least one")
    whole = pd.concat([part.assign(source=place) for place, (_, part) in enumerate(tables)])
    whole = whole.reset_index(drop=True)
    keys = ["algorithm", "environment", *(name for name in TRIAL if name in whole)]
    text = whole[keys].astype(str)
    if "unit" in whole:
        twice = np.flatnonzero(text.duplicated() & whole["unit"].notna())
    elif "seed" in whole and not text.assign(source=whole["source"]).duplicated().any():
        twice = np.flatnonzero(text.duplicated() & whole["seed"].notna())
    else:
        twice = np.empty(0, int)
    if twice.size:
        row = text.iloc[twice[0]]
        trial = ", ".join(f"{key} {row[key]}" for key in keys)
        first = int(np.argmax((text == row).all(axis=1)))
        sources = dict.fromkeys(tables[k][0] for k in whole["source"].iloc[[first, twice[0]]])
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


def standard(
    table: pd.DataFrame, mapping: dict[str, tuple[str, ...]], name: str, missing: bool
) -> pd.DataFrame:
    """Return the score table that `table` holds: columns `SCORE_TABLE`, labels as text, scores as
    float64.

    Args:
      mapping: where each column is found (`sources_of`).
      name: name of the table in messages.
      missing: leave out rows whose score is missing.

    Raises:
      JbrlError: a column is not there, there are no rows, a label is empty or a score is not a
        finite number.
    """
    for source in itertools.chain(*mapping.values()):
        if source not in table.columns:
            raise JbrlError(
                f"{name}: no column '{source}'{nearest(source, map(str, table.columns))}"
            )
        check_once(table.columns, source, name)
    if not len(table):
        raise JbrlError(f"{name}: no rows: expected one row per score")
    labels = {label: as_text(table, mapping[label], name) for label in LABELS}
    source = mapping["score"][0]
    scores = pd.DataFrame({**labels, "score": as_floats(table[source])}, columns=list(SCORE_TABLE))
    given, rows = table[source].to_numpy(), np.arange(1, len(table) + 1)
    bad = ~np.isfinite(scores["score"].to_numpy())
    if missing:
        texts = table[source].astype(str).str.strip().str.casefold()
        kept = ~(bad & (table[source].isna() | texts.isin(MISSING)).to_numpy())
        scores = scores[kept].reset_index(drop=True)
        given, rows, bad = given[kept], rows[kept], bad[kept]
        if scores.empty:
            raise JbrlError(f"{name}: all {len(table)} scores are missing: expected at least one")
    if bad.any():
        place = int(np.argmax(bad))
        who, where, _ = scores.iloc[place]
        more = f" (and {bad.sum() - 1} more)" if bad.sum() > 1 else ""
        value = given[place]
        text = shown(value) if isinstance(value, str) else shown(value, str)
        cell = f"algorithm {shown(who, str)}, environment {shown(where, str)}"
        raise JbrlError(
            f"{name}: row {rows[place]} ({cell}): {source} = {text}: expected a finite number{more}"
        )
    return scores


def check_once(columns: Iterable[str], wanted: str, name: str) -> None:
    """Refuse a table in which two columns have a name that is read.

    Raises:
      JbrlError: says which.
    """
    count = list(columns).count(wanted)
    if count > 1:
        raise JbrlError(f"{name}: {count} columns are called '{shown(wanted, str)}': expected one")


def as_text(table: pd.DataFrame, sources: tuple[str, ...], name: str) -> pd.Series:
    """Return the text of one or more columns."""
    texts = []
    for source in sources:
        text = table[source].astype(str)
        empty = (table[source].isna() | (text.str.strip() == "")).to_numpy()
        if empty.any():
            row = int(np.argmax(empty))
            raise JbrlError(f"{name}: row {row + 1}: column '{source}' is empty: expected a name")
        texts.append(text.reset_index(drop=True))
    return functools.reduce(lambda one, other: one + " " + other, texts)


def as_floats(values: pd.Series) -> np.ndarray:
    """Convert numbers or texts to float64, NaN for what is none.

    Python's conversion is exact, so that ties stay ties; pandas's need not be.
    """
    if pd.api.types.is_numeric_dtype(values.dtype) and values.dtype.kind != "c":
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


PARQUET = (".parquet", ".pq")
TEXT = (".csv", ".csv.gz", ".csv.xz", ".csv.zst", ".tsv")
ARRAYS = (".json", ".npz")
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
      trials: keep the columns of `TRIAL` that a file has, as text, for `together`, and refuse a
        row that occurs twice in a file with a column `seed` and none called `unit`.

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
    counts = [labels[:place].count(name) for place, name in enumerate(labels)]
    wanted = [f"{name}.{n}" if n else name for name, n in zip(labels, counts, strict=True)]
    check_file(Path(path))
    table = _load(Path(path), (*wanted, *numbers))
    if not len(table):
        raise JbrlError(f"{path}: no rows: expected at least one")
    texts = {name: as_text(table, (name,), str(path)) for name in wanted}
    rows = pd.DataFrame(texts | {name: as_floats(table[name]) for name in numbers})
    for name in numbers:
        bad = np.flatnonzero(~np.isfinite(rows[name].to_numpy()))
        if bad.size:
            row = table.iloc[bad[0]]
            raise JbrlError(
                f"{path}: row {bad[0] + 1} ({row[wanted[0]]}): {name} = {row[name]!r}: expected a "
                "finite number"
            )
    return rows


def _read(path: Path, columns: Columns, missing: bool, trials: bool) -> pd.DataFrame:
    check_file(path)
    if path.name.lower().endswith(ARRAYS):
        return _load_arrays(path)
    mapping = sources_of(columns)
    wanted = tuple(dict.fromkeys(source for sources in mapping.values() for source in sources))
    names = _header(path)
    wide = _is_wide(names, columns, mapping["algorithm"])
    for name in names if wide else wanted:
        if not name:
            raise JbrlError(f"{path}: a column has no name: expected that of an environment")
        check_once(names, name, str(path))
    names = [name for name in names if name]
    if wide:
        return _melted(_load(path, tuple(names)), mapping["algorithm"], str(path))
    extra = [name for name in TRIAL if name in names] if trials else []
    if "seed" in extra and "unit" not in extra:
        _check_once(_load(path, tuple(names)), path)
    table = _load(path, tuple(dict.fromkeys((*wanted, *extra))))
    scores = standard(table, mapping, str(path), missing)
    return scores.join(table[extra].astype(str)) if extra and not missing else scores


def _check_once(table: pd.DataFrame, path: Path) -> None:
    """Refuse a table in which a row occurs twice, all of its columns and its seed equal."""
    text = table.astype(str)
    twice = np.flatnonzero(text.duplicated())
    if twice.size:
        row = text.iloc[twice[0]]
        first = int(np.argmax((text == row).all(axis=1)))
        more = f" (and {twice.size - 1} more)" if twice.size > 1 else ""
        raise JbrlError(
            f"{path}: rows {first + 1} and {twice[0] + 1} are the same, seed {row['seed']} "
            f"included{more}: expected each trial once; add a column unit where one seed has "
            "several trials"
        )


def _header(path: Path) -> list[str]:
    """Return the names of a file's columns as they stand there, "" for one that has none; no names
    where it cannot be read (reported later).
    """
    name = path.name.lower()
    try:
        if name.endswith(PARQUET):
            import pyarrow.parquet as parquet

            return [str(column) for column in parquet.read_schema(path).names]
        if name.endswith(TEXT):
            separator = "\t" if path.suffix == ".tsv" else ","
            options: Any = {"header": None, "nrows": 1, "dtype": str, "na_filter": False}
            return list(pd.read_csv(path, sep=separator, skipinitialspace=True, **options).loc[0])
    except Exception:
        pass
    return []


def _is_wide(names: list[str], columns: Columns, algorithm: tuple[str, ...]) -> bool:
    """Return whether a table of these columns has one for each environment."""
    mapped = {name for name, source in sources_of(columns).items() if source != (name,)}
    long = {"environment", "score"}
    return not long & {*mapped, *names} and bool(names) and set(algorithm) <= set(names)


def _melted(table: pd.DataFrame, algorithm: tuple[str, ...], name: str) -> pd.DataFrame:
    """Return the long table of a wide one."""
    environments = [c for c in table.columns if c not in algorithm and c not in TRIAL]
    if not environments:
        raise JbrlError(
            f"{name}: no column 'environment' or 'score', and no other column: expected one for "
            "each environment"
        )
    who = as_text(table, algorithm, name)
    parts = [
        pd.DataFrame({"algorithm": who, "environment": c, "score": table[c].reset_index(drop=True)})
        for c in environments
    ]
    return standard(pd.concat(parts, ignore_index=True), sources_of({}), name, missing=True)


def _load_arrays(path: Path) -> pd.DataFrame:
    """Return the score table of a file of arrays."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as file:
                arrays: Any = {key: file[key] for key in file.files}
        else:
            arrays = json.loads(path.read_text(encoding="utf-8-sig"))
    except Exception as error:  # zip archives, NumPy and JSON have a dozen errors for invalid bytes
        raise JbrlError(f"{path}: cannot be read as arrays of scores: {_reason(error)}") from None
    if not isinstance(arrays, dict):
        raise JbrlError(f"{path}: expected an object with an array for each algorithm")
    names = arrays.pop("environments", None)
    arrays = arrays["scores"] if isinstance(arrays.get("scores"), dict) else arrays
    return from_arrays(arrays, None if names is None else [str(n) for n in names], name=str(path))


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return NO_TEXT
    return getattr(error, "strerror", None) or " ".join(str(error).split())


def _load(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    """Read columns `wanted` of a file.

    Those of text files stay text: algorithms may be named 1.10 or NA.
    """
    try:
        if path.name.lower().endswith(PARQUET):
            return _load_parquet(path, wanted)
        if path.name.lower().endswith(TEXT):
            return _load_text(path, wanted)
    except Exception as error:  # pandas and each compression have errors of their own
        if isinstance(error, JbrlError):
            raise
        raise JbrlError(f"{path}: cannot be read as a score table: {_reason(error)}") from None
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


def _option(name: str) -> str:
    """Return the options that map another column to one of a score table."""
    options = f" (--{name}-column NAME; 'jbrl subset': --columns {name}=NAME)"
    return options if name in SCORE_TABLE else ""


def _check_columns(present: Iterable[Any], wanted: Iterable[str], path: Path) -> None:
    names = [str(name) for name in present]
    for name in wanted:
        if name not in names:
            if len(names) == 1 and ";" in names[0]:
                raise JbrlError(f"{path}: its columns are separated by ';': expected commas")
            raise JbrlError(
                f"{path}: no column '{name}': map another one to it{_option(name)}, or rename "
                f"it{nearest(name, names)}"
            )
