"""Gain of an algorithm by settings of its parameters for each environment, beside one for all.

Performance is the mean score of a setting in an environment, normalised so that the 5th percentile
of all settings of all algorithms there is 0 and the 95th is 1; it is not cut to that range.

* tuned: the mean over environments of the best setting of each;
* single: the best mean over environments of one setting;
* sensitivity: the difference of the two;
* dimension: the fewest parameters which, chosen for each environment while the others keep the
  values of the best single setting, reach 95 % of `tuned`.

Intervals are bias-corrected percentiles of a bootstrap over the lifetimes of each environment, on
which all settings are played: everything is normalised and chosen anew in each resample. The best
of several means is luck, too: where settings are equally good, `tuned` and `sensitivity` are too
high, by less the more lifetimes there are.

Source: Adkins, Bowling and White 2024, A method for evaluating hyperparameter sensitivity in
reinforcement learning, NeurIPS 37. They resample the runs of each setting by itself, and draw the
dimension between whole numbers.
"""

import json
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.stats.labels import varied
from jbrl.stats.paired_bootstrap import bca_levels, both_means, check_level, draw_counts, pair

MEASURES = ("tuned", "single", "sensitivity", "dimension")
ENDS = ("lower", "upper")
TUNING = (
    *("algorithm", "experiments", "settings", "parameters"),
    *(name for measure in MEASURES for name in (measure, *(f"{measure}_{e}" for e in ENDS))),
    "choose",
)
PERCENTILES = (5, 95)  # of all settings in an environment, which become 0 and 1
ENOUGH = 0.95  # of `tuned`
RESAMPLES = 2000
MOST_PARAMETERS = 10  # whose subsets are tried
DECIMALS, ROUNDING = 9, 1e-9  # of performance that are compared: equal settings tie everywhere


def tuning(
    returns: pd.DataFrame, *, resamples: int = RESAMPLES, level: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Return the sensitivity across environments of each algorithm that has several settings.

    Args:
      returns: score table, columns `jbrl.base.schema.RETURNS`; parameters are JSON, and all
        settings were played on the same lifetimes of each experiment.
      resamples: of the bootstrap.
      level: of the intervals, between 0 and 1.
      seed: of the resamples.

    Returns:
      Columns `TUNING`, the most sensitive algorithm first: numbers of experiments, settings and
      parameters in which these differ, the measures with their intervals, and the parameters to
      `choose`, those of `dimension` with the highest performance.

    Raises:
      JbrlError: fewer than two experiments, no algorithm with several settings, settings that were
        not played in all experiments or not on the same lifetimes, or `level` not in (0, 1).
    """
    check_level(level)
    experiments = [] if returns.empty else pair(returns)
    agents = sorted({who for e in experiments for who in e.agents.itertuples(index=False)})
    agents = [(str(name), str(text)) for name, text in agents]
    names = list(dict.fromkeys(name for name, _ in agents))
    several = [name for name in names if sum(name == own for own, _ in agents) > 1]
    if len(experiments) < 2 or not several:
        raise JbrlError(
            f"tuning: {len(experiments)} experiments, and {len(several)} algorithms with several "
            "settings: expected at least two experiments with the same settings of an algorithm, "
            "such as epsilon = [0, 0.1]"
        )
    scores = []
    for number, one in enumerate(experiments):
        places = {(a, p): k for k, (a, p) in enumerate(one.agents.itertuples(index=False))}
        lacking = next((agent for agent in agents if agent not in places), None)
        if lacking:
            raise JbrlError(
                f"tuning: {lacking[0]} {lacking[1]} was not played in {one.experiment}: expected "
                "each setting in all experiments"
            )
        counts = draw_counts(len(one.mdps), resamples, seed, number)
        means = both_means(counts, one.scores[:, [places[agent] for agent in agents]])
        scores.append(normalised(means))
    performance = np.stack(scores, axis=1)
    rows = []
    for name in several:
        mine = [k for k, (own, _) in enumerate(agents) if own == name]
        rows.append((name, len(experiments), *_row(performance[..., mine], agents, mine, level)))
    table = pd.DataFrame(rows, columns=list(TUNING))
    return table.sort_values("sensitivity", ascending=False, kind="stable", ignore_index=True)


def normalised(means: np.ndarray) -> np.ndarray:
    """Return scores [..., n] of n settings such that `PERCENTILES` of them are 0 and 1; 0 where
    these are equal.
    """
    low, high = np.percentile(means, PERCENTILES, axis=-1)[..., None]
    width = high - low
    return np.where(width > 0, (means - low) / np.where(width > 0, width, 1.0), 0.0)


def _row(
    performance: np.ndarray, agents: list[tuple[str, str]], mine: list[int], level: float
) -> Iterator[object]:
    """Yield columns of an algorithm from `settings` on.

    Args:
      performance: [1 + R, E, H] float64, of all lifetimes and then in each resample.
    """
    texts = [agents[k][1] for k in mine]
    names = varied(texts) or []
    if not 0 < len(names) <= MOST_PARAMETERS:
        raise JbrlError(
            f"tuning: {agents[mine[0]][0]} differs in {len(names)} parameters: expected 1 to "
            f"{MOST_PARAMETERS}, written as a JSON object"
        )
    values = np.array(
        [[json.dumps(json.loads(text).get(name)) for name in names] for text in texts]
    )
    tuned = performance.max(-1).mean(-1)
    across = performance.mean(-2)
    single, best = across.max(-1), np.round(across, DECIMALS).argmax(-1)
    fewest, chosen = dimensions(performance, values, best)
    yield from (len(mine), len(names))
    tails = ((1 - level) / 2, (1 + level) / 2)
    for drawn in (tuned, single, tuned - single):
        yield from (drawn[0], *_corrected(drawn, tails))
    ends = np.quantile(fewest[1:], tails, method="inverted_cdf")
    yield from (int(fewest[0]), *(int(end) for end in ends))
    yield ", ".join(names[k] for k in chosen)


def _corrected(drawn: np.ndarray, tails: tuple[float, float]) -> np.ndarray:
    """Return quantiles of resamples [1:], shifted by how far their median is from what it stands
    for, [0] (Efron 1982).
    """
    point, spread = drawn[0], drawn[1:]
    below = ((spread < point).mean() + (spread <= point).mean()) / 2
    ends: np.ndarray = np.quantile(spread, bca_levels(below, len(spread), 0.0, np.array(tails)))
    return ends


def dimensions(
    performance: np.ndarray, values: np.ndarray, best: np.ndarray
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return the fewest parameters that reach `ENOUGH` of the performance of all.

    Args:
      performance: [R, E, H] float64, of H settings.
      values: [H, P] of anything, of each parameter.
      best: [R] int, the single setting whose values the other parameters keep.

    Returns: [R] int64, and the parameters that are chosen in the first row, those of so many that
      perform best.
    """
    n_parameters = values.shape[1]
    enough = ENOUGH * performance.max(-1).mean(-1) - ROUNDING
    fewest = np.full(len(best), n_parameters)
    chosen: tuple[int, ...] = tuple(range(n_parameters))
    for setting in np.unique(best):
        rows = np.flatnonzero(best == setting)
        for count in range(n_parameters):
            subsets = list(combinations(range(n_parameters), count))
            played = performance[rows]
            reach = np.stack([_tuned(played, values, setting, free) for free in subsets])
            reached = reach.max(0) >= enough[rows]
            fewest[rows[reached]] = count
            if rows[0] == 0 and reached[0]:
                chosen = subsets[int(np.round(reach[:, 0], DECIMALS).argmax())]
            rows = rows[~reached]
            if not len(rows):
                break
    return fewest, chosen


def _tuned(
    performance: np.ndarray, values: np.ndarray, setting: int, free: tuple[int, ...]
) -> np.ndarray:
    """Return the mean over environments of the best of the settings [R, E, H] whose values are
    those of one, but for the parameters that are `free`.
    """
    kept = [k for k in range(values.shape[1]) if k not in free]
    same = (values[:, kept] == values[setting, kept]).all(1)
    best: np.ndarray = performance[..., same].max(-1).mean(-1)
    return best
