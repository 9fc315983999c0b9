"""Self-test: a few small computations whose outcome is known.

Each is compared with mathematics, with NumPy in double precision, or with a mean that was measured
once, on two CPU cores, over many more MDPs than are played here. Nothing depends on JAX's stream of
random numbers: a right installation fails one of the random checks with a probability below 1 in
10,000, and, seeds being fixed, either always or never.
"""

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl.agents.registry import AGENTS
from jbrl.agents.search import draws
from jbrl.environments.spec import Steps
from jbrl.mdp import planning
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.study.file import load_study
from jbrl.study.storage.store import ResultWarning, Store

STANDARD_ERRORS = 4.5  # two-sided: 7 in a million


@dataclass(frozen=True)
class Outcome:
    """Outcome of one check."""

    name: str
    passed: bool
    found: str
    expected: str
    seconds: float


Found = tuple[bool, str, str]  # passed, found, expected


def run_checks() -> Iterator[Outcome]:
    """Run one check after the other; one that raises has failed."""
    for name, check in CHECKS.items():
        started = time.perf_counter()
        try:
            passed, found, expected = check()
        except Exception as error:
            # report any defect of an installation, and continue
            passed, found, expected = (
                False,
                f"{type(error).__name__}: {error}".splitlines()[0][:200],
                "no error",
            )
        yield Outcome(name, passed, found, expected, time.perf_counter() - started)


def words() -> Found:
    """Check random words of the tree searches, bit by bit."""
    stream, counters = np.array([1, 2], np.uint32), np.arange(1000, dtype=np.uint32)
    drawn = np.asarray(jax.jit(jax.vmap(draws.word, in_axes=(None, 0)))(stream, counters))
    expected = [_word(1, 2, counter) for counter in range(1000)]
    return _told(
        int((drawn != expected).sum()) == 0,
        f"{(drawn == expected).sum()} of 1000 the same",
        "all, to the last bit",
    )


def _word(first: int, second: int, counter: int) -> int:
    """Compute `draws.word` with integers of any size."""
    w = counter ^ first
    w = ((w ^ (w >> 16)) * 0x7FEB352D + second) % 2**32
    w = (w ^ (w >> 15)) * 0x846CA68B % 2**32
    return w ^ (w >> 16)


def solution() -> Found:
    """Check value iteration on random MDPs against NumPy in double precision: its stopping rule
    allows 9e-6 of the greatest value.
    """
    rng = np.random.default_rng(0)
    transitions, rewards = rng.dirichlet(np.ones(5), (64, 5, 3)), rng.uniform(0, 10, (64, 5, 3))
    solve = jax.jit(
        jax.vmap(lambda p, r: planning.value_iteration(p, r, jnp.float32(0.95), tolerance=0.0).q)
    )
    q, exact = (
        np.asarray(solve(transitions.astype(np.float32), rewards.astype(np.float32))),
        np.zeros(rewards.shape),
    )
    for _ in range(600):  # 0.95^600 is 4e-14
        exact = rewards + 0.95 * np.einsum("nxuy,ny->nxu", transitions, exact.max(2))
    error = float(np.abs(q - exact).max() / exact.max())
    return _told(error < 2e-5, f"off by {error:.1e} of the greatest", "at most 2e-05")


def repeats() -> Found:
    """Check how often three draws from the urn of a uniform row of three agree: 2/4 times 3/5."""
    n = 50_000
    uniforms = np.random.default_rng(1).integers(0, 2**24, (n, 3)).astype(np.float32) / np.float32(
        2**24
    )
    cdf = draws.cumulative(jnp.ones(3))

    def alike(uniforms: Array) -> Array:
        urns, drawn = draws.empty_urns(1, 3), []
        last = draws.begin_draws(urns, jnp.int32(0))
        for uniform in uniforms:
            urns = draws.put_down(urns, last)
            last = draws.draw_next(urns, last, cdf, jnp.int32(0), uniform, 3)
            drawn.append(last.y)
        return (drawn[0] == drawn[1]) & (drawn[1] == drawn[2])

    share = float(np.asarray(jax.jit(jax.vmap(alike))(uniforms)).mean())
    return _within(share, 0.3, math.sqrt(0.3 * 0.7 / n))


def score(
    name: str,
    parameters: dict[str, Any],
    horizon: int,
    mean: float,
    spread: float,
    n_environments: int = 500,
) -> Callable[[], Found]:
    """Return the check that an agent scores on GC what it should.

    Args:
      mean: measured over so many MDPs that its own error is small beside that of `n_environments`.
      spread: standard deviation of the return on one MDP.
    """

    def check() -> Found:
        returns = _returns(_prepared(name, parameters, horizon, n_environments))
        return _within(float(returns.mean()), mean, spread / math.sqrt(n_environments))

    return check


def same_bits() -> Found:
    """Play the same trajectories twice, the second time in other chunks: on any device, one program
    gives the same numbers.
    """
    run = _prepared(*GREEDY, n_environments=500)
    whole, chunked = _returns(run), _returns(run, 130)
    same = int((whole == chunked).sum())
    return _told(
        same == len(whole), f"{same} of {len(whole)} returns the same", "all, to the last bit"
    )


def file() -> Found:
    """Write a result, read it back, change a byte of it, and check that the change is found."""
    tables = {
        "study": {"name": "self-test", "n_environments": 3, "horizon": 2},
        "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
        "agents": [{"algorithm": "Random"}],
    }
    study = load_study(tables)
    unit, returns = study.units[0], np.sqrt([2.0, 3.0, 5.0])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        store.open(study.facts(), study.units)
        store.save(unit, {"status": "done"}, returns)
        found = store.result(unit.id)
        same = found is not None and found.returns.tobytes() == returns.tobytes()
        path = next(Path(folder).glob("units/*.npz"))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResultWarning)
            noticed = store.result(unit.id) is None
    return _told(
        same and noticed,
        f"{'same' if same else 'other'} bits, damage {'' if noticed else 'not '}noticed",
        "same bits, damage noticed",
    )


GREEDY: tuple[str, dict[str, Any], int] = ("e-Greedy", {"epsilon": 0.1}, 250)
SEARCH: tuple[str, dict[str, Any], int] = ("BAMCP", {"simulations": 20, "depth": 15}, 50)
# Means over 200,000 MDPs, of BAMCP 40,000, seed 11.
CHECKS: dict[str, Callable[[], Found]] = {
    "random words": words,
    "value iteration": solution,
    "urn": repeats,
    "Random on GC": score("Random", {}, 250, mean=31.697, spread=11.61),
    "e-Greedy on GC": score(*GREEDY, mean=40.143, spread=18.60),
    "BAMCP on GC": score(*SEARCH, mean=30.419, spread=12.33, n_environments=256),
    "same bits twice": same_bits,
    "result file": file,
}


def _prepared(name: str, parameters: dict[str, Any], horizon: int, n_environments: int) -> Run:
    run = Run(
        AGENTS[name].agent(**parameters),
        Protocol(
            problem("GC"), problem("GC"), n_environments=n_environments, lifetime=Steps(horizon)
        ),
    )
    run.prepare()
    return run


def _returns(run: Run, chunk: int | None = None) -> np.ndarray:
    return np.concatenate([part.returns for part in run.chunks(size=chunk)])


def _within(found: float, mean: float, error: float) -> Found:
    margin = STANDARD_ERRORS * error
    return _told(abs(found - mean) <= margin, f"{found:.4g}", f"{mean:.4g} ± {margin:.2g}")


def _told(passed: bool, found: str, expected: str) -> Found:
    return bool(passed), found, expected
