"""The small study that everything is done to, and what may be said of its directory at
any moment.
"""

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.study.progress import Progress
from jbrl.study.storage.store import FLIGHT, Result, Store

STUDY = """
[study]
name = "faults"
n_environments = 40
horizon = 12
chunk = 2
record = true

[[experiments]]
name = "GC"
prior = "GC"
test = "GC"

[[agents]]
algorithm = "Random"

[[agents]]
algorithm = "Q-learning"
alpha = [0.1, 0.5]
"""
SEARCH = """
[[agents]]
algorithm = "OPPS-DS"
space = "Q2/Q0; Q0/Q1*Q1; Q0/Q2"
budget = 600
c = 60.0
"""
EPISODES = """
[study]
name = "faults of episodes"
n_environments = 40
chunk = 16

[[experiments]]
name = "Chain"
problem = "Chain-10s"
episodes = 60

[[experiments]]
name = "Gridworld"
problem = "Gridworld-5s"
horizon = 5000

[[agents]]
algorithm = "Sarsa"
alpha = [0.1, 0.01]

[[agents]]
algorithm = "Q-learning"
alpha = { uniform = [0.01, 0.1] }
"""
KINDS = {"plain": STUDY, "search": STUDY + SEARCH, "episodes": EPISODES}


def write_study(folder: Path, kind: str = "plain") -> Path:
    path = folder / "study.toml"
    path.write_text(KINDS[kind])
    return path


def files(folder: Path) -> list[Path]:
    """All that a study keeps: no temporary files."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".tmp")
    )


def contents(folder: Path) -> dict[str, bytes]:
    """What is in each file of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def sealed(path: Path) -> bool:
    """Return whether a file ends in the SHA-256 of what comes before.

    Written without looking at how jbrl does it.
    """
    content = path.read_bytes()
    if path.suffix == ".json":
        content = content[: content.rindex(b'"')]
    return content[-64:].decode("ascii", "replace") == hashlib.sha256(content[:-64]).hexdigest()


def outcome(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Everything random that a directory holds, by file: what must be the same to the last bit.

    Times are left out.
    """
    store = Store(folder)
    found = {}
    for path in files(folder):
        id, partial = path.name.split(".")[0], ".partial." in path.name
        kept: Result | None = None
        if path.parent.name == "units":
            kept = store.checkpoint(id) if partial else store.result(id, arrays=True)
        elif path.parent.name == "knowledge":
            kept = store.knowledge(id, partial=partial)
        if kept is not None and kept.status != "failed":
            # of lifetimes at work
            arrays = {
                name: values for name, values in kept.arrays.items() if not name.startswith(FLIGHT)
            }
            found[f"{path.parent.name}/{path.name}"] = {"returns": kept.returns, **arrays}
    return found


def differences(
    found: dict[str, dict[str, np.ndarray]], expected: dict[str, dict[str, np.ndarray]]
) -> Iterator[str]:
    """Results that are not as expected, and checkpoints that are not the beginning of what is."""
    for name, arrays in found.items():
        if name.startswith("knowledge/") and ".partial." in name:
            continue  # the state of a search has no counterpart in what it concludes
        whole = expected.get(name.replace(".partial.", "."))
        if whole is None:
            yield f"{name}: nobody expected it"
        elif not len(arrays["returns"]) and ".partial." in name:
            continue  # no lifetime is over yet
        elif set(whole) != set(arrays):
            yield f"{name}: holds {sorted(arrays)}, expected {sorted(whole)}"
        else:
            wrong = [
                key
                for key in whole
                if not _begins(arrays[key], whole[key], exactly=".partial." not in name)
            ]
            yield from (f"{name}: {key} differs" for key in wrong)


def _begins(part: np.ndarray, whole: np.ndarray, *, exactly: bool) -> bool:
    same = part.dtype == whole.dtype and part.tobytes() == whole[: len(part)].tobytes()
    return same and (len(part) == len(whole) or not exactly)


def settings(**changes: Any) -> list[str]:
    """Options that change fields of `[study]`."""
    return [text for name, value in changes.items() for text in ("--set", f"study.{name}={value}")]


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def full(*_: object, **__: object) -> None:
    """Stand for a step of writing on a full disk."""
    raise OSError(28, "No space left on device")


def empty(path: Path) -> None:
    path.write_bytes(b"")


class Interrupt(Progress):
    """Ctrl-C once so many MDPs of a unit are played, or a search has made use of so many
    trajectories.
    """

    def __init__(self, played: float = math.inf, searched: float = math.inf) -> None:
        self.played, self.searched = played, searched

    def searching(self, unit: Any, consumed: int, budget: int, seconds: float) -> None:
        if consumed >= self.searched:
            raise KeyboardInterrupt

    def advanced(self, unit: Any, n: int, seconds: float, decisions: int) -> None:
        if n >= self.played:
            raise KeyboardInterrupt
