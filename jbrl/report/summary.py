"""The first chapter of the report of a study: which algorithms are best, which to take when
computation time is bounded, and the best agent of each algorithm in each experiment.
"""

import math
from collections.abc import Sequence

import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.report.content import Block, Chapter, Heading, Items, Paragraph, Sentence, Span, sentence
from jbrl.report.sections import BASELINE, Section
from jbrl.report.tables import overview
from jbrl.report.text import OTHERS, Terms, count, listing, seconds_text
from jbrl.stats.time_bounds import Contest, winners_by_bound

Chain = list[tuple[float, str]]  # online bounds from which on an algorithm is taken, seconds
MOST_SENTENCES = 3
MOST_EXPERIMENTS = 12  # that are named in the answer of the summary
CLOSING = (
    "Within its bounds an algorithm named here is the best, or tied with the best. Times within a "
    "factor of two are one step."
)
SUMMARY = (
    "{Mean} of the best agent of each algorithm, ± 95% interval. Algorithms stand in order of "
    "their average place."
)
WHICH = " Below the name of an experiment stands what its score is."  # where not all have the same


def summary(parts: Sequence[Section], terms: Terms) -> Chapter:
    """Return the answer and the table with algorithms in rows, experiments in columns."""
    tied = terms.say(
        " not significantly worse (paired Z-test on the same {environments}, one-sided, 95%)"
    )
    key = (Span("best", "best"), " highest mean of the experiment ", Span("≈ tied", "tied"), tied)
    blocks: list[Block] = [
        *_answer(parts),
        Paragraph((terms.say(SUMMARY) + WHICH * (terms is OTHERS),)),
        overview(parts),
        Paragraph(key, "key"),
    ]
    return Chapter("Summary", "Summary", tuple(blocks))


def _answer(parts: Sequence[Section]) -> list[Block]:
    """Return which algorithms are best, how often, and which to take at which time."""
    often = standing(parts)
    if not often:
        return []
    answer = sentence("**Best, or tied with the best:** {often}.", often=often)
    blocks: list[Block] = [Paragraph(answer, "verdict")]
    lines = tuple(
        (Span(section.name, target=f"#{section.id}"), ". ", *words, *_others(section, words))
        for section in parts
        if (words := advice(section))
    )
    if lines and len(lines) <= MOST_EXPERIMENTS:  # else they stand in the chapters
        title = "Which algorithm to take at which computation time"
        blocks += [Heading(title), Items(lines), Paragraph((CLOSING,))]
    return blocks


def standing(parts: Sequence[Section]) -> str:
    """Return how often each algorithm is the best of an experiment or tied with it, most often
    first: `BEB in 2 of 3 experiments and PSRL in 1`; empty without two algorithms to compare.
    """
    tested = [s for s in parts if not s.note and len(s.champions) > 1]
    if not tested:
        return ""
    best = pd.concat([s.champions[s.champions["best"] | s.champions["tied"]] for s in tested])
    times = best["algorithm"].value_counts(sort=True)
    first, *others = [f"{name} in {number}" for name, number in times.items()]
    return listing([f"{first} of {count(len(tested), 'experiment')}", *others])


def advice(section: Section) -> Sentence:
    """Return which algorithm to take for which time per decision and before the first decision.

    Each named algorithm is the best or tied with the best within its bounds (`CLOSING`), of those
    that are no reference. An algorithm is kept as long as this is so: a tie is no reason for
    another one. Bounds on offline time are those from which on another algorithm can be used; times
    within a factor of two are one step. Empty where agents cannot be compared.
    """
    if section.timed.query("algorithm != @BASELINE")["algorithm"].nunique() < 2:
        return ()
    try:
        chains = _chains(section.choice)
    except JbrlError:  # the chapter says why
        return ()
    words: list[Span | str] = []
    for number, (offline, chain) in enumerate(
        chains[: MOST_SENTENCES - 1] + chains[MOST_SENTENCES - 1 :][-1:]
    ):
        words += [_condition(number, offline, several=len(chains) > 1), *_choice(chain)]
    end = [" The map shows what lies between."] * (len(chains) > MOST_SENTENCES)
    idle = [f" {BASELINE} is as good: none is worth its computation."]
    return (*words, *end, *idle * (BASELINE in _best(section)))


def _best(section: Section) -> list[str]:
    """Return the best algorithm and those tied with it, whatever time they take."""
    rows = section.champions
    return list(rows.loc[rows["best"] | rows["tied"], "algorithm"])


def _others(section: Section, words: Sentence) -> list[str]:
    """Name the algorithms that are as good as those that are named in the advice."""
    named = {word.algorithm for word in words if isinstance(word, Span)}
    rest = [name for name in _best(section) if name not in named and name != BASELINE]
    return [f" As good with any time: {listing(rest)}."] * bool(rest)


def _chains(contest: Contest) -> list[tuple[float, Chain]]:
    """Return the chain for each bound on offline time from which on another one has to be taken."""
    offline = pd.Series(contest.times("offline"))
    least = offline.groupby(contest.scores["algorithm"].to_numpy()).min()
    chains: list[tuple[float, Chain]] = []
    for bound in sorted(set(least)):
        steps = winners_by_bound(contest, bounds={"offline": bound})
        if not (chains and _holds(chains[-1][1], steps)):
            chains.append((bound, _chain(steps)))
    return chains


def _chain(steps: pd.DataFrame) -> Chain:
    """Few algorithms that are among the winners from the first bound on: at each change the one
    that stays longest, the best first.
    """
    bounds, winners = list(steps["bound"]), list(steps["algorithms"])
    chain: Chain = []
    k = 0
    while k < len(winners):
        ends = {
            name: next((j for j in range(k, len(winners)) if name not in winners[j]), len(winners))
            for name in winners[k]
        }
        name = max(ends, key=lambda name: ends[name])  # among equals the first, which is the best
        chain.append((bounds[k], name))
        k = ends[name]
    return chain


def _holds(chain: Chain, steps: pd.DataFrame) -> bool:
    """Return whether a chain is still one of winners."""
    bounds, winners = list(steps["bound"]), list(steps["algorithms"])
    if chain[0][0] != bounds[0]:
        return False
    for bound in {*bounds, *(begin for begin, _ in chain)}:
        taken = [name for begin, name in chain if begin <= bound][-1]
        allowed = [names for begin, names in zip(bounds, winners, strict=True) if begin <= bound]
        if taken not in allowed[-1]:
            return False
    return True


def _condition(number: int, offline: float, *, several: bool) -> str:
    space = " " if number else ""
    if not several:
        return f"{space}Take "
    if number:
        return f"{space}With {seconds_text(offline)} or more of it: "
    if math.isclose(offline, 0):
        return "Without computation before the first decision: take "
    return f"With at least {seconds_text(offline)} of computation before the first decision: take "


def _choice(chain: Chain) -> list[Span | str]:
    """`BEB if a decision may take 40 ns, PSRL from 1 µs on.`"""
    (bound, name), *others = chain
    words: list[Span | str] = [Span(name, "strong", name)]
    if not others:
        return [*words, f" if a decision may take {seconds_text(bound)} or more."]
    words.append(f" if a decision may take {seconds_text(bound)}")
    for place, (later, other) in enumerate(others):
        words.append(" and " if place == len(others) - 1 else ", ")
        words += [Span(other, "strong", other), f" from {seconds_text(later)} on"]
    return [*words, "."]
