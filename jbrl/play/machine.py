"""Machine and software of a run: recorded beside the results, shown by `jbrl doctor`."""

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

import jbrl

CPUINFO = "/proc/cpuinfo"
GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = "/proc/self/cgroup"
PACKAGES = ("jax", "jaxlib", "numpy", "pandas")


@cache
def versions() -> dict[str, str]:
    """Return versions of jbrl, Python and the libraries that numbers depend on; `commit` when jbrl
    runs from a git checkout.
    """
    found = {"jbrl": jbrl.__version__, "python": platform.python_version()}
    found |= {name: metadata.version(name) for name in PACKAGES}
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


@cache
def machine() -> dict[str, str | int | float]:
    """Return operating system, processor, cores and memory."""
    found: dict[str, str | int | float] = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": available_cores(),
    }
    memory = memory_bytes()
    return found | ({"memory_gib": round(memory / 2**30, 1)} if memory else {})


def available_cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the memory that this process may take: of the machine, or what its control group or a
    SLURM job leaves it; 0 where unknown.
    """
    try:
        physical = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, ValueError, OSError):
        physical = []
    return min([*physical, *_allocated(), *(limit for limit, _ in _control_groups())], default=0)


def _allocated() -> list[int]:
    """Return the memory that SLURM has given to the job on this node; it counts MiB, with 0 for all
    memory.
    """
    node, per_core, cores = (
        _whole(os.environ.get(f"SLURM_{name}", ""))
        for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE")
    )
    return [amount * 2**20 for amount in (node, per_core * cores) if amount]


def _control_groups() -> list[tuple[int, int]]:
    """Return bound and use of memory of each control group (version 2) that this process is in and
    that has a bound.
    """
    named = _fields(OWN_GROUP, "0")  # the line is `0::/group/of/this`
    group, found = Path(named[0].lstrip(":/") if named else ""), []
    for folder in (GROUPS / group, *(GROUPS / parent for parent in group.parents)):
        limit, used = (_whole(_text(folder / name)) for name in ("memory.max", "memory.current"))
        found += [(limit, used)] if limit else []
    return found


def _whole(text: str) -> int:
    """Return a text as a number; 0 when it is none."""
    return int(text) if text.strip().isdecimal() else 0


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


def peak_resident_bytes() -> int:
    """Return the most memory that this process has held; 0 where the system does not say."""
    return max((int(v.split()[0]) * 1024 for v in _fields("/proc/self/status", "VmHWM")), default=0)


def available_memory() -> int:
    """Return the memory that programs may still take: what the system has free, or what this
    process's control group leaves; 0 where unknown.
    """
    free = [int(value.split()[0]) * 1024 for value in _fields("/proc/meminfo", "MemAvailable")]
    return max(0, min([*free, *(limit - used for limit, used in _control_groups())], default=0))


def processor() -> str:
    """Return the model of the processor."""
    names = _fields(CPUINFO, "model name")
    return names[0] if names else platform.processor() or platform.machine()


def processor_features() -> tuple[str, ...]:
    """Return the instruction sets and other features of the processor, sorted; none where the
    system does not say.
    """
    lines = _fields(CPUINFO, "flags") or _fields(CPUINFO, "Features")
    return tuple(sorted(set(lines[0].split()))) if lines else ()


def _fields(path: str, name: str) -> list[str]:
    """Return values of a field of a file of lines `name: value`, one for each time it is there."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for field, _, value in pairs if field.strip() == name]


def _commit() -> str:
    """Return the commit of the checkout that jbrl runs from, with a mark when files differ from
    it.
    """
    root = Path(jbrl.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


# without a heartbeat: the process is taken for dead. Shared file systems may show a file as it was
# a minute ago
SILENT_SECONDS = 120.0
FORGOTTEN_SECONDS = 86_400.0  # without one: its file is no longer useful


def process_exists(pid: int) -> bool:
    """Return whether this machine has such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True
