"""Latency of policies to a caller in Python, and their first decision after loading: one JSON line
for each measurement, added to benchmarks/results/policy-cpuN.jsonl.

python benchmarks/policy.py [--agents "BEB GC, …"] [--decisions N] [--rounds R] [--first "BEB GC"]

Latency: `act` and `observe` in a loop, an empty compiled call, and the same decisions in one
compiled loop, in which nothing is dispatched, in turns. `overhead` is what the caller pays beside
the empty call and the computation. First decisions are those of new processes, whose imports are
apart: nothing kept, with programs from a compile cache, and with programs that `jax.export` has
written (the package `flatbuffers` is needed), without a cache and with one. Load averages stand in
each row.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export, lax

sys.path.insert(0, str(Path(__file__).parents[1]))

import jbrl
from benchmarks.kept import keep, parser
from jbrl.agents.registry import AGENTS as REGISTER
from jbrl.play import compilation, stepping
from jbrl.play.stepping import Latency, Stepping
from jbrl.policy import Policy

AGENTS = (
    "Random GC, e-Greedy GC, BEB GC, PSRL GC, Look-ahead GC, BAMCP GC, BeliefPPO GC, DQN CartPole, "
    "PPO CartPole, Sarsa-lambda CartPole"
)
FIRST = "BEB GC, DQN CartPole"
BUDGETS = {"BeliefPPO": {"budget": 1024}}  # what is decided takes as long as after a long training
FIRST_DECISION = """
import sys, time
started = time.perf_counter()
import jax, jbrl, numpy as np
from jax import export
from pathlib import Path
imported = time.perf_counter()
folder, cache, exported = sys.argv[1:4]
policy = jbrl.load_policy(folder, compile_cache=cache or None)
seen = policy.player.spec.observation
zero = 0 if not seen.shape else np.zeros(seen.shape, seen.dtype)
loaded = time.perf_counter()
if exported:
    from jbrl.play.stepping import Stepping
    begin, step = (export.deserialize(Path(exported, n).read_bytes()) for n in ("begin", "step"))
    data = jax.device_put([jax.random.key_data(v) if jax.dtypes.issubdtype(v.dtype,
        jax.dtypes.prng_key) else v for v in jax.tree.leaves(policy.player)])
    words = np.array([0, 0, 0], np.uint32)
    life, action = jax.jit(begin.call)(data, words, np.asarray(zero, seen.dtype))
    action.item()
    first = time.perf_counter()
    box = bool(seen.shape)
    more = np.zeros(2 if box else 4, np.int32), (zero, zero) if box else ()
    jax.jit(step.call, donate_argnums=1)(data, life, *more)[1].item()
else:
    life = policy.start()
    life.act(zero)
    first = time.perf_counter()
    life.observe(0.0, zero)
    life.act(zero)
done = time.perf_counter()
print(imported - started, loaded - imported, first - loaded, done - first)
"""


def made(name: str) -> Policy:
    """Return the policy of an agent and a problem, by their names."""
    agent, problem = name.split()
    parameters: Any = BUDGETS.get(agent, {})
    return jbrl.policy(REGISTER[agent].agent(**parameters), problem)


def computed(policy: Policy, decisions: int) -> float:
    """Return the seconds of a decision in one compiled loop, on the outcomes of a lifetime that is
    played first.
    """
    draw, player = stepping._drawn(policy.prior, None), policy.player
    life, outcomes = Stepping(player, jax.random.key(0)), []
    seen, _ = draw(None, 0)
    for number in range(decisions):
        before = seen
        seen, outcome = draw(life.act(before), number)
        life.observe(*outcome)
        outcomes.append((before, *outcome))
    steps = jax.tree.map(lambda *v: np.stack(v), *outcomes)
    steps = jax.tree.map(lambda v: v.astype(np.float32 if v.dtype.kind == "f" else v.dtype), steps)
    steps = jax.tree.map(lambda v: v.astype(np.int32) if v.dtype == np.int64 else v, steps)

    def whole(player: Any, steps: Any) -> Any:
        def one(life: Any, step: Any) -> Any:
            action, life = player.act(life, step[0])
            return player.observe(life, *step[1:]), action

        return lax.scan(one, player.reset(jax.random.key(0)), steps)[1]

    run, best = jax.jit(whole), np.inf
    for _ in range(4):
        started = time.perf_counter()
        run(player, steps).block_until_ready()
        best = min(best, time.perf_counter() - started)
    return best / decisions


def latencies(name: str, decisions: int, rounds: int) -> dict[str, Any]:
    """Return medians over rounds, in microseconds, all measured in turns."""
    policy = made(name)
    found: list[Latency] = []
    computing = []
    for _ in range(rounds):
        found.append(policy.latency(decisions))
        computing.append(computed(policy, decisions))
    median, p99, empty = (
        1e6 * float(np.median([getattr(one, field) for one in found]))
        for field in ("median", "p99", "empty")
    )
    computation = 1e6 * float(np.median(computing))
    return {
        "policy": name,
        "decisions": decisions * rounds,
        "median": median,
        "p99": p99,
        "p99_least": 1e6 * min(one.p99 for one in found),
        "empty": empty,
        "computation": computation,
        # where a loop of one program is slower than calls, as with BAMCP, it says nothing
        "overhead": median - empty - computation if computation < median else None,
    }


def exported(policy: Policy, folder: Path) -> None:
    """Write the two programs of a policy as `jax.export` serialises them."""
    life = Stepping(policy.player, jax.random.key(0))
    player, layout = policy.player, stepping._Layout.of
    state = compilation.shapes_of(stepping._reset, player, jax.random.key(0))
    programs = stepping._Programs(layout(player), layout(state), player.spec, None)
    seen = np.zeros(life._seen.shape, life._seen.dtype)
    words, arrays = life._inputs((0, 0, seen), seen)
    start = (life._data, life._words, seen)
    follow = (life._data, life._leaves, words, arrays)
    for name, args in (("begin", start), ("step", follow)):
        one = export.export(jax.jit(getattr(programs, name)))(*args)
        (folder / name).write_bytes(one.serialize())


def first_decisions(name: str) -> list[dict[str, Any]]:
    """Return seconds of the parts of a first decision in new processes."""
    policy, rows = made(name), []
    with tempfile.TemporaryDirectory() as place:
        folder = policy.save(Path(place) / "policy", decisions=5)
        written = Path(place) / "exported"
        written.mkdir()
        exporting = importlib.util.find_spec("flatbuffers") is not None  # jax.export needs it
        if exporting:
            exported(policy, written)
        size = sum(file.stat().st_size for file in written.iterdir())
        caches = {kind: f"{place}/cache-{kind}" for kind in ("traced", "exported")}
        for case, cache, programs in (
            ("nothing kept", "", ""),
            ("compile cache, filled", caches["traced"], ""),
            ("compile cache", caches["traced"], ""),
            ("exported", "", str(written)),
            ("exported, compile cache filled", caches["exported"], str(written)),
            ("exported, compile cache", caches["exported"], str(written)),
        ):
            if programs and not exporting:
                continue
            command = [sys.executable, "-c", FIRST_DECISION, str(folder), cache, programs]
            kept = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=kept)
            imports, loading, first, second = map(float, done.stdout.split())
            rows.append(
                {
                    "policy": name,
                    "case": case,
                    "imports": imports,
                    "loading": loading,
                    "first": first,
                    "second": second,
                    "exported_bytes": size if programs else 0,
                }
            )
    return rows


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__ or "", "policy")
    options.add_argument("--agents", default=AGENTS, help="agent and problem, separated by commas")
    options.add_argument("--first", default=FIRST, help="those whose first decision is measured")
    options.add_argument("--decisions", type=int, default=1000, help="of a round")
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    for name in filter(None, map(str.strip, given.agents.split(","))):
        row = latencies(name, given.decisions, given.rounds)
        keep({**row, "load": os.getloadavg()[0]}, given.out)
    for name in filter(None, map(str.strip, given.first.split(","))):
        for row in first_decisions(name):
            keep({**row, "load": os.getloadavg()[0]}, given.out)


if __name__ == "__main__":
    main()
