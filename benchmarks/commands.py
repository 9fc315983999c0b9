"""Seconds that commands take on a study of 9,000 finished units, the program before and the present
one in turns.

    python benchmarks/large_study.py out/large
    python benchmarks/commands.py out/large [--before CHECKOUT] [--turns 3]

One JSON line for each run. `cpu_seconds` are those of the processor, user and system, which other
work on the machine changes less than it does the clock.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ("status", "scores", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--before", type=Path, help="a checkout of the program to compare with")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--command", action="append", choices=COMMANDS)
    given = parser.parse_args()
    programs = {"before": given.before} if given.before else {}
    for turn in range(given.turns):
        for name, checkout in {**programs, "present": ROOT}.items():
            for command in given.command or COMMANDS:
                line = {"benchmark": "commands", "command": command, "program": name, "turn": turn}
                found = measured(command, given.folder.resolve(), checkout.resolve())
                print(json.dumps(line | found), flush=True)


def measured(command: str, folder: Path, checkout: Path) -> dict[str, float]:
    """Measure wall and processor seconds of one command."""
    with tempfile.TemporaryDirectory() as out:
        options = ["--out", out] if command == "report" else []
        call = [sys.executable, "-m", "jbrl", command, str(folder), *options]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = os.environ | {"PYTHONPATH": str(checkout)}
        subprocess.run(call, check=True, cwd=checkout, env=environment, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    load = os.getloadavg()[0]
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "load": round(load, 1)}


if __name__ == "__main__":
    main()
