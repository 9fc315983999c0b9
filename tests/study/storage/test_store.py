"""Results on disk: nothing is lost, nothing damaged is believed, nothing of another study is
mixed in.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jbrl.play.unit import Unit
from jbrl.study.file import Study, load_study
from jbrl.study.storage import files
from jbrl.study.storage.files import StoreError
from jbrl.study.storage.store import ResultWarning, Store
from jbrl.study.storage.tables import UNIT_COLUMNS
from tests.faults.cases import empty, flip, halve

HEADER = {"status": "done", "device": "cpu", "platform": "cpu", "batch": 512}
HEADER |= {"offline_seconds": 0.5, "online_seconds": 1e-6}
HEADER |= {"latency_seconds": None, "compile_seconds": 2.0}

AGENTS = ({"algorithm": "e-Greedy", "epsilon": [0, 0.5]}, {"algorithm": "Random"})


def study(agents: Sequence[dict[str, Any]] = AGENTS, **settings: Any) -> Study:
    return load_study(
        {
            "study": {"name": "tiny", "n_environments": 4, "horizon": 3, **settings},
            "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
            "agents": list(agents),
        }
    )


def opened(folder: Path, of: Study | None = None) -> tuple[Store, list[Unit]]:
    of = of or study()
    store = Store(folder)
    store.open(of.facts(), of.units)
    return store, of.units


def returns_of(unit: Unit) -> np.ndarray:
    """Numbers that have no short decimal form."""
    return np.sqrt(np.arange(4) + len(unit.label))


def test_what_is_written_is_read_back_to_the_last_bit(tmp_path):
    store, units = opened(tmp_path)
    moves = {
        "states": np.ones((4, 4), np.int32),
        "actions": np.zeros((4, 3), np.int32),
        "rewards": np.full((4, 3), 0.1, np.float32),
    }
    store.save(units[0], HEADER, returns_of(units[0]), moves)
    found = store.result(units[0].id)
    assert found is not None and found.recorded and found.status == "done"
    np.testing.assert_array_equal(found.returns, returns_of(units[0]), strict=True)
    assert found.header["configuration"] == units[0].configuration
    for name, values in store.trajectories(units[0].id).items():
        np.testing.assert_array_equal(values, moves[name], strict=True)


def test_tables_stand_in_the_order_of_the_study_not_of_the_work(tmp_path):
    store, units = opened(tmp_path)
    for unit in reversed(units[1:]):
        store.save(unit, HEADER, returns_of(unit))
    table = store.units()
    assert tuple(table.columns) == UNIT_COLUMNS
    assert list(table["algorithm"]) == ["e-Greedy", "e-Greedy", "Random"]
    assert list(table["status"]) == ["missing", "done", "done"]
    assert list(table["parameters"]) == ['{"epsilon": 0.0}', '{"epsilon": 0.5}', "{}"]
    assert list(table["n"]) == [0, 4, 4]
    returns = store.returns()
    columns = "experiment algorithm parameters unit seed score"
    assert " ".join(returns.columns) == columns
    assert list(returns["unit"]) == [0, 1, 2, 3] * 2
    np.testing.assert_array_equal(
        returns["score"], np.concatenate([returns_of(u) for u in units[1:]])
    )


@pytest.mark.parametrize("error", [MemoryError(), OSError(5, "Input/output error")])
def test_what_cannot_be_read_just_now_is_not_taken_for_damaged(tmp_path, error, monkeypatch):
    store, units = opened(tmp_path)
    store.save(units[0], HEADER, returns_of(units[0]))

    def fail(*given: object, **named: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(
            *((files, "_array") if isinstance(error, MemoryError) else (Path, "read_bytes")), fail
        )
        with pytest.raises(
            StoreError, match=r"\.npz: cannot be read: (MemoryError|Input/output error)"
        ):
            store.result(units[0].id)
    assert store.result(units[0].id) is not None


@pytest.mark.parametrize("harm", [halve, flip, empty])
def test_damaged_missing_and_foreign_results_count_as_missing(tmp_path, harm):
    store, units = opened(tmp_path)
    for unit in units:
        store.save(unit, HEADER, returns_of(unit))
    paths = [tmp_path / "units" / f"{unit.id}.npz" for unit in units]
    harm(paths[0])
    shutil.copy(paths[2], paths[1])
    with pytest.warns(ResultWarning) as warned:
        found = store.results([unit.id for unit in units])
    assert list(found) == [units[2].id]
    assert all(f"{units[k].id}.npz is damaged" in str(warned[k].message) for k in (0, 1))
    assert "result of another unit" in str(warned[1].message)


def test_shards_are_merged_by_copying_units(tmp_path):
    merged, units = opened(tmp_path / "all")
    for unit in units:
        part, _ = opened(tmp_path / unit.id)
        part.save(unit, HEADER, returns_of(unit))
        shutil.copytree(part.units_folder, merged.units_folder, dirs_exist_ok=True)
    assert list(merged.units()["status"]) == ["done"] * 3
    expected = np.concatenate([returns_of(unit) for unit in units])
    np.testing.assert_array_equal(merged.returns()["score"], expected)


@pytest.mark.parametrize("status", ["done", "failed"])
def test_a_result_takes_the_place_of_its_checkpoint(tmp_path, status):
    store, units = opened(tmp_path)
    store.save(units[0], {**HEADER, "status": "partial"}, returns_of(units[0])[:2])
    found = store.checkpoint(units[0].id)
    assert found is not None and len(found.returns) == 2
    assert list(store.units()["status"]) == ["missing"] * 3
    store.save(units[0], {**HEADER, "status": status}, returns_of(units[0]))
    assert store.checkpoint(units[0].id) is None
    assert [p.name for p in (tmp_path / "units").iterdir()] == [f"{units[0].id}.npz"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    store, units = opened(tmp_path)
    store.save(units[0], HEADER, returns_of(units[0]))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="results cannot be written here: No space left on device"):
        store.save(units[0], HEADER, np.zeros(4))
    found = store.result(units[0].id)
    assert found is not None
    np.testing.assert_array_equal(found.returns, returns_of(units[0]))


@pytest.mark.parametrize(
    ("field", "there", "here"),
    [
        ("name", "'tiny'", "'other'"),
        ("seed", "0", "1"),
        ("n_environments", "4", "5"),
        ("horizon", "3", "4"),
        ("discount", "0.95", "0.9"),
    ],
)
def test_another_study_is_refused_by_field_and_values(tmp_path, field, there, here):
    opened(tmp_path)
    with pytest.raises(StoreError, match="holds the results of another study") as caught:
        opened(tmp_path, study(**{field: eval(here)}))
    assert f"{field} is {there} there and {here} in this one" in str(caught.value)


def test_more_agents_of_the_same_study_are_welcome(tmp_path):
    store, units = opened(tmp_path)
    store.save(units[0], HEADER, returns_of(units[0]))
    data = study().facts()
    data["agents"].append({"algorithm": "e-Greedy", "epsilon": 0.7})
    store, units = opened(tmp_path, Study(data))
    assert list(store.units()["status"]) == ["done", "missing", "missing", "missing"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", json.dumps({"format": 99})])
def test_a_damaged_manifest_is_named(tmp_path, content):
    opened(tmp_path)
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(StoreError, match=r"study\.json: (damaged|format)"):
        Store(tmp_path).manifest()


def test_old_temporary_files_are_removed_and_new_ones_left(tmp_path):
    opened(tmp_path)
    old, new = tmp_path / "units" / ".a.npz.1.tmp", tmp_path / "units" / ".b.npz.2.tmp"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    opened(tmp_path)
    assert not old.exists() and new.exists()
