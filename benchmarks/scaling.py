"""Strong scaling: the same work on one CPU core and on more.

python benchmarks/scaling.py [--cores 1 2] [--rounds 5] [--study experiments/quick.toml] [--limits]
    [AGENT …]

Each number of cores has a process of its own, kept to that many cores by the system (one JAX device
could otherwise use the threads of all), which compiles once and then plays on request; the
processes take turns, so that what else the machine does meets all alike. One JSON line for each
agent: the median over rounds of the seconds that 500 MDPs of 250 decisions take, drawing them and
computing returns included (of an agent that searches: the search alone), and how many times faster
more cores are than the fewest: the median of the ratios within a round. With --study, the wall time
of a whole study in fresh processes, compilation included, once for each number of cores, and once
more by a process on each core that runs a shard of it. With --limits, for each agent, what the
machine would allow: processes of one core each playing at the same time. The last line says how
busy the machine was.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Agent, parameters, problem, times that its 500 MDPs are played in a round: about two seconds, or
# what has slept meanwhile would show.
ROWS = (
    ("e-Greedy", {"epsilon": 0.1}, "GC", 200),
    ("e-Greedy", {"epsilon": 0.1}, "Grid", 15),
    ("PSRL", {"period": 5}, "GC", 15),
    ("BAMCP", {"simulations": 10}, "GC", 3),
    ("SBOSS", {"epsilon": 0.1}, "GC", 15),
    ("OPPS-DS", {"budget": 100_000, "c": 60.0}, "GC", 1),  # the search alone
    ("OPPS-DS", {"budget": 10_000, "c": 60.0}, "Grid", 1),
)


def work(name: str, parameters: dict, problem_name: str, times: int) -> None:
    """Compile, then play whenever a line comes in; seconds go out."""
    from jbrl.agents.registry import AGENTS
    from jbrl.play.experiment import Run
    from jbrl.play.protocol import Protocol
    from jbrl.play.resources import choose
    from jbrl.problems.lookup import problem
    from jbrl.rollout.contract import OfflineSearch

    resources, told = choose(), problem(problem_name)
    agent, protocol = AGENTS[name].agent(**parameters), Protocol(problem(problem_name), told)

    def play() -> float:
        if isinstance(agent, OfflineSearch):  # its search is what takes the time
            run = Run(agent, protocol, resources=resources)
            run.prepare()
            return run.offline_seconds
        started = time.perf_counter()
        for _ in range(times):
            list(ready.chunks())
        return time.perf_counter() - started

    ready = Run(agent, protocol, resources=resources)
    ready.prepare()
    play()
    print(len(resources.devices), flush=True)
    for _ in sys.stdin:
        print(play(), flush=True)


def environment(cores: int) -> dict[str, str]:
    return {**os.environ, "JAX_NUM_CPU_DEVICES": str(cores), "JAX_PLATFORMS": "cpu"}


def command(cores: int, *arguments: str, first: int = 0) -> list[str]:
    """Return the command of Python with these arguments, kept to so many of the cores that this
    process may use, from number `first` on.
    """
    listed = ",".join(map(str, sorted(os.sched_getaffinity(0))[first : first + cores]))
    return ["taskset", "--cpu-list", listed, sys.executable, *arguments]


def start(cores: int, row: tuple, first: int = 0) -> subprocess.Popen:
    """Start a process that is ready to play on so many cores, from number `first` on."""
    started = command(cores, __file__, "--work", json.dumps(row), first=first)
    worker = subprocess.Popen(
        started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(cores)
    )
    assert worker.stdout is not None
    if worker.stdout.readline().strip() != str(cores):
        raise SystemExit(f"{row[0]}: no process with {cores} devices")
    return worker


def ask(*workers: subprocess.Popen) -> float:
    """Return the seconds of one round, of the slowest of several that play at the same time."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    return max(float(worker.stdout.readline()) for worker in workers if worker.stdout is not None)


def measure(row: tuple, cores: list[int], rounds: int) -> dict:
    """Measure one row of `ROWS`."""
    name, parameters, problem_name, times = row
    workers = [start(count, row) for count in cores]
    seconds = [[ask(worker) / times for worker in workers] for _ in range(rounds)]
    for worker in workers:
        worker.communicate()
    return {
        "agent": name,
        "parameters": parameters,
        "problem": problem_name,
        "seconds": {
            count: round(statistics.median(one), 4)
            for count, one in zip(cores, zip(*seconds, strict=True), strict=True)
        },
        "times_faster": {
            count: round(statistics.median(one[0] / one[i] for one in seconds), 2)
            for i, count in enumerate(cores)
            if i
        },
    }


def limit(row: tuple, cores: int, rounds: int) -> dict:
    """Measure the joint throughput of as many processes of one core each, in units of that of one
    alone.
    """
    workers = [start(1, row, first) for first in range(cores)]
    times = [sum(map(ask, workers)) / ask(*workers) for _ in range(rounds)]
    for worker in workers:
        worker.communicate()
    return {
        "agent": row[0],
        "problem": row[2],
        "processes": cores,
        "times_as_much": round(statistics.median(times), 2),
    }


def shards(file: Path, cores: int) -> float:
    """Measure wall seconds of a study by one process on each core, each with a share of the units,
    all in one directory.
    """
    with tempfile.TemporaryDirectory() as folder:
        started, running = time.perf_counter(), []
        for number in range(cores):
            run = (
                "-m",
                "jbrl",
                "run",
                str(file),
                "--out",
                folder,
                "--quiet",
                "--shard",
                f"{number + 1}/{cores}",
            )
            running.append(subprocess.Popen(command(1, *run, first=number), env=environment(1)))
        if failed := [process.returncode for process in running if process.wait()]:
            raise SystemExit(f"jbrl run has ended with {failed}")
        return time.perf_counter() - started


def study(file: Path, cores: int) -> float:
    """Measure wall seconds of `jbrl run` in a fresh process and an empty directory."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(
            command(cores, "-m", "jbrl", "run", str(file), "--out", folder, "--quiet"),
            check=True,
            env=environment(cores),
        )
        return time.perf_counter() - started


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("agents", nargs="*", help="only these rows")
    parser.add_argument("--cores", nargs="+", type=int, default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--study", type=Path, help="a study whose wall time is taken as well")
    parser.add_argument("--limits", action="store_true", help="what the machine would allow")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*json.loads(arguments.work))
        return
    before = os.getloadavg()[0]
    for row in ROWS:
        if not arguments.agents or row[0] in arguments.agents:
            print(json.dumps(measure(row, arguments.cores, arguments.rounds)), flush=True)
            if arguments.limits:
                print(json.dumps(limit(row, max(arguments.cores), arguments.rounds)), flush=True)
    if arguments.study:
        seconds = {count: round(study(arguments.study, count), 1) for count in arguments.cores}
        apart = {
            count: round(shards(arguments.study, count), 1)
            for count in arguments.cores
            if count > 1
        }
        print(
            json.dumps(
                {"study": arguments.study.name, "cold_seconds": seconds, "shards_seconds": apart}
            ),
            flush=True,
        )
    print(
        json.dumps(
            {"cores": arguments.cores, "rounds": arguments.rounds, "load_before": round(before, 2)}
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
