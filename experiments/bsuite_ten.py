"""Ten of the 468 settings of bsuite that estimate an agent's mean score over its 23 experiments:
the tables of docs/bsuite/agents.md, from the logs in experiments/published/bsuite.

python experiments/bsuite_ten.py [LOGS …] [--out DIR]

With LOGS of other agents, which need the ten settings only, their estimates are printed.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP
from jbrl.bsuite_logs import read_places
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import Logs
from jbrl.stats.subset.preparation import Preparation, prepare
from jbrl.stats.subset.problem import Search
from jbrl.stats.subset.search import search

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from experiments.bsuite_published import whole_sweep  # noqa: E402

TIED = 1e-9  # squared errors this close are equal
DRAWS = 2000  # of settings at random
PLAIN = ("Random", "Scripted")  # learn nothing


@dataclasses.dataclass(frozen=True)
class Suite:
    """Scores of the agents that have played everything."""

    experiments: pd.DataFrame  # [agents, 23]
    settings: pd.DataFrame  # [agents, 468]
    table: pd.DataFrame  # the settings in long format, with `suite_score`

    @property
    def target(self) -> pd.Series:
        """Return the mean over experiments of each agent."""
        return self.experiments.mean(axis=1)


def suite_of(logs: Logs) -> Suite:
    """Score experiments and settings."""
    experiments = scores.summary(logs).pivot(index="agent", columns="bsuite_env", values="score")
    table = scores.score_table(logs, of="settings")
    settings = table.pivot(index="algorithm", columns="environment", values="score")
    return Suite(experiments.loc[logs.agents], settings.loc[logs.agents], table)


def families() -> dict[str, list[str]]:
    """Return the experiments of each of the ten environments: with noise, scale or other lengths
    they are experiments of their own.
    """
    found: dict[str, list[str]] = {}
    for name, experiment in EXPERIMENTS.items():
        found.setdefault(experiment.family, []).append(name)
    return found


def weights() -> dict[str, float]:
    """Return the share of each environment in the 23 experiments."""
    return {family: len(names) / len(EXPERIMENTS) for family, names in families().items()}


def members(family: str) -> list[str]:
    """Return the settings of an environment, in the order of the sweep."""
    return [name for name, one in SWEEP.items() if one.experiment.family == family]


def chosen(suite: Suite, left_out: str | None = None) -> dict[str, str]:
    """Return the setting of each environment whose score is nearest to the mean of the
    environment's experiments: the least squared error over the agents, without the one left out;
    of equal ones, the first in the sweep, which is the shortest.
    """
    agents = [name for name in suite.settings.index if name != left_out]
    found = {}
    for family, names in families().items():
        mean = suite.experiments.loc[agents, names].mean(axis=1)
        own = suite.settings.loc[agents, members(family)]
        squares = own.sub(mean, axis=0).pow(2).sum()
        found[family] = str(squares.index[squares <= squares.min() + TIED][0])
    return found


def estimates(settings: pd.DataFrame, ten: dict[str, str]) -> pd.Series:
    """Return the weighted sum of the ten scores, by agent."""
    return sum(weight * settings[ten[family]] for family, weight in weights().items())


def errors(suite: Suite) -> pd.DataFrame:
    """Return the error (estimate less score) on each agent, which is left out of every choice and
    fit: a row for each method, a column for each agent. Draws at random have root mean squares.
    """
    found: dict[str, dict[str, float]] = {}
    for agent in suite.target.index:
        others = suite.target.drop(agent)
        own = {
            "mean of the other agents, nothing played": others.mean(),
            "1 setting, least squares": searched(suite, agent, 1),
            "2 settings, least squares": searched(suite, agent, 2),
            "one of each environment, chosen": estimates(suite.settings, chosen(suite, agent))[
                agent
            ],
        }
        for method, estimate in own.items():
            found.setdefault(method, {})[agent] = estimate - suite.target[agent]
    return pd.DataFrame(found).T


def searched(suite: Suite, left_out: str, size: int) -> float:
    """Return the estimate of a least-squares search over all subsets on the other agents."""
    preparation = Preparation(target=suite.target.to_dict())
    prepared = prepare(suite.table, preparation)
    settings = Search(size=size, criterion="loo", min_rows=size + 2, top=0)
    best = search(prepared.without([left_out]), settings).best
    return float(suite.settings.loc[left_out, list(best.subset)] @ best.coefficients)


def at_random(suite: Suite, *, stratified: bool) -> np.ndarray:
    """Return the errors of ten settings drawn at random, [DRAWS, agents]: their mean, or one of
    each environment with its weight.
    """
    generator = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        if stratified:
            chosen = {family: generator.choice(members(family)) for family in families()}
            estimate = estimates(suite.settings, chosen)
        else:
            ten = generator.choice(suite.settings.columns, 10, replace=False)
            estimate = suite.settings[ten].mean(axis=1)
        found.append(estimate - suite.target)
    return np.array(found)


def size_of(errors: np.ndarray, learners: np.ndarray) -> np.ndarray:
    """Return the root mean squared error over the agents that learn."""
    return np.sqrt((errors[..., learners] ** 2).mean(axis=-1))


def errors_table(suite: Suite) -> list[str]:
    """Return the lines of the table of errors."""
    agents = list(suite.target.index)
    learners = np.array([agent not in PLAIN for agent in agents])
    lines = [
        f"| what is played | {' | '.join(agents)} | error of the learners |",
        "|---|" + "---:|" * (len(agents) + 1),
    ]
    for method, row in errors(suite)[agents].iterrows():
        cells = " | ".join(f"{value:+.2f}" for value in row)
        lines.append(f"| {method} | {cells} | {size_of(row.to_numpy(), learners):.3f} |")
    for name, stratified in (("ten settings", False), ("one of each environment", True)):
        drawn = size_of(at_random(suite, stratified=stratified), learners)
        low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
        cells = " | " * len(agents)
        lines.append(f"| {name}, at random {cells}| {middle:.3f} ({low:.3f} to {high:.3f}) |")
    return lines


def settings_table(suite: Suite, steps: dict[str, float]) -> list[str]:
    """Return the lines of the table of the ten settings, with the score of each agent.

    Args:
      steps: of DQN in each setting.
    """
    agents = list(suite.target.index)
    lines = [
        f"| setting | weight | share of the steps, % | {' | '.join(agents)} |",
        "|---|" + "---:|" * (len(agents) + 2),
    ]
    ten, whole = chosen(suite), sum(steps.values())
    for family, weight in weights().items():
        name = ten[family]
        cells = " | ".join(f"{value:.2f}" for value in suite.settings.loc[agents, name])
        share = 100 * steps[name] / whole
        lines.append(f"| {name} | {round(23 * weight)}/23 | {share:.2f} | {cells} |")
    cells = " | ".join(f"{value:.2f}" for value in estimates(suite.settings, ten)[agents])
    share = 100 * sum(steps[name] for name in ten.values()) / whole
    lines.append(f"| **weighted sum** | 1 | {share:.2f} | {cells} |")
    cells = " | ".join(f"{value:.2f}" for value in suite.target)
    return [*lines, f"| **all 23 experiments** | | 100 | {cells} |"]


def main(arguments: list[str] | None = None) -> None:
    """Write the tables; estimate the scores of other agents."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("logs", nargs="*")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "_static" / "bsuite")
    given = parser.parse_args(arguments)
    found = whole_sweep()
    suite = suite_of(found)
    if given.logs:
        table = scores.score_table(read_places(given.logs), of="settings")
        settings = table.groupby(["algorithm", "environment"])["score"].mean().unstack()
        ten = chosen(suite)
        print(estimates(settings.reindex(columns=list(ten.values())), ten).to_string())
        return
    given.out.mkdir(parents=True, exist_ok=True)
    steps = {run.bsuite_id: run.columns["steps"][-1] for run in found.runs if run.agent == "DQN"}
    tables = {"ten-settings": settings_table(suite, steps), "ten-errors": errors_table(suite)}
    for name, lines in tables.items():
        (given.out / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
