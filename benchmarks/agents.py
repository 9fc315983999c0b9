"""Time per decision and compilation of each agent, beside one thread of the published C++ program.

python benchmarks/agents.py [AGENT …]

Each row runs in a process of its own, so that compilation is cold. One JSON line for each: microseconds per decision, the least of several
runs after compilation, amortised over N = 500 MDPs of 250 decisions on all cores, the whole simulation included; `target`, what it should
be at most; `cpp`, what the C++ program needs, and their ratio; seconds of compilation before the first decision.
"""

import json
import subprocess
import sys

# Agent, parameters, prior, test, target, C++ (microseconds per decision, one thread, where it was measured).
ROWS = (
    ("e-Greedy", {}, "GC", "GC", 0.4, 23.0),
    ("e-Greedy", {}, "GDL", "GDL", 0.35, 10.0),
    ("e-Greedy", {}, "Grid", "Grid", 2.0, 80.0),
    ("e-Greedy", {}, "UGrid", "Grid", 2.0, 300.0),
    ("BEB", {"beta": 2.0}, "GC", "GC", 0.4, 16.0),
    ("BEB", {"beta": 2.0}, "GDL", "GDL", 0.5, 32.0),
    ("BEB", {"beta": 2.0}, "Grid", "Grid", 2.5, 450.0),
    ("Random", {}, "Grid", "Grid", None, None),
    ("Optimal", {}, "Grid", "Grid", None, None),
    ("Soft-max", {"tau": 0.33}, "Grid", "Grid", None, None),
    ("VDBE-e-Greedy", {}, "Grid", "Grid", None, None),
    ("PSRL", {}, "GC", "GC", None, None),
    ("PSRL", {}, "Grid", "Grid", None, None),
)
REPEATS = 5


def measure(name: str, parameters: dict, prior: str, test: str, target: float | None, cpp: float | None) -> dict:
    """One row, in this process."""
    from jbrl.agents.agent import AGENTS
    from jbrl.problems.problem import problem
    from jbrl.runner.play import batching
    from jbrl.runner.play.experiment import Run
    from jbrl.runner.play.protocol import Protocol

    batching.use_all_cores()
    run = Run(AGENTS[name].agent(**parameters), Protocol(problem(prior), problem(test)))
    run.prepare()
    protocol = run.protocol
    seconds = min(sum(chunk.online_seconds for chunk in run.chunks()) for _ in range(REPEATS))
    micros = seconds / (protocol.n_environments * protocol.horizon) * 1e6
    row = {"agent": name, "prior": prior, "test": test, "microseconds": round(micros, 3), "compile_seconds": round(run.compile_seconds, 2)}
    known = {"target": target, "cpp": cpp, "times_faster": cpp and round(cpp / micros)}
    return row | {key: value for key, value in known.items() if value is not None} | {"device": run.device}


def main(wanted: list[str]) -> None:
    """Measure each row in a fresh process."""
    for row in ROWS:
        if not wanted or row[0] in wanted:
            subprocess.run([sys.executable, __file__, "--row", json.dumps(row)], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--row"]:
        print(json.dumps(measure(*json.loads(sys.argv[2]))), flush=True)
    else:
        main(sys.argv[1:])
