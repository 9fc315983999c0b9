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


def test_tables_are_the_same_to_the_last_bit(made):
    results, folder = made
    again = jbrl.Results(folder)
    assert sorted(p.name for p in folder.iterdir()) == [
        "returns.parquet",
        "study.json",
        "units.parquet",
    ]
    for name in ("returns", "scores", "units", "strategies"):
        pd.testing.assert_frame_equal(
            getattr(again, name), getattr(results, name), check_dtype=False
        )
    assert again.returns["score"].dtype == np.float64
    assert repr(again).replace(str(folder), "") == repr(results).replace(
        str(results.store.folder), ""
    )


def test_the_manifest_is_kept(made):
    results, folder = made
    again = dict(jbrl.Results(folder).manifest)
    assert again.pop("decimals") is None
    assert again == results.manifest


def test_a_report_can_be_written_from_it(made, tmp_path):
    page = jbrl.Results(made[1]).report(tmp_path / "report")
    assert page.is_file()


def test_rounded_returns_are_off_by_half_a_digit_at_most(made, tmp_path):
    results, _ = made
    paths = results.archive(tmp_path / "rounded", decimals=2)
    assert paths[0].name == "study.json"
    rounded = jbrl.Results(tmp_path / "rounded")
    assert rounded.manifest["decimals"] == 2
    off = np.abs(rounded.returns["score"] - results.returns["score"])
    assert 0 < off.max() <= 0.005 + 1e-12


def test_returns_tell_the_distributions_and_can_be_read_alone(made):
    found = pd.read_parquet(made[1] / "returns.parquet")
    assert list(found.columns) == [
        "experiment",
        "prior",
        "test",
        "algorithm",
        "parameters",
        "unit",
        "seed",
        "score",
    ]
    assert set(found["prior"]) == {"GC"}


def test_what_an_archive_has_not_is_said(made, tmp_path):
    results, folder = made
    kept = jbrl.Results(folder)
    with pytest.raises(JbrlError, match="an archive holds no trajectories"):
        kept.trajectories("GC", "Random")
    with pytest.raises(JbrlError, match="has found nothing"):
        kept.learned("GC", "Random")
    with pytest.raises(JbrlError, match="is an archive already"):
        kept.archive(tmp_path / "twice")
    with pytest.raises(JbrlError, match="needs a folder of its own"):
        results.archive(results.store.folder)
    with pytest.raises(JbrlError, match="decimals = -1: expected 0 or more"):
        results.archive(tmp_path / "no", decimals=-1)


@pytest.mark.parametrize("name", ["study.json", "units.parquet", "returns.parquet"])
def test_damage_is_said(made, name):
    folder = made[1]
    (folder / name).write_bytes(b"no such thing")
    with pytest.raises(JbrlError, match=rf"{name}: cannot be read"):
        jbrl.Results(folder).scores  # noqa: B018


def test_a_place_that_cannot_be_written_is_refused(made, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JbrlError, match="the archive cannot be written here"):
        made[0].archive(tmp_path / "file" / "below")
