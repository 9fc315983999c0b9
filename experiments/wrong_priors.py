"""Draw what a wrong prior costs, and tabulate it on docs/problems/wrong-priors.md.

python experiments/wrong_priors.py [DIR] [--add]

DIR holds results of experiments/wrong-priors.toml: they are archived in
experiments/published/wrong-priors, or, with --add, added to what is kept there. Without DIR, figure
and tables are made from what is kept.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import gammaln

sys.path.insert(0, str(Path(__file__).parents[1]))

import jbrl
from experiments import paper_cpu
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.problems.problem import DirichletProblem
from jbrl.report.axes import styles
from jbrl.report.wrong_priors import best, curves, kept, wrongness

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "experiments/published/wrong-priors"
PAGE = ROOT / "docs/problems/wrong-priors.md"
FIGURE = ROOT / "docs/_static/wrong-priors.png"
SHOWN = {"uniform": 1.0, "scaled": 9.0, "family": 1.0, "support": 1.0}  # degrees of the table
BOUNDED = (-9.0, 0.001, 9.0)  # degrees of the table of what theory grants
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


def total_variation(
    right: DirichletMDPs, wrong: DirichletMDPs, draws: int = 20_000, seed: int = 0
) -> tuple[float, float]:
    """Estimate the total-variation distance of two distributions over MDPs.

    It is 1 where a row has other possible successors: what one distribution draws, the other never
    does. Else it is the mean over MDPs of the first, max(0, 1 - ratio of the densities), whose
    logarithm is known in closed form.

    Returns: the mean over `draws` MDPs, in [0, 1], and its standard error; (0, 0) and (1, 0) are
      exact.
    """
    pairs = [np.asarray(m.concentrations, np.float64) for m in (right, wrong)]
    p, q = (c.reshape(-1, c.shape[-1]) for c in pairs)
    if ((p > 0) != (q > 0)).any():
        return 1.0, 0.0
    rng = np.random.default_rng(seed)
    ratio = np.zeros(draws)  # log of the wrong density over the right one
    differ = ((p != q).any(-1)) & ((p > 0).sum(-1) > 1)
    if not differ.any():
        return 0.0, 0.0
    for a, b in zip(p[differ], q[differ], strict=True):
        a, b = a[a > 0], b[a > 0]
        ratio += gammaln(b.sum()) - gammaln(b).sum() - gammaln(a.sum()) + gammaln(a).sum()
        # logarithms of gamma variables, which small concentrations do not underflow
        logs = np.log(rng.standard_gamma(a + 1, (draws, len(a))))
        logs -= rng.standard_exponential((draws, len(a))) / a
        logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
        ratio += logs @ (b - a)
    lost = -np.expm1(np.minimum(ratio, 0))
    return float(lost.mean()), float(lost.std(ddof=1) / np.sqrt(draws))


def granted_loss(distance: float, discount: float, horizon: int, width: float) -> float:
    """Return what posterior sampling at each decision can lose by a wrong prior, at most.

    Simchowitz et al. 2021: posteriors given the same history differ, on average, by no more than
    twice the total-variation distance of the priors, and each decision adds that to the distance of
    the histories of the two agents. Undiscounted, the sum is horizon (horizon + 1) distance width.

    Args:
      distance: total-variation distance of the two priors.
      horizon: decisions.
      width: greatest less smallest reward.
    """
    power, loss = 1.0, 0.0
    for decision in range(1, horizon + 1):
        loss += power * width * min(1.0, 2 * distance * decision)
        power *= discount
    return loss


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
    """Yield the lines of the table of distances of some scaled priors, and what theory grants."""
    yield f"| prior | distance | theory grants | {SAMPLER} keeps |"
    yield "|---|---:|---:|---:|"
    own = table[(table["algorithm"] == SAMPLER) & (table["kind"] == "scaled")]
    for _, row in own[own["degree"].isin(BOUNDED)].iterrows():
        granted = "nothing" if np.isnan(row["bound"]) else f"{100 * row['bound']:.0f}"
        name = f"{row['test']}, scaled {row['degree']:g}"
        yield f"| {name} | {row['distance']:.3g} | {granted} | {share(row)} |"


def put(text: str, name: str, lines: Iterator[str]) -> str:
    """Return the page with a table between its marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{chr(10).join(lines)}\n\n{end}{rest.split(end)[1]}"


def main() -> None:
    """Keep the results named; draw the figure, write the tables."""
    paper_cpu.keep_named(__doc__, KEPT)
    table = bounded(jbrl.Results(KEPT))
    curves(table, styles(table["algorithm"])).figure.savefig(FIGURE, dpi=110)
    PAGE.write_text(put(put(PAGE.read_text(), "shares", costs(table)), "theory", theory(table)))


if __name__ == "__main__":
    main()
