"""Performance of jbrl on a GPU, in one run that ends within nine minutes.

python benchmarks/gpu.py [--device gpu|cpu] [--budget SECONDS] [--out FILE] [--tiny]
python benchmarks/gpu.py --draw FILE … --figure docs/_static/gpu.svg
python -m benchmarks.gpu predict [--agents NAME…] [--tables]

Measured, in this order: the device (bandwidth of a copy, microseconds of an iteration of a loop
that does next to nothing); sweeps of value iteration as a share of that bandwidth; precision
against NumPy in float64; then for each agent, on 512 MDPs, decisions per second, compilation,
whether three runs agree to the last bit, and its returns beside those of the CPU of the same
machine on the same MDPs with the same random draws; some of them again with loops that the host
runs, not recorded in graphs (`compilation.ON_GPU`); the agents on 65,536 MDPs; decisions per second
of training on the prior; pulls per second of a search on the prior against batch width; the agents
on 4,096 MDPs; and steps per second of the deep agents on settings of bsuite, against the number of
lifetimes at once. What the budget leaves no time for is named as skipped, and what is still being
measured a little after it is given up. `--sections NAME …` and `--agents NAME …` measure these
alone, `--without-cpu` leaves out what the CPU plays. The file (default:
benchmarks/results/gpu-DEVICE.json) is written anew after each measurement, so that a run that is
stopped has lost nothing. `--tiny` is for trying the program out: its sizes mean nothing.

`predict` needs no GPU: `gpu_model.py` reads what the compiler makes for one, and adds rows to
`gpu-predicted.jsonl`; `--tables` only writes the table of predictions, and of what was measured.
"""

import argparse
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for the twins

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

from benchmarks import deep, gpu_model  # noqa: E402
from benchmarks.planner import distribution  # noqa: E402
from benchmarks.twins.planner import policy_iteration  # noqa: E402
from jbrl.agents.bayes import mean_model as beliefs  # noqa: E402
from jbrl.agents.opps.formulas import formula_set  # noqa: E402
from jbrl.agents.opps.opps import OPPSDS  # noqa: E402
from jbrl.agents.opps.ranking import formula_policies  # noqa: E402
from jbrl.agents.registry import AGENTS  # noqa: E402
from jbrl.base.files import write_whole  # noqa: E402
from jbrl.environments.spec import Steps  # noqa: E402
from jbrl.mdp import planning  # noqa: E402
from jbrl.play import compilation  # noqa: E402
from jbrl.play.batching import use_all_cores  # noqa: E402
from jbrl.play.experiment import Run  # noqa: E402
from jbrl.play.machine import machine, versions  # noqa: E402
from jbrl.play.offline import SearchCheckpoint, Trials, learn  # noqa: E402
from jbrl.play.protocol import Protocol  # noqa: E402
from jbrl.play.resources import Resources  # noqa: E402
from jbrl.problems.lookup import problem  # noqa: E402

Row = dict[str, Any]
STANDARD_ERRORS = 4.5  # two-sided, for one agent: 7 in a million
GRACE = 15.0  # seconds after the budget until a measurement is given up
# seconds that a measurement may take, at least, when it is asked whether there is time left
LEAST = 20.0


@dataclass(frozen=True)
class Sizes:
    """Sizes of all measurements."""

    copied: int = 2**29  # numbers
    mdps: int = 65_536  # solved at once
    iterations: int = 20_000
    pulls: int = 10_000
    batches: tuple[int, ...] = (256, 2048, 16_384)
    widths: tuple[int, ...] = gpu_model.WIDTHS
    lanes: tuple[int, ...] = (64, 4096)  # lifetimes of deep agents at once
    shorten: int = 1  # horizons are divided by this
    agents: int | None = None  # so many of the table; None: all


ON_CPU = Sizes(
    copied=2**24, mdps=2048, batches=(64, 256, 1024), widths=(512, 4096), lanes=(2, 16, 64)
)
TINY = Sizes(2**12, 8, 50, 30, (4,), (4,), (2,), 50, 2)

# Agent, parameters, problem, decisions.
TABLE: tuple[tuple[str, Row, str, int], ...] = (
    ("e-Greedy", {"epsilon": 0.1}, "GC", 250),
    ("BAMCP", {"simulations": 50, "depth": 15}, "GC", 20),
    ("Random", {}, "GC", 250),
    ("Optimal", {}, "GC", 250),
    ("Soft-max", {"tau": 0.33}, "GC", 250),
    ("VDBE-e-Greedy", {"sigma": 1.0}, "GC", 250),
    ("BEB", {"beta": 2.0}, "GC", 250),
    ("PSRL", {"period": 50}, "GC", 250),
    ("BFS3", {"trajectories": 1, "samples": 2}, "GC", 50),
    ("BOSS", {"sampled": 5}, "GC", 50),
    ("SBOSS", {"epsilon": 0.1}, "GC", 50),
    ("e-Greedy", {"epsilon": 0.1}, "Grid", 250),
    ("BAMCP", {"simulations": 50, "depth": 15}, "Grid", 20),
    ("BEB", {"beta": 2.0}, "Grid", 250),
)

# Where loops that the host runs are measured.
HOSTED: tuple[tuple[str, Row, str, int], ...] = (
    ("BAMCP", {"simulations": 50, "depth": 15}, "GC", 20),
    ("BFS3", {"trajectories": 1, "samples": 2}, "GC", 50),
    ("BOSS", {"sampled": 5}, "GC", 50),
    ("e-Greedy", {"epsilon": 0.1}, "GC", 250),
    ("e-Greedy", {"epsilon": 0.1}, "Grid", 250),
)

# Agent trained on the prior, problem.
TRAINED: tuple[tuple[str, str], ...] = (
    ("DPT", "GC"),
    ("BeliefPPO", "GC"),
    ("DPT", "Grid"),
    ("BeliefPPO", "Grid"),
)

# Deep agent, setting of bsuite.
DEEP: tuple[tuple[str, str], ...] = (
    ("DQN", "catch/0"),
    ("PPO", "catch/0"),
    ("ActorCritic", "catch/0"),
    ("DQN", "deep_sea/10"),
    ("BootDQN", "deep_sea/0"),
    ("RecurrentActorCritic", "memory_len/0"),
)


@dataclass
class Report:
    """Measurements so far, on disk after each one."""

    file: Path
    facts: Row
    budget: float
    rows: list[Row] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    longest: float = 0.0  # seconds of a measurement so far
    sections: Sequence[str] = ()  # that are measured; empty: all
    agents: Sequence[str] = ()  # that play, likewise

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def measure(self, what: Row, call: Callable[[], Row]) -> Row | None:
        """Make one measurement, unless one as long as the longest so far would not fit; a failure
        is recorded, and the others continue.
        """
        if self.sections and what["section"] not in self.sections:
            return None
        if self.agents and "agent" in what and what["agent"] not in self.agents:
            return None
        before = self.seconds
        if before + max(LEAST, self.longest) > self.budget:
            self._add({**what, "skipped": "no time left"})
            return None
        try:
            found = call()
        except Exception as error:  # a failure of one measurement must not lose the others
            self._add({**what, "failed": f"{type(error).__name__}: {error}"[:500]})
            return None
        self.longest = max(self.longest, self.seconds - before)
        self._add({**what, **found})
        return self.rows[-1]

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        content = {
            **self.facts,
            "budget": self.budget,
            "seconds": round(self.seconds, 1),
            "rows": self.rows,
        }
        write_whole(self.file, (json.dumps(content, indent=1) + "\n").encode())


def fastest(call: Callable[[], Any], repetitions: int = 5) -> float:
    """Return the least wall seconds of several calls after the one that compiles."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def figures(**numbers: Any) -> Row:
    """Round floats to four digits."""
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in numbers.items()
    }


# ---- the device ----


def copy_bandwidth(count: int) -> Row:
    """Measure bytes read and written by an array that is copied, with 1 added."""
    numbers = jnp.zeros(count, jnp.float32)
    return figures(gigabytes_per_second=8 * count / fastest(lambda: _plus_one(numbers)) / 1e9)


@jax.jit
def _plus_one(numbers: jax.Array) -> jax.Array:
    return numbers + 1


def loop_iteration(width: int, count: int) -> Row:
    """Time a `while_loop` whose body is one small fused operation, and which asks whether any lane
    is left, as those of jbrl do.
    """

    @jax.jit
    def loop(numbers: jax.Array) -> jax.Array:
        return lax.while_loop(
            lambda c: (c[0] < count) & (c[1] < jnp.inf).any(),
            lambda c: (c[0] + 1, c[1] * 1.0001),
            (0, numbers),
        )[1]

    return figures(
        microseconds_per_iteration=fastest(lambda: loop(jnp.zeros(width)), 3) / count * 1e6
    )


# ---- planning ----


def random_mdps(count: int, n_states: int, n_actions: int) -> tuple[jax.Array, jax.Array]:
    """Return transitions [N, S, A, S] and rewards [N, S, A] made on the device."""
    first, second = jax.random.split(jax.random.key(0))
    weights = jax.random.exponential(first, (count, n_states, n_actions, n_states))
    return weights / weights.sum(-1, keepdims=True), jax.random.uniform(
        second, (count, n_states, n_actions)
    )


def sweep_bandwidth(count: int, bandwidth: float) -> Row:
    """Time sweeps of value iteration over `count` MDPs of the size of Grid: each reads all
    transitions once.
    """
    transitions, rewards = jax.jit(random_mdps, static_argnums=(0, 1, 2))(count, 25, 4)
    sweeps = 20

    @jax.jit
    def solve(transitions: jax.Array, rewards: jax.Array) -> jax.Array:
        def sweep(_: jax.Array, q: jax.Array) -> jax.Array:
            values = q.max(-1)
            return jax.vmap(planning.sweep, in_axes=(0, 0, 0, None))(
                transitions, rewards, values, jnp.float32(0.95)
            )

        return lax.fori_loop(0, sweeps, sweep, jnp.zeros_like(rewards))

    seconds = fastest(lambda: solve(transitions, rewards), 3) / sweeps
    rate = transitions.size * 4 / seconds / 1e9
    return figures(
        mdps=count,
        gigabytes_per_second=rate,
        share_of_copy=rate / bandwidth,
        microseconds_per_sweep=seconds * 1e6,
    )


def precision(n_states: int, n_actions: int) -> Row:
    """Measure the greatest error of action values against policy iteration in float64, as a part of
    the greatest value.
    """
    transitions, rewards = random_mdps(64, n_states, n_actions)
    p, r = np.asarray(transitions, np.float64), np.asarray(rewards, np.float64)
    exact = np.array(
        [policy_iteration(*one, 0.95) for one in zip(p / p.sum(-1, keepdims=True), r, strict=True)]
    )
    discount, found = jnp.float32(0.95), {}
    for name, solve in (
        ("value_iteration", lambda p, r: planning.value_iteration(p, r, discount, tolerance=0.0).q),
        ("policy_iteration", lambda p, r: planning.policy_iteration(p, r, discount).q),
    ):
        q = np.asarray(jax.jit(jax.vmap(solve))(transitions, rewards))
        found[name] = float(abs(q - exact).max() / exact.max())
    return figures(mdps=len(exact), **found)


def incremental_precision(name: str) -> Row:
    """Measure the same of the plan of the mean model after it has followed 60 transitions."""
    mdps, rng, steps = distribution(name), np.random.default_rng(0), 60
    moves = tuple(
        rng.integers(0, n, steps).astype(np.int32)
        for n in (mdps.n_states, mdps.n_actions, mdps.n_states)
    )
    begin = jax.jit(beliefs.prior_belief)(jax.tree.map(jnp.asarray, mdps), jnp.float32(0.95))
    learn = jax.jit(
        lambda belief, moves: (
            lax.scan(lambda b, move: (beliefs.learn(b, *move), None), belief, moves)[0].plan.q
        )
    )
    counts = np.array(mdps.concentrations, np.float64)
    for x, u, y in zip(*moves, strict=True):
        counts[x, u, y] += 1
    p = counts / counts.sum(-1, keepdims=True)
    exact = policy_iteration(p, (p * np.asarray(mdps.rewards, np.float64)).sum(-1), 0.95)
    return figures(error=float(abs(np.asarray(learn(begin, moves)) - exact).max() / exact.max()))


# ---- searching the prior ----


def batch_of_pulls(name: str, width: int, devices: list[jax.Device], horizon: int) -> Row:
    """Time trajectories of different formulas of F3 in one call."""
    told = Protocol(problem(name), problem(name), lifetime=Steps(horizon)).agent_prior()
    expressions = [e for e in formula_set("F3") if len(e.variables) == 2]
    trials, policies = (
        Trials(told, 0.95, jax.random.key(0), devices, width),
        formula_policies(expressions),
    )
    compiling = time.perf_counter()
    trials.compile([policies], width)
    compiling = time.perf_counter() - compiling
    arms = np.arange(trials.width) % len(expressions)
    stack = jax.tree.map(lambda v: v[arms], policies)
    seconds = fastest(lambda: trials(stack, arms, np.arange(trials.width)), 3)
    return figures(
        width=trials.width, pulls_per_second=trials.width / seconds, compile_seconds=compiling
    )


def search(name: str, budget: int, devices: list[jax.Device], horizon: int) -> Row:
    """Time a whole search of F3 by UCB1, compilation apart."""
    told = Protocol(problem(name), problem(name), lifetime=Steps(horizon)).agent_prior()
    trials = Trials(told, 0.95, jax.random.key(0), devices)
    found, compiling = learn(OPPSDS("F3", budget), 0, told, trials, SearchCheckpoint())
    vain = found.simulated / found.consumed - 1
    return figures(
        pulls=found.consumed,
        pulls_per_second=found.consumed / found.seconds,
        in_vain=vain,
        compile_seconds=compiling,
    )


# ---- agents ----


def play(
    name: str,
    parameters: Row,
    on: str,
    n_environments: int,
    horizon: int,
    devices: list[jax.Device],
) -> tuple[Row, np.ndarray]:
    """Return figures of three runs of one compiled program, and the returns of the last."""
    protocol = Protocol(
        problem(on), problem(on), n_environments=n_environments, lifetime=Steps(horizon)
    )
    lanes = None if on_cpu(devices) else -(-n_environments // len(devices))
    resources = Resources(devices)
    run = Run(AGENTS[name].agent(**parameters), protocol, resources=resources, lanes=lanes)
    run.prepare()
    seconds, returns = [], []
    for _ in range(3):
        chunks = list(run.chunks())
        seconds.append(sum(chunk.online_seconds for chunk in chunks))
        returns.append(np.concatenate([chunk.returns for chunk in chunks]))
    least, calls = min(seconds), -(-n_environments // run.batch)
    row = figures(
        decisions_per_second=n_environments * horizon / least,
        compile_seconds=run.compile_seconds,
        microseconds_per_step=least / horizon / calls * 1e6,  # of a decision of all lanes of a call
        same_bits=len({r.tobytes() for r in returns}) == 1,
        graphs="xla_gpu_enable_command_buffer" in compilation.options(devices[0].platform),
    )
    return row, returns[-1]


def agent(
    name: str,
    parameters: Row,
    on: str,
    horizon: int,
    width: int,
    devices: list[jax.Device],
    *,
    beside_cpu: bool,
) -> Row:
    """Play an agent on `width` MDPs; `beside_cpu`: its returns minus those of the CPU, which played
    the same MDPs with the same random draws.
    """
    row, returns = play(name, parameters, on, width, horizon, devices)
    if not beside_cpu:
        return row
    cpu, known = play(name, parameters, on, width, horizon, jax.devices("cpu"))
    difference = returns - known
    error = float(difference.std(ddof=1) / np.sqrt(width))
    beside = figures(
        mean=float(returns.mean()),
        cpu_mean=float(known.mean()),
        difference=float(difference.mean()),
        standard_error=error,
        same_returns=float((abs(difference) <= 1e-6 * abs(known)).mean()),
        times_cpu=row["decisions_per_second"] / cpu["decisions_per_second"],
        cpu_compile_seconds=cpu["compile_seconds"],
    )
    return (
        row
        | beside
        | {
            "agrees": bool(
                abs(difference.mean()) <= STANDARD_ERRORS * error + 1e-6 * abs(known.mean())
            )
        }
    )


def hosted(
    name: str, parameters: Row, on: str, horizon: int, width: int, devices: list[jax.Device]
) -> Row:
    """Play an agent whose loops the host runs, as without `compilation.ON_GPU`: the same bits."""
    _, known = play(name, parameters, on, width, horizon, devices)
    with (
        mock.patch.object(compilation, "options", lambda *_, **__: {}),
        mock.patch.object(compilation, "KEPT", {}),
    ):
        row, returns = play(name, parameters, on, width, horizon, devices)
    return row | {"same_bits_in_graphs": bool((returns == known).all())}


def training(name: str, on: str, device: jax.Device) -> Row:
    """Time decisions of lifetimes that an agent is trained on, with all passes of learning."""
    made: Any = AGENTS[name].agent()
    lesson = made.lesson(problem(on).prior(Steps(250), 0.95))
    key = jax.random.key(0)
    given = jax.device_put(
        (jax.jit(lesson.start)(key), jnp.float32(1), key, lesson.settings), device
    )
    compiling = time.perf_counter()
    call = compilation.compile_once(lesson.round, given).call
    compiling = time.perf_counter() - compiling
    seconds = fastest(lambda: call(given), 3)
    return figures(
        lifetimes=lesson.lifetimes,
        decisions_per_second=lesson.lifetimes * lesson.settings[0].horizon / seconds,
        compile_seconds=compiling,
    )


def deep_steps(name: str, on: str, lanes: int, device: jax.Device) -> Row:
    """Time steps of a deep agent that learns, agent, environment and recorder together."""
    agent = AGENTS[name].agent()
    cost = deep.microseconds(agent, on, lanes, 3, device, time.perf_counter)
    return figures(steps_per_second=1e6 / cost, microseconds_per_step=cost * lanes)


# ---- all of it ----


def run(
    report: Report, sizes: Sizes, devices: list[jax.Device], *, beside_cpu: bool = True
) -> None:
    """Make all measurements, what matters most first."""
    bandwidth = report.measure({"section": "copy"}, lambda: copy_bandwidth(sizes.copied))
    for width in (1, *sizes.widths):
        report.measure(
            {"section": "loop", "width": width}, partial(loop_iteration, width, sizes.iterations)
        )
    if bandwidth:
        report.measure(
            {"section": "sweeps"},
            lambda: sweep_bandwidth(sizes.mdps, bandwidth["gigabytes_per_second"]),
        )
    for shape in ((5, 3), (25, 4)):
        report.measure(
            {"section": "precision", "states": shape[0], "actions": shape[1]},
            partial(precision, *shape),
        )
    for name in ("GC", "Grid"):
        report.measure({"section": "precision", "plan": name}, partial(incremental_precision, name))
    few = slice(sizes.agents)
    beside_cpu &= not on_cpu(devices)
    for what, call in measurements(TABLE[few], sizes, 0, devices, beside_cpu=beside_cpu):
        report.measure(what, call)
    for name, parameters, on, full in HOSTED[few]:
        what = of_agent("hosted", name, parameters, on, sizes, 0, full)
        case = (name, parameters, on, what["horizon"], what["width"], devices)
        report.measure(what, partial(hosted, *case))
    for what, call in measurements(TABLE[few], sizes, len(sizes.widths) - 1, devices):
        report.measure(what, call)
    for name, on in TRAINED[few]:
        what = {"section": "training", "agent": name, "problem": on}
        report.measure(what, partial(training, name, on, devices[0]))
    horizon = 250 // sizes.shorten
    for name, batch in itertools.product(("GC", "Grid"), sizes.batches):
        what = {"section": "pulls", "problem": name, "width": batch}
        report.measure(what, partial(batch_of_pulls, name, batch, devices, horizon))
    report.measure(
        {"section": "search", "problem": "GC"}, lambda: search("GC", sizes.pulls, devices, horizon)
    )
    for place in range(1, len(sizes.widths) - 1):
        for what, call in measurements(TABLE[few], sizes, place, devices):
            report.measure(what, call)
    for (name, on), lanes in itertools.product(DEEP[few], sizes.lanes):
        what = {"section": "deep", "agent": name, "problem": on, "lanes": lanes}
        report.measure(what, partial(deep_steps, name, on, lanes, devices[0]))


def of_agent(
    section: str, name: str, parameters: Row, on: str, sizes: Sizes, place: int, full: int
) -> Row:
    """Return what says of a measurement which it is."""
    return {
        "section": section,
        "agent": name,
        "parameters": parameters,
        "problem": on,
        "width": sizes.widths[place],
        "horizon": max(2, full // sizes.shorten),
    }


def measurements(
    agents: tuple, sizes: Sizes, place: int, devices: list[jax.Device], *, beside_cpu: bool = False
) -> Iterator[tuple]:
    """Yield each measurement of each agent on the MDPs of a place among the widths, with its
    method.
    """
    for name, parameters, on, full in agents:
        what = of_agent("decisions", name, parameters, on, sizes, place, full)
        case = (name, parameters, on, what["horizon"], what["width"], devices)
        yield what, partial(agent, *case, beside_cpu=beside_cpu)


def on_cpu(devices: list[jax.Device]) -> bool:
    return devices[0].platform == "cpu"


def slug(kind: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")


def draw(files: list[Path], figure_file: Path) -> None:
    """Draw decisions per second against the number of MDPs on GC, one panel for each file."""
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(
        1,
        len(files),
        figsize=(0.6 + 4.6 * len(files), 4),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for axes, file in zip(all_axes[0], files, strict=True):
        content = json.loads(file.read_text())
        rows = [
            r
            for r in content["rows"]
            if r["section"] == "decisions" and r["problem"] == "GC" and "decisions_per_second" in r
        ]
        for number, name in enumerate(dict.fromkeys(row["agent"] for row in rows)):
            line = [
                (row["width"], row["decisions_per_second"]) for row in rows if row["agent"] == name
            ]
            axes.loglog(*zip(*line, strict=True), marker="os^vDP*X<>h"[number % 11], label=name)
        axes.set(xlabel="MDPs played at once", title=content["device"])
        axes.grid(alpha=0.3)
    all_axes[0][0].set_ylabel("decisions per second, GC")
    figure.legend(
        *all_axes[0][0].get_legend_handles_labels(), loc="outside right upper", frameon=False
    )
    figure.savefig(figure_file)


def give_up() -> None:
    """End now: what has been measured is on disk, and nothing else could interrupt a running
    device.
    """
    print("stopped: a measurement has taken longer than was left", file=sys.stderr, flush=True)
    os._exit(0)


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="?", choices=("measure", "predict"), default="measure")
    parser.add_argument(
        "--agents", nargs="+", default=(), metavar="NAME", help="these alone; default: all"
    )
    parser.add_argument("--tables", action="store_true", help="write the table of predictions only")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--budget", type=float, default=520.0, help="seconds")
    parser.add_argument("--sections", nargs="+", default=(), metavar="NAME", help="default: all")
    parser.add_argument("--without-cpu", action="store_true", help="the CPU plays nothing")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="try the program out")
    parser.add_argument(
        "--draw", type=Path, nargs="+", help="draw these results instead of measuring"
    )
    parser.add_argument("--figure", type=Path, default=Path("gpu.svg"))
    chosen = parser.parse_args(arguments)
    if chosen.draw:
        draw(chosen.draw, chosen.figure)
        return
    if chosen.what == "predict":
        file = chosen.out or gpu_model.FILE
        if chosen.tables:
            gpu_model.write_table(file)
        else:
            cases = [c for c in TABLE if not chosen.agents or c[0] in chosen.agents]
            gpu_model.predict(cases, file)
        return
    use_all_cores()
    try:
        devices = jax.devices(chosen.device)
    except RuntimeError as error:
        raise SystemExit(f"no {chosen.device} here: {error}") from None
    jax.config.update("jax_default_device", devices[0])
    kind = devices[0].device_kind
    when = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {
        "date": when,
        "device": kind,
        "devices": len(devices),
        "versions": versions(),
        "machine": machine(),
        "tiny": chosen.tiny,
    }
    sizes = TINY if chosen.tiny else ON_CPU if on_cpu(devices) else Sizes()
    file = chosen.out or ROOT / "benchmarks" / "results" / f"gpu-{slug(kind)}.json"
    limit = threading.Timer(chosen.budget + GRACE, give_up)
    limit.daemon = True
    limit.start()
    try:
        report = Report(file, facts, chosen.budget, sections=chosen.sections, agents=chosen.agents)
        run(report, sizes, devices, beside_cpu=not chosen.without_cpu)
    finally:
        limit.cancel()


if __name__ == "__main__":
    main()
