"""Submitting to SLURM, without one; `tests/slurm` does it with one."""

import contextlib
import math
import pickletools
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import Result

from jbrl.base.errors import JbrlError
from jbrl.cli.run import _meant, work
from jbrl.play import batching, compile_cache
from jbrl.study import slurm
from jbrl.study.plan import RunPlan, plan
from jbrl.study.slurm import (
    FILLED,
    LARGEST_ARRAY,
    ClusterTask,
    Job,
    Request,
    minutes,
    pack,
    prepare,
    requeue,
)
from jbrl.study.status import submitted_tasks
from jbrl.study.stopping import Stopped
from jbrl.study.storage.store import Store
from tests.slurm.cluster import STUDY
from tests.terminal import call, refused

SBATCH = """#!/bin/sh
n=$(cat {folder}/count 2>/dev/null || echo 40)
n=$((n + 1))
echo $n > {folder}/count
cp "$1" {folder}/$n.sh
echo "Submitted batch job $n"
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """An `sbatch` that keeps what it is given, and all else that there is of SLURM."""
    pytest.importorskip("submitit")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (
        ("sbatch", SBATCH.format(folder=folder)),
        ("srun", "#!/bin/sh\n"),
        ("squeue", "#!/bin/sh\n"),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def run(study: Path, *options: object) -> Result:
    return call("run", study, "--out", study.parent / "out", *options)


def submit(study: Path, *options: object) -> Result:
    return run(study, "--executor", "slurm", *options)


def says(program: Path, error: str) -> None:
    """Let a program complain and fail."""
    program.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")


def told(result: Result) -> list[str]:
    """Lines, without how long anything will take."""
    return [re.sub(r", the longest about .*", "", line) for line in result.output.splitlines()]


def test_an_array_of_tasks(study, programs):
    """Units that need the same search are in one task."""
    asked = "--partition long --gpus 2 --cpus 4 --time 4:00:00 --array-parallelism 3"
    result = submit(study, *asked.split(), "--slurm", "mem=8G")
    assert result.exit_code == 0, result.output
    assert told(result)[0] == "4 units in 3 tasks"
    assert told(result)[1].startswith("submitted as 41. See 'jbrl status")
    script = (programs / "41.sh").read_text().splitlines()
    lines = "partition=long gpus-per-node=2 cpus-per-task=4 time=240 array=0-2%3 mem=8G requeue"
    assert {f"#SBATCH --{option}" for option in [*lines.split(), "signal=USR2@120"]} <= set(script)
    assert any(line.startswith("srun") and "--cpus-per-task=4" in line for line in script)
    ids = {unit.id: unit.label for unit in plan(study, study.parent / "out").units}
    held = [[ids[id] for id in t.units] for t in submitted_tasks(study.parent / "out")]
    assert sorted(map(len, held)) == [1, 1, 2]
    (searching,) = (labels for labels in held if len(labels) == 2)
    assert ["OPPS" in label for label in searching] == [True, True]


def test_what_is_pickled_is_plain_data(study, programs):
    assert submit(study, "--time", "30").exit_code == 0
    pickles = list((study.parent / "out" / "slurm").glob("*.pkl"))
    assert len(pickles) == 3
    for path in pickles:
        strings = [
            str(value)
            for op, value, _ in pickletools.genops(path.read_bytes())
            if "UNICODE" in op.name
        ]
        modules = {
            text for text in strings if text.startswith(("jbrl", "numpy", "jax", "submitit"))
        }
        assert modules == {"jbrl.cli.run", "jbrl.study.slurm", "submitit.core.utils"}
        assert {"work", "Job"} <= set(strings)


def test_what_is_in_the_queue_is_not_submitted_again(study, programs):
    assert submit(study, "--only", "Random").exit_code == 0
    (programs / "squeue").write_text(
        "#!/bin/sh\necho '41_0|PENDING|Priority'\necho '41_1|CANCELLED|None'\n"
    )
    assert told(submit(study, "--dry-run"))[-2:] == [
        "1 unit left out: in tasks that SLURM has already",
        "3 units in 2 tasks",
    ]
    assert not (programs / "42.sh").exists()


def test_nothing_is_submitted_while_slurm_does_not_say_what_it_has(study, programs):
    assert submit(study, "--only", "Random").exit_code == 0
    says(programs / "squeue", "slurm_load_jobs error: Socket timed out")
    refused(submit(study), "SLURM does not say what it has in its queue")
    assert not (programs / "42.sh").exists()


def test_options_of_sbatch(study, programs):
    options = ("--slurm", "job-name=mine", "--slurm", "exclusive", "--only", "Random", "--quiet")
    result = submit(study, *options)
    assert (result.exit_code, result.output) == (0, "")
    script = (programs / "41.sh").read_text().splitlines()
    assert "#SBATCH --exclusive" in script
    assert [line for line in script if "job-name" in line] == ["#SBATCH --job-name=mine"]


def test_a_search_that_is_done_keeps_no_units_together(study, tmp_path):
    planned = plan(study, tmp_path / "out")
    id = str(planned.units[1].knowledge_id)
    planned.store.open(planned.study.facts(), planned.study.units)
    planned.store.save_knowledge(id, {"status": "done", "platform": "cpu"}, {})
    assert len(prepare(planned, Request()).tasks) == 4
    assert len(prepare(planned, Request(gpus=1)).tasks) == 3  # it took another time there


def test_a_job_stands_for_the_same_units(study, tmp_path):
    planned = plan(study, tmp_path / "out", overrides=["study.n_environments=5"])
    made = planned.study
    facts = (made.facts(), made.place, str(made.folder), str(tmp_path / "out"))
    ids = tuple(unit.id for unit in planned.units)
    assert [unit.id for unit in Job(*facts, ids[1:3]).plan().units] == list(ids[1:3])
    with pytest.raises(JbrlError, match="1 of the 2 units of this task are unknown here"):
        Job(*facts, (ids[0], "0" * 32)).plan()
    Store(tmp_path / "out").open(plan(study, tmp_path / "other").study.facts(), [])
    with pytest.raises(JbrlError, match="n_environments is 8 there and 5 in this one"):
        Job(*facts, ids[:1]).plan()


def test_time_limits():
    given = {"30": 30, "1:30": 2, "90:00": 90, "4:00:00": 240, "0:0:1": 1, "1-0": 1440}
    given |= {"1-12:30": 2190, "1-12:30:01": 2191}
    assert {text: minutes(text) for text in given} == given
    for text in ("", "0", "0:00:00", "4h", "1:2:3:4", "-5", "1-"):
        with pytest.raises(JbrlError, match=r"^--time '.*': expected minutes, H:MM:SS or D-HH:"):
            minutes(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--executor pbs", "'pbs' is not one of"),
        ("--gpus 1", "--gpus 1: is for --executor slurm only"),
        ("--slurm mem=8G", "--slurm mem=8G: is for --executor slurm only"),
        ("--executor slurm --time 4h", "--time '4h': expected minutes"),
        ("--executor slurm --slurm mem=", "--slurm 'mem=': expected NAME=VALUE"),
        ("--executor slurm --memory 8gigs", "--memory '8gigs': expected a number of bytes"),
        ("--executor slurm --devices two", "--devices 'two': expected how many"),
    ],
)
def test_options_that_are_refused(study, options, message):
    result = run(study, *options.split())
    assert result.exit_code == 2
    assert message in result.output


def test_without_submitit(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    refused(submit(study), "pip install submitit")
    assert not (study.parent / "out").exists()


def test_without_slurm_or_where_sbatch_refuses(study, programs, monkeypatch, tmp_path):
    message = "sbatch: error: invalid partition specified: long"
    says(programs / "sbatch", message)
    result = submit(study)
    assert result.exit_code == 2
    assert f"SLURM has not accepted the study: {message}" in result.output
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(submit(study), "'srun' is not found")


def test_only_a_process_that_is_a_task_asks_to_be_put_back(monkeypatch, tmp_path):
    for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    calls = tmp_path / "calls"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho $* >> {calls}\nexit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    requeue()
    assert not calls.exists()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    requeue()
    assert calls.read_text() == "requeue 12_3\n"
    monkeypatch.setenv("PATH", "")
    requeue()


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ([(signal.SIGUSR2, 5.0)], signal.SIGUSR2),
        ([(signal.SIGTERM, 5.0)], signal.SIGTERM),
        ([(signal.SIGUSR2, 5.0), (signal.SIGTERM, 64.0)], signal.SIGTERM),  # scancel
        ([(signal.SIGUSR2, 5.0), (signal.SIGTERM, 65.0)], signal.SIGUSR2),  # the limit itself
    ],
)
def test_a_task_that_is_cancelled_after_its_warning_does_not_come_back(asked, meant):
    assert _meant(asked, warning=60.0) == meant


WARNED, CANCELLED = (Stopped([(number, 5.0)]) for number in (signal.SIGUSR2, signal.SIGTERM))


@pytest.mark.parametrize(
    ("end", "moved", "code", "said", "back"),
    [
        (False, True, None, [r"0 units done in .*"], 0),
        (True, True, 1, [r"0 units done in .*"], 0),
        (JbrlError("a bad study"), False, 2, ["error: a bad study"], 0),
        (WARNED, True, 128 + signal.SIGUSR2, ["stopped: .* queue", "warning: SLURM .* not .*"], 1),
        (WARNED, False, 128 + signal.SIGUSR2, ["stopped: the time limit was too short .*"], 0),
        (CANCELLED, True, 128 + signal.SIGTERM, ["stopped: what is done is kept; .*"], 0),
    ],
)
def test_how_a_task_ends(study, monkeypatch, capsys, end, moved, code, said, back):
    """It has the cores, the memory and the compiled programs that it was given; a warning that
    comes late ends nothing.
    """
    planned, calls = plan(study, study.parent / "out"), []

    def execute(self, display, resources):
        assert [unit.id for unit in self.units] == ids and resources.memory == 10**9
        display.begin(self.units, self.todo)
        display.moved = moved
        if isinstance(end, BaseException):
            raise end
        return end

    def note(owner, name):
        monkeypatch.setattr(owner, name, lambda *given: calls.append((name, *given)))

    monkeypatch.setattr(RunPlan, "execute", execute)
    note(slurm, "requeue")
    note(batching, "use_all_cores")
    note(compile_cache, "use")
    note(signal, "signal")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
    ids = [unit.id for unit in planned.units[1:2]]
    facts = (planned.study.facts(), planned.study.place, str(planned.study.folder))
    options = {"memory": "1GB", "compile_cache": "here"}
    with pytest.raises(SystemExit) if code else contextlib.nullcontext() as ended:
        work(Job(*facts, str(study.parent / "out"), tuple(ids), options))
    assert (ended.value.code if ended else None) == code
    for line, like in zip(capsys.readouterr().err.splitlines(), ["1 unit: .*", *said], strict=True):
        assert re.fullmatch(like, line)
    assert calls[0] == ("use_all_cores", 3) and ("use", "here") in calls
    assert calls.count(("requeue",)) == back
    late = [("signal", number, signal.SIG_IGN) for number in (signal.SIGUSR1, signal.SIGUSR2)]
    assert calls[-2:] == late


ROUNDING = 1e-9  # of sums


def units(*seconds: float) -> list[ClusterTask]:
    return [ClusterTask((f"{i}", f"{i}b")[: 1 + i % 2], cost) for i, cost in enumerate(seconds)]


pieces = st.lists(st.floats(0.0, 1e5) | st.sampled_from([0.0, 1.0, 1.0]), max_size=40).map(
    lambda seconds: units(*seconds)
)


@given(pieces, st.integers(1, 12), st.none() | st.floats(60.0, 1e6))
@example([], 4, None)
def test_every_piece_is_whole_in_one_task_and_tasks_are_even(given, n, limit):
    tasks, total = pack(given, n, limit), math.fsum(piece.seconds for piece in given)
    wanted = max(n, math.ceil(total / (FILLED * limit)) if limit else 1)
    assert len(tasks) == min(len(given), wanted)
    assert all(task.units for task in tasks)
    holders = {id: task for task in tasks for id in task.units}
    assert sorted(id for task in tasks for id in task.units) == sorted(holders)
    assert set(holders) == {id for piece in given for id in piece.units}
    assert all(len({id_task.units for id_task in map(holders.get, p.units)}) == 1 for p in given)
    loads = [math.fsum(p.seconds for p in given if holders[p.units[0]] is task) for task in tasks]
    assert loads == pytest.approx([task.seconds for task in tasks])
    if tasks:
        longest = max(piece.seconds for piece in given)
        assert max(loads) - min(loads) <= longest * (1 + ROUNDING)


def test_an_example():
    """The longest first, each into the task with the least to do; in the order of the study."""
    tasks = pack(units(1.0, 5.0, 2.0, 3.0), 2)
    assert [task.units for task in tasks] == [("0", "1", "1b"), ("2", "3", "3b")]
    assert [task.seconds for task in tasks] == [6.0, 5.0]


def test_no_array_is_larger_than_slurm_takes_by_default():
    given = units(*[3600.0] * 5000)
    assert len(pack(given, 40, 60.0)) == LARGEST_ARRAY
    assert len(pack(given, 2000, 60.0)) == 2000  # who asks for more at once has more
