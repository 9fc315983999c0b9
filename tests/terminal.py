"""Commands called as a user calls them: their output, their tables, their one message."""

import csv
import io
import json
import subprocess
from typing import Any

from typer.testing import CliRunner, Result

from jbrl.cli.app import app


def call(*arguments: object, **settings: Any) -> Result:
    """Call `jbrl` with the arguments; it prints no traceback."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], **settings)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result


def succeeds(*arguments: object, **settings: Any) -> Result:
    """Call `jbrl`, which does what it is asked for."""
    result = call(*arguments, **settings)
    assert result.exit_code == 0, result.output
    return result


def entries(*arguments: object) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(succeeds(*arguments, "--format", "json").stdout)


def output_of(*command: object, **options: Any) -> str:
    """Return what a program prints in a process of its own, which succeeds."""
    words = list(map(str, command))
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def rows(*arguments: object) -> list[dict[str, str]]:
    """Return the rows of the CSV table that a command prints."""
    return list(csv.DictReader(io.StringIO(succeeds(*arguments, "--format", "csv").stdout)))


def refused(result: Result, *texts: str) -> None:
    """Check that there is one message on standard error, with all of `texts`, and exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    message = result.stderr.strip()
    assert message.startswith("error: ") and "\n" not in message, message
    for text in texts:
        assert text in message, message
