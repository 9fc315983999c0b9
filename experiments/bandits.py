"""Shares of known optima that agents of experiments/bandits.toml reach, the table of
docs/problems/bandits.md.

python experiments/bandits.py [DIR]

DIR holds results of the study: they are archived in experiments/published/bandits. Without DIR,
the table is made from what is kept there.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import jbrl
from jbrl.report.text import seconds_text
from jbrl.stats.brackets import find

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments/published/bandits"
PAGE = ROOT / "docs/problems/bandits.md"
MARKS = ("<!-- bandits -->\n", "<!-- end bandits -->")
SHOWN = ("simulations", "trajectories", "budget", "period", "beta")  # parameters that are named


def name_of(row: Mapping[str, Any]) -> str:
    """Return the algorithm, and the parameters that say how much it may think."""
    values = json.loads(row["parameters"])
    shown = [f"{key} {values[key]:,}" for key in SHOWN if key in values]
    return ", ".join([row["algorithm"], *shown])


def shares(results: jbrl.Results) -> pd.DataFrame:
    """Return the share of the optimum, its standard error and times, a row for each unit.

    What Gittins earns on average is known: where it has played the same MDPs, what is estimated is
    the difference to it.
    """
    keys = ["experiment", "algorithm", "parameters"]
    returns = {key: own["score"].to_numpy() for key, own in results.returns.groupby(keys)}
    rows = []
    for row in results.scores.query("status == 'done'").to_dict("records"):
        bracket = find(row["test"], 0.95, 250)
        assert bracket is not None
        mine = returns[tuple(row[key] for key in keys)] / bracket.lower
        gittins = returns.get((row["experiment"], "Gittins", "{}"))
        if gittins is not None and row["algorithm"] != "Gittins":
            mine = mine - gittins / bracket.lower + 1
        rows.append(
            {
                "experiment": row["experiment"],
                "agent": name_of(row),
                "share": mine.mean(),
                "error": mine.std(ddof=1) / np.sqrt(len(mine)),
                "offline": row["offline_seconds"],
                "online": row["online_processor_seconds"],
            }
        )
    return pd.DataFrame(rows)


def rows_of(found: pd.DataFrame) -> str:
    """Return the table of the page, the agents ordered by the time of a decision."""
    experiments = list(dict.fromkeys(found["experiment"]))
    lines = [
        f"| agent | offline | decision | {' | '.join(experiments)} |",
        f"|---|---:|---:|{'---:|' * len(experiments)}",
    ]
    groups = sorted(found.groupby("agent"), key=lambda pair: pair[1]["online"].median())
    for agent, units in groups:
        own = units.set_index("experiment")
        cells = [
            f"{100 * own.loc[one, 'share']:.1f} ± {100 * own.loc[one, 'error']:.1f}"
            if one in own.index
            else "–"
            for one in experiments
        ]
        times = [seconds_text(units[key].median()) for key in ("offline", "online")]
        lines.append(f"| {agent} | {' | '.join([*times, *cells])} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Archive results, and write the table."""
    if arguments:
        jbrl.Results(arguments[0]).archive(KEPT, decimals=3)
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    table = rows_of(shares(jbrl.Results(KEPT)))
    PAGE.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", metavar="DIR", nargs="?", help="results to keep first")
    given = parser.parse_args().results
    main([given] if given else [])
