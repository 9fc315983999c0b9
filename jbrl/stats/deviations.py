"""Distance of a re-run of the published comparison from it as a whole, and the part of it that the
choice of winners explains.

A cell that is right lies within 1.96 combined standard errors of the published one in 95 of 100
cases. Cells are not independent: in each study all agents play the same MDPs, which differ far more
than agents do. The standard error of the mean deviation takes that into account.

The published parameters are those of the highest of several means, and the highest of several is
too high. A study that plays the same parameters on other MDPs has no such advantage. How large it
is follows from resampling the MDPs of a study that has played all settings.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from jbrl.base.schema import AGENT, MDP
from jbrl.stats.agreement import BEST
from jbrl.stats.paired_bootstrap import draw_counts, resampled_means
from jbrl.stats.published import CELL
from jbrl.stats.table import Z95, factor95

RESAMPLES = 2_000
PUBLISHED_MDPS = 500  # of each published mean


@dataclasses.dataclass(frozen=True)
class Deviations:
    """The deviations z of all cells that were played, in combined standard errors, ours
    less theirs.
    """

    cells: int
    within: int  # with |z| at most 1.96
    expected: float  # of them, if both studies drew from the same distributions
    mean: float  # of z
    standard_error: float  # of that mean, with the correlation of agents on common MDPs

    @property
    def text(self) -> str:
        """The deviations in words, one sentence."""
        mean = f"{self.mean:+.2f} ± {self.standard_error:.2f}".replace("-", "−")
        return (
            f"{self.within} of {self.cells} played cells lie within {Z95} combined standard "
            f"errors, {self.expected:.1f} would by chance; the mean deviation is {mean} of them "
            "(standard error with common MDPs taken into account)"
        )


def deviations(table: pd.DataFrame, returns: pd.DataFrame) -> Deviations:
    """Return the deviations of the ways that decide.

    The correlation of two cells that were tested on one distribution is that of their agents'
    scores on the same MDPs, which is estimated from our returns and taken to be the same in the
    published study. There all agents have played the same MDPs; of ours, the share of common MDPs
    is counted. Cells of different distributions are independent.

    Args:
      table: what `jbrl.stats.agreement.verdicts` returns.
      returns: our score table, columns `jbrl.stats.table.RETURNS`.
    """
    cells = table[np.isfinite(table["apart"].astype(float))].reset_index(drop=True)
    if cells.empty:
        return Deviations(0, 0, 0.0, np.nan, np.nan)
    z = cells["apart"].to_numpy(float)
    shares = np.stack([cells["published_ci95"] / Z95, cells["ci95"] / factor95(cells["n"])], 1)
    norms = np.linalg.norm(shares, axis=1, keepdims=True)
    shares = shares / np.where(norms > 0, norms, 1.0)  # of each study in the error; 0 ± 0 has none
    covariance = np.zeros((len(cells), len(cells)))
    by_agent = returns.groupby(list(AGENT), sort=False)
    for experiment in dict.fromkeys(cells["experiment"]):
        rows = np.flatnonzero(cells["experiment"] == experiment)
        agents = cells.loc[rows, ["played_in", "agent", "parameters"]].itertuples(index=False)
        scores = [by_agent.get_group(tuple(a)).set_index(list(MDP))["score"] for a in agents]
        correlation, common = _correlation(scores)
        theirs, ours = (np.outer(share, share) for share in shares[rows].T)
        covariance[np.ix_(rows, rows)] = correlation * (theirs + common * ours)
    error = float(np.sqrt(covariance.sum())) / len(z)
    within = int((np.abs(z) <= Z95).sum())
    return Deviations(len(z), within, 0.95 * len(z), float(z.mean()), error)


def _correlation(scores: Sequence[pd.Series]) -> tuple[np.ndarray, np.ndarray]:
    """Return the correlation of the scores of n agents on the same MDPs, and by what it is
    multiplied for their means, both [n, n] float64.

    The factor is m / √(m₁ m₂) for m common ones of m₁ and m₂ MDPs. An agent whose scores have no
    spread is independent of the others, and so are agents without two common MDPs.

    Args:
      scores: of one agent each, by `MDP`.
    """
    table = pd.concat(scores, axis=1, keys=range(len(scores)))
    found = table.corr(min_periods=2).fillna(0.0).to_numpy(copy=True)
    np.fill_diagonal(found, 1.0)
    played = table.notna().to_numpy(float)
    counts = played.T @ played
    own = np.sqrt(np.diag(counts))
    return found, counts / np.outer(own, own)


def advantages(
    candidates: pd.DataFrame, scores: pd.DataFrame, returns: pd.DataFrame, seed: int = 0
) -> pd.DataFrame:
    """Estimate by how much the best of all settings of an algorithm is too high, for each cell.

    Settings are resampled together, MDP by MDP, `PUBLISHED_MDPS` at a time. The advantage is the
    mean over resamples of the best mean in the resample less the mean of that setting on all MDPs.

    Args:
      candidates: what `jbrl.stats.agreement.with_published` returns.
      scores: what `jbrl.stats.agreement.played` returns.
      returns: as of `deviations`.

    Returns:
      One row per cell whose algorithm was played with two settings or more: `CELL`, `settings`,
      `advantage` (in returns).
    """
    found = []
    for cell in candidates.loc[candidates["way"] == BEST, list(CELL)].to_dict("records"):
        here = scores[(scores["case"] == cell["case"]) & (scores["test"] == cell["experiment"])]
        mine = here[here["algorithm"] == cell["algorithm"]]
        name = mine["experiment"].mode()[0]  # that with the most settings
        if (mine["experiment"] == name).sum() < 2:
            continue
        rows = returns[
            (returns["experiment"] == name) & (returns["algorithm"] == cell["algorithm"])
        ]
        matrix = rows.pivot(index=list(MDP), columns="parameters", values="score").dropna()
        value = best_of_several(matrix.to_numpy(float), PUBLISHED_MDPS, seed)
        found.append({**cell, "settings": matrix.shape[1], "advantage": value})
    return pd.DataFrame(found, columns=[*CELL, "settings", "advantage"])


def explained(table: pd.DataFrame, found: pd.DataFrame) -> float:
    """Return the mean deviation, in combined standard errors, that `found` (`advantages`) alone
    causes.
    """
    cells = table.merge(found, on=list(CELL), how="left")
    errors = np.hypot(cells["ci95"] / factor95(cells["n"]), cells["published_ci95"] / Z95)
    cells = cells.assign(shift=-cells["advantage"].fillna(0.0) / errors)
    return float(cells.loc[np.isfinite(cells["apart"]) & (errors > 0), "shift"].mean())


def best_of_several(scores: np.ndarray, n: int, seed: int = 0) -> float:
    """Estimate by how much the highest of several means of `n` MDPs is too high on average.

    Args:
      scores: [N, settings] float64, on the same MDPs.

    A bootstrap takes the observed means for the true ones, whose differences chance has widened, so
    that the estimate is rather low where settings are equally good.
    """
    counts = draw_counts(len(scores), RESAMPLES, seed)
    drawn = resampled_means(counts, scores)
    means = scores.mean(axis=0)
    chosen = drawn.argmax(axis=1)
    optimism = drawn[np.arange(len(drawn)), chosen] - means[chosen]
    return float(optimism.mean() * np.sqrt(len(scores) / n))  # of samples of n MDPs
