"""Steps per second of the agents that learn action values in a table, on gridworlds: one JSON line
for each case.

python benchmarks/tabular.py [--agents NAME …] [--sizes N …] [--widths LANES …] [--rounds R]

Each case plays blocks of episodes as studies do (`jbrl.rollout.episodes`), compiled as studies
compile, on one core. Times are processor time after compilation, in which waiting for other
programs does not count; the least of several rounds counts. Agent, environment and recorder are
included: the agent Random shows what is left without learning.
"""

import argparse
import json
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

from jbrl.agents.registry import AGENTS
from jbrl.base.errors import MAX_COUNT
from jbrl.environments import environment as environments
from jbrl.environments.spec import Episodes
from jbrl.environments.walks import Gridworld
from jbrl.play import batching
from jbrl.problems.prior import EnvironmentPrior
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes
from jbrl.rollout.contract import as_arrays

AGENT_NAMES = ("Random", "Q-learning", "Sarsa")
SIZES = (5, 10, 50)  # of the gridworld: 25, 100 and 2500 states, 4 actions
WIDTHS = (16, 32, 64, 128, 256)
BLOCKS = 20
LANE_STEPS = 64 * BLOCKS * episodes.BLOCK  # of all lanes in a call, about


def play(shared: Any, index: jax.Array) -> jax.Array:
    """Play the first blocks of a lifetime that is not over by then; return the decisions
    that count.
    """
    rules, prior, blocks = shared
    begun = episodes.begin(rules, prior, index)
    return lax.fori_loop(0, blocks, lambda _, lane: episodes.advance(rules, lane), begun).steps


def steps_per_second(name: str, size: int, width: int, rounds: int) -> float:
    """Measure steps per second and core of `width` lanes."""
    world = environments.as_arrays(Gridworld(size=size))
    lifetime = Episodes(MAX_COUNT)
    rules = episodes.Rules(
        as_arrays(AGENTS[name].agent()), world, EpisodeMean(), jax.random.key(0), lifetime
    )
    blocks = max(1, LANE_STEPS // (width * episodes.BLOCK))
    shared = batched((rules, EnvironmentPrior(world, jnp.float32(1), lifetime), jnp.int32(blocks)))
    indices = jnp.arange(width, dtype=jnp.int32)
    rows = (shared, indices)
    given, lane = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), rows)
    call = batching.compile_mapped(play, given, lane, width, jax.devices()[:1]).call
    seconds, steps = least(lambda: call(shared, indices), rounds)
    assert int(steps.sum()) == width * blocks * episodes.BLOCK
    return width * blocks * episodes.BLOCK / seconds


def batched(tree: Any) -> Any:
    """Return `tree` for the one group of lanes of the one device."""
    return jax.tree.map(lambda v: jnp.asarray(v)[None], tree)


def least(call: Callable[[], jax.Array], rounds: int) -> tuple[float, jax.Array]:
    """Return the least processor seconds of a call after the first, and its result."""
    result = jax.block_until_ready(call())
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        jax.block_until_ready(call())
        seconds.append(time.process_time() - started)
    return min(seconds), result


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--agents", nargs="+", default=AGENT_NAMES, choices=sorted(AGENTS), metavar="NAME"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=SIZES, help="cells along one side of the gridworld"
    )
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS, help="lanes of a call")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for size in chosen.sizes:
        for name in chosen.agents:
            for width in chosen.widths:
                speed = steps_per_second(name, size, width, chosen.rounds)
                case = {
                    "agent": name,
                    "states": size**2,
                    "lanes": width,
                    "microseconds": round(1e6 / speed, 3),
                }
                print(
                    json.dumps({**case, "million_steps_per_second": round(speed / 1e6, 2)}),
                    flush=True,
                )


if __name__ == "__main__":
    main()
