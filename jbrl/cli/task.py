"""What an array task of a cluster does: named by its module in what submitit pickles, and run where the task runs."""

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from jbrl.cli.compiled import keep_compiled
from jbrl.cli.progress import Display
from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    from jbrl.runner.cluster import Job

FAILED_UNITS = 1
BY_SIGNAL = 128


def work(job: "Job") -> None:
    """Run the units of a task.

    Told by SLURM that the time limit is near (SIGUSR1, SIGUSR2), it finishes the chunk at work and goes back into the queue. So it may
    take any number of turns; only a turn that got nowhere is the last one. SIGTERM (`scancel`) ends it in the same way for good.
    """
    from jbrl.runner.batching import use_all_cores
    from jbrl.runner.stopping import Stopped, stopping_on

    show_warnings()
    given = os.environ.get("SLURM_CPUS_PER_TASK")
    use_all_cores(int(given) if given else None)
    planned = job.plan()
    keep_compiled(job.options.get("compile_cache"))
    told = _Moving(planned, quiet=False)
    try:
        with stopping_on(signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM), told:
            failed = planned.execute(told)
    except Stopped as stopped:
        _leave(stopped.number, told.moved)
        sys.exit(BY_SIGNAL + stopped.number)
    if failed:
        sys.exit(FAILED_UNITS)


class _Moving(Display):
    """Remembers whether anything has got further."""

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


def _leave(number: int, moved: bool) -> None:
    """Go back into the queue if that makes sense, and say so."""
    from jbrl.runner.cluster import requeue

    if number == signal.SIGTERM:
        complain("what is done is kept; 'jbrl run' again submits the rest", "stopped")
    elif not moved:
        complain("the time limit was too short for anything to be done: give more --time, or a smaller study.chunk", "stopped")
    else:
        complain("the time limit is near: back into the queue", "stopped")
        requeue()
        complain("SLURM does not take this task back: 'jbrl run' again submits the rest", "warning")
