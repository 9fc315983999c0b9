"""BibTeX entries of agents and problems."""

import re
from collections.abc import Sequence
from importlib import resources

from jbrl.base.errors import JbrlError, nearest

OURSELVES = "jbrl"  # key of jbrl's own entry


def entries(names: Sequence[str]) -> list[str]:
    """Return the entries of algorithms and problems, each once, in order; of jbrl itself when there
    are no names.

    Raises:
      JbrlError: an unknown name, or one that cites nothing.
    """
    found = dict.fromkeys(text for name in names or [OURSELVES] for text in _cited(name))
    return list(found)


def _cited(name: str) -> list[str]:
    from jbrl.agents.registry import AGENTS
    from jbrl.environments.environment import ENVIRONMENTS
    from jbrl.problems.lookup import problem
    from jbrl.problems.problem import PROBLEMS

    if name == OURSELVES:
        return [_by_key()[OURSELVES]]
    if name in AGENTS:
        cite = AGENTS[name].cite
    elif name in PROBLEMS or name in ENVIRONMENTS or "(" in name:
        cite = problem(name).cite
    else:
        raise JbrlError(
            "nothing to cite is called "
            f"'{name}'{nearest(name, {*AGENTS, *PROBLEMS, *ENVIRONMENTS, OURSELVES})}"
        )
    if not cite:
        raise JbrlError(f"'{name}' names no source")
    if cite.lstrip().startswith("@"):
        return [cite.strip()]
    return [_by_key()[key.strip()] for key in cite.split(",")]


def _by_key() -> dict[str, str]:
    """Return all entries of references.bib by key."""
    text = (resources.files("jbrl") / "references.bib").read_text(encoding="utf-8")
    parts = re.split(r"^(?=@)", text, flags=re.MULTILINE)
    return {
        match[1]: part.strip() for part in parts if (match := re.match(r"@\w+\{([^,\s]+)", part))
    }
