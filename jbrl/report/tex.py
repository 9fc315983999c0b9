r"""Text for LaTeX: any text becomes source that is set as that text, by pdfLaTeX with the
encoding T1.

Letters of Latin-1 and Latin Extended-A are known to LaTeX; Greek letters and signs that reports use
become commands; what no font at hand has is written as its code, U+65E5, rather than lost
or refused.
"""

import re
import unicodedata

COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "[": "{[}",  # after \\ it would begin an argument
    "]": "{]}",
    "*": "{*}",
    "\N{NO-BREAK SPACE}": "~",
    "\N{THIN SPACE}": r"\,",
    "\N{MICRO SIGN}": r"\textmu{}",
    "\N{EN DASH}": r"\textendash{}",
    "\N{EM DASH}": r"\textemdash{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{RIGHT SINGLE QUOTATION MARK}": r"\textquoteright{}",
    "\N{LEFT SINGLE QUOTATION MARK}": r"\textquoteleft{}",
    "\N{LEFT DOUBLE QUOTATION MARK}": r"\textquotedblleft{}",
    "\N{RIGHT DOUBLE QUOTATION MARK}": r"\textquotedblright{}",
    "\N{EURO SIGN}": r"\texteuro{}",
}
SIGNS = {
    "±": "pm",
    "≈": "approx",
    "×": "times",
    "÷": "div",
    "¬": "neg",
    "−": "-",
    "√": "surd",
    "→": "rightarrow",
    "←": "leftarrow",
    "≤": "leq",
    "≥": "geq",
    "≠": "neq",
    "∞": "infty",
    "·": "cdot",
}
_LETTERS = {
    "αβγδεζηθικλμνξ": "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi",
    "πρσςτυφχψω": "pi rho sigma varsigma tau upsilon varphi chi psi omega",
    "ΓΔΘΛΞΠΣΥΦΨΩ": "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega",
}
GREEK = {
    letter: name
    for letters, names in _LETTERS.items()
    for letter, name in zip(letters, names.split(), strict=True)
}
LOWERED = {chr(0x2080 + k): str(k) for k in range(10)}
_MATHS = {**SIGNS, **GREEK}


class Tex(str):
    """LaTeX source, not to be escaped again."""

    __slots__ = ()


def escape(text: object) -> Tex:
    """Return source that LaTeX sets as `text`; `Tex` stays as it is."""
    if isinstance(text, Tex):
        return text
    found = re.sub(
        r"[\s\x00-\x1f\x7f-\x9f]",
        lambda c: c.group() if c.group() in "\u00a0\u2009" else " ",
        str(text),
    )
    found = "".join(map(_character, unicodedata.normalize("NFC", found)))
    # two in a row would become a dash, or a quotation mark
    return Tex(re.sub("-(?=-)|,(?=,)", r"\g<0>{}", found))


def _character(c: str) -> str:
    if c in COMMANDS:
        return COMMANDS[c]
    if c in _MATHS:
        return r"\ensuremath{" + ("\\" if _MATHS[c].isalpha() else "") + _MATHS[c] + "}"
    if c in LOWERED:
        return r"\textsubscript{" + LOWERED[c] + "}"
    if c.isascii() or _known(c):
        return c
    return rf"\texttt{{U+{ord(c):04X}}}"


def _known(c: str) -> bool:
    """Return whether LaTeX knows the character in T1 or TS1: all but a few of Latin-1 and Latin
    Extended-A.
    """
    return 0xA1 <= ord(c) <= 0x17F and c not in "\u00adĦħĸĿŀŉŦŧſ"
