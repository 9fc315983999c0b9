"""The index spares parsing and no check: results are the same with, without and beside a
wrong one.
"""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.study.status import Observer
from jbrl.study.storage import files, index
from jbrl.study.storage.store import ResultWarning, Store
from tests.faults.cases import empty, flip, halve
from tests.study.storage.test_store import HEADER, opened, returns_of, study

N = 80  # units, more than `index.MANY`


@pytest.fixture
def folder(tmp_path):
    """A study of N units, all done but the last, which failed, and read once."""
    made = study()
    made = type(made)(
        made.facts() | {"agents": [{"algorithm": "e-Greedy", "epsilon": [k / N for k in range(N)]}]}
    )
    store, units = opened(tmp_path / "out", made)
    for unit in units[:-1]:
        store.save(unit, HEADER, returns_of(unit) + unit.parameters["epsilon"])
    store.save(units[-1], {"status": "failed", "reason": "E: no"}, np.zeros(0))
    store.read()
    return tmp_path / "out"


def tables(folder: Path) -> list[pd.DataFrame]:
    store = Store(folder)
    return [store.units(), store.returns(), jbrl.Results(folder).scores]


def same(found: list[pd.DataFrame], expected: list[pd.DataFrame]) -> bool:
    return all(a.equals(b) for a, b in zip(found, expected, strict=True))


def parsed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """Return the number of files that reading the study once unzips."""
    count, parse = [0], files.parse

    def counted(*given: object, **named: object) -> object:
        count[0] += 1
        return parse(*given, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(files, "parse", counted)
        Store(folder).read()
    return count[0]


def test_the_second_reader_parses_the_index_alone(folder, monkeypatch):
    assert parsed(monkeypatch, folder) == 1
    expected, store = tables(folder), Store(folder)
    for id, found in store.read().found.items():
        alone = store.result(id)
        assert alone is not None and alone.header == found.header
        assert alone.returns.tobytes() == found.returns.tobytes()
    (folder / index.NAME).unlink()
    assert parsed(monkeypatch, folder) >= N
    assert same(tables(folder), expected) and expected[0]["status"].eq("done").sum() == N - 1


def other(path: Path) -> None:
    """A sound file that is no index."""
    path.write_bytes(files.pack({"index": index.FORMAT, "ids": ["a"]}, {"returns": np.zeros(3)}))


def later(path: Path) -> None:
    header, arrays, _ = files.unpack(path.read_bytes())
    path.write_bytes(files.pack(header | {"index": index.FORMAT + 1}, arrays))


@pytest.mark.parametrize("harm", [halve, flip, empty, other, later])
def test_a_damaged_index_is_made_anew(folder, harm, monkeypatch):
    expected, path = tables(folder), folder / index.NAME
    harm(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(tables(folder), expected)
    assert parsed(monkeypatch, folder) == 1


@pytest.mark.parametrize("harm", [halve, flip, empty])
def test_damage_to_a_result_is_noticed_although_the_index_knows_it(folder, harm):
    id = Store(folder).manifest()["units"][3]["id"]
    path = folder / "units" / f"{id}.npz"
    before = path.stat()
    harm(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a failing disk leaves it
    with pytest.warns(ResultWarning, match=f"{id}.npz is damaged"):
        assert Store(folder).units()["status"][3] == "missing"
    with pytest.warns(ResultWarning, match=f"{id}.npz is damaged"):
        assert Observer(folder).look().done == N - 2


def test_newer_missing_and_foreign_files_count_not_the_index(folder):
    made = Store(folder)
    listed = made.manifest()["units"]
    paths = [folder / "units" / f"{unit['id']}.npz" for unit in listed]
    header, arrays, _ = files.unpack(paths[0].read_bytes())
    paths[0].write_bytes(files.pack(header, {"returns": arrays["returns"] + 1}))
    paths[1].unlink()
    shutil.copy(paths[3], paths[2])
    with pytest.warns(ResultWarning, match="result of another unit"):
        found = made.read().found
    assert listed[1]["id"] not in found and listed[2]["id"] not in found
    np.testing.assert_array_equal(found[listed[0]["id"]].returns, arrays["returns"] + 1)


def test_shards_are_merged_by_copying_units(folder, tmp_path):
    expected = tables(folder)
    for number in (0, 1):
        part = tmp_path / f"part{number}"
        (part / "units").mkdir(parents=True)
        shutil.copy(folder / "study.json", part)
        for path in sorted((folder / "units").iterdir())[number::2]:
            shutil.copy(path, part / "units")
        Store(part).read()
    for path in (tmp_path / "part1" / "units").iterdir():
        shutil.copy(path, tmp_path / "part0" / "units")
    assert same(tables(tmp_path / "part0"), expected)


def test_a_reader_that_may_not_write_reads(folder, monkeypatch):
    expected = tables(folder)
    (folder / index.NAME).unlink()

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index, "write_whole", full)
    assert same(tables(folder), expected)
    assert not (folder / index.NAME).exists()


def test_an_index_has_a_greatest_size(folder, monkeypatch):
    expected = tables(folder)
    (folder / index.NAME).unlink()
    monkeypatch.setattr(index, "MAX_NUMBERS", 4 * (N - 10))
    assert same(tables(folder), expected)
    assert parsed(monkeypatch, folder) == 1 + 9


def test_small_studies_have_none(tmp_path):
    store, units = opened(tmp_path)
    store.save(units[0], HEADER, returns_of(units[0]))
    store.read()
    assert not (tmp_path / index.NAME).exists()


READ = (
    "import sys; from jbrl.study.storage.store import Store; "
    "print(len(Store(sys.argv[1]).read().found))"
)


@pytest.mark.slow
def test_readers_that_are_killed_leave_a_whole_index_or_none(folder):
    """Four at once, each killed at another moment of its writing."""
    path = folder / index.NAME
    path.unlink()
    slow = (
        "import os, sys, time; from jbrl.study.storage import files; real = os.fsync\n"
        "def fsync(n):\n real(n); print('now', flush=True); time.sleep(60)\n"
        "files.os.fsync = fsync\n"
    )
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", slow + READ, str(folder)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for reader in readers:
        assert reader.stdout is not None and reader.stdout.readline() == "now\n"
        reader.kill()
        reader.wait()
        reader.stdout.close()
    assert not path.exists()  # only what `Store.open` removes later
    found = [
        subprocess.Popen(
            [sys.executable, "-c", READ, str(folder)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [json.loads(reader.communicate()[0]) for reader in found] == [N, N]
    assert len(index.Index.load(path)) == N
