"""Searches on the prior: pulls per second, trajectories played in vain, and pulls per second against batch size. JSON lines.

python benchmarks/opps.py [search | overhead | batch] …
"""

import json
import sys
import time

import jax
import numpy as np

from jbrl.agents.bayes.index.formulas import formula_set
from jbrl.agents.bayes.index.policy import formula_policies
from jbrl.agents.bayes.opps import OPPSDS
from jbrl.problems.problem import problem
from jbrl.runner.play import batching
from jbrl.runner.play.offline import Learned, SearchCheckpoint, Trials, learn
from jbrl.runner.play.protocol import Protocol

# Pulls per second of the published program, one thread; Grid: 5 to 15.
PROGRAM = {("GC", "F2"): 170, ("GC", "F3"): 115, ("GDL", "F2"): 245, ("GDL", "F3"): 160, ("Grid", "F2"): 15, ("Grid", "F3"): 15}


def report(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def trials_of(name: str, lanes: int | None = None) -> Trials:
    return Trials(Protocol(problem(name), problem(name)).agent_prior(), 0.95, jax.random.key(0), jax.devices(), lanes)


def searched(agent: OPPSDS, name: str, seed: int = 0) -> Learned:
    return learn(agent, seed, Protocol(problem(name), problem(name)).agent_prior(), trials_of(name), SearchCheckpoint())[0]


def search() -> None:
    """Budget 10,000: the whole search, the bandit included; the best of three, which are the same search."""
    for name in ("GC", "GDL", "Grid", "UGC", "UGDL", "UGrid"):
        for space in ("F2", "F3"):
            found = min((searched(OPPSDS(space, 10_000), name) for _ in range(3)), key=lambda learned: learned.seconds)
            rate = found.consumed / found.seconds
            beside = {"times_program": round(rate / PROGRAM[name, space])} if (name, space) in PROGRAM else {}
            cost = {"seconds": round(found.seconds, 3), "vain": round(found.simulated / found.consumed - 1, 4)}
            report(benchmark="search", prior=name, space=space, **cost, pulls_per_second=round(rate), **beside)


def overhead() -> None:
    """Trajectories played in vain, as a fraction of the pulls, with ten and a hundred pulls for each arm."""
    for name in ("GC", "GDL"):
        for space in ("F2", "F3", "F4"):
            for each in (10, 100):
                agents = {f"UCB1({c:g})": OPPSDS(space, each * len(formula_set(space)), "UCB1", c) for c in (0.0, 660.0)}
                agents |= {kind: OPPSDS(space, each * len(formula_set(space)), kind) for kind in ("UCB-V", "halving")}
                found = {kind: searched(agent, name) for kind, agent in agents.items()}
                vain = {kind: round(learned.simulated / learned.consumed - 1, 3) for kind, learned in found.items()}
                report(benchmark="overhead", prior=name, space=space, pulls_per_arm=each, **vain)


def batch() -> None:
    """Formulas of F3 with two variables, all different, in calls of growing width."""
    expressions = [e for e in formula_set("F3") if len(e.variables) == 2]
    policies = formula_policies(expressions)
    widths = (16, 64, 256, 1024) if jax.devices()[0].platform == "cpu" else (256, 1024, 4096, 16_384)
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
            rate = round(trials.width / min(seconds[1:]))
            report(benchmark="batch", prior=name, devices=len(jax.devices()), lanes=trials.width, pulls_per_second=rate)


if __name__ == "__main__":
    batching.use_all_cores()
    known = {f.__name__: f for f in (search, overhead, batch)}
    for chosen in sys.argv[1:] or known:
        known[chosen]()
