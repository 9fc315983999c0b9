"""An archive says what the directory says that it was made from."""

import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.base.errors import JbrlError
from tests.study.storage.test_store import HEADER, opened, returns_of


@pytest.fixture
def made(tmp_path):
    """(results, folder of an archive): two of three units are done."""
    store, units = opened(tmp_path / "full")
    for unit in units[1:]:
        store.save(unit, HEADER, returns_of(unit))
    results = jbrl.Results(tmp_path / "full")
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


def test_what_an_archive_has_not_is_said(made, tmp_path):
    results, folder = made
    kept = jbrl.Results(folder)
    (tmp_path / "file").write_text("")
    for call, message in (
        (lambda: kept.trajectories("GC", "Random"), "an archive holds no trajectories"),
        (lambda: kept.learned("GC", "Random"), "has found nothing"),
        (lambda: kept.archive(tmp_path / "twice"), "is an archive already"),
        (lambda: results.archive(results.store.folder), "needs a folder of its own"),
        (lambda: results.archive(tmp_path / "no", decimals=-1), "decimals = -1: expected 0 or"),
        (lambda: results.archive(tmp_path / "file" / "a"), "the archive cannot be written here"),
    ):
        with pytest.raises(JbrlError, match=message):
            call()


@pytest.mark.parametrize("name", ["study.json", "units.parquet", "returns.parquet"])
def test_damage_is_said(made, name):
    folder = made[1]
    (folder / name).write_bytes(b"no such thing")
    with pytest.raises(JbrlError, match=rf"{name}: cannot be read"):
        jbrl.Results(folder).scores  # noqa: B018
