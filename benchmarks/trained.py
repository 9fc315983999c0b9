"""Decisions a second of training on the prior, and time of a decision afterwards, on one core: one
JSON line for each case.

python benchmarks/trained.py [--agents NAME …] [--problems NAME …] [--out FILE]
python benchmarks/trained.py --tables [--out FILE]    writes the table of docs/trained.md

`collected`: decisions that the stochastic policy plays a second, without learning. `trained`: the
same with all passes of learning. `online`: nanoseconds of a decision of the trained policy, 256
lifetimes at once. Processor seconds after compilation, in which waiting for other programs does not
count; the least of three rounds.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp

import jbrl
from benchmarks import kept
from jbrl.agents.prior_trained import belief_ppo, imitation, rl2
from jbrl.environments.spec import Steps
from jbrl.play import batching, compilation
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem

AGENTS, PROBLEMS = ("BeliefPPO", "RL2", "ANN", "DPT"), ("GC", "GDL", "Grid")
COLLECT = {
    "BeliefPPO": lambda settings, parameters, given, key, number: belief_ppo.collect_beliefs(
        settings, parameters, given[:2], key, number
    ),
    "RL2": rl2.remember,
    "ANN": lambda settings, _, given, key, number: imitation.demonstrate(
        settings, given, key, number, lambda best, _: best
    ),
    "DPT": lambda settings, parameters, given, key, number: imitation.demonstrate(
        settings, given, key, number, imitation.greedily(settings.network, parameters)
    ),
}
SECONDS = 1.0  # of a round, about


def seconds(call: Callable[[], Any]) -> float:
    """Return processor seconds of a call, the least of three rounds."""
    jax.block_until_ready(call())
    found = []
    for _ in range(3):
        started, count = time.process_time(), 0
        while time.process_time() - started < SECONDS:
            jax.block_until_ready(call())
            count += 1
        found.append((time.process_time() - started) / count)
    return min(found)


def measure(name: str, problem_name: str) -> dict[str, Any]:
    found = problem(problem_name)
    prior = found.prior(Steps(250), 0.95)
    agent: Any = jbrl.AGENTS[name].agent()
    lesson, key = agent.lesson(prior), jax.random.key(0)
    state = lesson.start(key)
    device = jax.devices()[:1]
    example = jax.device_put((state, jnp.float32(1), key, lesson.settings), device[0])
    training = compilation.compile_once(lesson.round, example)
    settings, known = lesson.settings
    compiler = compilation.options(device[0].platform)
    collect = (
        jax.jit(lambda p, known, number: COLLECT[name](settings, p, known, key, number))
        .lower(state.parameters, known, jnp.int32(0))
        .compile(compiler_options=compiler)
    )
    width, horizon = settings.width, settings.horizon
    collecting = seconds(lambda: collect(state.parameters, known, jnp.int32(0)))
    learning = seconds(lambda: training.call(example))
    policy = agent.trained({"parameters": state.parameters, **lesson.known})
    run = Run(policy, Protocol(found, found, 256, 0, Steps(250), 0.95))
    run.prepare()
    scheduler: Any = run.scheduler
    shared = batching.spread([(run.agent, run.knowledge)] * len(run.devices), run.devices)
    test = batching.spread([run.test] * len(run.devices), run.devices)
    numbers, _ = next(iter(batching.groups(0, 256, run.batch)))
    drawn = scheduler._drawing.call(test, numbers)
    online = seconds(lambda: scheduler._playing.call(shared, drawn))
    return {
        "agent": name,
        "problem": problem_name,
        "collected": round(width * horizon / collecting),
        "trained": round(lesson.lifetimes * horizon / learning),
        "online_ns": round(online / (run.batch * 250) * 1e9, 1),
    }


def tables(file: Path) -> None:
    """Write the table of the documentation."""
    found = kept.latest(file, ("agent", "problem")).values()
    header = ("agent", "problem", "decisions collected a second", "trained a second", "online")
    rows = [
        (
            row["agent"],
            row["problem"],
            *(f"{kept.number(row[name] / 1e6)} million" for name in ("collected", "trained")),
            f"{row['online_ns']:.0f} ns",
        )
        for row in found
    ]
    kept.write("trained", found, kept.table(header, rows, texts=2))


def main(arguments: list[str] | None = None) -> None:
    parser = kept.parser(__doc__, "trained")
    parser.add_argument("--agents", nargs="+", default=AGENTS)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    options = parser.parse_args(arguments)
    if options.tables:
        tables(options.out)
        return
    for name in options.agents:
        for problem_name in options.problems:
            kept.keep(measure(name, problem_name), options.out)


if __name__ == "__main__":
    main()
