r"""Reading formulas, in infix, postfix or LaTeX notation. The grammar:

sum     = ["-"] product {("+" | "-") product}
product = (factor | "1/" factor) {("*" | "/") factor}
factor  = "-" factor | variable | "(" sum ")" | "|" sum "|" | name "(" sum ["," sum] ")"
        | \frac{sum}{sum} | \frac{1}{sum} | \sqrt{sum}
"""

import re
from typing import NamedTuple, NoReturn

from jbrl.agents.opps.formulas import (
    BINARY,
    LARGEST_SIZE,
    UNARY,
    VARIABLES,
    Expression,
    check,
    operands,
)
from jbrl.base.errors import JbrlError, shown

_SPELLINGS = {
    "−": "-",
    "–": "-",
    "÷": "/",
    "×": "*",
    "·": "*",
    r"\cdot": "*",
    r"\times": "*",
    "ln": "log",
    r"\ln": "log",
}
_LEXEME = re.compile(
    r"\s*(?:\\left|\\right|\\[,;!])*\s*(Q_\{\d+\}|Q_?\d+|\\?[A-Za-z_][A-Za-z_0-9]*|"
    r"\d+(?:\.\d+)?|\S|$)"
)
_NAMES = (*UNARY, "min", "max")
_DEEPEST = 4 * LARGEST_SIZE  # brackets within brackets


class Word(NamedTuple):
    text: str  # "" at the end
    position: int  # of its first character, counted from 1


def parse(text: str) -> Expression:
    """Return the formula that `text` describes: infix or LaTeX (`max(Q0,|Q2|)`), or postfix when
    its last word is an operator (`Q0 Q2 abs max`).

    Raises:
      JbrlError: with the position in `text`, counted from 1, and what is accepted there.
    """
    if not isinstance(text, str):
        raise JbrlError(f"formula {shown(text)}: expected a text such as 'Q0/Q2'")
    words = text.split()
    return parse_rpn(text) if words and words[-1] in (*UNARY, *BINARY) else parse_infix(text)


def parse_rpn(text: str) -> Expression:
    """Parse `text` in postfix notation, tokens separated by spaces: `Q0 Q2 /`.

    Raises:
      JbrlError: with the position in `text`, counted from 1.
    """
    words = [Word(match.group(), match.start() + 1) for match in re.finditer(r"\S+", text)]
    check([word.text for word in words], [f"position {word.position}" for word in words], text)
    return Expression(tuple(word.text for word in words))


def parse_infix(text: str) -> Expression:
    """Parse `text` in infix or LaTeX notation.

    Raises:
      JbrlError: with the position in `text`, counted from 1, and what is accepted there.
    """
    reader = _Reader(text)
    reader.sum()
    if reader.word.text:
        reader.fail("expected an operator (+ - * /) or the end")
    return Expression(tuple(reader.tokens))


def _fail(text: str, word: Word, what: str) -> NoReturn:
    raise JbrlError(f"formula '{shown(text, str)}': position {word.position}: {what}")


class _Reader:
    """Recursive descent; appends tokens in postfix order as it goes."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[str] = []
        self.depth = 0
        self.words = [
            Word(_spelling(match.group(1)), match.start(1) + 1) for match in _LEXEME.finditer(text)
        ]
        self.next = 0

    @property
    def word(self) -> Word:
        return self.words[self.next]

    def fail(self, what: str) -> NoReturn:
        found = f"found '{shown(self.word.text, str)}', " if self.word.text else "the text ends, "
        _fail(self.text, self.word, found + what)

    def take(self, *texts: str) -> str:
        """Return the current word and move on if it is one of `texts`, else return ""."""
        text = self.word.text
        if not text or text not in texts:
            return ""
        self.next += 1
        return text

    def expect(self, text: str) -> None:
        if not self.take(text):
            self.fail(f"expected '{text}'")

    def sum(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.fail(f"more than {_DEEPEST} brackets within brackets")
        opposite = self.take("-")
        self.product()
        if opposite:
            self.tokens.append("neg")
        while operator := self.take("+", "-"):
            self.product()
            self.tokens.append(operator)
        self.depth -= 1

    def product(self) -> None:
        if self.one():
            self.expect("/")
            self.factor()
            self.tokens.append("inv")
        else:
            self.factor()
        while operator := self.take("*", "/"):
            self.factor()
            self.tokens.append(operator)

    def one(self) -> bool:
        """Read a number: only 1 is accepted, and only in a reciprocal."""
        if self.word.text[:1].isdigit() and self.word.text != "1":
            self.fail("no number but the 1 of 1/… is accepted")
        return bool(self.take("1"))

    def factor(self) -> None:
        minuses = 0
        while self.take("-"):
            minuses += 1
        if self.word.text in VARIABLES:
            self.tokens.append(self.take(*VARIABLES))
        elif closing := {"(": ")", "{": "}", "|": "|"}.get(self.word.text):
            self.next += 1
            self.sum()
            self.expect(closing)
            if closing == "|":
                self.tokens.append("abs")
        elif name := self.take(*_NAMES):
            self.call(name)
        elif self.take("frac"):
            self.fraction()
        else:
            self.refuse()
        self.tokens.extend(["neg"] * minuses)

    def call(self, name: str) -> None:
        closing = "}" if self.take("{") else ")"
        if closing == ")":
            self.expect("(")
        self.sum()
        if operands(name) == 2:
            self.expect(",")
            self.sum()
        self.expect(closing)
        self.tokens.append(name)

    def fraction(self) -> None:
        self.expect("{")
        inverse = self.word.text == "1" and self.words[self.next + 1].text == "}"
        if inverse:
            self.next += 1
        else:
            self.sum()
        self.expect("}")
        self.expect("{")
        self.sum()
        self.expect("}")
        self.tokens.append("inv" if inverse else "/")

    def refuse(self) -> NoReturn:
        accepted = (
            f"expected a variable ({', '.join(VARIABLES)}), a function ({', '.join(_NAMES)}), "
            "1/…, -…, (…) or |…|"
        )
        text = self.word.text
        if text[:1].isalpha() or (text[:1] in "_\\" and text):
            _fail(
                self.text,
                self.word,
                f"unknown variable or function '{shown(text, str)}', {accepted}",
            )
        self.fail(accepted)


def _spelling(word: str) -> str:
    """Replace each symbol by its one spelling."""
    word = _SPELLINGS.get(word, word)
    if re.fullmatch(r"Q_\{\d+\}|Q_?\d+", word):
        return "Q" + "".join(filter(str.isdigit, word))
    return word[1:] if word[:1] == "\\" and word[1:] in ("frac", *_NAMES) else word
