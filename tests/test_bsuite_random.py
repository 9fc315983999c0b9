"""Random play of all of bsuite, as it is published here, has the regrets and scores of the
original's random agent.

`experiments/published/bsuite/reference.parquet` holds the logs of Random and Scripted on all 468
settings, made by `experiments/bsuite.toml`. Expectations are analytic or come from a simulation of
the published physics in NumPy.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from jbrl.base.bsuite_sweep import EXPERIMENTS
from jbrl.bsuite_logs import read_places
from jbrl.stats.bsuite.logs import Logs
from jbrl.stats.bsuite.measures import regret
from jbrl.stats.bsuite.scores import summary

PUBLISHED = Path(__file__).parents[1] / "experiments" / "published" / "bsuite"
SIMULATED = 1000  # episodes
Z = 3.5  # 23 experiments: false alarms in 1 of 93 seeds of the published run, which is fixed


@cache
def logs() -> Logs:
    return read_places([str(PUBLISHED / "reference.parquet")])


def regrets(experiment: str) -> tuple[np.ndarray, int]:
    """Average regret of an episode of Random in each setting, and the number of episodes."""
    runs = [
        run for run in logs().runs if run.agent == "Random" and run.experiment.name == experiment
    ]
    assert len(runs) == len(EXPERIMENTS[experiment].settings)
    n = EXPERIMENTS[experiment].episodes
    assert all(run.columns["episode"][-1] == n for run in runs)
    return np.array([regret(run)[-1] / n for run in runs]), n


# Mean and standard deviation of the regret of one episode. bandit: arms pay 0, 0.1, ..., 1. catch:
# one of five columns; mnist: one of ten digits; 2 for a mistake, else 0. discounting_chain: one of
# five chains pays 1.1, the others 1. memory: an error counts 2, and half of the answers are errors.
ANALYTIC = {
    "bandit": (0.5, 0.1**0.5),
    "catch": (1.6, 0.8),
    "mnist": (1.8, 0.6),
    "discounting_chain": (0.08, 0.04),
    "memory_len": (1.0, 1.0),
    "memory_size": (1.0, 1.0),
    "umbrella_length": (1.0, 1.0),
    "umbrella_distract": (1.0, 1.0),
}
VARIANTS = ("", "_noise", "_scale")


@pytest.mark.parametrize(
    "experiment",
    [
        name + variant
        for name in ANALYTIC
        for variant in (VARIANTS if name in ("bandit", "catch", "mnist") else ("",))
    ],
)
def test_regrets_of_random_play_are_those_that_theory_predicts(experiment):
    mean, deviation = ANALYTIC[experiment.removesuffix("_noise").removesuffix("_scale")]
    averages, episodes = regrets(experiment)
    assert abs(averages.mean() - mean) < Z * deviation / (episodes * len(averages)) ** 0.5
    # settings differ in their luck: as much as their episodes allow
    spread = averages.std(ddof=1) * (episodes / deviation**2) ** 0.5
    assert 0.4 < spread < 1.7


def cart(swing_up: bool) -> Callable[[np.random.Generator], np.ndarray]:
    """Regrets of episodes of cartpole, or of swing-up with the settings of index 0."""

    def play(rng: np.random.Generator) -> np.ndarray:
        x, v, angle, spin = rng.uniform(-0.05, 0.05, (4, SIMULATED))
        angle = angle + np.pi * swing_up
        live, total = np.ones(SIMULATED, bool), np.zeros(SIMULATED)
        for _ in range(1001):
            action = rng.integers(3, size=SIMULATED)
            push = ((action - 1) * 10 + 0.05 * spin**2 * np.sin(angle)) / 1.1
            turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (
                0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1)
            )
            pull = push - 0.05 * turn * np.cos(angle) / 1.1
            x, v = x + 0.01 * v, v + 0.01 * pull
            angle, spin = angle + 0.01 * spin, spin + 0.01 * turn
            if swing_up:
                upright = (np.cos(angle) > 0) & (abs(spin) < 1) & (abs(x) < 1)
                total += live * (upright - 0.1 * abs(action - 1))
                live &= abs(x) <= 3
            else:
                good = (np.cos(angle) > 0.8) & (abs(x) < 3)
                total += live & good
                live &= good
        return (700 if swing_up else 1000) - total

    return play


def car(rng: np.random.Generator) -> np.ndarray:
    """Regrets of episodes of mountain_car."""
    x, v = rng.uniform(-0.6, -0.4, SIMULATED), np.zeros(SIMULATED)
    live, steps = np.ones(SIMULATED, bool), np.zeros(SIMULATED)
    for _ in range(1000):
        steps += live
        push = (rng.integers(3, size=SIMULATED) - 1) * 0.001
        v = np.clip(v + push - 0.0025 * np.cos(3 * x), -0.07, 0.07)
        x = np.clip(x + v, -1.2, 0.6)
        v = np.where(x == -1.2, np.maximum(v, 0), v)
        live &= x < 0.5
    return steps - 100


@pytest.mark.parametrize(
    ("name", "simulate", "settings", "variant"),
    [
        *(("cartpole", cart(False), 20, variant) for variant in VARIANTS),
        *(("mountain_car", car, 20, variant) for variant in VARIANTS),
        ("cartpole_swingup", cart(True), 1, ""),
    ],
)
def test_regrets_of_random_play_are_those_of_a_simulation(name, simulate, settings, variant):
    expected = simulate(np.random.default_rng(20))
    averages, episodes = regrets(name + variant)
    averages = averages[:settings]
    error = (expected.var(ddof=1) * (1 / SIMULATED + 1 / (episodes * len(averages)))) ** 0.5
    assert error > 0 or name == "mountain_car"
    assert abs(averages.mean() - expected.mean()) <= Z * error


def test_bad_episodes_of_deep_sea():
    """Random reaches the treasure of a sea of size N in 1 of 2^N episodes."""
    averages, episodes = regrets("deep_sea")
    sizes = np.array([s["size"] for s in EXPERIMENTS["deep_sea"].settings])
    treasure = 0.5**sizes
    assert abs(np.sum(1 - averages) - treasure.sum()) < Z * (treasure.sum() / episodes) ** 0.5
    assert (1 - averages)[sizes == 10].sum() > 0


def test_scores_of_random_play():
    """The scores that the original's rules give to these regrets.

    Noise around zero is clipped upwards. Groups of noise and scale differ by luck alone: their
    standard deviation is taken off one half.
    """
    table = summary(logs()).query("agent == 'Random'").set_index("bsuite_env")
    score = table["score"]
    assert table["finished"].all() and len(table) == 23
    for variant in VARIANTS:
        assert 0 <= score["bandit" + variant] < 0.01
        assert 0 <= score["catch" + variant] < 0.01
        assert abs(score["mnist" + variant] - 0.05) < 0.005
        assert abs(score["cartpole" + variant] - 0.04) < 0.01
        assert abs(score["mountain_car" + variant] - 0.1) < 0.01
    assert abs(score["discounting_chain"] - 0.2) < Z * 0.4 / (1000 * 20) ** 0.5
    for name in ("deep_sea", "deep_sea_stochastic", "cartpole_swingup"):
        assert score[name] == 0
    for name in ("memory_len", "memory_size", "umbrella_length", "umbrella_distract"):
        assert score[name] == 0
