"""Programs kept on disk: found again by the next process, the same to the last bit, and never taken
from another machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.play import compile_cache, machine
from jbrl.play.play import play

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
from jbrl.play import compile_cache
from jbrl.play.play import play

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
compile_cache.use(sys.argv[1])
name, parameters, rules = json.loads(sys.argv[2])
played = play(AGENTS[name].agent(**parameters), **rules)
counts = {name: events.count("cache_" + name) for name in ("hits", "misses")}
print(json.dumps({**counts, "returns": played.returns.tobytes().hex(), "seconds": played.compile_seconds}))
"""  # noqa: E501


def process(cache: Path, name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cache), json.dumps([name, parameters, PLAYED])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), CACHED, ids=["table", "search"])
def test_the_next_process_finds_all_programs_and_gets_the_same_bits(tmp_path, name, parameters):
    first, second = (process(tmp_path, name, parameters) for _ in range(2))
    kept = compile_cache.state(tmp_path)
    # two that are the same program may be compiled side by side
    assert first["misses"] >= kept.programs > 2
    assert second["misses"] == 0 and second["hits"] >= kept.programs
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


def test_what_others_may_write_to_is_refused(tmp_path):
    found = compile_cache.folder(tmp_path)
    found.mkdir(mode=0o700)
    found.chmod(0o777)
    with pytest.raises(JbrlError, match="others may write to it"):
        compile_cache.use(tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(JbrlError, match="cannot be made"):
        compile_cache.use(tmp_path / "file")
