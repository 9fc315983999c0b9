"""Choices beside the truth.

python benchmarks/choose.py problems [--budget SECONDS] [--only TEXT]
python benchmarks/choose.py portfolio --words PROBLEM ... [--budget SECONDS]

Problems: for each problem and pair of limits, `jbrl choose` in a process of its own; its policy in
a loop of another, which measures whether it keeps the limit; and in a third a study that plays each
candidate in as many environments for all, and times its decisions. A choice is within epsilon of
the best that keeps the limits, as timed there or in the loop, unless it loses more by two standard
errors of the paired difference. Rows go to benchmarks/results/choose.csv; those that are there are
not measured again.

Portfolio: a choice among the whole portfolio beside a study of it, which plays each candidate in
2,048 MDPs, in turn, in one process, and is given up after --most seconds; rows go to
benchmarks/results/choose-portfolio.csv.
"""

import argparse
import csv
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "benchmarks/results/choose.csv"
EXAMPLES = ROOT / "docs/examples"
OURS = {"pump": (4, 3), "sparse": (6, 2), "dense": (10, 4), "wide": (24, 3)}  # states, actions
DIRICHLET = "e-Greedy,BEB,Soft-max,PSRL,SBOSS,VDBE-e-Greedy,OPPS-DS,Q-learning"
TABULAR = "Q-learning,Sarsa,Sarsa-lambda,Q-lambda,AC"
ARRAYS = "Sarsa-lambda,Q-lambda,AC,NAC-TD"
PROBLEMS: dict[str, tuple[str, list[str]]] = {
    "GC(n_states=2)": (DIRICHLET, []),
    "pump": (DIRICHLET, []),
    "corridor:Corridor": (ARRAYS, ["--episodes", "20"]),
    "GC(n_states=8)": (DIRICHLET, []),
    "Chain": (TABULAR, ["--episodes", "20"]),
    "GDL": (DIRICHLET, []),
    "tiger:Tiger": (TABULAR, ["--episodes", "50"]),
    "dense": (DIRICHLET, []),
    "CartPole": (ARRAYS, ["--episodes", "20"]),
    "GC(n_states=30)": (DIRICHLET, []),
    "DeepSea(size=5)": (TABULAR, ["--episodes", "200"]),
    "sparse": (DIRICHLET, []),
    **{f"GC(n_states={n})": (DIRICHLET, []) for n in (3, 5, 12, 20)},
    "Grid": (DIRICHLET, []),
    "wide": (DIRICHLET, []),
    "DeepSea(size=10)": (TABULAR, ["--episodes", "200"]),
    "Acrobot": (ARRAYS, ["--episodes", "5"]),
}
LIMITS = (("60s", "2ms"), ("1s", "400us"))
TRUTH = {True: 2048, False: 256}  # environments: MDPs, and lifetimes of episodes
LOOP = 1000  # decisions in a loop of one's own


def own_problem(name: str, folder: Path) -> None:
    """Write a distribution with random counts and rewards, the same for the same name."""
    states, actions = OURS[name]
    rng = np.random.default_rng([states, actions])
    counts = rng.gamma(0.5, 2.0, (states, actions, states)) + 0.05
    rewards = np.round(rng.random((states, actions, states)) * (rng.random(states) < 0.4), 3)
    content = {
        "name": name,
        "short_name": name,
        "n_states": states,
        "n_actions": actions,
        "initial_state": 0,
        "transition_weights": np.round(counts, 3).tolist(),
        "rewards": rewards.tolist(),
    }
    (folder / f"{name}.json").write_text(json.dumps(content))


def problems(budget: float, only: str) -> Iterator[dict[str, Any]]:
    """Yield how each choice compares with a study of all candidates."""
    kept = list(csv.DictReader(RESULTS.open())) if RESULTS.exists() else []
    there = {(row["problem"], row["online"]) for row in kept}
    for name in (name for name in PROBLEMS if only in name):
        todo = [limits for limits in LIMITS if (name, limits[1]) not in there]
        with tempfile.TemporaryDirectory() as place:
            folder, truth = Path(place), None
            if name in OURS:
                own_problem(name, folder)
            for offline, online in todo:
                row = chosen(name, offline, online, budget, folder)
                truth = truth or in_process(folder, "truth", name)
                yield row | compared(row, truth)


def whole(names: list[str], budget: float, most: float) -> Iterator[dict[str, Any]]:
    """Yield what a choice among the whole portfolio takes, beside a study of it."""
    from jbrl.base.errors import JbrlError
    from jbrl.play.play import lifetime_of, play, resolve_problem
    from jbrl.play.protocol import Protocol
    from jbrl.study.portfolio import portfolio

    for name in names:
        with tempfile.TemporaryDirectory() as place:
            words = [name, "--budget", f"{budget:g}s", "--format", "json"]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = in_process(Path(place), "choose", *words)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        problem = resolve_problem(name)
        rules = Protocol(problem, problem, TRUTH[True], 1, lifetime_of(problem, None, None), 0.95)
        field, scores, began = portfolio(rules, 60.0, 1e-3), {}, time.monotonic()
        own, load = time.process_time(), os.getloadavg()[0]
        for one in field:
            if time.monotonic() - began > most:
                break
            try:
                played = play(one.agent, test=problem, n_environments=TRUTH[True], seed=1)
            except JbrlError:
                continue
            scores[one.name] = played.returns
        best = max(scores, key=lambda name: float(np.nanmean(scores[name])))
        lost = scores[best] - scores.get(found["recommended"], np.nan)
        yield {
            "problem": name,
            "budget": budget,
            "choice": found["recommended"],
            "epsilon": found["epsilon"],
            "seconds": found["seconds"],
            "processor_seconds": round(sum(after[:2]) - sum(before[:2]), 1),
            "candidates": len(field),
            "studied": len(scores),
            "study_seconds": round(time.monotonic() - began, 1),
            "study_processor_seconds": round(time.process_time() - own, 1),
            "best": best,
            "lost": round(float(np.nanmean(lost)), 5),
            "lost_standard_error": round(float(np.nanstd(lost) / np.sqrt(len(lost))), 5),
            "load": round(load, 1),
        }


def in_process(folder: Path, what: str, *words: str) -> dict[str, Any]:
    """Return what this file prints as JSON in a process of its own, and `seconds`."""
    began = time.monotonic()
    command = [sys.executable, __file__, what, "--words", *words]
    if what == "choose":
        command = [sys.executable, "-m", "jbrl", "choose", *words]
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, EXAMPLES, folder)))}
    run = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | paths, check=False
    )
    if run.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: {run.stderr}")
    return json.loads(run.stdout) | {"seconds": round(time.monotonic() - began, 1)}


def chosen(name: str, offline: str, online: str, budget: float, at: Path) -> dict[str, Any]:
    """Return the choice, its wall seconds, and what its decisions take in a loop elsewhere."""
    candidates, options = PROBLEMS[name]
    limits = ["--offline", offline, "--online", online, "--budget", f"{budget:g}s"]
    out = at / f"out-{online}"
    words = [f"{name}.json" if name in OURS else name, *options, *limits]
    load = os.getloadavg()[0]
    found = in_process(
        at, "choose", *words, "--candidates", candidates, "--out", str(out), "--format", "json"
    )
    own = {"median": np.nan, "p99": np.nan}
    if found["recommended"]:
        own = in_process(at, "loop", str(out / "policy"), name)
    states = [one["status"] for one in found["standings"]]
    return {
        "problem": name,
        "offline": offline,
        "online": online,
        "budget": budget,
        "choice": found["recommended"],
        "stopped": found["stopped"],
        "tried": len(states) - states.count("not tried") - states.count("out of time"),
        "candidates": len(states),
        "epsilon": found["epsilon"],
        "seconds": found["seconds"],
        "loop_median_us": round(own["median"] * 1e6, 1),
        "loop_p99_us": round(own["p99"] * 1e6, 1),
        "load": round(load, 1),
    }


def compared(row: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """Return what the choice loses against the best that keeps the limits."""
    from jbrl.base.parameters import parse_seconds

    offline, online = (parse_seconds(name, row[name]) for name in ("offline", "online"))
    looped = row["choice"] if row["loop_p99_us"] <= 1e6 * online else None
    keep = {
        name: np.array(one["scores"])
        for name, one in truth["agents"].items()
        if name == looped or (one["offline"] <= offline and one["p99"] <= online)
    }
    means = {name: float(np.nanmean(scores)) for name, scores in keep.items()}
    best = max(means, key=lambda name: means[name], default="")  # "": none keeps the limits
    lost = error = float("nan")
    if row["choice"] and best:
        paired = keep[best] - np.array(truth["agents"][row["choice"]]["scores"])
        lost, error = float(np.nanmean(paired)), float(np.nanstd(paired) / np.sqrt(len(paired)))
    return {
        "best": best,
        "best_p99_us": round(1e6 * truth["agents"][best]["p99"], 1) if best else float("nan"),
        "lost": round(lost, 5),
        "lost_standard_error": round(error, 5),
        "within": lost - 2 * error <= row["epsilon"] if best else not row["choice"],
        "study_seconds": truth["seconds"],
    }


def truth(name: str) -> dict[str, Any]:
    """Return scores, latency and offline seconds of all candidates of a problem."""
    import jbrl

    candidates, options = PROBLEMS[name]
    problem = jbrl.problem(f"{name}.json" if name in OURS else name)
    n, agents = TRUTH[not options], {}
    rules = {"n_environments": n, "seed": 1} | ({"episodes": int(options[1])} if options else {})
    for agent in candidates.split(","):
        played = jbrl.play(agent, test=problem, latency=True, **rules)
        agents[agent] = {
            "scores": played.returns.tolist(),
            "offline": played.offline_seconds,
            "p99": played.latency_p99_seconds,
        }
    return {"agents": agents}


def loop(folder: str, name: str) -> dict[str, Any]:
    """Return what a decision of a policy takes in a loop of one's own, whose outcomes are drawn
    at random; the first decisions apart.
    """
    import jbrl

    if ":" in name:
        importlib.import_module(name.split(":")[0])
    policy = jbrl.load_policy(folder)
    life, rng = policy.start(seed=1), np.random.default_rng(0)
    seen: Any = policy.player.spec.observation
    taken: list[float] = []
    for _ in range(LOOP + 20):
        box = hasattr(seen, "low")
        observation = (
            rng.uniform(np.clip(seen.low, -1, 1), np.clip(seen.high, -1, 1), seen.shape)
            if box
            else int(rng.integers(seen.n))
        )
        if taken:
            began = time.perf_counter()
            life.observe(0.0, observation)
            taken[-1] += time.perf_counter() - began
        began = time.perf_counter()
        life.act(observation)
        taken.append(time.perf_counter() - began)
    return {"median": float(np.median(taken[20:])), "p99": float(np.percentile(taken[20:], 99))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("problems", "portfolio", "truth", "loop"))
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=float, default=3600.0)
    parser.add_argument("--words", nargs="*", default=[])
    given = parser.parse_args()
    if given.what in ("truth", "loop"):
        measure: Any = {"truth": truth, "loop": loop}[given.what]
        print(json.dumps(measure(*given.words)))
        return
    rows = {
        "problems": lambda: problems(given.budget, given.only),
        "portfolio": lambda: whole(given.words, given.budget, given.most),
    }[given.what]()
    kept = {"problems": RESULTS, "portfolio": RESULTS.with_stem("choose-portfolio")}
    for row in rows:
        print(json.dumps(row), flush=True)
        with kept[given.what].open("a", newline="") as file:
            writer = csv.DictWriter(file, row.keys(), lineterminator="\n")
            if not file.tell():
                writer.writeheader()
            writer.writerow(row)


if __name__ == "__main__":
    main()
