"""Experiments drawn by several processes make the page that one process makes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jbrl.report import study as reports
from jbrl.report.study import write_report
from tests.report.synthetic import MANIFEST, study

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
from jbrl.report import study as reports
from jbrl.report.study import write_report
from tests.report.synthetic import MANIFEST, study
reports._cores = lambda: 2
reports.MANY_ROWS = 1
def told():
    os.write(1, f"{os.getpid()} ".encode())  # in one piece, for processes write at the same time
drawn = reports._drawn
reports._drawn = lambda *given: (drawn(*given), told())[0]
write_report(*study(n=6), MANIFEST, __import__("pathlib").Path(sys.argv[1]))
told()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_the_page_is_the_same(tmp_path):
    call = [sys.executable, "-c", SCRIPT, str(tmp_path / "several")]
    found = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    numbers = found.stdout.split()
    assert len(numbers) == 3 and numbers[-1] not in numbers[:-1]  # none is drawn by the parent
    write_report(*study(n=6), MANIFEST, tmp_path / "one")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "several" / path.name).read_bytes()


def test_errors_and_results_come_back(monkeypatch):
    monkeypatch.setattr(reports, "_cores", lambda: 2)
    monkeypatch.setitem(sys.modules, "jax", sys)  # then nothing is forked
    here = os.getpid()
    assert reports.side_by_side(lambda k: (k, os.getpid()), 3) == [(k, here) for k in range(3)]
    with pytest.raises(ZeroDivisionError):
        reports.side_by_side(lambda k: 1 // k, 2)


def test_small_reports_are_drawn_by_one_process(tmp_path, monkeypatch):
    monkeypatch.delattr(reports, "side_by_side")
    write_report(*study(n=6, agents=[("Random", {})]), MANIFEST, tmp_path)
