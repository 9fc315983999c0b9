"""Errors that are the user's to mend: one clear sentence, never a traceback."""

import difflib
from collections.abc import Iterable


class JbrlError(Exception):
    """Bad input. The message names the place, the field, the value and what would be accepted."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Text to append to «unknown …»: the nearest known name, if one is near, and all that are known."""
    known = sorted(known)
    folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(str(name).casefold(), list(folded), n=1, cutoff=0.5)
    guess = f"; did you mean '{folded[close[0]]}'?" if close else ""
    return f"{guess} (known: {', '.join(known)})"
