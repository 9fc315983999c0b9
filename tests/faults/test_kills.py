"""`kill -9` loses nothing."""

import shutil
import warnings
from pathlib import Path

import pytest

import jbrl
from tests.faults.cases import differences, files, flip, outcome
from tests.faults.kills import Ordeal, wrongs
from tests.faults.warm import Warm


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "seed", "kills"), [("plain", 0, 4), ("episodes", 2, 20), ("search", 1, 12)]
)
def test_kills(tmp_path, kind, seed, kills):
    """`benchmarks/faults.py` does it 200 times."""
    with Warm(tmp_path / "cache") as warm:  # a kill may leave half a program there
        figures = Ordeal(warm, tmp_path, seed, kind).run(kills)
    assert figures.losses == []
    assert figures.tries == kills and (kind == "plain" or figures.checkpoints)
    assert figures.completed or kind != "search"


@pytest.mark.slow
def test_two_runs_of_one_study_and_a_reader(study, warm, whole):
    out, logs = study.parent / "out", [study.parent / f"log{number}" for number in (1, 2)]
    runs = [warm.start("run", study, "--out", out, log=log, often=True) for log in logs]
    codes: list[int | None] = [None, None]
    read = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a reader never sees half a file
        while None in codes:
            pairs = zip(codes, runs, strict=True)
            codes = [code if code is not None else run.wait(0.01) for code, run in pairs]
            if (out / "study.json").exists():
                assert list(differences(outcome(out), whole)) == []
                read += 1
    assert codes == [0, 0] and read > 1
    assert not any("warning" in log.read_text() or "error" in log.read_text() for log in logs)
    assert list(wrongs(out, whole, set(whole))) == [] and not list(out.rglob("*.tmp"))


def swap(path: Path) -> None:
    """Another unit's result, whole, under this name."""
    other = next(other for other in files(path.parent) if other != path)
    shutil.copy(other, path)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("harm", "text"), [(flip, "damaged"), (swap, "another unit"), (Path.unlink, "is gone")]
)
def test_what_is_looked_for_would_be_found(study, whole, harm, text):
    out = study.parent / "out"
    jbrl.run(study, out)
    assert list(wrongs(out, whole, set(whole))) == []
    harm(files(out / "units")[0])
    assert any(text in wrong for wrong in wrongs(out, whole, set(whole)))


def test_other_numbers_would_be_found(study, whole):
    out = study.parent / "out"
    jbrl.run(study, out)
    for name, arrays in whole.items():
        for key in arrays:
            expected = {**whole, name: {**arrays, key: arrays[key] + arrays[key].dtype.type(1)}}
            assert list(wrongs(out, expected, set())) == [f"{name}: {key} differs"]
