"""The main job, a study from start to end, cold and with compiled programs kept from before.

python benchmarks/main_job.py [--study experiments/quick.toml] [--n-environments N] [--only REGEX]
    [--runs none cold warm]

Each run is a process of its own with an empty results directory: `none` keeps no programs, `cold`
starts with an empty compile cache and fills it, `warm` finds it filled. One JSON line for each:
wall seconds of the process, the number of programs that were compiled or loaded, the seconds of
compilation (or of loading what was compiled) read from the results, the seconds of searching the
prior, of decisions, and, as `rest`, of everything else; last, whether all runs gave the same
returns to the last bit. `latency = true` is left out of the seconds of decisions: it is part of the
rest.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jbrl  # noqa: E402

RUNS = ("none", "cold", "warm")


def run(kind: str, arguments: list[str], folder: Path) -> tuple[dict[str, Any], bytes]:
    """Run the study once; return its figures, and the returns of all units, in the order of the
    study.
    """
    out, cache = folder / kind, folder / "cache"
    environment = {
        name: value for name, value in os.environ.items() if name != "JBRL_COMPILE_CACHE"
    }
    number = folder / "programs"
    counted = [str(ROOT / "benchmarks" / "programs.py"), "--counted", str(number)]
    command = [sys.executable, *counted, "run", *arguments, "--out", str(out), "--quiet"]
    started = time.perf_counter()
    subprocess.run(
        command + ([] if kind == "none" else ["--compile-cache", str(cache)]),
        check=True,
        cwd=ROOT,
        env=environment,
    )
    seconds = time.perf_counter() - started
    results = jbrl.Results(out)
    done = results.scores[results.scores["status"] == "done"]
    # one search serves all experiments with a prior
    searches = done.drop_duplicates(["prior", "algorithm", "parameters", "seed"])
    parts = {
        "compile": done["compile_seconds"].sum(),
        "offline": searches["offline_seconds"].sum(),
        "decisions": (done["online_seconds"] * done["n"]).sum()
        * results.manifest["study"]["horizon"],
    }
    found = {
        "benchmark": "main job",
        "compile_cache": kind,
        "units": len(done),
        "programs": int(number.read_text()),
        "seconds": seconds,
        **parts,
    }
    found["rest"] = seconds - sum(parts.values())
    return {
        k: round(float(v), 2) if isinstance(v, float) else v for k, v in found.items()
    }, results.returns["score"].to_numpy().tobytes()


def measure(arguments: list[str], kinds: tuple[str, ...] = RUNS) -> list[dict[str, Any]]:
    """Return the figures of each run, printed as they come, and last what they have in common."""
    rows, returns = [], []
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            row, scores = run(kind, arguments, Path(folder))
            rows.append(row)
            returns.append(scores)
            print(json.dumps(row), flush=True)
        kept = sum(
            file.stat().st_size for file in Path(folder, "cache").rglob("*") if file.is_file()
        )
    same = {
        "benchmark": "main job",
        "returns": len(np.frombuffer(returns[0])),
        "same_bits": len(set(returns)) == 1,
    }
    rows.append({**same, "cache_megabytes": round(kept / 1e6, 1)})
    print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--study", default="experiments/quick.toml")
    parser.add_argument(
        "--n-environments", type=int, help="play so many MDPs instead of those of the study"
    )
    parser.add_argument("--only", help="only units whose label matches, as in jbrl run")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    chosen = parser.parse_args()
    arguments = [chosen.study]
    if chosen.n_environments:
        arguments += ["--set", f"study.n_environments={chosen.n_environments}"]
    if chosen.only:
        arguments += ["--only", chosen.only]
    rows = measure(arguments, tuple(chosen.runs))
    sys.exit(not rows[-1]["same_bits"])


if __name__ == "__main__":
    main()
