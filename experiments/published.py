"""Play cells of the published comparison and print them beside the published figures.

python experiments/published.py [MDPs] [--long]

Without --long: all cells whose agents need no search, and those of BAMCP and BFS3 that were
measured with the C++ program at small budgets; a minute or two. With it: the paper's cells of
BAMCP, BFS3 and, with the uniform priors, SBOSS, whose budgets take hours on two cores with
500 MDPs.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbrl.agents.registry import AGENTS
from jbrl.play.play import play
from jbrl.stats.published import castronovo2016 as numbers

SEARCHES = ("BAMCP", "BFS3")
# Where the published program computes something else than the algorithm that it names, what it
# computes is played.
PLAYED = {"BEB": "BEB-published", "SBOSS": "SBOSS-published", "Soft-max": "Soft-max-published"}
MAX_SAMPLES = 1024  # of SBOSS; the program has no cap and draws 27 times as many in one cell
# played by the program, where not 500
MDPS = {("C++", "BAMCP", "K=500;depth=15"): 100, ("C++", "BAMCP", "K=10;depth=15"): 100}


def cells(*, long: bool = False) -> pd.DataFrame:
    """Return published cells, one a row: source, case, experiment, agent, parameters, score,
    half_width.

    Args:
      long: those that take long, instead of all others.
    """
    both = pd.concat(
        [numbers.paper().assign(source="paper"), numbers.program().assign(source="C++")]
    )
    both = both[both.agent.isin(AGENTS) & (both.agent != "OPPS-DS")]
    slow = (both.source == "paper") & (
        both.agent.isin(SEARCHES) | ((both.agent == "SBOSS") & (both.case == "inaccurate"))
    )
    return both[slow if long else ~slow].reset_index(drop=True)


def compare(
    n_environments: int = 500, seed: int = 0, *, long: bool = False, only: str = ""
) -> Iterator[dict[str, str | float]]:
    """Yield one row per published cell: our mean and 95 % half-width, the published ones, and the
    difference in combined standard errors.

    Args:
      only: a regular expression; cells in whose agent and parameters (`BFS3 K=500;C=15;depth=15`)
        it is found.
    """
    published = cells(long=long)
    published = published[(published.agent + " " + published.parameters).str.contains(only)]
    printed = published[
        (published.source == "paper") & (published.half_width != "")
    ].drop_duplicates(["case", "experiment", "agent"])
    widths = printed.set_index(["case", "experiment", "agent"]).half_width.astype(float)
    for cell in published.itertuples():
        chosen = numbers.parameters(cell.agent, cell.parameters)
        capacity = {"max_samples": MAX_SAMPLES} if cell.agent == "SBOSS" else {}
        prior = cell.experiment if cell.case == "accurate" else "U" + cell.experiment
        count = min(
            n_environments, MDPS.get((cell.source, cell.agent, cell.parameters), n_environments)
        )
        agent = AGENTS[PLAYED.get(cell.agent, cell.agent)].agent(**chosen, **capacity)
        returns = play(
            agent, prior=prior, test=cell.experiment, n_environments=count, seed=seed
        ).returns
        mean, half = returns.mean(), 1.96 * returns.std(ddof=1) / np.sqrt(count)
        theirs = float(
            cell.half_width or widths.get((cell.case, cell.experiment, cell.agent), half)
        )
        error = max(np.hypot(half, theirs) / 1.96, 1e-9)  # Soft-max on Grid: 0 ± 0
        yield {
            "source": cell.source,
            "case": cell.case,
            "experiment": cell.experiment,
            "agent": cell.agent,
            "played with": ", ".join(f"{name} = {value:g}" for name, value in chosen.items()),
            "N": count,
            "jbrl": mean,
            "±": half,
            "published": float(cell.score),
            "± ": theirs,
            "standard errors apart": (mean - float(cell.score)) / error,
        }


def main() -> None:
    """Run from the command line: a table in Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "n_environments", type=int, nargs="?", default=500, help="MDPs to play in each cell"
    )
    parser.add_argument(
        "--long", action="store_true", help="the cells that take long instead of all others"
    )
    arguments = parser.parse_args()
    furthest = 0.0
    for number, row in enumerate(compare(arguments.n_environments, long=arguments.long)):
        if number == 0:
            print("| " + " | ".join(row) + " |\n|" + "---|" * 6 + "---:|" * 5)
        print(
            "| "
            + " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values())
            + " |",
            flush=True,
        )
        furthest = max(furthest, abs(float(row["standard errors apart"])))
    print(f"\nlargest distance: {furthest:.2f} combined standard errors")


if __name__ == "__main__":
    main()
