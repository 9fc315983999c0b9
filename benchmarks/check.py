"""Check for slower kernels: the quick ones beside their earlier speed on machines of this kind; and
for more programs that the main job has to compile.

`make bench-check`.

python benchmarks/check.py [--record]

What is compared is how many times faster than its NumPy twin a kernel is, with the median of
`benchmarks/results/history.jsonl` for the same kind of processor. A ratio that seems to have
worsened by half is measured once more, twice as long, and the better one counts. Exit code 1 when
one has. Where the history has no such machine, nothing is compared. The main job may not take more
programs (`programs.py`) than `benchmarks/results/programs.json` says. `--record` adds what was
measured to the history, and the number of programs to that file.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import history, programs
from benchmarks.kernels import KERNELS, ROUNDS, Kernel, on_one_core, ratio_of

PROGRAMS = Path(__file__).parent / "results" / "programs.json"


def ratios_of(
    kernels: list[Kernel], before: dict[str, float], rounds: int = ROUNDS
) -> dict[str, float]:
    """Return ratios of kernels, those that seem to have worsened measured again."""
    found = {}
    for kernel in kernels:
        pair = kernel.make()
        ratio = ratio_of(pair, rounds)["times_numpy"]
        if history.worsened({kernel.name: ratio}, before):
            ratio = max(ratio, ratio_of(pair, 2 * rounds)["times_numpy"])
        found[kernel.name] = ratio
    return found


def told(ratios: dict[str, float], before: dict[str, float]) -> str:
    """Write one line for each kernel."""
    slow = history.worsened(ratios, before)
    rows = [f"{'kernel':<44}{'times NumPy':>12}{'usual':>10}"]
    for name, ratio in ratios.items():
        known = f"{before[name]:.4g}" if name in before else "-"
        rows.append(f"{name:<44}{ratio:>12.4g}{known:>10}{'  SLOWER' if name in slow else ''}")
    return "\n".join(rows)


def too_many(found: int, file: Path = PROGRAMS) -> str:
    """Return a sentence if the main job takes more programs than the file says, else nothing."""
    usual = json.loads(file.read_text())["main_job"] if file.exists() else found
    if found <= usual:
        return ""
    return (
        f"the main job takes {found} programs, {usual} before: units that differ in data share one"
    )


def main(record: bool) -> int:
    """Run from the command line."""
    on_one_core()
    before = history.usual(history.read(), history.fingerprint())
    ratios = ratios_of([kernel for kernel in KERNELS if kernel.quick], before)
    print(told(ratios, before))
    job = programs.programs_of()
    print(f"the main job takes {job} programs, searches on the prior apart")
    if record:
        history.append(
            history.entry({name: float(f"{ratio:.4g}") for name, ratio in ratios.items()})
        )
        PROGRAMS.write_text(json.dumps({"main_job": job}) + "\n")
    if not before:
        print("nothing to compare with: the history has no machine of this kind")
    slow = history.worsened(ratios, before)
    if slow:
        print(
            f"slower by more than half than usual, beside NumPy: {', '.join(slow)}", file=sys.stderr
        )
    more = too_many(job)
    if more:
        print(more, file=sys.stderr)
    return bool(slow or more)


if __name__ == "__main__":
    sys.exit(main("--record" in sys.argv[1:]))
