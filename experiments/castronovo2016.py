"""Facts about a re-run of the comparison of Castronovo et al. 2016 as a whole: its distance from
the published one, what the choice of winners explains of it, and the lists of winners.

python experiments/castronovo2016.py DIR

*Distance.* A cell that is right lies within 1.96 combined standard errors of the published one in
95 of 100 cases. Cells are not independent: in each study all agents play the same MDPs, which
differ far more than agents do. The standard error of the mean deviation takes that into account.

The published parameters are those of the highest of several means, and the highest of several is
too high. A study that plays the same parameters on other MDPs has no such advantage. How large it
is follows from resampling the MDPs of a study that has played all settings.

*Winners* from left to right along the online axis, beside the lists that the paper prints (section
5.3). The offline bound lies just under the least offline time of OPPS-DS, which is therefore not
among them. Times that are not distinguished are ties.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.base.schema import AGENT, MDP, RETURNS  # noqa: E402
from jbrl.comparison import Side, compare, read  # noqa: E402
from jbrl.stats.paired_bootstrap import draw_counts, resampled_means  # noqa: E402
from jbrl.stats.published import read_table  # noqa: E402
from jbrl.stats.published.castronovo2016 import BEST, CELL, cells, notes  # noqa: E402
from jbrl.stats.table import Z95, check_columns, factor95  # noqa: E402
from jbrl.stats.time_bounds import Contest, resolved, winners_by_bound  # noqa: E402
from jbrl.stats.two_studies import Comparison  # noqa: E402

RESAMPLES = 2_000
PUBLISHED_MDPS = 500  # of each published mean
SEARCH = "OPPS-DS"
PAPER, DESCRIBED, PROGRAM = "paper", "as described", "as published"


def facts(found: Comparison, ours: Side) -> Iterator[str]:
    """Describe the distance of a study from the published one as a whole; nothing where MDPs are
    not known by number.
    """
    if not set(RETURNS) <= set(ours.returns.columns):
        return
    whole = deviations(found.table, ours.returns)
    if not whole.cells:
        return
    yield whole.text
    best = advantages(found.candidates, ours.played, ours.returns)
    if len(best):
        shift = f"{explained(found.table, best):+.2f}".replace("-", "−")
        yield (
            "the published settings are the best of several: that alone shifts the mean by "
            f"{shift} (estimated in {len(best)} cells from the settings played here)"
        )


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
      table: what `castronovo2016.verdicts` returns.
      returns: our score table, columns `jbrl.base.schema.RETURNS`.
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
      candidates: what `castronovo2016.with_published` returns.
      scores: what `Side.played` returns.
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


def winners(scores: pd.DataFrame, returns: pd.DataFrame) -> pd.DataFrame:
    """Return the lists of winners of the paper, and those of a study, with the algorithms as they
    are described and as they were published.

    Of several experiments of a study with the prior and the test distribution of one pair, that
    with the most agents counts: the others' MDPs cannot all be paired with its own.

    Args:
      scores: one row per agent: `AGENT`, case (accurate, inaccurate), test, offline_seconds,
        online_seconds.
      returns: score table of the same agents.

    Returns:
      One row per step: case, experiment, source ("paper", "as described", "as published"), place
      (from 1), bound (seconds per decision from which on; NaN for the paper), algorithms (tuple,
      the best first; in the paper by name). A source is left out of an experiment in which it has
      fewer than two algorithms.

    Raises:
      JbrlError: a column is missing, or what `Contest` raises.
    """
    check_columns(scores, (*AGENT, "case", "test", "offline_seconds", "online_seconds"), "scores")
    names = tuple(dict.fromkeys(cells()["algorithm"]))
    replaced = {
        note["algorithm"]: note["played"] for note in notes().to_dict("records") if _stands_in(note)
    }
    casts = {
        DESCRIBED: {name: name for name in names},
        PROGRAM: {replaced.get(name, name): name for name in names},
    }
    parts = []
    for (case, experiment), lists in printed_winners().groupby(["case", "experiment"], sort=False):
        parts.append(_steps(lists, case, experiment, PAPER))
        here = scores[(scores["case"] == case) & (scores["test"] == experiment)]
        here = here[here["experiment"].isin(here["experiment"].mode()[:1])]
        for source, cast in casts.items():
            found = _winners(here[here["algorithm"].isin(cast)], returns, cast)
            parts.append(_steps(found, case, experiment, source))
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def in_words(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row per list: case, experiment, source, `winners` as the paper prints them:
    `(Random), (BEB, e-Greedy)`.
    """
    texts = steps["algorithms"].map(lambda names: f"({', '.join(sorted(names))})")
    keys = ["case", "experiment", "source"]
    return (
        steps.assign(winners=texts)
        .groupby(keys, sort=False)["winners"]
        .agg(", ".join)
        .reset_index()
    )


def _stands_in(note: dict[str, str]) -> bool:
    """Return whether a note names the program's computation under the name of an algorithm, with
    any parameters.
    """
    return note["kind"] == "defect" and not note["parameters"]


def _winners(scores: pd.DataFrame, returns: pd.DataFrame, cast: dict[str, str]) -> pd.DataFrame:
    """Return the steps of one experiment; empty where there is no competitor."""
    searches = scores["algorithm"] == SEARCH
    known = scores[
        ~searches & np.isfinite(scores["online_seconds"]) & np.isfinite(scores["offline_seconds"])
    ]
    if known["algorithm"].nunique() < 2:
        return pd.DataFrame(columns=["bound", "algorithms"])
    least = resolved(scores[searches & np.isfinite(scores["online_seconds"])])[
        "offline_seconds"
    ].min()
    bounds = {"offline": float(np.nextafter(least, 0))} if np.isfinite(least) else {}
    mine = returns[
        returns["experiment"].isin(known["experiment"])
        & returns["algorithm"].isin(known["algorithm"])
    ]
    found = winners_by_bound(Contest(resolved(known), mine), bounds=bounds)
    return found.assign(
        algorithms=[tuple(cast[name] for name in names) for names in found["algorithms"]]
    )


def _steps(found: pd.DataFrame, case: str, experiment: str, source: str) -> pd.DataFrame:
    told = {
        "case": case,
        "experiment": experiment,
        "source": source,
        "place": np.arange(1, len(found) + 1),
    }
    bounds = found["bound"] if "bound" in found.columns else np.full(len(found), np.nan)
    return pd.DataFrame({**told, "bound": bounds, "algorithms": list(found["algorithms"])})


def printed_winners() -> pd.DataFrame:
    """Return the winners that the paper prints: columns case, experiment, algorithms (tuple), one
    row per step.
    """
    found = read_table("winners_by_bound.csv")
    return found.assign(algorithms=[tuple(names.split(";")) for names in found["algorithms"]])


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("results", type=Path, metavar="DIR")
    place = parser.parse_args(arguments).results
    found, ours = compare(place), read(place)
    print(found.note, *facts(found, ours), "", sep="\n")
    lists = in_words(winners(ours.played, ours.returns))
    for (case, experiment), rows in lists.groupby(["case", "experiment"], sort=False):
        print(f"{experiment}, {case} prior")
        for row in rows.itertuples():
            print(f"  {row.source + ':':13} {row.winners}")


if __name__ == "__main__":
    main()
