"""Draw what a wrong prior costs, and tabulate it on docs/problems/wrong-priors.md.

python experiments/wrong_priors.py [DIR]

DIR holds results of experiments/wrong-priors.toml: they are archived in
experiments/published/wrong-priors. Without DIR, figure and tables are made from what is kept there.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

import jbrl
from jbrl.problems.problem import DirichletProblem
from jbrl.problems.wrong import total_variation
from jbrl.report.axes import styles
from jbrl.report.wrong_priors import best, curves
from jbrl.stats.wrong_priors import granted_loss, kept, wrongness

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments/published/wrong-priors"
PAGE = ROOT / "docs/problems/wrong-priors.md"
FIGURE = ROOT / "docs/_static/wrong-priors.png"
SHOWN = {"uniform": 1.0, "scaled": 9.0, "family": 1.0, "support": 1.0}  # degrees of the table
SAMPLER = "PSRL"  # whose loss the theorem bounds


def finite(name: str) -> DirichletProblem:
    """Return a distribution over MDPs."""
    found = jbrl.problem(name)
    assert isinstance(found, DirichletProblem)
    return found


def distances(results: jbrl.Results) -> pd.DataFrame:
    """Return the distance of each wrong prior from the right one, and what theory grants: columns
    `test`, `kind`, `degree`, `distance`, `loss`.
    """
    study, rows = results.manifest["study"], []
    for test, prior in results.scores[["test", "prior"]].drop_duplicates().to_numpy():
        right, (kind, degree) = finite(test).mdps, wrongness(prior, test) or ("", 0.0)
        distance, _ = total_variation(right, finite(prior).mdps)
        width = np.ptp(np.asarray(right.rewards)[np.asarray(right.concentrations) > 0])
        loss = granted_loss(distance, study["discount"], study["horizon"], float(width))
        kinds = [kind] if kind else list(SHOWN)
        rows += [(test, one, degree, distance, loss) for one in kinds]
    return pd.DataFrame(rows, columns=["test", "kind", "degree", "distance", "loss"])


def bounded(results: jbrl.Results) -> pd.DataFrame:
    """Return the shares kept, with the distance of priors and the share that theory grants to
    `SAMPLER`, `bound`, where that says something.
    """
    told = results.scores[["experiment", "prior", "test"]].drop_duplicates()
    table = best(kept(results.returns.merge(told))).merge(distances(results), how="left")
    granted = 1 - table["loss"] / table["right"]
    says = (table["algorithm"] == SAMPLER) & (granted > 0)
    return table.assign(bound=granted.where(says))


def share(row: pd.Series) -> str:
    """Return a share in per cent, with the half-width of its 95% interval."""
    return f"{100 * row['share']:.1f} ± {100 * row['ci95']:.1f}"


def costs(table: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the table of shares kept: a row for each problem and kind."""
    names = list(dict.fromkeys(table["algorithm"]))
    yield f"| prior | {' | '.join(names)} |"
    yield f"|---|{'---:|' * len(names)}"
    rows = table.set_index(["test", "kind", "degree", "algorithm"]).sort_index()
    for test in dict.fromkeys(table["test"]):
        for kind, degree in SHOWN.items():
            places = [(test, kind, degree, name) for name in names]
            line = [share(rows.loc[place]) if place in rows.index else "–" for place in places]
            yield f"| {test}, {kind} {degree:g} | {' | '.join(line)} |"


def theory(table: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the table of distances of scaled priors, and what theory grants."""
    yield f"| prior | distance | theory grants | {SAMPLER} keeps |"
    yield "|---|---:|---:|---:|"
    own = table[(table["algorithm"] == SAMPLER) & (table["kind"] == "scaled")]
    for _, row in own[own["degree"] != 0].iterrows():
        granted = "nothing" if np.isnan(row["bound"]) else f"{100 * row['bound']:.0f}"
        name = f"{row['test']}, scaled {row['degree']:g}"
        yield f"| {name} | {row['distance']:.3g} | {granted} | {share(row)} |"


def put(text: str, name: str, lines: Iterator[str]) -> str:
    """Return the page with a table between its marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{chr(10).join(lines)}\n\n{end}{rest.split(end)[1]}"


def main(arguments: list[str]) -> None:
    """Archive results, draw the figure, write the tables."""
    if arguments:
        jbrl.Results(arguments[0]).archive(KEPT, decimals=3)
    table = bounded(jbrl.Results(KEPT))
    curves(table, styles(table["algorithm"])).figure.savefig(FIGURE, dpi=110)
    PAGE.write_text(put(put(PAGE.read_text(), "shares", costs(table)), "theory", theory(table)))


if __name__ == "__main__":
    main(sys.argv[1:])
