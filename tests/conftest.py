"""Settings of every test: two CPU devices, strict dtypes and ranks, reproducible examples.

Set before JAX starts, which happens at the first array. `JAX_PLATFORMS` is the user's: where there
is an accelerator, tests run on it.
"""

import datetime
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

# Half the time of the tests is compilation. What jbrl compiles to play, search and train is
# compiled quickly, with the bits that users get. What tests compile themselves, to call one
# function of an agent for example, takes least without optimisation of machine code; its last bits
# are others, and no test compares them with those of users. Modules are not split for many threads,
# as parts take time. The slow tests, where `TEST_OPTIMISED` is set, compile everything in full. The
# first flag is known to jaxlib 0.10 alone; programs that tests start inherit all settings.
if "TEST_OPTIMISED" not in os.environ:
    os.environ["JBRL_COMPILE"] = "quick"
    if version("jaxlib").startswith("0.10."):
        flags = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
        flags += " --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()

# Tests start many processes, which would each compile all modules where bytecode is not kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Where in the source an operation stands is written into no program: it takes an eighth of the time
# of tests that compile.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"

# Small programs are kept, too (below).
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import jax
import pytest

from jbrl.play import compile_cache, executables
from jbrl.play.compilation import forget_when_crowded

sys.dont_write_bytecode = False
TESTS = Path(__file__).parent
STARTED = time.monotonic()

# The two workers, and the programs that tests start, compile thousands of programs that are the
# same: each is compiled once for all of them and for the next run, unless you name a folder.
MOST_BYTES = 2**30
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    kept = TESTS.parent / ".pytest_cache" / "programs"
    if sum(file.stat().st_size for file in kept.rglob("*-cache")) > MOST_BYTES:
        compile_cache.clear(kept)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(compile_cache.use(kept))
    executables.use(None)  # tests change functions, which keys do not know

# for programs that tests start, and so that jbrl asks for no other number
os.environ["JAX_NUM_CPU_DEVICES"] = "2"
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_enable_x64", False)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Time limits on single examples fail on busy machines; the first example of most tests pays for a
# compilation. Quick tests take 30 examples where they do not say how many, slow ones 100.
hypothesis.settings.register_profile(
    "jbrl",
    max_examples=100 if "TEST_OPTIMISED" in os.environ else 30,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("jbrl")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Short runs that the user has made tell tests nothing, and those of tests tell the
    user nothing.
    """
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jbrl.study.calibration.cache_folder", lambda: folder)
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_crowd() -> Iterator[None]:
    """Thousands of tests in one process compile more programs than it has memory mappings for."""
    yield
    forget_when_crowded()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--changed-since",
        metavar="COMMIT",
        help="run tests of packages that have changed since, and those of no package in particular",
    )
    parser.addoption(
        "--minutes", type=float, help="skip tests after so long; the order of files is the day's"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all cases but the first quick one as slow where a test asks for it, and leave out files
    of packages that have not changed.
    """
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("first_case_quick") and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(test)
    if since := config.getoption("changed_since"):
        concerned = _changed(items, since)
        config.hook.pytest_deselected(items=[item for item in items if item not in concerned])
        items[:] = concerned
    if config.getoption("minutes"):
        files = list(dict.fromkeys(item.path for item in items))
        random.Random(datetime.date.today().toordinal()).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


def pytest_collection_finish() -> None:
    """Collect garbage less often: tracing makes so many objects that it takes 4 % of the time."""
    gc.set_threshold(20_000, 20, 50)


def _changed(items: list[pytest.Item], since: str) -> list[pytest.Item]:
    """Items of test files and of packages that differ from a commit: tests/mdp is of jbrl/mdp. All
    other tests are of no package in particular: they run where any file of jbrl has changed.
    """
    command = ["git", "diff", "--name-only", since, "--", "jbrl", "tests"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=TESTS.parent)
    changed = {Path(name) for name in done.stdout.split()}
    packages = {Path(*path.parts[1:-1]) for path in changed if path.parts[0] == "jbrl"}

    def concerned(item: pytest.Item) -> bool:
        file = item.path.relative_to(TESTS)
        if "tests" / file in changed:
            return True
        if (TESTS.parent / "jbrl" / file.parent).is_dir() and len(file.parts) > 1:
            return any(package.is_relative_to(file.parent) for package in packages)
        return bool(packages)

    return [item for item in items if concerned(item)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and jax.default_backend() == "cpu":
        pytest.skip("no accelerator")
    minutes = item.config.getoption("minutes")
    if minutes and time.monotonic() - STARTED > 60 * minutes:
        pytest.skip("time is up")
