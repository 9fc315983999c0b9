"""An array task of a cluster: named by its module in submitit's pickle, and run where the task
runs.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jbrl.base.errors import JbrlError
from jbrl.cli.compiled import keep_compiled
from jbrl.cli.progress import Display
from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    from jbrl.study.slurm.cluster import Job

FAILED_UNITS = 1
BAD_INPUT = 2
BY_SIGNAL = 128


def work(job: "Job") -> None:
    """Run the units of a task.

    When SLURM signals that the time limit is near (SIGUSR1, SIGUSR2), the task finishes the current
    chunk and returns to the queue. It may take any number of turns; only a turn without progress is
    the last one. SIGTERM (`scancel`) ends it in the same way, without a return to the queue.
    """
    try:
        _work(job)
    except JbrlError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)


def _work(job: "Job") -> None:
    from jbrl.play.resources import choose
    from jbrl.study.stopping import Stopped, stopping_on

    show_warnings()
    _use_cores()
    resources = choose(*(job.options.get(name) for name in ("devices", "memory", "stack")))
    planned = job.plan()
    keep_compiled(job.options.get("compile_cache"))
    observer = _Moving(planned, quiet=False)
    try:
        with stopping_on(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM), observer:
            failed = planned.execute(observer, resources)
    except Stopped as stopped:
        number = _meant(stopped.asked, job.warning)
        _leave(number, observer.moved)
        sys.exit(BY_SIGNAL + number)
    finally:
        # a warning that comes now is irrelevant, but would end the process
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    if failed:
        sys.exit(FAILED_UNITS)


def _use_cores() -> None:
    """As many cores as the task was given: not every cluster confines a task to its own."""
    from jbrl.play.batching import use_all_cores

    given = os.environ.get("SLURM_CPUS_PER_TASK")
    if given and "JAX_NUM_CPU_DEVICES" not in os.environ:
        use_all_cores(int(given))
        os.environ["JAX_NUM_CPU_DEVICES"] = given


class _Moving(Display):
    """Listener that records whether anything has progressed."""

    moved = False

    def searching(self, *what: Any) -> None:
        self.moved = True
        super().searching(*what)

    def advanced(self, *what: Any) -> None:
        self.moved = True
        super().advanced(*what)

    def finished(self, *what: Any) -> None:
        self.moved = True
        super().finished(*what)


def _meant(asked: Sequence[tuple[int, float]], warning: float) -> int:
    """Return the signal that counts: the first, unless SIGTERM came after it and before the time
    limit could be reached: that is `scancel`.

    Args:
      asked: numbers and times of the signals.
      warning: seconds at least between the warning and the limit.
    """
    first, began = asked[0]
    return next(
        (number for number, when in asked if number == signal.SIGTERM and when - began < warning),
        first,
    )


def _leave(number: int, moved: bool) -> None:
    """Return to the queue if that makes sense, and print so."""
    from jbrl.study.slurm.cluster import requeue

    if number == signal.SIGTERM:
        complain("what is done is kept; 'jbrl run' again submits the rest", "stopped")
    elif not moved:
        complain(
            "the time limit was too short for anything to be done: give more --time, or a smaller "
            "study.chunk",
            "stopped",
        )
    else:
        complain("the time limit is near: back into the queue", "stopped")
        requeue()
        complain("SLURM does not take this task back: 'jbrl run' again submits the rest", "warning")
