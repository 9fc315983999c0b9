"""The tables of a report: one section per experiment, an overview of all, and both as CSV
and Markdown.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.base.schema import AGENT, RETURNS
from jbrl.report.terms import MDPS, Rules, Terms
from jbrl.report.text import (
    ABSENT,
    decimals_for,
    listing,
    parameters_text,
    score_text,
    seconds_text,
    slug,
    varied,
)
from jbrl.stats.brackets import Bracket
from jbrl.stats.paired_test import best_and_tied, rank
from jbrl.stats.table import check_columns, check_returns, rows_of
from jbrl.stats.time_bounds import SPREADS, Contest, resolved

SCORES = (
    *("experiment", "prior", "test", "algorithm", "parameters", "n", "mean", "std", "ci95"),
    *(
        "offline_seconds",
        "online_seconds",
        "latency_seconds",
        "compile_seconds",
        "device",
        "seed",
        "status",
    ),
)
TESTS = ("tied", "difference", "standard_error", "z", "p_value")
MARKS = ("oracle", "best_of_algorithm", "best", *TESTS)
# parameters in words; algorithm and these; number of the row; why a unit failed
NAMES = ("setting", "label", "place", "reason")
_NUMBERS = (
    "mean",
    "std",
    "ci95",
    "offline_seconds",
    "online_seconds",
    "latency_seconds",
    "compile_seconds",
)


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
    def _samples(self) -> dict[tuple, np.ndarray]:
        groups = self.returns.groupby(["algorithm", "parameters"], sort=False)["score"]
        return {key: scores.to_numpy(np.float64) for key, scores in groups}

    def sample(self, row: pd.Series) -> np.ndarray:
        """Return returns of the agent in `row`, [N] float64; empty when there are none."""
        return self._samples.get((row["algorithm"], row["parameters"]), np.empty(0))

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
        """Winners within bounds on the times of `timed`.

        Raises:
          JbrlError: agents cannot be compared.
        """
        return Contest(resolved(self.timed), self.returns)

    def score(self, row: pd.Series) -> str:
        """Return mean and interval of the agent in `row`, in words."""
        return score_text(row["mean"], row["ci95"], self.decimals)


def sections(
    scores: pd.DataFrame,
    returns: pd.DataFrame,
    oracles: Collection[str] = (),
    rules: Mapping[str, Rules] | None = None,
    brackets: Mapping[str, Bracket] | None = None,
) -> list[Section]:
    """Return the experiments of a study, in order of first appearance.

    Args:
      scores: one row per unit, columns `SCORES`; `status` is "done", "missing" or "failed", and a
        column `reason` may say why.
      returns: one row per environment, columns `jbrl.stats.table.RETURNS`.
      oracles: algorithms that are reference lines, not competitors.
      rules: of experiments, by name; those of the others are `Rules()`.
      brackets: of the Bayes-optimal values of experiments, by name, where they are known.

    Raises:
      JbrlError: a column is missing, there is no row, a row occurs twice, a finished unit has no
        finite mean, a score is not finite.
    """
    scores = _check(scores)
    returns = check_returns(returns, RETURNS)
    found: list[Section] = []
    for name, rows in _named(scores).groupby("experiment", sort=False):
        text, mine = str(name), returns[returns["experiment"] == name]
        played = (rules or {}).get(text, Rules())
        table, note = _marked(rows, mine, oracles)
        id, decimals = slug(text, [s.id for s in found]), decimals_for(table["ci95"])
        prior, test = str(rows["prior"].iloc[0]), str(rows["test"].iloc[0])
        found.append(
            Section(
                text,
                id,
                prior,
                test,
                table,
                mine,
                decimals,
                played.terms.adapt(note),
                played,
                (brackets or {}).get(text),
            )
        )
    return found


def overview(parts: list[Section]) -> pd.DataFrame:
    """Return the best agent of each algorithm in each experiment: rows of the sections' tables,
    oracles included and marked.
    """
    return pd.concat([pd.concat([s.champions, s.oracles]) for s in parts], ignore_index=True)


def write_tables(parts: list[Section], out: Path) -> list[Path]:
    """Write `summary` and `scores` as CSV (full precision) and Markdown (rounded) to the folder
    `out`; the paths written.
    """
    columns = [*SCORES, *MARKS]
    everything = pd.concat([s.table for s in parts], ignore_index=True)
    contents = {
        "summary.csv": overview(parts)[columns].to_csv(index=False),
        "summary.md": overview_markdown(parts),
        "scores.csv": everything[columns].to_csv(index=False),
        "scores.md": "\n".join(scores_markdown(s) for s in parts),
    }
    for name, content in contents.items():
        (out / name).write_text(content, encoding="utf-8")
    return [out / name for name in contents]


def overview_markdown(parts: list[Section]) -> str:
    """Tabulate algorithms in rows, experiments in columns: the best score of each, the best of all
    bold, tied ones with ≈.
    """
    cells = {
        (s.name, row["algorithm"]): _overview_cell(s, row)
        for s in parts
        for _, row in overview([s]).iterrows()
    }
    rows = [
        [_cell(name), *(cells.get((s.name, name), ABSENT) for s in parts)]
        for name in algorithms(parts)
    ]
    return _markdown(["Algorithm", *(_cell(s.name) for s in parts)], rows)


def scores_markdown(section: Section) -> str:
    """Tabulate all agents of an experiment; the best of its algorithm bold, those tied with the
    best of all with ≈.
    """
    header = [
        "Agent",
        "Score",
        "N",
        "Offline",
        "Online per decision",
        "Latency",
        "Compilation",
        "Status",
    ]
    times = ("offline_seconds", "online_seconds", "latency_seconds", "compile_seconds")
    rows = [
        [
            _emphasised(row["label"], row, bold="best_of_algorithm"),
            *(section.score(row), str(row["n"])),
            *(seconds_text(row[t]) for t in times),
            _cell(row["status"]),
        ]
        for _, row in section.table.iterrows()
    ]
    drawn = (
        f"Prior {section.prior}, test {section.test}"
        if section.shows_prior
        else f"{section.test}, {section.rules.lifetime}"
    )
    title = f"## {_cell(section.name)}\n\n{_cell(drawn)}.\n\n"
    return title + (f"{_cell(section.note)}\n\n" if section.note else "") + _markdown(header, rows)


def algorithms(parts: list[Section]) -> list[str]:
    """Return all algorithms: those that compete by their average place in the experiments, then the
    oracles.
    """
    places: dict[str, list[int]] = {}
    for section in parts:
        for place, name in enumerate(section.champions["algorithm"]):
            places.setdefault(name, []).append(place)
    oracles = dict.fromkeys(name for s in parts for name in s.oracles["algorithm"])
    return [*sorted(places, key=lambda name: float(np.mean(places[name]))), *oracles]


def lengths_differ(parts: Sequence[Section]) -> bool:
    """Return whether experiments differ in the length of lifetimes, so that each states its own."""
    return len({section.rules for section in parts}) > 1


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


def _named(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the table with `NAMES`: of the parameters, only those in which the agents of an
    algorithm differ.
    """
    shown = {
        name: varied(rows["parameters"]) for name, rows in scores.groupby("algorithm", sort=False)
    }
    settings = [
        parameters_text(p, shown[a])
        for a, p in zip(scores["algorithm"], scores["parameters"], strict=True)
    ]
    labels = [
        f"{a} ({s})" if s else str(a) for a, s in zip(scores["algorithm"], settings, strict=True)
    ]
    reasons = scores["reason"].fillna("").astype(str) if "reason" in scores.columns else ""
    return scores.assign(
        setting=settings, label=labels, place=np.arange(len(scores)), reason=reasons
    )


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
    table = table.assign(**flags, undone=table["status"] != "done").astype(
        dict.fromkeys(TESTS[1:], np.float64)
    )
    table = table.sort_values(
        ["undone", "mean"], ascending=[True, False], kind="stable", ignore_index=True
    )
    known = [column for column in SPREADS if column in table.columns]
    return table[[*SCORES, *MARKS, *NAMES, *known]], note


def _tests(competing: pd.DataFrame, returns: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return columns AGENT and MARKS of the agents that compete, and a note.

    Where no test can be made, the best are those of highest mean.
    """
    columns = [*AGENT, *MARKS[1:]]
    if competing.empty:
        return pd.DataFrame(columns=columns), ""
    mine = rows_of(returns, competing)
    played = mine[list(AGENT)].drop_duplicates()
    silent = competing.merge(played, on=list(AGENT), how="left", indicator=True).query(
        "_merge == 'left_only'"
    )
    try:
        if len(silent):
            raise JbrlError(f"no returns of {silent.iloc[0]['label']}")
        return best_and_tied(mine)[columns], ""
    except JbrlError as error:
        ranked = rank(competing)
        untested = dict.fromkeys(TESTS[1:], np.nan)
        return ranked.assign(tied=False, **untested)[columns], f"No test was made: {error}."


def _overview_cell(section: Section, row: pd.Series) -> str:
    return _emphasised(section.score(row), row) + (
        f" ({_cell(row['setting'])})" if row["setting"] else ""
    )


def _emphasised(text: str, row: pd.Series, bold: str = "best") -> str:
    text = _cell(text)
    return ("≈ " if row["tied"] else "") + (f"**{text}**" if row[bold] else text)


def _cell(text: str) -> str:
    """Return text that cannot break a Markdown table."""
    return (
        str(text)
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("*", "\\*")
        .replace("<", "&lt;")
        .replace("\n", " ")
    )


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
