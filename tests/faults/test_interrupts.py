"""Ctrl-C at any moment, also while Python code cannot run: heard at once, obeyed within two
seconds, and nothing is lost. SIGTERM: the chunk at work is finished and kept.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jbrl.play.compilation import Program, compile_together
from jbrl.play.timing import interrupts_deferred
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from jbrl.study.stopping import Stopped, interruptible, keeping, stopping_on
from jbrl.study.storage.store import Store
from tests.faults.cases import SEARCH, STUDY, differences, outcome
from tests.faults.kills import wrongs
from tests.faults.warm import ROOT, Process

HEARD, OBEYED = 0.5, 2.0  # seconds after Ctrl-C
MARGIN = 4.0  # more on a busy machine; what is interrupted would take a minute
STOPPING = "interrupted: stopping; Ctrl-C again ends at once\n"
COMPILE = "jbrl.play.compilation:compile_together"


def until(happens: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < ends
        time.sleep(0.005)


def interrupt(process: Process, log: Path, code: int | None = 130) -> None:
    """Send Ctrl-C to a process that is stuck, and check that it is heard and obeyed."""
    log.touch()
    until(lambda: "stuck\n" in log.read_text(), 60.0)
    process.send(signal.SIGINT)
    until(lambda: STOPPING in log.read_text(), HEARD + MARGIN)
    assert process.wait(OBEYED + MARGIN) == code


def test_while_the_main_thread_compiles(study, warm, whole):
    """For the second unit, after the programs that measure the machine and those of the first."""
    out, log = study.parent / "out", study.parent / "log"
    interrupt(warm.start("run", study, "--out", out, log=log, stuck=(COMPILE, 2)), log)
    kept = f"interrupted: what is done is kept in {out}; the same command continues from there\n"
    assert log.read_text().endswith(STOPPING + kept)
    assert len(outcome(out)) == 1 and list(wrongs(out, whole, set())) == []
    assert warm.start("run", study, "--out", out, log=log).wait() == 0
    assert outcome(out).keys() == whole.keys() and list(wrongs(out, whole, set(whole))) == []


def test_what_is_played_is_kept_while_a_call_runs(study, warm, whole):
    """The checkpoint is written although the call does not return."""
    out, log = study.parent / "out", study.parent / "log"
    stuck = ("jbrl.play.timing:Turns.timed", 7)
    interrupt(warm.start("run", study, "--out", out, log=log, stuck=stuck), log)
    ((name, arrays),) = outcome(out).items()
    assert ".partial." in name and len(arrays["returns"]) == 14
    assert list(wrongs(out, whole, set())) == []


@pytest.mark.slow
def test_rounds_of_a_search_are_kept(tmp_path, warm):
    study, out, log = tmp_path / "study.toml", tmp_path / "out", tmp_path / "log"
    study.write_text(STUDY[: STUDY.index("[[agents]]")] + SEARCH)
    assert warm.start("run", study, "--out", tmp_path / "whole", log=log).wait() == 0
    stuck = ("jbrl.play.offline:Trials.__call__", 5)
    interrupt(warm.start("run", study, "--out", out, log=log, stuck=stuck), log)
    (left,) = (out / "knowledge").iterdir()
    found = Store(out).knowledge(left.name.split(".")[0], partial=True)
    assert found is not None and 0 < found.header["consumed"] < 600
    assert warm.start("run", study, "--out", out, log=log).wait() == 0
    assert list(differences(outcome(out), outcome(tmp_path / "whole"))) == [] and outcome(out)


LIFETIMES = """
[study]
name = "lifetimes"
n_environments = 20

[[experiments]]
name = "Chain"
problem = "Chain-10s"
episodes = 60

[[agents]]
algorithm = "Sarsa"
"""


@pytest.mark.slow
@pytest.mark.parametrize("often", [True, False])
def test_lifetimes_of_episodes(tmp_path, warm, often):
    """A call takes over the state of lifetimes, so the process ends within it only where the state
    is kept already; a second Ctrl-C ends it in any case.
    """
    study, out, log = tmp_path / "study.toml", tmp_path / "out", tmp_path / "log"
    study.write_text(LIFETIMES)
    assert warm.start("run", study, "--out", tmp_path / "whole", log=log).wait() == 0
    stuck = ("jbrl.play.blocks:clocked", 2)
    process = warm.start("run", study, "--out", out, log=log, often=often, stuck=stuck)
    if often:
        interrupt(process, log)
    else:
        interrupt(process, log, None)
        process.send(signal.SIGINT)
        assert process.wait(OBEYED + MARGIN) == 130
    assert bool(list(out.glob("units/*.partial.npz"))) == often
    assert warm.start("run", study, "--out", out, log=log).wait() == 0
    assert list(differences(outcome(out), outcome(tmp_path / "whole"))) == [] and outcome(out)


THREADS = """
import sys
from jbrl.__main__ import main
from jbrl.play import compilation
from tests.faults.warm import compute_in_c

together = compilation.compile_together
compilation.compile_together = lambda *tasks: together(*[compute_in_c for _ in tasks])
main()
"""


def test_threads_that_compile_are_not_waited_for(tmp_path):
    """A whole process, since threads are waited for at its end."""
    study, log = tmp_path / "study.toml", tmp_path / "log"
    study.write_text(STUDY)
    args = ["run", str(study), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    with (
        log.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-c", THREADS, *args], env=environment, stdout=file, stderr=file
        ) as process,
    ):
        try:
            until(lambda: "stuck\n" in log.read_text(), 120.0)
            process.send_signal(signal.SIGINT)
            until(lambda: STOPPING in log.read_text(), HEARD + MARGIN)
            assert process.wait(OBEYED + MARGIN) == 130
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


EARLY = """
import os, signal, sys
from jbrl.__main__ import main

class Presses:
    def find_spec(self, name, *_):
        if name == "jbrl.cli.subset":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Presses())
main()
"""


def test_while_modules_are_imported():
    ended = subprocess.run(
        [sys.executable, "-c", EARLY, "list"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_an_interrupt_does_not_wait_for_a_compilation():
    """In a script or a notebook, too."""
    enough, ended = threading.Event(), []

    def compilation() -> Program:
        time.sleep(0.2)  # the main thread waits by then
        os.kill(os.getpid(), signal.SIGINT)
        enough.wait(5.0)
        ended.append(True)
        return Program(lambda: None, 1, True)

    with pytest.raises(KeyboardInterrupt):
        compile_together(compilation)
    assert ended == []
    enough.set()


def test_an_error_waits_for_the_other_compilations():
    ended = []

    def fails() -> Program:
        raise ZeroDivisionError

    def compiles() -> Program:
        time.sleep(0.1)
        ended.append(True)
        return Program(lambda: None, 1, True)

    with pytest.raises(ZeroDivisionError):
        compile_together(fails, compiles)
    assert ended == [True]


def test_handlers_are_restored():
    said: list[str] = []
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    with pytest.raises(KeyboardInterrupt), interruptible(130, said.append):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)
    assert said == ["stopping; Ctrl-C again ends at once"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(descriptor) == descriptor


def test_an_interrupt_comes_again_where_python_ignores_it():
    """JAX has a callback that is called whenever garbage is collected."""
    said: list[str] = []

    def callback(phase: str, info: Any) -> None:
        gc.callbacks.remove(callback)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1.0)

    gc.callbacks.append(callback)
    with pytest.raises(KeyboardInterrupt), interruptible(130, said.append):
        gc.collect()
        time.sleep(5.0)
    assert said == ["stopping; Ctrl-C again ends at once"]


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible(130, pytest.fail), keeping(lambda: pytest.fail("called")):
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.filterwarnings("ignore:os.fork")
def test_signals_of_a_child_are_not_those_of_its_parent():
    """A terminal sends Ctrl-C to the processes that draw a report, too."""
    said: list[str] = []
    with interruptible(130, said.append):
        child = os.fork()
        if not child:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(1.0)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert said == []


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
