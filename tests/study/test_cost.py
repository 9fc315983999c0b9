"""Costs by the rough rule, what units have cost, and the time left of a run."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import pytest

import jbrl
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.play.compilation import compiling
from jbrl.play.lifetimes import COPIES
from jbrl.play.unit import LATENCY_DECISIONS, Unit
from jbrl.problems.prior import EpisodicPrior
from jbrl.rollout.contract import SECONDS_PER_STEP
from jbrl.study import cost
from jbrl.study.calibration import Calibration, ShortRun, Speed
from jbrl.study.cost import TimeLeft, UnitCost, busy_text
from jbrl.study.file import load_study
from jbrl.study.plan import plan
from jbrl.study.storage.store import Store, saved_estimates
from tests import kept

cpu_only = pytest.mark.skipif(
    jax.default_backend() != "cpu", reason="an accelerator plays as many MDPs at once as are wanted"
)


def tables(*agents: dict[str, Any], **study: Any) -> dict[str, Any]:
    return {
        "study": {"name": "tiny", "n_environments": 500, "horizon": 250, **study},
        "experiments": [{"name": name, "problem": name} for name in ("GC", "GDL")],
        "agents": list(agents),
    }


def units(*agents: dict[str, Any], **study: Any) -> list[Unit]:
    return load_study(tables(*agents, **study)).units


def in_episodes(name: str, *problems: str) -> list[Unit]:
    study = tables({"algorithm": name}, n_environments=100)
    del study["study"]["horizon"]
    study["experiments"] = [{"name": name, "test": name} for name in problems]
    return load_study(study).units


def costs(study: list[Unit], folder: Path) -> list[UnitCost]:
    return [found.cost for found in Calibration(folder=folder).estimates(study).values()]


def takes_mdps(name: str) -> bool:
    """Scripted has a policy for bsuite's problems only."""
    return name != "Scripted" and AGENTS[name].agent.requires.prior is not EpisodicPrior


# ---- the rough rule ----


@pytest.mark.parametrize("name", sorted(set(AGENTS) - {"Scripted"}))
def test_every_agent_has_a_finite_cost_by_the_rough_rule(name, tmp_path):
    if name == "Gittins":
        problem = [{"name": "Bandit", "test": "Bandit"}]
        study = load_study(tables({"algorithm": name}) | {"experiments": problem}).units
    elif takes_mdps(name):
        study = units({"algorithm": name})
    else:
        study = in_episodes(name, "Chain-10s", "MountainCar")
    for estimate in Calibration(folder=tmp_path).estimates(study).values():
        assert 0 < estimate.cost.deciding < estimate.cost.seconds < math.inf
        assert 0 < estimate.bytes < math.inf and not estimate.measured
    for unit in study:
        assert 1 <= cost.fewest_lanes(unit.agent, unit.protocol) <= unit.agent.lanes


@cpu_only
@pytest.mark.parametrize("name", ["paper-cpu", "deep-on-mdps", "trained", "tabular", "episodes"])
def test_the_rough_rule_is_the_kept_one(name, tmp_path):
    study = load_study(Path(__file__).parents[2] / "experiments" / f"{name}.toml").units
    first = {(unit.algorithm, unit.experiment): unit for unit in reversed(study)}.values()
    estimates = Calibration(folder=tmp_path, recall=False, speed=Speed(1.0, 1.0)).estimates(first)
    rules: dict[str, list[str]] = {}
    for unit, found in zip(first, estimates.values(), strict=True):
        agent, protocol = unit.agent, unit.protocol
        short = ShortRun.of(unit, jax.devices())
        runs = (short.lanes, short.horizon, getattr(short.agent, "budget", None), short.expected())
        size = cost.memory_bytes(agent, protocol, 7), cost.fewest_lanes(agent, protocol)
        text = f"{unit.experiment}: {found.cost}, {found.measured}, {size}, {runs}"
        rules.setdefault(unit.algorithm, []).append(text)
    kept.compare(f"cost of {name}", {a: "\n".join(lines) for a, lines in rules.items()})


@cpu_only
def test_a_call_plays_all_its_lanes():
    def lanes(algorithm: str, **study: Any) -> float:
        unit = units({"algorithm": algorithm}, **study)[0]
        return cost.lane_decisions(unit, jax.devices()) / 250

    assert jax.device_count() == 2
    counts = [lanes("Random", n_environments=n) for n in (1, 500, 512, 513, 1025)]
    assert counts == [256, 256, 256, 512, 768]
    assert [lanes("BAMCP", n_environments=n) for n in (1, 16, 17, 500)] == [8, 8, 16, 256]
    assert lanes("Random", n_environments=500, chunk=100) == 5 * 256
    assert lanes("Random", n_environments=510, chunk=100) == 6 * 256
    group = in_episodes("Random", "Chain-10s")[0]
    assert group.agent.lanes == 256
    assert cost.lane_decisions(group, jax.devices()) == 256 * group.protocol.expected_steps


@pytest.mark.slow
@cpu_only
def test_states_of_a_group_of_lanes_are_part_of_the_memory(tmp_path):
    """Pinball has four inputs: 31^4 = 923,521 features by orders of 30, five actions and a value,
    three arrays each, 16 lanes of one group.
    """
    study = {
        "study": {"name": "large", "n_environments": 16},
        "experiments": [{"name": "Pinball-empty", "problem": "Pinball-empty"}],
        "agents": [
            {"algorithm": "PPO-linear"},
            {"algorithm": "PPO-linear", "dependent_high": 30, "independent_high": 30},
        ],
    }
    small, large = Calibration(folder=tmp_path).estimates(load_study(study).units).values()
    each = COPIES * len(jax.devices()) * 16 * 6 * 3 * 4
    assert each * 923_521 < large.bytes < 1.05 * each * 923_521
    assert each * 10_000 < small.bytes < 1.5 * each * 10_000


def test_a_search_takes_as_long_as_what_it_simulates(tmp_path):
    study = units(
        {"algorithm": "BAMCP", "simulations": [10, 10_000]},
        {"algorithm": "BFS3", "trajectories": 1, "samples": 3, "depth": [10, 20]},
        {"algorithm": "OPPS-DS", "budget": [100, 1000]},
    )
    found = costs(study, tmp_path)
    decisions = cost.lane_decisions(study[0], jax.devices())
    steps = 9990 * 15 * SECONDS_PER_STEP * decisions
    assert found[1].deciding - found[0].deciding == pytest.approx(steps)
    assert found[3].deciding > 1.9 * found[2].deciding
    assert found[5].searching == pytest.approx(found[4].searching * 1400 / 500)


def test_programs_and_searches_are_counted_once(tmp_path):
    data = tables({"algorithm": "BEB", "beta": [1.0, 2.0]}, {"algorithm": "OPPS-DS", "space": "F2"})
    data["experiments"] = [
        {"name": name, "prior": "UGC", "test": test} for name, test in (("a", "GC"), ("b", "UGC"))
    ]
    found = costs(load_study(data).units, tmp_path)
    assert [c.compiling > 0 for c in found] == [True, False, True, False, False, False]
    assert [c.searching > 0 for c in found] == [False, False, True, False, False, False]
    many = [UnitCost(compiling=1.0)] * 500  # are not kept all at once
    for effort, two, most in (("full", 750, 5650), ("quick", 460, 3400)):
        with compiling(effort):
            sizes = [cost.process_bytes(costs) for costs in (found, many)]
        assert sizes == [two << 20, most << 20]
    environments = in_episodes("Random", "Chain-10s", "Chain-10d", "Gridworld-5s", "MountainCar")
    assert [c.compiling > 0 for c in costs(environments, tmp_path)] == [True, False, True, True]


def test_a_training_is_part_of_the_memory(tmp_path):
    unit = units({"algorithm": "BeliefPPO", "batch": 8192})[0]
    (estimate,) = Calibration(folder=tmp_path).estimates([unit]).values()
    assert estimate.bytes == unit.agent.search_bytes(unit.protocol.agent_prior()) > 2**28


def test_a_training_of_too_many_rounds_is_refused_before_anything_runs():
    with pytest.raises(JbrlError, match=r"ANN in experiment 'GC.*: budget = 2000000000: expected"):
        units({"algorithm": "ANN", "budget": 2_000_000_000})


def test_programs_that_search_or_train_take_longer_to_compile():
    plain, searching = units({"algorithm": "BEB"}, {"algorithm": "OPPS-DS"})[:2]
    names = ("Random", "ActorCritic", "RecurrentActorCritic")
    in_blocks, deep, recurrent = (in_episodes(name, "MountainCar")[0] for name in names)
    network = in_episodes("DQN", "MountainCar")[0]
    pairs = ((plain, searching, 2), (in_blocks, network, 2), (in_blocks, deep, 2))
    for cheap, costly, times in (*pairs, (deep, recurrent, 1.9)):
        one, more = (cost.compile_seconds(u.agent, u.protocol) for u in (cheap, costly))
        assert more >= times * one > 0
    # what a network takes is not more where all steps are played by one program
    in_steps = units({"algorithm": "ActorCritic"})[0]
    one, more = (cost.compile_seconds(u.agent, u.protocol) for u in (deep, in_steps))
    assert one < more < 1.3 * one


def test_latency_is_part_of_it(tmp_path):
    found = (
        costs(units({"algorithm": "Random"}, latency=latency), tmp_path)[0]
        for latency in (True, False)
    )
    with_, without = found
    assert with_.waiting > 0 == without.waiting
    assert with_.compiling == 2 * without.compiling


# ---- beside what it took ----


@pytest.mark.slow
def test_estimates_are_kept_beside_what_it_took_and_corrected_by_it(tmp_path):
    data = tables(
        {"algorithm": "Random"},
        {"algorithm": "Q-learning", "alpha": [0.0, 0.5]},
        n_environments=5,
        horizon=4,
    )
    jbrl.run(data, tmp_path, only=r"GC/(Random|Q-learning.*alpha=0\.0)")
    first, store = saved_estimates(tmp_path), Store(tmp_path)
    assert len(first) == 2 and all(0 < seconds < 100 for seconds in first.values())

    planned = plan(data, tmp_path)
    done = planned.study.units[1]
    result = store.result(done.id)
    assert done.algorithm == "Q-learning" and result is not None
    taken = result.header["online_seconds"] * 5 * 4
    like = [unit for unit in planned.todo if unit.algorithm == "Q-learning"]
    for unit in like:  # the rule lets Q-learning cost the same in all units of an experiment
        deciding = planned.estimates[unit.id].cost.deciding
        assert deciding == pytest.approx(taken) if unit.experiment == "GC" else deciding > 0

    planned.execute()
    assert len(saved_estimates(tmp_path)) == 6
    assert first.items() <= saved_estimates(tmp_path).items()


def test_what_a_unit_has_cost():
    header = {"configuration": {"horizon": 250}, "n": 4, "offline_seconds": 3.0}
    header |= {"online_seconds": 0.5, "compile_seconds": 7.0, "latency_seconds": 0.01}
    waiting = 0.01 * LATENCY_DECISIONS
    one = UnitCost(compiling=7.0, searching=3.0, deciding=500.0, waiting=waiting)
    assert cost.actual(header, searched=True) == one and one.seconds == 510 + waiting
    header |= {"decisions": 10, "compile_seconds": None, "latency_seconds": None}
    assert cost.actual(header, searched=False) == UnitCost(deciding=5.0)


# ---- the time left ----


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def play(self, left: TimeLeft, id: str, compiling: float, other: float) -> None:
        self.now += compiling + other
        left.finished(id, compiling)


def equal_units(n: int) -> dict[str, UnitCost]:
    return {str(k): UnitCost(compiling=4.0, deciding=1.0) for k in range(n)}


def test_before_anything_is_done_it_is_what_was_expected():
    """A clock that is set back changes little."""
    clock = Clock()
    left = TimeLeft(equal_units(10), clock)
    for passed, seconds in ((0.0, 50.0), (3.0, 47.0), (1000.0, 0.0), (-3000.0, 50.0)):
        clock.now += passed
        assert left.seconds() == pytest.approx(seconds)
    left.finished("0", 4.0)
    assert 0 <= left.seconds() <= 45.0


def test_one_small_unit_does_not_decide_alone():
    clock = Clock()
    left = TimeLeft({"first": UnitCost(other=0.1)} | equal_units(20), clock)
    clock.play(left, "first", 0.0, 1.0)
    assert left.seconds() < 2 * 100.0  # ten times as long as expected


def test_compiling_and_playing_are_corrected_apart():
    """Compiling takes five times as long as expected, all else as long: units that are left and
    need not be compiled take no longer.
    """
    clock = Clock()
    left = TimeLeft(equal_units(10) | {"last": UnitCost(deciding=60.0)}, clock)
    for k in range(10):
        clock.play(left, str(k), 20.0, 1.0)
    assert left.seconds() == pytest.approx(60.0, rel=0.01)


@pytest.mark.parametrize("times", [0.2, 1.0, 5.6])
def test_it_is_right_within_30_percent_after_a_fifth_of_the_work(times):
    """A machine that became busy, or idle, after the estimate was made."""
    clock = Clock()
    left = TimeLeft(equal_units(60), clock)
    for k in range(59):
        clock.play(left, str(k), 4 * times, times)
        if k >= 12:
            assert left.seconds() == pytest.approx(5 * times * (59 - k), rel=0.3)


def test_parts_of_units_count_at_their_pace():
    """A search, then decisions, each twice as fast as expected; the next unit is expected alike."""
    clock = Clock()
    left = TimeLeft({id: UnitCost(searching=40.0, deciding=60.0) for id in "ab"}, clock)
    left.advanced("a", 0.5, 10.0, searching=True)
    assert left.seconds() == pytest.approx(0.5 * 180, rel=0.1)
    left.advanced("a", 0.75, 22.5)
    assert left.seconds() == pytest.approx(0.5 * 115, rel=0.1)
    clock.now += 5.0
    assert left.seconds() == pytest.approx(0.5 * 115 - 5, rel=0.1)
    left.finished("a", 0.0)
    left.advanced("unknown", 0.5, 1.0)
    assert left.seconds() < 60


def test_units_of_other_processes_are_left_out():
    clock = Clock()
    left = TimeLeft(equal_units(4), clock)
    left.skipped(["0", "1"])
    assert left.seconds() == pytest.approx(10.0)
    for id in ("2", "3"):
        clock.play(left, id, 4.0, 1.0)
    assert left.seconds() == 0.0


BUSY = " while this machine is busy, load {} on 2 cores"


@pytest.mark.parametrize(
    ("load", "own", "text"),
    [
        (10.0, 0.0, BUSY.format(10)),
        (2.0, 0.0, ""),
        (10.4, 24.0, BUSY.format(10)),
        (2.4, 30.0, ""),  # half a core of it is this process
        (5.0, 9999.0, BUSY.format(3)),  # which has no more than all
    ],
)
def test_a_busy_machine_is_named(load, own, text):
    assert busy_text(load, 2, own) == text


# Units of quick.toml, run cold on two cores that other programs used too (load 12 to 15): seconds
# that compiling and all else were expected to take, that compiling took, and since the unit before.
RECORDED: list[list[float]] = json.loads(
    (Path(__file__).parent / "recorded_run.json").read_text(encoding="ascii")
)


@pytest.mark.parametrize("said", [1.0, 0.25], ids=["as said", "said before others came"])
def test_a_recorded_run_is_estimated_within_a_factor_of_two_throughout(said):
    """By the pace of all parts together it was six times too short after half of the units."""
    expected = {
        str(k): UnitCost(compiling=said * compiling, deciding=said * other)
        for k, (compiling, other, _, _) in enumerate(RECORDED)
    }
    clock, whole = Clock(), sum(row[3] for row in RECORDED)
    left, ends = TimeLeft(expected, clock), clock.now + whole
    worst = 1.0
    for k, (_, _, compiled, taken) in enumerate(RECORDED[:-10]):
        clock.play(left, str(k), compiled, taken - compiled)
        worst = max(worst, (ends - clock.now) / left.seconds(), left.seconds() / (ends - clock.now))
    assert 900 < whole < 1000 and worst < 2.0
