"""Check for slower kernels: the quick ones beside their earlier speed on machines of this kind; and
for more programs, or larger ones, that the main job has to compile.

`make bench-check`.

python benchmarks/check.py [--record]

What is compared is how many times faster than its NumPy twin a kernel is, with the median of
`benchmarks/results/history.jsonl` for the same kind of processor. A ratio that seems to have
worsened by half is measured once more, twice as long, and the better one counts. Exit code 1 when
one has. Where the history has no such machine, nothing is compared. The main job may not take more
programs (`programs.py`) than `benchmarks/results/programs.json` says, nor others, nor any with more
operations, as far as the file is of the same version of JAX. `--record` adds what was measured to
the history, and writes the programs to that file.
"""

import argparse
import json
import sys
from pathlib import Path

import jax

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


def grown(found: dict[str, int], file: Path = PROGRAMS) -> list[str]:
    """Return a sentence for each way in which the main job takes more to compile than the file
    says.

    Args:
      found: operations of each program, as `programs.operations_of` returns them.
    """
    known = json.loads(file.read_text()) if file.exists() else {}
    before: dict[str, int] = known.get("operations", {})
    if known.get("jax") != jax.__version__:
        return []
    told = [
        f"{name}: {count:,} operations, {before[name]:,} before"
        for name, count in found.items()
        if count > before.get(name, count)
    ]
    told += [
        f"{name}: not in {file.name}: nothing to compare with"
        for name in found
        if name not in before
    ]
    if len(found) > len(before):
        told.append(
            f"the main job takes {len(found)} programs, {len(before)} before: units that differ in "
            "data share one"
        )
    return told


def main(record: bool) -> int:
    """Run from the command line."""
    on_one_core()
    before = history.usual(history.read(), history.kind())
    ratios = ratios_of([kernel for kernel in KERNELS if kernel.quick], before)
    print(told(ratios, before))
    job = programs.operations_of()
    print(f"the main job takes {len(job)} programs of {sum(job.values()):,} operations in all")
    if record:
        history.append(
            history.entry({name: float(f"{ratio:.4g}") for name, ratio in ratios.items()})
        )
        PROGRAMS.write_text(
            json.dumps({"jax": jax.__version__, "operations": job}, indent=1) + "\n"
        )
    if not before:
        print("nothing to compare with: the history has no machine of this kind")
    slow = history.worsened(ratios, before)
    if slow:
        print(
            f"slower by more than half than usual, beside NumPy: {', '.join(slow)}", file=sys.stderr
        )
    more = grown(job)
    for sentence in more:
        print(sentence, file=sys.stderr)
    return bool(slow or more)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--record", action="store_true", help="add what is measured to the history")
    sys.exit(main(parser.parse_args().record))
