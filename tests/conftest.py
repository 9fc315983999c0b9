"""Settings of every test: two CPU devices, strict dtypes and ranks, reproducible examples.

Set before JAX starts, which happens at the first array. `JAX_PLATFORMS` is the user's: where there
is an accelerator, tests run on it.
"""

import gc
import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version

# Half the time of the tests is compilation. What jbrl compiles to play, search and train is
# compiled quickly, with the bits that users get. What tests compile themselves, to call one
# function of an agent for example, takes least without optimisation of machine code; its last bits
# are others, and no test compares them with those of users. The slow tests, where `TEST_OPTIMISED`
# is set, compile everything in full. The first flag is known to jaxlib 0.10 alone; programs that
# tests start inherit all settings.
if "TEST_OPTIMISED" not in os.environ:
    os.environ["JBRL_COMPILE"] = "quick"
    if version("jaxlib").startswith("0.10."):
        flags = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()

# The two workers, and the programs that tests start, compile thousands of programs that are the
# same: each is compiled once for all of them, in a folder that goes at the end unless you name one.
if "PYTEST_XDIST_WORKER" not in os.environ:
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        _compiled = tempfile.TemporaryDirectory(prefix="jbrl-tests-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import jax
import pytest

from jbrl.play.compilation import forget_when_crowded

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
        patch.setattr("jbrl.study.cost.calibration.cache_folder", lambda: folder)
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_crowd() -> Iterator[None]:
    """Thousands of tests in one process compile more programs than it has memory mappings for."""
    yield
    forget_when_crowded()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", metavar="K/N", help="run the tests of each Nth file, from the Kth (from 1) on"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all cases but the first quick one as slow where a test asks for it, and leave out the
    files of other parts.
    """
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("first_case_quick") and not item.get_closest_marker("slow"):
            test = item.nodeid.partition("[")[0]
            if test in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(test)
    if part := config.getoption("part"):
        items[:] = _part(items, *map(int, part.split("/")))


def pytest_collection_finish() -> None:
    """Collect garbage less often: tracing makes so many objects that it takes 4 % of the time."""
    gc.set_threshold(20_000, 20, 50)


def _part(items: list[pytest.Item], k: int, n: int) -> list[pytest.Item]:
    """Items of files `k`, `k + n`, … of all files with items, in the order of their names.

    Files stay whole, since their tests share fixtures and compiled programs.
    """
    files = sorted({item.path for item in items})[k - 1 :: n]
    return [item for item in items if item.path in files]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and jax.default_backend() == "cpu":
        pytest.skip("no accelerator")
