r"""Small formulas over three Q-functions: the strategy space of OPPS-DS.

A strategy ranks the actions of the current state by the value of a formula of three variables,

    Q0  Q-function of the mean model of the prior,
    Q1  Q-function of a model in which every action is believed to be a self-loop,
    Q2  Q-function of a model in which every next state is believed equally likely,

each updated with the real transitions. Operators: absolute value, opposite, inverse, square root,
logarithm; sum, difference, product, quotient, minimum, maximum. Castronovo et al. 2016,
section 5.1.4.

A formula is read in infix, postfix or LaTeX notation. The grammar of the first and the last:

sum     = ["-"] product {("+" | "-") product}
product = (factor | "1/" factor) {("*" | "/") factor}
factor  = "-" factor | variable | "(" sum ")" | "|" sum "|" | name "(" sum ["," sum] ")"
        | \frac{sum}{sum} | \frac{1}{sum} | \sqrt{sum}
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from jbrl.base.errors import JbrlError, nearest, shown

if TYPE_CHECKING:
    import pandas as pd

VARIABLES = ("Q0", "Q1", "Q2")
UNARY = ("abs", "neg", "inv", "sqrt", "log")
BINARY = ("+", "-", "*", "/", "min", "max")
# The order in which formulas of one size are listed: operators that accept every number come before
# those that may fail.
TOKENS = (*VARIABLES, "abs", "neg", "+", "-", "*", "min", "max", "/", "inv", "sqrt", "log")
LARGEST_SIZE = 32  # tokens of one formula
DOMAINS = ("signed", "values")
LARGEST_SET = 6
SETS = tuple(f"F{n}" for n in range(1, LARGEST_SET + 1))

CODES = "012an+-*<>/isl"  # one character per token, same order: how the shipped sets are written
_SUM, _PRODUCT, _ATOM = 1, 2, 3  # how tightly a printed formula holds together


@dataclass(frozen=True)
class Expression:
    """A formula, as the tuple of its tokens in postfix order. Compares and hashes by them.

    Raises:
      JbrlError: unknown token, operand missing or left over, more than `LARGEST_SIZE` tokens.
    """

    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        check(self.tokens, [f"token {i + 1}" for i in range(len(self.tokens))], self.rpn)

    @property
    def size(self) -> int:
        """Number of variables and operators."""
        return len(self.tokens)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that occur, in the order of `VARIABLES`: only these models have to
        be maintained.
        """
        return tuple(v for v in VARIABLES if v in self.tokens)

    @property
    def rpn(self) -> str:
        """Postfix notation: `Q0 Q2 abs max`."""
        return " ".join(self.tokens)

    @property
    def text(self) -> str:
        """Infix notation: `max(Q0,|Q2|)`. `parse` reads it back to the same tokens."""
        return _fold(self.tokens, _text)

    @property
    def latex(self) -> str:
        r"""LaTeX, without dollar signs: `\max\left(Q_0, \left|Q_2\right|\right)`."""
        return _fold(self.tokens, _latex)

    def __str__(self) -> str:
        return self.text


def check(tokens: Sequence[str], places: Sequence[str], text: str) -> None:
    """Raise `JbrlError` unless `tokens` are one formula in postfix order; `places` say where each
    token stands in `text`.
    """
    given = shown(text, str)
    if not tokens:
        raise JbrlError(
            f"formula '{given}': empty; expected a formula such as 'Q0/Q2' or 'Q0 Q2 /'"
        )
    if len(tokens) > LARGEST_SIZE:
        raise JbrlError(
            f"formula '{given}': {len(tokens)} variables and operators; at most "
            f"{LARGEST_SIZE} are accepted"
        )
    depth = 0
    for token, place in zip(tokens, places, strict=True):
        if token not in TOKENS:
            raise JbrlError(
                f"formula '{given}': {place}: unknown variable or operator "
                f"'{shown(token, str)}'{nearest(token, TOKENS)}"
            )
        wanted = operands(token)
        if depth < wanted:
            raise JbrlError(
                f"formula '{given}': {place}: '{token}' needs {wanted} "
                f"operand{'s' * (wanted > 1)}, found {depth}"
            )
        depth += 1 - wanted
    if depth > 1:
        raise JbrlError(
            f"formula '{given}': {depth} values are left over; expected one: an operator is "
            "missing at the end"
        )


def operands(token: str) -> int:
    """Return the number of operands of a token: 0 for a variable, 1 or 2."""
    return 0 if token in VARIABLES else 1 if token in UNARY else 2


def _fold(
    tokens: tuple[str, ...], printer: Callable[[str, list[tuple[str, int]]], tuple[str, int]]
) -> str:
    """Print a postfix formula: `printer(token, operands)` makes (text, level) from the (text,
    level) of its operands.
    """
    stack: list[tuple[str, int]] = []
    for token in tokens:
        first = len(stack) - operands(token)
        stack[first:] = [printer(token, stack[first:])]
    return stack[0][0]


def _in(part: tuple[str, int], level: int, brackets: tuple[str, str] = ("(", ")")) -> str:
    """Return a printed operand, in brackets when it binds less tightly than `level`."""
    text, own = part
    return text if own >= level else brackets[0] + text + brackets[1]


def _text(token: str, parts: list[tuple[str, int]]) -> tuple[str, int]:
    if token in VARIABLES:
        return token, _ATOM
    if token == "abs":
        return f"|{parts[0][0]}|", _ATOM
    if token == "neg":
        return "-" + _in(parts[0], _PRODUCT), _SUM
    if token == "inv":
        return "1/" + _in(parts[0], _ATOM), _PRODUCT
    if token in ("+", "-"):
        return _in(parts[0], _SUM) + token + _in(parts[1], _PRODUCT), _SUM
    if token in ("*", "/"):
        return _in(parts[0], _PRODUCT) + token + _in(parts[1], _ATOM), _PRODUCT
    return f"{token}({','.join(text for text, _ in parts)})", _ATOM


def _latex(token: str, parts: list[tuple[str, int]]) -> tuple[str, int]:
    tall = (r"\left(", r"\right)")
    if token in VARIABLES:
        return f"{token[0]}_{token[1]}", _ATOM
    if token == "abs":
        return rf"\left|{parts[0][0]}\right|", _ATOM
    if token == "neg":
        return "-" + _in(parts[0], _PRODUCT, tall), _SUM
    if token == "inv":
        return rf"\frac{{1}}{{{parts[0][0]}}}", _ATOM
    if token in ("+", "-"):
        return f"{_in(parts[0], _SUM, tall)} {token} {_in(parts[1], _PRODUCT, tall)}", _SUM
    if token == "*":
        return rf"{_in(parts[0], _PRODUCT, tall)} \cdot {_in(parts[1], _ATOM, tall)}", _PRODUCT
    if token == "/":
        return rf"\frac{{{parts[0][0]}}}{{{parts[1][0]}}}", _ATOM
    if token == "sqrt":
        return rf"\sqrt{{{parts[0][0]}}}", _ATOM
    return rf"\{token}\left({', '.join(text for text, _ in parts)}\right)", _ATOM


@functools.cache
def formula_set(name: str, domain: str = "signed") -> tuple[Expression, ...]:
    """Return the set F_n: one formula for each way to rank that formulas of at most n tokens can
    express, ordered by size, then token order.

    Args:
      name: `F1` … `F6`. Each set begins with the one before it.
      domain: `signed`: rankings of points of [-100, 100]^3, the reduction of the paper. `values`:
        rankings of what Q-functions can be when no reward is negative, a smaller set
        (`evaluation.value_points` beyond the first).

    Returns: the shipped set. `experiments/formula_sets.py` computes it.

    Raises:
      JbrlError: unknown name or domain.
    """
    if name not in SETS:
        raise JbrlError(f"formula set '{name}': unknown{nearest(name, SETS)}")
    largest = int(name[1:])
    return tuple(Expression(tokens) for tokens in _shipped(domain) if len(tokens) <= largest)


@functools.cache
def _shipped(domain: str) -> tuple[tuple[str, ...], ...]:
    if domain not in DOMAINS:
        raise JbrlError(f"domain of a formula set: '{domain}' is unknown{nearest(domain, DOMAINS)}")
    file = resources.files(__package__) / "data" / f"{domain}.txt"
    return tuple(decode(line) for line in file.read_text(encoding="ascii").split())


def decode(line: str) -> tuple[str, ...]:
    """Return the tokens of a line of a shipped set, one character each."""
    return tuple(TOKENS[CODES.index(code)] for code in line)


def formula_table(name: str, domain: str = "signed") -> "pd.DataFrame":
    """Return a formula set as a table: columns rank (from 1), rpn, text, latex, size, variables
    (separated by spaces).

    Raises:
      JbrlError: unknown name or domain.
    """
    import pandas as pd  # here because agents are imported for playing, which needs no tables

    rows = [
        (rank, e.rpn, e.text, e.latex, e.size, " ".join(e.variables))
        for rank, e in enumerate(formula_set(name, domain), start=1)
    ]
    return pd.DataFrame(rows, columns=["rank", "rpn", "text", "latex", "size", "variables"])


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
        place = f"found '{shown(self.word.text, str)}', " if self.word.text else "the text ends, "
        _fail(self.text, self.word, place + what)

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
