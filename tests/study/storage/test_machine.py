"""The memory that a process may take: of the machine, of its control groups, of its job."""

import os
from pathlib import Path

import pytest

from jbrl.play import machine

NAMES = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """In no job, and in control group /job/step, which has no bound."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    groups = tmp_path / "groups"
    (groups / "job" / "step").mkdir(parents=True)
    (tmp_path / "own").write_text("4:memory:/elsewhere\n0::/job/step\n")
    monkeypatch.setattr(machine, "GROUPS", groups)
    monkeypatch.setattr(machine, "OWN_GROUP", str(tmp_path / "own"))
    return groups


def physical() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def bound(group: Path, most: str, used: int = 0) -> None:
    (group / "memory.max").write_text(most + "\n")
    (group / "memory.current").write_text(f"{used}\n")


def test_without_any_bound_it_is_that_of_the_machine(alone):
    bound(alone / "job", "max")
    assert machine.memory_bytes() == physical()
    assert 0 < machine.available_memory() <= physical()


@pytest.mark.parametrize("group", ["job/step", "job", "."])
def test_the_bound_of_a_control_group_counts_whichever_has_it(alone, group):
    bound(alone / group, str(3 * 2**20), used=2**20)
    assert machine.memory_bytes() == 3 * 2**20
    assert machine.available_memory() == 2 * 2**20


def test_the_least_bound_counts(alone):
    bound(alone / "job", str(2**20), used=2**21)
    bound(alone / "job" / "step", str(2**22))
    assert machine.memory_bytes() == 2**20
    assert machine.available_memory() == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("512", "", "4"), 512),
        (("", "100", "4"), 400),
        (("0", "", "4"), None),
        (("", "100", ""), None),
    ],
)
def test_a_job_of_slurm_has_what_was_given_to_it(monkeypatch, values, expected):
    for name, value in zip(NAMES, values, strict=True):
        monkeypatch.setenv(name, value)
    assert machine.memory_bytes() == (expected * 2**20 if expected else physical())


def test_a_bound_above_the_memory_of_the_machine_says_nothing(monkeypatch):
    monkeypatch.setenv(NAMES[0], str(10**9))
    assert machine.memory_bytes() == physical()
