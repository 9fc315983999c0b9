"""Executables from the disk are those that would be compiled: each ingredient of a key changes it,
what has no safe name has no key, and what is damaged or writable by others is not read.
"""

import dataclasses
import functools
import os
import pickle
import secrets
import sys
import time
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Episodes, Steps
from jbrl.play import compilation, executables, machine
from jbrl.play.experiment import _draw, _draw_unit, _play
from jbrl.play.stepping import Player
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Agent
from tests.terminal import output_of

X = jnp.arange(4.0)
SALT = float(secrets.randbits(23))  # JAX's cache has none of these programs from an earlier run
BOUND = types.MethodType(lambda x: x, X)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of executables, with nothing kept in the process."""
    monkeypatch.setattr(compilation, "KEPT", {})
    monkeypatch.setattr(compilation, "_shapes", {})
    monkeypatch.setattr(executables, "_FIRST_READ", time.time() + 60)
    executables.use(tmp_path)
    yield tmp_path
    executables.use(None)


def identity(*args: Any, fn: Any = _play, sizes: tuple[int, int] = (1, 1)) -> Any:
    return compilation.identity_of(fn, args, jax.devices()[:1], sizes)


def flag(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")


def version(patch: pytest.MonkeyPatch, package: str) -> None:
    patch.setattr(executables, "versions", lambda: {**machine.versions(), package: "9.9.9"})


def source(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executables, "sources", lambda: "0" * 64)


def setting(patch: pytest.MonkeyPatch) -> None:
    values = {**jax.config.values, "jax_default_matmul_precision": "highest"}
    patch.setattr(type(jax.config), "values", values)


AROUND = {
    "source": source,
    "flags": flag,
    "setting": setting,
    **{name: functools.partial(version, package=name) for name in ("jax", "jaxlib", "numpy")},
}


@pytest.mark.parametrize("change", AROUND.values(), ids=AROUND)
def test_what_surrounds_a_program_is_in_its_key(change, monkeypatch):
    before = executables.key(identity(X))
    assert before is not None and before == executables.key(identity(X + 1)), "values are arguments"
    change(monkeypatch)
    assert executables.key(identity(X)) not in (before, None)


def test_double_precision_and_sources_are_in_a_key(tmp_path, monkeypatch):
    before = executables.key(())
    with jax.enable_x64(True):
        assert executables.key(()) != before
    (tmp_path / "a.py").write_text("1")
    monkeypatch.setattr(executables, "_PACKAGE", tmp_path)
    found = set()
    for name, text in (("a.py", "1"), ("a.py", "2"), ("b.py", "2"), ("b.json", "")):
        (tmp_path / name).write_text(text)
        executables._files.cache_clear()
        found.add(executables.sources.__wrapped__())
    executables._files.cache_clear()
    assert len(found) == 4


def agent(**parameters: Any) -> Agent:
    return AGENTS["BAMCP"].agent(**parameters)


def different() -> list[Any]:
    """Return identities of programs of which no two are the same."""
    beb, bamcp = AGENTS["BEB"].agent(), agent(simulations=2)
    keys = jax.random.key(0), jax.random.key(0, impl="rbg")
    return [
        *(identity(X, fn=fn) for fn in (_play, _draw, _draw_unit, compilation.shapes_of)),
        *(identity(X, sizes=sizes) for sizes in ((2, 1), (1, 2))),
        *(identity(v) for v in (X[:2], X[None], X > 0, X.astype(jnp.int32), 1.0, keys[0], keys[1])),
        *(identity(v) for v in ((X, X), [X, X], {"a": X, "b": X}, {"a": X, "c": X}, ((X,), X))),
        *(identity(v) for v in (None, (None,), (X, None), beb, bamcp, agent(simulations=3))),
        compilation.identity_of(_play, (X,), jax.devices()[1:2], (1, 1)),
        *(identity(X)[1:], ("full", *identity(X)), ("quick", *identity(X))),
        *((identity(X), {"xla_flag": value}) for value in (True, "True", 1, 1.0, "1")),
        *(0.0, -0.0, float("nan"), 0, False, "", "0", b"0", (), [], {}, ..., ((),), (1, (2,))),
        *((1, 2), ((1,), 2), (1, 2, None), ("a", "b"), ("ab",), np.float32(1), np.float64(1)),
        *(np.arange(2), np.arange(2)[None], np.arange(2, dtype=np.int8), np.dtype("f4"), float),
        *(Steps(3), Steps(4), Episodes(3), problem("GC").spec, problem("GDL").spec),
        *(functools.partial(_draw, 1), functools.partial(_draw, 2), Player.act, beb.act),
    ]


def test_no_two_programs_share_a_key():
    found = [executables.key(value) for value in different()]
    assert None not in found
    assert len(set(found)) == len(found)
    assert found == [executables.key(value) for value in different()]


@record
class Own(Agent):
    """An agent of the user's."""

    width: int = static(1)


@dataclasses.dataclass(frozen=True)
class Outside:
    """A record of the user's."""

    number: int = 0


class Derived(int):
    """A number that may behave as it likes."""


@pytest.mark.parametrize(
    "value",
    [Own(), Own, Outside(), Derived(1), different, agent, lambda x: x, BOUND, object(), {1}, os],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_of_jbrl_or_has_no_name_has_no_key(value):
    given = identity(value) if isinstance(value, Own) else value
    assert executables.key((1, given)) is None


def test_the_next_process_traces_nothing(folder, monkeypatch):
    """A process is what is left when programs in memory are forgotten."""
    calls: list[int] = []

    def lower() -> Any:
        calls.append(1)
        return jax.jit(lambda x, y: (x + y, y * SALT), donate_argnums=0).lower(X, X)

    found, devices = [], jax.devices()[:1]
    for _ in range(2):
        compilation.KEPT.clear()
        program = compilation.find_or_compile(identity(X, X), lower, devices, 3)
        given = X + 1
        found.append([np.asarray(v).tobytes() for v in program.call(given, X)])
        assert given.is_deleted() and program.lanes == 3 and program.fresh
    assert calls == [1] and found[0] == found[1]
    assert [file.suffix for file in folder.iterdir()] == [executables.SUFFIX]

    # what trains, and shapes: with no function to trace, they come from the disk
    learned = [compilation.compile_once(_negated, X, {"a": X, "b": None}).call(X, {"a": X, "b": X})]
    shapes = [compilation.shapes_of(_negated, jax.random.key(0), X)]
    compilation.KEPT.clear()
    compilation._shapes.clear()
    monkeypatch.setattr(jax, "jit", None)
    monkeypatch.setattr(jax, "eval_shape", None)
    learned += [compilation.compile_once(_negated, X, {"a": X, "b": None}).call(X, {"a": X})]
    shapes += [compilation.shapes_of(_negated, jax.random.key(0), X)]
    assert all((found["value"] == -X).all() for found in learned)
    assert shapes[0] == shapes[1]


def _negated(value: Any, other: Any) -> Any:
    plain = value if jnp.issubdtype(value.dtype, jnp.floating) else jax.random.key_data(value)
    return {"value": -plain, "same": value, "salt": jnp.float32(SALT)}


_negated.__module__ = executables.__name__  # as if it were of the package
executables._negated = _negated  # type: ignore[attr-defined]


def test_what_cannot_be_trusted_is_compiled_anew(folder):
    def play() -> np.ndarray:
        compilation.KEPT.clear()
        return np.asarray(compilation.compile_once(_negated, X[:2], 1.0).call(X[:2], 1.0)["value"])

    play()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    damaged = [b"", whole[:9], whole[:-1], whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]]
    for value in (pickle.dumps(((b"no program", None, None), 0, None)), b"no pickle"):
        packed = executables.zlib.compress(value)
        damaged.append(executables.hashlib.sha256(packed).digest() + packed)
    for content in damaged:
        file.write_bytes(content)
        with pytest.warns(UserWarning, match=r"\.program: cannot be used and is removed: \w+"):
            np.testing.assert_array_equal(play(), -X[:2])
        assert not file.exists(), "JAX's cache has the program: what that gives is not kept"
    file.write_bytes(whole)
    file.chmod(0o622)
    with pytest.warns(UserWarning, match="others may write to it: not read"):
        play()


def test_what_jax_has_kept_is_not_written_once_more(folder, monkeypatch):
    """Other sources give other keys to programs that JAX's cache has: those would not run."""
    for name in ("1" * 64, "2" * 64):
        monkeypatch.setattr(executables, "sources", lambda name=name: name)
        compilation.KEPT.clear()
        program = compilation.compile_once(_negated, X[:3], 2.0)
        assert program.keepable == (name == "1" * 64)
        np.testing.assert_array_equal(program.call(X[:3], 2.0)["value"], -X[:3])
        assert len(list(folder.iterdir())) == 1


def test_a_new_process_has_read_nothing_before_it_was_called():
    program = (
        "import time; first = time.time(); from jbrl.play import executables; "
        "print(executables._FIRST_READ, first)"
    )
    called = time.time()
    read, first = map(float, output_of(sys.executable, "-c", program).split())
    assert called - 0.1 < read < first


@pytest.mark.parametrize(
    "said",
    [OSError, "1 (sh) S", "1 (a b) S " + "9" * 40 + " 0" * 20, "1 (sh) S" + " 0" * 20],
    ids=["nothing", "too little", "another column", "a start long ago"],
)
def test_sources_are_taken_to_be_read_within_ten_seconds(said, monkeypatch):
    def read_text(path):
        if isinstance(said, str):
            return said
        raise said

    monkeypatch.setattr(Path, "read_text", read_text)
    assert time.time() - 11 < executables._first_read() < time.time() - 9


def test_sources_that_changed_after_they_were_imported_make_no_keys(folder, monkeypatch):
    monkeypatch.setattr(executables, "_FIRST_READ", 0.0)
    compilation.shapes_of(_negated, X, X)
    assert not list(folder.iterdir())
