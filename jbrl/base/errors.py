"""Errors that the user can correct: one clear sentence, never a traceback."""

import contextlib
import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

Entry = TypeVar("Entry")


class JbrlError(ValueError):
    """Bad input. The message names the place, the field, the value and what would be accepted."""


class JbrlWarning(UserWarning):
    """Warning about results, to be read before they are used: one sentence."""


class UnknownNameError(JbrlError, KeyError):
    """A name that a register lacks."""

    __str__ = Exception.__str__  # that of `KeyError` quotes


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Put a place in front of the message of a `JbrlError`."""
    try:
        yield
    except JbrlError as error:
        raise JbrlError(f"{where}: {error}") from None


LONGEST = 80  # characters of a value in a message
MOST = 100  # names in a message
MAX_COUNT = 2**31 - 1
CUTOFF = 0.6  # of the similarity of names; in short ones one letter of two may be wrong


def shown(value: object, text: Callable[[object], str] = repr) -> str:
    """Return a value as a message shows it: whole if it is short, for any value.

    Args:
      text: writes the value, for example `str` for a word that needs no quotes.
    """
    try:
        written = text(value)
    except ValueError:  # Python writes no integers of more than 4,300 digits
        return "an integer of thousands of digits"
    except RecursionError:
        return "a value nested too deeply"
    written = " ".join(written.split()) if "\n" in written else written  # of an array
    return written if len(written) <= LONGEST else written[: LONGEST - 1] + "…"


def expect(name: str, value: object, kinds: type | UnionType, accepted: str) -> None:
    """Refuse a value that is of none of `kinds`; the message says what is accepted."""
    if not isinstance(value, kinds):
        raise JbrlError(f"{name} = {shown(value)}: expected {accepted}")


def check_count(name: str, value: object, high: int = MAX_COUNT, low: int = 1) -> None:
    """Refuse a value that is no integer from `low` to `high`."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not low <= value <= high:  # type: ignore[operator]
        raise JbrlError(f"{name} = {value!r}: expected an integer from {low} to {high}")


def check_discount(value: Any) -> None:
    """Raise `JbrlError` unless `value` is a number in [0, 1)."""
    if not (isinstance(value, int | float) and 0 <= value < 1):
        raise JbrlError(
            f"discount = {shown(value)}: expected a number from 0 up to, but not including, 1"
        )


def check_choice(name: str, value: object, accepted: Sequence[str]) -> None:
    """Refuse a value that is none of those `accepted`, two or more."""
    if value not in accepted:
        *others, last = map(repr, accepted)
        raise JbrlError(f"{name} = {shown(value)}: expected {', '.join(others)} or {last}")


def as_path(name: str, value: object) -> Path:
    """Return a value as a path.

    Raises:
      JbrlError: neither a text nor a path, or one with a null byte, which no file has.
    """
    expect(name, value, str | PathLike, "a path")
    if "\0" in str(value):
        raise JbrlError(f"{name} = {shown(value)}: expected a path")
    return Path(value)  # type: ignore[arg-type]


def listed(names: Iterable[object]) -> str:
    """Return names as a message lists them: the first ones where there are many."""
    names = list(names)
    more = f" and {len(names) - MOST:,} more" if len(names) > MOST else ""
    return ", ".join(shown(name, str) for name in names[:MOST]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the text to append to «unknown …»: the nearest known name, if one is near, and those
    that are known.
    """
    known = sorted(known)
    folded = {k.casefold(): k for k in known}
    word = str(name).casefold()
    close = (
        difflib.get_close_matches(word, list(folded), n=1, cutoff=CUTOFF if len(word) > 3 else 0.5)
        if len(word) <= LONGEST
        else []
    )
    guess = f"; did you mean '{folded[close[0]]}'?" if close else ""
    return f"{guess} (known: {listed(known)})"


def bytes_text(n: float) -> str:
    """Return a number of bytes in words: `1.2 GiB`, `256 MiB`, `1,000 bytes`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n >= unit:
            return f"{n / unit:{'.0f' if n >= 100 * unit else '.3g'}} {name}"
    return f"{n:,.0f} bytes"


class Register(dict[str, Entry]):
    """Entries by name; an unknown one raises `UnknownNameError`, which says the nearest."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, name: str) -> Entry:
        raise UnknownNameError(f"unknown {self._kind} '{shown(name, str)}'{nearest(name, self)}")


def with_hints(made: type[Entry], name: str) -> type[Entry]:
    """Make a dataclass say which parameters it has where it is called with another one."""
    original, known = made.__init__, [f.name for f in dataclasses.fields(made)]  # type: ignore

    @functools.wraps(original)
    def initialise(self: Any, *values: Any, **named: Any) -> None:
        try:
            original(self, *values, **named)
        except TypeError as error:
            unknown = next((word for word in named if word not in known), None)
            if unknown is None:
                raise
            raise TypeError(
                f"{name}: unknown parameter '{unknown}'{nearest(unknown, known)}"
            ) from error

    made.__init__ = initialise  # type: ignore[method-assign]
    return made
