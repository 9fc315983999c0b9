"""Mutation testing: mutants of the core, each played through the tests that should kill it.

python benchmarks/mutants.py [--list] [--again] [--limit SECONDS] [NAME …]

A mutant is one replacement of source text that makes the package wrong. The package and its tests
are copied to a temporary folder, the replacement is made there, and the tests run with a time
limit. A mutant whose tests pass has survived; it is killed if a test fails that passes without it.
The random examples of the tests are the same each time. Outcomes go to
benchmarks/results/mutants.jsonl, one line for each mutant; what is there already, of the same
source and the same tests, is not run again, so that a run can be interrupted and taken up.
docs/testing.md shows the table beside it, mutants.md, survivors first.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants.jsonl"
COPIED = ("jbrl", "tests", "benchmarks", "docs", "experiments", "pyproject.toml")
LIMIT = 900  # seconds for the tests of one mutant
PLAY, ROLLOUT = "tests/runner/play", "tests/rollout"
CONFORMANCE = "tests/conformance"


@dataclass(frozen=True)
class Mutant:
    """One replacement of source text, and the tests that should fail because of it."""

    name: str
    breaks: str
    file: str  # in the package
    old: str  # must be there exactly once
    new: str
    tests: tuple[str, ...]  # arguments of pytest

    @property
    def path(self) -> str:
        return f"jbrl/{self.file}"


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source with the replacement made.

    Raises:
      ValueError: the text to replace is not there exactly once.
    """
    count = source.count(mutant.old)
    if count != 1:
        raise ValueError(
            f"{mutant.name}: {mutant.path} has {mutant.old!r} {count} times: expected once"
        )
    return source.replace(mutant.old, mutant.new)


MUTANTS = (
    # ---- finite MDPs ----
    Mutant(
        "never-the-last-state",
        "a random initial state is never the last one",
        "mdp/mdp.py",
        "(uniform * n_states).astype",
        "(uniform * (n_states - 1)).astype",
        (f"{ROLLOUT}/test_rollout.py",),
    ),
    Mutant(
        "reward-of-another-transition",
        "a step pays the reward of the transition to the state that it comes from",
        "mdp/mdp.py",
        "vectorize.pick(rewards, first + y)",
        "vectorize.pick(rewards, first + x)",
        ("tests/environments/test_tabular.py",),
    ),
    Mutant(
        "cumulative-below-one",
        "cumulative probabilities are not divided by their sum, and may end below 1",
        "mdp/sampling.py",
        " / total[..., None]",
        "",
        ("tests/mdp/test_sampling.py",),
    ),
    Mutant(
        "tie-never-last",
        "of actions that tie the last one is never drawn",
        "mdp/sampling.py",
        "uniform * rank[..., -1].astype",
        "uniform * (rank[..., -1] - 1).astype",
        ("tests/mdp/test_sampling.py",),
    ),
    Mutant(
        "gamma-without-power",
        "gamma variates of shape a < 1 are made with U instead of U^(1/a)",
        "mdp/sampling.py",
        "jnp.log(boost) / shape",
        "jnp.log(boost)",
        ("tests/mdp/test_sampling.py", "tests/mdp/test_dirichlet.py"),
    ),
    Mutant(
        "dirichlet-as-uniform",
        "concentrations other than 0 and 1 are drawn as if they were weights of exponentials",
        "mdp/dirichlet.py",
        "    if unit:",
        "    if True:",
        ("tests/mdp/test_dirichlet.py",),
    ),
    Mutant(
        "reward-learned-elsewhere",
        "a belief learns the reward of the transition to the state that it comes from",
        "mdp/belief.py",
        "(x * n_actions + u) * n_states + y)",
        "(x * n_actions + u) * n_states + x)",
        ("tests/mdp/test_belief.py",),
    ),
    Mutant(
        "ties-by-a-global-scale",
        "what ties in one state depends on the greatest value of all states",
        "mdp/planning.py",
        "often > vectorize.like(least, often)",
        "often > -1 + 0 * vectorize.like(least, often)",
        ("tests/mdp/test_hard_problems.py", "tests/mdp/test_planning.py"),
    ),
    Mutant(
        "value-iteration-stops-early",
        "value iteration stops at ten times the tolerance",
        "mdp/planning.py",
        "residual > jnp.maximum(tolerance, rounding)",
        "residual > 10 * jnp.maximum(tolerance, rounding)",
        ("tests/mdp/test_planning.py",),
    ),
    # ---- rollouts ----
    Mutant(
        "agent-by-environment-stream",
        "agents decide with the random numbers that move the MDP",
        "rollout/rollout.py",
        'stream(key, index, "agent")',
        'stream(key, index, "environment")',
        (f"{CONFORMANCE}/test_agents.py", "-k", "moves_the_environment and (Random or Q-learning)"),
    ),
    Mutant(
        "agent-by-environment-stream-in-episodes",
        "agents decide with the random numbers that move the environment, in episodes",
        "rollout/episodes.py",
        'for name in ("agent", "environment")',
        'for name in ("environment", "environment")',
        (f"{CONFORMANCE}/test_episode_agents.py", "-k", "moves_the_environment"),
    ),
    Mutant(
        "nan-not-looked-for",
        "NaN in the state of an agent is not looked for after T decisions",
        "rollout/rollout.py",
        "where(legal, fault,",
        "where(legal, 0,",
        (f"{PLAY}/test_experiment.py", "-k", "nan"),
    ),
    Mutant(
        "nan-in-environment-not-looked-for",
        "NaN in the state of an environment is not looked for after a block",
        "rollout/episodes.py",
        "nan_fault((watched(agent, end.agent), end.environment))",
        "nan_fault((watched(agent, end.agent), ()))",
        (f"{PLAY}/test_lifetimes.py", "-k", "nan"),
    ),
    Mutant(
        "episode-begins-where-the-last-ended",
        "an episode begins with the last observation of the one before",
        "rollout/episodes.py",
        "select(ended, first, step.observation),",
        "step.observation,",
        (f"{ROLLOUT}/test_episodes.py",),
    ),
    # ---- agents ----
    Mutant(
        "sboss-whole-copy",
        "SBOSS-published keeps all rows of the counts that it saves",
        "agents/published/castronovo2016.py",
        "& (moved | lost)",
        "& moved",
        ("tests/agents/test_published.py", "-k", "lost_half"),
    ),
    Mutant(
        "sboss-rounding-decides",
        "SBOSS samples anew where a movement exceeds delta by rounding alone",
        "agents/bayes/sampled_set.py",
        "delta * jnp.float32(1 + TIE_TOLERANCE)",
        "delta",
        ("tests/agents/bayes/test_sampled_sets.py", "-k", "has_moved_exactly"),
    ),
    Mutant(
        "e-greedy-the-other-way",
        "e-Greedy is greedy with probability epsilon",
        "agents/bayes/epsilon_greedy.py",
        "coin < epsilon",
        "coin >= epsilon",
        ("tests/agents/bayes/test_epsilon_greedy.py",),
    ),
    Mutant(
        "beb-bonus-kept",
        "the bonus of BEB does not shrink while it learns",
        "agents/bayes/beb.py",
        "((1 + total) * (2 + total))",
        "(1 + total)",
        ("tests/agents/bayes/test_beb.py",),
    ),
    Mutant(
        "psrl-one-decision-more",
        "PSRL keeps a sample for one decision more than its period",
        "agents/bayes/psrl.py",
        "where(due, self.period,",
        "where(due, self.period + 1,",
        ("tests/agents/bayes/test_psrl.py",),
    ),
    Mutant(
        "bamcp-rollout-undiscounted",
        "what BAMCP earns beyond its tree is not discounted",
        "agents/bayes/search/uct.py",
        "out.weight * task.discount",
        "out.weight",
        ("tests/agents/bayes/search/test_uct.py",),
    ),
    Mutant(
        "q-learning-bootstraps-at-the-end",
        "Q-learning adds the value of a terminal state",
        "agents/linear/q_learning.py",
        "where(transition.terminated, 0.0,",
        "where(False, 0.0,",
        ("tests/agents/linear/test_q_learning.py",),
    ),
    Mutant(
        "sarsa-traces-across-episodes",
        "traces of Sarsa go on from one episode into the next",
        "agents/linear/sarsa.py",
        "where(state.next_action == NO_ACTION, 0.0,",
        "where(False, 0.0,",
        ("tests/agents/linear/test_sarsa.py",),
    ),
    # ---- statistics ----
    Mutant(
        "z-by-the-population",
        "the paired test divides by N where N - 1 is meant",
        "analysis/paired_test.py",
        "float(d.std(ddof=1))",
        "float(d.std(ddof=0))",
        ("tests/analysis/test_paired_test.py",),
    ),
    Mutant(
        "p-value-of-the-other-side",
        "one-sided p-values are two-sided and the other way round",
        "analysis/paired_test.py",
        '(0.5 if sided == "one" else 1.0)',
        '(1.0 if sided == "one" else 0.5)',
        ("tests/analysis/test_paired_test.py",),
    ),
    Mutant(
        "holm-goes-on",
        "Holm's procedure rejects again after the first hypothesis that stands",
        "analysis/multiple_tests.py",
        "standing = standing or p_values[index]",
        "standing = p_values[index]",
        ("tests/analysis/test_time_bounds.py", "tests/analysis/test_ranking.py"),
    ),
    Mutant(
        "bca-without-acceleration",
        "BCa intervals of the evaluation are corrected for bias alone",
        "analysis/bootstrap.py",
        "shifted / (1 - a * shifted)",
        "shifted / (1 - 0 * a * shifted)",
        ("tests/analysis/test_bootstrap.py",),
    ),
    Mutant(
        "bound-excludes-itself",
        "an agent that takes exactly as long as a bound allows is discarded",
        "analysis/time_bounds.py",
        "self.times(feature) <= bound",
        "self.times(feature) < bound",
        ("tests/analysis/test_time_bounds.py",),
    ),
    # ---- clocks ----
    Mutant(
        "latency-of-a-lifetime",
        "latency is not divided by the number of decisions",
        "runner/play/experiment.py",
        "median(seconds) / self.protocol.horizon",
        "median(seconds)",
        (f"{PLAY}/test_experiment.py", "-k", "latency"),
    ),
    Mutant(
        "latency-of-a-call-of-episodes",
        "latency of lifetimes in blocks is not divided by the number of decisions",
        "runner/play/lifetimes.py",
        "elapsed / max(1, int(lanes.steps[0]))",
        "elapsed",
        (f"{PLAY}/test_lifetimes.py", "-k", "latency"),
    ),
    Mutant(
        "stacked-clock-by-calls",
        "the seconds of a stacked call are shared out by groups, not by MDPs",
        "runner/play/stacking.py",
        "seconds / sum(count for _, _, count in call)",
        "seconds / len(call) / self.width",
        (f"{PLAY}/test_stacking.py", "-k", "shared_out"),
    ),
    Mutant(
        "clock-does-not-wait",
        "the clock stops when a call has been dispatched, not when its results are there",
        "runner/play/timing.py",
        "result = jax.block_until_ready(call(*args))",
        "result = call(*args)",
        (f"{PLAY}/test_timing.py",),
    ),
    Mutant(
        "clock-waits-for-arguments",
        "work that is unfinished on the arguments of a call counts as its time",
        "runner/play/timing.py",
        "    jax.block_until_ready(args)\n    started",
        "    started",
        (f"{PLAY}/test_timing.py",),
    ),
    Mutant(
        "online-time-by-chunks",
        "online seconds are divided by the number of chunks",
        "runner/play/protocol.py",
        "for part in parts) / decisions",
        "for part in parts) / len(parts)",
        (f"{PLAY}/test_timing.py",),
    ),
)


def copy_to(folder: Path) -> None:
    """Copy what tests need, without what was built."""
    ignored = shutil.ignore_patterns("__pycache__", "_build", ".hypothesis")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)


def run_tests(folder: Path, tests: tuple[str, ...], limit: float) -> tuple[str, str]:
    """Run tests in a copy until one fails.

    Returns: "passed", "failed" or "timed out", and the name of the test that failed.

    Raises:
      RuntimeError: no test has run.
    """
    cache = folder.parent / "cache"  # what mutants have in common is compiled once
    known = {"PYTHONPATH": str(folder), "CI": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not slurm"]  # slow ones too
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **known},
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return "timed out", ""
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(tests)}: pytest ended with {done.returncode}\n{done.stdout}")
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if not done.returncode:
        return "passed", ""
    if not failed:
        raise RuntimeError(f"{' '.join(tests)}: pytest names no test that failed\n{done.stdout}")
    return "failed", failed[0].split(" - ")[0].partition(" ")[2]


def digest(mutant: Mutant, root: Path = ROOT) -> str:
    """Return what the outcome of a mutant depends on: its source, the replacement, the tests."""
    files = [root / test for test in mutant.tests if test.endswith(".py")]
    parts = [mutated(mutant, (root / mutant.path).read_text()), *(f.read_text() for f in files)]
    content = "\0".join([*parts, *mutant.tests])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def outcome(mutant: Mutant, folder: Path, limit: float) -> dict[str, Any]:
    """Play one mutant in a copy of the package, and the test that kills it without it.

    Raises:
      RuntimeError: that test fails without the mutant, too, so it says nothing.
    """
    path, started = folder / mutant.path, time.perf_counter()
    source, known = path.read_text(), digest(mutant, folder)
    try:
        path.write_text(mutated(mutant, source))
        after, by = run_tests(folder, mutant.tests, limit)
    finally:
        path.write_text(source)
    seconds = time.perf_counter() - started
    if after == "failed" and run_tests(folder, (by,), limit)[0] != "passed":
        raise RuntimeError(f"{mutant.name}: {by} fails without it, too")
    return {
        "mutant": mutant.name,
        "breaks": mutant.breaks,
        "file": mutant.path,
        "outcome": {"passed": "survived", "failed": "killed"}.get(after, after),
        "by": by,
        "seconds": round(seconds, 1),
        "digest": known,
    }


def read(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the outcomes that are kept, by name."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {found["mutant"]: found for found in map(json.loads, lines)}


def write(found: dict[str, dict[str, Any]], path: Path = RESULTS) -> None:
    """Write outcomes in the order of the mutants, and a table of them for docs/testing.md."""
    order = [found[mutant.name] for mutant in MUTANTS if mutant.name in found]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in order))
    path.with_suffix(".md").write_text(markdown(order))


def markdown(lines: list[dict[str, Any]]) -> str:
    """Return a table of outcomes, survivors first, under a sentence that counts them."""
    survivors = [line for line in lines if line["outcome"] == "survived"]
    rows = [
        f"| {line['breaks']} | `{line['file']}` | {line['outcome']} |"
        for line in [*survivors, *(line for line in lines if line not in survivors)]
    ]
    count = f"Of {len(lines)} mutants {len(survivors)} survive."
    return "\n".join([count, "", "| mutant | file | outcome |", "|---|---|---|", *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--list", action="store_true", help="say which there are, and run nothing")
    parser.add_argument("--again", action="store_true", help="run what is known as well")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for the tests of one")
    options = parser.parse_args()
    unknown = set(options.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [m for m in MUTANTS if m.name in options.names or not options.names]
    if options.list:
        print("\n".join(f"{mutant.name}: {mutant.breaks}" for mutant in chosen))
        return
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name) / "copy"
        folder.mkdir()
        copy_to(folder)
        failures = [m.name for m in chosen if not judged(m, folder, options.limit, options.again)]
    if failures:
        raise SystemExit(f"could not be judged: {', '.join(failures)}")


def judged(mutant: Mutant, folder: Path, limit: float, again: bool) -> bool:
    """Play a mutant unless its outcome is known, and keep the outcome.

    Returns: whether there is one.
    """
    known = read().get(mutant.name)
    if known and known["digest"] == digest(mutant, folder) and not again:
        print(f"{mutant.name}: {known['outcome']} (known)")
        return True
    try:
        line = outcome(mutant, folder, limit)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr, flush=True)
        return False
    write({**read(), mutant.name: line})
    print(f"{mutant.name}: {line['outcome']} {line['by']}", flush=True)
    return True


if __name__ == "__main__":
    main()
