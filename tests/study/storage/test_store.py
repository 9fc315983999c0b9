"""Results on disk: nothing is lost, nothing damaged is believed, nothing of another study is mixed
in; outcomes as tables, archives, and the memory of the machine.
"""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.base.errors import JbrlError
from jbrl.play import machine
from jbrl.play.unit import Unit
from jbrl.study.file import Study, load_study
from jbrl.study.status import Observer
from jbrl.study.storage import files
from jbrl.study.storage.files import StoreError
from jbrl.study.storage.store import ResultWarning, Store
from jbrl.study.storage.tables import UNIT_COLUMNS, Outcomes, Result, with_latency
from tests.faults.cases import contents, empty, flip, full, halve

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


def begun(folder: Path, of: Study | None = None) -> tuple[Store, list[Unit]]:
    """A folder in which the first unit is done."""
    store, units = opened(folder, of)
    store.save(units[0], HEADER, returns_of(units[0]))
    return store, units


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
    store, units = begun(tmp_path)

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
    store, units = begun(tmp_path)

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


@pytest.mark.parametrize("part", ["header", "format", "id", "status", "returns"])
def test_a_file_that_lacks_what_each_has_counts_as_missing(tmp_path, part):
    store, units = begun(tmp_path)
    path = tmp_path / "units" / f"{units[0].id}.npz"
    header, arrays, _ = files.unpack(path.read_bytes())
    for found in (header, arrays):
        found.pop(part, None)
    header = [header] if part == "header" else header
    path.write_bytes(files.pack(header, arrays))  # with a seal that fits
    with pytest.warns(ResultWarning, match=path.name):
        assert store.result(units[0].id) is None


def test_more_agents_of_the_same_study_are_welcome(tmp_path):
    begun(tmp_path)
    data = study().facts()
    data["agents"].append({"algorithm": "e-Greedy", "epsilon": 0.7})
    store, _ = opened(tmp_path, Study(data))
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


LISTED = [
    {"id": str(k), "experiment": "e", "algorithm": f"a{k}", "parameters": "{}", "seed": k}
    for k in range(4)
]


@pytest.fixture
def outcomes():
    """Of four units: done, failed with a score, missing, done."""
    found = {
        "0": Result({"status": "done"}, np.array([1.0, 2.0])),
        "1": Result({"status": "failed"}, np.array([3.0, np.nan])),
        "3": Result({"status": "done"}, np.array([4.0, 5.0, 6.0])),
    }
    return Outcomes(LISTED, found)


def test_scores_are_those_of_units_that_are_done(outcomes):
    """Environments of each unit are numbered from 0 on, so that those of one seed can be paired."""
    rows = outcomes.returns()[["algorithm", "unit", "seed", "score"]]
    assert rows.to_numpy().tolist() == [
        ["a0", 0, 0, 1.0],
        ["a0", 1, 0, 2.0],
        ["a3", 0, 3, 4.0],
        ["a3", 1, 3, 5.0],
        ["a3", 2, 3, 6.0],
    ]
    assert outcomes.numbered().to_numpy().tolist() == [[0, 1], [0, 2], [3, 4], [3, 5], [3, 6]]
    assert outcomes.units()["status"].tolist() == ["done", "failed", "missing", "done"]


def test_units_that_failed_with_scores_are_listed_where_they_are_asked_for(outcomes):
    rows = outcomes.returns(failed=True)
    assert rows["algorithm"].tolist() == ["a0"] * 2 + ["a1"] * 2 + ["a3"] * 3
    assert rows["score"].isna().tolist() == [False] * 3 + [True] + [False] * 3


def test_without_results_tables_are_empty():
    nothing = Outcomes(LISTED, {})
    assert len(nothing.returns()) == len(nothing.numbered()) == 0
    assert nothing.units()["status"].tolist() == ["missing"] * 4


def test_a_time_without_a_99th_percentile_is_no_latency():
    """Earlier results hold the time of a compiled lifetime, which has a column of its own."""
    earlier, now = {"latency_seconds": 1e-5}, {"latency_seconds": 2e-4, "latency_p99_seconds": 3e-4}
    done = {"status": "done"}
    found = {"0": Result(done | earlier, np.ones(2)), "3": Result(done | now, np.ones(2))}
    units = Outcomes(LISTED, found).units()
    columns = units[["latency_seconds", "latency_p99_seconds", "alone_seconds"]].astype(float)
    np.testing.assert_array_equal(columns.iloc[0], [np.nan, np.nan, 1e-5])
    np.testing.assert_array_equal(columns.iloc[3], [2e-4, 3e-4, np.nan])
    assert "alone_seconds" not in Outcomes(LISTED, {"3": found["3"]}).units()
    bare = units.drop(columns=["latency_p99_seconds", "alone_seconds"])
    assert with_latency(bare)["latency_seconds"].isna().all()


NAMES = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """In no job, and in control group /job/step, which has no bound."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    groups = tmp_path / "groups"
    (groups / "job" / "step").mkdir(parents=True)
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/job/step\n")
    monkeypatch.setattr(machine, "GROUPS", groups)
    monkeypatch.setattr(machine, "OWN_GROUP", str(tmp_path / "own"))
    return groups


def physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def bound(group: Path, most: str, used: int = 0) -> None:
    (group / "memory.max").write_text(most + "\n")
    (group / "memory.current").write_text(f"{used}\n")


def test_without_any_bound_it_is_that_of_the_machine(alone):
    bound(alone / "job", "max")
    assert machine.memory_bytes() == physical()
    assert 0 < machine.available_memory() <= physical()


@pytest.mark.parametrize("group", ["job/step", "job", "."])
def test_the_bound_of_a_control_group_counts_whichever_has_it(alone, group):
    bound(alone / group, str(3 * 2**20), used=2**20)
    assert machine.memory_bytes() == 3 * 2**20
    assert machine.available_memory() == 2 * 2**20


def test_the_least_bound_counts(alone):
    bound(alone / "job", str(2**20), used=2**21)
    bound(alone / "job" / "step", str(2**22))
    assert machine.memory_bytes() == 2**20
    assert machine.available_memory() == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("512", "", "4"), 512),
        (("", "100", "4"), 400),
        (("0", "", "4"), None),
        (("", "100", ""), None),
    ],
)
def test_a_job_of_slurm_has_what_was_given_to_it(monkeypatch, values, expected):
    for name, value in zip(NAMES, values, strict=True):
        monkeypatch.setenv(name, value)
    assert machine.memory_bytes() == (expected * 2**20 if expected else physical())


def test_a_bound_above_the_memory_of_the_machine_says_nothing(monkeypatch):
    monkeypatch.setenv(NAMES[0], str(10**9))
    assert machine.memory_bytes() == physical()


@pytest.fixture
def made(tmp_path):
    """(results, folder of an archive): two of three units are done."""
    store, units = opened(tmp_path / "full")
    for unit in units[1:]:
        store.save(unit, HEADER, returns_of(unit))
    results = jbrl.Results(tmp_path / "full")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "strategies.parquet").touch()  # of an earlier archive, of other agents
    results.archive(tmp_path / "kept")
    return results, tmp_path / "kept"


def test_tables_are_the_same_to_the_last_bit_and_make_a_report(made, tmp_path):
    results, folder = made
    again = jbrl.Results(folder)
    names = ["returns.parquet", "study.json", "units.parquet"]
    assert sorted(path.name for path in folder.iterdir()) == names
    for name in ("returns", "scores", "units", "strategies"):
        kept, whole = getattr(again, name), getattr(results, name)
        pd.testing.assert_frame_equal(kept, whole, check_dtype=False)
    assert again.returns["score"].dtype == np.float64
    here, there = str(folder), str(results.store.folder)
    assert repr(again).replace(here, "") == repr(results).replace(there, "")
    assert again.manifest == results.manifest | {"decimals": None}
    assert again.report(tmp_path / "report").is_file()
    alone = pd.read_parquet(folder / "returns.parquet")
    columns = "experiment prior test algorithm parameters unit seed score"
    assert list(alone.columns) == columns.split() and set(alone["prior"]) == {"GC"}


def test_rounded_returns_are_off_by_half_a_digit_at_most(made, tmp_path):
    results, _ = made
    paths = results.archive(tmp_path / "rounded", decimals=2)
    assert paths[0].name == "study.json"
    rounded = jbrl.Results(tmp_path / "rounded")
    assert rounded.manifest["decimals"] == 2
    off = np.abs(rounded.returns["score"] - results.returns["score"])
    assert 0 < off.max() <= 0.005 + 1e-12


def test_an_archive_that_does_not_fit_on_the_disk_leaves_the_one_before(
    made, tmp_path, monkeypatch
):
    results, folder = made
    before = contents(folder)

    def full_at_last(table, path, **_):
        if Path(path).name.startswith((".returns", "returns")):
            full()

    monkeypatch.setattr(pd.DataFrame, "to_parquet", full_at_last)
    for place in (folder, tmp_path / "new"):
        with pytest.raises(JbrlError, match="the archive cannot be written here: No space"):
            results.archive(place, decimals=1)
    assert contents(folder) == before
    assert not (tmp_path / "new").exists()


def test_what_an_archive_has_not_is_said(made, tmp_path):
    results, folder = made
    kept = jbrl.Results(folder)
    (tmp_path / "file").write_text("")
    for call, message in (
        (lambda: kept.trajectories("GC", "Random"), "an archive holds no trajectories"),
        (lambda: kept.learned("GC", "Random"), "has found nothing"),
        (lambda: kept.archive(tmp_path / "twice"), "is an archive already"),
        (lambda: results.archive(results.store.folder), "needs a folder of its own"),
        (lambda: Store(kept.store.folder).check({}), "holds an archive of a study"),
        (lambda: Observer(kept.store.folder), "an archive of a study, where nothing runs"),
        (lambda: results.archive(tmp_path / "no", decimals=-1), "decimals = -1: expected 0 or"),
        (lambda: results.archive(tmp_path / "file" / "a"), "the archive cannot be written here"),
    ):
        with pytest.raises(JbrlError, match=message):
            call()


@pytest.mark.parametrize("kept", [slice(1, None), [0, *range(8)]])
def test_an_archive_has_as_many_scores_as_its_units_say(made, kept):
    path = made[1] / "returns.parquet"
    pd.read_parquet(path).iloc[kept].to_parquet(path)
    with pytest.raises(JbrlError, match=r"scores of unit .*: expected .*, as units.parquet says"):
        jbrl.Results(made[1]).scores  # noqa: B018


@pytest.mark.parametrize("name", ["study.json", "units.parquet", "returns.parquet"])
def test_damage_is_said(made, name):
    folder = made[1]
    (folder / name).write_bytes(b"no such thing")
    with pytest.raises(JbrlError, match=rf"{name}: cannot be read"):
        jbrl.Results(folder).scores  # noqa: B018
