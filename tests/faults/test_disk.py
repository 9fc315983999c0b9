"""A full disk: what was there stays, nothing half written is left, and there is more room the study
goes on.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from jbrl.base.files import write_whole
from tests.faults.cases import differences, files, outcome, sealed
from tests.faults.kills import snapshot


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

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(os if step == "fsync" else Path, step, fail)
        write_whole(path, np.random.default_rng(0).bytes(1000))
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
