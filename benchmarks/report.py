"""The report of a study of the published size, scores drawn and not played: one JSON line.

python benchmarks/report.py [FOLDER]

Seconds are those of `write_report` alone, on the clock and of the processor; memory is the peak of
the whole process. FOLDER keeps the report.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.large_study import study
from jbrl.report.chapters import write_report

LIMITS = {"seconds": 60.0, "gibibytes": 2.0, "largest_page_megabytes": 5.0}


def main(folder: Path) -> int:
    scores, returns = study()
    started, used = time.perf_counter(), time.process_time()
    write_report(
        scores,
        returns,
        {"study": {"name": "Synthetic scores", "horizon": 250}, "oracles": ["Optimal"]},
        folder,
    )
    seconds, used = time.perf_counter() - started, time.process_time() - used
    found = {
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used, 1),
        "gibibytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "largest_page_megabytes": round(
            max(path.stat().st_size for path in folder.glob("*.html")) / 1e6, 2
        ),
    }
    agents = len(scores.drop_duplicates(["algorithm", "parameters"]))
    held = all(found[name] <= limit for name, limit in LIMITS.items())
    line = {
        "benchmark": "report of a study",
        "agents": agents,
        "experiments": scores["experiment"].nunique(),
        "returns": len(returns),
    }
    print(json.dumps({**line, **found, "within_limits": held, "limits": LIMITS}), flush=True)
    return 0 if held else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path, nargs="?", help="keeps the report")
    folder = parser.parse_args().folder
    if folder:
        sys.exit(main(folder))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
