"""Keeping the plan of the posterior mean optimal: the incremental planner beside value iteration
and a plain NumPy planner.

python benchmarks/planner.py [PROBLEM …]
python benchmarks/planner.py --tables

The transitions of recorded trajectories are learned again, 512 MDPs at once on one core. For each
problem one JSON line: microseconds for each transition of (1) the incremental planner, each MDP at
its own pace, as agents use it; (2) the same, all MDPs in step; (3) value iteration from the
previous solution, in step, stopped at the tolerance that gives the same guarantee; (4) value
iteration from zero, stopped as the published program does, at changes of 0.01; (5) NumPy, policy
iteration for one MDP. Then their ratios, and how far the values lie from those of NumPy in float64.

Lines are added to benchmarks/results/planner-cpu2.jsonl (cpu2: two cores); `--tables` makes the
table of docs/performance.md from the latest ones.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks import kept
from benchmarks.twins.planner import policy_iteration
from jbrl import play, vectorize
from jbrl.agents.bayes import mean_model as beliefs
from jbrl.agents.bayes.mean_model import EpsilonGreedy
from jbrl.mdp import incremental, planning
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.lookup import problem
from jbrl.problems.problem import DirichletProblem

LANES, STEPS, SINGLE = 512, 100, 4
DISCOUNT = np.float32(0.95)
PROBLEMS = ("GC", "GDL", "Grid", "UGC", "UGDL", "UGrid")


def distribution(name: str) -> DirichletMDPs:
    """Return the distribution over finite MDPs of a problem."""
    found = problem(name)
    assert isinstance(found, DirichletProblem)
    return found.mdps


def trajectories(name: str) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return states, actions and next states [LANES, STEPS] of e-Greedy with prior `name`."""
    test = name.removeprefix("U")
    moves = play(
        EpsilonGreedy(epsilon=0.1),
        prior=name,
        test=test,
        n_environments=LANES,
        horizon=STEPS,
        record=True,
    ).trajectories
    assert moves is not None
    x = jnp.asarray(moves["states"])
    return x[:, :-1], jnp.asarray(moves["actions"]), x[:, 1:]


def at_own_pace(belief: beliefs.Belief, moves: tuple) -> jax.Array:
    """Compute action values after all transitions, each one being taken in as soon as the plan is
    certified.
    """

    def learn(carry: tuple, moves: tuple) -> tuple:
        belief, t, q = carry
        x, u, y = (vectorize.get_entry(v, jnp.minimum(t, STEPS - 1)) for v in moves)
        t = t + (incremental.converged(belief.plan) & (t <= STEPS)).astype(jnp.int32)
        belief = beliefs.improve(beliefs.add_transition(belief, x, u, y))
        # What a finished lane learns from here on, waiting for the others, does not count.
        return belief, t, jnp.where(t > STEPS, q, belief.plan.action_values)

    def unfinished(carry: tuple, _: tuple) -> jax.Array:
        return carry[1] <= STEPS

    begin = (belief, jnp.int32(0), belief.plan.action_values)
    return vectorize.while_active(unfinished, learn, begin, moves, keep="nothing", lanes_last=True)[
        2
    ]


def in_step(belief: beliefs.Belief, moves: tuple) -> jax.Array:
    """Compute the same, all MDPs waiting for the slowest after each transition."""
    return lax.scan(lambda b, move: (beliefs.learn(b, *move), None), belief, moves)[
        0
    ].plan.action_values


def value_iteration(
    belief: beliefs.Belief, moves: tuple, *, tolerance: float | None, warm: bool
) -> jax.Array:
    """Compute action values after all transitions by value iteration after each."""

    def learn(carry: tuple, move: tuple) -> tuple:
        counts, q = carry
        counts = counts.at[move].add(1.0)
        totals = counts.sum(-1)
        rewards = (counts * belief.rewards).sum(-1) / totals
        stop = planning.TIE_TOLERANCE * jnp.abs(q).max() if tolerance is None else tolerance
        start = q if warm else None
        return (
            counts,
            planning.value_iteration(
                counts / totals[:, :, None], rewards, DISCOUNT, tolerance=stop, initial=start
            ).q,
        ), None

    return lax.scan(learn, (belief.counts, belief.plan.action_values), moves)[0][1]


def numpy_planner(counts: np.ndarray, rewards: np.ndarray, moves: tuple) -> np.ndarray:
    """Compute action values of one MDP after all transitions, solved from scratch after each."""
    for x, u, y in zip(*moves, strict=True):
        counts[x, u, y] += 1
        transitions = counts / counts.sum(-1, keepdims=True)
        q = policy_iteration(transitions, (transitions * rewards).sum(-1), float(DISCOUNT))
    return q


def fastest(call: Callable[[], jax.Array], repetitions: int = 3) -> tuple[np.ndarray, float]:
    """Return the result, and the least seconds of several calls after the one that compiles."""
    result = np.asarray(call())
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - started)
    return result, min(times)


def measure(name: str) -> dict:
    """Measure all planners on the transitions of one problem."""
    moves, mdps = trajectories(name), distribution(name)
    belief = jax.jit(beliefs.prior_belief)(jax.tree.map(jnp.asarray, mdps), DISCOUNT)
    ways: dict[str, Callable] = {
        "incremental": at_own_pace,
        "in_step": in_step,
        "value_iteration": lambda b, m: value_iteration(b, m, tolerance=None, warm=True),
        "published_solver": lambda b, m: value_iteration(b, m, tolerance=0.01, warm=False),
    }
    micros, values = {}, {}
    for way, learn in ways.items():
        mapped = jax.jit(jax.vmap(learn, in_axes=(None, 0)))
        values[way], seconds = fastest(partial(mapped, belief, moves))
        micros[way] = seconds / (LANES * STEPS) * 1e6
    started = time.perf_counter()
    exact = [
        numpy_planner(
            np.array(mdps.concentrations, float),
            np.asarray(mdps.rewards, float),
            tuple(np.asarray(m[i]) for m in moves),
        )
        for i in range(SINGLE)
    ]
    micros["numpy"] = (time.perf_counter() - started) / (SINGLE * STEPS) * 1e6
    return {
        "problem": name,
        "microseconds": {way: round(v, 3) for way, v in micros.items()},
        "times_incremental": {
            way: round(v / micros["incremental"], 1) for way, v in micros.items()
        },
        "greatest_error": {
            way: float(f"{abs(q[:SINGLE] - exact).max():.2g}") for way, q in values.items()
        },
        "greatest_value": round(float(np.max(exact)), 2),
    }


COLUMNS = {
    "incremental": "incremental, own pace",
    "in_step": "incremental, in step",
    "value_iteration": "value iteration, same guarantee",
    "published_solver": "value iteration, published rule",
    "numpy": "NumPy",
}


def write_table(file: Path) -> None:
    """Write microseconds for each problem and planner."""
    found = {name: row for (name,), row in kept.latest(file, ("problem",)).items()}
    lines = [
        [name, *(kept.number(found[name]["microseconds"][way]) for way in COLUMNS)]
        for name in PROBLEMS
    ]
    kept.write("planner", found.values(), kept.table(("problem", *COLUMNS.values()), lines))


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__, "planner")
    parser.add_argument("problems", nargs="*", help=f"default: {', '.join(PROBLEMS)}")
    chosen = parser.parse_args(arguments)
    if chosen.tables:
        write_table(chosen.out)
        return
    for name in chosen.problems or PROBLEMS:
        kept.keep(measure(name), chosen.out)


if __name__ == "__main__":
    main()
