"""The report of bsuite logs: one page, its figures and tables beside it, a page for a paper."""

import dataclasses
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, Experiment
from jbrl.base.files import writing
from jbrl.report import bsuite_figures as figures
from jbrl.report import content as doc
from jbrl.report.axes import Drawing, Styles, styles
from jbrl.report.bsuite_figures import in_words
from jbrl.report.files import write_document
from jbrl.report.text import ABSENT, count, listing, number_text
from jbrl.stats.bsuite import curves, scores
from jbrl.stats.bsuite.curves import ceiling
from jbrl.stats.bsuite.logs import Logs
from jbrl.stats.bsuite.measures import RELEASES

LEARNING = (
    "Average regret per episode so far against the number of episodes, both as logged: mean over "
    "settings and runs{band}. {regret}"
)
RETURNS = {  # what is shown between two logged episodes
    "mnist": "Accuracy",
    "memory_chain": "Share of right answers",
    "umbrella_chain": "Average last reward",
    "deep_sea": "Share of episodes that found the treasure",
}


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(doc.resource("bsuite.toml"))


def _about(experiment: Experiment) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the words on its family, on its variant and on itself."""
    words = _words()
    variant = words["variants"].get(experiment.wrapper, {})
    return words["families"][experiment.family], variant, words["special"].get(experiment.name, {})


def title(experiment: Experiment) -> str:
    """Return a heading: "Catch with noise"."""
    family, variant, special = _about(experiment)
    return special.get("title", family["title"] + variant.get("title", ""))


def text(experiment: Experiment) -> str:
    """Describe the task and the ability it tests."""
    family, variant, special = _about(experiment)
    parts = (family["task"], family["purpose"], special.get("task"), variant.get("task"))
    return " ".join(filter(None, parts))


def rule(experiment: Experiment) -> str:
    """Describe the score."""
    family, variant, special = _about(experiment)
    score = special.get("rule", family["score"])
    return f"{score} {variant['score']}" if variant else score


def facts(experiment: Experiment) -> str:
    """Return settings, episodes and tags in a line."""
    tags = ", ".join(map(figures.in_words, experiment.tags))
    return f"{len(experiment.settings)} settings of {experiment.episodes:,} episodes; tags: {tags}"


def possible(experiment: Experiment) -> str:
    """Describe what an agent that knows the environment earns, and what learning costs the best
    learner, where this is known.
    """
    known = [one for name in experiment.ids if (one := ceiling(name)) is not None]
    if not known:
        return ""
    optimum, regret = (
        " to ".join(f"{v:.3g}" for v in dict.fromkeys((min(values), max(values))))
        for values in zip(*map(dataclasses.astuple, known), strict=True)
    )
    learner = f"; the best learner has a regret of {regret} in all" if regret != "nan" else ""
    return f" An agent that knows the environment earns {optimum} in an episode{learner}."


def plot(id: str, title: str, caption: str, drawing: Drawing, **options: Any) -> doc.Plot:
    """Return a figure of the page that links to its files in the folder `figures`."""
    files = tuple(f"figures/{id}.{ending}" for ending in ("csv", "svg", "png"))
    return doc.Plot(id, title, caption, drawing, files, **options)


def chapter(
    logs: Logs, experiment: Experiment, scores: pd.DataFrame, release: str, looks: Styles
) -> doc.Chapter:
    """Describe one experiment: its task, its score, its plots."""
    id = experiment.name.replace("_", "-")
    own = scores[scores["bsuite_env"] == experiment.name].drop(columns="bsuite_env")
    caption = (
        "Hollow: not finished. Bars are 95% intervals over runs, where there are several of each "
        "setting."
    )
    blocks: list[doc.Block] = [
        doc.Paragraph((f"{facts(experiment)}.{possible(experiment)}",), "setup"),
        doc.Paragraph((text(experiment),)),
        doc.Paragraph(doc.sentence("**Score.** {rule}", rule=rule(experiment))),
        plot(f"{id}-score", "Score", caption, figures.single(own, looks)),
    ]
    for kind, name, words, drawing in _details(logs, experiment, release, looks):
        blocks.append(plot(f"{id}-{kind}", name, words, drawing))
    return doc.Chapter(id, title(experiment), tuple(blocks), "experiment")


def _details(
    logs: Logs, experiment: Experiment, release: str, looks: Styles
) -> Iterator[tuple[str, str, str, Drawing]]:
    """Yield kind, title, caption and drawing of each detail plot, by the family."""
    name, family = experiment.name, experiment.family
    raw = curves.regrets(logs, name)
    regret = _about(experiment)[0]["regret"]
    best = " Dotted: the best learner has no more." if curves.least_regrets(experiment) else ""
    if family == "deep_sea":
        shown = raw[raw["level"].isin(curves.SHOWN_SIZES)]
        if len(shown):
            caption = f"Share of bad episodes so far, for some sizes. Dashed: 0.99.{best}"
            drawing = figures.by_level(curves.mean_curves(shown), experiment)
            yield "learning", "Learning", caption, drawing
        solved = curves.solutions(logs, name, release)
        caption = "Hollow: not solved by the last episode. Dashed: 2^N, what dithering needs."
        for kind in ("linear", "logarithmic"):
            drawing = figures.solving(solved, looks, logarithmic=kind == "logarithmic")
            yield kind, f"Episodes until solved, {kind}", caption, drawing
    elif family in curves.THRESHOLDS:
        level = figures.level_words(experiment)
        caption = f"Average regret so far of each setting, by {level}. {regret}"
        drawing = figures.raw_lines(raw, experiment, looks, "average regret")
        yield "learning", "Learning", caption, drawing
        swingup = family == "cartpole_swingup"
        values = curves.bests(logs, name) if swingup else curves.final_regrets(logs, name)
        side = "above" if swingup else "below"
        caption = f"Full symbols: {side} the dashed line, which counts for the score."
        drawing = figures.scaling(values, experiment, looks)
        yield "scale", "Which settings are solved", caption, drawing
    elif experiment.wrapper or family == "discounting_chain":
        caption = LEARNING.format(band="", regret=regret) + best
        drawing = figures.by_level(curves.mean_curves(raw), experiment)
        yield "learning", "Learning", caption, drawing
        caption = "By level, with 95% intervals over runs."
        drawing = figures.average(curves.final_regrets(logs, name), experiment, looks)
        yield "average", "Average regret at the end", caption, drawing
    else:
        caption = LEARNING.format(band=", with a 95% band", regret=regret)
        drawing = figures.learning(curves.mean_curves(raw), experiment, looks)
        yield "learning", "Learning", f"{caption} Dashed: a score of 0.{best}", drawing
    what = RETURNS.get(family, "Average return of the episodes")
    clean = " without noise and scale" if experiment.wrapper else ""
    caption = f"{what} between two logged episodes{clean}, every setting and run. Dashed: the best."
    drawing = figures.raw_lines(curves.returns(logs, name), experiment, looks, "average return")
    yield "seeds", "Every run", caption, drawing


WORDS = doc.prose("bsuite")
MOST_NOTICES = 12
ABREAST = 3  # agents from whose number on tables have no place for intervals
CROWD = 5  # agents beyond which lines of a radar hide each other
LONG = 30  # rows of a table from which on it is shown a part at a time
FILES = ("scores.csv", "tags.csv", "tests.csv")


def write_report(
    logs: Logs, out: Path, release: str = RELEASES[0], *, latex: bool = False
) -> list[Path]:
    """Write the page `index.html`, `scores.csv`, `tags.csv`, `tests.csv`, and `figures`.

    Every figure is there as SVG, PNG and as CSV with the numbers it shows.

    Args:
      release: whose rules count.
      latex: the folder `latex` as well: `report.tex`, one page for an appendix, with its figures.

    Returns:
      Paths of the page and of the LaTeX source.

    Raises:
      JbrlError: `out` cannot be written, or no such release.
    """
    report = document(logs, release)
    tables = (
        scores.summary(logs, release, intervals=True),
        scores.tag_scores(logs, release, intervals=True),
        scores.compare(logs, release),
    )
    with writing(out) as folder:
        beside = dict(zip(FILES, tables, strict=True))
        write_document(report, folder, "index", tables=beside)
        if latex:
            (folder / "latex").mkdir()
            write_document(appendix(logs, release), folder / "latex", "report", "latex")
    return [out / "index.html"] + [out / "latex" / "report.tex"] * latex


def document(logs: Logs, release: str = RELEASES[0]) -> doc.Document:
    """Return the report as chapters: summary, experiments, how to read it."""
    looks = styles(logs.agents)
    scored = scores.summary(logs, release, intervals=True)
    tags = scores.tag_scores(logs, release, intervals=True)
    chapters = [_summary(logs, scored, tags, looks)]
    if len(logs.agents) > 1:
        chapters.append(_differences(scores.compare(logs, release)))
    ordered = sorted(logs.experiments, key=figures.BARS.index)
    chapters += [chapter(logs, EXPERIMENTS[n], scored, release, looks) for n in ordered]
    explained = doc.Items(doc.reading("bsuite", FILES, release=release))
    chapters.append(doc.Chapter("reading", "How to read this page", (explained,)))
    many = len(logs.agents) > 3
    return doc.Document(
        title=f"bsuite: {count(len(logs.agents), 'agent') if many else listing(logs.agents)}",
        kind="Behaviour Suite",
        facts=_facts(logs, release),
        notices=tuple(_notices(logs)),
        chapters=tuple(chapters),
        styles=looks,
    )


def appendix(logs: Logs, release: str) -> doc.Document:
    """Return one page for the appendix of a paper: radar, scores of tags, bars, what was run."""
    looks = styles(logs.agents)
    tags = scores.tag_scores(logs, release)
    rows = [
        (agent, *(_number(own.set_index("tag")["score"][tag]) for tag in TAGS))
        for agent, own in tags.groupby("agent", sort=False)
    ]
    columns = ("Agent", *(doc.Column(in_words(tag).capitalize(), "number") for tag in TAGS))
    unfinished = [f"{text[0].upper()}{text[1:]}." for text in scores.unfinished(logs)]
    blocks: list[doc.Block] = [
        doc.Paragraph(doc.sentence(WORDS["appendix"], release=release)),
        *(doc.Paragraph((text,), "notice") for text in unfinished),
        plot("radar", "Radar", WORDS["radar"], figures.radar(tags, looks), height=0.3),
        doc.table("tag-scores", "", columns, rows),
        plot(
            "bars",
            "Scores of all experiments",
            WORDS["bars"],
            figures.bars(scores.summary(logs, release, intervals=True)),
            height=0.3,
        ),
    ]
    agents = doc.Chapter("agents", listing(logs.agents), tuple(blocks))
    return doc.Document("Behaviour Suite", "", _facts(logs, release), (agents,), looks, version="")


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else ABSENT


def _facts(logs: Logs, release: str) -> tuple[str, ...]:
    ids = len({run.bsuite_id for run in logs.runs})
    return (
        count(len(logs.agents), "agent"),
        f"{ids} of {len(SWEEP)} settings",
        count(len(logs.runs), "run"),
        f"scores of release {release}",
    )


def _notices(logs: Logs) -> Iterator[doc.Paragraph]:
    texts = [*logs.problems, *scores.incomplete(logs), *logs.notes, *scores.unfinished(logs)]
    for text in texts[:MOST_NOTICES]:
        yield doc.Paragraph((f"{text[0].upper()}{text[1:]}.",), "notice")
    if len(texts) > MOST_NOTICES:
        yield doc.Paragraph((f"{len(texts) - MOST_NOTICES} more of that kind.",), "notice")


def _summary(logs: Logs, scored: pd.DataFrame, tags: pd.DataFrame, looks: Styles) -> doc.Chapter:
    """Show scores of tags and experiments: the figures and tables of all agents."""
    names = sorted(set(scored["bsuite_env"]), key=figures.BARS.index)
    crowd = (
        f"{len(logs.agents)} agents: lines of the radar hide each other beyond five; the rows "
        "beside it do not."
    )
    crowded = len(logs.agents) > CROWD
    blocks: list[doc.Block] = [
        doc.Paragraph(_verdict(tags), "verdict"),
        *([doc.Paragraph((crowd,), "setup")] if crowded else []),
        _plot("radar", "Radar", figures.radar(tags, looks)),
        _plot("tags", "Tags in rows", figures.tag_lines(tags, looks)),
        doc.Paragraph((WORDS["key"],), "key"),
        _plot("bars", "Scores of all experiments", figures.bars(scored)),
        _table("scores", "Scores", "Experiment", scored.set_index("bsuite_env"), names),
        _table("tag-scores", "Means of tags", "Tag", tags.set_index("tag"), TAGS),
        doc.Paragraph(("As files beside this page: ", *doc.links(FILES), "."), "key"),
    ]
    return doc.Chapter("summary", "Summary", tuple(blocks))


def _plot(id: str, title: str, drawing: Any) -> doc.Plot:
    return plot(id, title, WORDS[id], drawing)


def _verdict(tags: pd.DataFrame) -> doc.Sentence:
    """Return the best and the worst tag of one agent, or the best agent of each tag."""
    agents = list(dict.fromkeys(tags["agent"]))
    known = tags[tags["score"].notna()]
    if len(agents) == 1:
        if known.empty:
            return ("No score is known.",)
        ordered = known.sort_values("score", ascending=False)
        best, worst = (
            f"{in_words(row['tag'])} ({row['score']:.2f})"
            for row in (ordered.iloc[0], ordered.iloc[-1])
        )
        agent = doc.Span(agents[0], "strong", agents[0])
        return (agent, f" does best in {best} and worst in {worst}.")
    leads: dict[str, list[str]] = {}
    for tag in TAGS:
        rows = known[known["tag"] == tag]
        if len(rows):
            leader = str(rows.loc[rows["score"].idxmax(), "agent"])
            leads.setdefault(leader, []).append(in_words(tag))
    parts: list[doc.Span | str] = ["Highest tag scores: "]
    for k, (leader, names) in enumerate(leads.items()):
        parts += ["; " if k else "", doc.Span(leader, "strong", leader), f" in {listing(names)}"]
    return (*parts, ".")


def _table(id: str, title: str, head: str, scored: pd.DataFrame, names: Sequence[str]) -> doc.Table:
    """Return experiments or tags in rows, agents in columns; `scored` has the former in its
    index.
    """
    agents = list(dict.fromkeys(scored["agent"]))
    rows = []
    for name in names:
        own = scored.loc[[name]].set_index("agent")
        values = own["score"].dropna()
        several = len(agents) > 1 and values.nunique() > 1
        best = values.max() if several else np.inf
        label = name if name in EXPERIMENTS else in_words(name).capitalize()
        interval = len(agents) <= ABREAST
        rows.append((label, *(_cell(own.loc[agent], interval, best) for agent in agents)))
    heads = [
        doc.Column(textwrap.shorten(agent, 20, placeholder="…"), "number", hint=agent)
        for agent in agents
    ]
    return doc.table(id, title, (head, *heads), rows, sortable=True)


def _cell(row: pd.Series, interval: bool, best: float) -> doc.Cell:
    """Return a score with its interval; an asterisk where it is not finished, bold where it is the
    best.
    """
    score = float(row["score"])
    if not np.isfinite(score):
        return doc.Cell(ABSENT, float("nan"), standing="none")
    text = f"{score:.3f}" + ("" if row["finished"] else "*")
    known = interval and np.isfinite(row["lower"]) and np.isfinite(row["upper"])
    small = f" ({row['lower']:.2f}–{row['upper']:.2f})" if known else ""
    return doc.Cell(text, score, strong=score == best, small=small)


def _differences(tests: pd.DataFrame) -> doc.Chapter:
    """Describe pairs of agents: in how many experiments they differ, and all p-values."""
    items = []
    for (agent, other), rows in tests.groupby(["agent", "other"], sort=False):
        better = int((rows["differs"] & (rows["difference"] > 0)).sum())
        worse = int((rows["differs"] & (rows["difference"] < 0)).sum())
        known = int(rows["p_value"].notna().sum())
        counts = (
            f"better in {better} experiments, worse in {worse}, no sure difference in "
            f"{known - better - worse}"
        )
        if known < len(rows):
            counts += f", not finished in {len(rows) - known}"
        pair = {"one": doc.Span(agent, algorithm=agent), "two": doc.Span(other, algorithm=other)}
        items.append(doc.sentence("{one} against {two}: {counts}.", counts=counts, **pair))
    p_value = doc.Column("p", "number", hint="two-sided, not corrected")
    differs = doc.Column("Differs", "chip", hint="with Holm's correction over a pair's experiments")
    columns: list[tuple[object, Any]] = [
        ("Experiment", itemgetter("bsuite_env")),
        ("Agents", lambda r: f"{r['agent']} and {r['other']}"),
        (doc.Column("Difference", "number"), lambda r: _known(r, "difference", "+.3f")),
        (p_value, lambda r: _known(r, "p_value", ".2g")),
        (differs, lambda r: doc.Cell("differs" if r["differs"] else "", standing="best")),
    ]
    rows, long = tests.to_dict("records"), len(tests) > LONG
    every = doc.tabulate("tests", "All tests", columns, rows, sortable=True, long=long)
    blocks = (doc.Paragraph((WORDS["tests"],)), doc.Items(tuple(items)), every)
    return doc.Chapter("tests-of-agents", "Which differences are sure", blocks)


def _known(row: Mapping[str, Any], column: str, form: str) -> doc.Cell:
    """Return a number of a test, where there is one."""
    text = number_text(row[column], form) if np.isfinite(row["p_value"]) else ABSENT
    return doc.Cell(text, row[column])
