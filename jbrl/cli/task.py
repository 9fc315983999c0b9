"""What an array task of a cluster does: named by its module in what submitit pickles, and run where the task runs."""

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from jbrl.cli.text import complain, show_warnings

if TYPE_CHECKING:
    from jbrl.runner.cluster import Job

FAILED_UNITS = 1


def work(job: "Job") -> None:
    """Run the units of a task; when SLURM is about to end it, put it back into the queue."""
    from jbrl.cli.progress import Display
    from jbrl.runner.batching import use_all_cores
    from jbrl.runner.cluster import requeue

    show_warnings()
    given = os.environ.get("SLURM_CPUS_PER_TASK")
    use_all_cores(int(given) if given else None)
    told: list[int] = []

    def stop(number: int, _: Any) -> None:
        told.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, stop)
    planned = job.plan()
    try:
        with Display(planned, quiet=False) as progress:
            failed = planned.execute(progress)
    except KeyboardInterrupt:
        if signal.SIGTERM not in told:
            complain("the time limit is near: back to the queue", "interrupted")
            requeue()
        sys.exit(130)
    if failed:
        sys.exit(FAILED_UNITS)
