"""The report of bsuite logs: one page, its figures and tables beside it, a page for a paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from jbrl import __version__
from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP
from jbrl.report.bsuite.experiment import experiment
from jbrl.report.bsuite.files import write_files
from jbrl.report.bsuite.score_figures import BARS
from jbrl.report.bsuite.summary import differences, summary
from jbrl.report.content import Chapter, Document, Items, Paragraph, Span, Words
from jbrl.report.files import plots_of, writing
from jbrl.report.html import render
from jbrl.report.style import styles
from jbrl.report.text import count, listing
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import Logs
from jbrl.stats.bsuite.measures import RELEASES


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
    tables = {
        "scores": scores.summary(logs, release, intervals=True),
        "tags": scores.tag_scores(logs, release, intervals=True),
        "tests": scores.compare(logs, release),
    }
    with writing(out):
        folder = out / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            table.to_csv(out / f"{name}.csv", index=False, lineterminator="\n")
        for plot in plots_of(report):
            write_files(plot, folder)
        (out / "index.html").write_text(render(report, {}), encoding="utf-8")
        paths = [out / "index.html"]
        if latex:
            from jbrl.report.bsuite.latex import write_latex

            paths.append(write_latex(logs, release, _facts(logs, release), out / "latex"))
    return paths


def document(logs: Logs, release: str = RELEASES[0]) -> Document:
    """Return the report as chapters: summary, experiments, how to read it."""
    looks = styles(logs.agents)
    table = scores.summary(logs, release, intervals=True)
    tags = scores.tag_scores(logs, release, intervals=True)
    chapters = [summary(logs, table, tags, looks)]
    if len(logs.agents) > 1:
        chapters.append(differences(scores.compare(logs, release)))
    ordered = sorted(logs.experiments, key=BARS.index)
    chapters += [experiment(logs, EXPERIMENTS[n], table, release, looks) for n in ordered]
    chapters.append(_reading(release))
    return Document(
        title=_title(logs.agents),
        kind="Behaviour Suite",
        facts=_facts(logs, release),
        notices=tuple(_notices(logs)),
        chapters=tuple(chapters),
        styles=looks,
        version=__version__,
    )


def _title(agents: Sequence[str]) -> str:
    return f"bsuite: {listing(agents) if len(agents) <= 3 else count(len(agents), 'agent')}"


def _facts(logs: Logs, release: str) -> tuple[str, ...]:
    ids = len({run.bsuite_id for run in logs.runs})
    return (
        count(len(logs.agents), "agent"),
        f"{ids} of {len(SWEEP)} settings",
        count(len(logs.runs), "run"),
        f"scores of release {release}",
    )


def _notices(logs: Logs) -> Iterator[Paragraph]:
    texts = [*logs.problems, *scores.incomplete(logs), *logs.notes, *scores.unfinished(logs)]
    for text in texts[:12]:
        yield Paragraph((f"{text[0].upper()}{text[1:]}.",), "notice")
    if len(texts) > 12:
        yield Paragraph((f"{len(texts) - 12} more of that kind.",), "notice")


def _reading(release: str) -> Chapter:
    items: tuple[Words, ...] = (
        (
            Span("Scores ", "strong"),
            f"are those of release {release} of the original, from 0 to 1; not every experiment "
            "gives 0 to a random agent or 1 to a perfect one.",
        ),
        (
            Span("Several runs. ", "strong"),
            "Where settings were played several times, a score is the mean over whole sweeps, one "
            "run of each setting. Intervals are 95% percentile bootstraps: runs are drawn again "
            "within equal settings.",
        ),
        (
            Span("Not finished ", "strong"),
            "(*, hollow, hatched): some settings are missing or have fewer episodes than the "
            "experiment has. Scores are then what the original computes from such logs.",
        ),
        (
            Span("Tables ", "strong"),
            "are sorted by a click on a heading. Under each figure there are links to its numbers "
            "and its files.",
        ),
        (
            Span("Source. ", "strong"),
            "Osband et al. 2020, Behaviour Suite for Reinforcement Learning, ICLR.",
        ),
    )
    return Chapter("reading", "How to read this page", (Items(items),))
