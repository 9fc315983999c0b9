"""The words of a report, which depend on the kind of an experiment: finite MDPs and discounted
returns, or other environments.

Sentences are templates: `{environments}` stands for the field or property of `Terms` of that name.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

# criteria, as the manifest calls them
DISCOUNTED, PER_EPISODE = "discounted return", "mean return per episode"


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

    def say(self, template: str) -> str:
        """Return the sentence that a template makes.

        `{Mean}` is `mean` with a capital letter, and so are the others.
        """
        names = {
            name: getattr(self, name)
            for name in ("mean", "scores", "values", "environment", "environments", "figures")
        }
        return template.format_map(
            names | {name.capitalize(): text[:1].upper() + text[1:] for name, text in names.items()}
        )

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

    @property
    def terms(self) -> Terms:
        return {DISCOUNTED: MDPS, PER_EPISODE: EPISODES}.get(self.criterion, OTHERS)


def rules_of(manifest: Mapping[str, Any]) -> dict[str, Rules]:
    """Return the rules of experiments, by name.

    Studies that were stored before they were written have none: all were of finite MDPs.
    """
    tables = manifest.get("experiments") or []
    return {
        table["name"]: Rules(table["criterion"], table["lifetime"])
        for table in tables
        if "criterion" in table
    }


def shared(terms: Collection[Terms]) -> Terms:
    """Return the words that fit all of several experiments."""
    return next(iter(terms)) if len(set(terms)) == 1 else OTHERS
