"""The price of a wrong prior: the share of its value that an agent keeps, by how wrong it is."""

import re

import numpy as np
import pandas as pd

from jbrl.base.schema import RETURNS
from jbrl.stats.table import check_returns, factor95, samples

PRIOR = re.compile(r'wrong\((?P<of>.+?),kind="(?P<kind>\w+)",degree=(?P<degree>[^,)]+).*\)')
COLUMNS = ("test", "kind", "degree", "algorithm", "parameters", "n", "right", "share", "ci95")


def wrongness(prior: str, test: str) -> tuple[str, float] | None:
    """Return the kind and the degree of a prior, ("", 0) of the right one, None of any other.

    The uniform prior is that of degree 1.
    """
    if prior == test:
        return "", 0.0
    if prior in (f"U{test}", f"uniform({test})"):
        return "uniform", 1.0
    found = PRIOR.fullmatch(prior)
    return (found["kind"], float(found["degree"])) if found and found["of"] == test else None


def kept(returns: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the score with the right prior that agents keep with a wrong one.

    Args:
      returns: a score table with the columns `prior` and `test`.

    Returns:
      Columns `COLUMNS`, with a row of degree 0 for each kind: `n` environments that an agent has
      played with both priors, `right` its mean score with the right one, `share` the ratio of the
      means and `ci95` the half-width of its 95% interval, by the linear expansion of a ratio of
      paired means; NaN where `right` is not positive. Agents that have not played with the right
      prior are left out.

    Raises:
      JbrlError: a column is missing, or a score is not finite.
    """
    returns = check_returns(returns, (*RETURNS, "prior", "test"))
    told = returns.drop_duplicates("experiment").set_index("experiment")
    wrong = {name: wrongness(*map(str, row)) for name, row in told[["prior", "test"]].iterrows()}
    played: dict[tuple[str, ...], dict[tuple[str, float], pd.Series]] = {}
    for (experiment, *who), scores in samples(returns).items():
        if point := wrong[experiment]:
            played.setdefault((told.loc[experiment, "test"], *who), {})[point] = scores
    rows = []
    for (test, *who), by_point in played.items():
        right = next((scores for point, scores in by_point.items() if point[1] == 0), None)
        for kind in dict.fromkeys(kind for kind, _ in by_point if kind and right is not None):
            points = {d: scores for (of, d), scores in by_point.items() if of == kind}
            for degree, scores in sorted(({0.0: right} | points).items()):
                rows.append((test, kind, degree, *who, *_ratio(scores, right)))
    return pd.DataFrame(rows, columns=list(COLUMNS))


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


def _ratio(scores: pd.Series, right: pd.Series) -> tuple[int, float, float, float]:
    """Return n, the mean with the right prior, the share and its interval."""
    both = pd.concat([scores, right], axis=1, join="inner").to_numpy(np.float64)
    n, mean = len(both), float(both[:, 1].mean()) if len(both) else np.nan
    if not mean > 0:
        return n, mean, np.nan, np.nan
    share = float(both[:, 0].mean()) / mean
    spread = (both[:, 0] - share * both[:, 1]).std(ddof=1) if n > 1 else np.nan
    return n, mean, share, float(factor95(n) * spread / np.sqrt(n) / mean)
