"""Features of problems beside the agents that win there: the table of docs/which-agent.md.

python experiments/features.py [DIR]

DIR holds results of experiments/features.toml: their scores are kept in
experiments/published/features.csv. Without DIR, the table is made from what is kept. The published
comparison, kept in experiments/published/paper-cpu, is in the table too.
"""

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

import jbrl

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments/published/features.csv"
COMPARISON = ROOT / "experiments/published/paper-cpu"
SAME, WRONG = "GC", "-inaccurate"  # GC(n_states=5) in the comparison; its cells with another prior
PAGE = ROOT / "docs/which-agent.md"
MARKS = ("<!-- features -->\n", "<!-- end features -->")
AGENTS: dict[str, tuple[str, dict[str, object]]] = {
    "Random": ("Random", {}),
    "e-Greedy": ("e-Greedy", {"epsilon": 0}),
    "BEB 0.25": ("BEB", {"beta": 0.25}),
    "BEB 2": ("BEB", {"beta": 2}),
    "PSRL": ("PSRL", {}),
    "OPPS-DS": ("OPPS-DS", {"space": "F3", "budget": 1250}),
}
SHOWN = ("n_states", "n_successors", "rare_rewards", "diameter", "gap", "information")


def read(returns: pd.DataFrame, priors: Mapping[str, str]) -> pd.DataFrame:
    """Return the mean share of the way from acting at random to knowing the MDP, by problem and
    agent, what the agent lies behind the best one, with the standard error of that paired
    difference, and the features of the prior, which is all that agents are told.
    """
    rows = []
    for problem, own in returns.groupby("experiment", sort=False):
        features = dataclasses.asdict(jbrl.problem_features(priors[str(problem)]))
        scores = own.pivot(index="unit", columns="agent", values="score")
        least = scores.pop("Random")
        way = jbrl.problem_features(str(problem).removesuffix(WRONG)).clairvoyant - least.mean()
        best = scores[scores.mean().idxmax()]
        for agent, score in scores.items():
            behind = (best - score) / way
            found = {
                "problem": problem,
                "agent": agent,
                "share": (score.mean() - least.mean()) / way,
                "behind": behind.mean(),
                "error": behind.std(ddof=1) / np.sqrt(len(behind)),
            }
            rows.append(found | {name: features[name] for name in SHOWN})
    return pd.DataFrame(rows).round(4)


def of_results(folder: str | Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the returns of Random and of the agents of the table; the priors of experiments."""
    results = jbrl.Results(folder)
    units = results.units
    names = {agent: named(*agent) for agent, _ in units.groupby(["algorithm", "parameters"])}
    returns = results.returns
    agents = zip(returns["algorithm"], returns["parameters"], strict=True)
    returns = returns.assign(agent=[names[agent] for agent in agents])
    return returns.dropna(subset="agent"), dict(
        zip(units["experiment"], units["prior"], strict=True)
    )


def named(algorithm: str, parameters: str) -> str | None:
    """Return the name of an agent in the table, None if it is not there."""
    values = json.loads(parameters)
    for name, (column, wanted) in AGENTS.items():
        if column == algorithm and all(values[key] == value for key, value in wanted.items()):
            return name
    return None


def family(problem: str) -> str:
    """Return the name before all parameters, whatever the prior is: problems of one family are left
    out together.
    """
    return problem.removesuffix(WRONG).removeprefix("uniform(").partition("(")[0]


def both() -> pd.DataFrame:
    """Return the rows of the study that are kept, and those of the published comparison."""
    returns, priors = of_results(COMPARISON)
    return pd.concat([pd.read_csv(KEPT), read(returns[returns["experiment"] != SAME], priors)])


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
    everywhere = shares.dropna(axis="columns")
    alone = {agent: (shares.max(axis=1) - shares[agent]).mean() for agent in everywhere}
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
        found, cells = own.set_index("agent"), []
        for agent in agents:
            if agent not in found.index:  # the published comparison has no PSRL
                cells.append("–")
                continue
            row = found.loc[agent]
            text = f"{100 * row['share']:.0f}"
            cells.append(f"**{text}**" if row["behind"] <= 2 * row["error"] else text)
        cells += [f"{own[name].iloc[0]:.3g}" for name in SHOWN]
        lines.append(f"| `{problem}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Keep the scores of a study, and write the table."""
    if arguments:
        read(*of_results(arguments[0])).to_csv(KEPT, index=False)
    table = both()
    for rule, share in lost(table).items():
        print(f"{rule}: {100 * share:.1f} % lost")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    page = f"{before}{MARKS[0]}\n{rows_of(table)}\n{MARKS[1]}{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", metavar="DIR", nargs="?", help="results to keep first")
    given = parser.parse_args().results
    main([given] if given else [])
