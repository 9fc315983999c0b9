"""The report of a study, made from tables.

The first chapter says which algorithms are best, which to take when computation time is bounded,
and shows the best agent of each algorithm in each experiment. A chapter for each experiment, and
the settings, follow.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

import jbrl.report.bounds  # noqa: F401 (lists its figures)
from jbrl.base.errors import JbrlError, nearest
from jbrl.base.files import writing
from jbrl.base.schema import AGENT
from jbrl.report import content as doc
from jbrl.report import strategies, wrong_priors
from jbrl.report.axes import Drawing, Style, styles
from jbrl.report.figures import FIGURES, Part, metric_blocks
from jbrl.report.files import RENDERERS, Form, write_document
from jbrl.report.sections import BASELINE, Metrics, Section, lengths_differ, no_metrics, sections
from jbrl.report.tables import FILES, all_agents, best_agents, overview, winners, write_tables
from jbrl.report.text import (
    EPISODES,
    MDPS,
    OTHERS,
    Terms,
    count,
    listing,
    rules_of,
    seconds_text,
    shared,
)
from jbrl.stats.brackets import of_experiments
from jbrl.stats.table import named_of, oracles_of, parameters_text
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


def summary(parts: Sequence[Section], terms: Terms) -> doc.Chapter:
    """Return the answer and the table with algorithms in rows, experiments in columns."""
    tied = terms.say(
        " not significantly worse (paired Z-test on the same {environments}, one-sided, 95%)"
    )
    key = (
        doc.Span("best", "best"),
        " highest mean of the experiment ",
        doc.Span("≈ tied", "tied"),
        tied,
    )
    blocks: list[doc.Block] = [
        *_answer(parts),
        doc.Paragraph((terms.say(SUMMARY) + WHICH * (terms is OTHERS),)),
        overview(parts),
        doc.Paragraph(key, "key"),
    ]
    return doc.Chapter("Summary", "Summary", tuple(blocks))


def _answer(parts: Sequence[Section]) -> list[doc.Block]:
    """Return which algorithms are best, how often, and which to take at which time."""
    often = standing(parts)
    if not often:
        return []
    answer = doc.sentence("**Best, or tied with the best:** {often}.", often=often)
    blocks: list[doc.Block] = [doc.Paragraph(answer, "verdict")]
    lines = tuple(
        (doc.Span(section.name, target=f"#{section.id}"), ". ", *words, *_others(section, words))
        for section in parts
        if (words := advice(section))
    )
    if lines and len(lines) <= MOST_EXPERIMENTS:  # else they stand in the chapters
        title = "Which algorithm to take at which computation time"
        blocks += [doc.Heading(title), doc.Items(lines), doc.Paragraph((CLOSING,))]
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


def advice(section: Section) -> doc.Sentence:
    """Return which algorithm to take for which time per decision and before the first decision.

    Each named algorithm is the best or tied with the best within its bounds (`CLOSING`), of those
    that are no reference. An algorithm is kept as long as this is so: a tie is no reason for
    another one. Bounds on offline time are those from which on another agent can be used; times
    within a factor of two are one step. Empty where agents cannot be compared.
    """
    if section.timed.query("algorithm != @BASELINE")["algorithm"].nunique() < 2:
        return ()
    try:
        chains = _chains(section.choice)
    except JbrlError:  # the chapter says why
        return ()
    words: list[doc.Span | str] = []
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


def _others(section: Section, words: doc.Sentence) -> list[str]:
    """Name the algorithms that are as good as those that are named in the advice."""
    named = {word.algorithm for word in words if isinstance(word, doc.Span)}
    rest = [name for name in _best(section) if name not in named and name != BASELINE]
    return [f" As good with any time: {listing(rest)}."] * bool(rest)


def _chains(contest: Contest) -> list[tuple[float, Chain]]:
    """Return the chain for each bound on offline time from which on another one has to be taken."""
    chains: list[tuple[float, Chain]] = []
    for bound in sorted(set(contest.times("offline"))):
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


def _choice(chain: Chain) -> list[doc.Span | str]:
    """`BEB if a decision may take 40 ns, PSRL from 1 µs on.`"""
    (bound, name), *others = chain
    words: list[doc.Span | str] = [doc.Span(name, "strong", name)]
    if not others:
        return [*words, f" if a decision may take {seconds_text(bound)} or more."]
    words.append(f" if a decision may take {seconds_text(bound)}")
    for place, (later, other) in enumerate(others):
        words.append(" and " if place == len(others) - 1 else ", ")
        words += [doc.Span(other, "strong", other), f" from {seconds_text(later)} on"]
    return [*words, "."]


PARTS: dict[Part, str] = {  # of an experiment; those with a title are details
    "answer": "",
    "times": "Scores and computation times",
    "scores": "Differences, distributions and ranks",
}
ALONE = (
    "it is the best agent of the only algorithm with a score, so that there is nothing to compare "
    "it with"
)
MOST_UNDONE = 12  # units without a result that are listed in the open
SETTINGS = ("study", "machine", "versions")  # tables of the manifest that are shown
# names that underscores would spoil
SETTING_NAMES = {"memory_gib": "memory, GiB", "horizon_epsilon": "horizon, precision"}


def document(
    parts: Sequence[Section],
    styles: Mapping[str, Style],
    manifest: Mapping[str, Any],
    pages: Mapping[str, str] | None = None,
    files: Sequence[str] = (),
    units: pd.DataFrame | None = None,
) -> doc.Document:
    """Return the report of a study.

    Args:
      parts: its experiments (`sections.sections`).
      styles: of all algorithms.
      manifest: `study`, `machine` and `versions` are tables to show; all may be absent.
      pages: beside this one, file by title.
      files: tables beside it.
      units: as for `write_report`.
    """
    everything = pd.concat([s.table for s in parts], ignore_index=True)
    terms = shared([s.terms for s in parts])
    labels = everything[[*AGENT, "label"]]
    units = everything if units is None else units.merge(labels, on=list(AGENT))
    undone = units[units["status"] != "done"].fillna({"reason": ""})
    experiments = [experiment(parts, number, styles) for number in range(len(parts))]
    chapters = [
        *(summary(parts, terms), *wrong_priors.chapters(parts, styles), *experiments),
        _settings(everything, manifest, terms),
    ]
    notices = []
    if len(undone):
        chapters.append(_undone_units(undone, several=units["seed"].nunique() > 1))
        text = (
            "**{undone} of {units} units** have no result; they are [listed below](#Undone). "
            "Everything else is complete."
        )
        words = doc.sentence(text, undone=len(undone), units=len(units))
        notices = [doc.Paragraph(words, "notice")]
    chapters.append(_reading(parts, terms, files))
    bayesian = "Bayesian reinforcement learning benchmark"
    return doc.Document(
        title=str((manifest.get("study") or {}).get("name", "study")),
        kind=bayesian if terms is MDPS else "Reinforcement learning benchmark",
        facts=tuple(_facts(parts, everything, manifest, terms)),
        notices=tuple(notices),
        chapters=tuple(chapters),
        styles=styles,
        version=str((manifest.get("versions") or {}).get("jbrl", "")),
        pages=pages or {},
    )


def _facts(
    parts: Sequence[Section], everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms
) -> Iterator[str]:
    """Describe the study in a few words per fact."""
    study = manifest.get("study") or {}
    agents = everything.drop_duplicates(["algorithm", "parameters"])
    yield count(len(parts), "experiment")
    yield f"{count(len(agents), 'agent')} of {count(agents['algorithm'].nunique(), 'algorithm')}"
    sizes = sorted(set(everything.loc[everything["status"] == "done", "n"]))
    if len(sizes) == 1:
        yield f"{count(sizes[0], terms.environment)} each"
    elif sizes:
        yield f"{sizes[0]} to {sizes[-1]} {terms.environments}"
    yield from _length(parts, study.get("horizon"), terms)
    if "discount" in study and terms is MDPS:
        yield f"discount {study['discount']}"
    seeds = study.get("seed", [])
    seeds = seeds if isinstance(seeds, list) else [seeds]
    if seeds:
        yield f"seed{'s' * (len(seeds) > 1)} {listing([str(s) for s in seeds])}"


def _length(parts: Sequence[Section], horizon: Any, terms: Terms) -> Iterator[str]:
    """Describe the length of lifetimes, if it is the same everywhere.

    `horizon`: of the study, for results that do not say it of experiments.
    """
    lifetime = "" if lengths_differ(parts) else parts[0].rules.lifetime
    if terms is MDPS and isinstance(horizon, str):
        yield f"horizon {horizon}"
    elif terms is MDPS and not lengths_differ(parts) and (lifetime or horizon):
        yield lifetime.replace("step", "decision") or count(horizon, "decision")
    elif lifetime:
        yield f"lifetimes of {lifetime}"


def experiment(parts: Sequence[Section], number: int, styles: Mapping[str, Style]) -> doc.Chapter:
    """Describe one of the experiments: its rules, its best agents, its figures and tables."""
    section = parts[number]
    blocks: list[doc.Block] = [_setup(section, length=lengths_differ(parts)), *_verdict(section)]
    if section.note:
        blocks.append(doc.Paragraph(doc.marked(section.note), "notice"))
    words = advice(section)
    blocks += [doc.Paragraph((*words, f" {CLOSING}"), "verdict")] if words else []
    if busy := section.busy_text():
        blocks.append(doc.Paragraph((busy,), "notice"))
    own, missing = metric_blocks(section, styles)
    shown = [block for block in own if isinstance(block, doc.Plot)]
    absent: list[doc.Sentence] = [
        (doc.Span(title, "strong"), f" is not drawn: {reason}.")
        for title, reason in missing.items()
    ]
    for part, title in PARTS.items():
        plots: list[doc.Block] = []
        for kind in (kind for kind in FIGURES if kind.part == part):
            drawing = kind.draw(section, styles)
            if isinstance(drawing, Drawing):
                id, caption = f"{section.id}--{kind.id}", section.terms.say(kind.caption)
                plots.append(doc.Plot(id, kind.title, caption, drawing))
            elif drawing:
                reason = doc.marked(f" is not drawn: {section.terms.adapt(drawing)}.")
                absent.append((doc.Span(kind.title, "strong"), *reason))
        blocks += doc.folded(title, plots) if title else [*plots, *shown]
    blocks += doc.folded("Winners from left to right", winners(section))
    best = [best_agents(section)] if len(section.done) else []
    counted = [block for block in own if not isinstance(block, doc.Plot)]
    blocks += doc.folded("Tables of the agents", [*best, all_agents(section), *counted])
    blocks += doc.folded("Figures that are not drawn", [doc.Items(tuple(absent))] if absent else [])
    return doc.Chapter(section.id, section.name, tuple(blocks), "experiment")


def _setup(section: Section, *, length: bool) -> doc.Paragraph:
    """Describe the agents' prior, the test environments and, with `length` or where it matters, the
    length of lifetimes.
    """
    finite = section.terms is MDPS
    on = "on" if finite else "in"
    played = f"played {on} {section.terms.environments} drawn from **{{test}}**"
    trained = "{prior} Trained on **{name}**, "
    template = trained + played if section.shows_prior else played.capitalize()
    template += f", {section.rules.lifetime} {on} each." if length or not finite else "."
    template += "" if finite else f" Score: {section.rules.criterion}."
    prior = doc.Span("accurate prior" if section.accurate else "inaccurate prior", "chip")
    words = doc.sentence(template, prior=prior, name=section.prior, test=section.test)
    return doc.Paragraph(words, "setup")


def _verdict(section: Section) -> list[doc.Paragraph]:
    """Return the best algorithm and those tied with it."""
    champions = section.champions
    if champions.empty:
        return []
    best, tied = champions.iloc[0], list(champions.loc[champions["tied"], "label"])
    score = section.score(best)
    end = "."
    if not section.note and tied:
        end = f"; {listing(tied)} {'is' if len(tied) == 1 else 'are'} statistically tied with it."
    elif not section.note and len(champions) > 1:
        end = ", significantly better than every other algorithm."
    text = f" is best with {score}{end}" if len(champions) > 1 else f" has {score}; {ALONE}."
    return [doc.Paragraph((doc.Span(best["label"], "strong", best["algorithm"]), text), "verdict")]


def _settings(everything: pd.DataFrame, manifest: Mapping[str, Any], terms: Terms) -> doc.Chapter:
    """Describe the run: its machine and its parameters."""
    devices = ", ".join(dict.fromkeys(everything["device"].dropna().astype(str)))
    blocks: list[doc.Block] = []
    for title in SETTINGS:
        if isinstance(manifest.get(title), Mapping):
            lines = _lines(manifest[title], SETTING_NAMES | {"n_mdps": terms.environments})
            lines += [("device", devices)] if title == "machine" and devices else []
            blocks.append(doc.Facts(title.capitalize(), tuple(lines)))
    agents = everything.sort_values("place").drop_duplicates(["algorithm", "parameters"])
    rows = []
    for name, own in agents.groupby("algorithm", sort=False):
        texts = [parameters_text(p) or "no parameters" for p in own["parameters"]]
        rows.append((doc.Cell(str(name), algorithm=str(name)), doc.Cell(items=tuple(texts))))
    columns = ("Algorithm", "Parameters of each agent")
    blocks += doc.folded("Parameters", [doc.table("Settings--agents", "Agents", columns, rows)])
    return doc.Chapter("Settings", "Settings and machine", tuple(blocks))


def _lines(
    settings: Mapping[str, Any], names: Mapping[str, str], prefix: str = ""
) -> list[tuple[str, str]]:
    """Return a table of the manifest as names and texts; tables within it have dotted names."""
    lines: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            lines += _lines(value, names, f"{prefix}{name}.")
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            text = {"True": "yes", "False": "no"}.get(text, text)
            lines.append((prefix + names.get(name, str(name).replace("_", " ")), text))
    return lines


def _undone_units(rows: pd.DataFrame, *, several: bool) -> doc.Chapter:
    """Return units without a result, and why where it is known; with their seed if the study has
    several.
    """
    columns: list[tuple[object, Any]] = [
        ("Experiment", itemgetter("experiment")),
        ("Agent", itemgetter("label")),
        ("Parameters", lambda r: doc.Cell(r["parameters"], code=True)),
        *[("Seed", itemgetter("seed"))] * several,
        (doc.Column("Status", "chip"), lambda r: doc.Cell(r["status"], standing="bad")),
        *[("Reason", itemgetter("reason"))] * bool(rows["reason"].any()),
    ]
    words = ("Running the study again does what is missing and tries again what failed.",)
    title = "Units without a result"
    units = doc.tabulate("Undone--table", title, columns, rows.to_dict("records"), sortable=True)
    listed = doc.folded(title, [units]) if len(rows) > MOST_UNDONE else [units]
    blocks = (doc.Paragraph(words), *listed)
    return doc.Chapter("Undone", "Units not done", blocks, count=len(rows))


def _reading(parts: Sequence[Section], terms: Terms, files: Sequence[str]) -> doc.Chapter:
    """Explain how to read the report, including only the kinds of experiments that it has."""
    kinds = dict.fromkeys(section.terms for section in parts)
    scores = [
        doc.sentence(
            "**{score}** {meaning}",
            score="Score." if len(kinds) == 1 else f"Score, {kind.mean}.",
            meaning=kind.meaning,
        )
        for kind in kinds
    ]
    sources = doc.reading("episodes") if EPISODES in kinds else ()
    items = (*scores, *doc.reading("study", files, **terms.names), *sources)
    return doc.Chapter("Reading", "How to read this report", (doc.Items(items),))


def write_report(
    scores: pd.DataFrame,
    returns: pd.DataFrame,
    manifest: Mapping[str, Any],
    out: Path,
    searched: pd.DataFrame | None = None,
    form: Form = "html",
    metrics: Metrics = no_metrics,
    units: pd.DataFrame | None = None,
) -> Path:
    """Write the report in one form: HTML to the folder `out`, others to a folder within it that has
    the form's name, with their figures.

    Beside the HTML page `index.html` are its tables `summary` and `scores`, each `.csv` and `.md`.
    Where agents have searched, there is a page `strategies` as well.

    Args:
      scores: one row per agent of each experiment, columns `jbrl.report.sections.SCORES`; seconds;
        NaN where nothing is known.
      returns: one row per environment of each finished unit, columns `jbrl.base.schema.RETURNS`.
      manifest: `study`, `machine` and `versions` are tables to show. Oracles are the algorithms in
        the list `oracles`, and those of the entries of `units` whose `oracle` is true. The entries
        of `experiments` say how each is played and scored (`jbrl.report.text.Rules`). All may
        be absent.
      out: made if it is not there.
      searched: what agents have tried offline, columns as `jbrl.report.strategies` says.
      metrics: what is recorded beside the scores of an agent.
      units: one row per unit of the study, columns `jbrl.base.schema.AGENT`, seed, status, reason;
        default: each row of `scores` is one.

    Returns:
      Path of the page, the LaTeX source or the Markdown.

    Raises:
      JbrlError: a table lacks a column, holds a score that is not finite or two rows for one agent,
        `out` cannot be written, or there is no such form.
    """
    if form not in RENDERERS:
        raise JbrlError(f"unknown form of a report '{form}'{nearest(form, list(RENDERERS))}")
    ending = RENDERERS[form][0]
    page, place = ("index", out) if form == "html" else ("report", out / form)
    oracles = oracles_of(manifest)
    parts = sections(
        *(scores, returns, oracles, rules_of(manifest), of_experiments(manifest), metrics),
        named_of(manifest),
    )
    looks = styles(scores["algorithm"], oracles)
    pages = {}
    if searched is not None and len(searched):
        pages = {"Strategies found offline": f"strategies.{ending}"}
    report = document(parts, looks, manifest, pages, FILES if form == "html" else (), units)
    with writing(place) as folder:
        write_document(report, folder, page, form)
        if searched is not None and pages:
            beside = strategies.document(searched, report, f"{page}.{ending}")
            write_document(beside, folder, "strategies", form)
        if form == "html":
            write_tables(parts, folder)
    return place / f"{page}.{ending}"
