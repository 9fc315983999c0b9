"""`python -m jbrl` and the `jbrl` command."""

import contextlib
import os
import sys
import threading

from jbrl.cli.app import INTERRUPTED, app


def main() -> None:
    """Run the command line; at its end, do not wait for threads that compile."""
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


if __name__ == "__main__":
    main()
