"""The quickstart, walked as written: the front page leads to each walk, files are saved, commands
and programs run in their order, in a folder like a fresh checkout. `pytest -m slow -rP` prints how
long each takes.
"""

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.commands import ROOT

PAGE = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
# a file with the name that stands before it, a program, or lines with commands
BLOCK = re.compile(
    r"`(\S+)`[^`]*?:\n\n```(?:toml|text)\n(.*?)```|```(python|console)\n(.*?)```", re.S
)
SHOWN = {
    "Reproduce a cell, add an agent": ["BEB", "agrees", "2 of 48", "CuriousQ"],
    "Choose an agent, take it home": ["Take ", "leader"],
    "Evaluate a table of scores, subset it": ["rank_best", "typical_low"],
    "A sweep as one program": ["(5, 100)", "40000 trajectories in "],
    "A study of your own": ["12 units done in ", "PSRL", "out/chain/report/index.html"],
}


def steps(text: str) -> list[list[str]]:
    """Return what a reader does: `[name, content]` of a file, or the words of a process. Programs
    are one session, after the commands.
    """
    found, session = [], ""
    for name, content, kind, body in BLOCK.findall(text):
        if name:
            found.append([name, content])
        elif kind == "python":
            session += body
        else:
            found += [["bash", "-ec", line] for line in re.findall(r"^\$ (.*)", body, re.MULTILINE)]
    return [*found, ["python", "-c", session]] if session else found


def test_the_front_page_leads_to_each_walk():
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {re.sub(r"[^\w ]", "", name).lower().replace(" ", "-") for name in WALKS}
    assert set(re.findall(r"docs/quickstart\.md#([\w-]+)", front)) <= named
    assert WALKS.keys() == SHOWN.keys() and front.count("docs/quickstart.md#") >= 4
    assert all(steps(text) for text in WALKS.values())
    assert PAGE.count("```") == 2 * (1 + sum(len(BLOCK.findall(text)) for text in WALKS.values()))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what a checkout has, and an environment that is installed already."""
    for name in ("Makefile", "constraints.txt", "docs", "experiments", "pyproject.toml"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = tmp_path / ".venv"
    environment.mkdir()
    for part in Path(sys.prefix).iterdir():
        if not part.name.startswith(".has-"):
            (environment / part.name).symlink_to(part)
    (environment / ".has-core").touch()
    return tmp_path


def walked(folder: Path, words: list[str]) -> str:
    """Run a step, print its seconds, and return what it says."""
    quiet = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "PYTEST", "JBRL_"))}
    path = f"{folder}/.venv/bin:{os.environ['PATH']}"
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        words,
        cwd=folder,
        env=quiet | {"PATH": path, "XDG_CACHE_HOME": str(folder / "cache"), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    taken = time.perf_counter() - start
    sys.stdout.write(f"{taken:.1f} s, {used:.1f} s of processor: {words[-1].strip()}\n")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the quick study", *WALKS])
def test_a_walk_is_as_written(name, checkout):
    said = ""
    for words in steps(WALKS.get(name, PAGE.split("\n## ")[0])):
        if words[0] in ("python", "bash"):
            said += walked(checkout, words)
        else:
            (checkout / words[0]).write_text(words[1], encoding="utf-8")
    assert [word for word in SHOWN.get(name, ["out/quick"]) if word not in said] == []
