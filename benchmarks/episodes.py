"""The episode driver: steps a second, memory for any number of steps, and what one long lifetime
costs among many short ones.

python benchmarks/episodes.py [--environments N] [--repeat R] [--out FILE]

Prints one JSON line per measurement and adds it to FILE (default:
benchmarks/results/episodes-cpu2.jsonl). Steps are those that count; the recorder is on; compilation
is apart. Each figure is the median of R runs, with the least and the greatest beside it.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jbrl  # noqa: E402
from jbrl.environments.environment import as_arrays  # noqa: E402
from jbrl.mdp.sampling import stream  # noqa: E402
from jbrl.play.batching import use_all_cores  # noqa: E402
from jbrl.play.machine import machine, versions  # noqa: E402
from jbrl.play.play import make_run  # noqa: E402
from jbrl.play.protocol import Protocol  # noqa: E402
from jbrl.problems.problem import EnvironmentProblem  # noqa: E402

# Agent, problem, lifetime, steps a second wanted on two cores.
RATES = (
    ("Random", "DeepSea(size=10)", jbrl.Episodes(4000), 15e6),
    ("Random", "Chain-10s", jbrl.Episodes(400), 15e6),
    ("Random", "MountainCar", jbrl.Episodes(4), 10e6),
    ("Random", "CartPole", jbrl.Episodes(400), None),
    ("Random", "Acrobot", jbrl.Episodes(2), None),
    ("Random", "Pinball-empty", jbrl.Episodes(4), None),
    ("Random", "Pinball-medium", jbrl.Episodes(4), None),
    ("Random", "Pinball-single", jbrl.Episodes(4), None),
    ("Sarsa", "Gridworld-10s", jbrl.Episodes(100), 2e6),
    ("Q-learning", "Gridworld-10s", jbrl.Episodes(100), None),
)
LONG = 100  # times as long as the others is one of 64 lifetimes


@jbrl.record
class Errand(jbrl.Environment, jbrl.Perturbed):
    """Episodes of `steps` steps, one lifetime in 64 having them `LONG` times as long."""

    lifetime: ClassVar[jbrl.Steps | jbrl.Episodes] = jbrl.Episodes(20, 10**9)

    steps: int = 100
    rare: float = 1 / 64

    @property
    def spec(self) -> jbrl.Spec:
        return jbrl.Spec(jbrl.Discrete(1), jbrl.Discrete(2))

    def perturb(self, key: Any) -> "Errand":
        long = jbrl.sampling.uniforms(key)[0] < self.rare
        return Errand(jnp.where(long, LONG * self.steps, self.steps), self.rare)

    def reset(self, key: Any) -> tuple[Any, Any]:
        return jnp.int32(0), jnp.int32(0)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, jbrl.Step]:
        ended = state + 1 >= self.steps
        return state + 1, jbrl.Step(jnp.int32(0), jnp.float32(-1), ended, jnp.bool_(False))


def run_of(agent: str, problem: Any, n: int, lifetime: Any, seed: int = 0) -> Any:
    run = make_run(jbrl.AGENTS[agent].agent(), Protocol(problem, problem, n, seed, lifetime))
    run.prepare()
    return run


def seconds_and_steps(run: Any) -> tuple[float, int]:
    chunks = list(run.chunks())
    return sum(c.online_seconds for c in chunks), sum(c.decisions for c in chunks)


def spread(values: list[float], digits: int = 3) -> dict[str, float]:
    return {
        name: float(f"{fn(values):.{digits}g}")
        for name, fn in (("median", statistics.median), ("least", min), ("greatest", max))
    }


def rates(n: int, repeat: int) -> Iterator[dict[str, Any]]:
    """Measure steps per second."""
    for agent, name, lifetime, wanted in RATES:
        run = run_of(agent, jbrl.problem(name), n, lifetime)
        found = [
            steps / seconds for seconds, steps in (seconds_and_steps(run) for _ in range(repeat))
        ]
        facts = {
            "measured": "steps a second",
            "agent": agent,
            "problem": name,
            "environments": n,
            "wanted": wanted,
        }
        yield {
            **facts,
            **spread(found),
            "compile_seconds": round(run.compile_seconds, 2),
            "group": run.scheduler.width,
        }


def resident_bytes() -> int:
    """Return the memory that this process holds; of Linux."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory() -> Iterator[dict[str, Any]]:
    """Measure bytes of the program and of the process, for lifetimes of 10^4 and 10^6 steps in 256
    lanes.
    """
    found = {}
    for steps in (10**4, 10**6):
        run = run_of("Sarsa", jbrl.problem("Gridworld-10s"), 256, jbrl.Steps(steps))
        before = resident_bytes()
        _, played = seconds_and_steps(run)
        assert played == 256 * steps
        found[steps] = {
            "program_bytes": run.bytes_per_device,
            "grown_mib": round(max(0, resident_bytes() - before) / 2**20, 1),
        }
    yield {
        "measured": "memory",
        "agent": "Sarsa",
        "problem": "Gridworld-10s",
        "environments": 256,
        "by_steps": found,
    }


def compaction(repeat: int) -> Iterator[dict[str, Any]]:
    """Time 64 lifetimes of which one is 100 times longer than the rest, beside that one alone, in
    turns.
    """
    environment = as_arrays(Errand())
    seed = next(s for s in range(10**4) if _long(environment, s) == [0])
    problem = EnvironmentProblem("Errand", "Errand", environment=Errand(), lifetime=Errand.lifetime)
    many, one = (run_of("Q-learning", problem, n, Errand.lifetime, seed) for n in (64, 1))
    pairs = [(seconds_and_steps(many), seconds_and_steps(one)) for _ in range(repeat)]
    ratios = [a[0] / b[0] for a, b in pairs]
    what = "64 lifetimes, one 100 times longer, beside that one alone"
    yield {"measured": what, "wanted": 1.3, **spread(ratios), "steps": pairs[0][0][1]}


def _long(environment: Errand, seed: int) -> list[int]:
    drawn = jax.vmap(lambda i: environment.perturb(stream(jax.random.key(seed), i, "mdp")).steps)(
        jnp.arange(64, dtype=jnp.int32)
    )
    return np.flatnonzero(np.asarray(drawn) > environment.steps).tolist()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--environments", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results" / "episodes-cpu2.jsonl"
    )
    chosen = parser.parse_args()
    use_all_cores()
    parts: tuple[Callable[[], Iterator[dict[str, Any]]], ...] = (
        lambda: rates(chosen.environments, chosen.repeat),
        memory,
        lambda: compaction(chosen.repeat),
    )
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
    }
    with chosen.out.open("a") as file:
        for part in parts:
            for row in part():
                print(json.dumps(row), flush=True)
                file.write(json.dumps({**row, **about}) + "\n")


if __name__ == "__main__":
    main()
