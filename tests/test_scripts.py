"""Scripts of experiments and benchmarks: `--help` and an option they do not have run nothing."""

import sys
from pathlib import Path

import pytest

from experiments import suite_report
from jbrl.stats.table import agent_names
from tests.terminal import output_of

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    *(path for path in ROOT.glob("benchmarks/*.py") if "__main__" in path.read_text()),
    *(path for path in ROOT.glob("experiments/**/*.py") if "__main__" in path.read_text()),
    ROOT / "experiments/sweep.py",
]
# all in one process, since what they import takes most of the time; none may write a
# file of the repository
RUN = """
import os, runpy, sys

def watch(event, given):
    if running and event in ("open", "os.mkdir") and isinstance(given[0], str):
        writes = event == "os.mkdir" or given[2] & (os.O_WRONLY | os.O_RDWR)
        if writes and os.path.abspath(given[0]).startswith(os.getcwd() + os.sep):
            raise RuntimeError(f"{event} {given[0]}")

running, before = False, list(sys.path)
sys.dont_write_bytecode = True
sys.addaudithook(watch)
for path in sys.argv[1:]:
    for option, code in (("--help", 0), ("--no-such-option", 2)):
        sys.argv, sys.path[:] = [path, option], [os.path.dirname(path), *before]
        running = True
        try:
            runpy.run_path(path, run_name="__main__")
            ended = "it ran"
        except SystemExit as end:
            ended = end.code
        running = False
        if ended != code:
            sys.exit(f"{path} {option}: {ended}")
"""


@pytest.mark.slow
def test_scripts_take_options_before_they_do_anything():
    assert len(SCRIPTS) > 60
    said = output_of(sys.executable, "-c", RUN, *SCRIPTS, cwd=ROOT)
    assert said.count("usage: ") == len(SCRIPTS)


def test_agents_of_one_algorithm_are_a_family():
    names = agent_names([("BEB", '{"beta": 1.0}'), ("BEB", '{"beta": 2.0}'), ("Random", "{}")])
    assert list(map(suite_report.family, names.values())) == ["BEB", "BEB", "Random"]
