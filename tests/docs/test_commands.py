"""Every command of the documentation is known, and those that are cheap run.

`jbrl` commands, in blocks and in sentences, are compared with the commands and options that exist;
scripts, Make targets and files that are named have to exist. Each command in a block is of one of
three kinds: it runs, it runs among the slow tests, or `LEFT_OUT` says why not. They run in one
folder with a small study in the places that the pages name.
"""

import re
import shutil

import pytest

from docs.tables import reference
from tests.docs.commands import ROOT, Command, found, problem_of
from tests.terminal import succeeds

COMMANDS = found()
SHOWN = [command for command in COMMANDS if command.shown]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
STUDY = """
[study]
name = "small"
n_environments = 12
horizon = 16
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
    r"jbrl (scores|returns|rank|status|strategies|report|show|list|cite|formulas|archive"
    r"|compare out/(new|paper-cells)|evaluate (scores|runs)\.csv|evaluate out/quick"
    r"|run (chain|experiments/(quick|episodes|paper-cpu))\.toml|subset predict"
    r"|bsuite score (all|experiments/published/bsuite/reference)\.parquet)"
)
# Commands that run among the slow tests.
SLOW = re.compile(
    r"jbrl (report out/(chain|quick --html --latex --markdown|quick --latex --markdown)$"
    r"|evaluate out/quick --html$|bsuite (score|report) experiments/published"
    r"|compare (out/paper-cpu|experiments/(published/(paper-c|jordan)|evaluation/resimulated))"
    r"|run experiments/(bsuite|complete|deep|jordan|paper-cells|price|sensitivity|suite|trained)"
    r"\S*\.toml(?! --out out/cells))"
)
# Commands that do not run here, and why: none of these is in `CHEAP` or `SLOW` as well.
LEFT_OUT = {
    r"bsuite .*\b(logs|out/random|out/bsuite-quick|out/bsuite-agents)\b": "needs logs of bsuite: "
    "tests/test_bsuite_cli.py",
    r"subset search settings\.csv": "needs the tables of such logs",
    r"subset search experiments/atari5": "minutes: tests/stats/subset/test_published.py",
    r"subset report": "a search for each of many resamples: tests/test_subset_cli.py",
    r"bound": "minutes: tests/bayes_optimal/test_bracket.py",
    r"choose": "minutes: tests/test_choose.py",
    r"(.*out/cells|run docs/examples|subset search experiments/suite|subset predict three|evaluate "
    r"experiments/evaluation/resimulated.parquet --quiet$)": "tests/docs/test_walks.py",
    r"sensitivity": "needs a study with drawn parameters: tests/test_subset_cli.py",
    r"compare out/jordan-cpu": "needs the results of hours: tests/test_jordan_study.py",
    r"evaluate (out/complete|experiments/evaluation.*--html)": "minutes: tests/test_evaluate.py",
    r"formulas F[46]": "minutes: tests/agents/opps/test_formulas.py",
    r"(doctor|policy)": "tests/test_cli.py",
    r"status .*--watch": "waits for the end of a study: tests/study/slurm/test_status.py",
    r"run experiments/paper\.toml": "needs a cluster: tests/slurm/test_slurm.py",
    r"run STUDY\.toml": "names no file",
    r".*corridor": "tests/docs/test_write_your_own.py",
    r".*(out/curious|curious_q)": "tests/docs/test_write_your_own.py",
}
EACH = list({c.text: c for c in SHOWN if c.text.startswith("jbrl")}.values())


def left_out(text: str) -> bool:
    """Return whether a command is one of `LEFT_OUT`."""
    return any(re.match(f"jbrl {kind}", text) for kind in LEFT_OUT)


RUN = [c for c in EACH if CHEAP.match(c.text) and not SLOW.match(c.text) and not left_out(c.text)]
RUN_SLOWLY = [c for c in EACH if SLOW.match(c.text)]


def call(*words: str) -> str:
    return succeeds(*words).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what commands of the pages name; the study is played once."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "study.toml").write_text(STUDY)
    (folder / "scores.csv").write_text(SCORES)
    (folder / "runs.csv").write_text(RUNS)
    (folder / "experiments").symlink_to(ROOT / "experiments")
    call("run", str(folder / "study.toml"), "--out", str(folder / "out/quick"), "--quiet")
    names = "chain", "deep-on-mdps", "new", "old", "paper", "paper-cpu", "trained"
    for name in (f"out/{name}" for name in names):
        shutil.copytree(folder / "out/quick", folder / name)
    shutil.copytree(folder / "out/quick", folder / "local")
    shutil.copytree(folder / "out/quick", folder / "out", dirs_exist_ok=True)
    page = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
    (folder / "chain.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    shutil.copy(ROOT / "experiments/published/bsuite/reference.parquet", folder / "all.parquet")
    shutil.copy(ROOT / "experiments/suite/scores.csv", folder / "mine.csv")
    options = ("--size", "1", "--target", "mean", "--criterion", "loo", "--nested", "0", "--quiet")
    model = str(folder / "atari5.json")
    call("subset", "search", str(folder / "mine.csv"), *options, "--save", model)
    return folder


def adapted(command: Command) -> list[str]:
    """Return the words of a command after `jbrl`, changed so that it is brief and finds files."""
    words = command.words[1:]
    if words[0] == "run":
        words[words.index("--out") + 1] = "new-folder"  # out/quick belongs to another study
        words += ["--dry-run", "--no-units", "--no-calibrate"]
    if words[0] == "rank":
        words += ["--resamples", "50"]
    if words[0] == "evaluate":
        words += ["--quiet"]  # notes take longer than all that is printed
    if words[0] == "compare":
        words = [re.sub("^out/(paper-c)", r"experiments/published/\1", word) for word in words]
        words += ["--out", "page"] if "--html" in words else []
    return words


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_command_is_known(command):
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
    [*RUN, *(pytest.param(command, marks=pytest.mark.slow) for command in RUN_SLOWLY)],
    ids=str,
)
def test_the_command_runs(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = adapted(command)
    printed = call(*words)
    if words[0] == "rank" and "--format" not in words:
        assert max(map(len, printed.splitlines())) <= 100


def test_the_reference_has_every_option_but_the_one_that_all_have():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert any("--devices" in row for row in rows) and not any("--help" in row for row in rows)


def test_each_command_runs_or_a_reason_is_given():
    for command in EACH:
        kinds = command in RUN, command in RUN_SLOWLY, left_out(command.text)
        assert kinds.count(True) == 1, command
        assert command.words[1] != "run" or "--out" in command.words
    for kind, reason in LEFT_OUT.items():
        assert any(re.match(f"jbrl {kind}", command.text) for command in EACH), kind
        assert all((ROOT / name).exists() for name in re.findall(r"tests/\S+", reason)), reason


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnak", "out"], "jbrl has no command 'rnak'"),
        (["scores", "out", "--formt", "csv"], "jbrl scores has no option --formt"),
        (["subset", "search", "x.csv", "--sise", "3"], "jbrl subset search has no option --sise"),
        (["run", "s.toml", "--no-stack", "--out", "out"], None),
    ],
)
def test_a_mistake_on_a_page_is_found(words, message):
    assert problem_of(words) == message
