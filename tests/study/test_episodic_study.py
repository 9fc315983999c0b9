"""Studies of episodes: the same scores however they are cut, clear words about what is wrong, and
other units go on.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jbrl
from jbrl.study.file import load_study
from jbrl.study.plan import plan
from jbrl.study.progress import Progress

N = 40


def tables(**settings: Any) -> dict[str, Any]:
    return {
        "study": {"name": "episodes", "n_environments": N, **settings},
        "experiments": [
            {"name": "Chain", "problem": "Chain-10s", "episodes": 8},
            {"name": "Deep", "problem": "DeepSea(size=4)", "horizon": 50},
        ],
        "agents": [
            {"algorithm": "Random"},
            {"algorithm": "Sarsa", "alpha": {"log_uniform": [0.01, 0.1]}, "experiments": ["Chain"]},
        ],
    }


class Recorded(Progress):
    """How far each unit has come: lifetimes, seconds, decisions."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[int, float, int]]] = {}

    def advanced(self, unit: Any, n: int, seconds: float, decisions: int) -> None:
        self.seen.setdefault(unit.id, [(0, 0.0, 0)]).append((n, seconds, decisions))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder, progress = tmp_path_factory.mktemp("whole"), Recorded()
    assert plan(tables(), folder).execute(progress) == 0
    results = jbrl.Results(folder)
    for seen in progress.seen.values():
        assert (np.diff(seen, axis=0) >= 0).all() and seen[-1][0] == N
    assert any(0 < n < N for seen in progress.seen.values() for n, _, _ in seen)
    assert list(results.scores["status"]) == ["done"] * 3
    spread = results.returns.groupby(["experiment", "algorithm"])["score"].nunique()
    assert spread["Chain", "Random"] > N / 2 < spread["Chain", "Sarsa"]
    return results


def test_what_the_recorder_keeps_beside_the_scores(tmp_path, whole):
    found = whole.metrics("Deep", "Random")
    assert set(found) == {"episodes", "total_bad_episodes", "denoised_return"}
    np.testing.assert_array_equal(found["episodes"], np.full(N, 50 // 4))
    assert 0 < found["total_bad_episodes"].sum() < found["episodes"].sum()
    chunked = jbrl.run(tables(chunk=7), tmp_path, only="Deep").metrics("Deep", "Random")
    for name, values in found.items():
        np.testing.assert_array_equal(chunked[name], values)
    played = jbrl.play(
        jbrl.AGENTS["Random"].agent(), test="DeepSea(size=4)", n_environments=N, horizon=50
    )
    np.testing.assert_array_equal(played.metrics["total_bad_episodes"], found["total_bad_episodes"])


def test_results_of_seeds_differ_and_identities_hang_on_the_lifetime():
    def ids(changes: dict[str, Any]) -> list[str]:
        changed = tables()
        changed["experiments"][0].update(changes)
        return [unit.id for unit in load_study(changed).units]

    plain = ids({})
    assert ids({"episodes": 8}) == plain
    assert ids({"episodes": 9})[:2] != plain[:2]
    assert ids({"episodes": None, "horizon": 8})[:2] != plain[:2]
    assert ids({"problem": "Chain-10d"})[:2] != plain[:2]


ENVIRONMENT = """
import jax.numpy as jnp
import jbrl


@jbrl.register_environment("Corridor")
class Corridor(jbrl.Environment):
    '''Three cells in a row.'''

    length: int = jbrl.parameter(3, "cells", low=1, high=1000)
    kind: int = jbrl.parameter(0, "what is wrong", low=0, high=9)

    @property
    def spec(self):
        return jbrl.Spec(jbrl.Box((2,)), jbrl.Discrete(2))

    def reset(self, key):
        return jnp.int32(0), jnp.zeros(2)

    def step(self, key, state, action):
        state = state + 1
        ended = state >= self.length
        seen = jnp.where((self.kind == 1) & (state == 2), jnp.nan, 0.5) * jnp.ones(2)
        reward = jnp.where((self.kind == 2) & (state == 2), jnp.nan, 1.0)
        return state, jbrl.Step(seen, reward, ended, jnp.bool_(False))
"""


def own(folder: Path, *problems: str, episodes: int = 2) -> Path:
    (folder / "corridors.py").write_text(ENVIRONMENT)
    experiments = "".join(
        f'[[experiments]]\nname = "{p}"\nproblem = "corridors:{p}"\nepisodes = {episodes}\n'
        for p in problems
    )
    path = folder / "study.toml"
    path.write_text(
        f'[study]\nname = "own"\nn_environments = 5\n{experiments}[[agents]]\n'
        'algorithm = "Random"\n'
    )
    return path


@pytest.fixture
def _fresh(monkeypatch):
    """Each test imports the module from its own folder."""
    from jbrl.base import plugins
    from jbrl.environments.environment import ENVIRONMENTS

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(ENVIRONMENTS, "Corridor", raising=False)
    monkeypatch.delitem(sys.modules, "corridors", raising=False)
    plugins._digests.pop("corridors", None)


@pytest.mark.usefixtures("_fresh")
def test_an_environment_of_ones_own_and_what_it_does_wrong_while_others_go_on(tmp_path):
    study = own(tmp_path, "Corridor", "Corridor(kind=1)", "Corridor(kind=2)", "Corridor(length=7)")
    results = jbrl.run(study, tmp_path / "out")
    units = results.units.set_index("experiment")
    assert list(units["status"]) == ["done", "failed", "failed", "done"]
    assert "the observation is NaN" in units.loc["Corridor(kind=1)", "reason"]
    reward = "lifetime 0, step 2 (episode 1): the reward is not a finite number"
    assert reward in units.loc["Corridor(kind=2)", "reason"]
    returns = results.returns.groupby("experiment")["score"].unique()
    np.testing.assert_array_equal(returns["Corridor"], [3.0])
    np.testing.assert_array_equal(returns["Corridor(length=7)"], [7.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior": "GC"}, "prior 'GC' has observations .*: expected the same"),
        ({"problem": "MountainCar"}, "Sarsa.*needs discrete states or one-hot observations: 'Mo"),
    ],
)
def test_what_is_refused_names_place_field_and_value(change, message):
    changed = tables()
    changed["experiments"][0].update(change)
    with pytest.raises(jbrl.JbrlError, match=message) as refused:
        load_study(changed)
    assert "Chain" in str(refused.value) or "experiments" in str(refused.value)


def test_trajectories_of_episodes_are_refused_and_costs_estimated(tmp_path):
    with pytest.raises(jbrl.JbrlError, match="record = true: expected false"):
        load_study(tables(record=True))
    planned = plan(tables(), tmp_path)
    assert all(0 < seconds < 60 for seconds in planned.expected_seconds.values())
