"""Programs are compiled in full or quickly with the same bits, forgotten before a process runs out
of memory mappings, and kept on disk for the next process.
"""

import functools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Steps
from jbrl.play import compilation, compile_cache, executables, experiment, machine
from jbrl.play.experiment import Run
from jbrl.play.play import play
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from tests.terminal import output_of


def double(x: jax.Array) -> jax.Array:
    return x + x


def scaled(x: jax.Array, by: float, unused: dict) -> dict:
    """Use the first two arguments alone."""
    return {"scaled": x * by, "same": x}


def tripled(x: jax.Array, by: float, unused: jax.Array) -> dict:
    return {"scaled": x * by, "same": x}


def moved(table: np.ndarray) -> Callable[..., dict]:
    return lambda x, by, unused: {"scaled": x * by + table, "same": x}


def constant(unused: jax.Array) -> jax.Array:
    return jnp.float32(3)


TABLE = np.arange(3, dtype=np.float32)


@pytest.fixture
def kept(monkeypatch):
    """Return an empty register of programs."""
    register: dict = {}
    monkeypatch.setattr(compilation, "KEPT", register)
    return register


def test_programs_are_kept_until_mappings_run_short(kept, tmp_path, monkeypatch):
    forgotten: list[bool] = []
    monkeypatch.setattr(jax, "clear_caches", lambda: forgotten.append(True))
    limit = tmp_path / "max_map_count"
    limit.write_text("1000000000\n")
    monkeypatch.setattr(compilation, "_LIMIT", limit)
    program = compilation.compile_once(double, jnp.arange(3.0))
    assert not compilation.forget_when_crowded()
    assert kept and not forgotten
    limit.write_text("100\n")
    assert compilation.forget_when_crowded(), "a process with JAX has more than 50"
    assert not kept and forgotten
    np.testing.assert_array_equal(program.call(jnp.arange(3.0)), [0, 2, 4])
    assert compilation.compile_once(double, jnp.arange(3.0)).fresh


def test_systems_that_do_not_count_mappings(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "_LIMIT", tmp_path / "none")
    compilation.compile_once(double, jnp.arange(3.0))
    assert not compilation.forget_when_crowded()
    assert kept


@pytest.mark.slow
def test_forgetting_gives_mappings_back(kept, tmp_path, monkeypatch):
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


def test_functions_of_the_same_operations_share_a_program(kept, monkeypatch):
    compiled: list[int] = []
    monkeypatch.setattr(compilation, "_bytes", lambda _: compiled.append(1) or 0)
    x, by = jnp.arange(3.0), jnp.float32(2)
    first = compilation.compile_once(scaled, x, by, {"a": jnp.zeros(4), "b": jnp.ones(2)})
    second = compilation.compile_once(tripled, x, by, jnp.zeros(7))
    assert len(compiled) == 1
    for program, unused in ((first, {"a": x, "b": by}), (second, by)):
        found = program.call(x + 1, jnp.float32(3), unused)
        np.testing.assert_array_equal(found["scaled"], [3, 6, 9])
        np.testing.assert_array_equal(found["same"], [1, 2, 3])
    again = compilation.compile_once(tripled, x, by, jnp.zeros(7))
    assert again.call is second.call and not again.fresh and len(compiled) == 1
    # other operations, other shapes, another constant
    moved_once = compilation.compile_once(moved(TABLE), x, by, jnp.zeros(7))
    compilation.compile_once(scaled, jnp.arange(4.0), by, {})
    assert len(compiled) == 3
    reversed_once = compilation.compile_once(moved(TABLE[::-1]), x, by, jnp.zeros(7))
    assert len(compiled) == 4
    for program, expected in ((moved_once, [0, 3, 6]), (reversed_once, [2, 3, 4])):
        np.testing.assert_array_equal(program.call(x, by, x)["scaled"], expected)


def test_a_function_that_uses_no_argument_runs_on_their_device(kept):
    device = jax.devices()[-1]
    program = compilation.compile_once(constant, jax.device_put(jnp.zeros(2), device))
    found = program.call(jax.device_put(jnp.ones(2), device))
    assert found == 3 and found.devices() == {device}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Q-learning", {}),
        pytest.param("e-Greedy", {"epsilon": 0.1}, marks=pytest.mark.slow),
        pytest.param("Soft-max", {}, marks=pytest.mark.slow),
        pytest.param("BAMCP", {"simulations": 3}, marks=pytest.mark.slow),
        pytest.param("SBOSS", {"epsilon": 0.1}, marks=pytest.mark.slow),
        pytest.param("DQN", {}, marks=pytest.mark.slow),
    ],
)
def test_quick_programs_give_the_bits_of_full_ones(kept, name, parameters):
    protocol = Protocol(problem("GC"), problem("GC"), 20, 0, Steps(40))
    played, efforts = [], get_args(compilation.Effort)
    for effort in efforts:
        with compilation.compiling(effort):
            run = Run(AGENTS[name].agent(**parameters), protocol, record=True)
            run.prepare()
            played.append(next(run.chunks()))
    assert {key[0] for key in kept} == {"full", "quick"}
    full, quick = played
    np.testing.assert_array_equal(full.returns, quick.returns)
    assert full.trajectories is not None and quick.trajectories is not None
    for part, values in full.trajectories.items():
        np.testing.assert_array_equal(values, quick.trajectories[part])


def test_what_no_clock_measures_is_always_compiled_quickly(kept):
    protocol = Protocol(problem("GC"), problem("GC"), 2, 0, Steps(2))
    with compilation.compiling("full"):
        Run(AGENTS["Random"].agent(), protocol).prepare()
    efforts = {key[1]: key[0] for key in kept if callable(key[1])}
    assert efforts == {experiment._draw_unit: "quick", experiment._play: "full"}


@pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])
def test_who_gives_up_does_not_wait_for_the_compiler(error):
    end, looks = threading.Event(), iter([None, error])

    def check() -> None:
        if wrong := next(looks):
            raise wrong

    def compiled() -> compilation.Program:
        assert end.wait(60)
        return compilation.Program(double, 1, fresh=True)

    with pytest.raises(error), compilation.waiting_while(check):
        compilation.compile_together(None, compiled)
    assert any(one.name.startswith("compiling") for one in threading.enumerate())
    end.set()
    with compilation.waiting_while(lambda: None):
        (program, nothing), _ = compilation.compile_together(compiled, None)
    assert program.call is double and nothing is None


def test_the_effort_holds_within_its_block(monkeypatch):
    monkeypatch.delenv("JBRL_COMPILE", raising=False)
    assert compilation.options_name("cpu") == "full"
    with pytest.raises(KeyError), compilation.compiling("quick"):
        assert compilation.options_name("cpu") == "quick"
        assert compilation.options_name("gpu") == "quick"
        assert compilation.options_name("tpu") == ""
        with compilation.compiling(None):
            assert compilation.options_name("cpu") == "quick"
        raise KeyError
    assert compilation.options_name("cpu") == "full"
    monkeypatch.setenv("JBRL_COMPILE", "quick")
    assert compilation.options_name("cpu") == "quick"
    with compilation.compiling("full"):
        assert compilation.options_name("cpu") == "full"
    monkeypatch.setenv("JBRL_COMPILE", "fast")
    with pytest.raises(JbrlError, match='JBRL_COMPILE = \'fast\': expected "full" or "quick"'):
        compilation.present_effort()


PLAYED = {"prior": "GC", "n_environments": 8, "horizon": 12}
# The second compiled as native code, drawing and training as any other.
CACHED = [
    ("Q-learning", {}),
    pytest.param("BAMCP", {"simulations": 20, "depth": 6}, marks=pytest.mark.slow),
]

# Prints what a process has seen of the cache.
PROGRAM = """
import json, sys
import jax
from jbrl.agents.registry import AGENTS
from jbrl.play import compilation, compile_cache
from jbrl.play.play import play

events, lowered, bytes_of = [], [], compilation._bytes
compilation._bytes = lambda program: lowered.append(program) or bytes_of(program)
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
compile_cache.use(sys.argv[1])
name, parameters, rules = json.loads(sys.argv[2])
played = play(AGENTS[name].agent(**parameters), **rules)
counts = {"misses": events.count("cache_misses"), "lowered": len(lowered)}
print(json.dumps({**counts, "returns": played.returns.tobytes().hex(), "seconds": played.compile_seconds}))
"""  # noqa: E501


def process(cache: Path, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    given = cache, json.dumps([name, parameters, PLAYED])
    return json.loads(output_of(sys.executable, "-c", PROGRAM, *given))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), CACHED, ids=["table", "search"])
def test_the_next_process_finds_all_programs_and_gets_the_same_bits(tmp_path, name, parameters):
    first, second = (process(tmp_path, name, parameters) for _ in range(2))
    kept = compile_cache.state(tmp_path)
    # two that are the same program may be compiled side by side
    assert first["misses"] > 2 and kept.programs > 2 and first["lowered"] > 1
    assert second["misses"] == 0 and second["lowered"] == 0
    without = play(AGENTS[name].agent(**parameters), **PLAYED).returns.tobytes().hex()
    assert without == first["returns"] == second["returns"]
    assert second["seconds"] < 0.8 * first["seconds"]  # a quarter, where it was measured


def other_processor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compile_cache, "processor", lambda: "another")


def other_features(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compile_cache, "processor_features", lambda: ("sse2",))


def other_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compile_cache, "versions", lambda: {**machine.versions(), "jaxlib": "9.9.9"})


@pytest.mark.parametrize("change", [other_processor, other_features, other_version])
def test_another_processor_or_version_has_another_folder(change, tmp_path, monkeypatch):
    before = compile_cache.folder(tmp_path)
    assert compile_cache.folder(tmp_path) == before
    change(monkeypatch)
    assert compile_cache.folder(tmp_path) != before


def test_a_processor_that_tells_nothing_shares_with_no_other_host(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "processor_features", lambda: ())
    names = []
    for host in ("one", "two"):
        monkeypatch.setattr(compile_cache.platform, "node", lambda host=host: host)
        names.append(compile_cache.folder(tmp_path))
    assert names[0] != names[1]


def filled(root: Path) -> tuple[Path, Path]:
    """A cache with one whole and one half-written program, one of another version, and what belongs
    to nobody.
    """
    mine, other = compile_cache.folder(root), root / "jbrl-0.0.1-jax-0.9-jaxlib-0.9-0123456789ab"
    for folder in (mine, other, root / "mine"):
        folder.mkdir(parents=True)
    whole = compile_cache.zlib.compress(bytes(1000))
    (mine / "jit_a-1-cache").write_bytes(whole)
    (mine / "jit_b-2-cache").write_bytes(whole[:-3])
    (other / "jit_c-3-cache").write_bytes(b"12345")
    (root / "mine" / "thesis").write_text("do not lose")
    return mine, other


def test_what_is_there_is_told_and_cleared_and_nothing_else(tmp_path):
    mine, other = filled(tmp_path)
    size = sum(file.stat().st_size for file in mine.iterdir())
    assert compile_cache.state(tmp_path) == compile_cache.CacheState(2, size, 1, 1, 5)
    assert compile_cache.clear(tmp_path) == size + 5
    assert not mine.exists() and not other.exists()
    assert (tmp_path / "mine" / "thesis").read_text() == "do not lose"
    assert compile_cache.state(tmp_path) == compile_cache.CacheState(0, 0, 0, 0, 0)
    assert compile_cache.clear(tmp_path / "nowhere") == 0


def test_auto_is_in_the_users_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile_cache.place("auto") == tmp_path / "jbrl" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert compile_cache.place("auto") == tmp_path / "home" / ".cache" / "jbrl" / "compiled"


def test_what_others_may_write_to_is_refused(tmp_path, monkeypatch):
    where, asked = tmp_path / "new" / "kept", {}
    found = compile_cache.folder(where)
    monkeypatch.setattr(jax.config, "update", asked.__setitem__)
    monkeypatch.setattr(executables, "use", functools.partial(asked.__setitem__, "executables"))
    for _ in range(2):
        assert compile_cache.use(where) == found and found.stat().st_mode & 0o777 == 0o700
    least = {"min_compile_time_secs": 0.0, "min_entry_size_bytes": -1}  # all programs are kept
    told = {f"jax_persistent_cache_{name}": value for name, value in least.items()}
    assert asked == {"jax_compilation_cache_dir": str(found), "executables": found} | told
    for mode in (0o720, 0o702):
        found.chmod(mode)
        with pytest.raises(JbrlError, match="others may write to it"):
            compile_cache.use(where)


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JbrlError, match="cannot be made"):
        compile_cache.use(tmp_path / "file")
