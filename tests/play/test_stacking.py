"""Several units at once give what each gives by itself, to the last bit."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import jbrl
from jbrl.agents.registry import AGENTS
from jbrl.base.pytree import record
from jbrl.cli.progress import Display
from jbrl.environments.spec import Steps
from jbrl.play import experiment
from jbrl.play.experiment import MDPScheduler, Run
from jbrl.play.protocol import Protocol
from jbrl.play.resources import Resources
from jbrl.play.scheduler import at_once
from jbrl.play.timing import Duration
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Agent
from jbrl.study.file import load_study
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from jbrl.study.storage.store import Store

N_MDPS = 20


def tables(**settings: Any) -> dict[str, Any]:
    return {
        "study": {"name": "tiny", "n_environments": N_MDPS, "horizon": 30, **settings},
        "experiments": [
            {"name": "GC", "prior": "GC", "test": "GC"},
            {"name": "GC-inaccurate", "prior": "UGC", "test": "GC"},
        ],
        "agents": [{"algorithm": "e-Greedy", "epsilon": [0.1, 0.5]}, {"algorithm": "Random"}],
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Unit by unit."""
    return jbrl.run(tables(), tmp_path_factory.mktemp("alone"), stack=False)


def headers(results: jbrl.Results) -> list[dict[str, Any]]:
    found = [results.store.result(unit["id"]) for unit in results.manifest["units"]]
    return [result.header for result in found if result]


def same(found: jbrl.Results, expected: jbrl.Results) -> None:
    pd.testing.assert_frame_equal(found.returns, expected.returns, check_exact=True)


@pytest.mark.first_case_quick
def test_stacked_and_alone_give_the_same_bits(tmp_path, alone):
    stacked = jbrl.run(tables(), tmp_path, stack=True)
    same(stacked, alone)
    # no constants that all agree with
    assert alone.returns.groupby(["experiment", "parameters"])["score"].nunique().min() > N_MDPS / 2
    assert all("stacked" not in header for header in headers(alone))
    # two devices, a group on each
    assert all(header["stacked"] == 2 for header in headers(stacked))
    assert all(header["timed"] == {"mdps": N_MDPS, "decisions": 25} for header in headers(stacked))
    assert (stacked.scores["online_seconds"] > 0).all()


def test_what_shares_a_program_is_stacked():
    units = load_study(
        {**tables(), "agents": [*tables()["agents"], {"algorithm": "OPPS-DS", "budget": [10, 20]}]}
    ).units
    labels = [[unit.label for unit in stack] for stack in at_once(units, Resources(stack=True))]
    greedy = [
        f"{e}/e-Greedy(epsilon={v}) seed 0" for e in ("GC", "GC-inaccurate") for v in (0.1, 0.5)
    ]
    assert labels[:2] == [greedy, ["GC/Random seed 0", "GC-inaccurate/Random seed 0"]]
    assert [len(stack) for stack in labels[2:]] == [1] * 4, "searches go by themselves"
    assert all(len(stack) == 1 for stack in at_once(units, Resources(stack=False)))


def test_sizes_and_static_fields_are_not_mixed():
    data = tables()
    data["experiments"].append({"name": "GDL", "prior": "GDL", "test": "GDL"})
    data["agents"] = [{"algorithm": "BAMCP", "simulations": [9, 12, 20]}]
    found = [
        [(u.experiment, u.parameters["simulations"]) for u in stack]
        for stack in at_once(load_study(data).units, Resources(stack=True))
    ]
    gc = [[(e, k) for e in ("GC", "GC-inaccurate") for k in ks] for ks in ((9, 12), (20,))]
    assert found == [*gc, [("GDL", 9), ("GDL", 12)], [("GDL", 20)]]


def test_by_default_units_are_stacked_where_most_devices_would_be_idle():
    units = load_study(tables()).units
    cpu = jax.devices()[:1]
    assert len(at_once(units, Resources(cpu * 3))) == len(units)
    assert len(at_once(units, Resources(cpu * 4))) == 2

    class Accelerator:
        platform = "gpu"

    assert len(at_once(units, Resources([Accelerator()], memory=1))) == 2


GRIDS = {
    "e-Greedy": {"epsilon": [0.0, 0.1, 0.4]},
    "BEB": {"beta": [0.5, 2.0, 8.0]},
    "BAMCP": {"simulations": [9, 12, 16]},
    "SBOSS": {"epsilon": [0.1, 0.2, 0.5]},
    "PSRL": {"period": [1, 5, 20]},
    "Optimal": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRIDS)
def test_several_groups_on_a_device(name):
    """As on accelerators: a map over groups around the map over lanes.

    Three agents, two seeds, two priors, two devices.
    """
    gc, ugc = problem("GC"), problem("UGC")
    grid = [
        dict(zip(GRIDS[name], values, strict=True))
        for values in zip(*GRIDS[name].values(), strict=True)
    ] or [{}] * 3
    runs = [
        Run(AGENTS[name].agent(**values), Protocol(prior, gc, 10, seed, Steps(30)))
        for seed, (values, prior) in enumerate(zip(grid, (gc, ugc, gc), strict=True))
    ]
    stack, starts = MDPScheduler(runs, groups=2), [0, 0, 3]
    stack.prepare()
    found: dict[int, list[np.ndarray]] = {0: [], 1: [], 2: []}
    for number, chunk in itertools.chain.from_iterable(stack.results(starts)):
        assert not isinstance(chunk, Exception)
        found[number].append(chunk.returns)
    for number, run in enumerate(runs):
        by_itself = Run(run.agent, run.protocol)
        by_itself.prepare()
        expected = np.concatenate([chunk.returns for chunk in by_itself.chunks(starts[number])])
        np.testing.assert_array_equal(np.concatenate(found[number]), expected)


def test_how_many_units_are_played_at_once():
    gc = problem("GC")
    # in groups of 256, one on each of two devices
    for n_environments, n_units in ((300, 1), (200, 2)):
        runs = [
            Run(AGENTS["Random"].agent(), Protocol(gc, gc, n_environments, seed, Steps(2)))
            for seed in range(3)
        ]
        stack = MDPScheduler(runs)
        stack.prepare()
        assert stack.at_once == n_units


def test_the_seconds_of_a_call_are_shared_out_by_mdps(monkeypatch):
    """10 MDPs of one unit and 3 of another in one call of 26 seconds: 20 and 6."""
    gc = problem("GC")
    runs = [
        Run(AGENTS["Random"].agent(), Protocol(gc, gc, 10, seed, Steps(2))) for seed in range(2)
    ]
    stack = MDPScheduler(runs)
    stack.prepare()
    took = Duration(26.0, processor=13.0)
    monkeypatch.setattr(experiment, "clocked", lambda call, *args: (call(*args), took))
    (call,) = stack.results([0, 7])
    assert [(number, chunk.start, chunk.online_seconds) for number, chunk in call] == [
        (0, 0, 20.0),
        (1, 7, 6.0),
    ]
    shared = sum(chunk.processor_seconds for _, chunk in call)
    assert shared == pytest.approx(13.0 / len(stack.devices))


@record
class NaNFrom(Agent[Any, Any]):
    """Keeps one number, its own or NaN, and plays action 0."""

    value: float = 0.0

    def reset(self, key: Any, knowledge: Any) -> Any:
        return self.value

    def act(self, key: Any, state: Any, observation: Any) -> tuple:
        return jnp.int32(0), state


def test_nan_in_the_state_of_one_unit_fails_that_unit_alone():
    gc = problem("GC")
    runs = [
        Run(NaNFrom(value), Protocol(gc, gc, 10, 0, Steps(2))) for value in (1.0, float("nan"), 2.0)
    ]
    stack = MDPScheduler(runs)
    stack.prepare()
    found = dict(itertools.chain.from_iterable(stack.results([0, 4, 0])))
    assert [isinstance(found[number], Exception) for number in range(3)] == [False, True, False]
    message = "NaNFrom, on MDP 4 of 'GC': its state is NaN: expected numbers or infinities"
    assert str(found[1]) == message


class Interrupt(Progress):
    """Ctrl-C after some MDPs."""

    def __init__(self, after: int) -> None:
        self.left = after

    def advanced(self, unit: Any, n: int, seconds: float, decisions: int) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("then", [True, False])
def test_an_interrupted_stack_goes_on(tmp_path, alone, then):
    with pytest.raises(KeyboardInterrupt):
        plan(tables(), tmp_path, only="e-Greedy").execute(Interrupt(after=3), Resources(stack=True))
    status = list(Store(tmp_path).units()["status"])
    assert status.count("done") == 2, "the units of the first call"
    assert len(list((tmp_path / "units").glob("*.partial.npz"))) == 1, (
        "one of the second, played but not timed"
    )
    again = jbrl.run(tables(), tmp_path, stack=then)
    same(again, alone)
    kept = [header["timed"]["decisions"] for header in headers(again) if "timed" in header]
    assert len(kept) == (6 if then else 3), (
        "what was played in a stack is timed by itself, whoever finishes it"
    )


def test_the_display_names_the_unit_that_has_advanced(tmp_path):
    chosen = plan(tables(), tmp_path, only="e-Greedy")
    with pytest.raises(ZeroDivisionError), Display(chosen, quiet=True) as display:
        display.begin(chosen.units, chosen.units)
        display.started(chosen.units[0])
        for unit in chosen.units[0], chosen.units[1], chosen.units[0]:
            display.advanced(unit, 3, 0.1, 90)
            shown = display._bars.tasks[-1]
            assert (shown.description, shown.completed) == (unit.label, 3)
        raise ZeroDivisionError  # nothing to conclude


def test_one_unit_that_fails_does_not_fail_the_others(tmp_path, alone, monkeypatch):
    original, chunks = experiment.discounted, iter(range(100))

    def bad(rewards: np.ndarray, discount: float) -> np.ndarray:
        """Not a number in the second chunk, those that are timed left alone."""
        return original(rewards, discount) * (
            np.nan if rewards.shape[1] == 30 and next(chunks) == 1 else 1.0
        )

    monkeypatch.setattr(experiment, "discounted", bad)
    results = jbrl.run(tables(), tmp_path, only="e-Greedy", stack=True)
    assert list(results.units["status"]) == ["done", "failed", "missing", "done", "done", "missing"]
    assert "expected a finite number" in results.units["reason"][1]
    monkeypatch.undo()
    same(jbrl.run(tables(), tmp_path, stack=True), alone)


def test_when_units_cannot_be_played_together_each_is_played_alone(tmp_path, alone, monkeypatch):
    plain = MDPScheduler.prepare

    def fail(self: MDPScheduler, checkpoint: Any = None) -> None:
        if len(self.runs) > 1:
            raise MemoryError
        plain(self, checkpoint)

    with pytest.raises(KeyboardInterrupt):
        plan(tables(), tmp_path, only="e-Greedy").execute(Interrupt(after=3), Resources(stack=True))
    monkeypatch.setattr(MDPScheduler, "prepare", fail)
    results = jbrl.run(tables(), tmp_path, stack=True)
    same(results, alone)
    stacked = [number for number, header in enumerate(headers(results)) if "stacked" in header]
    assert stacked == [0, 1, 3], "two and a half were done"


def test_latency_and_trajectories_of_stacked_units(tmp_path, alone):
    results = jbrl.run(tables(latency=True, record=True), tmp_path, only="Random", stack=True)
    assert (results.scores["latency_seconds"].dropna() > 0).sum() == 2
    moves = results.trajectories("GC", "Random")
    assert moves["states"].shape == (N_MDPS, 31)
    discounted = (moves["rewards"].astype(np.float64) * 0.95 ** np.arange(30)).sum(axis=1)
    scores = alone.returns.query("experiment == 'GC' and algorithm == 'Random'")["score"]
    # 30 terms that are not negative, of which each operation rounds by 2^-53 at most
    np.testing.assert_allclose(discounted, scores, rtol=4 * 30 * 2**-53)


def test_short_trajectories_are_timed_whole(tmp_path):
    results = jbrl.run(tables(horizon=4), tmp_path, only="Random", stack=True)
    assert [header["timed"]["decisions"] for header in headers(results)] == [4, 4]
