"""`python -m jbrl` and the `jbrl` command."""

import contextlib
import errno
import io
import os
import signal
import sys
import threading

FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG  # also a quota, and the limit of a shell


def main() -> None:
    """Run the command line; at its end, do not wait for threads that compile.

    Ctrl-C ends the process at once, without a traceback, until the command begins
    (`jbrl.study.stopping.interruptible`).
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):  # PYTHONUNBUFFERED
        # Python drops what a full disk does not take of one write to such a stream
        number, encoding, errors = sys.stdout.fileno(), sys.stdout.encoding, sys.stdout.errors
        sys.stdout = os.fdopen(number, "w", 1, encoding, errors, closefd=False)
    from jbrl.cli.app import INTERRUPTED, app

    try:
        app()
    except SystemExit as end:
        compiling = any(one.name.startswith("compiling") for one in threading.enumerate())
        if not (compiling or end.code == INTERRUPTED) or not isinstance(end.code, int):
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(end.code)
    except OSError as error:  # of a file that the shell writes; others are said where they occur
        if error.errno not in FULL:
            raise
        sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(2)  # or it is tried again


if __name__ == "__main__":
    main()
