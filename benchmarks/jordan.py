"""Time of a decision of the complete algorithms with linear functions, on the environments of
Jordan et al. 2020.

python benchmarks/jordan.py [--agents NAME …] [--problems NAME …] [--orders D …] [--rounds R]
python benchmarks/jordan.py --tables

Prints JSON lines, which it adds to benchmarks/results/jordan-cpu2.jsonl (cpu2: two cores);
`--tables` makes the table of docs/agents/complete-linear.md of the latest ones.

Each case plays blocks of episodes as studies do (`jbrl.rollout.episodes`), compiled as studies
compile and in groups as wide as theirs, on one core. Times are processor time after compilation, in
which waiting for other programs does not count; the least of several rounds counts. What Random
takes with as many lanes is subtracted: environment, driver and recorder. Beside it stands the time
in which one core reads all weights and traces once and writes them once, by a loop over arrays
of the same total size; and where features are cosines, the limit: that, and the time in which one
core computes a cosine for each feature.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks import kept
from jbrl.agents.linear.features import cosine_of_pi
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import MAX_COUNT
from jbrl.environments.spec import Box, Episodes
from jbrl.play import batching
from jbrl.play.lifetimes import GROUP_BYTES, NARROWEST
from jbrl.problems.lookup import problem
from jbrl.rollout import episodes
from jbrl.rollout.contract import as_arrays

AGENT_NAMES = (
    "Sarsa-lambda",
    "Sarsa-Parl2",
    "Q-lambda",
    "Q-Parl2",
    "AC",
    "AC-Parl2",
    "NAC-TD",
    "PPO-linear",
)
PROBLEMS = (  # one of each kind: slips and maps change little of a step
    "Chain-10s",
    "Chain-50s",
    "Gridworld-5s",
    "Gridworld-10s",
    "MountainCar",
    "CartPole",
    "Acrobot",
    "Pinball-single",
)
KEYS = ("agent", "problem", "order")
LANE_STEPS = 2**17  # of all lanes in a call, about
GREATEST = 9  # order of a Fourier basis
COPIES = 64  # of the arrays in a call that measures memory


def play(shared: Any, index: jax.Array) -> jax.Array:
    """Play the first blocks of a lifetime that is not over by then; return the decisions
    that count.
    """
    rules, prior, blocks = shared
    begun = episodes.begin(rules, prior, index)
    return lax.fori_loop(0, blocks, lambda _, lane: episodes.advance(rules, lane), begun).steps


class Case:
    """An agent on a problem.

    Args:
      order: of the Fourier basis of all lanes; None: what each draws.
    """

    def __init__(self, name: str, problem_name: str, order: int | None) -> None:
        self.problem: Any = problem(problem_name)
        box = isinstance(self.problem.spec.observation, Box)
        fixed = {} if order is None or not box or name == "Random" else _orders(order)
        self.agent: Any = as_arrays(AGENTS[name].agent(**fixed))
        self.lifetime = Episodes(MAX_COUNT)
        self.prior = self.problem.prior(self.lifetime, 0.95)

    def floats(self) -> tuple[int, int]:
        """Return the numbers of weights and traces of a lane, and the bytes of its state."""
        state = jax.eval_shape(self.agent.reset, jax.random.key(0), self.prior)
        leaves = jax.tree.leaves(state)
        large = sum(math.prod(v.shape) for v in leaves if v.dtype == jnp.float32 and v.ndim == 2)
        return large, sum(math.prod(v.shape) * v.dtype.itemsize for v in leaves)

    def features(self) -> int:
        """Return the number of cosines of a lane; 0 where features are looked up."""
        if not isinstance(self.problem.spec.observation, Box):
            return 0
        return int(self.agent.features(self.prior).capacity)

    def width(self) -> int:
        """Return the lanes of a group, about as `LifetimeRun` has it."""
        fitting = 1 << (max(1, GROUP_BYTES // self.floats()[1]).bit_length() - 1)
        return min(self.agent.lanes, max(NARROWEST, fitting))

    def seconds(self, width: int, rounds: int) -> float:
        """Measure the processor seconds of a decision of `width` lanes."""
        rules = episodes.Rules(
            self.agent,
            self.problem.environment,
            self.problem.recorder,
            jax.random.key(0),
            self.lifetime,
        )
        blocks = max(1, LANE_STEPS // (width * episodes.BLOCK))
        given = jax.tree.map(jnp.asarray, (rules, self.prior, jnp.int32(blocks)))
        shared = jax.tree.map(lambda v: v[None], given)
        indices = jnp.arange(width, dtype=jnp.int32)
        rows = (shared, indices)
        one, lane = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), rows)
        call = batching.compile_mapped(play, one, lane, width, jax.devices()[:1]).call
        return least(lambda: call(shared, indices), rounds) / (width * blocks * episodes.BLOCK)


def _orders(order: int) -> dict[str, int]:
    return {f"dependent_{end}": order for end in ("low", "high")} | {
        f"independent_{end}": max(1, order) for end in ("low", "high")
    }


def copied(shared: Any, count: jax.Array) -> jax.Array:
    """Read and write an array `count` times."""
    return lax.fori_loop(0, count, lambda _, v: v * 0.999 + 1e-3, shared)


def loop_seconds(fn: Callable, numbers: int, rounds: int) -> float:
    """Measure the processor seconds of `copied` or `cosines` for so many numbers of float32."""
    array = jnp.ones(numbers, jnp.float32)
    call = jax.jit(fn)
    return least(lambda: call(array, jnp.int32(COPIES)), rounds) / COPIES


def cosines(shared: Any, count: jax.Array) -> jax.Array:
    """Compute the cosine of each entry of an array `count` times."""
    return lax.fori_loop(0, count, lambda _, v: 9 * cosine_of_pi(v), shared)


def least(call: Callable[[], jax.Array], rounds: int) -> float:
    """Return the least processor seconds of a call after the first."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        jax.block_until_ready(call())
        seconds.append(time.process_time() - started)
    return min(seconds)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__, "jordan")
    parser.add_argument("--agents", nargs="+", default=AGENT_NAMES, metavar="NAME")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, metavar="NAME")
    parser.add_argument(
        "--orders", nargs="+", type=int, default=[GREATEST], help="of Fourier bases; -1: drawn"
    )
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    if chosen.tables:
        write_table(kept.latest(chosen.out, KEYS))
        return
    jax.config.update("jax_platforms", "cpu")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in chosen.problems:
        for order in chosen.orders:
            for agent in chosen.agents:
                kept.keep(measured(agent, name, order, chosen.rounds), chosen.out)


def write_table(found: dict[tuple, dict[str, Any]]) -> None:
    """Write the table of one algorithm on all environments."""
    rows = [found[AGENT_NAMES[0], name, GREATEST] for name in PROBLEMS]
    lines = []
    for row in rows:
        numbers = row["weights_and_traces"]
        limit = numbers * row["limit_nanoseconds_per_number"] / 1e3
        lines.append(
            [
                row["problem"],
                f"{numbers:,}",
                kept.number(row["microseconds"]),
                kept.number(row["without_learning"]),
                kept.number(limit),
                f"{row['times_the_limit']:.1f}",
            ]
        )
    header = ["", "weights and traces", "µs", "without learning", "limit, µs", "times the limit"]
    kept.write("jordan", rows, kept.table(header, lines))


def measured(agent: str, name: str, order: int, rounds: int) -> dict[str, Any]:
    """Return one line of results."""
    case = Case(agent, name, None if order < 0 else order)
    width, (numbers, _) = case.width(), case.floats()
    without = Case("Random", name, None).seconds(width, rounds)
    seconds = case.seconds(width, rounds)
    copying = loop_seconds(copied, numbers * width, rounds) / width
    learning, features = seconds - without, case.features()
    limit = copying + (loop_seconds(cosines, features * width, rounds) / width if features else 0)
    return {
        "agent": agent,
        "problem": name,
        "order": "drawn" if order < 0 else order,
        "weights_and_traces": numbers,
        "lanes": width,
        "microseconds": round(1e6 * seconds, 3),
        "without_learning": round(1e6 * without, 3),
        "nanoseconds_per_number": round(1e9 * learning / numbers, 3),
        "copying_nanoseconds_per_number": round(1e9 * copying / numbers, 3),
        "limit_nanoseconds_per_number": round(1e9 * limit / numbers, 3),
        "times_the_limit": round(learning / limit, 1),
    }


if __name__ == "__main__":
    main()
