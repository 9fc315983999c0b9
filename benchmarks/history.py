"""Ratio of each kernel's speed to NumPy's, each time it was measured:
`benchmarks/results/history.jsonl`.
"""

import json
import os
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.play.compile_cache import fingerprint  # noqa: E402
from jbrl.play.machine import machine, versions  # noqa: E402

FILE = ROOT / "benchmarks" / "results" / "history.jsonl"
WORSE = 1.5  # a ratio that has worsened by half


def kind() -> str:
    """Return what stands for the model and the features of the processor, and for the instructions
    that `XLA_FLAGS` lets XLA use of it.
    """
    limit = re.search(r"xla_cpu_max_isa=(\w+)", os.environ.get("XLA_FLAGS", ""))
    return f"{fingerprint()}-{limit[1]}" if limit else fingerprint()


def entry(
    ratios: Mapping[str, float], main_job: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Return a line of the history: when, what, where, how fast."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    # of the machine: this process may be kept to one
    place = {"processor": machine()["processor"], "cores": os.cpu_count()}
    return {
        "date": when,
        "kind": kind(),
        "versions": versions(),
        "machine": place,
        "ratios": dict(ratios),
        "main_job": main_job,
    }


def append(line: Mapping[str, Any], file: Path = FILE) -> None:
    """Add a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(json.dumps(line) + "\n")


def read(file: Path = FILE) -> list[dict[str, Any]]:
    """Return all lines, the oldest first."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def usual(lines: Sequence[Mapping[str, Any]], kind: str) -> dict[str, float]:
    """Return the median of each kernel's ratios on machines of a kind."""
    mine = [line["ratios"] for line in lines if line["kind"] == kind]
    names = dict.fromkeys(name for ratios in mine for name in ratios)
    return {
        name: statistics.median(ratios[name] for ratios in mine if name in ratios) for name in names
    }


def worsened(ratios: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Return kernels that are slower, beside their twins, by more than half than they were."""
    return [
        name for name, ratio in ratios.items() if name in before and ratio * WORSE < before[name]
    ]
