"""Each kernel beside its NumPy twin, one core each: one JSON line for each.

python benchmarks/kernels.py [--quick] [--rounds N] [NAME …]

A line holds microseconds for each unit of work of the kernel and of its twin (`benchmarks/twins`),
both after compilation, their ratio (how many times faster than NumPy the kernel is), and where it
was measured what one thread of the published C++ program needs (`benchmarks/cpp.csv`). Times are
processor time on one core, in which waiting for other programs does not count; kernel and twin take
turns and the least time of each counts. A ratio is comparable between machines of one kind, a time
is not.
"""

import argparse
import csv
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the twins and the other benchmarks

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from benchmarks.planner import at_own_pace, distribution, trajectories  # noqa: E402
from benchmarks.twins import agents as agent_twins  # noqa: E402
from benchmarks.twins import (  # noqa: E402
    bamcp,
    bandits,
    evaluation,
    formulas,
    forward_search,
    merged,
    opps,
    planner,
    subset,
)
from jbrl import play  # noqa: E402
from jbrl.agents.bayes import mean_model as beliefs  # noqa: E402
from jbrl.agents.opps.bandits import begin  # noqa: E402
from jbrl.agents.opps.evaluation import evaluate, programs  # noqa: E402
from jbrl.agents.opps.formulas import formula_set  # noqa: E402
from jbrl.agents.opps.ranking import formula_policies  # noqa: E402
from jbrl.agents.opps.ucb import UCB1  # noqa: E402
from jbrl.agents.registry import AGENTS  # noqa: E402
from jbrl.environments.spec import Steps  # noqa: E402
from jbrl.mdp import planning  # noqa: E402
from jbrl.play import timing  # noqa: E402
from jbrl.play.experiment import Run  # noqa: E402
from jbrl.play.offline import Trials  # noqa: E402
from jbrl.play.protocol import Protocol  # noqa: E402
from jbrl.play.resources import Resources  # noqa: E402
from jbrl.problems.lookup import problem  # noqa: E402

DISCOUNT = np.float32(0.95)
ROUNDS = 5
LANES, STEPS = 512, 100


@dataclass(frozen=True)
class Pair:
    """A kernel and its twin, ready to run, and how many units of work a call of each does."""

    kernel: Callable[[], Any]
    units: int
    twin: Callable[[], Any]
    twin_units: float


@dataclass(frozen=True)
class Kernel:
    name: str
    make: Callable[[], Pair]
    quick: bool = False  # part of the check of continuous integration


# ---- planning ----


def keeping_the_plan(name: str) -> Pair:
    """Learn a transition and make the plan of the mean model optimal again."""
    moves, mdps = trajectories(name), distribution(name)
    belief = jax.jit(beliefs.prior_belief)(jax.tree.map(jnp.asarray, mdps), DISCOUNT)
    learn = jax.jit(jax.vmap(at_own_pace, in_axes=(None, 0)))
    first = [np.asarray(m[0]) for m in moves]

    def twin() -> None:
        learner = agent_twins.Learner(mdps)
        for x, u, y in zip(*first, strict=True):
            learner.observe(x, u, y)

    return Pair(lambda: learn(belief, moves), LANES * STEPS, twin, STEPS)


def value_iteration(n_states: int, n_actions: int) -> Pair:
    """Solve a random MDP to 1e-4, each sweep over all MDPs."""
    rng, lanes = np.random.default_rng(0), 256
    transitions = rng.dirichlet(np.ones(n_states), (lanes, n_states, n_actions))
    rewards = rng.uniform(0, 1, (lanes, n_states, n_actions))
    solve = jax.jit(
        jax.vmap(lambda p, r: planning.value_iteration(p, r, DISCOUNT, tolerance=1e-4).q)
    )
    p, r = jnp.asarray(transitions, jnp.float32), jnp.asarray(rewards, jnp.float32)
    return Pair(
        lambda: solve(p, r),
        lanes,
        lambda: planner.value_iteration(transitions[0], rewards[0], 0.95, 1e-4),
        1,
    )


# ---- agents ----


def playing(
    agent: str, parameters: dict[str, Any], prior: str, test: str, n_environments: int, horizon: int
) -> Callable[[], Any]:
    """Return a call that plays all of it on one device, and no part twice for its clock."""
    protocol = Protocol(
        problem(prior), problem(test), n_environments=n_environments, lifetime=Steps(horizon)
    )
    run = Run(AGENTS[agent].agent(**parameters), protocol, resources=Resources(one()))
    run.prepare()

    def call() -> list[Any]:
        with patch.object(timing, "REPETITIONS", 1):
            return list(run.chunks())

    return call


def one() -> list[jax.Device]:
    """Return the device that kernels run on."""
    return jax.devices()[:1]


def planning_agent(
    agent: str, twin: Callable, parameters: dict[str, Any], prior: str, test: str
) -> Pair:
    """Take a decision of an agent that plans in the mean model, the whole simulation included; the
    twin follows a recorded trajectory.
    """
    mdps, steps = distribution(prior), 50
    moves = play(
        AGENTS[agent].agent(**parameters),
        prior=prior,
        test=test,
        n_environments=1,
        horizon=steps,
        record=True,
    ).trajectories
    assert moves is not None
    uniforms = np.random.default_rng(0).random((steps, 2))

    def follow() -> None:
        player = twin(mdps, **parameters)
        for x, u, y, numbers in zip(
            moves["states"][0], moves["actions"][0], moves["states"][0][1:], uniforms, strict=False
        ):
            player.act(x, numbers)
            player.observe(x, u, y)

    return Pair(playing(agent, parameters, prior, test, 2048, 250), 2048 * 250, follow, steps)


def bamcp_simulation(prior: str, test: str, n_environments: int = 32) -> Pair:
    counts, rewards = told(prior)
    act = lambda: bamcp.Twin(counts, rewards, simulations=100, depth=15).act((1, 2), 0)  # noqa: E731
    return Pair(
        playing("BAMCP", {"simulations": 500, "depth": 15}, prior, test, n_environments, 10),
        500 * 10 * n_environments,
        act,
        100,
    )


def bfs3_trajectory(prior: str, test: str) -> Pair:
    counts, rewards = told(prior)
    parameters = {"trajectories": 15, "samples": 15, "depth": 15}
    units = 15 * rewards.shape[1]  # each of C trees for each action, K / C trajectories in each
    act = lambda: forward_search.Search(  # noqa: E731
        rewards, 0.95, 0.0, rewards.max() / 0.05, 1, 15, 15
    ).resampled((1, 2), 0, counts)
    return Pair(playing("BFS3", parameters, prior, test, 256, 4), 256 * 4 * units, act, units)


def sboss_decision(prior: str, test: str) -> Pair:
    parameters, mdps = {"epsilon": 0.001, "delta": 0.001}, distribution(prior)
    act = lambda: merged.SBOSS(mdps, **parameters).act(0, (1, 2), 0.5)  # noqa: E731
    return Pair(playing("SBOSS", parameters, prior, test, 256, 50), 256 * 50, act, 1)


def told(prior: str) -> tuple[np.ndarray, np.ndarray]:
    mdps = distribution(prior)
    return np.asarray(mdps.concentrations, float), np.asarray(mdps.rewards, float)


# ---- searching the prior ----


def formula_value() -> Pair:
    """Evaluate a formula of F4 at the values of one action, 512 different ones at once."""
    rng, expressions = np.random.default_rng(0), formula_set("F4")
    every, chosen = programs(expressions), rng.integers(0, len(expressions), LANES)
    rows = jax.tree.map(lambda words: jnp.asarray(words[chosen]), every)
    points = rng.uniform(1, 50, (LANES, 3, 4)).astype(np.float32)

    @jax.jit
    def call(q: jax.Array) -> jax.Array:
        def again(total: jax.Array, shift: jax.Array) -> tuple:
            values, valid = jax.vmap(evaluate)(rows, q + shift)
            return total + jnp.where(valid[:, None], values, 0.0), None

        return jax.lax.scan(again, jnp.zeros((LANES, 4)), jnp.arange(100.0))[0]

    def twin() -> None:
        for i, place in enumerate(chosen[:64]):
            for q in points[i].T:
                try:
                    formulas.evaluate(expressions[place].tokens, q)
                except formulas.UndefinedError:
                    continue

    return Pair(lambda: call(points), 100 * LANES * 4, twin, 64 * 4)


def ucb1_pull() -> Pair:
    """Pull with UCB1 among 226 arms (F3), all returns waiting."""
    rng, n_arms, pulls, few = np.random.default_rng(0), 226, 50_000, 600
    each = 30 * pulls // n_arms
    values = rng.normal(np.repeat(rng.normal(30, 7, n_arms), each), 15)
    bandit = UCB1(660.0)
    start = begin(bandit, n_arms)
    streams = start.streams.extend(np.repeat(np.arange(n_arms), each), values)
    table = values.reshape(n_arms, each)
    index = bandits.ucb1_index(660.0)
    twin = partial(
        bandits.pulls_of_index_bandit, index, lambda arm, i: table[arm, i], n_arms, few, 0
    )
    return Pair(lambda: bandit.advance(start.state, streams, pulls)[0].counts, pulls, twin, few)


def opps_pull(name: str) -> Pair:
    """Play a trajectory of a formula of F3 on an MDP drawn from the prior."""
    prior = Protocol(problem(name), problem(name)).agent_prior()
    key, expressions = jax.random.key(0), [e for e in formula_set("F3") if len(e.variables) == 2]
    trials, policies = Trials(prior, 0.95, key, one(), 256), formula_policies(expressions)
    trials.compile([policies], 256)
    arms = np.arange(trials.width) % len(expressions)
    stack = jax.tree.map(lambda v: v[arms], policies)
    tokens, mdps, horizon = expressions[0].tokens, distribution(name), 10
    twin = lambda: opps.trial(opps.Formula(mdps, tokens), mdps, key, 0, 0, horizon)  # noqa: E731
    # A trajectory has 250 decisions, that of the twin 10: more would take seconds, and each
    # decision costs the same.
    return Pair(
        lambda: trials(stack, arms, np.arange(trials.width)), trials.width, twin, horizon / 250
    )


# ---- statistics ----


def payoffs() -> Pair:
    """Compare two algorithms on an environment, 500 scores each."""
    from benchmarks.evaluation import table
    from jbrl.stats.evaluation.samples import payoffs, samples_of

    samples = samples_of(table(6, 4, 500))
    rng = np.random.default_rng(0)
    few = {(i, 0): rng.normal(size=500) for i in range(2)}
    return Pair(
        lambda: payoffs(samples),
        6 * 4 * 6,
        lambda: evaluation.payoff(few, 2, 1, lambda i, _, k: i == k),
        2,
    )


def resample() -> Pair:
    """Draw a bootstrap resample of the scores of four algorithms on three environments, 300 each,
    and its game.
    """
    from benchmarks.evaluation import table
    from jbrl.stats.evaluation.bootstrap import resampled_scores
    from jbrl.stats.evaluation.samples import samples_of

    samples, n = samples_of(table(4, 3, 300)), 256
    rng = np.random.default_rng(0)
    raw = {(i, j): np.sort(rng.normal(size=300)) for i in range(4) for j in range(3)}
    words = {cell: rng.integers(0, 2**32, 300, dtype=np.uint32) for cell in raw}

    def twin() -> None:
        drawn = evaluation.resample(raw, words)
        z = np.full((4, 3, 4), 0.5)
        for j in range(3):  # by counting, where the twin of the tests compares number by number
            for i in range(4):
                for k in range(4):
                    z[i, j, k] = (
                        np.searchsorted(drawn[k, j], drawn[i, j], "right").mean() / 300
                        if i != k
                        else 0.5
                    )
        evaluation.solve(z)

    return Pair(lambda: resampled_scores(samples, n), n, twin, 1)


def scores_of_two_skills(n_algorithms: int, n_environments: int) -> pd.DataFrame:
    """Draw a score of each algorithm on each environment, explained by two skills except for some
    noise.
    """
    rng = np.random.default_rng(0)
    skill = rng.normal(0, 1, (n_algorithms, 2))
    scores = (
        skill @ rng.normal(0, 1, (2, n_environments))
        + 0.3 * rng.normal(0, 1, (n_algorithms, n_environments))
        + 5
    )
    rows = [(f"a{i:02d}", chr(ord("A") + j), score) for (i, j), score in np.ndenumerate(scores)]
    return pd.DataFrame(rows, columns=["algorithm", "environment", "score"])


def subset_loss() -> Pair:
    """Compute the ten-fold error of a subset of three of 14 environments, 40 algorithms."""
    from jbrl.stats.subset.fit import Folds
    from jbrl.stats.subset.preparation import Preparation, prepare
    from jbrl.stats.subset.problem import Search, candidates

    prepared = prepare(scores_of_two_skills(40, 14), Preparation(target="mean"))
    settings = Search(3, "kfold", Folds(10), min_rows=10)
    loss = candidates(prepared, settings).compiled(3)
    rng = np.random.default_rng(0)
    subsets = np.sort(np.argsort(rng.random((20_000, 14)), axis=1)[:, :3], axis=1)
    few = [list(map(int, chosen)) for chosen in subsets[:10]]
    twin = lambda: [  # noqa: E731
        subset.loss_of(prepared.features, prepared.target, c, "kfold", (10, 1982, 1, None, False))
        for c in few
    ]
    return Pair(lambda: loss.of_subsets(subsets), len(subsets), twin, len(few))


KERNELS = (
    Kernel("plan after a transition on GC", partial(keeping_the_plan, "GC"), quick=True),
    Kernel("plan after a transition on Grid", partial(keeping_the_plan, "Grid")),
    Kernel("value iteration, 5 states and 3 actions", partial(value_iteration, 5, 3), quick=True),
    Kernel("value iteration, 25 states and 4 actions", partial(value_iteration, 25, 4)),
    Kernel(
        "e-Greedy decision on GC",
        partial(planning_agent, "e-Greedy", planner.EpsilonGreedy, {"epsilon": 0.1}, "GC", "GC"),
    ),
    Kernel(
        "e-Greedy decision on Grid",
        partial(
            planning_agent, "e-Greedy", planner.EpsilonGreedy, {"epsilon": 0.1}, "Grid", "Grid"
        ),
    ),
    Kernel(
        "BEB decision on GC", partial(planning_agent, "BEB", planner.BEB, {"beta": 2.0}, "GC", "GC")
    ),
    Kernel(
        "BEB decision on Grid",
        partial(planning_agent, "BEB", planner.BEB, {"beta": 2.0}, "Grid", "Grid"),
    ),
    Kernel("BAMCP simulation on GC", partial(bamcp_simulation, "GC", "GC"), quick=True),
    Kernel("BAMCP simulation on Grid", partial(bamcp_simulation, "Grid", "Grid")),
    Kernel("BFS3 trajectory on GC", partial(bfs3_trajectory, "GC", "GC")),
    Kernel("SBOSS decision on GC with prior UGC", partial(sboss_decision, "UGC", "GC")),
    Kernel("formula value", formula_value, quick=True),
    Kernel("UCB1 pull", ucb1_pull, quick=True),
    Kernel("OPPS-DS pull of F3 on GC", partial(opps_pull, "GC")),
    Kernel("comparison of two algorithms", payoffs),
    Kernel("bootstrap resample", resample, quick=True),
    Kernel("error of a subset", subset_loss),
)


def timed(call: Callable[[], Any]) -> float:
    """Measure seconds of processor time, of all threads: unlike wall time, it does not count
    waiting for other programs.
    """
    started = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - started


def ratio_of(pair: Pair, rounds: int) -> dict[str, float]:
    """Return the least microseconds of each for a unit of work, and how many times faster the
    kernel is.
    """
    timed(pair.kernel)  # compiles
    seconds = [(timed(pair.kernel), timed(pair.twin)) for _ in range(rounds)]
    ours, theirs = (min(column) for column in zip(*seconds, strict=True))
    micros, numpy = ours / pair.units * 1e6, theirs / pair.twin_units * 1e6
    return {"microseconds": micros, "numpy": numpy, "times_numpy": numpy / micros}


def cpp_figures() -> dict[str, float]:
    """Return microseconds of one thread of the published C++ program for a unit of work."""
    with Path(ROOT, "benchmarks", "cpp.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {
        row["kernel"]: float(row["figure"])
        if row["unit"] == "microseconds"
        else 1e6 / float(row["figure"])
        for row in rows
    }


def measure(kernel: Kernel, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure one kernel."""
    started = time.perf_counter()
    found: dict[str, Any] = {"kernel": kernel.name, **ratio_of(kernel.make(), rounds)}
    if cpp := cpp_figures().get(kernel.name):
        found |= {"cpp": cpp, "times_cpp": cpp / found["microseconds"]}
    rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}
    return rounded | {"seconds": round(time.perf_counter() - started, 1)}


def on_one_core() -> None:
    """Stay on one core, JAX and NumPy alike, for any other load.

    To be called before JAX starts.
    """
    jax.config.update("jax_platforms", "cpu")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="kernels, by any part of their names; default: all"
    )
    parser.add_argument("--quick", action="store_true", help="those of `make bench-check` only")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    on_one_core()
    for kernel in KERNELS:
        wanted = not chosen.names or any(name in kernel.name for name in chosen.names)
        if wanted and (kernel.quick or not chosen.quick):
            print(json.dumps(measure(kernel, chosen.rounds)), flush=True)


if __name__ == "__main__":
    main()
