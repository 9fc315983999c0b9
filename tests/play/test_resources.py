"""Devices and memory: accepted and refused requests, none of which changes a number."""

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jbrl
from jbrl.agents.linear.action_values import QLearning
from jbrl.agents.scripted import Random
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Steps
from jbrl.play import compilation, resources
from jbrl.play.batching import WIDEST_ON_ACCELERATOR
from jbrl.play.experiment import MDPScheduler, Run
from jbrl.play.machine import available_cores
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources, choose, parse_memory
from jbrl.problems.lookup import problem
from tests.terminal import call, output_of, refused

MIB = 2**20


@pytest.mark.parametrize(
    ("text", "amount"),
    [("8GiB", 8 << 30), ("500MB", 5 * 10**8), ("1.5 kib", 1536), ("1e9", 10**9), (4096, 4096)],
)
def test_amounts_of_memory(text, amount):
    assert parse_memory(text) == amount


@pytest.mark.parametrize(
    "text",
    [
        *("", "GiB", "8 gigs", "-1GB", "0", "0.1B"),
        *("1e-3GB", "1e400", "nan", "8GiB each", "12", "99999"),
    ],
)
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(
        JbrlError, match="expected a number of bytes above 0 with a unit, for example 8GiB"
    ):
        parse_memory(text)


def test_devices_are_counted():
    assert choose().devices == jax.devices()
    assert choose(1).devices == choose("1").devices == jax.devices()[:1]
    assert choose(" 2 ").devices == jax.devices()


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "1,1", "0,x", [0, 0], []])
def test_what_is_no_number_of_devices_is_refused(text):
    with pytest.raises(JbrlError, match="expected how many, from 1, or which ones, each once"):
        choose(text)


class Card:
    """Device as JAX describes an accelerator."""

    platform, device_kind = "gpu", "Card"

    def __init__(self, id: int) -> None:
        self.id = id

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_limit": 100 * MIB}


def test_accelerators_are_chosen_by_number(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [Card(i) for i in range(4)])
    assert [card.id for card in choose("2").devices] == [0, 1]
    assert [card.id for card in choose("3,1").devices] == [3, 1]
    assert [card.id for card in choose([2]).devices] == choose("2,").devices[0].id * np.ones(1, int)
    assert choose().memory == 80 * MIB and choose(memory="1MiB").memory == MIB
    with pytest.raises(
        JbrlError, match="there are 4 devices of kind Card here: expected numbers from 0 to 3"
    ):
        choose("0,4")
    with pytest.raises(JbrlError, match="expected 1 to 4"):
        choose(5)


def test_cores_are_not_chosen_by_number():
    with pytest.raises(JbrlError, match="CPU cores are all alike: expected how many, from 1 to 2"):
        choose("0,1")
    with pytest.raises(JbrlError, match="--devices 3: there are 2 CPU cores here: expected 1 to 2"):
        choose(3)


@pytest.mark.parametrize(("option", "value"), [("--devices", "0"), ("--memory", "much")])
def test_the_command_line_refuses_what_makes_no_sense(tmp_path, option, value):
    (tmp_path / "s.toml").write_text(
        '[study]\nname = "s"\n[[experiments]]\nname = "GC"\nprior = "GC"\ntest = "GC"\n'
        '[[agents]]\nalgorithm = "Random"\n'
    )
    done = call("run", tmp_path / "s.toml", "--out", tmp_path / "out", option, value)
    refused(done, f"{option} '{value}': expected")
    assert not (tmp_path / "out").exists()


def test_on_accelerators_what_takes_too_much_is_played_narrower():
    cards = [Card(0), Card(1)]
    resources = Resources(cards, memory=10 * MIB)
    assert resources.smaller(10 * MIB, 512, cards, "X") is None
    assert resources.smaller(11 * MIB, 512, cards, "X") == (256, cards)
    assert resources.smaller(45 * MIB, 512, cards, "X") == (64, cards)
    with pytest.raises(
        JbrlError,
        match=r"X takes 20 MiB for 1 lifetime at once on one device: "
        "expected at most 10 MiB",
    ):
        resources.smaller(20 * MIB, 1, cards, "X")


@pytest.mark.parametrize("shared", [False, True], ids=["cards", "cores"])
@pytest.mark.parametrize(("memory", "groups"), [(8, 8), (7, 4), (1, 1)])
def test_groups_are_given_up_before_lanes(memory, groups, shared, monkeypatch):
    """Each of 64 lanes takes a MiB; cores share the memory, each card has its own."""
    tried = []

    def compiled(training, width, devices, groups):
        tried.append(width)
        return [training, None, SimpleNamespace(bytes=groups * MIB)], 1.5

    monkeypatch.setattr(compilation, "compile_together", compiled)
    devices = jax.devices()[:2] if shared else [Card(0), Card(1)]
    scheduler = MDPScheduler.__new__(MDPScheduler)
    whole = memory * MIB * (2 if shared else 1)
    scheduler.devices, scheduler.resources = devices, Resources(devices, memory=whole)
    first = SimpleNamespace(programs=lambda *sizes: sizes, compile_seconds=1.0, given=Random())
    first.protocol = SimpleNamespace(n_environments=130)
    scheduler.runs = [first] * 3
    scheduler.compile_to_fit(None, 64, 8)
    assert (scheduler.width, scheduler.max_groups) == (64, groups)
    assert (scheduler.batch, scheduler.bytes_per_device) == (2 * 64 * groups, groups * MIB)
    assert first.compile_seconds == 1 + 1.5 * len(tried)
    wanted = [scheduler._wanted(n) for n in (64, 8192, 2 * WIDEST_ON_ACCELERATOR)]
    assert wanted == ([1, 1, 1] if shared else [5, 2, 1])  # three times 3 groups on two cards


def test_on_cpus_what_takes_too_much_is_played_on_fewer():
    gc = problem("GC")
    protocol = Protocol(gc, gc, n_environments=20, lifetime=Steps(12))
    whole = Run(Random(), protocol)
    whole.prepare()
    needed = whole.bytes_per_device
    assert needed > 256 * 12 * 4, "at least the rewards of all lanes"
    tight = Run(Random(), protocol, resources=Resources(memory=2 * needed - 1))
    tight.prepare()
    assert (whole.device, tight.device) == ("cpu x 2", "cpu")
    np.testing.assert_array_equal(
        *([chunk.returns for chunk in run.chunks()] for run in (whole, tight))
    )
    starved = Run(Random(), protocol, resources=Resources(memory=needed - 1))
    with pytest.raises(
        JbrlError,
        match=r"Random takes .* [MK]iB for 256 lifetimes at once on one device: expected at most",
    ):
        starved.prepare()


def test_units_that_take_too_much_fail_with_a_message_and_the_others_go_on(tmp_path):
    study = {
        "study": {"name": "s", "n_environments": 5, "horizon": 6},
        "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
        "agents": [{"algorithm": "Q-learning"}, {"algorithm": "Random"}],
    }
    gc = problem("GC")
    run = Run(QLearning(), Protocol(gc, gc, n_environments=5, lifetime=Steps(6)))
    run.prepare()
    results = jbrl.run(study, tmp_path, memory=run.bytes_per_device - 1)
    assert list(results.units["status"]) == ["failed", "done"]
    assert "expected at most" in results.units["reason"][0]


DEVICES_PROGRAM = """
import json, sys
import jbrl, jax
tables, folder, stack = json.loads(sys.argv[1])
results = jbrl.run(tables, folder, stack=stack)
assert set(results.scores["status"]) == {"done"}
print(len(jax.devices()), [float(score).hex() for score in results.returns["score"]])
"""

AGENTS = [
    {"algorithm": "e-Greedy", "epsilon": [0.0, 0.3]},
    {"algorithm": "BAMCP", "simulations": [5, 8]},
    {"algorithm": "SBOSS", "epsilon": [0.2, 0.5]},
    {"algorithm": "OPPS-DS", "space": "Q0; Q1/Q0", "budget": 40},
]


@pytest.mark.slow
def test_one_two_and_eight_devices_stacked_or_not_give_the_same_bits(tmp_path):
    """Three fake devices to each real one: by default a stack, since a unit would keep one of
    them busy.
    """
    tables = {
        "study": {"name": "s", "n_environments": 20, "horizon": 15},
        "experiments": [
            {"name": "GC", "prior": "GC", "test": "GC"},
            {"name": "U", "prior": "UGC", "test": "GC"},
        ],
        "agents": AGENTS,
    }
    said = []
    for devices, stack in ((1, False), (2, True), (8, True), (8, None)):
        folder = tmp_path / f"{devices} {stack}"
        command = [sys.executable, "-c", DEVICES_PROGRAM, json.dumps([tables, str(folder), stack])]
        environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(devices)}
        said.append(subprocess.check_output(command, text=True, env=environment))
    assert [text.split()[0] for text in said] == ["1", "2", "8", "8"]
    assert len({text.partition(" ")[2] for text in said}) == 1
    found = jbrl.Results(tmp_path / "8 None")
    header = found.store.result(found.manifest["units"][0]["id"]).header
    assert header["device"] == "cpu x 8" and header["stacked"] == 4 and header["batch"] == 8 * 256


def test_resources_bound_nothing_where_the_machine_does_not_say(monkeypatch):
    monkeypatch.setattr(resources, "memory_bytes", lambda: 0)
    unbound = Resources()
    assert unbound.memory == 0 and unbound.smaller(10**15, 256, unbound.devices, "X") is None
    assert dataclasses.replace(unbound, memory=1).fits(1, 1)


@pytest.mark.slow
def test_what_was_asked_for_once_does_not_bind_the_process():
    code = (
        "from jbrl.play.resources import choose; print(len(choose(1).devices), "
        "len(choose().devices))"
    )
    environment = {
        name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"
    } | {"JAX_PLATFORMS": "cpu"}
    said = output_of(sys.executable, "-c", code, env=environment)
    assert said.split() == ["1", str(available_cores())]
