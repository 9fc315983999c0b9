"""Logs of the Behaviour Suite from anywhere: results of jbrl, folders of the original, tables."""

import dataclasses
import gzip
import itertools
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import LOG, SWEEP
from jbrl.base.errors import JbrlError, listed
from jbrl.base.files import check_file, is_temporary, naming, replacing
from jbrl.results import Results
from jbrl.stats.bsuite.logs import (
    PATTERN,
    Logs,
    Run,
    check_values,
    has_logs,
    logs_of_table,
    merged,
    read_folder,
    write_folder,
)
from jbrl.stats.table import agent_names

MANIFEST = "study.json"
PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".csv.gz", *PARQUET)
_RUN = re.compile(r"run-[0-9]+")
_ODD = re.compile(r"[^\w.()=;, +-]+")


def read_places(places: Iterable[str]) -> Logs:
    """Read the logs of several places, in their order.

    A place is a folder or a file, with `NAME=` before it to name the agent. A folder holds

    - results of a study (`jbrl run`), whose agents keep their names, with the parameters in which
      those of an algorithm differ, in any of the studies;
    - CSV files of the original: one agent, called like the folder;
    - folders of such files: an agent each, called like its folder, where that again may hold
      folders, which are its runs; folders `run-0`, `run-1`, … are runs of one agent.

    A file is a table as `write_table` writes it. An agent that is named in several places has been
    run several times.

    Raises:
      JbrlError: a place is not there, is given twice, has no logs, or is a table that cannot be
        used. Single files of the original that cannot be used are listed in `Logs.problems`.
    """
    named: dict[Path, tuple[str | None, Path]] = {}
    for place in places:
        name, path = _named(place)
        if path.resolve() in named:
            raise JbrlError(f"{path}: given twice: expected each place once")
        named[path.resolve()] = name, path
    # an algorithm may have other parameters in another study
    alone = [path for name, path in named.values() if name is None and (path / MANIFEST).exists()]
    units = itertools.chain.from_iterable(Results(path).manifest["units"] for path in alone)
    names = agent_names((u["algorithm"], u["parameters"]) for u in units)
    return merged([_read_place(path, name, names) for name, path in named.values()])


def logs_of(results: Results, names: Mapping[tuple[str, str], str] | None = None) -> Logs:
    """Return the logs of a study over settings of the sweep, from its finished units.

    Each lifetime of a unit is a run; those of several seeds are numbered on. Units of other
    problems are left out.

    Args:
      names: of agents by algorithm and parameters (default: those of `Results.score_table`).

    Raises:
      JbrlError: no unit of the study has logs.
    """
    runs: list[Run] = []
    numbers: dict[tuple[str, str], int] = {}
    agents = ((u["algorithm"], u["parameters"]) for u in results.manifest["units"])
    names = names or agent_names(agents)
    done = (results.units["status"] == "done").tolist()
    for unit in itertools.compress(results.manifest["units"], done):
        bsuite_id = id_of(unit["test"]) or id_of(unit["experiment"])
        if bsuite_id is None:
            continue
        kept = results.store.metrics(unit["id"])
        agent = names[unit["algorithm"], unit["parameters"]]
        source = f"{results.store.folder}: unit {unit['experiment']}/{unit['algorithm']}"
        for columns in _lifetimes(kept, SWEEP[bsuite_id].experiment.log_columns):
            check_values(columns, f"{source}: log of {bsuite_id}")
            number = numbers.get((agent, bsuite_id), 0)
            numbers[agent, bsuite_id] = number + 1
            runs.append(Run(agent, number, bsuite_id, columns, source))
    if not runs:
        raise JbrlError(
            f"{results.store.folder}: no logs of bsuite: expected finished units of problems "
            f"named bsuite/<experiment>/<index>"
        )
    return Logs(tuple(runs))


def id_of(problem: str) -> str | None:
    """Return `<experiment>/<index>` of a problem of the sweep, with or without `bsuite/` before
    it.
    """
    name = problem.removeprefix("bsuite/").partition("(")[0]  # settings of images may follow
    return name if name in SWEEP else None


def export(logs: Logs, folder: Path) -> list[Path]:
    """Write logs as the original's files; return the paths.

    One agent with one run of each setting goes to `folder` itself; several agents get a folder
    each, and several runs a folder `run-0`, `run-1`, … each.

    Raises:
      JbrlError: a file is there already, or the folder cannot be written.
    """
    agents = logs.agents
    runs = Counter(agent for agent, _ in {(run.agent, run.number) for run in logs.runs})
    folders = {agent: _folder_name(agent) if len(agents) > 1 else "" for agent in agents}
    if len(set(folders.values())) < len(folders):
        raise JbrlError(f"{folder}: two agents would share a folder: {listed(agents)}")

    def inner(run: Run) -> str:
        number = f"/run-{run.number}" if runs[run.agent] > 1 else ""
        return f"{folders[run.agent]}{number}".lstrip("/")

    return write_folder(sorted(logs.runs, key=lambda r: agents.index(r.agent)), folder, inner)


def _folder_name(agent: str) -> str:
    """Return a name of an agent that is the name of a folder below another one, and not hidden."""
    name = _ODD.sub(lambda odd: "".join(filter(_is_mark, odd[0])) or "_", agent)
    visible = name.lstrip(".")
    return "_" * (len(name) - len(visible)) + visible


def _is_mark(letter: str) -> bool:
    r"""Return whether a character belongs to the letter before it: `\w` has no vowels of Hindi."""
    return unicodedata.category(letter)[0] == "M"


def write_table(logs: Logs, path: Path) -> None:
    """Write all rows as one table, CSV or Parquet by its ending, which `read_places` reads.

    Raises:
      JbrlError: another ending, or it cannot be written.
    """
    if not path.name.lower().endswith(TABLES):
        raise JbrlError(f"{path}: expected a file ending in {', '.join(TABLES)}")
    zipped = "gzip" if path.suffix.lower() == ".gz" else None
    with naming(path, "written"), replacing(path) as temporary:
        if path.suffix.lower() in PARQUET:
            logs.table.to_parquet(temporary, index=False)
        else:
            logs.table.to_csv(temporary, index=False, lineterminator="\n", compression=zipped)


def _named(place: str) -> tuple[str | None, Path]:
    """Return an agent's name, if one is given, and the path."""
    name, equals, rest = str(place).partition("=")
    if equals and not Path(place).exists():
        if not name or not rest:
            raise JbrlError(f"'{place}': expected FOLDER or NAME=FOLDER")
        return name, Path(rest)
    return None, Path(place)


def _read_place(path: Path, name: str | None, names: Mapping[tuple[str, str], str]) -> Logs:
    if path.is_file():
        return _renamed(_read_table(path, name or path.name.split(".")[0]), name, path)
    if not path.is_dir():
        check_file(path)
        raise JbrlError(f"{path}: no such folder or file")
    if (path / MANIFEST).exists():
        return _renamed(logs_of(Results(path), None if name else names), name, path)
    folders = list(_folders(path, name))
    if not folders:
        raise JbrlError(
            f"{path}: no logs: expected files named {PATTERN} here or one or two folders deeper, "
            f"or the results of 'jbrl run' ({MANIFEST})"
        )
    read = {folder for folder, _ in folders}
    others = {file.parent for file in path.rglob(PATTERN)} - read
    left = sorted(p for p in others if not any(n[0] == "." for n in p.relative_to(path).parts))
    if left:
        raise JbrlError(
            f"{left[0]}: has logs, and so has {folders[0][0]}: expected those of an agent "
            "in its folder, or in folders of it, which are its runs"
        )
    return merged(read_folder(folder, agent) for folder, agent in folders)


def _folders(path: Path, name: str | None) -> Iterator[tuple[Path, str]]:
    """Yield folders with logs, and the agent of each."""
    if has_logs(path):
        yield path, name or path.resolve().name
        return
    for folder in _inner(path):
        if has_logs(folder):
            own = _RUN.fullmatch(folder.name)  # `export` has written those of one agent
            yield folder, name or (path.resolve() if own else folder).name
            continue
        for run in _inner(folder):
            if has_logs(run):
                yield run, name or folder.name


def _inner(path: Path) -> list[Path]:
    """Return folders in a folder, those with numbers in the order of these."""

    def key(folder: Path) -> list[tuple[int, str]]:
        parts = re.findall(r"\d+|\D+", folder.name)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    with naming(path, "read"):
        folders = [folder for folder in path.iterdir() if folder.is_dir()]
        return sorted((folder for folder in folders if not is_temporary(folder)), key=key)


def _renamed(logs: Logs, name: str | None, path: Path) -> Logs:
    """Return the logs under the name given, which only one agent can have."""
    if name is None:
        return logs
    if len(logs.agents) > 1:
        raise JbrlError(f"{name}={path}: has {len(logs.agents)} agents: expected one to be named")
    runs = tuple(dataclasses.replace(run, agent=name) for run in logs.runs)
    return dataclasses.replace(logs, runs=runs)


def _read_table(path: Path, name: str) -> Logs:
    if not path.name.lower().endswith(TABLES):
        raise JbrlError(f"{path}: expected a folder, or a file ending in {', '.join(TABLES)}")
    try:
        table = pd.read_parquet(path) if path.suffix.lower() in PARQUET else _read_csv(path)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise JbrlError(f"{path}: cannot be read as a table of logs: {reason}") from None
    if len(table.columns) == 1 and ";" in str(table.columns[0]):
        raise JbrlError(f"{path}: its columns are separated by ';': expected commas")
    named = table if "agent" in table else table.assign(agent=name)
    return logs_of_table(named, name=str(path))


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a table of logs, names as text: an agent may be called NA or 1.10.

    Raises:
      ValueError: it is no table, or its last line has no end.
    """
    import pyarrow as pa  # slow to import; its conversion of numbers is exact
    from pyarrow import csv

    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        content = file.read()
    if content and not content.endswith((b"\n", b"\r")):
        raise ValueError("its last line has no end, so that its last number may be cut off")
    texts = dict.fromkeys(("agent", "run", "bsuite_id"), pa.string())
    options = csv.ConvertOptions(column_types=texts)
    return csv.read_csv(pa.BufferReader(content), convert_options=options).to_pandas()


def _lifetimes(
    kept: dict[str, np.ndarray], wanted: Sequence[str]
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the log columns of each lifetime of a unit, with written rows only."""
    if any(LOG + name not in kept for name in wanted):
        return
    columns = {name: np.asarray(kept[LOG + name], np.float64) for name in wanted}
    for lane in range(len(columns["episode"])):
        written = np.isfinite(columns["episode"][lane])
        if written.any():
            yield {name: values[lane][written] for name, values in columns.items()}
