"""`python -m jbrl` and the `jbrl` command."""

import contextlib
import os
import sys

from jbrl.cli.app import INTERRUPTED, app


def main() -> None:
    """Run the command line; once interrupted, end without waiting for threads that compile."""
    try:
        app()
    except SystemExit as end:
        if end.code != INTERRUPTED:
            raise
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
