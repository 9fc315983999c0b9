"""Numbers that must not change: identities of all units of the studies, and returns, bit for bit,
of units of three of them: `comparison` and `look-ahead`, which only these tests play, and
`paper-cpu`.

`pins/returns.json` was written by the program before environments other than finite MDPs came in,
but for BEB with beta = 8 on Grid and eight units of PSRL, whose tie tolerance changed, and
Look-ahead, which came later.
Bits hang on the version of JAX, so with another version means are compared, within what a few
decisions that tie can change.
"""

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jbrl
from jbrl.study.file import load_study

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
PINNED = Path(__file__).parent / "pins"
PINS: dict[str, Any] = json.loads((PINNED / "returns.json").read_text())
EXACT = jax.__version__ == PINS["jax"] and platform.machine() == PINS["machine"]
# One unit of each kind of program, on the small problem; the first take the least to compile.
FEW = r"^GC/(Random|Optimal|e-Greedy\(epsilon=0\.1\)|PSRL\(period=5\))"
MORE = r"^GC/(Soft-max\(tau=0\.33\)|VDBE.*sigma=1|BEB\(beta=2|BAMCP\(simulations=10|SBOSS\()"


@pytest.mark.parametrize("name", sorted(PINS["ids"]))
def test_identities_of_all_units(name):
    ids = [unit.id for unit in load_study(study_of(name)).units]
    expected = PINS["ids"][name]
    assert (len(ids), hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]) == (
        expected["units"],
        expected["sha256"],
    )


def study_of(name: str) -> Path:
    """The study file of pins: one of those that users run, or one that only tests play."""
    file = EXPERIMENTS / f"{name}.toml"
    return file if file.exists() else PINNED / file.name


def digest(values: np.ndarray) -> str:
    """Return the digest of the bits of float64 numbers."""
    return hashlib.sha256(np.ascontiguousarray(values, "<f8").tobytes()).hexdigest()[:16]


def check(study: str, pins: dict[str, Any], folder: Path, only: str | None = None) -> int:
    """Play the units of a study that are pinned and compare them. Returns: how many."""
    results = jbrl.run(study_of(study), folder, only=only, overrides=["study.latency=false"])
    units = [unit["id"] for unit in results.store.manifest()["units"] if unit["id"] in pins]
    found = {id: results.store.result(id) for id in units}
    played = {id: result for id, result in found.items() if result is not None}
    for id, result in played.items():
        assert result.status == "done"
        if EXACT:
            assert digest(result.returns) == pins[id]["sha256"], pins[id]["label"]
        else:
            error = result.returns.std() / np.sqrt(result.n)
            assert abs(result.returns.mean() - pins[id]["mean"]) <= error, pins[id]["label"]
    return len(played)


@pytest.mark.parametrize(
    ("only", "number"),
    [(FEW, 4), pytest.param(MORE, 5, marks=pytest.mark.slow)],
    ids=["few", "more"],
)
def test_returns_of_one_unit_of_each_kind(tmp_path, only, number):
    assert check("comparison", PINS["comparison"], tmp_path, only) == number


@pytest.mark.slow
def test_returns_of_look_ahead(tmp_path):
    assert check("look-ahead", PINS["look-ahead"], tmp_path) == 1


@pytest.mark.slow
def test_returns_of_two_experiments_of_the_quick_comparison(tmp_path):
    """All six are pinned, and take ten minutes of two cores."""
    assert check("comparison", PINS["comparison"], tmp_path, "^(GDL|Grid-inaccurate)/") == 50


@pytest.mark.slow
def test_returns_of_a_sample_of_the_paper_comparison(tmp_path):
    only = (
        r"^(GC|GDL-inaccurate)/(BAMCP|Formula|SBOSS|SBOSS-published|BEB-published|Soft-max-"
        r"published)\("
    )
    assert check("paper-cpu", PINS["paper-cpu"], tmp_path, only) == len(PINS["paper-cpu"])
