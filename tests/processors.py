"""A program that prints, as JSON, the instructions that a process uses and the bits of what it
computes.

    python -m tests.processors       numbers of the host, and one program of each kind
    python -m tests.processors DIR   in addition the pinned units `FEW`, played to DIR
"""

import hashlib
import itertools
import json
import math
import re
import struct
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]
from threadpoolctl import threadpool_info

import jbrl
from experiments.formula_sets import enumerate_set
from jbrl.agents.opps.bandits import Streams
from jbrl.agents.opps.ucb import UCBV
from jbrl.bayes_optimal.limits import Chance
from jbrl.mdp.mdp import decisions_until
from jbrl.rollout.steps import discounted
from jbrl.stats.evaluation import EvaluateOptions
from jbrl.study.file import load_study
from tests.bayes_optimal.exact import PRIORS, problem
from tests.bayes_optimal.test_lower import suggested
from tests.test_pins import FEW, digest, study_of

BLAS = "libscipy_openblas"  # of wheels of NumPy and SciPy


def instructions() -> dict[str, Any]:
    """Return what the libraries of this process have chosen: instruction sets of NumPy and of a
    compiled program, the kernels of BLAS, and what the C library's exponential gives.
    """
    numpy = [
        name
        for name in _multiarray_umath.__cpu_dispatch__
        if _multiarray_umath.__cpu_features__[name]
    ]
    program = jax.jit(lambda v: jnp.exp(v) * 2 + v).lower(jnp.zeros(4096)).compile()
    target = re.findall(rb"[+]([a-z0-9.]+)", program.runtime_executable().serialize())
    core = next(one["architecture"] for one in threadpool_info() if one["prefix"] == BLAS)
    values = [math.exp(k / 7) for k in range(2000)]
    return {
        "numpy": numpy,
        "xla": [name for name in ("avx512f", "avx2", "fma") if name.encode() in target],
        "blas": core,
        "libm": _hash(struct.pack("<2000d", *values)),
    }


def numbers() -> dict[str, str]:
    """Return digests of numbers that are stored, or that decide what is stored."""
    generator = np.random.default_rng(0)
    rewards = generator.normal(size=(300, 250)).astype(np.float32)
    ids = [unit.id for unit in load_study(study_of("comparison")).units]
    sets = [enumerate_set(4, domain) for domain in ("signed", "values")]
    horizons = [decisions_until(10.0**-k, 1 - 2.0**-j) for k in range(1, 9) for j in range(1, 12)]
    mdps = problem(PRIORS["fractions"]).mdps
    states = generator.integers(mdps.n_states, size=(200, 6))
    moves = {"states": states, "actions": np.zeros((200, 5), int)}
    pulled = generator.normal(5, 2, (20, 200))
    bandit = UCBV(5.0)
    waiting = Streams(pulled.ravel(), np.full(20, 200))
    state, _ = bandit.advance(bandit.start(20), waiting, 1000)
    played = suggested("fractions", 6)[-1].play(256, np.random.SeedSequence(3))
    return {
        "discounted returns": digest(discounted(rewards, 0.95)),
        "identities of units": _hash("\n".join(ids).encode()),
        "sets of formulas": _hash(repr(sets).encode()),
        "horizons": _hash(repr(horizons).encode()),
        "chance in lifetimes": digest(Chance(mdps, 0.95, 5).of(moves)),
        "pulls": digest(np.concatenate([state.counts, state.sums, state.squares])),
        "lifetimes of the lower end of a bracket": digest(played),
        "evaluation": _hash(json.dumps(evaluation()).encode()),
    }


def evaluation() -> list[Any]:
    """Return what `jbrl evaluate --format json --metrics` prints of some scores, by each method."""
    generator = np.random.default_rng(1)
    rows = [
        (f"A{i}", f"E{j}", round(float(generator.normal(i / 3 + j, 1 + j % 3)), 3))
        for i, j, _ in itertools.product(range(5), range(6), range(23))
    ]
    table = pd.DataFrame(rows, columns=["algorithm", "environment", "score"])
    options = EvaluateOptions(method="all", resamples=50, interval="bca")
    metrics = jbrl.metrics(table, options)
    found = jbrl.evaluate(table, options).record()
    return [found, *(part.to_dict("records") for part in metrics.values())]


def units(folder: Path) -> dict[str, str]:
    """Return digests of the returns of one unit of each kind of program, by the unit's id."""
    quickly = ["study.latency=false", 'study.compile="quick"']
    results = jbrl.run(study_of("comparison"), folder, only=FEW, overrides=quickly)
    found = {
        unit["id"]: results.store.result(unit["id"]) for unit in results.store.manifest()["units"]
    }
    return {id: digest(result.returns) for id, result in found.items() if result is not None}


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


if __name__ == "__main__":
    told = {
        "instructions": instructions(),
        "numbers": numbers(),
        "units": units(Path(sys.argv[1])) if len(sys.argv) > 1 else {},
    }
    sys.stdout.write(json.dumps(told) + "\n")
