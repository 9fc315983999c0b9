"""Build of the checkout: it can be installed and used away from it."""

import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.terminal import output_of

ROOT = Path(__file__).parents[1]
STUDY = """
[study]
name = "installed"
n_environments = 4
horizon = 8
[[experiments]]
name = "GC"
problem = "GC"
[[agents]]
algorithm = "Random"
"""


def build(source: Path, out: Path, kind: str) -> Path:
    output_of(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, cwd=source)
    (built,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, folder, "sdist")) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel that is built from the source distribution, not from the checkout."""
    return build(sdist, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A virtual environment with the wheel; its dependencies are those of this process."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    output_of(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / "bin" / "python"
    install = ("install", "--quiet", "--no-index", "--no-deps", wheel)
    output_of(sys.executable, "-m", "pip", "--python", python, *install, cwd=ROOT)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A path in a .pth file is not searched for .pth files: an editable jbrl there is not found.
    (packages / "dependencies.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
    return folder / "bin"


def test_the_source_distribution_holds_what_is_needed_to_work_on_it(sdist):
    for name in ("Makefile", "constraints.txt", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        assert (sdist / name).is_file()
    for name in ("tests/test_wheel.py", "docs/conf.py", "experiments/quick.toml"):
        assert (sdist / name).is_file()
    assert (sdist / "benchmarks/results/table.md").is_file()
    for name in ("Dockerfile", ".dockerignore", ".readthedocs.yaml", ".pre-commit-config.yaml"):
        assert (sdist / name).is_file()  # `tests/test_release.py` reads them
    for name in (".github/workflows/release.yml", ".github/ISSUE_TEMPLATE/problem.yml"):
        assert (sdist / name).is_file()
    assert (sdist / ".ci/wheel").stat().st_mode & 0o111  # `make matrix` runs it


def test_the_wheel_holds_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith("METADATA"))
        about = archive.read(metadata).decode()
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "jbrl").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= names
    assert "jbrl/published/croissant.json" in names
    assert {name.split("/")[0] for name in names} - {"jbrl"} == {metadata.split("/")[0]}
    assert "Project-URL: Paper, https://doi.org/10.1371/journal.pone.0157088" in about


@pytest.mark.slow
def test_the_installed_command_works_away_from_the_checkout(installed, tmp_path):
    where = "import jbrl; print(jbrl.__file__)"
    found = output_of(installed / "python", "-c", where, cwd=tmp_path)
    assert Path(found.strip()).is_relative_to(installed.parent)
    jbrl = installed / "jbrl"
    assert output_of(jbrl, "--version", cwd=tmp_path).startswith("jbrl ")
    assert "doi" in output_of(jbrl, "cite", "GC", cwd=tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    output_of(jbrl, "run", "study.toml", "--out", "out", "--quiet", cwd=tmp_path)
    assert "Random" in output_of(jbrl, "scores", "out", "--parameter-columns", cwd=tmp_path)
    output_of(jbrl, "report", "out", cwd=tmp_path)
    assert (tmp_path / "out/report/index.html").is_file()
