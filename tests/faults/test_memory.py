"""Memory that does not suffice: less at once is tried first, then the unit fails alone."""

import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jbrl
from jbrl.play import resources
from jbrl.play.compilation import compiling
from jbrl.play.resources import Capacity, Resources, parse_memory
from jbrl.study import execute
from jbrl.study.cost import UnitCost, process_bytes
from jbrl.study.storage import files
from jbrl.study.storage.store import Store
from tests.faults.cases import differences, outcome
from tests.faults.warm import ROOT

FULL = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 17179869184 bytes.")
NOT_EVEN = "not even 256 lifetimes at once on 1 device fit into memory"


class Cramped(execute.Run):
    """Runs out of memory after a few MDPs when it plays on several devices."""

    error: Exception = FULL
    devices_that_fit = 1
    starts: list[int]

    def chunks(self, start: int = 0, size: int | None = None) -> Iterator[Any]:
        self.starts.append(start)
        for chunk in super().chunks(start, size):
            if (
                chunk.start >= 10
                and len(self.devices) > self.devices_that_fit
                and "Random" in type(self.agent).__name__
            ):
                raise self.error
            yield chunk


@pytest.fixture
def cramped(monkeypatch):
    fresh = type("Fresh", (Cramped,), {"starts": []})
    monkeypatch.setattr(execute, "make_run", fresh)
    return fresh


@pytest.mark.first_case_quick
@pytest.mark.parametrize("error", [FULL, MemoryError("Unable to allocate 12 GiB")])
def test_less_at_once_gives_the_same_bits(study, whole, cramped, error):
    cramped.error = error
    jbrl.run(study, study.parent / "out")
    found = outcome(study.parent / "out")
    assert found.keys() == whole.keys() and list(differences(found, whole)) == []
    assert cramped.starts == [0, 10, 0, 0]  # what had been played is not played again
    devices = [device.partition(",")[0] for device in Store(study.parent / "out").units()["device"]]
    assert devices == ["cpu", "cpu x 2", "cpu x 2"]


def test_one_that_never_fits_fails_alone_with_a_message(study, whole, cramped):
    out, cramped.devices_that_fit = study.parent / "out", 0
    jbrl.run(study, out)
    units = Store(out).units()
    assert list(units["status"]) == ["failed", "done", "done"]
    assert units["reason"][0] == f"MemoryError: {NOT_EVEN} ({FULL})"
    cramped.devices_that_fit = 2
    jbrl.run(study, out)
    assert cramped.starts[-1] == 10
    assert outcome(out).keys() == whole.keys() and list(differences(outcome(out), whole)) == []


def test_other_errors_are_not_tried_again(study, cramped):
    cramped.error = ValueError("no")
    jbrl.run(study, study.parent / "out")
    assert list(Store(study.parent / "out").units()["status"]) == ["failed", "done", "done"]
    assert cramped.starts == [0, 0, 0]
    assert not resources.out_of_memory(jax.errors.JaxRuntimeError("INTERNAL: no"))


class Accelerator:
    platform = "gpu"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (jax.devices("cpu") * 2, [(4, 256), (2, 256), (1, 256)]),
        ([Accelerator(), Accelerator()], [(2, 8), (2, 4), (2, 2), (2, 1)]),
    ],
    ids=["cpus", "accelerators"],
)
def test_cpus_give_up_devices_and_accelerators_half_their_lanes(devices, expected):
    tried: list[tuple] = []
    now: Capacity | None = Capacity(Resources(devices, memory=0), expected[0][1])
    while now:
        tried.append((len(now.resources.devices), now.lanes))
        now = now.smaller()
    assert tried == expected


GREEDY = '''
"""Wants more memory than there is."""

import jax.numpy as jnp

import jbrl


@jbrl.register_agent("Greedy")
class Greedy(jbrl.Agent):
    """Keeps a large table for each MDP."""

    def reset(self, key, knowledge):
        return jnp.zeros(2**22), knowledge.mdps.rewards

    def act(self, key, state, x):
        table, rewards = state
        return jnp.argmax(table[: rewards.shape[1]]).astype(jnp.int32), (table.at[x].add(1.0), rewards)
'''  # noqa: E501


@pytest.mark.slow
def test_memory_that_really_does_not_suffice(study, warm, whole):
    """4 GiB of tables for each device, in a process that may have 4 in all."""
    (study.parent / "memory_hungry.py").write_text(GREEDY)
    study.write_text(
        study.read_text().replace('algorithm = "Random"', 'algorithm = "memory_hungry:Greedy"')
    )
    out, log = study.parent / "out", study.parent / "log"
    limits = {"address_space": 4 * 2**30}
    assert warm.start("run", study, "--out", out, log=log, limits=limits).wait() == 1
    units = Store(out).units()
    assert list(units["status"]) == ["failed", "done", "done"]
    assert f"{NOT_EVEN} (RESOURCE_EXHAUSTED" in units["reason"][0]
    assert f"GC/Greedy seed 0: failed: MemoryError: {NOT_EVEN}" in log.read_text()
    assert list(differences(outcome(out), whole)) == []


def test_what_the_memory_that_may_be_used_has_left_of_it_is_where_the_next_attempt_begins():
    devices = [Accelerator(), Accelerator()]
    capacity = Capacity(Resources(devices, memory=0), 16_384)  # type: ignore[arg-type]
    assert capacity.taken(0, devices) == capacity  # type: ignore[arg-type]
    found = capacity.taken(2048, devices)  # type: ignore[arg-type]
    assert (found.lanes, found.call) == (1024, 2048)
    smaller = found.smaller()
    assert smaller and smaller.lanes == 512


def test_a_checkpoint_is_packed_in_the_memory_of_one_copy():
    replay = np.arange(2**23, dtype=np.float32)  # NumPy writes 16 MiB at a time
    tracemalloc.start()
    content = files.pack({"n": 1}, {"replay": replay}, compress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(content) < peak < 1.7 * len(content)
    np.testing.assert_array_equal(files.unpack(content)[1]["replay"], replay)


REPLAYS = """
[study]
name = "replays"
seed = 3
n_environments = 100
episodes = 20
compile = "quick"
[[experiments]]
name = "b"
problem = "bsuite/catch/0"
[[agents]]
algorithm = "DQN"
"""


@pytest.mark.slow
def test_a_process_stays_within_the_memory_that_is_asked_for(tmp_path, warm):
    """64 lanes of 2 MiB fit; their states, gathered, kept and moved, are the same arrays."""
    study, log = tmp_path / "study.toml", tmp_path / "log"
    study.write_text(REPLAYS)
    run = "run", study, "--out", tmp_path / "out", "--memory"
    assert warm.start(*run, "30MiB", log=log).wait() == 1
    text = r"DQN takes \S+ MiB for \d+ lifetimes at once on one device: expected at most 30 MiB"
    assert re.search(text, log.read_text())
    assert warm.start(*run, "535MiB", log=log).wait() == 0
    found = re.search(r"done in .*, (\S+ .iB) of memory at most", log.read_text())
    with compiling("quick"):
        allowed = parse_memory("535MiB") + process_bytes([UnitCost(compiling=1.0)])
    assert found and 2**28 < parse_memory(found[1]) < allowed


DEEP = """
[study]
name = "deep"
n_environments = 1
episodes = 1
compile = "quick"
"""
TASKS = ("catch/0", "cartpole/0")
AGENTS = ("DQN", "ActorCritic", "PPO", "RecurrentActorCritic")


@pytest.mark.slow
def test_a_process_takes_as_much_as_its_programs_are_said_to(tmp_path):
    """They are compiled anew: those of a cache take less."""
    study = tmp_path / "deep.toml"
    parts = [DEEP, *(f'[[agents]]\nalgorithm = "{name}"\n' for name in AGENTS)]
    parts += [f'[[experiments]]\nname = "{t[:3]}"\ntest = "bsuite/{t}"\n' for t in TASKS]
    study.write_text("".join(parts))
    run = [sys.executable, "-m", "jbrl", "run", str(study), "--out", str(tmp_path / "out")]
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    texts = [
        subprocess.run(args, env=environment, capture_output=True, text=True, check=True)
        for args in ([*run, "--dry-run"], run)
    ]
    said = re.search(r"about (\S+ .iB) of the process", texts[0].stdout)
    found = re.search(r"done in .*, (\S+ .iB) of memory at most", texts[1].stderr)
    assert said and found
    assert 2 / 3 < parse_memory(found[1]) / parse_memory(said[1]) < 1.5
