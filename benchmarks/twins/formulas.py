"""Slow and obvious: formulas evaluated one number at a time, sets of formulas found by trying every
string of tokens.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from jbrl.agents.opps.formulas import BINARY, TOKENS, UNARY, VARIABLES


class UndefinedError(Exception):
    """Division by exactly zero, logarithm of a number that is not positive, root of a
    negative one.
    """


def evaluate(tokens: tuple[str, ...], q: tuple, number: type = np.float64):
    """Return the value of a postfix formula at the point `q` of three numbers, computed in
    precision `number`.
    """
    stack = []
    for token in tokens:
        if token in VARIABLES:
            stack.append(number(q[VARIABLES.index(token)]))
        elif token in UNARY:
            stack.append(number(_unary(token, stack.pop(), number)))
        else:
            b, a = stack.pop(), stack.pop()
            stack.append(number(_binary(token, a, b)))
    assert len(stack) == 1
    return stack[0]


def _unary(token: str, a, number: type):
    if token == "abs":
        return abs(a)
    if token == "neg":
        return -a
    if token == "inv":
        return _binary("/", number(1), a)
    if token == "sqrt":
        if a < 0:
            raise UndefinedError
        return np.sqrt(a)
    if a <= 0:
        raise UndefinedError
    return number(math.log(a))


def _binary(token: str, a, b):
    if token == "/":
        if b == 0:
            raise UndefinedError
        return a / b
    return {"+": a + b, "-": a - b, "*": a * b, "min": min(a, b), "max": max(a, b)}[token]


def values(tokens: tuple[str, ...], coordinates: np.ndarray) -> np.ndarray:
    """Return values at all points [3, P], NaN where undefined."""
    stack: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for token in tokens:
            if token in VARIABLES:
                stack.append(coordinates[VARIABLES.index(token)])
                continue
            operation = _ARRAYS[token]
            arguments = [stack.pop() for _ in range(operation.nin)][::-1]
            found = operation(*arguments) + 0.0
            stack.append(np.where(np.isfinite(found), found, np.nan))
    return stack[0]


_ARRAYS = {
    "abs": np.abs,
    "neg": np.negative,
    "inv": np.reciprocal,
    "sqrt": np.sqrt,
    "log": np.log,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}


def strings(size: int) -> Iterator[tuple[str, ...]]:
    """Yield every string of `size` tokens that is a postfix formula, in the order of `TOKENS`, the
    last position varying fastest.
    """
    for tokens in itertools.product(TOKENS, repeat=size):
        depth = 0
        for token in tokens:
            depth += 1 if token in VARIABLES else 0 if token in UNARY else -1
            if depth < 1 or (token in UNARY + BINARY and depth == 0):
                break
        else:
            if depth == 1:
                yield tokens


def signed_set(size: int, coordinates: np.ndarray) -> list[tuple[str, ...]]:
    """Return F_size: of all formulas defined at all points, the first of each ranking."""
    seen, kept = set(), []
    for n in range(1, size + 1):
        for tokens in strings(n):
            found = values(tokens, coordinates)
            if np.isnan(found).any():
                continue
            ranking = tuple(np.argsort(found, kind="stable"))
            if ranking not in seen:
                seen.add(ranking)
                kept.append(tokens)
    return kept


def value_set(
    size: int, coordinates: np.ndarray, required: int, ranked: int
) -> list[tuple[str, ...]]:
    """Return F_size for non-negative values: a formula is dropped when another is defined wherever
    it is and ranks these points alike.

    Args:
      required: formulas must be defined at the first so many points.
      ranked: points from this one on are ranked.
    """
    kept: list[tuple] = []
    for n in range(1, size + 1):
        found = [(tokens, values(tokens, coordinates)) for tokens in strings(n)]
        found = [
            (tokens, _rounded(v[ranked:]))
            for tokens, v in found
            if not np.isnan(v[:required]).any()
        ]
        fresh: list[tuple] = []
        for i, (tokens, own) in enumerate(found):
            earlier = kept + found[:i]
            beaten_later = any(_covers(v, own) and not _covers(own, v) for _, v in found[i + 1 :])
            if not beaten_later and not any(_covers(v, own) for _, v in earlier):
                fresh.append((tokens, own))
        kept += fresh
    return [tokens for tokens, _ in kept]


def _rounded(numbers: np.ndarray) -> np.ndarray:
    return np.array([float(f"{number:.10g}") for number in numbers]) + 0.0


def _covers(one: np.ndarray, other: np.ndarray) -> bool:
    where = ~np.isnan(other)
    if np.isnan(one[where]).any():
        return False
    return np.array_equal(
        np.argsort(one[where], kind="stable"), np.argsort(other[where], kind="stable")
    )
