"""Imports flow one way, and what only a terminal or a report needs is not needed to play."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_import_contracts_hold() -> None:
    program = "from importlinter.cli import lint_imports_command as lint; lint()"
    done = python(program, "--no-cache", "--no-logo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " kept, 0 broken" in done.stdout


def test_playing_needs_neither_terminal_nor_report() -> None:
    # None: cannot be imported
    hidden = ("typer", "rich", "pydantic", "jinja2", "matplotlib")
    done = python(
        f"import sys; sys.modules |= dict.fromkeys({hidden}); import jbrl, jbrl.play.experiment"
    )
    assert done.returncode == 0, done.stderr
