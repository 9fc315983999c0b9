"""Imports flow one way, and what only a terminal or a report needs is not needed to play."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_import_contracts_hold() -> None:
    done = python(
        "from importlinter.cli import lint_imports_command as lint; lint()",
        "--no-cache",
        "--no-logo",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " kept, 0 broken" in done.stdout


@pytest.mark.parametrize("module", ["jbrl", "jbrl.play.experiment"])
def test_playing_needs_neither_terminal_nor_report(module: str) -> None:
    # None: cannot be imported
    hide = (
        'import sys; sys.modules |= dict.fromkeys(("typer", "rich", "pydantic", "jinja2", '
        '"matplotlib"))'
    )
    done = python(f"{hide}; import {module}")
    assert done.returncode == 0, done.stderr
