"""`kill -9` at random moments, again and again, of a study that is always taken up where it was.

    python -m tests.faults.kills [TRIES] [SEED]

After each kill the directory is looked through: every file sealed and readable, every result and
every checkpoint the same bits as without kills, nothing gone that was done before. When a study
gets to its end, the whole of it is compared and another one begun.
"""

import itertools
import json
import random
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.cases import differences, files, outcome, sealed, write_study
from tests.faults.warm import Process, Warm

POLL = 0.002  # seconds between two looks at the directory
CHANGES = 20  # of the directory of results, that a process may live to see at most
LATER = 0.02  # seconds that it lives on after the last of them, at most
EARLY = 0.2  # of the kills come at a moment before the process has written anything


@dataclass
class Figures:
    """Counts and losses of a series of kills."""

    tries: int = 0  # processes killed
    losses: list[str] = field(default_factory=list)
    completed: int = 0  # studies that got to their end after being killed at least once
    early: int = 0  # kills before the process had written anything but the manifest
    checkpoints: int = 0  # kills that left a unit half done
    temporary: int = 0  # kills that left a file half written
    most: int = 0  # kills of one study
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        """All that is worth keeping."""
        return {"fault": "kill -9", "tries": self.tries, "losses": len(self.losses)} | {
            name: getattr(self, name)
            for name in ("completed", "early", "checkpoints", "temporary", "most")
        }


class Ordeal:
    """One study at a time, killed until it is done.

    Args:
      folder: empty; studies and their results go there.
    """

    def __init__(self, warm: Warm, folder: Path, seed: int, kind: str = "plain") -> None:
        self.warm, self.folder, self.random = warm, folder, random.Random(seed)
        self.study = write_study(folder, kind)
        self.expected = self._whole("first")  # fills the cache of compiled programs
        began = time.monotonic()
        again = self._whole("second")
        self.seconds = time.monotonic() - began
        self.figures = Figures(
            losses=[f"without any fault: {text}" for text in differences(again, self.expected)]
        )

    def _whole(self, name: str) -> dict:
        code = self._start(self.folder / name).wait()
        assert code == 0, (self.folder / "log").read_text()
        return outcome(self.folder / name)

    def _start(self, out: Path) -> Process:
        return self.warm.start("run", self.study, "--out", out, log=self.folder / "log", often=True)

    def run(self, tries: int) -> Figures:
        """Kill that many processes."""
        began = time.monotonic()
        for number in itertools.count():
            if self.figures.tries >= tries:
                break
            self._study(self.folder / f"killed{number}", tries)
        self.figures.seconds = time.monotonic() - began
        return self.figures

    def _study(self, out: Path, tries: int) -> None:
        kills, done = 0, set[str]()
        while True:
            before = snapshot(out)
            process = self._start(out)
            code = self._lives(process, out) if self.figures.tries < tries else process.wait()
            if code is None:
                process.send(signal.SIGKILL)
                code = process.wait()
            if code != -signal.SIGKILL:
                break
            kills += 1
            self._count(out, before)
            done = self._inspect(out, done, f"kill {self.figures.tries}")
        if code != 0:
            self.figures.losses.append(f"{out.name}: ended with {code}")
        self._inspect(out, done | set(self.expected), f"{out.name}, at its end")
        self.figures.completed += kills > 0
        self.figures.most = max(self.figures.most, kills)

    def _lives(self, process: Process, out: Path) -> int | None:
        """Let a process live until a random moment; its exit code if it has come to an end
        before that.

        What a moment is worth depends on what the process is doing, and how long it takes to get
        there on how busy the machine is. So most moments are counted in changes of the directory,
        each a file that is begun, finished or removed, and a little later.
        """
        if self.random.random() < EARLY:
            return process.wait(self.random.uniform(0, self.seconds / 2))
        code, changes, seen = None, self.random.randint(1, CHANGES), _changed(out)
        while code is None and changes:
            code = process.wait(POLL)
            now = _changed(out)
            changes, seen = changes - (now != seen), now
        return process.wait(self.random.uniform(0, LATER)) if code is None else code

    def _count(self, out: Path, before: dict[str, int]) -> None:
        after = snapshot(out)
        self.figures.tries += 1
        sys.stderr.write(f"kill {self.figures.tries}, {len(self.figures.losses)} losses\n")
        self.figures.early += after == before
        self.figures.checkpoints += any(
            ".partial.npz" in name and not name.endswith(".tmp") for name in after
        )
        self.figures.temporary += any(name.endswith(".tmp") for name in set(after) - set(before))

    def _inspect(self, out: Path, done: set[str], when: str) -> set[str]:
        """Look through the directory; the results that are there."""
        self.figures.losses += [f"{when}: {text}" for text in wrongs(out, self.expected, done)]
        return {name for name in outcome(out) if ".partial." not in name}


def wrongs(out: Path, expected: dict, done: set[str]) -> Iterator[str]:
    """All that is wrong with a directory in which `done` must be there."""
    yield from (f"{path} has no seal" for path in files(out) if not sealed(path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = outcome(out)
    yield from (str(warning.message) for warning in caught)
    yield from differences(found, expected)
    yield from (f"{name} is gone" for name in sorted(done - set(found)))


def _changed(folder: Path) -> list[int]:
    return [
        path.stat().st_mtime_ns
        for name in ("units", "knowledge")
        if (path := folder / name).exists()
    ]


def snapshot(folder: Path) -> dict[str, int]:
    """All files of results, temporary ones too, and when they were written."""
    kept = [path for name in ("units", "knowledge") for path in (folder / name).glob("*")]
    return {path.name: path.stat().st_mtime_ns for path in kept}


def main(tries: int, seed: int = 1) -> int:
    """Kill, a quarter of the times a study with a search, a quarter one of episodes; print the
    figures as JSON.

    Returns: losses.
    """
    lost = 0
    for kind, number in (
        ("plain", tries - 2 * (tries // 4)),
        ("search", tries // 4),
        ("episodes", tries // 4),
    ):
        with tempfile.TemporaryDirectory() as name, Warm(Path(name) / "cache") as warm:
            figures = Ordeal(warm, Path(name), seed, kind).run(number)
        lines = [
            json.dumps(figures.row() | {"study": kind, "minutes": round(figures.seconds / 60, 1)}),
            *figures.losses,
        ]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
        lost += len(figures.losses)
    return lost


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:]))))
