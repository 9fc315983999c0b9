"""`kill -9`, a full disk and clocks that jump lose nothing."""

import itertools
import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import jbrl
from jbrl.base.files import write_whole
from jbrl.study import resume
from jbrl.study.resume import Pace
from jbrl.study.storage.store import Store
from tests.faults.cases import differences, files, flip, full, outcome, sealed
from tests.faults.kills import Ordeal, snapshot, wrongs
from tests.faults.warm import Warm
from tests.terminal import succeeds


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


@pytest.fixture
def tiny(tmp_path):
    """A file system with room for a manifest and little more."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk(tiny, study, warm, whole):
    log = study.parent / "log"
    assert warm.start("run", study, "--out", tiny / "out", log=log, often=True).wait() == 2
    assert "results cannot be written here: No space left on device" in log.read_text()
    assert all(sealed(path) for path in files(tiny)) and not [
        name for name in snapshot(tiny / "out") if name.endswith(".tmp")
    ]
    assert list(differences(outcome(tiny / "out"), whole)) == []
    subprocess.run(["mount", "-o", "remount,size=4m", str(tiny)], check=True)
    assert warm.start("run", study, "--out", tiny / "out", log=log).wait() == 0
    found = outcome(tiny / "out")
    assert found.keys() == whole.keys() and list(differences(found, whole)) == []


@pytest.mark.slow
def test_files_that_may_not_grow(study, warm, whole):
    """Limit as of a quota; needs no privileges."""
    out, log = study.parent / "out", study.parent / "log"
    assert warm.start("run", study, "--out", out, log=log, limits={"file_size": 2000}).wait() == 2
    assert "results cannot be written here: File too large" in log.read_text()
    assert not list(out.rglob("*.tmp"))
    assert warm.start("run", study, "--out", out, log=log).wait() == 0
    assert outcome(out).keys() == whole.keys() and list(differences(outcome(out), whole)) == []


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_every_step_of_writing_may_fail(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_whole(path, b"before")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(os if step == "fsync" else Path, step, full)
        write_whole(path, np.random.default_rng(0).bytes(1000))
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


CLOCKS = ("time", "monotonic", "perf_counter")


def jumping(steps: tuple[float, ...]) -> Iterator[float]:
    """Readings of a clock that goes by these steps, over and over."""
    return itertools.accumulate(itertools.cycle(steps), initial=1e6)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    "steps",
    [(-3600.0,), (1e7,), (1.0, -7200.0, 1e6, -1e6), (0.0,)],
    ids=["backwards", "forwards", "to and fro", "stopped"],
)
def test_times_are_never_below_zero(study, whole, steps, monkeypatch):
    out = study.parent / "out"
    with monkeypatch.context() as patched:
        for clock in CLOCKS:
            patched.setattr(time, clock, jumping(steps).__next__)
        succeeds("run", study, "--out", out)
    units = Store(out).units()
    assert (units[["offline_seconds", "online_seconds", "compile_seconds"]] >= 0).all(axis=None)
    assert list(differences(outcome(out), whole)) == [] and outcome(out).keys() == whole.keys()
    assert all(sealed(path) for path in files(out))


def test_checkpoints_do_not_wait_for_a_clock_that_was_set_back(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace, kept = Pace(), list[float]()
    for reading in (1001.0, 1000.5, 500.0, 500.5, 504.0):
        now = reading
        pace.keep(lambda reading=reading: kept.append(reading))  # type: ignore[misc]
    assert kept == [500.0, 504.0]


def test_a_jump_while_a_checkpoint_is_written_does_not_end_them(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def jump() -> None:
        nonlocal now
        now += 1e9

    pace, kept = Pace(), list[float]()
    now += 4
    pace.keep(jump)
    now += resume.MAX_CHECKPOINT_SECONDS + 1
    pace.keep(lambda: kept.append(now))
    assert kept == [now]


def test_a_clock_ahead_does_not_take_files_away_from_others(study, monkeypatch):
    """The clock of the file system tells which temporary files are old, not this
    machine's.
    """
    out = study.parent / "out"
    jbrl.run(study, out, only="Random")
    young = out / "units" / ".a.npz.1.tmp"
    young.touch()
    monkeypatch.setattr(time, "time", lambda: 1e12)
    jbrl.run(study, out, only="Random")
    assert young.exists()
