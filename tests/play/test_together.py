"""Units as lanes of one program: the same bits alone and in company, interrupted, on one device
or two.
"""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.environments.bsuite_tasks import Catch
from jbrl.environments.environment import RewardNoise, RewardScale
from jbrl.environments.spec import Episodes
from jbrl.play import compilation
from jbrl.play.blocks import BlockScheduler, LifetimeRun
from jbrl.play.lifetimes import COPIES, Lifetimes, lane_bytes
from jbrl.play.play import make_run, play
from jbrl.play.protocol import Chunk, Protocol
from jbrl.play.resources import Resources
from jbrl.play.scheduler import _fitting, at_once
from jbrl.problems.lookup import problem
from jbrl.study.cost import bytes_at_once
from jbrl.study.file import load_study
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from jbrl.study.storage.store import Store
from tests.faults.cases import Interrupt

# of lengths 1, 4, 6 and 2
NAMES = ("memory_len/0", "memory_len/3", "memory_len/5", "memory_size/0")
EPISODES = 150


def run_of(name: str, n: int = 3, devices: int = 2, memory: int = 0, **changes: Any) -> LifetimeRun:
    found = dataclasses.replace(problem(f"bsuite/{name}"), **changes)
    protocol = Protocol(found, found, n, 7, Episodes(EPISODES))
    resources = Resources(jax.devices()[:devices], memory=memory)
    run = make_run(AGENTS["Random"].agent(), protocol, resources=resources)
    assert isinstance(run, LifetimeRun)
    return run


def played(names=NAMES, devices: int = 2, befores=None, n: int = 3) -> dict[str, Chunk]:
    runs = [run_of(name, n, devices) for name in names]
    scheduler = BlockScheduler(runs)
    scheduler.prepare()
    results = scheduler.results([0] * len(runs), checkpoints=befores or ())
    return {names[number]: chunk for call in results for number, chunk in call}  # type: ignore[misc]


def assert_same(a: Chunk, b: Chunk) -> None:
    np.testing.assert_array_equal(a.returns, b.returns)
    assert a.metrics.keys() == b.metrics.keys()
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name])
    assert a.decisions == b.decisions


@pytest.fixture(scope="module")
def expected():
    return played()


def test_settings_are_played_each_by_its_own_rules(expected):
    for name, length in zip(NAMES, (2, 5, 7, 3), strict=True):
        assert expected[name].decisions == 3 * EPISODES * length
        episodes = expected[name].metrics["log_episode"]
        assert np.nanmax(episodes) == 140
        np.testing.assert_array_equal(expected[name].metrics["log_steps"], length * episodes)
    assert len({float(chunk.returns[0]) for chunk in expected.values()}) > 1


def test_company_and_devices_change_nothing(expected):
    for name in NAMES[:2]:
        run = run_of(name)
        run.prepare()
        (alone,) = run.chunks()
        assert_same(alone, expected[name])
    for chunks in (played(devices=1), played(NAMES[::-1]), played(NAMES[1:3])):
        for name, chunk in chunks.items():
            assert_same(chunk, expected[name])


def test_one_program_plays_all_and_in_python_too(expected):
    before = set(compilation.KEPT)
    again = played(("memory_len/7", "memory_len/8", "memory_len/9", "memory_len/10"))
    assert len(again) == 4
    assert set(compilation.KEPT) == before
    how = {"n_environments": 3, "seed": 7, "episodes": EPISODES}
    found = play("Random", test="bsuite/memory_len/3", **how)
    np.testing.assert_array_equal(found.returns, expected["memory_len/3"].returns)


def test_interrupted_lifetimes_go_on(expected):
    scheduler, done, saved = BlockScheduler([run_of(name) for name in NAMES]), set[int](), []
    scheduler.prepare()

    def leave(lifetimes: Lifetimes) -> None:
        left = [number for number in range(len(NAMES)) if number not in done]
        saved.extend((k, (lifetimes.arrays(k), lifetimes.seconds[k])) for k in left)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for call in scheduler.results([0] * len(NAMES), between=leave):
            done |= {number for number, _ in call}
    assert saved
    names = tuple(NAMES[number] for number, _ in saved)
    rest = played(names, devices=1, befores=[checkpoint for _, checkpoint in saved])
    for name in names:
        assert_same(rest[name], expected[name])


def test_units_are_cut_where_they_are_too_many():
    def cut(*counts: int) -> list[list[int]]:
        units: Any = [SimpleNamespace(protocol=SimpleNamespace(n_environments=n)) for n in counts]
        return [[unit.protocol.n_environments for unit in part] for part in _fitting(units, 4096)]

    assert cut(1, 1, 1) == [[1, 1, 1]]
    assert cut(4000, 90, 90, 5000, 1) == [[4000, 90], [90], [5000], [1]]


@pytest.mark.parametrize(
    ("n", "memory", "stacks"), [(500, 32 << 30, 10), (20, 8 << 30, 2), (20, 1 << 30, 20)]
)
def test_replays_count_as_memory(n, memory, stacks):
    """10,000 transitions of 51 numbers before and after, for each of 500 lifetimes of 20 settings:
    40 GB, of which so much is played at once as fits.
    """
    tables = {
        "study": {"name": "s", "seed": 3, "n_environments": n},
        "experiments": [{"name": "b", "problem": "bsuite/catch"}],
        "agents": [{"algorithm": "DQN"}],
    }
    units, bounded = load_study(tables).units, Resources(jax.devices()[:2], memory=memory)
    (state,) = {lane_bytes(unit.agent, unit.protocol) for unit in units}
    assert 4e6 < state < 5e6
    assert len(at_once(units, bounded)) == stacks
    expected = bytes_at_once(units[0], n * len(units), 1.0, bounded)
    assert COPIES * state * min(n, 32) <= expected <= memory
    tight = make_run(units[0].agent, units[0].protocol, resources=Resources(memory=30 << 20))
    sentence = r"DQN takes 32.7 MiB for 2 lifetimes at once .* expected at most 30 MiB, .*--memory"
    with pytest.raises(JbrlError, match=sentence):
        tight.prepare()


def test_a_small_memory_changes_no_bits():
    run = run_of("memory_len/3", n=40)
    run.prepare()
    state = run.scheduler.lane_bytes  # type: ignore[attr-defined]
    width = run.scheduler.width  # type: ignore[attr-defined]
    small = run_of("memory_len/3", n=40, memory=COPIES * state * width)
    small.prepare()
    assert small.batch == width < run.batch and len(small.devices) == 1
    np.testing.assert_array_equal(
        *(np.concatenate([chunk.returns for chunk in one.chunks()]) for one in (run, small))
    )


def test_one_lifetime_in_each_setting_by_default():
    tables: Any = {
        "study": {"name": "s"},
        "experiments": [
            {"name": "b", "problem": "bsuite/catch/0"},
            {"name": "GC", "problem": "GC"},
            {"name": "c", "problem": "bsuite/bandit", "n_environments": 2},
        ],
        "agents": [{"algorithm": "Random"}],
    }
    study = load_study(tables)
    assert [unit.protocol.n_environments for unit in study.units] == [1, 500] + 20 * [2]
    facts = study.facts()
    assert facts["study"]["n_mdps"] == 500
    assert [table.get("n_environments") for table in facts["experiments"]] == [1, None, 2]
    alone = load_study({**tables, "experiments": tables["experiments"][:1]})
    assert alone.facts()["study"]["n_mdps"] == 1
    named = load_study({**tables, "study": {"name": "s", "n_environments": 7}})
    assert [unit.protocol.n_environments for unit in named.units[:2]] == [7, 7]


def test_what_is_wrong_with_one_setting_fails_it_alone():
    names = ("catch/0", "catch/1")
    bad = RewardNoise(RewardScale(Catch(), np.inf), 0.0)
    scheduler = BlockScheduler([run_of("catch/0", environment=bad), run_of("catch/1")])
    scheduler.prepare()
    found = dict(result for call in scheduler.results([0, 0]) for result in call)
    assert isinstance(found[0], JbrlError)
    assert "environment 'bsuite/catch/0', lifetime 0, step" in str(found[0])
    assert "the reward is not a finite number" in str(found[0])
    assert_same(found[1], played(names)["catch/1"])  # type: ignore[arg-type]


# Within a study -----------------------------------------------------------------------------------


def study(**settings: Any) -> dict[str, Any]:
    return {
        "study": {"name": "x", "n_environments": 2, "episodes": 60, "seed": [0, 1], **settings},
        "experiments": [{"name": name, "test": f"bsuite/{name}"} for name in NAMES],
        "agents": [{"algorithm": "Random"}],
    }


def finished(folder: Path) -> dict[str, tuple]:
    units = load_study(study()).units
    store = Store(folder)
    found = {}
    for unit in units:
        result = store.result(unit.id, arrays=True)
        assert result.status == "done"
        found[unit.id] = (result.returns, result.arrays, result.header["together"])
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    plan(study(), folder).execute(Progress())
    return finished(folder)


def assert_same_results(a: dict[str, tuple], b: dict[str, tuple]) -> None:
    assert a.keys() == b.keys()
    for id in a:
        np.testing.assert_array_equal(a[id][0], b[id][0])
        assert a[id][1].keys() == b[id][1].keys()
        for name in a[id][1]:
            np.testing.assert_array_equal(a[id][1][name], b[id][1][name])


def test_a_study_plays_its_settings_at_once_and_keeps_the_rows(whole):
    assert len(whole) == 8
    for _, arrays, together in whole.values():
        assert together == 8
        assert arrays["metric_log_total_regret"].shape == (2, 75)


def test_shards_and_single_units_have_the_same_bits(tmp_path, whole):
    for shard in ("1/3", "2/3", "3/3"):
        plan(study(), tmp_path, shard=shard).execute(Progress())
    assert_same_results(finished(tmp_path), whole)


def test_interrupted_and_resumed(tmp_path, whole, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        plan(study(), tmp_path).execute(Interrupt(played=0))
    partial = list((tmp_path / "units").glob("*.partial.npz"))
    assert partial
    begun: list[str] = []
    first = BlockScheduler._begun
    monkeypatch.setattr(
        BlockScheduler, "_begun", lambda self, *span: begun.append("") or first(self, *span)
    )
    plan(study(), tmp_path).execute(Progress())
    assert len(begun) <= 8 - len(partial)
    assert_same_results(finished(tmp_path), whole)
    assert not list((tmp_path / "units").glob("*.partial.npz"))
