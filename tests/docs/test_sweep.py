"""The script of docs/one-program.md runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_sweep_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "experiments" / "sweep.py"), "4", "sweep.png"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("400 trajectories in ")
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
