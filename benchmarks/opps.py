"""Searches on the prior: pulls per second, trajectories played without use, and pulls per second
against batch size.

JAX_NUM_CPU_DEVICES=1 python benchmarks/opps.py [search | overhead | batch] …
python benchmarks/opps.py --tables

One core, since the published program has one thread; without the variable, all. Prints JSON lines
and adds them to benchmarks/results/opps-cpu2.jsonl (cpu2: two cores).
`--tables` makes the tables of docs/opps.md, in benchmarks/results/tables, from the latest rows.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import kept
from jbrl.agents.opps.formulas import formula_set
from jbrl.agents.opps.opps import OPPSDS
from jbrl.agents.opps.ranking import formula_policies
from jbrl.play import batching
from jbrl.play.offline import Learned, SearchCheckpoint, Trials, learn
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem

# Pulls per second of the published program, one thread.
PROGRAM = {
    ("GC", "F2"): "170",
    ("GC", "F3"): "115",
    ("GDL", "F2"): "245",
    ("GDL", "F3"): "160",
    ("Grid", "F2"): "5 to 15",
    ("Grid", "F3"): "5 to 15",
}
PRIORS = ("GC", "GDL", "Grid", "UGC", "UGDL", "UGrid")
SPACES = ("F2", "F3", "F4")
KINDS = {"UCB1(0)": "UCB1", "UCB1(660)": "UCB1, c = 660", "UCB-V": "UCB-V", "halving": "halving"}
Rows = Iterator[dict[str, Any]]


def trials_of(name: str, lanes: int | None = None) -> Trials:
    return Trials(
        Protocol(problem(name), problem(name)).agent_prior(),
        0.95,
        jax.random.key(0),
        jax.devices(),
        lanes,
    )


def searched(agent: OPPSDS, name: str, seed: int = 0) -> Learned:
    return learn(
        agent,
        seed,
        Protocol(problem(name), problem(name)).agent_prior(),
        trials_of(name),
        SearchCheckpoint(),
    )[0]


def search() -> Rows:
    """Time a whole search with budget 10,000, the bandit included; the best of three, which are the
    same search.
    """
    for name in PRIORS:
        for space in ("F2", "F3"):
            found = min(
                (searched(OPPSDS(space, 10_000), name) for _ in range(3)),
                key=lambda learned: learned.seconds,
            )
            yield {
                "benchmark": "search",
                "prior": name,
                "space": space,
                "devices": len(jax.devices()),
                "seconds": round(found.seconds, 3),
                "vain": round(found.simulated / found.consumed - 1, 4),
                "pulls_per_second": round(found.consumed / found.seconds),
            }


def overhead() -> Rows:
    """Measure trajectories played without use, as a fraction of the pulls, with ten and a hundred
    pulls for each arm.
    """
    for name in ("GC", "GDL"):
        for space in SPACES:
            for each in (10, 100):
                pulls = each * len(formula_set(space))
                agents = {f"UCB1({c:g})": OPPSDS(space, pulls, "UCB1", c) for c in (0.0, 660.0)} | {
                    "UCB-V": OPPSDS(space, pulls, "UCB-V")
                }
                found = {kind: searched(agent, name) for kind, agent in agents.items()}
                vain = {
                    kind: round(learned.simulated / learned.consumed - 1, 3)
                    for kind, learned in found.items()
                }
                yield {
                    "benchmark": "overhead",
                    "prior": name,
                    "space": space,
                    "devices": len(jax.devices()),
                    "pulls_per_arm": each,
                    "pulls": pulls,
                    **vain,
                }


def batch() -> Rows:
    """Time formulas of F3 with two variables, all different, in calls of growing width."""
    expressions = [e for e in formula_set("F3") if len(e.variables) == 2]
    policies = formula_policies(expressions)
    widths = (
        (16, 64, 256, 1024) if jax.devices()[0].platform == "cpu" else (256, 1024, 4096, 16_384)
    )
    for name in ("GC", "GDL", "Grid"):
        for width in widths:
            trials = trials_of(name, width)
            trials.compile([policies], width)
            arms = np.arange(trials.width) % len(expressions)
            stack = jax.tree.map(lambda v, arms=arms: v[arms], policies)
            seconds = []
            for repetition in range(4):
                started = time.perf_counter()
                trials(stack, arms, np.arange(trials.width) + repetition * trials.width)
                seconds.append(time.perf_counter() - started)
            yield {
                "benchmark": "batch",
                "prior": name,
                "devices": len(jax.devices()),
                "width": width,
                "lanes": trials.width,
                "pulls_per_second": round(trials.width / min(seconds[1:])),
            }


def search_table(file: Path) -> None:
    """Write seconds and pulls per second of a search for each prior and set."""
    found = kept.latest(file, ("prior", "space"), benchmark="search", devices=1)
    lines = []
    for name in PRIORS:
        line, vain = [name], []
        for space in ("F2", "F3"):
            row = found[name, space]
            vain.append(100 * row["vain"])
            line += [
                kept.number(row["seconds"]),
                kept.number(row["pulls_per_second"]),
                PROGRAM.get((name, space), ""),
            ]
        lines.append([*line, " to ".join(dict.fromkeys(f"{v:.1f}" for v in sorted(vain))) + " %"])
    each = ("seconds", "pulls per second", "C++, one thread")
    header = ("prior", *(f"{space}: {name}" for space in ("F2", "F3") for name in each), "unused")
    kept.write("opps-search", found.values(), kept.table(header, lines))


def overhead_table(file: Path) -> None:
    """Write the greater share of GC and GDL for each set, number of pulls and bandit."""
    found = kept.latest(file, ("prior", "space", "pulls_per_arm"), benchmark="overhead", devices=1)
    lines = []
    for space in SPACES:
        for each in (10, 100):
            both = [found[name, space, each] for name in ("GC", "GDL")]
            worst = [f"{100 * max(row[kind] for row in both):.1f} %" for kind in KINDS]
            lines.append([space, f"{both[0]['pulls']:,}", *worst])
    kept.write(
        "opps-overhead", found.values(), kept.table(("set", "pulls", *KINDS.values()), lines)
    )


def batch_table(file: Path) -> None:
    """Write pulls per second for each prior and width."""
    found = kept.latest(file, ("prior", "width"), benchmark="batch", devices=1)
    widths = sorted({width for _, width in found})
    lines = [
        [name, *(kept.number(found[name, width]["pulls_per_second"]) for width in widths)]
        for name in dict.fromkeys(name for name, _ in found)
    ]
    kept.write("opps-batch", found.values(), kept.table(("prior", *map(str, widths)), lines))


PARTS = {
    "search": (search, search_table),
    "overhead": (overhead, overhead_table),
    "batch": (batch, batch_table),
}


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__, "opps")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    chosen = parser.parse_args(arguments)
    for name in chosen.parts:
        if name not in PARTS:
            parser.error(f"part '{name}': expected {', '.join(PARTS)}")
    if not chosen.tables:
        batching.use_all_cores()
    for name in chosen.parts or PARTS:
        measure, write_table = PARTS[name]
        if chosen.tables:
            write_table(chosen.out)
            continue
        for row in measure():
            kept.keep(row, chosen.out)


if __name__ == "__main__":
    main()
