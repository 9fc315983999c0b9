"""Numbers, times and names as people write them, and the words for an experiment, which depend on
its kind: finite MDPs and discounted returns, or other environments.
"""

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jbrl.base.schema import MetricFigure

# criteria, as the manifest calls them
DISCOUNTED, PER_EPISODE = "discounted return", "mean return per episode"
ABSENT = "–"
_UNITS = (
    *((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")),
    *((60.0, "min"), (3600.0, "h"), (86400.0, "d")),
)


def seconds_text(seconds: float) -> str:
    """Return a duration in the largest unit that keeps it at 1 or above, two significant digits,
    since more do not repeat: `0.000000412` is `410 ns`.
    """
    if seconds is None or math.isnan(seconds):
        return ABSENT
    if seconds == 0:
        return "0 s"
    for (size, unit), (following, _) in zip(_UNITS, (*_UNITS[1:], (math.inf, "")), strict=True):
        value = float(f"{seconds / size:.2g}")
        if value * size < following * (1 - 1e-9):
            return f"{value:g} {unit}"
    return f"{seconds:g} s"


def decimals_for(widths: Iterable[float]) -> int:
    """Return digits after the point that show two significant digits of a typical half-width, three
    from 1 to 10 (as in the paper); up to 6.
    """
    known = [w for w in widths if w is not None and math.isfinite(w) and w > 0]
    if not known:
        return 2
    exponent = math.floor(math.log10(float(np.median(known))))
    return 2 if exponent == 0 else min(6, max(0, 1 - exponent))


def score_text(mean: float, ci95: float, decimals: int) -> str:
    """Write `42.47 ± 1.91`; without interval when there is none (one MDP), a dash when there is no
    mean.
    """
    if mean is None or not math.isfinite(mean):
        return ABSENT
    value = number_text(mean, f".{decimals}f")
    return value if ci95 is None or not math.isfinite(ci95) else f"{value} ± {ci95:.{decimals}f}"


def number_text(value: float, form: str) -> str:
    """Write a number by a format such as `.2f` or `+.3f`, with a true minus sign."""
    text = f"{value:{form}}"
    return f"−{text[1:]}" if text.startswith("-") else text


def named(name: str, text: str) -> str:
    """Return a name, with a text in parentheses if there is one: `e-Greedy (ε = 0.1)`."""
    return f"{name} ({text})" if text else name


def escape(text: str) -> str:
    """Return Markdown that is read as `text`, also within a table; line breaks become spaces."""
    text = re.sub(r"([\\`*_\[\]<>#|~&$])", r"\\\1", re.sub(r"[\s\x00]+", " ", str(text)))
    # what would begin a list, or underline a heading
    text = re.sub(r"^( *)([-+=])", r"\1\\\2", text)
    return re.sub(r"^( *\d+)([.)])(?= |$)", r"\1\\\2", text)


LONGEST_SLUG = 80  # names of files hold 255 bytes, some of them several slugs


def slug(name: str, taken: Iterable[str] = ()) -> str:
    """Write `name` in letters, digits and hyphens, different from all in `taken`: fit for an HTML
    id and a file name.
    """
    base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_SLUG] or "x"
    taken, text, number = set(taken), base, 2
    while text in taken:
        text, number = f"{base}-{number}", number + 1
    return text


def listing(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def count(n: int, noun: str) -> str:
    """Count in words: `1 agent`, `2,000 agents`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


@dataclasses.dataclass(frozen=True)
class Terms:
    """Names of things in a report."""

    mean: str  # over the environments of an experiment
    scores: str  # one for each environment
    values: str  # the same in short
    environment: str
    figures: str  # before the numbers of those of Castronovo et al. 2016 that a figure resembles
    meaning: str  # of a mean score

    @property
    def environments(self) -> str:
        return f"{self.environment}s"

    @property
    def names(self) -> dict[str, str]:
        """The names of things, to be put into sentences; `Mean` is `mean` with a capital letter."""
        names = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        names["environments"] = self.environments
        return names | {name.capitalize(): t[:1].upper() + t[1:] for name, t in names.items()}

    def say(self, template: str) -> str:
        """Return the sentence that a template makes."""
        return template.format_map(self.names)

    def adapt(self, text: str) -> str:
        """Return a message of `jbrl.stats`, which names MDPs, in these words."""
        return re.sub(r"\bMDP(?=s?\b)", self.environment, text)


MDPS = Terms(
    mean="mean discounted return",
    scores="discounted returns",
    values="returns",
    environment="MDP",
    figures="Figs",
    meaning="Mean over N MDPs of the discounted return of one trajectory on each, "
    "± 1.96 s/√N (for N < 100 Student's factor).",
)
EPISODES = Terms(
    mean="mean return per episode",
    scores="mean returns per episode",
    values="mean returns per episode",
    environment="environment",
    figures="As in Figs",
    meaning="Mean over N environments of the mean return per episode of one lifetime in each, "
    "± 1.96 s/√N (for N < 100 Student's factor). Returns are not discounted. An "
    "episode that the end of a lifetime cuts off counts with what it has earned.",
)
OTHERS = Terms(  # of other scores, and of several kinds together
    mean="mean score",
    scores="scores",
    values="scores",
    environment="environment",
    figures="As in Figs",
    meaning="Mean over N environments of the score of one lifetime in each, "
    "± 1.96 s/√N (for N < 100 Student's factor).",
)


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules by which an experiment is played and scored, as `Store.open` writes them into the
    manifest.
    """

    criterion: str = DISCOUNTED
    lifetime: str = ""  # "250 steps", "100 episodes"; "" where it is not known
    figures: tuple[MetricFigure, ...] = ()  # of its problem

    @property
    def terms(self) -> Terms:
        return {DISCOUNTED: MDPS, PER_EPISODE: EPISODES}.get(self.criterion, OTHERS)


def rules_of(manifest: Mapping[str, Any]) -> dict[str, Rules]:
    """Return the rules of experiments, by name.

    Studies that were stored before they were written have none: all were of finite MDPs.
    """
    tables = manifest.get("experiments") or []
    return {
        table["name"]: Rules(
            table["criterion"],
            table["lifetime"],
            tuple(MetricFigure(**figure) for figure in table.get("figures", ())),
        )
        for table in tables
        if "criterion" in table
    }


def shared(terms: Collection[Terms]) -> Terms:
    """Return the words that fit all of several experiments."""
    return next(iter(terms)) if len(set(terms)) == 1 else OTHERS
