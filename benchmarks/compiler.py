"""Effect of the compiler's options on times and decisions, and of a second device in the same
process on times.

python benchmarks/compiler.py [--rounds 9] [--problem GC] [AGENT …]
python benchmarks/compiler.py --decisions [--out FILE] [AGENT …]
python benchmarks/compiler.py --tables

For each agent one JSON line: milliseconds in which 500 MDPs of the problem make 250 decisions on
all CPU devices, compilation, drawing and fetching apart, with the compiler as it is (`plain`),
without splitting operations over cores (`whole`), as jbrl uses it, without the library for small
sums either (`jbrl`), and as jbrl compiles quickly (`quick`); the seconds of processor time that
the last two take to trace and compile (`compiling`); and how many times longer than on one device
alone a call takes on all devices at once (`slower`). All take turns; medians.

`--decisions`: each agent plays MDPs in a process of its own for each of the `SETTINGS`. One JSON
line for each agent and problem, added to benchmarks/results/compiler-cpu2.jsonl (cpu2: two cores):
in how many lifetimes a decision differs from those with the options of users, `jbrl`. `--tables`
makes a table of the latest rows.
"""

import functools
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

import jbrl
from benchmarks import kept
from jbrl.agents.registry import AGENTS
from jbrl.play import compilation
from jbrl.play.experiment import Run
from jbrl.play.protocol import Chunk, Protocol
from jbrl.play.resources import Resources, choose
from jbrl.problems.lookup import problem
from jbrl.problems.prior import EnvironmentPrior

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
    "quick": JBRL | compilation.QUICKLY,
}

LEVEL, NO_EMITTERS = "xla_backend_optimization_level", {"xla_cpu_use_fusion_emitters": False}
# Flags of the process, and options of jbrl's programs besides its own. Level 0 and SSE4_2 know no
# fused multiply-add, which rounds once where a product and a sum round twice.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "jbrl": ("", {}),
    "level 0": ("", {LEVEL: "0"}),
    "level 1": ("", {LEVEL: "1"}),
    "level 3": ("", {LEVEL: "3"}),
    "level 0, no emitters": ("", {LEVEL: "0"} | NO_EMITTERS),
    "level 1, no emitters": ("", {LEVEL: "1"} | NO_EMITTERS),
    "level 3, no emitters": ("", {LEVEL: "3"} | NO_EMITTERS),
    "SSE4_2": ("--xla_cpu_max_isa=SSE4_2", {}),
}
MDPS = 100
# Parameters, where they are not the defaults.
PLAYED: dict[str, dict[str, Any]] = {
    "e-Greedy": {"epsilon": 0.1},
    "Soft-max": {"tau": 0.33},
    "VDBE-e-Greedy": {"sigma": 1.0},
    "PSRL": {"period": 5},
    "BAMCP": {"simulations": 10},
    "BFS3": {"trajectories": 5, "samples": 5, "depth": 10},
    "SBOSS": {"epsilon": 0.1},
    "SBOSS-published": {"epsilon": 0.1},
    "Formula": {"formula": "Q1 + Q2 * Q0"},
    "Linear": {"variables": "Q0"},
    "OPPS-DS": {"space": "Q0; -Q0; Q1; Q2; Q0 + Q1", "budget": 500, "c": 20.0},
    "OPPS-CS": {"variables": "Q0", "budget": 500, "draws": 50},
    "e-Greedy-published": {"epsilon": 0.1},
    "DQN": {"hidden_width": 16, "batch_size": 8, "replay_capacity": 128, "min_replay": 8},
    "ActorCritic": {"hidden_width": 16, "sequence_length": 4},
}
# They compute nothing, or take minutes to compile or train.
LEFT_OUT = {
    "Random",
    "Scripted",
    "ANN",
    "BeliefPPO",
    "RL2",
    "BootDQN",
    "PPO",
    "RecurrentActorCritic",
}
PROBLEMS = (("GC", "GC"), ("GDL", "GDL"), ("UGC", "GC"))  # priors, and what is played
EPISODES = 20  # of agents that play nothing else, on Chain-10s, where scores differ with decisions


def ready(
    name: str, parameters: dict, test: str, devices: list[jax.Device], options: dict[str, Any]
) -> tuple[Run, float]:
    """Return an agent compiled with these options, independent of earlier compilations, and the
    seconds of processor time that this takes.
    """
    compilation.ON_CPU = options
    compilation.options.cache_clear()
    compilation.KEPT.clear()
    run = Run(
        AGENTS[name].agent(**parameters),
        Protocol(problem(test), problem(test)),
        resources=Resources(devices),
    )
    started = time.process_time()
    run.prepare()
    seconds = time.process_time() - started
    list(run.chunks())
    return run, seconds


def milliseconds(chunks: list[Chunk]) -> float:
    return 1e3 * sum(chunk.online_seconds for chunk in chunks)


def measure(
    name: str, parameters: dict, test: str, devices: list[jax.Device], rounds: int
) -> dict[str, Any]:
    """Measure one row."""
    made = {
        label: ready(name, parameters, test, devices, options) for label, options in OPTIONS.items()
    }
    runs = {label: run for label, (run, _) in made.items()}
    runs["alone"] = ready(name, parameters, test, devices[:1], JBRL)[0]
    played = [{label: list(run.chunks()) for label, run in runs.items()} for _ in range(rounds)]
    found = {label: statistics.median(milliseconds(one[label]) for one in played) for label in runs}
    calls = {label: len(played[0][label]) for label in runs}
    return {
        "agent": name,
        "parameters": parameters,
        "problem": test,
        "milliseconds": {label: round(found[label], 2) for label in OPTIONS},
        "compiling": {label: round(made[label][1], 2) for label in ("jbrl", "quick")},
        "slower": round(found["jbrl"] / calls["jbrl"] / (found["alone"] / calls["alone"]), 2),
    }


def play(options: str, name: str) -> None:
    """Print one JSON line for each problem that an agent plays, with a digest of the actions of
    each lifetime.

    Args:
      options: of programs besides those of jbrl, as JSON.
    """
    compilation.ON_CPU = JBRL | json.loads(options)
    parameters, episodic = (
        PLAYED.get(name, {}),
        AGENTS[name].agent.requires.prior is EnvironmentPrior,
    )
    for prior, test in [("Chain-10s", "Chain-10s")] if episodic else PROBLEMS:
        found = jbrl.play(
            AGENTS[name].agent(**parameters),
            prior=prior,
            test=test,
            n_environments=MDPS,
            episodes=EPISODES if episodic else None,
            record=not episodic,
        )
        moves = found.trajectories["actions"] if found.trajectories else found.returns
        lifetimes = [hashlib.sha256(move.tobytes()).hexdigest()[:8] for move in moves]
        row = {"agent": name, "parameters": parameters, "prior": prior, "test": test}
        print(json.dumps(row | {"lifetimes": lifetimes}), flush=True)


@functools.cache
def played(flags: str, options: str, name: str) -> list[dict[str, Any]]:
    """Return the rows that `play` prints in a process of its own."""
    command = [sys.executable, __file__, "--play", options, name]
    all_flags = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    environment = os.environ | {"XLA_FLAGS": all_flags, "JAX_PLATFORMS": "cpu"}
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in output.splitlines()]


def decisions(agents: list[str], out: Path) -> None:
    """Compare the decisions of all settings."""
    for name in agents:
        found = {
            setting: played(flags, json.dumps(options), name)
            for setting, (flags, options) in SETTINGS.items()
        }
        for i, own in enumerate(found["jbrl"]):
            differing = {
                setting: sum(map(str.__ne__, rows[i]["lifetimes"], own["lifetimes"]))
                for setting, rows in found.items()
                if setting != "jbrl"
            }
            kept.keep(own | {"lifetimes": MDPS, "differing": differing}, out)


def tables(out: Path) -> None:
    """Write the table of decisions that differ, over the problems of each agent."""
    rows = list(kept.latest(out, ("agent", "prior")).values())
    settings = [setting for setting in SETTINGS if setting != "jbrl"]
    lines = []
    for name in dict.fromkeys(row["agent"] for row in rows):
        mine = [row for row in rows if row["agent"] == name]
        differing = [sum(row["differing"][setting] for row in mine) for setting in settings]
        lines.append([name, *map(str, (sum(row["lifetimes"] for row in mine), *differing))])
    kept.write("decisions", rows, kept.table(["agent", "lifetimes", *settings], lines))


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__ or "", "compiler")
    parser.add_argument("agents", nargs="*", help="only these")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--decisions", action="store_true", help="compare decisions, not times")
    parser.add_argument("--play", metavar="OPTIONS", help="what a process of --decisions does")
    parser.add_argument("--problem", default="GC", help="what times are measured on")
    arguments = parser.parse_args(argv)
    if arguments.tables:
        tables(arguments.out)
    elif arguments.play:
        play(arguments.play, *arguments.agents)
    elif arguments.decisions:
        decisions(arguments.agents or sorted(set(AGENTS) - LEFT_OUT), arguments.out)
    else:
        times(arguments.agents, arguments.problem, arguments.rounds)


def times(agents: list[str], test: str, rounds: int) -> None:
    """Measure the times of all rows, or of some."""
    jax.config.update("jax_platforms", "cpu")
    devices = choose().devices
    for name, parameters in ROWS:
        if not agents or name in agents:
            row = measure(name, parameters, test, devices, rounds) | {"devices": len(devices)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
