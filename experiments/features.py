"""Features of problems beside the agents that win there: the table of docs/which-agent.md.

python experiments/features.py [DIR]

DIR holds results of experiments/features.toml: their scores are kept in
experiments/published/features.csv. Without DIR, the table is made from what is kept.
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

import jbrl

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments/published/features.csv"
PAGE = ROOT / "docs/which-agent.md"
MARKS = ("<!-- features -->\n", "<!-- end features -->")
SHOWN = ("n_states", "n_successors", "rare_rewards", "diameter", "gap", "information")


def read(out: str) -> pd.DataFrame:
    """Return the mean share of the way from acting at random to knowing the MDP, by problem and
    agent, what the agent lies behind the best one, with the standard error of that paired
    difference, and the features of the problem.
    """
    returns, rows = jbrl.Results(out).returns, []
    for problem, own in returns.groupby("experiment", sort=False):
        features = dataclasses.asdict(jbrl.problem_features(str(problem)))
        scores = own.pivot(index="unit", columns=["algorithm", "parameters"], values="score")
        least = scores.pop(("Random", "{}"))
        way = features["clairvoyant"] - least.mean()
        best = scores[scores.mean().idxmax()]
        for agent, score in scores.items():
            behind = (best - score) / way
            found = {
                "problem": problem,
                "agent": named(*agent),
                "share": (score.mean() - least.mean()) / way,
                "behind": behind.mean(),
                "error": behind.std(ddof=1) / np.sqrt(len(behind)),
            }
            rows.append(found | {name: features[name] for name in SHOWN})
    return pd.DataFrame(rows).round(4)


def named(algorithm: str, parameters: str) -> str:
    """Return an algorithm, with its bonus where that is what differs."""
    beta = json.loads(parameters).get("beta")
    return algorithm if beta is None else f"{algorithm} {beta:g}"


def family(problem: str) -> str:
    """Return what comes before the parameters: problems of one family are left out together."""
    return problem.rpartition("(")[0]


def lost(table: pd.DataFrame) -> dict[str, float]:
    """Return the mean share that is lost to the best agent of each problem, where the agent is
    chosen by other families: the best on average, or the best on the problem with the nearest
    features; and, in hindsight, with each agent everywhere.
    """
    shares = table.pivot(index="problem", columns="agent", values="share")
    numbers = table.groupby("problem")[list(SHOWN)].first().loc[shares.index]
    scaled = np.log(numbers.clip(1e-3, 1e3))
    scaled = (scaled - scaled.mean()) / scaled.std()
    families = np.array([family(problem) for problem in shares.index])
    found: dict[str, list[float]] = {"best on average": [], "by the nearest features": []}
    for at, problem in enumerate(shares.index):
        others = families != families[at]
        distances = ((scaled[others] - scaled.loc[problem]) ** 2).sum(axis=1)
        picks = (shares[others].mean().idxmax(), shares.loc[distances.idxmin()].idxmax())
        for rule, pick in zip(found, picks, strict=True):
            found[rule].append(shares.loc[problem].max() - shares.loc[problem, pick])
    alone = {agent: (shares.max(axis=1) - shares[agent]).mean() for agent in shares}
    return {**{rule: float(np.mean(values)) for rule, values in found.items()}, **alone}


def rows_of(table: pd.DataFrame) -> str:
    """Return the table of the page: a row for each problem, the best agent in bold with those that
    lie behind it by no more than two standard errors.
    """
    agents = list(dict.fromkeys(table["agent"]))
    lines = [
        f"| problem | {' | '.join(agents)} | {' | '.join(SHOWN)} |",
        f"|---|{'---:|' * (len(SHOWN) + len(agents))}",
    ]
    for problem, own in table.groupby("problem", sort=False):
        cells = []
        for row in own.to_dict("records"):
            tied = row["behind"] <= 2 * row["error"]
            text = f"{100 * row['share']:.0f}"
            cells.append(f"**{text}**" if tied else text)
        cells += [f"{own[name].iloc[0]:.3g}" for name in SHOWN]
        lines.append(f"| `{problem}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Keep the scores of a study, and write the table."""
    if arguments:
        read(arguments[0]).to_csv(KEPT, index=False)
    table = pd.read_csv(KEPT)
    for rule, share in lost(table).items():
        print(f"{rule}: {100 * share:.1f} % lost")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    page = f"{before}{MARKS[0]}\n{rows_of(table)}\n{MARKS[1]}{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
