"""SIGTERM, as a batch system sends it at a time limit: the chunk at work is finished and kept, and
the exit code says so.
"""

import os
import signal
import time
from typing import Any

import pytest

from jbrl.play.timing import interrupts_deferred
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from jbrl.study.stopping import Stopped, stopping_on
from jbrl.study.storage.store import Store
from tests.faults.cases import differences, outcome


class Signal(Progress):
    """Sends SIGTERM to this process once so many MDPs are played, or a search has made use of so
    many trajectories.
    """

    def __init__(self, after: int) -> None:
        self.after, self.seen = after, list[int]()

    def _tell(self, number: int) -> None:
        self.seen.append(number)
        if number >= self.after:
            os.kill(os.getpid(), signal.SIGTERM)

    def searching(self, unit: Any, consumed: int, budget: int, seconds: float) -> None:
        self._tell(consumed)

    def advanced(self, unit: Any, n: int, seconds: float, decisions: int) -> None:
        self._tell(n)


def test_the_chunk_at_work_is_kept(study, whole):
    out, before = study.parent / "out", signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped), stopping_on(signal.SIGTERM):
        plan(study, out).execute(progress := Signal(after=6))
    assert progress.seen == [2, 4, 6]
    (left,) = outcome(out).items()
    assert ".partial." in left[0] and len(left[1]["returns"]) == 6
    assert signal.getsignal(signal.SIGTERM) is before
    plan(study, out).execute(progress := Signal(after=10**6))
    assert progress.seen[0] == 8
    assert outcome(out).keys() == whole.keys() and list(differences(outcome(out), whole)) == []


def test_a_unit_that_is_played_to_its_end_is_done(study, whole):
    out = study.parent / "out"
    with pytest.raises(Stopped), stopping_on(signal.SIGTERM):
        plan(study, out).execute(Signal(after=40))
    assert list(Store(out).units()["status"]) == ["done", "missing", "missing"]
    with stopping_on(signal.SIGTERM):  # nothing is left after it: the signal comes too late
        assert plan(study, out, only="Random").execute(Signal(after=0)) == 0


def test_the_command_ends_with_143_and_goes_on_from_there(study, warm, whole):
    out, log = study.parent / "out", study.parent / "log"
    process = warm.start("run", study, "--out", out, log=log, often=True)
    while not list(out.glob("units/*.npz")):
        assert process.wait(0.0) is None
        time.sleep(0.002)
    process.send(signal.SIGTERM)
    assert process.wait() == 143
    kept = f"stopped: what is done is kept in {out}; the same command continues from there"
    assert kept in log.read_text()
    assert list(differences(outcome(out), whole)) == []
    assert warm.start("run", study, "--out", out, log=log).wait() == 0
    assert outcome(out).keys() == whole.keys() and list(differences(outcome(out), whole)) == []


def test_a_deferred_interrupt_comes_after_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        done.append(True)
    assert done == [True] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
