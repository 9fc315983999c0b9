"""Cost of a step of the deep agents on bsuite, on one core: one JSON line for each case.

python benchmarks/deep.py widths [--agents NAME …] [--problems ID …] [--widths LANES …]
python benchmarks/deep.py settings [--agents NAME …]
python benchmarks/deep.py estimate [--agents NAME …]

`widths`: microseconds of a step and lane, for so many lanes at once. `settings`: processor seconds
of whole settings at the width that studies play them with, beside those of the original program.
`estimate`: processor seconds of all 468 ids, by experiment: the steps that the agent took in the
kept runs of experiments/published/bsuite (where there is none, those that the environment expects),
times the cost of a step, measured at three sizes of an experiment and interpolated by the length of
its observations.

Each case plays blocks of episodes as studies do, compiled as studies compile. Times are processor
time after compilation, in which waiting for other programs does not count; the least of several
rounds counts. Agent, environment and recorder are included; blocks before the first update are not.
`gflop` is 10^9 multiplications and additions in matrix products a second, `share` what part that is
of a product of two 512 x 512 matrices; they are left out where operations are not counted.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax

from jbrl.agents.deep.boot_dqn import BootDQN
from jbrl.agents.deep.dqn import DQN
from jbrl.agents.deep.networks import QNetwork
from jbrl.agents.registry import AGENTS
from jbrl.base.bsuite_sweep import SWEEP
from jbrl.base.errors import MAX_COUNT
from jbrl.environments import environment as environments
from jbrl.environments.spec import Episodes
from jbrl.play import batching
from jbrl.play.blocks import LifetimeRun
from jbrl.play.lifetimes import group_width
from jbrl.play.machine import versions
from jbrl.play.play import make_run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.rollout import episodes
from jbrl.rollout.contract import Agent, as_arrays

PUBLISHED = Path(__file__).parents[1] / "experiments" / "published" / "bsuite"
KEPT = ("agents", "recurrent", "exploration")  # files with runs of the deep agents
AGENT_NAMES = ("DQN", "BootDQN", "ActorCritic", "RecurrentActorCritic", "PPO")
PROBLEMS = ("catch/0", "deep_sea/0", "deep_sea/10", "memory_len/0")
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
STEPS = 8192  # of all lanes in a round, about
# processor seconds of the original program, google-deepmind/bsuite 0.3.6 with its JAX agents, for
# all episodes of a setting
ORIGINAL: dict[str, dict[str, float]] = {
    "DQN": {
        "catch/0": 27,
        "deep_sea/0": 27,
        "deep_sea/1": 57,
        "deep_sea/2": 60,
        **{f"memory_len/{i}": s for i, s in enumerate((6, 7, 10, 14, 18, 20))},
    },
    "ActorCritic": {"catch/0": 41},
    "RecurrentActorCritic": {f"memory_len/{i}": s for i, s in enumerate((49, 61, 75))},
}


def play(shared: Any, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Play the first blocks of a lifetime; return its decisions and its fault."""
    rules, prior, blocks = shared
    begun = episodes.begin(rules, prior, index)
    lane = lax.fori_loop(0, blocks, lambda _, lane: episodes.advance(rules, lane), begun)
    return lane.steps, lane.fault


def microseconds(
    agent: Agent,
    name: str,
    width: int,
    rounds: int,
    device: jax.Device | None = None,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Measure microseconds of a step and lane, `width` lanes at once.

    Args:
      device: default: the first.
      clock: what measures them: processor time, or wall time where a device computes.
    """
    found: Any = problem(f"bsuite/{name}")
    lifetime = Episodes(MAX_COUNT)
    world = environments.as_arrays(found.environment)
    rules = episodes.Rules(as_arrays(agent), world, found.recorder, jax.random.key(0), lifetime)
    prior = dataclasses.replace(found.prior(found.lifetime, 0.95), lifetime=lifetime)
    blocks = max(4, STEPS // (width * episodes.BLOCK))
    indices = jnp.arange(width, dtype=jnp.int32)
    before, after = (batched((rules, prior, jnp.int32(n))) for n in (3, 3 + blocks))
    one = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), (before, indices))
    devices = [device or jax.devices()[0]]
    call = batching.compile_mapped(play, one[0], one[1], width, devices).call
    short = least(lambda: call(before, indices), rounds, clock)
    whole = least(lambda: call(after, indices), rounds, clock)
    return 1e6 * (whole - short) / (blocks * episodes.BLOCK * width)


def batched(tree: Any) -> Any:
    """Return `tree` for the one group of lanes of the one device."""
    return jax.tree.map(lambda v: jnp.asarray(v)[None], tree)


def least(
    call: Callable[[], Any], rounds: int, clock: Callable[[], float] = time.process_time
) -> float:
    """Return the least seconds of a call after the first, processor time by default."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(rounds):
        started = clock()
        jax.block_until_ready(call())
        seconds.append(clock() - started)
    return min(seconds)


def width_of(agent: Agent, name: str) -> int:
    """Return the lanes of a group that studies play a setting with."""
    test = problem(f"bsuite/{name}")
    run = make_run(agent, Protocol(test, test, 1, 0, test.lifetime, 0.95))
    assert isinstance(run, LifetimeRun)
    run.choose()
    shapes = jax.tree.leaves(run.lane_shapes())
    return group_width(agent, sum(math.prod(v.shape) * v.dtype.itemsize for v in shapes))


def steps_of(name: str) -> float:
    """Return about how many steps all episodes of a setting take."""
    found: Any = problem(f"bsuite/{name}")
    return found.lifetime.episodes * found.environment.typical_steps


def operations(agent: Agent, name: str) -> float:
    """Return multiplications and additions in the matrix products of a step, 0 if unknown."""
    if not isinstance(agent, DQN | BootDQN):
        return 0.0
    spec = problem(f"bsuite/{name}").spec
    network = QNetwork.of(spec, agent.hidden_layers, agent.hidden_width)
    first = 0 if network.lookup else network.inputs * network.widths[0]
    # forward twice, the gradients of the weights, and of all inputs but the first
    update = agent.batch_size * (4 * network.products - first)
    heads = agent.ensemble if isinstance(agent, BootDQN) else 1
    priors = 2 * heads * network.products if isinstance(agent, BootDQN) else 0
    return 2.0 * (heads * update + priors + network.products)


@functools.cache
def greatest_speed(rounds: int) -> float:
    """Measure multiplications and additions a second of a large matrix product."""
    matrix = jnp.full((512, 512), 1e-3)
    product = jax.jit(lambda v: lax.fori_loop(0, 20, lambda _, m: m @ v, v))
    return 20 * 2 * 512**3 / least(lambda: product(matrix), rounds)


def widths(agent: Agent, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the cost of a step at several widths."""
    for name in chosen.problems:
        for width in chosen.widths:
            cost = microseconds(agent, name, width, chosen.rounds)
            row = {"problem": name, "lanes": width, "microseconds": round(cost, 2)}
            if speed := operations(agent, name) / cost * 1e6:
                row["gflop"] = round(speed / 1e9, 1)
                row["share"] = round(speed / greatest_speed(chosen.rounds), 2)
            yield row


def settings(agent: Agent, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the processor seconds of settings that the original has been measured with."""
    for name, original in ORIGINAL.get(type(agent).__name__, {}).items():
        width = width_of(agent, name)
        cost = microseconds(agent, name, width, chosen.rounds)
        seconds = cost * steps_of(name) / 1e6
        yield {
            "problem": name,
            "lanes": width,
            "microseconds": round(cost, 2),
            "seconds": round(seconds, 2),
            "original": original,
            "times": round(original / seconds, 1),
        }


def estimate(agent: Agent, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the processor seconds of all settings of each experiment, and of all of them."""
    total, taken = 0.0, kept_steps(type(agent).__name__)
    for experiment in dict.fromkeys(one.experiment.name for one in SWEEP.values()):
        ids = [name for name, one in SWEEP.items() if one.experiment.name == experiment]
        inputs = {name: _numbers(name) for name in ids}
        sizes = sorted(set(inputs.values()))
        measured = sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})
        costs = []
        for size in measured:
            name = next(name for name in ids if inputs[name] == size)
            costs.append(microseconds(agent, name, width_of(agent, name), chosen.rounds))
        steps = {name: taken[name] if name in taken else steps_of(name) for name in ids}
        seconds = sum(np.interp(inputs[n], measured, costs) * steps[n] / 1e6 for n in ids)
        total += seconds
        yield {
            "experiment": experiment,
            "ids": len(ids),
            "million_steps": round(sum(steps.values()) / 1e6, 2),
            "microseconds": [round(cost, 1) for cost in costs],
            "seconds": round(seconds, 1),
        }
    yield {"experiment": "all", "ids": len(SWEEP), "seconds": round(total, 1)}


def kept_steps(agent: str) -> dict[str, float]:
    """Return the steps of each setting in the first kept run of an agent."""
    logs = pd.concat([pd.read_parquet(PUBLISHED / f"{name}.parquet") for name in KEPT])
    runs = logs[logs["agent"] == agent].groupby(["bsuite_id", "run"], sort=True)["steps"].max()
    return runs.groupby("bsuite_id").first().to_dict()


def _numbers(name: str) -> int:
    observation = problem(f"bsuite/{name}").spec.observation
    return math.prod(observation.shape) if observation.shape else observation.n


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("widths", "settings", "estimate"))
    parser.add_argument("--agents", nargs="+", default=AGENT_NAMES, choices=AGENT_NAMES)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, help="ids of bsuite")
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS, help="lanes of a call")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cases = {"widths": widths, "settings": settings, "estimate": estimate}[chosen.what]
    known = {name: versions()[name] for name in ("jbrl", "jax", "jaxlib")}
    for name in chosen.agents:
        for case in cases(AGENTS[name].agent(), chosen):
            print(json.dumps({"agent": name, **case, "versions": known}), flush=True)


if __name__ == "__main__":
    main()
