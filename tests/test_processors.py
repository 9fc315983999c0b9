"""The same bits with the instructions of other processors.

Each library of the host is told to leave instructions of this processor unused, in a process of its
own, which proves that it does, and XLA to use those that it leaves unused elsewhere. Where the
processor does not have them, there is nothing to compare.
"""

import dataclasses
import functools
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import jbrl
from tests import processors
from tests.terminal import output_of
from tests.test_pins import EXACT, PINS

ROOT = Path(__file__).parents[1]
VARIABLES = ("NPY_DISABLE_CPU_FEATURES", "XLA_FLAGS", "OPENBLAS_CORETYPE", "GLIBC_TUNABLES")
N_FEW = 4


Told = dict[str, Any]  # what libraries say of themselves: `processors.instructions`


@dataclasses.dataclass(frozen=True)
class Switch:
    """A setting of one library."""

    variable: str
    value: str
    there: Callable[[Told], bool]  # of a process without it: does it change anything?
    works: Callable[[Told], bool]  # of a process with it: has it changed?


def _numpy(*sets: str) -> Switch:
    return Switch(
        "NPY_DISABLE_CPU_FEATURES",
        " ".join(sets),
        lambda told: sets[0] in told["numpy"],
        lambda told: not set(sets) & set(told["numpy"]),
    )


SWITCHES = {
    "NumPy without AVX-512": _numpy("X86_V4", "AVX512_ICL"),
    "NumPy without AVX2": _numpy("X86_V3", "X86_V4", "AVX512_ICL"),
    "XLA with AVX-512": Switch(
        "XLA_FLAGS",
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AMX_FP16".strip(),
        lambda told: "X86_V4" in told["numpy"] and "avx512f" not in told["xla"],
        lambda told: "avx512f" in told["xla"],
    ),
    "BLAS without AVX-512": Switch(
        "OPENBLAS_CORETYPE",
        "Haswell",
        lambda told: told["blas"] not in (None, "Haswell", "Zen") and "avx2" in told["xla"],
        lambda told: told["blas"] == "Haswell",
    ),
    "C library without AVX2": Switch(
        "GLIBC_TUNABLES",
        "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX2_Usable,-FMA_Usable",
        lambda told: platform.libc_ver()[0] == "glibc" and "fma" in told["xla"],
        lambda told: told["libm"] != plain()["instructions"]["libm"],
    ),
}


def run(*switches: str) -> dict[str, Any]:
    """Return what `tests.processors` says in a process with these switches, and no others."""
    given = {SWITCHES[name].variable: SWITCHES[name].value for name in switches}
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with tempfile.TemporaryDirectory() as folder:
        command = sys.executable, "-m", "tests.processors", f"{folder}/study"
        said = output_of(*command, env=kept | given, cwd=ROOT)
    return json.loads(said.splitlines()[-1])


@functools.cache
def plain() -> dict[str, Any]:
    """Return what a process without switches says: this one, or one that plays where there are no
    pins.
    """
    if not EXACT:
        return run()
    return {"instructions": processors.instructions(), "numbers": processors.numbers()}


def check(switches: Sequence[str]) -> None:
    found = run(*switches)
    for name in switches:
        assert SWITCHES[name].works(found["instructions"]), (name, found["instructions"])
    assert found["numbers"] == plain()["numbers"]
    assert len(found["units"]) == N_FEW
    pins = {id: PINS["comparison"][id]["sha256"] for id in found["units"]}
    assert found["units"] == (pins if EXACT else plain()["units"])


def test_programs_use_no_more_than_avx2():
    """With AVX-512, XLA would sum a matrix in another order."""
    if platform.machine() != "x86_64" or "fma" not in plain()["instructions"]["xla"]:
        pytest.skip("no x86-64 processor with AVX2 and FMA")
    assert plain()["instructions"]["xla"] == ["avx2", "fma"]


def test_instructions_that_xla_flags_name_are_kept(monkeypatch):
    for before, after in (
        ("", "--xla_cpu_max_isa=AVX2"),
        ("--xla_a=1", "--xla_a=1 --xla_cpu_max_isa=AVX2"),
        ("--xla_cpu_max_isa=SSE4_2", "--xla_cpu_max_isa=SSE4_2"),
    ):
        monkeypatch.setenv("XLA_FLAGS", before)
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        jbrl._limit_instructions()
        assert os.environ["XLA_FLAGS"] == after
        monkeypatch.setenv("XLA_FLAGS", before)
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        jbrl._limit_instructions()
        assert os.environ["XLA_FLAGS"] == before


def there(name: str) -> bool:
    """Return whether this machine's library uses what the switch forbids."""
    return SWITCHES[name].there(plain()["instructions"])


@pytest.mark.slow
@pytest.mark.parametrize("name", SWITCHES)
def test_one_library_with_fewer_instructions(name):
    if not there(name):
        pytest.skip(f"{name}: so it is on this machine without the switch")
    check([name])


def test_all_libraries_as_on_a_processor_without_avx_512():
    """And the C library, which has nothing for AVX-512, as on one without AVX2."""
    names = [
        name
        for name in SWITCHES
        if name not in ("NumPy without AVX2", "XLA with AVX-512") and there(name)
    ]
    if not names:
        pytest.skip("no switch forbids anything that this machine has")
    check(names)
