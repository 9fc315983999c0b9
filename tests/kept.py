"""Pages, figures and what commands print, which must not change unseen: digests of their parts.

A part that differs is to be looked at; `KEEP=1 python -m pytest -n0 FILE …` then writes the digests
of the tests that run anew. Figures hang on the version of Matplotlib: with another one they are not
compared.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

from jbrl import __version__

FILE = Path(__file__).parent / "pins" / "texts.json"
KEPT: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
PLOT = r'(<svg class="plot" id="[^"]*")(.*?</svg>)'


def _short(number: re.Match[str]) -> str:
    """Return six digits, none of what rounding leaves of 0."""
    value = float(number[0])
    return f"{value:.6g}" if abs(value) > 1e-12 else "0"


def _digest(text: str) -> str:
    """Return the digest of a text of numbers of six digits, whatever the version of jbrl."""
    text = re.sub(r"-?\d+\.\d{4,}(e[+-]?\d+)?", _short, text)
    return hashlib.sha256(text.replace(__version__, "").encode()).hexdigest()[:12]


def compare(what: str, parts: dict[str, str], *folders: Path) -> None:
    """Compare the parts of something with those that are kept, whatever `folders` they name."""
    for folder in folders:
        parts = {name: text.replace(str(folder), "") for name, text in parts.items()}
    found = {name: _digest(text) for name, text in parts.items()}
    if "KEEP" in os.environ:
        KEPT.update({what: found, "matplotlib": mpl.__version__})
        lines = [f"{json.dumps(key)}: {json.dumps(KEPT[key])}" for key in sorted(KEPT)]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    known = KEPT.get(what, {})
    drawn = mpl.__version__ == KEPT["matplotlib"]
    for name in {**found, **known}:
        if drawn or "<svg" not in name:
            same = found.get(name) == known.get(name)
            assert same, f"{what}: {name} differs; tests/kept.py\n{parts.get(name, 'not there')}"


def compare_page(what: str, html: str, *folders: Path) -> None:
    """Compare a page, without its style sheet and its script, by its chapters and figures."""
    body = re.sub(r"<script.*?</script>", "", html[html.index("<body") :], flags=re.DOTALL)
    words = re.split(r"(?=<section\b)", re.sub(PLOT, "", body, flags=re.DOTALL))
    parts = {part.split(">")[0]: part for part in words} | dict(re.findall(PLOT, body, re.DOTALL))
    compare(what, parts, *folders)
