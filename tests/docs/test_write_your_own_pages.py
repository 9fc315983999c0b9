"""The pages «Write your own …» show files, commands and programs that run as they stand."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "write-your-own-environment.md": ("corridor.py", "corridor.toml"),
    "write-your-own-agent.md": ("curious_q.py", "curious_q.toml"),
}

every_page = pytest.mark.parametrize("name", PAGES)


def blocks(name: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```",
        (DOCS / name).read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in (file for files in PAGES.values() for file in files):
        shutil.copy(DOCS / "examples" / file, tmp_path)
    return tmp_path


@every_page
def test_page_shows_the_files_that_run(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    for file in PAGES[name]:
        text = (DOCS / "examples" / file).read_text(encoding="utf-8")
        assert f"```{{literalinclude}} examples/{file}\n" in page
        assert len(text.splitlines()) <= 50


@every_page
def test_example_imports_jbrl_and_nothing_inside_it(name: str) -> None:
    source = (DOCS / "examples" / PAGES[name][0]).read_text(encoding="utf-8")
    imported = re.findall(r"^(?:import|from) (\S+)", source, re.MULTILINE)
    assert set(imported) <= {"dataclasses", "jax", "jax.numpy", "jbrl"}


@pytest.mark.slow
@every_page
def test_commands_of_the_page_run(name: str, folder: Path) -> None:
    commands = re.findall(r"^\$ jbrl (.*)$", "".join(blocks(name, "console")), re.MULTILINE)
    assert len(commands) >= 2
    for command in commands:
        run("-m", "jbrl", *shlex.split(command), folder=folder)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("write-your-own-environment.md", marks=pytest.mark.slow),
        "write-your-own-agent.md",
    ],
)
def test_programs_of_the_page_run(name: str, folder: Path) -> None:
    programs = [text for text in blocks(name, "python") if text.startswith("import")]
    assert programs
    for program in programs:
        assert run("-c", program, folder=folder)
