"""The pretrained policies: experiments/published/policies, and their table in docs/deploy.md.

python experiments/pretrained.py [DIR] [--table]

Candidates are trained, several times where luck decides, and kept in DIR (out/pretrained); an
interrupted run goes on. The best on some MDPs is taken for each experiment, and scored on others,
beside e-Greedy. About 20 minutes on one core. `--table` writes the table alone. Afterwards
`python experiments/datasets.py` writes the checksums.
"""

import argparse
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import jbrl
from jbrl.agents import BEB, OPPSDS, BeliefPPO, EpsilonGreedy, Formula
from jbrl.datasets import POLICIES, PRETRAINED
from jbrl.report.text import seconds_text
from jbrl.stats.brackets import find

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments" / "published" / POLICIES
SCORES = KEPT / "scores.csv"
PAGE = ROOT / "docs" / "deploy.md"
MARKS = ("<!-- pretrained -->\n", "<!-- end pretrained -->")

GREEDY = EpsilonGreedy(epsilon=0.0)
SEARCHES = [(OPPSDS(space="F3", budget=10_000), (0, 1, 2)), (OPPSDS(space="F5", budget=5000), (1,))]
# agents, each with the seeds of its trainings
CANDIDATES: dict[str, list[tuple[jbrl.Agent, tuple[int, ...]]]] = {
    "GC": [(GREEDY, (0,)), (BEB(beta=2.0), (0,)), (BeliefPPO(budget=1_310_720), (0, 1))],
    "GDL": [(GREEDY, (0,)), (BEB(beta=0.25), (0,)), (BeliefPPO(budget=1_310_720), (1,))],
    "Grid": [
        (GREEDY, (0,)),
        (Formula(formula="Q0+Q2"), (0,)),
        (BeliefPPO(inputs="mean and belief", budget=327_680), (1,)),
    ],
    "GC-inaccurate": [(GREEDY, (0,)), (BEB(beta=16.0), (0,)), *SEARCHES],
    "GDL-inaccurate": [(GREEDY, (0,)), (Formula(formula="max(Q0,Q1)"), (0,)), *SEARCHES],
    "Grid-inaccurate": [(GREEDY, (0,)), (Formula(formula="Q1+Q2"), (0,)), *SEARCHES],
}
CHOOSING, SCORING = (8000, 101), (8000, 202)  # MDPs, seed


def rules(name: str) -> tuple[str, str]:
    """Return the problem of an experiment, and the prior that the agent is told."""
    test = name.removesuffix("-inaccurate")
    return test, test if test == name else f"U{test}"


def policies(name: str, out: Path) -> Iterator[tuple[Path, jbrl.Policy]]:
    """Yield the candidates of an experiment, trained unless they were before."""
    for i, (agent, seeds) in enumerate(CANDIDATES[name]):
        for seed in seeds:
            folder = out / f"{name}-{i}-{seed}"
            if not folder.exists():
                jbrl.policy(agent, rules(name)[1], seed=seed).save(folder)
            yield folder, jbrl.load_policy(folder)


def returns(policy: jbrl.Policy, name: str, sample: tuple[int, int]) -> np.ndarray:
    """Return what a policy earns in each of some MDPs."""
    test, prior = rules(name)
    player = policy.learned.strategy if policy.learned else policy.agent
    n, seed = sample
    return np.asarray(
        jbrl.play(player, test=test, prior=prior, n_environments=n, seed=seed).returns
    )


def choose(name: str, out: Path) -> dict[str, object]:
    """Keep the best candidate of an experiment, and return its scores."""
    made = list(policies(name, out))
    means = [returns(policy, name, CHOOSING).mean() for _, policy in made]
    best = made[int(np.argmax(means))][1]
    shutil.rmtree(KEPT / name, ignore_errors=True)
    dataclasses.replace(best, measured=None).save(KEPT / name)  # the latency of today
    mine, greedy = (returns(policy, name, SCORING) for policy in (best, made[0][1]))
    ahead = mine - greedy
    print(name, dict(zip([folder.name for folder, _ in made], np.round(means, 3), strict=True)))
    return {
        "experiment": name,
        "algorithm": best.name,
        "seed": best.seed,
        "offline_seconds": best.offline_seconds,
        "candidates": len(made),
        "mean": mine.mean(),
        "error": _error(mine),
        "ahead_of_greedy": ahead.mean(),
        "ahead_error": _error(ahead),
    }


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def table() -> str:
    """Return the table of the page: a row for each policy."""
    lines = [
        "| name | agent | trained in | earns | more than e-Greedy | upper end of the bracket |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in pd.read_csv(SCORES).to_dict("records"):
        test, prior = rules(row["experiment"])
        known = find(test, 0.95, 250) if test == prior else None
        cells = (
            *(row["experiment"], row["algorithm"], seconds_text(row["offline_seconds"])),
            f"{row['mean']:.3f} ± {row['error']:.3f}",
            f"{row['ahead_of_greedy']:.3f} ± {row['ahead_error']:.3f}",
            f"{known.upper:.2f}" if known else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Train, choose and score, then write the table."""
    if "--table" not in arguments:
        out = Path(arguments[0]) if arguments else ROOT / "out" / "pretrained"
        rows = pd.DataFrame([choose(name, out) for name in PRETRAINED])
        rows.round(4).to_csv(SCORES, index=False)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{table()}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", metavar="DIR", nargs="?", help="keeps the candidates")
    parser.add_argument("--table", action="store_true", help="write the table alone")
    options = parser.parse_args()
    main([*filter(None, [options.folder]), *["--table"] * options.table])
