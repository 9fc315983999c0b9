"""Any table of scores: one row per sample, columns found by name or mapped to it."""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError, nearest, shown

SCORE_TABLE = ("algorithm", "environment", "score")
LABELS = ("algorithm", "environment")
# columns that distinguish trials of one cell, where present
TRIAL = ("unit", "seed", "run", "trial", "parameters")
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
    """Return the rows of the algorithms and environments named (`names_of`), ordered as they are
    named; None keeps all.

    Raises:
      JbrlError: a name does not occur in the table; the message lists those that do.
    """
    for column, names in (("algorithm", algorithms), ("environment", environments)):
        if names is None:
            continue
        present = set(table[column].unique())
        wanted = list(names_of(names, present))
        for name in wanted:
            if name not in present:
                raise JbrlError(f"--{column}s: unknown {column} '{name}'{nearest(name, present)}")
        kept = table[table[column].isin(wanted)]
        places = {name: place for place, name in enumerate(wanted)}
        table = kept.sort_values(
            column, key=lambda names: names.map(places), kind="stable", ignore_index=True
        )
    return table


def names_of(given: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return names, one by one or separated by commas; a text that is one of `known` is one name.
    Empty ones are left out.
    """
    whole = set(known)
    parts = [part for text in given for part in ([text] if text in whole else text.split(","))]
    names = [part if part in whole else part.strip() for part in parts]
    return tuple(dict.fromkeys(filter(None, names)))


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
            if np.iscomplexobj(np.asarray(given)):  # whose imaginary parts would be lost
                raise TypeError
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
    if environments and len(set(environments)) < len(environments):
        twice = next(one for one in environments if environments.count(one) > 1)
        raise JbrlError(f"{name}: environment '{shown(twice, str)}' is named twice: expected once")
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
      JbrlError: a trial (algorithm, environment, columns of `TRIAL`) occurs twice in tables
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


def alike(names: Iterable[str]) -> list[str]:
    """Return a sentence for each name that differs from an earlier one only in blanks or case."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(" ".join(n.split()).casefold(), n), n) for n in names]
    return [
        f"{shown(one)} and {shown(other)} differ only in blanks or in upper and lower case"
        for one, other in pairs
        if one != other
    ]


def absent(where: str, column: str, present: Iterable[str]) -> JbrlError:
    """Return what says that a column is not there, and how another one is mapped to it."""
    options = f"--{column}-column NAME; 'jbrl subset': --columns {column}=NAME"
    mapped = f": map another one to it ({options}), or rename it" if column in SCORE_TABLE else ""
    return JbrlError(f"{where}: no column '{column}'{mapped}{nearest(column, present)}")


def standard(
    table: pd.DataFrame,
    mapping: dict[str, tuple[str, ...]],
    name: str,
    missing: bool,
    extra: tuple[str, ...] = (),
) -> pd.DataFrame:
    """Return the score table that `table` holds: columns `SCORE_TABLE`, labels as text, scores as
    float64, and the columns `extra` as text.

    Args:
      mapping: where each column is found (`sources_of`).
      name: name of the table in messages.
      missing: leave out rows whose score is missing.

    Raises:
      JbrlError: a column is not there, there are no rows, a label is empty, a score is not a finite
        number, or all scores of an algorithm are missing.
    """
    for source in itertools.chain(*mapping.values()):
        if source not in table.columns:
            raise absent(name, source, map(str, table.columns))
        check_once(table.columns, source, name)
    if not len(table):
        raise JbrlError(f"{name}: no rows: expected one row per score")
    labels = {label: as_text(table, mapping[label], name) for label in LABELS}
    source = mapping["score"][0]
    scores = pd.DataFrame({**labels, "score": as_floats(table[source])}, columns=list(SCORE_TABLE))
    scores[list(extra)] = table[list(extra)].astype(str).to_numpy()
    given, rows = table[source].to_numpy(), np.arange(1, len(table) + 1)
    bad = ~np.isfinite(scores["score"].to_numpy())
    if missing:
        texts = table[source].astype(str).str.strip().str.casefold()
        kept = ~(bad & (table[source].isna() | texts.isin(MISSING)).to_numpy())
        scores = scores[kept].reset_index(drop=True)
        given, rows, bad = given[kept], rows[kept], bad[kept]
        if scores.empty:
            raise JbrlError(f"{name}: all {len(table)} scores are missing: expected at least one")
        silent = sorted(set(labels["algorithm"]) - set(scores["algorithm"]))
        if silent:
            raise JbrlError(
                f"{name}: algorithm '{silent[0]}' has no score at all: expected at least one, or "
                "no row"
            )
    if bad.any():
        place = int(np.argmax(bad))
        who, where = scores.loc[place, list(LABELS)]
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
