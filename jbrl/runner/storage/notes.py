"""What is noted beside the results for those who look on: no result depends on it.

DIR/expected.json       how long each unit was expected to take, by whoever planned it
DIR/running/NAME.json   a process that runs units (`jbrl.runner.study.heartbeat`)
DIR/slurm/JOB.json      what was handed to SLURM (`jbrl.runner.slurm.jobs`)
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jbrl.runner.storage.files import DamagedError, pack_json, unpack_json, write_whole

EXPECTED = "expected.json"
SILENT = 120.0  # seconds without a sign of life: the process is taken for dead. Shared file systems may show a file as it was a minute ago
FORGOTTEN = 86_400.0  # seconds without one: its file is of no use to anyone


def exists(pid: int) -> bool:
    """Whether this machine has such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to someone else
        return True
    return True


def remember(folder: Path, expected: Mapping[str, float]) -> None:
    """Note how long units are expected to take, beside what others have noted."""
    with contextlib.suppress(OSError):
        write_whole(folder / EXPECTED, pack_json({"seconds": {**recall(folder), **expected}}))


def recall(folder: Path) -> dict[str, float]:
    """Seconds that units were expected to take, by id, as far as anyone has noted it."""
    return dict((read(folder / EXPECTED) or {"seconds": {}})["seconds"])


def read(path: Path) -> dict[str, Any] | None:
    """A sealed JSON file; None when there is none, or a damaged one."""
    try:
        return unpack_json(path.read_bytes())
    except (OSError, DamagedError):
        return None
