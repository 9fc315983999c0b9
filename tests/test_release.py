"""Files that other services read, which nothing here runs: their commands, paths, names and
versions are those of this repository.
"""

import fnmatch
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import jbrl

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
# permissions that an action needs, besides those to read
NEEDS = {
    "actions/attest-build-provenance": {"id-token", "attestations"},
    "pypa/gh-action-pypi-publish": {"id-token"},
}
SHELL = {"test"}


def parsed(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def is_known(line: str) -> bool:
    """Return whether a command is of the shell, a script of this repository, or a Make target."""
    first, *rest = shlex.split(line)
    if first == "make":
        return {word for word in rest if "=" not in word and word[0] != "-"} <= TARGETS
    script = ROOT / first
    return first in SHELL or (script.is_file() and script.stat().st_mode & 0o111 != 0)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_is_here_with_few_permissions(path):
    workflow = parsed(path)
    assert set(workflow) == {"name", True, "permissions", "jobs"} | set(workflow) & {"concurrency"}
    assert workflow["permissions"] == {"contents": "read"}  # `True` is `on`, to YAML 1.1
    for job in workflow["jobs"].values():
        granted = {name for name, right in job.get("permissions", {}).items() if right == "write"}
        needed = set()
        for step in job["steps"]:
            assert len({"run", "uses"} & set(step)) == 1
            if "run" in step:
                assert is_known(step["run"]), step["run"]
            else:
                action, version = step["uses"].split("@")
                assert re.fullmatch(r"v\d+|release/v\d+", version)
                needed |= NEEDS.get(action, set())
        assert granted == needed
        assert job.get("needs") in {None, *workflow["jobs"]}


def test_a_command_that_is_not_here_is_found():
    assert is_known("make test JOBS=2") and is_known(".ci/run") and is_known("test a = a")
    assert not is_known("make tset") and not is_known(".ci/ran") and not is_known("README.md")


def test_workflow_and_make_use_the_wheel_with_the_same_versions_of_python():
    matrix = parsed(ROOT / ".github/workflows/checks.yml")["jobs"]["wheel"]["strategy"]["matrix"]
    (loop,) = re.findall(r"for version in ([\d. ]+);", (ROOT / "Makefile").read_text())
    assert matrix["python"] == loop.split() and matrix["versions"] == ["oldest", "newest"]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"


def test_the_wheel_is_used_with_each_extra_that_is_not_for_development():
    extras = set(PROJECT["optional-dependencies"])
    (used,) = re.findall(r"\$wheel\[([\w,]+)\]", (ROOT / ".ci/wheel").read_text("utf-8"))
    assert set(used.split(",")) == extras - {"test", "lint", "docs", "dev"}
    rows = (ROOT / "docs/installation.md").read_text("utf-8").split("\n| `")[1:]
    assert {one for row in rows for one in re.findall(r"\w+", row.split("|")[0])} == extras


def test_each_requirement_has_a_version_that_continuous_integration_uses():
    required = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    names = {re.match(r"[\w-]+", one)[0].lower().replace("_", "-") for one in required} - {"jbrl"}
    pins = re.findall(r"(?m)^([\w-]+)==", (ROOT / "constraints.txt").read_text("utf-8"))
    assert names <= {pin.lower().replace("_", "-") for pin in pins}


def test_the_container_copies_and_makes_what_is_here():
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (\S+) \S+$", text, re.MULTILINE)
    assert copied == ["."] and text.count("COPY") == 1
    left_out = (ROOT / ".dockerignore").read_text().split()
    read = ["Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "jbrl"]
    for name in [*read, "experiments/published", "experiments/quick.toml"]:
        assert (ROOT / name).exists()
        assert not any(fnmatch.fnmatch(part, rule) for part in name.split("/") for rule in left_out)
    assert re.findall(r"make \.venv/\.has-(\w+)", text) == ["core"]
    assert set(re.findall(r'\["make", "([\w-]+)"\]|jbrl make ([\w-]+)', text)) == {
        ("study", ""),
        ("", "test"),
    }
    assert {"study", "test"} <= TARGETS
    assert '--build-arg "JAX=jax[' in text  # zsh takes brackets for a pattern


def test_the_hosted_documentation_is_built_from_here():
    settings = parsed(ROOT / ".readthedocs.yaml")
    assert (ROOT / settings["sphinx"]["configuration"]).is_file()
    (install,) = settings["python"]["install"]
    assert set(install["extra_requirements"]) <= set(PROJECT["optional-dependencies"])


def test_hooks_are_tools_that_the_extra_installs():
    (local,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0] for hook in local["hooks"]}
    known = {f".venv/bin/{name}" for name in PROJECT["optional-dependencies"]["lint"]}
    assert tools <= known | {".venv/bin/lint-imports"}


@pytest.mark.parametrize("name", ["addition", "problem"])
def test_a_form_for_issues_asks_for_what_is_needed(name):
    form = parsed(ROOT / f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(form)
    for part in form["body"]:
        assert part["type"] in {"input", "textarea"} and part["attributes"]["label"]
        assert part["validations"]["required"] is True


def test_the_badges_say_what_the_matrix_shows_to_work():
    picture = (ROOT / "docs/_static/badges.svg").read_text("utf-8")
    texts = re.findall(r"<text .*>(.+)</text>", picture)
    table = (ROOT / "benchmarks/results/matrix.md").read_text("utf-8")
    works = re.findall(r"(?m)^\| (3\.\d+)\.\S+ \| \w+ \| (\d+\.\d+)\..* yes \|$", table)
    shown = [f"{min(one, key=number)}–{max(one, key=number)}" for one in zip(*works, strict=True)]
    assert texts == ["Python", shown[0], "jax", shown[1], "licence", PROJECT["license"]]
    named = {f"Programming Language :: Python :: {python}" for python, _ in works}
    assert named == {one for one in PROJECT["classifiers"] if ":: Python ::" in one}
    python, jax = (value.partition("–")[0] for value in shown)
    assert PROJECT["requires-python"] == f">={python}"
    assert f"\njax=={jax}." in (ROOT / "constraints.txt").read_text("utf-8")
    assert any(one.startswith(f"jax>={jax}.") for one in PROJECT["dependencies"])
    words = "Python {1}, jax {3}, {5}".format(*texts)
    assert f"<title>{words}</title>" in picture
    assert f"\n[![{words}](docs/_static/badges.svg)]" in (ROOT / "README.md").read_text("utf-8")


def test_the_page_on_security_names_all_that_is_unpickled():
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    unpickles, files = re.compile(r"pickle\.load|import submitit"), (ROOT / "jbrl").rglob("*.py")
    found = {path.name for path in files if unpickles.search(path.read_text("utf-8"))}
    assert found == {"executables.py", "slurm.py"}
    assert "the compile cache" in page and "submitit" in page


def test_the_version_is_the_same_everywhere():
    citation = parsed(ROOT / "CITATION.cff")
    assert str(citation["version"]) == jbrl.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", changes, re.MULTILINE)[0] == jbrl.__version__
    assert citation["license"] == PROJECT["license"]
    assert "url" not in citation and "date-released" not in citation
