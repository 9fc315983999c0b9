"""One page for the appendix of a paper: radar, bars, the scores of tags and what was run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jbrl import __version__
from jbrl.base.bsuite_sweep import TAGS
from jbrl.report.bsuite.score_figures import bars, radar
from jbrl.report.bsuite.words import in_words
from jbrl.report.images import save
from jbrl.report.latex import templates
from jbrl.report.style import styles
from jbrl.report.text import ABSENT, listing
from jbrl.stats.bsuite import scores
from jbrl.stats.bsuite.logs import Logs


def write_latex(logs: Logs, release: str, facts: Sequence[str], out: Path) -> Path:
    """Write one page: radar, bars, the tag scores and what was run; return the path of its
    source.
    """
    looks = styles(logs.agents)
    table, tags = scores.summary(logs, release, intervals=True), scores.tag_scores(logs, release)
    (out / "images").mkdir(parents=True, exist_ok=True)
    save(radar(tags, looks).figure, out / "images" / "radar_plot.pdf")
    save(bars(table).figure, out / "images" / "bar_plot.pdf")
    rows = {
        agent: [_number(rows.set_index("tag")["score"][tag]) for tag in TAGS]
        for agent, rows in tags.groupby("agent", sort=False)
    }
    source = (
        templates()
        .get_template("bsuite.tex")
        .render(
            agents=logs.agents,
            listed=listing(logs.agents),
            facts=facts,
            tags=[in_words(tag) for tag in TAGS],
            rows=rows,
            unfinished=[text[0].upper() + text[1:] for text in scores.unfinished(logs)],
            release=release,
            version=__version__,
        )
    )
    (out / "report.tex").write_text(source, encoding="utf-8")
    return out / "report.tex"


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else ABSENT
