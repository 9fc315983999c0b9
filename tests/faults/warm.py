"""Runs of the real command line, at a fraction of the price: a process that has imported everything
forks one for each run.

Importing and compiling are most of what a small study takes. The parent imports, but never starts
JAX, so each child starts it anew, with devices and threads of its own: from the first line of
`jbrl run` on it is a process like any other, which may be limited, killed or left alone. Compiled
programs come from JAX's cache on disk, once a first run has filled it.
"""

import hashlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LIMITS = {"address_space": resource.RLIMIT_AS, "file_size": resource.RLIMIT_FSIZE}


class Warm:
    """Starts runs from a warm process.

    Args:
      cache: directory of compiled programs.
    """

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def __enter__(self) -> "Warm":
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAX_NUM_CPU_DEVICES": "2",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.warm"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self._parent.stdin and self._parent.stdout
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()

    def ask(self, **question: Any) -> Any:
        """One question, one answer, each a line of JSON."""
        assert self._parent.stdin and self._parent.stdout
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        return json.loads(self._parent.stdout.readline())

    def start(self, *args: str | Path, log: Path, **settings: Any) -> "Process":
        """Start `jbrl ARGS`, with what it prints appended to `log`.

        `settings` are those of `_child`.
        """
        return Process(
            self, self.ask(do="start", args=[str(arg) for arg in args], log=str(log), **settings)
        )


class Process:
    """A run that was started."""

    def __init__(self, warm: Warm, pid: int) -> None:
        self._warm, self.pid = warm, pid

    def wait(self, seconds: float | None = None) -> int | None:
        """Exit code, or minus the number of the signal that ended it; None when it is still running
        after that many seconds.
        """
        return self._warm.ask(do="wait", pid=self.pid, seconds=seconds)

    def send(self, number: int) -> None:
        """Send a signal.

        A process that has ended stays a zombie until it is waited for, so nobody else is hit.
        """
        os.kill(self.pid, number)


def _serve() -> None:
    """The warm process: import, then answer."""
    import jbrl.results
    import jbrl.study.plan
    from jbrl.cli import progress
    from jbrl.play.machine import machine, versions

    assert jbrl.results and jbrl.study.plan and progress
    versions(), machine()
    for line in sys.stdin:
        question = json.loads(line)
        do = question.pop("do")
        sys.stdout.write(json.dumps({"start": _start, "wait": _wait}[do](**question)) + "\n")
        sys.stdout.flush()


def _start(args: Sequence[str], **settings: Any) -> int:
    pid = os.fork()
    if not pid:
        os._exit(_child(args, **settings))
    return pid


def _wait(pid: int, seconds: float | None) -> int | None:
    ends = time.monotonic() + (seconds if seconds is not None else float("inf"))
    while True:
        found, status = os.waitpid(pid, os.WNOHANG if seconds is not None else 0)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            return None
        time.sleep(0.002)


def _child(
    args: Sequence[str],
    log: str,
    often: bool = False,
    limits: dict[str, int] | None = None,
    stuck: tuple[str, int] | None = None,
) -> int:
    """The run itself.

    Args:
      often: write a checkpoint after every chunk and every block, whatever it costs.
      limits: on resources, by their names in `LIMITS`, in bytes.
      stuck: a function, `module:name`, and how many calls of it return; the next one takes a
        minute, in C.
    """
    from jbrl.__main__ import main
    from jbrl.play import blocks
    from jbrl.study import resume

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate((nothing, descriptor, descriptor)):
        os.dup2(source, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if often:
        resume.CHECKPOINT_SECONDS, resume.CHECKPOINT_SHARE = 0.0, 1e9
        blocks.FASTEST = 0.0  # one block a call
    for name, value in (limits or {}).items():
        resource.setrlimit(LIMITS[name], (value, value))
    if stuck:
        _stick(*stuck)
    sys.argv = ["jbrl", *args]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _stick(function: str, calls: int) -> None:
    module, name = function.split(":")
    *owners, name = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    original, left = getattr(owner, name), iter(range(calls))

    def slow(*args: Any, **options: Any) -> Any:
        if next(left, None) is None:
            compute_in_c()
        return original(*args, **options)

    setattr(owner, name, slow)


def compute_in_c() -> None:
    """Print a line, and let Python run no handler of a signal for a minute or more."""
    os.write(sys.__stdout__.fileno(), b"stuck\n")  # type: ignore[union-attr]
    hashlib.pbkdf2_hmac("sha256", b"", b"", 300_000_000)


if __name__ == "__main__":
    _serve()
