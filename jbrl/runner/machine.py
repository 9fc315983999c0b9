"""What the work ran on and with: recorded beside the results, shown by `jbrl doctor`."""

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

import jbrl

CPUINFO = "/proc/cpuinfo"
PACKAGES = ("jax", "jaxlib", "numpy", "pandas")


@cache
def versions() -> dict[str, str]:
    """Versions of jbrl, Python and the libraries that numbers depend on; `commit` when jbrl runs from a git checkout."""
    found = {"jbrl": jbrl.__version__, "python": platform.python_version()}
    found |= {name: metadata.version(name) for name in PACKAGES}
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


@cache
def machine() -> dict[str, str | int | float]:
    """Operating system, processor, cores and memory."""
    found: dict[str, str | int | float] = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": available_cores(),
    }
    memory = memory_bytes()
    return found | ({"memory_gib": round(memory / 2**30, 1)} if memory else {})


def available_cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Physical memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def resident_bytes() -> int:
    """Memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


def peak_resident_bytes() -> int:
    """The most memory that this process has held; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, ValueError, StopIteration):
        return 0


def available_memory() -> int:
    """Memory that programs may still take: what the system has free, or what this process's control group leaves; 0 where unknown."""
    free = [int(value.split()[0]) * 1024 for value in _fields("/proc/meminfo", "MemAvailable")]
    group = Path("/sys/fs/cgroup")
    try:
        most, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        free += [int(most) - int(used)] if most != "max" else []
    except (OSError, ValueError):
        pass
    return max(0, min(free, default=0))


def processor() -> str:
    """Model of the processor."""
    names = _fields(CPUINFO, "model name")
    return names[0] if names else platform.processor() or platform.machine()


def processor_features() -> tuple[str, ...]:
    """The instruction sets and other features of the processor, sorted; none where the system does not say."""
    lines = _fields(CPUINFO, "flags") or _fields(CPUINFO, "Features")
    return tuple(sorted(set(lines[0].split()))) if lines else ()


def _fields(path: str, name: str) -> list[str]:
    """Values of a field of a file of lines `name: value`, one for each time it is there."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [value.strip() for field, _, value in pairs if field.strip() == name]


def _commit() -> str:
    """Commit of the checkout that jbrl runs from, with a mark when files differ from it."""
    root = Path(jbrl.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
