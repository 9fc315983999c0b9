"""Self-test: a few agents whose mean score is known, and a result that is written and read.

The means were measured once, on two CPU cores, over many more MDPs than are played here; e-Greedy
solves MDPs by value iteration, BAMCP draws random words and urns of its own. Nothing depends on
JAX's stream of random numbers: a right installation fails one of the checks with a probability
below 1 in 10,000, and, seeds being fixed, either always or never.
"""

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Steps
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.study.file import load_study
from jbrl.study.storage.store import ResultWarning, Store

STANDARD_ERRORS = 4.5  # two-sided: 7 in a million
GREEDY: tuple[str, dict[str, Any], int] = ("e-Greedy", {"epsilon": 0.1}, 250)
SEARCH: tuple[str, dict[str, Any], int] = ("BAMCP", {"simulations": 20, "depth": 15}, 50)


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
            result = check()
        except Exception as error:  # report any defect of an installation, and continue
            text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            result = (False, text, "no error")
        yield Outcome(name, *result, time.perf_counter() - started)


def score(
    name: str,
    parameters: dict[str, Any],
    horizon: int,
    mean: float,
    spread: float,
    n_environments: int = 500,
) -> Found:
    """Check that an agent scores on GC what it should.

    Args:
      mean: measured over so many MDPs that its own error is small beside that of `n_environments`.
      spread: standard deviation of the return on one MDP.
    """
    found = float(_returns(_prepared(name, parameters, horizon, n_environments)).mean())
    margin = STANDARD_ERRORS * spread / math.sqrt(n_environments)
    return abs(found - mean) <= margin, f"{found:.4g}", f"{mean:.4g} ± {margin:.2g}"


def same_bits() -> Found:
    """Play the same trajectories twice, the second time in other chunks: on any device, one program
    gives the same numbers.
    """
    run = _prepared(*GREEDY, n_environments=500)
    whole, chunked = _returns(run), _returns(run, 130)
    same, n = int((whole == chunked).sum()), len(whole)
    return same == n, f"{same} of {n} returns the same", "all, to the last bit"


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
    bits = f"{'same' if same else 'other'} bits, damage {'' if noticed else 'not '}noticed"
    return same and noticed, bits, "same bits, damage noticed"


# Means over 200,000 MDPs, of BAMCP 40,000, seed 11.
CHECKS: dict[str, Callable[[], Found]] = {
    "Random on GC": lambda: score("Random", {}, 250, mean=31.697, spread=11.61),
    "e-Greedy on GC": lambda: score(*GREEDY, mean=40.143, spread=18.60),
    "BAMCP on GC": lambda: score(*SEARCH, mean=30.419, spread=12.33, n_environments=256),
    "same bits twice": same_bits,
    "result file": file,
}


def _prepared(name: str, parameters: dict[str, Any], horizon: int, n_environments: int) -> Run:
    test, lifetime = problem("GC"), Steps(horizon)
    protocol = Protocol(test, test, n_environments=n_environments, lifetime=lifetime)
    run = Run(AGENTS[name].agent(**parameters), protocol)
    run.prepare()
    return run


def _returns(run: Run, chunk: int | None = None) -> np.ndarray:
    return np.concatenate([part.returns for part in run.chunks(size=chunk)])
