"""The command line, and the same from Python."""

import csv
import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import jbrl
from docs.tables import parameter_table, reference
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import bytes_text
from jbrl.cli.app import _cache, _notes, app
from jbrl.cli.output import duration
from jbrl.cli.progress import Display
from jbrl.environments.environment import ENVIRONMENTS
from jbrl.play import compile_cache
from jbrl.problems.json_format import read_json
from jbrl.problems.lookup import problem
from jbrl.problems.problem import DERIVED, PROBLEMS
from jbrl.results import _worst
from jbrl.study import selftest, stopping
from jbrl.study.plan import plan
from tests import kept
from tests.study.storage.test_store import HEADER, opened, returns_of
from tests.study.storage.test_store import study as small
from tests.terminal import call, entries, output_of, refused, rows, succeeds

STUDY = """
[study]
name = "tiny"
n_environments = 6
horizon = 16
seed = [0, 1]

[[experiments]]
name = "GC"
prior = "GC"
test = "GC"

[[experiments]]
name = "GC-inaccurate"
prior = "UGC"
test = "GC"

[[agents]]
algorithm = "Random"

[[agents]]
algorithm = "e-Greedy"
epsilon = [0, 0.5]
experiments = ["GC"]
"""
COLUMNS = (
    "experiment,prior,test,algorithm,parameters,n,mean,std,ci95,"
    "offline_seconds,online_seconds,latency_seconds,latency_p99_seconds,compile_seconds,"
    "offline_seconds_spread,online_seconds_spread,"
    "offline_processor_seconds,online_processor_seconds,device,seed,status"
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def out(study: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of all units but those of Random in GC-inaccurate with seed 1."""
    folder = tmp_path_factory.mktemp("out")
    result = succeeds("run", study, "--out", folder, "--only", "GC/|seed 0")
    lines = result.stderr.splitlines()
    assert lines[0].startswith("7 units: about ")
    assert lines[1].startswith("[1/7] GC/Random seed 0: mean ")
    assert re.fullmatch(
        r"7 units done in .* \(\d.* estimated\), .*iB of memory at most "
        r"\(1 more unit belongs to this study\)",
        lines[8],
    )
    assert lines[9] == f"See 'jbrl scores {folder}' and 'jbrl report {folder}'."
    return folder


def test_scores_have_exactly_these_columns_and_a_row_for_each_unit(out):
    table = rows("scores", out)
    assert ",".join(table[0]) == COLUMNS
    names = ("experiment", "prior", "algorithm", "parameters", "seed", "status")
    greedy = [(json.dumps({"epsilon": e}), seed) for e in (0.0, 0.5) for seed in "01"]
    assert [tuple(row[name] for name in names) for row in table] == [
        *[("GC", "GC", "Random", "{}", seed, "done") for seed in "01"],
        *[("GC", "GC", "e-Greedy", parameters, seed, "done") for parameters, seed in greedy],
        ("GC-inaccurate", "UGC", "Random", "{}", "0", "done"),
        ("GC-inaccurate", "UGC", "Random", "{}", "1", "missing"),
    ]
    for row in table[:-1]:
        assert float(row["online_seconds"]) > 0
        assert (row["n"], row["latency_seconds"]) == ("6", "")
    last = table[-1]
    assert (last["n"], last["mean"], last["online_seconds"]) == ("0", "", "")


def test_scores_are_the_statistics_of_the_returns(out):
    returns = rows("returns", out)
    assert list(returns[0]) == ["experiment", "algorithm", "parameters", "unit", "seed", "score"]
    assert len(returns) == 7 * 6
    # all digits are kept
    assert [row["score"] for row in returns] == [
        repr(float(score)) for score in jbrl.Results(out).returns["score"]
    ]
    for row in rows("scores", out)[:-1]:
        keys = ("experiment", "algorithm", "parameters", "seed")
        mine = np.array([float(r["score"]) for r in returns if all(r[k] == row[k] for k in keys)])
        std = np.sqrt(((mine - mine.mean()) ** 2).sum() / 5)
        np.testing.assert_allclose(
            [float(row[k]) for k in ("mean", "std", "ci95")],
            [mine.mean(), std, 2.570581835636314 * std / np.sqrt(6)],
            rtol=1e-12,
        )


def test_a_policy_is_taken_from_a_study(out, tmp_path, monkeypatch):
    unit = r"GC/e-Greedy\(epsilon=0.5\) seed 1"
    result = call("policy", out, unit, "--to", tmp_path / "policy")
    assert result.exit_code == 0 and "e-Greedy for GC; learned again from seed 1" in result.stdout
    assert "another version" not in result.stderr
    assert jbrl.load_policy(tmp_path / "policy").seed == 1
    again = call("policy", out, "[", "--to", tmp_path / "policy")  # said before all else
    refused(again, "policy: exists: expected the name of a new")
    refused(call("policy", out, "["), "error: unit '[': not a regular")
    refused(call("policy", out, "seed 1"), "expected one of them")
    monkeypatch.setattr(jbrl.agents.EpsilonGreedy, "version", 99)
    result = call("policy", out, unit, "--to", tmp_path / "newer")
    assert result.exit_code == 0
    assert "played there by another version of its agent or problem" in result.stderr


def test_other_formats_hold_the_same(out):
    scores = jbrl.Results(out).scores
    records = entries("scores", out)
    assert list(records[0]) == COLUMNS.split(",")
    assert [row["mean"] for row in records[:-1]] == list(scores["mean"])[:-1]
    assert records[-1]["mean"] is None
    markdown = call("scores", out, "--format", "md").stdout.splitlines()
    assert markdown[0] == "| " + COLUMNS.replace(",", " | ") + " |"
    assert len(markdown) == 2 + len(scores)
    table = call("scores", out).stdout.splitlines()
    columns = ["experiment", "prior", "test", "algorithm", "parameters", "n", "mean", "ci95"]
    assert table[0].split() == [*columns, "offline", "online", "seed", "status"]
    assert any("ε = 0.5" in line for line in table) and max(map(len, table)) <= 100


def test_a_report_takes_seeds_together(out):
    results = jbrl.Results(out)
    scores, sections = results.scores, results.sections()
    own = [scores[scores["experiment"] == section.name] for section in sections]
    assert [len(one) for one in own] == [6, 2]
    for section, units in zip(sections, own, strict=True):
        for row in section.table.to_dict("records"):
            two = units[units["parameters"] == row["parameters"]]
            two = two[two["algorithm"] == row["algorithm"]]
            assert row["n"] == two["n"].sum() and row["mean"] == pytest.approx(two["mean"].mean())
            for name in ("online_seconds", "online_processor_seconds", "online_seconds_spread"):
                assert row[name] == pytest.approx(two[name].mean())
            assert row["device"] == two["device"].iloc[0]
    assert [list(section.table["status"]) for section in sections] == [["done"] * 3, ["missing"]]
    assert _worst(pd.Series(["done", "missing", "failed"])) == "failed"


def test_scores_as_any_table_have_a_row_for_each_lifetime(out):
    results = jbrl.Results(out)
    table = results.score_table(trials=True)
    assert list(table) == ["algorithm", "environment", "score", "unit", "seed"]
    for name in ("score", "unit", "seed"):
        np.testing.assert_array_equal(table[name], results.returns[name])
    assert set(table["algorithm"]) == {"Random", "e-Greedy(ε = 0)", "e-Greedy(ε = 0.5)"}


def test_report_writes_the_forms_asked_for(out, tmp_path):
    result = call("report", out)
    assert result.exit_code == 0 and result.stdout.strip() == str(out / "report" / "index.html")
    page = (out / "report" / "index.html").read_text()
    assert "GC-inaccurate" in page and "e-Greedy" in page
    store, units = opened(tmp_path / "results", small(agents=[{"algorithm": "Random"}]))
    store.save(units[0], HEADER, returns_of(units[0]))
    result = call("report", store.folder, "--out", tmp_path, "--latex", "--markdown")
    expected = [tmp_path / "latex/report.tex", tmp_path / "markdown/report.md"]
    assert result.stdout.split() == [str(path) for path in expected]
    assert not (tmp_path / "index.html").exists()


def test_rank_compares_agents_and_leaves_out_what_stands_alone(out):
    options = ("rank", out, "--resamples", 50)
    result = call(*options, "--all", "--format", "csv")
    assert "note: 1 units of the study have no scores" in result.stderr
    assert "note: experiment GC-inaccurate is left out: Random {} stands alone" in result.stderr
    table = rows(*options, "--all")
    assert list(csv.DictReader(io.StringIO(result.stdout))) == table  # same seed, same bytes
    assert [(row["experiment"], row["n"], row["rank"]) for row in table] == [
        ("GC", "12", rank) for rank in "123"
    ]
    assert float(table[0]["mean"]) > float(table[2]["mean"])
    words = call(*options, "--all").stdout
    assert "ε = 0.5" in words and "{" not in words
    assert len(rows(*options, "--experiment", "GC", "--table", "pairs")) == 1
    [order] = rows(*options, "--table", "orders")
    assert (order["agents"], order["n"], order["resamples"]) == ("2", "12", "50")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--experiment", "GD"], "--experiment: unknown experiment 'GD'; did you mean 'GC'?"),
        (["--experiment", "GC-inaccurate"], "stands alone: expected two agents or more; '--all'"),
        (["--level", "2"], "level = 2.0: expected a number between 0 and 1"),
    ],
)
def test_rank_says_what_it_cannot_compare(out, options, words):
    result = call("rank", out, *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_dry_run_lists_the_units_and_writes_nothing(study, out, tmp_path):
    elsewhere = ("run", study, "--out", tmp_path / "none", "--dry-run")
    result = call(*elsewhere)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert [line.startswith("GC") for line in lines] == [True] * 8 + [False] * 7
    assert lines[0].startswith("GC/Random seed 0: about ")
    assert lines[8] == "" and lines[9].split() == ["algorithm", "units", "time", "memory"]
    units = [line.split()[:2] for line in lines[10:13]]
    assert units == [["Random", "4"], ["e-Greedy", "4"], ["all", "8"]]
    memory = (
        r"memory: of the arrays that one unit needs, up to \S+ [KM]iB, and about \d+ MiB of the "
        r"process with what it compiles; this machine has .* GiB"
    )
    assert re.fullmatch(memory, lines[13])
    planned = plan(study, tmp_path / "none")
    sizes = {one.bytes for one in planned.estimates.values()}
    most, time = bytes_text(max(sizes)), duration(sum(planned.expected_seconds.values()))
    assert lines[12].split() == ["all", "8", *time.split(), *most.split()] and len(sizes) > 1
    assert f"up to {most}, and " in lines[13] and lines[14].startswith(f"8 units, about {time}")
    assert re.fullmatch(r"8 units, about \d.*s, by a rough rule: --calibrate measures", lines[14])
    assert call(*elsewhere, "--no-units").stdout.splitlines() == lines[9:]
    assert "; 1 KiB may be used (--memory): a unit" in call(*elsewhere, "--memory", "1KiB").stdout
    assert not (tmp_path / "none").exists()
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*")}
    here = ("run", study, "--out", out, "--dry-run")
    lines = call(*here).stdout.splitlines()
    assert [line.endswith(": done") for line in lines[:8]] == [True] * 7 + [False]
    assert re.fullmatch(
        r"8 units, about .* \(7 done already\), by a rough rule: --calibrate measures", lines[-1]
    )
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*")} == before
    options = ("--shard", "2/3", "--only", "Random", "--devices", "1", "--memory", "3GiB")
    lines = call(*here, *options).stdout.splitlines()
    assert lines[0] == "GC/Random seed 1: done" and lines[-1].startswith("1 unit, about ")


def test_a_cap_that_decides_the_cost_is_said_before_the_run(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        '[study]\nname = "x"\nn_environments = 2\nhorizon = 2\n'
        '[[experiments]]\nname = "UGC"\ntest = "UGC"\n'
        '[[agents]]\nalgorithm = "SBOSS"\nepsilon = [1e-6, 1e-5, 0.01]\n'
    )
    words = "run", study, "--out", tmp_path / "out", "--dry-run"
    note = (
        "note: UGC/SBOSS(epsilon=1e-06) seed 0: max_samples decides "
        "how many samples of a pair of state and action are drawn, 1,024; epsilon asks for up to "
        "26,667\n"
    )
    assert call(*words, "--only", "epsilon=1e-06").stderr == note
    assert call(*words).stderr == note.replace("\n", " (2 units of SBOSS are alike)\n")
    assert call(*words, "--quiet").stderr == ""
    assert call(*words, "--only", "epsilon=0.01").stderr == ""


def test_settings_are_replaced_and_quiet_says_nothing(study, tmp_path):
    changes = ("--set", "study.n_environments=3", "--set", "study.seed=5")
    result = call("run", study, "--out", tmp_path, "--only", "GC/Random", "--quiet", *changes)
    assert (result.exit_code, result.output) == (0, "")
    assert list(jbrl.Results(tmp_path).returns["seed"]) == [5, 5, 5]


def test_an_interrupt_is_told_how_to_go_on(study, out, tmp_path, monkeypatch):
    def interrupt(display: Display, unit: object, n: int, seconds: float, decisions: int) -> None:
        if n == 4:
            said.append(stopping._keepers[0])
            raise KeyboardInterrupt

    said: list[Any] = []  # where the process ends within a compiled call
    command = ["run", study, "--out", tmp_path, "--only", "GC/e-Greedy.*seed 0"]
    command += ["--set", "study.chunk=2"]
    with monkeypatch.context() as patched:
        patched.setattr(Display, "advanced", interrupt)
        result = call(*command)
    assert result.exit_code == 130
    kept = f"what is done is kept in {tmp_path}; the same command continues from there"
    assert f"interrupted: {kept}" in result.stderr
    assert [(keep(), text) for keep, text in said] == [(True, kept)]
    assert call(*command).exit_code == 0
    whole = jbrl.Results(out).returns.query("algorithm == 'e-Greedy' and seed == 0")
    assert jbrl.Results(tmp_path).returns.equals(whole.reset_index(drop=True))


def test_formulas_in_all_layouts():
    formulas = rows("formulas", "F3")
    assert [row["rank"] for row in formulas] == [str(i) for i in range(1, 44)]
    [ratio] = [row for row in formulas if row["text"] == "Q0/Q2"]
    assert (ratio["rpn"], ratio["size"], ratio["variables"]) == ("Q0 Q2 /", "3", "Q0 Q2")
    assert "latex" in ratio and "latex" not in call("formulas", "F3").stdout.splitlines()[0]
    assert "paper: 1210, its program: 1204 to 1217" in call("formulas", "F5").stderr


def test_strategies_of_a_study_without_searches(out):
    result = call("strategies", out, "--format", "csv")
    assert result.exit_code == 0 and "no agent of this study has searched" in result.stderr
    assert result.stdout.startswith("prior,algorithm,parameters,seed,strategy,pulls,mean,")


def test_lists_hold_everything_that_is_registered(monkeypatch):
    own = {  # not other tests'
        name: entry
        for name, entry in ENVIRONMENTS.items()
        if entry.environment.__module__.startswith("jbrl.")
    }
    agents_here = {n: e for n, e in AGENTS.items() if e.agent.__module__.startswith("jbrl.")}
    monkeypatch.setattr("jbrl.environments.environment.ENVIRONMENTS", own)
    monkeypatch.setattr("jbrl.agents.registry.AGENTS", agents_here)
    kinds = ("agents", "problems", "environments")
    agents, problems, environments = (call("list", kind).stdout for kind in kinds)
    assert all(name in agents for name in agents_here)
    defaults = {kind: call("list", kind, "--format", "json").stdout for kind in kinds[::2]}
    kept.compare("jbrl list", dict(zip(kinds, (agents, problems, environments), strict=True)))
    kept.compare("jbrl list --format json", defaults)
    kept.compare("jbrl show", {name: call("show", name).stdout for name in agents_here})
    for name in (*PROBLEMS, *own, *(f"{name}(PROBLEM)" for name in DERIVED)):
        assert f"\n{name} " in problems
    assert max(map(len, problems.splitlines())) <= 100
    assert "…" not in problems and "=," not in problems
    assert all(f"\n{name} " in environments for name in own)
    # a heading, and a line for each
    assert len(agents.splitlines()) == 1 + len(agents_here)
    assert len(environments.splitlines()) == 1 + len(own)
    listed = json.loads(defaults["environments"])
    for row, name in zip(listed, sorted(own, key=str.casefold), strict=True):
        assert row["name"] == name
        fields = dataclasses.fields(own[name].environment)
        assert set(row["parameters"]) == {f.name for f in fields if f.default is not None}


def test_commands_are_completed():
    words = {"_JBRL_COMPLETE": "complete_bash", "COMP_WORDS": "jbrl sco", "COMP_CWORD": "1"}
    found = call(env=words, prog_name="jbrl")
    assert found.stdout.split() == ["scores"]


def test_parameters_are_a_table_in_markdown():
    lines = parameter_table(AGENTS["e-Greedy"].agent).splitlines()
    assert lines[0] == "| Parameter | Default | Accepted | Meaning |"
    assert any(
        line.startswith("| `epsilon` | `0.0` | a number from 0 up to 1 | ") for line in lines
    )


@pytest.mark.parametrize(
    "command",
    [
        *("show GC", "show UGDL", "show Grid", "show GC --json", "show DeepSea(size=5)"),
        *("show Pinball", "show Acrobot", "show bsuite/catch_noise/7", "show ImageBandit"),
        *("formulas F2", "formulas F3 --format latex", "formulas F2 --format md --domain values"),
        *("cite", "cite e-Greedy GC Grid", "cite BAMCP DQN DeepSea(size=4) MountainCar"),
    ],
)
def test_what_is_in_the_catalogue_is_the_kept_text(command):
    done = call(*command.split())
    kept.compare(f"jbrl {command}", {"out": done.stdout, "err": done.stderr})


@pytest.mark.parametrize("name", ["GC", "UGDL", "Grid"])
def test_show_prints_a_file_that_is_the_same_problem(name, tmp_path):
    path = tmp_path / "copy.json"
    path.write_text(call("show", name, "--json").stdout)
    assert read_json(path).digest == problem(name).digest


def test_everything_can_be_cited():
    agents = [n for n, entry in AGENTS.items() if entry.agent.__module__.startswith("jbrl.")]
    everything = call("cite", *agents, *PROBLEMS)
    assert everything.exit_code == 0, everything.output
    text = (resources.files("jbrl") / "references.bib").read_text()
    assert text.count("{") == text.count("}")
    keys = re.findall(r"^@\w+\{([^,\s]+),", text, re.MULTILINE)
    assert len(keys) == len(set(keys)) == len(re.findall(r"^@", text, re.MULTILINE))


@pytest.mark.slow
def test_the_doctor_says_what_there_is_and_passes_its_own_test():
    result = call("doctor")
    assert result.exit_code == 0, result.output
    facts, table = result.stdout.split("\n\n")
    names = [line.split()[0] for line in facts.splitlines()]
    assert names[:4] == ["jbrl", "python", "jax", "jaxlib"]
    assert {"cores", "free_gib", "devices", "compiled"} <= set(names)
    _, *checks, last = table.splitlines()
    assert len(checks) == len(selftest.CHECKS) and all(" pass " in row for row in checks)
    assert last.startswith(f"{len(checks)} of {len(checks)} checks passed in ")


def test_the_doctor_tells_of_what_fails(monkeypatch):
    def broken() -> selftest.Found:
        raise ArithmeticError("two and two\nare five")

    wrong = partial(selftest.score, "Random", {}, 250, mean=35.0, spread=10.0)
    monkeypatch.setattr(selftest, "CHECKS", {"sum": broken, "score": wrong, "file": selftest.file})
    result = call("doctor")
    assert result.exit_code == 1
    last = result.stdout.splitlines()[-4:]
    assert re.fullmatch(r"sum +FAIL +ArithmeticError: two and two +no error +\d.*", last[0])
    assert re.fullmatch(r"score +FAIL +3\d\.\d+ +35 ± 2 .*", last[1])
    assert " pass " in last[2] and last[3].startswith("1 of 3 checks passed")
    assert "self-test: sum, score: not what is expected" in result.stderr


def test_the_doctor_looks_after_compiled_programs(tmp_path, monkeypatch):
    # for the whole process: other tests compile in it
    monkeypatch.setattr(compile_cache, "use", lambda where: None)
    folder = compile_cache.folder(tmp_path)
    folder.mkdir(mode=0o700)
    (folder / "jit_a-1-cache").write_bytes(b"x\x9chalf")
    shown = call("doctor", "--no-test", "--compile-cache", tmp_path)
    assert shown.exit_code == 0 and "check" not in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if line.startswith("compiled"))
    assert re.search(r"^free_gib +\d+\.\d$", shown.stdout, re.MULTILINE)
    assert line.startswith(f"compiled     kept: 1 programs, 0.0 MB in {tmp_path}; 1 damaged")
    state, place = compile_cache.state, compile_cache.place
    monkeypatch.setattr(compile_cache, "state", lambda where: state(tmp_path))
    monkeypatch.setattr(compile_cache, "place", lambda where: place(tmp_path))
    assert _cache(None).startswith("not kept (see --compile-cache); left from before: 1 programs")
    cleared = call("doctor", "--clear-cache", "--compile-cache", tmp_path).stdout
    assert cleared == f"{tmp_path}: 0.0 MB removed\n"
    assert not folder.exists() and tmp_path.exists()
    assert _cache(None) == "not kept (see --compile-cache)"


def test_the_doctor_knows_what_is_slow_or_wrong():
    assert [note.split()[2] for note in _notes("0.10.2", "gpu", 1)] == ["compiles", "crashes"]
    assert [note.split()[2] for note in _notes("0.10.2", "cpu", 10**6)] == ["crashes", "hangs"]
    assert "0.11.1" in _notes("0.11.0.dev1", "cuda", 1)[0]
    assert _notes("0.11.1", "gpu", 1) == _notes("0.11.2", "cpu", 10**6) == []
    assert "JAX uses 0 of" in _notes("0.11.2", "cpu", 0)[0]


def test_the_module_is_the_command():
    assert output_of(sys.executable, "-m", "jbrl", "--version") == f"jbrl {jbrl.__version__}\n"


@pytest.mark.parametrize(
    ("before", "options", "target", "reason"),
    [
        ("", "-m", "/dev/full", "No space left on device"),
        ("ulimit -f 1 && ", "-uBm", "agents", "File too large"),  # Python does not buffer
    ],
)
def test_an_output_that_cannot_be_written_is_said_in_one_sentence(
    before, options, target, reason, tmp_path
):
    command = ["bash", "-c", f'{before}exec "$0" {options} jbrl list agents', sys.executable]
    with (tmp_path / target).open("w") as cut:
        done = subprocess.run(command, stdout=cut, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"error: the output cannot be written: {reason}\n"


def test_help_and_tables_do_not_wait_for_jax(out):
    program = f"""
import sys
from functools import partial
from jbrl.cli.app import app
for command in (["--help"], ["scores", {str(out)!r}], ["returns", {str(out)!r}]):
    app(command, standalone_mode=False)
assert "jax" not in sys.modules
"""
    output_of(sys.executable, "-c", program)


def test_the_same_from_python(out, tmp_path):
    tables = {
        "study": {"name": "tiny", "n_environments": 6, "horizon": 16},
        "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
        "agents": [{"algorithm": "Random"}],
    }
    results = jbrl.run(tables, tmp_path)
    assert results.returns.equals(jbrl.Results(out).returns[:6])
    assert ",".join(results.scores.columns) == COLUMNS
    assert "1 done" in repr(results)
    played = jbrl.play(AGENTS["Random"].agent(), prior="GC", n_environments=6, horizon=16)
    np.testing.assert_array_equal(played.returns, results.returns["score"])


def test_all_public_names_are_there():
    for name in jbrl.__all__:
        assert getattr(jbrl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = jbrl.nothing


def commands(command: Any, *path: str) -> Iterator[list[str]]:
    """Yield the words of each command and each group of commands."""
    yield list(path)
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *path, name)


@pytest.mark.parametrize("words", list(commands(get_command(app))), ids=" ".join)
def test_help_names_no_types_and_explains_every_option(words):
    text = call(*words, "--help", env={"COLUMNS": "100"}).stdout
    kept.compare(f"jbrl {' '.join(words)} --help", {"out": text})
    assert "--help" in text
    assert not re.search(r"<(int|float|str|bool|path|file|dir|list|tuple)|\[x", text)
    section = reference().split(f"## `{' '.join(['jbrl', *words])}`\n")[1].split("\n## ")[0]
    for option, meaning, _ in re.findall(r"^\| `(.*)` \| (.*) \| (.*) \|$", section, re.MULTILINE):
        assert meaning, option
        assert not option.startswith("-") or re.split("[ ,]", option)[0] in text
    for other, option in re.findall(r"'jbrl ([a-z]+) (--[a-z-]+)'", section):
        assert re.search(rf"{option}\b(?!-)", call(other, "--help").stdout), option
