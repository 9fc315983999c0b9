"""Logs of the Behaviour Suite: one `Run` for each setting that an agent has played, in memory and
in the original program's files.

A file is called `bsuite_id_-_<experiment>-<index>.csv`; it has a header line and no index column.
"""

import csv
import dataclasses
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, LOG_COLUMNS, SWEEP, Experiment
from jbrl.base.errors import JbrlError, listed, nearest, shown
from jbrl.base.files import naming, read_text, writing
from jbrl.stats.score_table import as_floats, as_text


@dataclasses.dataclass(frozen=True)
class Run:
    """The log of one setting, played once by one agent."""

    agent: str
    number: int  # 0, 1, … among the runs of this agent in this setting
    bsuite_id: str
    columns: Mapping[str, np.ndarray]  # [rows] float64 each, cumulative, `episode` increasing
    source: str = ""  # the file or the folder it comes from, for messages
    truncated: bool = False  # the last line of its file was cut off and is left out

    @property
    def experiment(self) -> Experiment:
        """The experiment that its setting belongs to."""
        return SWEEP[self.bsuite_id].experiment

    @property
    def episodes(self) -> int:
        """Number of the last episode that was logged."""
        return int(self.columns["episode"][-1])

    @property
    def finished(self) -> bool:
        """True if all episodes of the experiment were logged."""
        return self.episodes >= self.experiment.episodes


@dataclasses.dataclass(frozen=True)
class Logs:
    """The runs of one agent or several, and what was wrong with the files they come from."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...] = ()  # what could not be read, one sentence each
    notes: tuple[str, ...] = ()  # what was read, and should be known

    @property
    def agents(self) -> list[str]:
        """Names of the agents, in order of first appearance."""
        return list(dict.fromkeys(run.agent for run in self.runs))

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments of which there is a run, in the order of the sweep."""
        present = {run.experiment.name for run in self.runs}
        return [name for name in EXPERIMENTS if name in present]

    def of(self, agent: str, experiment: str) -> list[Run]:
        """Return the runs of an agent in an experiment, by index of the setting and number."""
        runs = self._by_key.get((agent, experiment), [])
        return sorted(runs, key=lambda run: (SWEEP[run.bsuite_id].index, run.number))

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], list[Run]]:
        by: dict[tuple[str, str], list[Run]] = {}
        for run in self.runs:
            by.setdefault((run.agent, run.experiment.name), []).append(run)
        return by

    @property
    def table(self) -> pd.DataFrame:
        """All rows: agent, run, bsuite_id and the columns of the logs; NaN where one has none."""
        parts = [
            pd.DataFrame(run.columns).assign(
                agent=run.agent, run=run.number, bsuite_id=run.bsuite_id
            )
            for run in self.runs
        ]
        rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
        first = ["agent", "run", "bsuite_id", *LOG_COLUMNS]
        return rows.reindex(columns=[*first, *(c for c in rows.columns if c not in first)])


def merged(parts: Iterable[Logs]) -> Logs:
    """Merge the logs of several places; runs of one agent in one setting are numbered
    consecutively.

    Runs of an agent that come from one place keep belonging together: all of them get the same
    first number, the lowest that no earlier place has taken for this agent.
    """
    runs: list[Run] = []
    problems: list[str] = []
    notes: list[str] = []
    taken: dict[str, int] = {}
    for part in parts:
        for run in part.runs:
            start = taken.get(run.agent, 0)
            runs.append(dataclasses.replace(run, number=start + run.number) if start else run)
        for agent in part.agents:
            used = max(run.number for run in part.runs if run.agent == agent) + 1
            taken[agent] = taken.get(agent, 0) + used
        problems += part.problems
        notes += part.notes
    return Logs(tuple(runs), tuple(problems), tuple(notes))


def logs_of_table(table: pd.DataFrame, *, name: str = "logs") -> Logs:
    """Read logs from a table in long form.

    Args:
      table: one row per logged episode, rows of a run in order; columns `bsuite_id`, those of the
        log (`Experiment.log_columns`), and, where there are several, `agent` and `run`.
      name: stands in place of the file in messages.

    Raises:
      JbrlError: a column is missing, an id is not in the sweep, a value is no finite number, or
        the rows of a run are out of order.
    """
    if "bsuite_id" not in table.columns:
        raise JbrlError(f"{name}: no column 'bsuite_id'{nearest('bsuite_id', table.columns)}")
    check_once(table.columns, name)
    if not len(table):
        raise JbrlError(f"{name}: no rows: expected one per logged episode")
    table = table.reset_index(drop=True)
    keyed = table.assign(
        agent=as_text(table, ("agent",), name) if "agent" in table else name,
        run=_run_numbers(table["run"], name) if "run" in table else 0,
        bsuite_id=as_text(table, ("bsuite_id",), name),
    )
    runs = []
    for key, rows in keyed.groupby(["agent", "run", "bsuite_id"], sort=False):
        agent, number, bsuite_id = key
        runs.append(_run_of_rows(str(agent), int(number), str(bsuite_id), rows, name))
    return Logs(tuple(runs))


def _run_numbers(values: pd.Series, name: str) -> np.ndarray:
    """Return the numbers of runs, [rows] int64."""
    numbers = as_floats(values)
    bad = np.flatnonzero(~((numbers >= 0) & (numbers <= LARGEST) & (numbers % 1 == 0)))
    if bad.size:
        value = shown(values.iloc[bad[0]], str)
        raise JbrlError(
            f"{name}: row {bad[0] + 1}: run = '{value}': expected a whole number, 0 or more"
        )
    return numbers.astype(np.int64)


def _run_of_rows(agent: str, number: int, bsuite_id: str, rows: pd.DataFrame, name: str) -> Run:
    experiment = known_id(bsuite_id, name)
    check_columns(experiment, rows.columns, f"{name}: {bsuite_id}")
    columns = {c: as_floats(rows[c]) for c in experiment.log_columns}
    for column, values in columns.items():
        bad = np.flatnonzero(np.isnan(values))
        if bad.size:
            row, value = rows.index[bad[0]] + 1, shown(rows[column].iloc[bad[0]])
            raise JbrlError(
                f"{name}: {bsuite_id}: row {row}: {column} = {value}: expected a finite number"
            )
    check_values(columns, f"{name}: {bsuite_id}", rows.index + 1)
    return Run(agent, number, bsuite_id, columns, name)


def known_id(bsuite_id: str, place: str) -> Experiment:
    """Return the experiment of an id.

    Raises:
      JbrlError: the id is not one of the 468 of the sweep.
    """
    if bsuite_id in SWEEP:
        return SWEEP[bsuite_id].experiment
    name, _, index = bsuite_id.partition("/")
    if name not in EXPERIMENTS:
        raise JbrlError(
            f"{place}: id '{bsuite_id}': unknown experiment '{name}'{nearest(name, EXPERIMENTS)}"
        )
    last = len(EXPERIMENTS[name].settings) - 1
    raise JbrlError(f"{place}: id '{bsuite_id}': index {index!r}: expected 0 to {last}")


def check_once(columns: Iterable[object], place: str) -> None:
    """Refuse two columns of one name.

    Raises:
      JbrlError: names the first.
    """
    twice = [name for name, times in Counter(columns).items() if times > 1]
    if twice:
        raise JbrlError(f"{place}: column '{shown(twice[0], str)}' occurs twice: expected it once")


def check_columns(experiment: Experiment, columns: Iterable[str], place: str) -> None:
    """Refuse a log that lacks columns of its experiment.

    Raises:
      JbrlError: names them.
    """
    present = list(columns)
    check_once((name for name in present if name in experiment.log_columns), place)
    missing = [c for c in experiment.log_columns if c not in present]
    if missing:
        raise JbrlError(
            f"{place}: no column {', '.join(missing)} (found: "
            f"{listed(present) or 'none'}): a log of {experiment.name} has "
            f"{', '.join(experiment.log_columns)}"
        )


def check_values(
    columns: Mapping[str, np.ndarray], place: str, rows: Sequence[int] | None = None
) -> None:
    """Refuse values of a run that are wrong.

    Args:
      rows: their numbers in the file; default: from 1, the first after the header.

    Raises:
      JbrlError: there are no rows, one has a value that is not finite, an episode is no number of
        one, or they are out of order.
    """
    episode = columns["episode"]
    if not len(episode):
        raise JbrlError(f"{place}: no rows: expected one per logged episode")
    rows = range(1, len(episode) + 1) if rows is None else rows
    for name, values in columns.items():
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            value = values[bad[0]]
            raise JbrlError(
                f"{place}: row {rows[bad[0]]}: {name} = {value:g}: expected a finite number"
            )
    bad = np.flatnonzero((episode < 1) | (episode > LARGEST) | (episode % 1 != 0))
    if bad.size:
        raise JbrlError(
            f"{place}: row {rows[bad[0]]}: episode = {episode[bad[0]]:g}: expected a whole number "
            f"from 1 to {LARGEST:.0e}"
        )
    for name, least in (("episode", 1), ("steps", 0)):
        values = columns[name]
        back = np.flatnonzero(np.diff(values) < least)
        if back.size:
            at = back[0] + 1
            raise JbrlError(
                f"{place}: row {rows[at]}: {name} = {values[at]:g} after {values[at - 1]:g}: rows "
                f"out of order, expected {'larger' if least else 'no smaller'} numbers than before"
            )


PATTERN = "bsuite_id_-_*.csv"
LARGEST = 10**15  # number of an episode or a run: float64 holds all integers up to it
INTEGERS = frozenset(
    ("steps", "episode", "episode_len", "total_perfect", "total_upright", "total_bad_episodes")
)
_NAME = re.compile(r"bsuite_id_-_(.+)-([0-9]+)\.csv")


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
    with naming(folder, "read"):
        paths = sorted(folder.glob(PATTERN))
    if not paths:
        raise JbrlError(f"{folder}: no logs: expected files named {PATTERN}")
    runs: dict[str, Run] = {}
    problems, notes = [], []
    for path in paths:
        try:
            run = read_file(path, agent, number)
        except JbrlError as error:
            problems.append(str(error))
            continue
        if run.bsuite_id in runs:
            other = Path(runs[run.bsuite_id].source).name
            problems.append(
                f"{path}: a second file of {run.bsuite_id} beside {other}: expected one per id"
            )
            continue
        runs[run.bsuite_id] = run
        if run.truncated:
            row = len(run.columns["episode"]) + 1
            notes.append(
                f"{path}: row {row} is cut off (no line end follows) and is left out: "
                f"{run.bsuite_id} counts up to episode {run.episodes}"
            )
    return Logs(tuple(runs.values()), tuple(problems), tuple(notes))


def read_file(path: Path, agent: str, number: int = 0) -> Run:
    """Read one log.

    Raises:
      JbrlError: the file cannot be read, its name holds no id of the sweep, or its columns or
        rows are not those of a log; the message names file, row and column.
    """
    bsuite_id = _id_of(path)
    experiment = known_id(bsuite_id, str(path))
    text = read_text(path)
    truncated = bool(text) and not text.endswith("\n")
    if truncated and "\n" in text:
        text = text[: text.rindex("\n") + 1]
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise JbrlError(f"{path}: row {reader.line_num - 1}: no CSV: {error}") from None
    while rows and not "".join(rows[-1]).strip():
        rows.pop()
    header = [name.strip() for name in rows[0]] if rows else []
    check_columns(experiment, header, str(path))
    values = _values(rows[1:], header, experiment.log_columns, path)
    columns = dict(zip(experiment.log_columns, values.T, strict=True))
    check_values(columns, str(path))
    return Run(agent, number, bsuite_id, columns, str(path), truncated)


def write_folder(
    runs: Iterable[Run], folder: Path, inner: Callable[[Run], str] | None = None
) -> list[Path]:
    """Write one file for each run, as the original would; return the paths.

    Args:
      runs: one for each setting of an inner folder.
      folder: made if it is not there; it has all files afterwards, or is as it was.
      inner: the folder below `folder` that a run belongs to, if not itself.

    Raises:
      JbrlError: a file of this name is there already, or the folder cannot be written.
    """
    names = {}
    for run in runs:
        file = f"bsuite_id_-_{run.bsuite_id.replace('/', '-')}.csv"
        names[Path(inner(run) if inner else "", file)] = run
    for name in names:
        if (folder / name).exists():
            raise JbrlError(f"{folder / name}: exists already: choose another folder, or remove it")
    with writing(folder, "logs") as new:
        for name, run in names.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_text(_text(run.columns), encoding="utf-8", newline="")
    return [folder / name for name in names]


def _id_of(path: Path) -> str:
    """Return the id that a file name denotes; leading zeros of the index do not count."""
    parts = _NAME.fullmatch(path.name)
    if not parts:
        raise JbrlError(
            f"{path}: the name holds no id: expected bsuite_id_-_<experiment>-<index>.csv"
        )
    return f"{parts[1]}/{int(parts[2])}"


def _values(
    rows: list[list[str]], header: list[str], wanted: tuple[str, ...], path: Path
) -> np.ndarray:
    """Return the columns wanted, [rows, columns] float64. Python's conversion is exact."""
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(header):
            raise JbrlError(
                f"{path}: row {number}: {len(cells)} fields: expected {len(header)}, as in the "
                "header"
            )
    places = [header.index(name) for name in wanted]
    texts = [cells[place] for cells in rows for place in places]
    values = as_floats(pd.Series(texts, dtype=object))
    bad = np.flatnonzero(np.isnan(values))
    if bad.size:
        row, column = divmod(int(bad[0]), len(wanted))
        raise JbrlError(
            f"{path}: row {row + 1}: {wanted[column]} = '{texts[bad[0]]}': expected a finite number"
        )
    return values.reshape(len(rows), len(wanted))


def _text(columns: Mapping[str, np.ndarray]) -> str:
    """Return a file's content: integers as integers where a column counts something, floats in
    full.
    """
    texts = [
        [str(int(v)) if name in INTEGERS and v % 1 == 0 else repr(v) for v in values.tolist()]
        for name, values in columns.items()
    ]
    rows = [",".join(columns), *map(",".join, zip(*texts, strict=True))]
    return "\n".join(rows) + "\n"
