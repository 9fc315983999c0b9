"""All kernels and the main job in one table, beside NumPy and the published C++ program.

`make bench`.

python benchmarks/all.py [--n-environments N] [--rounds N] [--no-main-job] [--out DIR]

Writes DIR/table.md and DIR/table.json (default: benchmarks/results) and adds a line to
DIR/history.jsonl. Kernels run on one core, as their twins do; the main job,
`experiments/quick.toml`, on all, cold and with a warm compile cache.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import history  # noqa: E402

COLUMNS = ("µs", "NumPy, µs", "times NumPy", "C++, µs", "times C++")


def lines_of(script: str, *arguments: str) -> list[dict[str, Any]]:
    """Yield the output of a benchmark, passed on as it comes."""
    found = []
    with subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            found.append(json.loads(line))
    if process.returncode:
        raise SystemExit(f"{script} failed with exit code {process.returncode}")
    return found


def markdown(
    kernels: list[dict[str, Any]], job: list[dict[str, Any]], entry: dict[str, Any]
) -> str:
    """Return the table, and under it the main job."""
    names = ("microseconds", "numpy", "times_numpy", "cpp", "times_cpp")
    rows = [[row["kernel"], *(_number(row.get(name)) for name in names)] for row in kernels]
    place, known = entry["machine"], entry["versions"]
    commit = f", commit {known['commit'][:12]}" if "commit" in known else ""
    about = (
        f"{entry['date'][:10]}, {place['processor']}, one core of {place['cores']}, jax "
        f"{known['jax']}, jaxlib {known['jaxlib']}{commit}."
    )
    parts = [about, _table(("kernel", *COLUMNS), rows)]
    runs = [row for row in job if "seconds" in row]
    if runs:
        header = (
            "compile cache",
            "programs",
            "seconds",
            "compiling or loading",
            "searching priors",
            "deciding",
            "the rest",
        )
        fields = ("compile_cache", "programs", "seconds", "compile", "offline", "decisions", "rest")
        parts += [
            f"The main job, {runs[0]['units']} units, all cores.",
            _table(header, [[str(row[f]) for f in fields] for row in runs]),
        ]
    return "\n\n".join(parts) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _table(header: tuple[str, ...], rows: list[list[str]]) -> str:
    ruler = "|---|" + "---:|" * (len(header) - 1)
    return "\n".join(
        ["| " + " | ".join(header) + " |", ruler, *("| " + " | ".join(row) + " |" for row in rows)]
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--n-environments", help="MDPs of the main job (default: those of the study)"
    )
    parser.add_argument(
        "--rounds", default="5", help="how often each kernel and its twin take turns"
    )
    parser.add_argument("--no-main-job", action="store_true", help="kernels only")
    parser.add_argument("--out", type=Path, default=history.FILE.parent)
    chosen = parser.parse_args()
    kernels = lines_of("kernels.py", "--rounds", chosen.rounds)
    sized = ["--n-environments", chosen.n_environments] if chosen.n_environments else []
    job = [] if chosen.no_main_job else lines_of("main_job.py", "--runs", "cold", "warm", *sized)
    seconds = {row["compile_cache"]: row["seconds"] for row in job if "seconds" in row}
    entry = history.entry({row["kernel"]: row["times_numpy"] for row in kernels}, seconds or None)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "table.md").write_text(markdown(kernels, job, entry))
    (chosen.out / "table.json").write_text(
        json.dumps({**entry, "kernels": kernels, "main_job": job}, indent=1) + "\n"
    )
    history.append(entry, chosen.out / history.FILE.name)


if __name__ == "__main__":
    main()
