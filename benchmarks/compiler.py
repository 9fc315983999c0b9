"""Effect on decisions of the compiler's options, and of a second device in the same process.

python benchmarks/compiler.py [--rounds 9] [AGENT …]

For each agent one JSON line: milliseconds in which 500 MDPs of GC make 250 decisions on all CPU
devices, compilation, drawing and fetching apart, with the compiler as it is (`plain`), without
splitting operations over cores (`whole`), and as jbrl uses it, without the library for small sums
either (`jbrl`); whether the returns of all three are the same to the last bit; and how many times
longer than on one device alone a call takes on all devices at once (`slower`). All take
turns; medians.
"""

import argparse
import json
import statistics
from typing import Any

import jax
import numpy as np

from jbrl.agents.agent import AGENTS
from jbrl.problems.lookup import problem
from jbrl.runner.play import compilation
from jbrl.runner.play.experiment import Run
from jbrl.runner.play.protocol import Chunk, Protocol
from jbrl.runner.play.resources import Resources, choose

ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("e-Greedy", {"epsilon": 0.1}),
    ("Soft-max", {"tau": 1.0}),
    ("PSRL", {"period": 5}),
    ("BAMCP", {"simulations": 10}),
    ("SBOSS", {"epsilon": 0.1}),
)
JBRL = dict(compilation.ON_CPU)
OPTIONS = {
    "plain": {},
    "whole": {"xla_disable_hlo_passes": JBRL["xla_disable_hlo_passes"]},
    "jbrl": JBRL,
}


def ready(name: str, parameters: dict, devices: list[jax.Device], options: dict[str, str]) -> Run:
    """Return an agent compiled with these options, independent of earlier compilations."""
    compilation.ON_CPU = options
    compilation.options.cache_clear()
    compilation.KEPT.clear()
    run = Run(
        AGENTS[name].agent(**parameters),
        Protocol(problem("GC"), problem("GC")),
        resources=Resources(devices),
    )
    run.prepare()
    list(run.chunks())
    return run


def milliseconds(chunks: list[Chunk]) -> float:
    return 1e3 * sum(chunk.online_seconds for chunk in chunks)


def measure(name: str, parameters: dict, devices: list[jax.Device], rounds: int) -> dict[str, Any]:
    """Measure one row."""
    runs = {label: ready(name, parameters, devices, options) for label, options in OPTIONS.items()}
    runs["alone"] = ready(name, parameters, devices[:1], JBRL)
    played = [{label: list(run.chunks()) for label, run in runs.items()} for _ in range(rounds)]
    found = {label: statistics.median(milliseconds(one[label]) for one in played) for label in runs}
    returns = {
        label: np.concatenate([chunk.returns for chunk in played[0][label]]) for label in runs
    }
    calls = {label: len(played[0][label]) for label in runs}
    return {
        "agent": name,
        "parameters": parameters,
        "milliseconds": {label: round(found[label], 2) for label in OPTIONS},
        "same_bits": all(np.array_equal(one, returns["jbrl"]) for one in returns.values()),
        "slower": round(found["jbrl"] / calls["jbrl"] / (found["alone"] / calls["alone"]), 2),
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("agents", nargs="*", help="only these rows")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    devices = choose().devices
    for name, parameters in ROWS:
        if not arguments.agents or name in arguments.agents:
            print(
                json.dumps(
                    measure(name, parameters, devices, arguments.rounds) | {"devices": len(devices)}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
