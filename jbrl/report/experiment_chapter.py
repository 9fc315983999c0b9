"""The chapter of one experiment: its rules, its best agents, its figures and tables."""

from collections.abc import Mapping

import jbrl.report.bounds
import jbrl.report.ranks  # noqa: F401 (these list their figures)
from jbrl.report.choice import CLOSING, advice
from jbrl.report.content import Block, Chapter, Items, Paragraph, Plot, Span, Words, folded, marked
from jbrl.report.figures import FIGURES, Drawing, Kind, Part
from jbrl.report.scores_table import all_agents, best_agents
from jbrl.report.style import Style
from jbrl.report.tables import Section
from jbrl.report.terms import MDPS
from jbrl.report.text import listing
from jbrl.report.winners import winners

PARTS: dict[Part, str] = {  # of an experiment; those with a title are details
    "answer": "",
    "times": "Scores and computation times",
    "scores": "Differences, distributions and ranks",
}
ALONE = (
    "it is the best agent of the only algorithm with a score, so that there is nothing to compare "
    "it with"
)


def experiment(section: Section, styles: Mapping[str, Style], *, length: bool) -> Chapter:
    """Describe one experiment; `length`: and the length of its lifetimes."""
    blocks: list[Block] = [_setup(section, length=length), *_verdict(section)]
    if section.note:
        blocks.append(Paragraph(marked(section.note), "notice"))
    words = advice(section)
    blocks += [Paragraph((*words, f" {CLOSING}"), "verdict")] if words else []
    absent: list[Words] = []
    for part, title in PARTS.items():
        plots: list[Block] = []
        for kind in (kind for kind in FIGURES if kind.part == part):
            drawing = kind.draw(section, styles)
            if isinstance(drawing, Drawing):
                plots.append(_plot(section, kind, drawing))
            elif drawing:
                reason = marked(f" is not drawn: {section.terms.adapt(drawing)}.")
                absent.append((Span(kind.title, "strong"), *reason))
        blocks += folded(title, plots) if title else plots
    blocks += folded("Winners from left to right", winners(section))
    tables_ = [best_agents(section)] if len(section.done) else []
    blocks += folded("Tables of the agents", [*tables_, all_agents(section)])
    blocks += folded("Figures that are not drawn", [Items(tuple(absent))] if absent else [])
    return Chapter(section.id, section.name, tuple(blocks), "experiment")


def _plot(section: Section, kind: Kind, drawing: Drawing) -> Plot:
    caption = section.terms.say(kind.caption)
    return Plot(f"{section.id}--{kind.id}", kind.title, caption, drawing.note, drawing)


def _setup(section: Section, *, length: bool) -> Paragraph:
    """Describe the agents' prior, the test environments and, with `length` or where it matters, the
    length of lifetimes.
    """
    on = "on" if section.terms is MDPS else "in"
    played, words = f"played {on} {section.terms.environments} drawn from ", list[Span | str]()
    if section.shows_prior:
        words += [
            Span("accurate prior" if section.accurate else "inaccurate prior", "chip"),
            " Trained on ",
            Span(section.prior, "strong"),
        ]
    words += [
        f", {played}" if section.shows_prior else played.capitalize(),
        Span(section.test, "strong"),
    ]
    end = f", {section.rules.lifetime} {on} each." if length or section.terms is not MDPS else "."
    return Paragraph(
        (*words, end if section.terms is MDPS else f"{end} Score: {section.rules.criterion}."),
        "setup",
    )


def _verdict(section: Section) -> list[Paragraph]:
    """Return the best algorithm and those tied with it."""
    champions = section.champions
    if champions.empty:
        return []
    best, tied = champions.iloc[0], list(champions.loc[champions["tied"], "label"])
    end = "."
    if not section.note and tied:
        end = f"; {listing(tied)} {'is' if len(tied) == 1 else 'are'} statistically tied with it."
    elif not section.note and len(champions) > 1:
        end = ", significantly better than every other algorithm."
    told = (
        f" is best with {section.score(best)}{end}"
        if len(champions) > 1
        else f" has {section.score(best)}; {ALONE}."
    )
    return [Paragraph((Span(best["label"], "strong", best["algorithm"]), told), "verdict")]
