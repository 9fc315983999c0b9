"""Every command of the documentation is known, and those that are cheap run.

`jbrl` commands, in blocks and in sentences, are compared with the commands and options that exist;
scripts, Make targets and files that are named have to exist. Commands of `CHEAP` run, in one folder
with a small study in the places that the pages name.
"""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jbrl.cli.app import app
from tests.docs.commands import ROOT, Command, found, problem_of

COMMANDS = found()
SHOWN = [command for command in COMMANDS if command.shown]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
STUDY = """
[study]
name = "small"
n_environments = 12
horizon = 12
[[experiments]]
name = "GC"
problem = "GC"
[[experiments]]
name = "GC-inaccurate"
prior = "UGC"
problem = "GC"
[[agents]]
algorithm = "Random"
[[agents]]
algorithm = "Q-learning"
alpha = [0.1, 0.5]
"""
SCORES = "algorithm,environment,score\n" + "".join(
    f"{algorithm},{environment},{trial + level}\n"
    for level, algorithm in enumerate("ABC")
    for environment in ("x", "y")
    for trial in range(8)
)
RUNS = SCORES.replace("algorithm,environment,score", "agent,task,return")
# Commands that run here: those about results, tables and the catalogue; studies with --dry-run.
CHEAP = re.compile(
    r"jbrl (scores|returns|rank|status|strategies|report|show|list|cite|formulas|compare out/new"
    r"|evaluate (scores|runs)\.csv|evaluate out/quick|run experiments/(quick|episodes|paper-cpu))"
)
COSTLY = re.compile(
    r"--watch|corridor|out/curious|out/paper-cpu --to|F4|F6|quick --latex|local|study\.seed"
)
# Commands of the same kind as one that is quick.
SLOW = re.compile(
    r"jbrl (report out/(chain|quick --html --latex --markdown)|evaluate out/quick --html)$"
)
RUN = list({c.text: c for c in SHOWN if CHEAP.match(c.text) and not COSTLY.search(c.text)}.values())


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, f"{words}: {result.output}"
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what commands of the pages name; the study is played once."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "study.toml").write_text(STUDY)
    (folder / "scores.csv").write_text(SCORES)
    (folder / "runs.csv").write_text(RUNS)
    (folder / "experiments").symlink_to(ROOT / "experiments")
    call("run", str(folder / "study.toml"), "--out", str(folder / "out/quick"), "--quiet")
    for name in ("chain", "paper", "new", "old", "trained"):
        shutil.copytree(folder / "out/quick", folder / "out" / name)
    shutil.copytree(folder / "out/quick", folder / "out", dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_command_is_known(command: Command) -> None:
    if command.text.startswith("jbrl"):
        try:
            words = command.words
        except ValueError:  # a sentence shows a part of a command
            pytest.fail(f"{command}: not a command line")
        names = words[1].split("|") if len(words) > 1 else [""]
        for name in names:
            assert problem_of([name, *words[2:]] if name else []) is None
        for word in words[2:]:
            if word.startswith("experiments/"):
                assert (ROOT / word).exists()
    elif command.text.startswith("make"):
        assert {word for word in command.words[1:] if "=" not in word} <= TARGETS
    elif match := re.search(r"python3? (\S+\.py)", command.text):
        assert (ROOT / match[1]).is_file()


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow) if SLOW.match(c.text) else c for c in RUN],
    ids=str,
)
def test_the_command_runs(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    words = command.words[1:]
    if words[0] == "run":
        words[words.index("--out") + 1] = "new-folder"  # out/quick belongs to another study
        words += ["--dry-run", "--no-units", "--no-calibrate"]
    if words[0] == "rank":
        words += ["--resamples", "50"]
    if words[0] == "evaluate":
        words += ["--quiet"]  # notes take longer than all that is printed
    printed = call(*words)
    if words[0] == "rank" and "--format" not in words:
        assert max(map(len, printed.splitlines())) <= 100


def test_most_kinds_of_commands_run() -> None:
    ran = {command.words[1] for command in RUN}
    assert ran >= {"scores", "returns", "rank", "strategies", "report", "show", "status", "run"}
    assert ran >= {"evaluate", "formulas", "compare"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnak", "out"], "jbrl has no command 'rnak'"),
        (["scores", "out", "--formt", "csv"], "jbrl scores has no option --formt"),
        (["subset", "search", "x.csv", "--sise", "3"], "jbrl subset search has no option --sise"),
        (["run", "s.toml", "--no-stack", "--out", "out"], None),
    ],
)
def test_a_mistake_on_a_page_is_found(words: list[str], message: str | None) -> None:
    assert problem_of(words) == message
