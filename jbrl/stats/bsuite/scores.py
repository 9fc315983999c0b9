"""Tables of scores: of experiments, of tags, of single settings, as score tables for others, and
differences of two agents.

Differences are tested by permutation. If two agents behave alike in every setting, the name of a
run carries no information: names may be exchanged among the runs of a stratum (equal settings)
without changing the distribution of the difference of scores. The test needs no assumption beyond
that, and works with one run per setting.

Source: Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses (stratified
permutation).
"""

import dataclasses
import itertools
import zlib
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS
from jbrl.base.errors import check_choice
from jbrl.stats.bsuite import curves
from jbrl.stats.bsuite.logs import Logs, Run
from jbrl.stats.bsuite.measures import (
    LATE,
    RELEASES,
    AgentRuns,
    level_of,
    of_runs,
    played,
    regret,
    resampled,
)
from jbrl.stats.paired_test import rejected

COLUMNS = ("agent", "bsuite_env", "score", "type", "tags", "finished")
INTERVAL = ("lower", "upper", "runs")
CEILING = ("mean_return", "optimum", "regret", "least_regret")
RESAMPLES = 2000
SEED = 0
LISTED = 4  # experiments in a sentence
TAIL = 0.025  # on each side of an interval


def summary(
    logs: Logs, release: str = RELEASES[0], *, intervals: bool = False, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Return the score of each agent in each experiment.

    An experiment that only other agents have played is a row without a score.

    Args:
      release: whose rules count, "0.3.6" or "0.3.5".
      intervals: add the columns lower and upper (a 95% percentile bootstrap interval over runs,
        within settings; NaN where a setting has one run and no equal) and runs (int, of a setting).

    Returns:
      Columns agent, bsuite_env, score (float64 in [0, 1], NaN where the original's is), type, tags
      (separated by commas), finished (bool); by agent, then in the order of the sweep.

    Raises:
      JbrlError: no such release.
    """
    rows = []
    for agent in logs.agents:
        for name in logs.experiments:
            runs = played(logs, agent, name, release)
            row = _row(agent, name, runs)
            if intervals:
                row |= _interval(runs, resamples)
            rows.append(row)
    columns = (*COLUMNS, *INTERVAL) if intervals else COLUMNS
    return pd.DataFrame(rows, columns=list(columns))


def tag_scores(
    logs: Logs, release: str = RELEASES[0], *, intervals: bool = False, resamples: int = RESAMPLES
) -> pd.DataFrame:
    """Return the plain mean of the scores of each tag's experiments, each of them once.

    Returns:
      Columns agent, tag, score, experiments (int, how many have a score), of (int, how many carry
      the tag), finished (bool: all of them are there and finished); with `intervals` also lower and
      upper. Experiments without a score are left out of the mean.

    Raises:
      JbrlError: no such release.
    """
    scores = summary(logs, release)
    rows = []
    for agent in logs.agents:
        mine = scores[scores["agent"] == agent].set_index("bsuite_env")
        draws = _draws(logs, agent, release, resamples) if intervals else {}
        for tag in TAGS:
            names = [name for name, one in EXPERIMENTS.items() if tag in one.tags]
            there = [n for n in names if n in mine.index and np.isfinite(mine.loc[n, "score"])]
            finished = len(there) == len(names) and bool(mine.loc[there, "finished"].all())
            score = float(mine.loc[there, "score"].mean()) if there else np.nan
            row = {"agent": agent, "tag": tag, "score": score, "experiments": len(there)}
            row |= {"of": len(names), "finished": finished}
            if intervals:
                row |= _tag_interval(draws, there)
            rows.append(row)
    columns = ["agent", "tag", "score", "experiments", "of", "finished"]
    return pd.DataFrame(rows, columns=columns + (["lower", "upper"] if intervals else []))


def setting_scores(logs: Logs, release: str = RELEASES[0]) -> pd.DataFrame:
    """Score each setting by itself: the experiment's rule, applied to its runs alone.

    Where a rule counts settings (deep_sea, memory, umbrella) this is 0 or 1 for each sweep. The
    last episode that counts is that of the setting's own runs.

    Returns:
      Columns agent, bsuite_id, score, finished; mean_return of an episode beside the optimum of an
      agent that knows the environment, and regret of an episode beside that of the best learner
      (`ceilings`; NaN where these are not known). Means over sweeps.

    Raises:
      JbrlError: no such release.
    """
    rows = []
    for agent in logs.agents:
        for name in logs.experiments:
            for bsuite_id, scores, finished in _settings(logs, agent, name, release):
                row = {"agent": agent, "bsuite_id": bsuite_id, "score": scores.mean()}
                runs = [run for run in logs.of(agent, name) if run.bsuite_id == bsuite_id]
                rows.append(row | {"finished": finished} | _beside_ceiling(bsuite_id, runs))
    columns = ["agent", "bsuite_id", "score", "finished", *CEILING]
    return pd.DataFrame(rows, columns=columns)


def _beside_ceiling(bsuite_id: str, runs: list[Run]) -> dict[str, float]:
    known = curves.ceiling(bsuite_id) or curves.Ceiling(np.nan, np.nan)
    episodes = np.mean([run.episodes for run in runs])
    values = (
        np.mean([curves.mean_return(run) for run in runs]),
        known.optimum,
        np.mean([regret(run)[-1] / run.episodes for run in runs]),
        known.least_regret / episodes,
    )
    return dict(zip(CEILING, map(float, values), strict=True))


def score_table(logs: Logs, release: str = RELEASES[0], *, of: str = "experiments") -> pd.DataFrame:
    """Return the scores as any score table, one row for each sweep that an agent has played.

    Args:
      of: "experiments" (up to 23 environments) or "settings" (up to 468).

    Returns:
      Columns algorithm, environment, score; of settings also suite_score, the mean of the agent's
      scores of experiments, as a target for `jbrl subset search`. Scores that are NaN are left out.

    Raises:
      JbrlError: no such release, or `of` is neither.
    """
    check_choice("of", of, ("experiments", "settings"))
    rows: list[tuple[str, str, float]] = []
    for agent in logs.agents:
        for name in logs.experiments:
            if of == "settings":
                for bsuite_id, scores, _ in _settings(logs, agent, name, release):
                    rows += [(agent, bsuite_id, float(score)) for score in scores]
            elif (runs := played(logs, agent, name, release)) is not None:
                rows += [(agent, name, float(score)) for score in runs.score(runs.choice())]
    table = pd.DataFrame(rows, columns=["algorithm", "environment", "score"])
    table = table[table["score"].notna()].reset_index(drop=True)
    if of == "settings":
        whole = summary(logs, release).groupby("agent")["score"].mean()
        table = table.assign(suite_score=table["algorithm"].map(whole))
    return table


def incomplete(logs: Logs) -> list[str]:
    """Return sentences about agents that lack experiments which others have played."""
    sentences = []
    for agent in logs.agents:
        missing = [name for name in logs.experiments if not logs.of(agent, name)]
        if missing:
            have = next(other for other in logs.agents if logs.of(other, missing[0]))
            sentences.append(
                f"agent {agent}: no logs of {', '.join(missing)}, which {have} has: "
                f"its scores there are empty, and its tags leave them out"
            )
    return sentences


def unfinished(logs: Logs) -> list[str]:
    """Return sentences about agents that lack settings of an experiment, or episodes, or the row
    that their score is read from; four for each at most.
    """
    sentences = []
    for agent in logs.agents:
        lacking = []
        for name in logs.experiments:
            there = {run.bsuite_id for run in logs.of(agent, name)}
            every = EXPERIMENTS[name].ids
            if 0 < len(there) < len(every):
                lacking.append(f"{name} has {len(there)} of {len(every)}")
        if lacking:
            sentences.append(f"agent {agent}: settings are missing: {_listed(lacking)}")
        runs = [run for run in logs.runs if run.agent == agent]
        short = [run for run in runs if not run.finished]
        if short:
            worst = min(short, key=lambda run: run.episodes / run.experiment.episodes)
            sentences.append(
                f"agent {agent}: {len(short):,} of {len(runs):,} runs are not finished and are "
                f"scored as far as they go (the shortest, {worst.bsuite_id}: {worst.episodes:,} of "
                f"{worst.experiment.episodes:,} episodes)"
            )
        reached: dict[tuple[str, float], int] = {}  # by experiment and level
        for run in runs:
            key = run.experiment.name, level_of(run)
            reached[key] = max(reached.get(key, 0), run.episodes)
        early = [n for (n, _), e in reached.items() if n.startswith("mnist") and e <= LATE]
        if early:
            sentences.append(
                f"agent {agent}: no score in {', '.join(dict.fromkeys(early))}: expected episodes "
                f"after {LATE:,}"
            )
        beyond = [
            run
            for run in runs
            if run.experiment.episodes not in run.columns["episode"] and run.finished
        ]
        if beyond:
            first = beyond[0]
            sentences.append(
                f"agent {agent}: {len(beyond):,} of {len(runs):,} runs go beyond the last episode "
                f"that counts and have no row of it (the first, {first.bsuite_id}: "
                f"{first.experiment.episodes:,}): average regrets leave them out"
            )
    return sentences


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - LISTED} more experiments" if len(texts) > LISTED else ""
    return ", ".join(texts[:LISTED]) + more


def draws(runs: AgentRuns, resamples: int) -> np.ndarray:
    """Draw bootstrap scores of an agent in an experiment, [resamples] float64; seeded by both
    names.
    """
    name = f"{runs.agent}/{runs.experiment.name}"
    generator = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    return runs.score(resampled(runs, resamples, generator)).mean(axis=-1)


def _row(agent: str, name: str, runs: AgentRuns | None) -> dict[str, Any]:
    rules = EXPERIMENTS[name]
    score = float(runs.score(runs.choice()).mean()) if runs else np.nan
    row = {"agent": agent, "bsuite_env": name, "score": score, "type": rules.type}
    return row | {"tags": ", ".join(rules.tags), "finished": bool(runs and runs.finished)}


def _interval(runs: AgentRuns | None, resamples: int) -> dict[str, float]:
    lower = upper = np.nan
    if runs is not None and runs.repeated:
        lower, upper = np.quantile(draws(runs, resamples), [TAIL, 1 - TAIL])
    return {"lower": lower, "upper": upper, "runs": runs.sweeps if runs else 0}


def _draws(logs: Logs, agent: str, release: str, resamples: int) -> dict[str, np.ndarray | None]:
    """Return bootstrap scores by experiment, None where a setting has one run only."""
    runs = {name: played(logs, agent, name, release) for name in logs.experiments}
    return {
        name: draws(one, resamples) if one.repeated else None for name, one in runs.items() if one
    }


def _tag_interval(draws: dict[str, np.ndarray | None], names: list[str]) -> dict[str, float]:
    """Return the interval of a mean of independent scores; unknown where that of one score is."""
    parts = [part for name in names if (part := draws.get(name)) is not None]
    if len(parts) < len(names) or not parts:
        return {"lower": np.nan, "upper": np.nan}
    lower, upper = np.quantile(np.mean(parts, axis=0), [TAIL, 1 - TAIL])
    return {"lower": lower, "upper": upper}


def _settings(
    logs: Logs, agent: str, name: str, release: str
) -> list[tuple[str, np.ndarray, bool]]:
    """Return the id, the score of each run and whether all are finished, of each setting that was
    played.
    """
    runs = logs.of(agent, name)
    settings = []
    for bsuite_id in dict.fromkeys(run.bsuite_id for run in runs):
        mine = [run for run in runs if run.bsuite_id == bsuite_id]
        one = of_runs(mine, EXPERIMENTS[name], release)
        settings.append((bsuite_id, one.score(one.choice()), all(run.finished for run in mine)))
    return settings


PERMUTATIONS = 4999
LEVEL = 0.05
SLACK = 1e-12  # differences this close are equal, but for rounding
DIFFERENCES = (
    *("bsuite_env", "agent", "other", "difference"),
    *("p_value", "differs", "runs", "other_runs"),
)


@dataclasses.dataclass(frozen=True)
class Permuted:
    """Result of a permutation test."""

    difference: float  # of the scores, first less second
    p_value: float  # two-sided
    permutations: int


def permutation_test(
    a: AgentRuns, b: AgentRuns, permutations: int = PERMUTATIONS, seed: int = 0
) -> Permuted:
    """Test the hypothesis that both agents behave alike in every setting that both have played.

    Two-sided; p = (1 + permutations at least as far from 0) / (1 + permutations), which keeps the
    level (Phipson and Smyth 2010). NaN where an agent has not finished: the number of episodes
    would distinguish the runs.
    """
    common = np.intersect1d(a.settings, b.settings)
    parts = [[run for run in one.runs if _index(run) in common] for one in (a, b)]
    if not all(parts) or not all(run.finished for part in parts for run in part):
        return Permuted(np.nan, np.nan, 0)
    both = of_runs([*parts[0], *parts[1]], a.experiment, a.release)
    first, second = (of_runs(part, a.experiment, a.release).choice() for part in parts)
    second = second + len(parts[0])

    def difference(orders: np.ndarray) -> np.ndarray:
        mine, other = (both.score(orders[:, choice]).mean(axis=-1) for choice in (first, second))
        return mine - other

    observed = difference(np.arange(len(both.runs))[None])[0]
    orders = _exchanges(both.stratum, permutations, np.random.default_rng(seed))
    far = np.sum(np.abs(difference(orders)) >= abs(observed) - SLACK)
    return Permuted(float(observed), float((1 + far) / (1 + permutations)), permutations)


def compare(
    logs: Logs, release: str = RELEASES[0], permutations: int = PERMUTATIONS
) -> pd.DataFrame:
    """Compare all pairs of agents in all experiments that both have played.

    Returns:
      Columns bsuite_env, agent, other, difference (score of agent less that of other), p_value,
      differs (bool: by Holm's correction over the experiments of a pair, at 5%), runs and
      other_runs (int, of a setting).

    Raises:
      JbrlError: no such release.
    """
    parts = []
    for agent, other in itertools.combinations(logs.agents, 2):
        rows = []
        for name in logs.experiments:
            a, b = (played(logs, who, name, release) for who in (agent, other))
            if a is None or b is None:
                continue
            seed = zlib.crc32(f"{agent}/{other}/{name}".encode())
            test = permutation_test(a, b, permutations, seed)
            row: dict[str, Any] = {"bsuite_env": name, "agent": agent, "other": other}
            row |= {"difference": test.difference, "p_value": test.p_value}
            rows.append(row | {"runs": a.sweeps, "other_runs": b.sweeps})
        known = [row for row in rows if np.isfinite(row["p_value"])]
        verdicts = rejected([row["p_value"] for row in known], LEVEL, "holm")
        for row, differs in zip(known, verdicts, strict=True):
            row["differs"] = differs
        parts += rows
    table = pd.DataFrame(parts, columns=list(DIFFERENCES))
    return table.assign(differs=table["differs"].eq(True))


def _index(run: Run) -> int:
    return SWEEP[run.bsuite_id].index


def _exchanges(
    stratum: np.ndarray, permutations: int, generator: np.random.Generator
) -> np.ndarray:
    """Return orders of the runs in which only runs of one stratum change places, [permutations,
    runs].
    """
    keys = stratum + generator.random((permutations, len(stratum)))
    ranks = np.argsort(keys, axis=-1)
    places = np.argsort(stratum, kind="stable")
    orders = np.empty_like(ranks)
    orders[:, places] = ranks
    return orders
