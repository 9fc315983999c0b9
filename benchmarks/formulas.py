"""Formula sets, their evaluation, bandits and StoSOO, and the tables of docs/formulas.md.

python benchmarks/formulas.py [enumeration | evaluation | bandits | overhead | stosoo] …
    [--out FILE] [--tables]
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import kept
from experiments.formula_sets import enumerate_set
from experiments.halving import SequentialHalving
from jbrl.agents.opps.bandits import begin, search
from jbrl.agents.opps.evaluation import evaluate, programs
from jbrl.agents.opps.formulas import formula_set
from jbrl.agents.opps.opps import StoSOO
from jbrl.agents.opps.ucb import UCB1, UCBV

LANES = 512
DECISIONS = 250
SETS = ("F2", "F3", "F4", "F5", "F6")
# Castronovo et al. 2016, and what their program enumerates
PUBLISHED = {
    "paper": ("12", "43", "226", "1210", "7407"),
    "published program, seed 1": ("12", "43", "226", "1204", "7324"),
}
DOMAINS = {"signed": "jbrl", "values": "jbrl, `values`"}
BANDITS: dict[str, tuple[str, Any]] = {
    "UCB1(660)": ("UCB1, c = 660", UCB1(660.0)),
    "UCB1(85)": ("c = 85 (√2 · 60)", UCB1(60 * 2**0.5)),
    "UCB1(20)": ("c = 20", UCB1(20.0)),
    "UCBV(60)": ("UCB-V", UCBV(60.0)),
    "halving": ("halving", SequentialHalving()),
}
FUNCTIONS = {
    "1 - (x - 0.7)^2 on [-1, 2]": "$1 - (x - 0.7)^2$ on $[-1, 2]$",
    "sin 13x sin 27x / 2 + 1/2 on [0, 1]": (
        r"$\frac{1}{2} \sin 13x \sin 27x + \frac{1}{2}$ on $[0, 1]$"
    ),
    "1 - |x - a|^2 on [-1, 1]^3": r"$1 - \lVert x - a \rVert^2$ on $[-1, 1]^3$",
}


def fastest(call: Callable[[], object], repetitions: int = 25) -> float:
    """Return the least seconds of several calls, the first not counted: it compiles."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - started)
    return min(times)


def enumeration(report: Callable[..., None]) -> None:
    """Count the formulas of each set, five seeds of the points that separate rankings."""
    for domain in ("signed", "values"):
        for seed in range(1, 6):
            started = time.perf_counter()
            found = enumerate_set(6, domain, seed)
            seconds = time.perf_counter() - started
            counts = [sum(len(tokens) <= n for tokens in found) for n in range(2, 7)]
            report(
                benchmark="enumeration",
                domain=domain,
                seed=seed,
                counts=counts,
                seconds=round(seconds, 2),
            )


def evaluation(report: Callable[..., None]) -> None:
    """Time one decision of lanes that run different formulas, beside that of lanes that all run
    Q0/Q2.
    """
    rng = np.random.default_rng(0)
    for name, n_actions in (
        ("F2", 4),
        ("F3", 3),
        ("F4", 2),
        ("F4", 4),
        ("F5", 4),
        ("F6", 2),
        ("F6", 4),
    ):
        q = jnp.asarray(rng.uniform(0, 50, (LANES, 3, n_actions)), jnp.float32)
        expressions = formula_set(name)
        every = programs(expressions)
        rows = jax.tree.map(
            lambda words: jnp.asarray(words[rng.integers(0, len(words), LANES)]), every
        )

        def different(q: jax.Array, rows: object = rows) -> jax.Array:
            values, valid = jax.vmap(evaluate)(rows, q)
            return jnp.where(valid[:, None], values, 0.0)

        seconds = {}
        for label, value in (("different", different), ("one", lambda q: q[:, 0] / q[:, 2])):

            @jax.jit
            def trajectory(q: jax.Array, value: Callable = value) -> jax.Array:
                total = jnp.zeros((LANES, n_actions), jnp.float32)  # noqa: B023
                return lax.scan(
                    lambda carry, _: ((carry[0] * 1.0001, carry[1] + value(carry[0])), None),
                    (q, total),
                    None,
                    DECISIONS,
                )[0][1]

            seconds[label] = fastest(lambda: trajectory(q)) / DECISIONS / LANES  # noqa: B023
        cost = {f"{label}_ns": round(s * 1e9, 1) for label, s in seconds.items()}
        report(
            benchmark="evaluation",
            set=name,
            actions=n_actions,
            instructions=every.words.shape[1],
            lanes=LANES,
            **cost,
        )


def arms(n_arms: int, seed: int = 1) -> np.ndarray:
    """Return means like those of the formulas on GC."""
    return np.random.default_rng(seed).normal(30, 7, n_arms)


def bandits(report: Callable[..., None]) -> None:
    """Time the loop over pulls, all returns waiting: the part of a search that remains when
    simulation costs nothing.
    """
    rng = np.random.default_rng(0)
    for n_arms, pulls in (
        (12, 100_000),
        (43, 1_000_000),
        (226, 100_000),
        (1212, 100_000),
        (3093, 50_000),
        (7408, 50_000),
    ):
        each = 30 * pulls // n_arms
        values = rng.normal(np.repeat(arms(n_arms), each), 15)
        bandit = UCB1(660.0)
        start = begin(bandit, n_arms)
        streams = start.streams.extend(np.repeat(np.arange(n_arms), each), values)
        advance = lambda: bandit.advance(start.state, streams, pulls)[0].counts  # noqa: B023, E731
        report(
            benchmark="bandits",
            arms=n_arms,
            pulls=pulls,
            microseconds_per_pull=round(fastest(advance, 5) / pulls * 1e6, 2),
        )


def overhead(report: Callable[..., None]) -> None:
    """Measure the returns simulated without use, as a fraction of the pulls; Gaussian arms."""
    rng = np.random.default_rng(2)
    for n_arms in (12, 43, 226):
        means = arms(n_arms)
        for each in (10, 100):
            for width in (1, 64, 512):
                vain = {}
                for name, (_, bandit) in BANDITS.items():
                    *_, last = search(
                        bandit,
                        begin(bandit, n_arms),
                        each * n_arms,
                        lambda a, _: rng.normal(means[a], 15),  # noqa: B023
                        width,
                    )
                    vain[name] = round(last.streams.simulated / last.state.pulls - 1, 3)
                report(benchmark="overhead", arms=n_arms, pulls=each * n_arms, width=width, **vain)


def stosoo(report: Callable[..., None]) -> None:
    """Measure the loss of the answer against the maximum, mean over 8 seeds; values in about [0,
    1], noise of standard deviation 0.1.
    """
    functions = {
        "1 - (x - 0.7)^2 on [-1, 2]": (lambda x: 1 - (x[0] - 0.7) ** 2, 1.0, (-1.0,), (2.0,)),
        "sin 13x sin 27x / 2 + 1/2 on [0, 1]": (
            lambda x: np.sin(13 * x[0]) * np.sin(27 * x[0]) / 2 + 0.5,
            0.97560,
            (0.0,),
            (1.0,),
        ),
        "1 - |x - a|^2 on [-1, 1]^3": (
            lambda x: 1 - ((x - np.array([0.7, 0.2, -0.3])) ** 2).sum(),
            1.0,
            (-1.0,) * 3,
            (1.0,) * 3,
        ),
    }
    for name, (function, greatest, low, high) in functions.items():
        for budget in (100, 500, 2000):
            lost: dict[str, float] = {}
            for linger in (False, True):
                answers = []
                for seed in range(8):
                    rng = np.random.default_rng(seed)
                    rules = StoSOO(low, high, budget=budget, linger=linger, seed=seed)
                    *_, tree = rules.search(
                        lambda x: function(x) + 0.1 * rng.standard_normal()  # noqa: B023
                    )
                    answers.append(greatest - function(tree.centres[rules.best(tree)]))
                lost["lingering" if linger else "published"] = round(
                    float(statistics.mean(answers)), 4
                )
            report(benchmark="stosoo", function=name, evaluations=budget, **lost)


MEASURED = {f.__name__: f for f in (enumeration, evaluation, bandits, overhead, stosoo)}
KEYS = {
    "enumeration": ("domain", "seed"),
    "evaluation": ("set", "actions"),
    "bandits": ("arms",),
    "overhead": ("arms", "pulls", "width"),
    "stosoo": ("function", "evaluations"),
}


def sets_rows(found: dict[tuple, dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the numbers of formulas: the published ones, the shipped sets, other seeds."""
    rows: list[tuple[str, ...]] = [(name, *counts) for name, counts in PUBLISHED.items()]
    for domain, label in DOMAINS.items():
        rows.append((f"{label}, shipped", *(str(len(formula_set(f, domain))) for f in SETS)))
        others = [row["counts"] for (where, seed), row in found.items() if where == domain]
        counts = [sorted(set(column)) for column in zip(*others, strict=True)]
        texts = [f"{c[0]}" if len(c) == 1 else f"{c[0]} to {c[-1]}" for c in counts]
        rows.append((f"{label}, {len(others)} seeds", *texts))
    return rows


def evaluation_row(row: dict[str, Any]) -> tuple[str, ...]:
    times = (f"{row[name]:.0f}" for name in ("different_ns", "one_ns"))
    return (row["set"], str(row["actions"]), str(row["instructions"]), *times)


def bandits_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (f"{row['arms']:,}", f"{row['pulls']:,}", kept.number(row["microseconds_per_pull"]))


def overhead_row(row: dict[str, Any]) -> tuple[str, ...]:
    sizes = (f"{row[name]:,}" for name in KEYS["overhead"])
    return (*sizes, *(f"{row[name]:.3f}" for name in BANDITS))


def stosoo_row(row: dict[str, Any]) -> tuple[str, ...]:
    lost = (f"{row[name]:.3f}" for name in ("published", "lingering"))
    return (FUNCTIONS[row["function"]], f"{row['evaluations']:,}", *lost)


ROWS = {
    "evaluation": (
        ("set", "actions", "instructions", "different formulas", "one formula"),
        evaluation_row,
    ),
    "bandits": (("arms", "pulls", "microseconds for each pull"), bandits_row),
    "overhead": (
        ("arms", "pulls", "width", *(label for label, _ in BANDITS.values())),
        overhead_row,
    ),
    "stosoo": (("function", "evaluations", "published", "lingering"), stosoo_row),
}


def tables(file: Path) -> None:
    """Write the tables of the documentation."""
    counted = kept.latest(file, KEYS["enumeration"], benchmark="enumeration")
    text = kept.table(("", *SETS), sets_rows(counted))
    kept.write("formulas-sets", counted.values(), text)
    for name, (header, row) in ROWS.items():
        found = kept.latest(file, KEYS[name], benchmark=name).values()
        kept.write(f"formulas-{name}", found, kept.table(header, map(row, found)))


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = kept.parser(__doc__, "formulas")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(MEASURED)}; default: all")
    chosen = parser.parse_args(arguments)
    for name in chosen.parts:
        if name not in MEASURED:
            parser.error(f"part '{name}': expected {', '.join(MEASURED)}")
    if chosen.tables:
        tables(chosen.out)
        return
    for name in chosen.parts or MEASURED:
        MEASURED[name](lambda **row: kept.keep(row, chosen.out))


if __name__ == "__main__":
    main()
