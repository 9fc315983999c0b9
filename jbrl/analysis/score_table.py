"""Any table of scores, read from CSV or Parquet files: one row per sample, columns found by name or mapped to it."""

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
MISSING = frozenset({"", "nan", "na", "null", "none", "-"})  # texts that stand for no score

Columns = Mapping[str, str | Sequence[str]]
Paths = str | Path | Iterable[str | Path]


def read_score_table(paths: Paths, *, columns: Columns | None = None, missing: bool = False) -> pd.DataFrame:
    """The score table of one file or of several taken together, in their order.

    Args:
      paths: files `.csv` (also `.csv.gz`, `.csv.xz`, `.csv.zst`, `.tsv`) or `.parquet` (`.pq`), all with the same columns.
      columns: where the columns "algorithm", "environment" and "score" are found; each has its own name unless it is mapped to another.
        "algorithm" and "environment" may be mapped to several columns, whose texts are joined by a space.
      missing: leave out rows whose score is missing (empty, NaN, "-") instead of refusing them.

    Returns:
      Columns algorithm, environment (text), score (float64, finite).

    Raises:
      JbrlError: a file cannot be read, lacks a column, has no rows, an empty label or a score that is not a finite number. The message
        names file, row (1 is the first after the header) and column.
    """
    files = [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]
    if not files:
        raise JbrlError("score table: no file given: expected at least one CSV or Parquet file")
    parts = [_read(path, _mapping(columns or {}), missing) for path in files]
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def check_score_table(table: pd.DataFrame, *, name: str = "score table") -> pd.DataFrame:
    """A table made in memory, held to the same rules as a file: its columns `SCORE_TABLE`, labels as text, scores as float64.

    Raises:
      JbrlError: see `read_score_table`; `name` stands in place of the file.
    """
    return _standard(table, _mapping({}), name, missing=False)


def read_companion(path: str | Path, labels: Sequence[str], numbers: Sequence[str] = ()) -> pd.DataFrame:
    """A small table that goes with a score table (bounds, references …).

    Args:
      labels: columns of text; a name that occurs twice in `labels` asks for two columns of that name.
      numbers: columns of finite numbers.

    Returns:
      Columns `labels`, then `numbers` (float64), in the order asked for; of equal names the second is called `name.1`.

    Raises:
      JbrlError: the file cannot be read, lacks a column, has no rows, an empty label or a number that is not finite.
    """
    wanted = [f"{name}.{labels[:i].count(name)}" if name in labels[:i] else name for i, name in enumerate(labels)]
    table = _load(Path(path), (*wanted, *numbers))
    if not len(table):
        raise JbrlError(f"{path}: no rows: expected at least one")
    found = pd.DataFrame(
        {**{name: _label(table, (name,), str(path)) for name in wanted}, **{name: _numbers(table[name]) for name in numbers}}
    )
    for name in numbers:
        bad = np.flatnonzero(~np.isfinite(found[name].to_numpy()))
        if bad.size:
            row = table.iloc[bad[0]]
            raise JbrlError(f"{path}: row {bad[0] + 1} ({row[wanted[0]]}): {name} = {row[name]!r}: expected a finite number")
    return found


def restrict(table: pd.DataFrame, *, algorithms: Iterable[str] | None = None, environments: Iterable[str] | None = None) -> pd.DataFrame:
    """The rows of the algorithms and environments named, ordered as they are named; None keeps all.

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
        table = kept.iloc[np.argsort(kept[column].map(places).to_numpy(), kind="stable")].reset_index(drop=True)
    return table


def _mapping(columns: Columns) -> dict[str, tuple[str, ...]]:
    unknown = [name for name in columns if name not in SCORE_TABLE]
    if unknown:
        raise JbrlError(f"columns: unknown column '{unknown[0]}' to be mapped{nearest(unknown[0], SCORE_TABLE)}")
    found = {name: columns.get(name, name) for name in SCORE_TABLE}
    mapped = {name: (source,) if isinstance(source, str) else tuple(source) for name, source in found.items()}
    if len(mapped["score"]) != 1:
        raise JbrlError(f"columns: score = {list(mapped['score'])}: expected one column")
    return mapped


def _read(path: Path, mapping: dict[str, tuple[str, ...]], missing: bool) -> pd.DataFrame:
    table = _load(path, tuple(dict.fromkeys(source for sources in mapping.values() for source in sources)))
    return _standard(table, mapping, str(path), missing)


def _load(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    """Columns `wanted` of a file. Those of text files stay text: algorithms may be named 1.10 or NA."""
    try:
        if path.name.lower().endswith(PARQUET):
            return _load_parquet(path, wanted)
        if path.name.lower().endswith(TEXT):
            return _load_text(path, wanted)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise JbrlError(f"{path}: cannot be read as a score table: {reason}") from None
    raise JbrlError(f"{path}: cannot be read as a score table: expected a file ending in {', '.join((*TEXT, *PARQUET))}")


def _load_parquet(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    import pyarrow.parquet as parquet  # slow to import, and few tables need it

    with path.open("rb"):  # a file that is not there, said as for text files
        _check_columns(parquet.read_schema(path).names, wanted, path)
    return parquet.read_table(path, columns=list(wanted)).to_pandas()


def _load_text(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    separator = "\t" if path.suffix == ".tsv" else ","
    header = pd.read_csv(path, sep=separator, nrows=0, dtype=str, skipinitialspace=True)  # of two equal names the second gets «.1»
    _check_columns(header.columns, wanted, path)
    table = pd.read_csv(path, sep=separator, dtype=str, na_filter=False, skipinitialspace=True)
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError(f"its rows have more fields than its header, which names {len(header.columns)}")
    return table[list(wanted)]


def _check_columns(found: Iterable[Any], wanted: Iterable[str], path: Path) -> None:
    names = [str(name) for name in found]
    for name in wanted:
        if name not in names:
            raise JbrlError(f"{path}: no column '{name}': map another one to it, or rename it{nearest(name, names)}")


def _standard(table: pd.DataFrame, mapping: dict[str, tuple[str, ...]], name: str, missing: bool) -> pd.DataFrame:
    absent = [source for sources in mapping.values() for source in sources if source not in table.columns]
    if absent:
        raise JbrlError(f"{name}: no column '{absent[0]}'{nearest(absent[0], map(str, table.columns))}")
    if not len(table):
        raise JbrlError(f"{name}: no rows: expected one row per score")
    labels = {label: _label(table, mapping[label], name) for label in LABELS}
    source = mapping["score"][0]
    found = pd.DataFrame({**labels, "score": _numbers(table[source])}, columns=list(SCORE_TABLE))
    bad = ~np.isfinite(found["score"].to_numpy())
    if missing:
        given = table[source]
        lacking = bad & (given.isna() | given.astype(str).str.strip().str.casefold().isin(MISSING)).to_numpy()
        _refuse(found, table[source], bad & ~lacking, name, source)
        kept = found[~lacking].reset_index(drop=True)
        if kept.empty:
            raise JbrlError(f"{name}: all {len(table)} scores are missing: expected at least one")
        return kept
    _refuse(found, table[source], bad, name, source)
    return found


def _label(table: pd.DataFrame, sources: tuple[str, ...], name: str) -> pd.Series:
    """Text of one or more columns."""
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
    """float64 of numbers or of texts, NaN for what is none. Python's conversion is exact, so that ties stay ties; pandas's need not be."""
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
        where = f"algorithm {found['algorithm'].iloc[row]}, environment {found['environment'].iloc[row]}"
        more = f" (and {rows.size - 1} more)" if rows.size > 1 else ""
        value = given.iloc[row]
        text = f"'{value}'" if isinstance(value, str) else f"{value}"
        raise JbrlError(f"{name}: row {row + 1} ({where}): {source} = {text}: expected a finite number{more}")
