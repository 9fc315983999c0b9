"""Files of scores.

CSV or Parquet, long (columns algorithm, environment, score) or wide (a column of algorithms, then
one for each environment), or arrays of runs by environments for each algorithm, as rliable has
them, in JSON or npz files.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, shown
from jbrl.base.files import NO_TEXT, check_file
from jbrl.stats.score_table import (
    TRIAL,
    Columns,
    absent,
    as_floats,
    as_text,
    check_once,
    from_arrays,
    sources_of,
    standard,
)

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
    extra = tuple(name for name in TRIAL if name in names) if trials else ()
    by_seed = "seed" in extra and "unit" not in extra  # then no row may occur twice
    table = _load(path, tuple(names if wide or by_seed else dict.fromkeys((*wanted, *extra))))
    if by_seed:
        check_trials(table, str(path))
    if wide:
        return _melted(table, mapping["algorithm"], str(path), extra)
    return standard(table, mapping, str(path), missing, extra)


def check_trials(table: pd.DataFrame, name: str) -> None:
    """Refuse a table with seeds in which a row occurs twice, all of its columns and its seed equal.

    Raises:
      JbrlError: says which.
    """
    text = table.astype(str)
    twice = np.flatnonzero(text.duplicated())
    if twice.size:
        row = text.iloc[twice[0]]
        first = int(np.argmax((text == row).all(axis=1)))
        more = f" (and {twice.size - 1} more)" if twice.size > 1 else ""
        raise JbrlError(
            f"{name}: rows {first + 1} and {twice[0] + 1} are the same, seed {row['seed']} "
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
            separator = _separator(path)
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


def _melted(
    table: pd.DataFrame, algorithm: tuple[str, ...], name: str, extra: tuple[str, ...]
) -> pd.DataFrame:
    """Return the long table of a wide one, with the columns `extra`."""
    environments = [c for c in table.columns if c not in algorithm and c not in TRIAL]
    if not environments:
        raise JbrlError(
            f"{name}: no column 'environment' or 'score', and no other column: expected one for "
            "each environment"
        )
    shared = table[list(extra)].assign(algorithm=as_text(table, algorithm, name))
    parts = [shared.assign(environment=c, score=table[c]) for c in environments]
    whole = pd.concat(parts, ignore_index=True)
    return standard(whole, sources_of({}), name, missing=True, extra=extra)


def _load_arrays(path: Path) -> pd.DataFrame:
    """Return the score table of a file of arrays."""
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as file:
                arrays: Any = {key: file[key] for key in file.files}
        else:
            text = path.read_text(encoding="utf-8-sig")
            arrays = json.loads(text, object_pairs_hook=_once_each)
    except Exception as error:  # zip archives, NumPy and JSON have a dozen errors for invalid bytes
        raise JbrlError(f"{path}: cannot be read as arrays of scores: {_reason(error)}") from None
    if not isinstance(arrays, dict):
        raise JbrlError(f"{path}: expected an object with an array for each algorithm")
    names = arrays.pop("environments", None)
    if isinstance(names, str):
        raise JbrlError(f"{path}: environments = {shown(names)}: expected a list of names")
    arrays = arrays["scores"] if isinstance(arrays.get("scores"), dict) else arrays
    return from_arrays(arrays, None if names is None else [str(n) for n in names], name=str(path))


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
      ValueError: a name occurs twice in it.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{shown(twice)} occurs twice: expected each name once")
    return found


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
    kinds = () if path.name.lower().endswith(ARRAYS) else ARRAYS  # companions are no arrays
    raise JbrlError(
        f"{path}: cannot be read as a score table: expected a file ending in "
        f"{', '.join((*TEXT, *PARQUET, *kinds))}"
    )


def _load_parquet(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    import pyarrow.parquet as parquet  # slow to import, and few tables need it

    with path.open("rb"):  # a file that is not there, said as for text files
        _check_columns(parquet.read_schema(path).names, wanted, path)
    # without the index that pandas has written, which may leave out rows
    return parquet.read_table(path, columns=list(wanted)).to_pandas(ignore_metadata=True)


def _separator(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _load_text(path: Path, wanted: tuple[str, ...]) -> pd.DataFrame:
    separator = _separator(path)
    # of two equal names the second gets «.1»
    header = pd.read_csv(path, sep=separator, nrows=0, dtype=str, skipinitialspace=True)
    _check_columns(header.columns, wanted, path)
    table = pd.read_csv(path, sep=separator, dtype=str, na_filter=False, skipinitialspace=True)
    if not isinstance(table.index, pd.RangeIndex):
        raise ValueError(
            f"its rows have more fields than its header, which names {len(header.columns)}"
        )
    return table[list(wanted)]


def _check_columns(present: Iterable[Any], wanted: Iterable[str], path: Path) -> None:
    names = [str(name) for name in present]
    for name in wanted:
        if name not in names:
            separator = next((s for s in ";\t|" if len(names) == 1 and s in names[0]), None)
            if separator:
                raise JbrlError(
                    f"{path}: its columns are separated by {separator!r}: expected commas, or "
                    "tabs in a file .tsv"
                )
            raise absent(str(path), name, names)
