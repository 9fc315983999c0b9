"""Two processes, and a reader, in one directory at once."""

import warnings
from pathlib import Path

import pytest

from tests.faults.cases import differences, files, outcome, sealed
from tests.faults.warm import Warm


@pytest.mark.slow
def test_two_runs_of_one_study(study: Path, warm: Warm, whole: dict) -> None:
    out, logs = study.parent / "out", [study.parent / f"log{number}" for number in (1, 2)]
    runs = [warm.start("run", study, "--out", out, log=log, often=True) for log in logs]
    codes: list[int | None] = [None, None]
    read = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a reader never sees half a file
        while None in codes:
            codes = [
                code if code is not None else run.wait(0.01)
                for code, run in zip(codes, runs, strict=True)
            ]
            if (out / "study.json").exists():
                assert list(differences(outcome(out), whole)) == []
                read += 1
    assert codes == [0, 0] and read > 1
    assert not any("warning" in log.read_text() or "error" in log.read_text() for log in logs)
    found = outcome(out)
    assert {name for name in found if ".partial." not in name} == set(whole) and list(
        differences(found, whole)
    ) == []
    assert all(sealed(path) for path in files(out)) and not list(out.rglob("*.tmp"))
