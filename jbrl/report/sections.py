"""Experiments as a report shows them: agents in order, with the tests between them."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.base.schema import AGENT, RETURNS
from jbrl.report.text import MDPS, Rules, Terms, count, decimals_for, listing, score_text, slug
from jbrl.report.text import named as named_agent
from jbrl.stats.brackets import Bracket
from jbrl.stats.paired_test import best_and_tied, rank
from jbrl.stats.table import check_columns, check_returns, rows_of, settings_of
from jbrl.stats.time_bounds import (
    BUSY,
    CALL,
    DISPATCH,
    SPREADS,
    Contest,
    busyness,
    resolved,
    stepped,
)

_TIMES = ("offline_seconds", "online_seconds", "latency_seconds", "compile_seconds")
_NUMBERS = ("mean", "std", "ci95", *_TIMES)
SCORES = (
    *("experiment", "prior", "test", "algorithm", "parameters", "n", "mean", "std", "ci95"),
    *(*_TIMES, "device", "seed", "status"),
)
BASELINE = "Random"  # reference agent: the score of 0
P99 = "latency_p99_seconds"  # optional, as are these
PROCESSOR = ("offline_processor_seconds", "online_processor_seconds")
TESTS = ("tied", "difference", "standard_error", "z", "p_value")
MARKS = ("oracle", "best_of_algorithm", "best", *TESTS)
# parameters in words; algorithm and these; number of the row; why a unit failed
NAMES = ("setting", "label", "place", "reason")


# experiment, algorithm and parameters to the metrics of its lifetimes, [N] float64 by name
Metrics = Callable[[str, str, str], Mapping[str, npt.NDArray[np.float64]]]


def no_metrics(experiment: str, algorithm: str, parameters: str) -> dict[str, Any]:
    """Return the metrics of an agent of which none are kept."""
    del experiment, algorithm, parameters
    return {}


@dataclasses.dataclass(frozen=True)
class Section:
    """One experiment of a report."""

    name: str
    id: str  # fit for an HTML id
    prior: str
    test: str
    # one row per unit: SCORES, MARKS and NAMES; by decreasing mean, units that are not done last
    table: pd.DataFrame
    returns: pd.DataFrame  # score table of the experiment
    decimals: int  # digits after the point of its scores
    note: str  # why no test was made; "" when it was
    rules: Rules = dataclasses.field(default_factory=Rules)
    bracket: Bracket | None = None  # of the Bayes-optimal value, where one is kept
    metrics: Metrics = no_metrics

    @property
    def terms(self) -> Terms:
        """Names of things in this experiment."""
        return self.rules.terms

    @property
    def accurate(self) -> bool:
        """True if agents were given the distribution that they were tested on."""
        return self.prior == self.test

    @property
    def shows_prior(self) -> bool:
        """True if the prior is worth a word: it is one of finite MDPs, or of other environments
        than agents were tested on.
        """
        return self.terms is MDPS or not self.accurate

    @property
    def done(self) -> pd.DataFrame:
        """Rows of the table that have a score."""
        return self.table[self.table["status"] == "done"]

    @property
    def competitors(self) -> pd.DataFrame:
        """Rows with a score that are no oracles."""
        return self.done[~self.done["oracle"]]

    @property
    def champions(self) -> pd.DataFrame:
        """The best agent of each algorithm, by decreasing mean."""
        return self.done[self.done["best_of_algorithm"]]

    @property
    def oracles(self) -> pd.DataFrame:
        """The best agent of each oracle, by decreasing mean."""
        return self.done[self.done["oracle"]].drop_duplicates("algorithm")

    @cached_property
    def _samples(self) -> dict[tuple[str, str], npt.NDArray[np.float64]]:
        groups = self.returns.groupby(["algorithm", "parameters"], sort=False)["score"]
        return {key: scores.to_numpy(np.float64) for key, scores in groups}

    def sample(self, row: pd.Series) -> npt.NDArray[np.float64]:
        """Return returns of the agent in `row`, [N] float64; empty when there are none."""
        return self._samples.get((row["algorithm"], row["parameters"]), np.empty(0))

    def metrics_of(self, row: pd.Series) -> Mapping[str, npt.NDArray[np.float64]]:
        """Return what is recorded beside the scores of the agent in `row`, [N] by name."""
        return self.metrics(self.name, row["algorithm"], row["parameters"])

    def returns_of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the score table of the agents in `rows`."""
        return rows_of(self.returns, rows)

    @cached_property
    def device(self) -> str:
        """Device of the times of most agents, with how programs were compiled.

        Only these times are compared.
        """
        known = self.done["device"].dropna()
        return "" if known.empty else str(known.value_counts(sort=True).index[0])

    @property
    def comparable(self) -> pd.DataFrame:
        """Competitors whose times were measured on `device`."""
        rows = self.competitors
        return rows[rows["device"].fillna("") == self.device]

    @cached_property
    def timed(self) -> pd.DataFrame:
        """Competitors whose offline and online times are known and may be compared."""
        rows = self.comparable
        return rows[np.isfinite(rows["offline_seconds"]) & np.isfinite(rows["online_seconds"])]

    @cached_property
    def by_latency(self) -> bool:
        """True if the time of a decision is latency: it was measured of all agents in `timed`."""
        return len(self.timed) > 0 and bool(np.isfinite(self.timed["latency_seconds"]).all())

    @property
    def decision_time(self) -> str:
        """The name of the time of a decision."""
        return "latency" if self.by_latency else "online time per decision"

    def busy_text(self) -> str:
        """Say how busy the machine was when times were measured; "" where it was not."""
        trained = self.timed["offline_seconds"] > DISPATCH  # what is shorter counts as 0
        offline = np.where(trained, busyness(self.timed, "offline"), 1.0)
        busy = np.maximum(busyness(self.timed), offline)
        if not (busy > BUSY).any():
            return ""
        counted = "latency, and offline their" if self.by_latency else "their"
        return (
            f"The machine was busy: {(busy > BUSY).sum()} of {count(len(busy), 'agent')} took up "
            f"to {busy.max():.1f} times as long as the processor worked for them. Time bounds "
            f"count {counted} processor times; all other times are wall times."
        )

    def left_out(
        self, shown: pd.DataFrame, unknown: str = "Left out, having no known times"
    ) -> list[str]:
        """Return a sentence for each reason why competitors have no place on an axis of times.

        Args:
          shown: rows that have one.
          unknown: what is said of those whose time is not known.
        """
        rows = self.competitors
        rest = rows[~rows.index.isin(shown.index)]
        here = rest.index.isin(self.comparable.index)
        other = f"Left out, since times are compared that were measured on {self.device} only"
        return [
            f"{text}: {listing(list(some['label']))}."
            for text, some in ((unknown, rest[here]), (other, rest[~here]))
            if len(some)
        ]

    @cached_property
    def contest(self) -> Contest:
        """Winners within bounds on the times of `timed`; those of a decision are latencies where
        these are known.

        Raises:
          JbrlError: agents cannot be compared.
        """
        return Contest(self._resolved, self.returns)

    @cached_property
    def _resolved(self) -> pd.DataFrame:
        rows = self.timed
        if self.by_latency:
            rows = rows.assign(online_seconds=rows["latency_seconds"])
            rows = rows.drop(columns=[SPREADS[1], PROCESSOR[1]], errors="ignore")
        return resolved(rows)

    @cached_property
    def choice(self) -> Contest:
        """As `contest`, for advice: without the reference agent, in steps of time that matter to
        a caller, who waits for any decision (`time_bounds.CALL`).

        Raises:
          JbrlError: agents cannot be compared.
        """
        rows = self._resolved
        rows = rows[rows["algorithm"] != BASELINE]
        offline, online = (rows[f"{name}_seconds"].to_numpy() for name in ("offline", "online"))
        times = {
            "offline_seconds": stepped(offline),
            "online_seconds": stepped(online, 0.0 if self.by_latency else CALL),
        }
        return Contest(rows.assign(**times), self.returns)

    def score(self, row: pd.Series) -> str:
        """Return mean and interval of the agent in `row`, in words."""
        return score_text(row["mean"], row["ci95"], self.decimals)


def sections(
    scores: pd.DataFrame,
    returns: pd.DataFrame,
    oracles: Collection[str] = (),
    rules: Mapping[str, Rules] | None = None,
    brackets: Mapping[str, Bracket] | None = None,
    metrics: Metrics = no_metrics,
    named: Mapping[str, Sequence[str]] | None = None,
) -> list[Section]:
    """Return the experiments of a study, in order of first appearance.

    Args:
      scores: one row per unit, columns `SCORES`; `status` is "done", "missing" or "failed", and a
        column `reason` may say why.
      returns: one row per environment, columns `jbrl.base.schema.RETURNS`.
      oracles: algorithms that are reference lines, not competitors.
      rules: of experiments, by name; those of the others are `Rules()`.
      brackets: of the Bayes-optimal values of experiments, by name, where they are known.
      metrics: what is recorded beside the scores of an agent.
      named: parameters that the study sets, of algorithms: what is shown of their only agent.

    Raises:
      JbrlError: a column is missing, there is no row, a row occurs twice, a finished unit has no
        finite mean, a score is not finite.
    """
    scores = _check(scores)
    returns = check_returns(returns, RETURNS)
    parts: list[Section] = []
    for name, rows in _named(scores, named or {}).groupby("experiment", sort=False):
        experiment, own = str(name), returns[returns["experiment"] == name]
        played = (rules or {}).get(experiment, Rules())
        table, note = _marked(rows, own, oracles)
        parts.append(
            Section(
                name=experiment,
                id=slug(experiment, [s.id for s in parts]),
                prior=str(rows["prior"].iloc[0]),
                test=str(rows["test"].iloc[0]),
                table=table,
                returns=own,
                decimals=decimals_for(table["ci95"]),
                note=played.terms.adapt(note),
                rules=played,
                bracket=(brackets or {}).get(experiment),
                metrics=metrics,
            )
        )
    return parts


def lengths_differ(parts: Sequence[Section]) -> bool:
    """Return whether experiments differ in the length of lifetimes, so that each states its own."""
    return len({(section.rules.criterion, section.rules.lifetime) for section in parts}) > 1


def _check(scores: pd.DataFrame) -> pd.DataFrame:
    check_columns(scores, SCORES, "scores")
    if scores.empty:
        raise JbrlError("scores: no rows: expected one for each unit of the study")
    twice = scores[scores.duplicated(list(AGENT))]
    if len(twice):
        row = twice.iloc[0]
        raise JbrlError(
            f"scores: two rows for {row['algorithm']} {row['parameters']} in experiment "
            f"{row['experiment']}: expected one for each agent and experiment (report one seed at "
            "a time)"
        )
    scores = scores.assign(
        **{c: pd.to_numeric(scores[c], errors="coerce").astype(np.float64) for c in _NUMBERS}
    )
    lost = scores[(scores["status"] == "done") & ~np.isfinite(scores["mean"])]
    if len(lost):
        row = lost.iloc[0]
        raise JbrlError(
            f"scores: {row['algorithm']} {row['parameters']} in experiment {row['experiment']} is "
            f"done but its mean is {row['mean']}: expected a finite number"
        )
    n = pd.to_numeric(scores["n"], errors="coerce").fillna(0).astype(np.int64)
    return scores.assign(n=n)


def _named(scores: pd.DataFrame, named: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return the table with `NAMES`: of the parameters, only those in which the agents of an
    algorithm differ; of an only agent, those that are `named`.
    """
    settings = settings_of(scores, named)
    labels = list(map(named_agent, scores["algorithm"].astype(str), settings))
    reasons = scores["reason"].fillna("").astype(str) if "reason" in scores.columns else ""
    places = np.arange(len(scores))
    return scores.assign(setting=settings, label=labels, place=places, reason=reasons)


def _marked(
    rows: pd.DataFrame, returns: pd.DataFrame, oracles: Collection[str]
) -> tuple[pd.DataFrame, str]:
    """Return the rows of one experiment in order, with `MARKS`, and the reason why there are no
    tests, if so.
    """
    rows = rows.assign(oracle=rows["algorithm"].isin(oracles))
    marks, note = _tests(rows[(rows["status"] == "done") & ~rows["oracle"]], returns)
    table = rows.merge(marks, on=list(AGENT), how="left")
    flags = {c: table[c].eq(True) for c in ("best_of_algorithm", "best", "tied")}
    table = table.assign(**flags, undone=table["status"] != "done")
    table = table.astype(dict.fromkeys(TESTS[1:], np.float64)).sort_values(
        ["undone", "mean"], ascending=[True, False], kind="stable", ignore_index=True
    )
    known = [column for column in (*SPREADS, *PROCESSOR, P99) if column in table.columns]
    return table[[*SCORES, *MARKS, *NAMES, *known]], note


def _tests(competing: pd.DataFrame, returns: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return columns AGENT and MARKS of the agents that compete, and a note.

    Where no test can be made, the best are those of highest mean.
    """
    columns = [*AGENT, *MARKS[1:]]
    if competing.empty:
        return pd.DataFrame(columns=columns), ""
    played = rows_of(returns, competing)
    silent = competing[
        ~pd.MultiIndex.from_frame(competing[list(AGENT)]).isin(
            pd.MultiIndex.from_frame(played[list(AGENT)])
        )
    ]
    try:
        if len(silent):
            raise JbrlError(f"no returns of {silent.iloc[0]['label']}")
        return best_and_tied(played)[columns], ""
    except JbrlError as error:
        untested = dict.fromkeys(TESTS[1:], np.nan)
        ranked = rank(competing).assign(tied=False, **untested)
        return ranked[columns], f"No test was made: {error}."
