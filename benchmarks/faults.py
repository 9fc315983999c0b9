"""The complete suite of faults, with its figures: how often each was tried, and what was lost.

python benchmarks/faults.py [KILLS]

First a study that is killed 200 times, or KILLS (0: not at all), as `tests/faults/kills.py` reports
it; then the tests in `tests/faults`, one row for each file of them. A try is one fault: a test, or,
where a test goes through many, as many as it says. A loss is a test that fails: a number that
differs, a file that is gone, is not sealed or is believed though damaged, an exit code that is not
the one promised.
"""

import argparse
import datetime
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
FAULTS = {
    "test_signals": "SIGTERM",
    "test_disk": "full disk",
    "test_damage": "damaged and malicious files",
    "test_clocks": "clocks that jump",
    "test_memory": "memory that does not suffice",
    "test_agents": "agents that do wrong",
}


def kill(tries: int) -> list[dict]:
    """Kill studies, without a search and with one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.kills", str(tries)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = done.stdout.splitlines()
    print(*(line for line in lines if not line.startswith("{")), sep="\n", file=sys.stderr)
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    if done.returncode and not any(row["losses"] for row in rows):
        raise SystemExit(f"tests.faults.kills has ended with exit code {done.returncode}")
    return rows


def test(name: str, fault: str) -> dict:
    """Run the tests of one file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            f"tests/faults/{name}.py",
            "-q",
            f"--junit-xml={report}",
            "-o",
            "junit_family=xunit1",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    skipped = [case for case in cases if case.find("skipped") is not None]
    if failed:
        print(done.stdout, file=sys.stderr)
    tries = sum(_tries(case) for case in cases if case not in skipped)
    return {
        "fault": fault,
        "tries": tries,
        "losses": len(failed),
        "tests": len(cases),
        "skipped": len(skipped),
    }


def _tries(case: ElementTree.Element) -> int:
    said = [int(p.get("value", "")) for p in case.iter("property") if p.get("name") == "tries"]
    return said[0] if said else 1


def main(tries: int) -> int:
    """Run all of it, one JSON line for each kind of fault; return 1 when anything was lost."""
    sys.path.insert(0, str(ROOT))
    from jbrl.play.machine import available_cores, versions

    facts = {
        "device": f"cpu x {available_cores()}",
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
    }
    losses = 0
    for row in itertools.chain(
        kill(tries) if tries else (), itertools.starmap(test, FAULTS.items())
    ):
        print(json.dumps(row | facts), flush=True)
        losses += row["losses"]
    return bool(losses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kills", metavar="KILLS", type=int, nargs="?", default=200)
    sys.exit(main(parser.parse_args().kills))
