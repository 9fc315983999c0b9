"""One warm process and one study without faults, for all tests of faults."""

import os
import signal
from pathlib import Path

import pytest

import jbrl
from tests.faults.cases import outcome, write_study
from tests.faults.warm import Warm


@pytest.fixture(autouse=True)
def python_handles_ctrl_c():
    """Ctrl-C as a program finds it that a user starts: in the background of a script it is ignored,
    by the programs that are started from there, too.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Results of the study when nothing happens, in this process."""
    folder = tmp_path_factory.mktemp("whole")
    results = jbrl.run(write_study(folder), folder / "out")
    assert list(results.scores["status"]) == ["done"] * 3
    return outcome(folder / "out")


@pytest.fixture(scope="session")
def warm():
    """It shares compiled programs with these tests."""
    with Warm(Path(os.environ["JAX_COMPILATION_CACHE_DIR"])) as process:
        yield process


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path)
