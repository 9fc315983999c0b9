"""Programs are forgotten before a process runs out of memory mappings."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.runner.play import compilation


def double(x: jax.Array) -> jax.Array:
    return x + x


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Return an empty register of programs."""
    register: dict = {}
    monkeypatch.setattr(compilation, "KEPT", register)
    return register


def test_programs_are_kept_until_mappings_run_short(
    kept: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[bool] = []
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(True))
    limit = tmp_path / "max_map_count"
    limit.write_text("1000000000\n")
    monkeypatch.setattr(compilation, "_LIMIT", limit)
    program = compilation.compile_once(double, jnp.arange(3.0))
    assert not compilation.forget_when_crowded()
    assert len(kept) == 1 and not forgotten
    limit.write_text("100\n")
    assert compilation.forget_when_crowded(), "a process with JAX has more than 50"
    assert not kept and forgotten
    np.testing.assert_array_equal(program.call(jnp.arange(3.0)), [0, 2, 4])
    assert compilation.compile_once(double, jnp.arange(3.0)).fresh


def test_systems_that_do_not_count_mappings(
    kept: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_LIMIT", tmp_path / "none")
    compilation.compile_once(double, jnp.arange(3.0))
    assert not compilation.forget_when_crowded()
    assert len(kept) == 1


@pytest.mark.slow
def test_forgetting_gives_mappings_back(
    kept: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps, limit = Path("/proc/self/maps"), tmp_path / "max_map_count"
    if not maps.exists():
        pytest.skip("the system does not count mappings")
    for size in range(10, 20):
        compilation.compile_once(double, jnp.arange(float(size)))
    before = len(maps.read_text().splitlines())
    limit.write_text("100\n")
    monkeypatch.setattr(compilation, "_LIMIT", limit)
    assert compilation.forget_when_crowded()
    assert len(maps.read_text().splitlines()) < before - 20
