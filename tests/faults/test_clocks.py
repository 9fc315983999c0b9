"""Clocks that jump: no time is ever below zero, and numbers do not care."""

import itertools
import time
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import jbrl
from jbrl.cli.app import app
from jbrl.study import resume
from jbrl.study.resume import Pace
from jbrl.study.storage.store import Store
from tests.faults.cases import differences, files, outcome, sealed

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
        done = CliRunner().invoke(app, ["run", str(study), "--out", str(out)])
    assert done.exit_code == 0, done.output
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
