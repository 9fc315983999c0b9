"""Mutation testing: mutants of the package, each played through the tests that should kill it.

python benchmarks/mutants.py [--list] [--again] [--limit SECONDS] [NAME …]

A mutant is one replacement of source text that makes the package wrong; `mutants.toml` has them.
The package and its tests are copied to a temporary folder, the replacement is made there, and of
the tests that it names those run that `make test` runs, with a time limit. A mutant whose tests
pass has survived; it is killed if a test fails that passes without it. The random examples of the
tests are the same each time. Outcomes go to benchmarks/results/mutants.jsonl, one line for each
mutant; what is there already, of the same source and the same tests, is not run again, so that a
run can be interrupted and taken up. docs/testing.md shows the table beside it, mutants.md,
survivors first.
"""

import argparse
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.jsonl"
COPIED = (
    *("jbrl", "tests", "benchmarks", "docs", "experiments", "pyproject.toml", "CHANGELOG.md"),
    *("CITATION.cff", "CONTRIBUTING.md", "Makefile", "README.md", "constraints.txt"),
    *("CODE_OF_CONDUCT.md", "SECURITY.md", "LICENSE", "Dockerfile", ".dockerignore"),
    *(".ci", ".github", ".gitignore", ".pre-commit-config.yaml", ".readthedocs.yaml"),
)
LIMIT = 900  # seconds for the tests of one mutant
LIST = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Mutant:
    """One replacement of source text, and the tests that should fail because of it."""

    name: str
    breaks: str
    file: str  # in the package
    old: str  # must be there exactly once
    new: str
    tests: tuple[str, ...]  # arguments of pytest

    @property
    def path(self) -> str:
        return f"jbrl/{self.file}"

    @property
    def test_files(self) -> list[str]:
        names = (test.partition("::")[0] for test in self.tests)
        return sorted({name for name in names if name.endswith(".py")})


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source with the replacement made.

    Raises:
      ValueError: the text to replace is not there exactly once.
    """
    count = source.count(mutant.old)
    if count != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.path} has {mutant.old!r} {count} times: expected once"
        )
    return source.replace(mutant.old, mutant.new)


MUTANTS = tuple(
    Mutant(**{**row, "tests": tuple(row["tests"])})
    for row in tomllib.loads(LIST.read_text())["mutants"]
)


def copy_to(folder: Path) -> None:
    """Copy what tests need, without what was built."""
    ignored = shutil.ignore_patterns("__pycache__", "_build", ".hypothesis")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)


def run_tests(folder: Path, tests: tuple[str, ...], limit: float) -> tuple[str, str]:
    """Run tests in a copy until one fails.

    Returns: "passed", "failed" or "timed out", and the name of the test that failed.

    Raises:
      RuntimeError: no test has run.
    """
    cache = folder.parent / "cache"  # what mutants have in common is compiled once
    known = {
        "PYTHONPATH": str(folder),
        "CI": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **known},
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return "timed out", ""
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(tests)}: pytest ended with {done.returncode}\n{done.stdout}")
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if not done.returncode:
        return "passed", ""
    if not failed:
        raise RuntimeError(f"{' '.join(tests)}: pytest names no test that failed\n{done.stdout}")
    return "failed", failed[0].split(" - ")[0].partition(" ")[2]


@functools.cache
def passes(folder: Path, test: str, limit: float) -> bool:
    """Return whether a test passes without any mutant."""
    return run_tests(folder, (test,), limit)[0] == "passed"


def digest(mutant: Mutant, root: Path = ROOT) -> str:
    """Return what the outcome of a mutant depends on: its source, the replacement, the tests."""
    files = [root / test for test in mutant.test_files]
    parts = [mutated(mutant, (root / mutant.path).read_text()), *(f.read_text() for f in files)]
    content = "\0".join([*parts, *mutant.tests])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def outcome(mutant: Mutant, folder: Path, limit: float) -> dict[str, Any]:
    """Play one mutant in a copy of the package, and the test that kills it without it.

    Raises:
      RuntimeError: that test fails without the mutant, too, so it says nothing.
    """
    path, started = folder / mutant.path, time.perf_counter()
    source, known = path.read_text(), digest(mutant, folder)
    try:
        path.write_text(mutated(mutant, source))
        after, by = run_tests(folder, mutant.tests, limit)
    finally:
        path.write_text(source)
    seconds = time.perf_counter() - started
    if after == "failed" and not passes(folder, by, limit):
        raise RuntimeError(f"{mutant.name}: {by} fails without it, too")
    return {
        "mutant": mutant.name,
        "breaks": mutant.breaks,
        "file": mutant.path,
        "outcome": {"passed": "survived", "failed": "killed"}.get(after, after),
        "by": by,
        "seconds": round(seconds, 1),
        "digest": known,
    }


def read(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the outcomes that are kept, by name."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {found["mutant"]: found for found in map(json.loads, lines)}


def write(found: dict[str, dict[str, Any]], path: Path = RESULTS) -> None:
    """Write outcomes in the order of the mutants, and a table of them for docs/testing.md."""
    order = [found[mutant.name] for mutant in MUTANTS if mutant.name in found]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in order))
    path.with_suffix(".md").write_text(markdown(order))


def markdown(lines: list[dict[str, Any]]) -> str:
    """Return a table of outcomes, survivors first, under a sentence that counts them."""
    survivors = [line for line in lines if line["outcome"] == "survived"]
    rows = [
        f"| {line['breaks']} | `{line['file']}` | {line['outcome']} |"
        for line in [*survivors, *(line for line in lines if line not in survivors)]
    ]
    count = f"Of {len(lines)} mutants {len(survivors)} survive."
    return "\n".join([count, "", "| mutant | file | outcome |", "|---|---|---|", *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--list", action="store_true", help="say which there are, and run nothing")
    parser.add_argument("--again", action="store_true", help="run what is known as well")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for the tests of one")
    options = parser.parse_args()
    unknown = set(options.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [m for m in MUTANTS if m.name in options.names or not options.names]
    if options.list:
        print("\n".join(f"{mutant.name}: {mutant.breaks}" for mutant in chosen))
        return
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name) / "copy"
        folder.mkdir()
        copy_to(folder)
        failures = [m.name for m in chosen if not judged(m, folder, options.limit, options.again)]
    if failures:
        raise SystemExit(f"could not be judged: {', '.join(failures)}")


def judged(mutant: Mutant, folder: Path, limit: float, again: bool) -> bool:
    """Play a mutant unless its outcome is known, and keep the outcome.

    Returns: whether there is one.
    """
    known = read().get(mutant.name)
    if known and known["digest"] == digest(mutant, folder) and not again:
        print(f"{mutant.name}: {known['outcome']} (known)")
        return True
    try:
        line = outcome(mutant, folder, limit)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        return False
    write({**read(), mutant.name: line})
    print(f"{mutant.name}: {line['outcome']} {line['by']}", flush=True)
    return True


if __name__ == "__main__":
    main()
