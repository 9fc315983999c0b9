"""Logs as the original program writes them: one CSV file for each setting, in one folder.

A file is called `bsuite_id_-_<experiment>-<index>.csv`; it has a header line and no index column.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.stats.bsuite.logs import Logs, Run, faults, known_id, missing_columns

PATTERN = "bsuite_id_-_*.csv"
INTEGERS = frozenset(
    ("steps", "episode", "episode_len", "total_perfect", "total_upright", "total_bad_episodes")
)
_NAME = re.compile(r"bsuite_id_-_(.+)-(\d+)\.csv")


def has_logs(folder: Path) -> bool:
    """Return whether the folder itself holds logs of the original."""
    return next(folder.glob(PATTERN), None) is not None


def read_folder(folder: Path, agent: str, number: int = 0) -> Logs:
    """Read the logs of one agent in one folder, every file with a name of the original's.

    A file that cannot be used is left out and listed in `problems`, so that the others are read.
    The last line of a file is left out, with a note, when no line end follows it: a killed run
    leaves such a line, and its last number may be cut.

    Raises:
      JbrlError: the folder cannot be read, or has no logs.
    """
    try:
        paths = sorted(folder.glob(PATTERN))
    except OSError as error:
        raise JbrlError(f"{folder}: cannot be read: {error.strerror}") from None
    if not paths:
        raise JbrlError(f"{folder}: no logs: expected files named {PATTERN}")
    found: dict[str, Run] = {}
    problems, notes = [], []
    for path in paths:
        try:
            run = read_file(path, agent, number)
        except JbrlError as error:
            problems.append(str(error))
            continue
        if run.bsuite_id in found:
            other = Path(found[run.bsuite_id].source).name
            problems.append(
                f"{path}: a second file of {run.bsuite_id} beside {other}: expected one per id"
            )
            continue
        found[run.bsuite_id] = run
        if run.truncated:
            row = len(run.columns["episode"]) + 1
            notes.append(
                f"{path}: row {row} is cut off (no line end follows) and is left out: "
                f"{run.bsuite_id} counts up to episode {run.episodes}"
            )
    return Logs(tuple(found.values()), tuple(problems), tuple(notes))


def read_file(path: Path, agent: str, number: int = 0) -> Run:
    """Read one log.

    Raises:
      JbrlError: the file cannot be read, its name holds no id of the sweep, or its columns or
        rows are not those of a log; the message names file, row and column.
    """
    bsuite_id = _id_of(path)
    experiment = known_id(bsuite_id, str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise JbrlError(f"{path}: cannot be read: {reason}") from None
    lines = text.splitlines()
    truncated = bool(text) and not text.endswith(("\n", "\r"))
    if truncated and len(lines) > 1:
        lines = lines[:-1]
    while lines and not lines[-1].strip():
        lines.pop()
    header = [name.strip().strip('"') for name in lines[0].split(",")] if lines else []
    missing = missing_columns(experiment, header)
    if missing:
        raise JbrlError(f"{path}: {missing}")
    values = _values(lines[1:], header, experiment.log_columns, path)
    columns = dict(zip(experiment.log_columns, values.T, strict=True))
    wrong = next(faults(columns), "")
    if wrong:
        raise JbrlError(f"{path}: {wrong}")
    return Run(agent, number, bsuite_id, columns, str(path), truncated)


def write_folder(runs: Iterable[Run], folder: Path) -> list[Path]:
    """Write one file for each run, as the original would; return the paths.

    Args:
      runs: of one agent, one for each setting.
      folder: made if it is not there.

    Raises:
      JbrlError: a file of this name is there already, or the folder cannot be written.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for run in runs:
            path = folder / f"bsuite_id_-_{run.bsuite_id.replace('/', '-')}.csv"
            if path.exists():
                raise JbrlError(f"{path}: exists already: choose another folder, or remove it")
            path.write_text(_text(run.columns), encoding="utf-8", newline="")
            paths.append(path)
    except OSError as error:
        raise JbrlError(f"{folder}: logs cannot be written here: {error.strerror}") from None
    return paths


def _id_of(path: Path) -> str:
    """Return the id that a file name denotes; leading zeros of the index do not count."""
    found = _NAME.fullmatch(path.name)
    if not found:
        raise JbrlError(
            f"{path}: the name holds no id: expected bsuite_id_-_<experiment>-<index>.csv"
        )
    return f"{found[1]}/{int(found[2])}"


def _values(lines: list[str], header: list[str], wanted: tuple[str, ...], path: Path) -> np.ndarray:
    """Return the columns wanted, [rows, columns] float64. Python's conversion is exact."""
    commas = len(header) - 1
    for row, line in enumerate(lines, 1):
        if line.count(",") != commas:
            raise JbrlError(
                f"{path}: row {row}: {line.count(',') + 1} fields: expected {commas + 1}, "
                f"as in the header"
            )
    places = [header.index(name) for name in wanted]
    cells = [line.split(",") for line in lines]
    texts = [row[place] for row in cells for place in places]
    try:
        found = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        raise JbrlError(_no_number(texts, wanted, path)) from None
    return found.reshape(len(lines), len(wanted))


def _no_number(texts: list[str], wanted: tuple[str, ...], path: Path) -> str:
    for place, text in enumerate(texts):
        try:
            float(text)
        except ValueError:
            row, column = divmod(place, len(wanted))
            return f"{path}: row {row + 1}: {wanted[column]} = '{text}': expected a finite number"
    raise AssertionError("all texts are numbers")


def _text(columns: Mapping[str, np.ndarray]) -> str:
    """Return a file's content: integers as integers where a column counts something, floats in
    full.
    """
    texts = [
        [str(int(v)) for v in values] if name in INTEGERS else list(map(repr, values.tolist()))
        for name, values in columns.items()
    ]
    rows = [",".join(columns), *map(",".join, zip(*texts, strict=True))]
    return "\n".join(rows) + "\n"
