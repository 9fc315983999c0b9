"""Estimates on this machine: its speed, short runs, and what is kept of them."""

import dataclasses
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.play.unit import Unit
from jbrl.study import calibration, cost
from jbrl.study.calibration import Calibration, Measurement, ShortRun, Speed, cache_folder
from jbrl.study.cost import UnitCost
from tests.study.test_cost import cpu_only, takes_mdps, units
from tests.terminal import output_of

BAMCP = {"algorithm": "BAMCP", "simulations": [1, 500, 10_000, 25_000], "depth": [15, 50]}


def slower(factor: Callable[[ShortRun], float]) -> Callable[[ShortRun, list], Measurement]:
    """A stand-in for short runs on a machine that takes `factor` times as long as the rule says."""

    def run(short: ShortRun, _: list) -> Measurement:
        return Measurement(
            rule=short.rule,
            decision=factor(short),
            search=factor(short) if hasattr(short.agent, "budget") else None,
            memory=1.0,
            compile_seconds=3.0,
        )

    return run


def measured(folder: Path, study: list[Unit]) -> Calibration:
    known = Calibration(folder=folder)
    known.measure(study, run=slower(lambda _: 2.0))
    return known


def test_a_short_run_is_measured_in_units_of_the_rule(monkeypatch):
    """64 lanes of each of two devices take twice as long and three times the memory."""
    unit = units({"algorithm": "BAMCP"})[0]
    short = ShortRun(unit, unit.agent, None, 30)
    each = cost.decision_seconds(unit.agent, unit.protocol)
    chunk = SimpleNamespace(online_seconds=2 * each * 64 * short.protocol.horizon)
    run: Any = SimpleNamespace(devices=[0, 1], batch=128, learned=None, compile_seconds=1.5)
    run.prepare, run.chunks = lambda: None, lambda: iter([chunk])
    run.bytes_per_device = 3 * cost.memory_bytes(unit.agent, short.protocol, 64)
    monkeypatch.setattr(calibration, "make_run", lambda *_, **__: run)
    found = short.measure(jax.devices())
    assert (found.decision, found.memory) == pytest.approx((2, 3))
    assert (found.search, found.compile_seconds) == (None, 1.5)


# ---- the speed of the machine ----


def test_what_is_not_measured_is_as_slow_as_the_machine(tmp_path):
    study = units({"algorithm": "OPPS-DS"}, {"algorithm": "BAMCP"}, latency=True)[:2]
    rough = Calibration(folder=tmp_path).estimates(study)
    slow = Calibration(folder=tmp_path, speed=Speed(compiling=3.0, playing=2.0)).estimates(study)
    for id, estimate in slow.items():
        parts, plain = estimate.cost, rough[id].cost
        assert parts.compiling == pytest.approx(3 * plain.compiling)
        for part in ("searching", "deciding", "waiting"):
            assert getattr(parts, part) == pytest.approx(2 * getattr(plain, part))


def test_units_that_differ_in_their_seed_are_estimated_once(tmp_path, monkeypatch):
    study, asked = units({"algorithm": "PSRL"}, seed=list(range(40))), []
    size = cost.bytes_at_once
    monkeypatch.setattr(cost, "bytes_at_once", lambda *given: asked.append(given) or size(*given))
    found = Calibration(folder=tmp_path).estimates(study)
    experiments = {unit.experiment for unit in study}
    assert len(found) == 40 * len(experiments) and len(asked) <= 2 * len(experiments)
    alone = Calibration(folder=tmp_path).estimates(study[:1])
    assert found[study[0].id] == alone[study[0].id]
    assert found[study[0].id].cost.compiling > 0 == found[study[1].id].cost.compiling


def test_the_speed_of_the_machine_is_measured_once():
    device = jax.devices()[0]
    speed = calibration.speed_of(device)
    assert calibration.speed_of(device) is speed
    assert 0 < speed.compiling < math.inf and 0 < speed.playing < math.inf


COLD = """
import json, sys, time
from jbrl.play.batching import use_all_cores
from jbrl.study.plan import plan

use_all_cores()
planned = plan(sys.argv[1], sys.argv[2], recall=False)
said, started = sum(planned.expected_seconds.values()), time.perf_counter()
assert planned.execute() == 0
print(json.dumps([said, time.perf_counter() - started]))
"""


@pytest.mark.slow
def test_a_first_run_takes_about_as_long_as_said(tmp_path):
    """30 % are aimed at; a machine at work on other things doubles times within seconds."""
    study = tmp_path / "study.toml"
    study.write_text("""
[study]
name = "cold"
n_environments = 500
horizon = 250
[[experiments]]
name = "GC"
problem = "GC"
[[agents]]
algorithm = "e-Greedy"
[[agents]]
algorithm = "PSRL"
[[agents]]
algorithm = "BAMCP"
simulations = [10, 50]
""")
    printed = output_of(sys.executable, "-c", COLD, study, tmp_path / "out")
    said, taken = json.loads(printed.splitlines()[-1])
    assert taken / 2 < said < 2 * taken


# ---- short runs ----


def test_factors_hold_where_they_were_measured_and_carry_over_to_larger_budgets(tmp_path):
    study = units(BAMCP)
    rough = Calibration(folder=tmp_path / "none").estimates(study)
    known = Calibration(folder=tmp_path)
    assert known.measure(study, run=slower(lambda _: 3.0)) == []
    for id, estimate in known.estimates(study).items():
        assert estimate.measured
        assert estimate.cost.deciding == pytest.approx(3 * rough[id].cost.deciding)
        assert estimate.cost.compiling in (0, 3.0)


def test_between_short_runs_factors_lie_between_theirs(tmp_path):
    study = units({**BAMCP, "simulations": [1, 10, 100, 1000]})
    known = Calibration(folder=tmp_path)
    known.measure(study, run=slower(lambda s: 100.0 if s.agent.simulations >= 500 else 1.0))
    rough = Calibration(recall=False).estimates(study)
    found = {
        unit.id: known.estimates(study)[unit.id].cost.deciding / rough[unit.id].cost.deciding
        for unit in study
    }
    for experiment in ("GC", "GDL"):
        mine = [u for u in study if u.experiment == experiment and u.agent.depth == 15]
        ratios = [found[unit.id] for unit in mine]
        assert ratios[0] == pytest.approx(1.0) and max(ratios) <= 100 * (1 + 1e-9)
        assert ratios == sorted(ratios) and ratios[-1] > 10


def test_results_of_a_study_are_better_than_short_runs(tmp_path):
    study = units({"algorithm": "e-Greedy", "epsilon": [0.0, 0.1]}, latency=True)
    known, rough = measured(tmp_path, study[:1]), Calibration(recall=False).estimates(study)
    plain = rough[study[0].id].cost
    known.add_result(study[0], UnitCost(deciding=5 * plain.deciding))
    for unit, estimate in zip(study, known.estimates(study).values(), strict=True):
        # of another experiment the short run is not known, the result is better than nothing
        assert estimate.cost.deciding == pytest.approx(5 * rough[unit.id].cost.deciding)


def test_one_short_run_is_enough_where_all_units_cost_the_same():
    study = units({"algorithm": "e-Greedy", "epsilon": [0.0, 0.1, 0.2]})
    wanted = Calibration(recall=False).missing(study)
    assert [run.unit.experiment for run in wanted] in (["GC", "GDL"], ["GDL", "GC"])


@cpu_only
def test_short_runs_are_short_and_few():
    devices = jax.devices()
    bfs3 = {"trajectories": [1, 500, 10_000], "samples": [2, 15], "depth": [15, 50]}
    wanted = Calibration(recall=False).missing(units(BAMCP, {"algorithm": "BFS3", **bfs3}))
    for run in wanted:
        assert run.expected() < calibration.TOO_LONG * calibration.RUN_SECONDS
        fewest = cost.fewest_lanes(run.agent, run.unit.protocol)
        assert run.agent == run.unit.agent
        assert fewest <= (run.lanes or run.agent.lanes) <= run.agent.lanes
    for algorithm in ("BAMCP", "BFS3"):
        mine = [r for r in wanted if r.unit.algorithm == algorithm and r.unit.experiment == "GC"]
        assert 2 <= len(mine) <= calibration.MAX_RUNS
        assert mine[0].rule == max(run.rule for run in mine)  # the one that tells most
    expensive = units({"algorithm": "BAMCP", "simulations": 25_000, "depth": 50})[0]
    alone = ShortRun.of(expensive, devices)
    assert (alone.lanes, alone.horizon) == (1, 10)
    twice = dataclasses.replace(alone, horizon=20)
    assert twice.expected() == pytest.approx(2 * alone.expected())


def test_the_folder_of_what_can_be_measured_again(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/jbrl")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "jbrl"


def test_a_short_search_has_a_smaller_budget():
    run = ShortRun.of(units({"algorithm": "OPPS-DS", "budget": 10**8})[0], jax.devices())
    assert run.horizon == 250 and 1 <= run.agent.budget < 10**6
    assert run.expected() < 2 * calibration.RUN_SECONDS


def test_time_is_up_after_every_algorithm_has_had_a_turn(tmp_path):
    study, made = units(BAMCP, {"algorithm": "Random"}), []

    def run(short: ShortRun, devices: list) -> Measurement:
        made.append((short.unit.algorithm, short.unit.experiment))
        return slower(lambda _: 2.0)(short, devices)

    wanted = len(Calibration(folder=tmp_path).missing(study))
    ticks = iter(range(1000))
    complaints = Calibration(folder=tmp_path).measure(
        study, run=run, seconds=4, clock=lambda: next(ticks)
    )
    assert [algorithm for algorithm, _ in made] == ["BAMCP", "BAMCP", "Random", "Random"]
    assert len(set(made)) == 4
    assert complaints == [f"{wanted - 4} of {wanted} short runs left out: 4 s are over"]
    # the next time goes on from there
    assert len(Calibration(folder=tmp_path).missing(study)) == wanted - 4


def failing(error: BaseException, unit: str) -> Callable[[ShortRun, list], Measurement]:
    def run(short: ShortRun, devices: list) -> Measurement:
        if short.unit.label.startswith(unit):
            raise error
        return slower(lambda _: 2.0)(short, devices)

    return run


def test_an_agent_that_fails_is_reported_and_left_to_the_rough_rule(tmp_path):
    study = units({"algorithm": "Random"}, {"algorithm": "BEB"})[:2]
    known, error = Calibration(folder=tmp_path), FloatingPointError("no number\nand more")
    assert known.measure(study, run=failing(error, "GC/BEB")) == [
        "GC/BEB seed 0: FloatingPointError: no number"
    ]
    assert [known.estimates(study)[unit.id].measured for unit in study] == [True, False]


def test_what_was_measured_before_an_interrupt_is_kept(tmp_path):
    study = units({"algorithm": "Random"})
    with pytest.raises(KeyboardInterrupt):
        Calibration(folder=tmp_path).measure(study, run=failing(KeyboardInterrupt(), "GC/"))
    left = Calibration(folder=tmp_path).missing(study)
    assert [short.unit.experiment for short in left] == ["GC"]


@pytest.mark.parametrize("change", ["versions", "machine", "agent", "damaged", "a negative time"])
def test_short_runs_of_something_else_are_not_known(change, tmp_path, monkeypatch):
    study = units({"algorithm": "Random"})
    path = measured(tmp_path, study).path
    assert path.parent == tmp_path and not Calibration(folder=tmp_path).missing(study)
    if change == "versions":
        monkeypatch.setattr(calibration, "versions", lambda: {"jbrl": "99"})
    elif change == "machine":
        monkeypatch.setattr(calibration, "machine", lambda: {"processor": "abacus", "cores": 10})
    elif change == "agent":
        monkeypatch.setattr(AGENTS["Random"].agent, "version", 99)
    elif change == "damaged":
        path.write_text(path.read_text()[:100])
    else:
        content = json.loads(path.read_text())
        next(iter(content["runs"].values()))[0]["decision"] = -1.0
        path.write_text(json.dumps(content))
    assert len(Calibration(folder=tmp_path).missing(study)) == 2


def test_a_commit_is_no_other_version_and_a_cache_that_cannot_be_written_is_reported(
    tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    known, versions = Calibration(folder=tmp_path / "file" / "cache"), calibration.versions()
    monkeypatch.setattr(calibration, "versions", lambda: {**versions, "commit": "another"})
    assert Calibration(folder=tmp_path / "file" / "cache").path == known.path
    study = units({"algorithm": "Random"})
    complaints = known.measure(study, run=slower(lambda _: 2.0))
    assert len(complaints) == 1 and "short runs cannot be kept here" in complaints[0]
    assert all(estimate.measured for estimate in known.estimates(study).values())


SMALL: dict[str, dict[str, Any]] = {
    "BAMCP": {"simulations": 3},
    "OPPS-DS": {"space": "F1", "budget": 20},
    "OPPS-CS": {"budget": 100, "draws": 20},
}


@pytest.mark.parametrize(
    "names",
    [
        ["Random"],
        pytest.param(
            sorted({*filter(takes_mdps, AGENTS)} - {"Gittins"}),  # which plays bandits alone
            marks=pytest.mark.slow,
        ),
    ],
    ids=["one", "all"],
)
def test_short_runs_give_numbers(names, tmp_path):
    agents = ({"algorithm": name, **SMALL.get(name, {})} for name in names)
    study = [u for u in units(*agents, horizon=4, n_environments=2) if u.experiment == "GC"]
    known = Calibration(folder=tmp_path)
    assert known.measure(study, seconds=math.inf) == []
    for unit, estimate in zip(study, known.estimates(study).values(), strict=True):
        assert estimate.measured and 0 < estimate.cost.seconds < math.inf, unit.label
        assert 0 < estimate.bytes < math.inf, unit.label
    for run in (run for runs in known.runs.values() for run in runs):
        assert run.decision > 0 and run.memory > 0
