"""The formula sets that jbrl ships: one formula for each ranking that formulas of at most n tokens
can express.

All postfix expressions of one size are built from those of the smaller sizes. An agent compares the
values of a formula, it does not use them: two formulas that rank points alike are one strategy, and
the first in the order (size, `TOKENS` from the left) stands for both.

Ranking alike is no congruence. |Q0| and log|Q0| rank alike, |Q0| - Q1 and log|Q0| - Q1 do not: were
log|Q0| dropped as soon as it is met, the second would be missing. What may be dropped while
building is a sub-formula whose *values* equal those of an earlier one, to the last bit at all
points: putting the earlier one in its place changes no value of any formula around it, and makes
the formula shorter or puts it earlier in the order. So the first formula of each ranking has only
sub-formulas that are kept, and the result is the one that trying every string of tokens would give.

python experiments/formula_sets.py: writes the sets that `formulas.formula_set` reads.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from jbrl.agents.opps import evaluation, formulas
from jbrl.agents.opps.evaluation import OPERATIONS, SEED
from jbrl.agents.opps.formulas import BINARY, DOMAINS, LARGEST_SET, TOKENS, UNARY
from jbrl.base.errors import JbrlError, nearest

_SIGNIFICANT_BITS = 32

Form = tuple[int, ...]  # postfix, as positions in TOKENS


@dataclass(frozen=True)
class Ranking:
    """Order in which a formula ranks points."""

    # [ranked points] int16, points by increasing value, ties by number; the points where it is
    # undefined come last
    order: np.ndarray
    defined: int  # number of points where it is defined


@dataclass(frozen=True)
class Points:
    """Points at which formulas are compared."""

    coordinates: np.ndarray  # [3, P] float64, values of Q0, Q1, Q2
    required: int  # a formula must be defined at the first so many points
    ranked: int  # points from this one on are ranked
    rounded: bool  # values are rounded before they are ranked


def signed_points(seed: int, n_points: int = 1000) -> Points:
    """Return uniform points of [-100, 100]^3, as in Castronovo et al. 2016; formulas must be
    defined at all of them.
    """
    coordinates = evaluation.value_points(seed, n_points)[:, :n_points]
    return Points(coordinates, required=n_points, ranked=0, rounded=False)


def value_points(seed: int, n_points: int = 1000) -> Points:
    """Return possible values of the Q-functions when no reward is negative.

    A formula need not be defined where variables are 0 or equal. The points of `signed_points` come
    first and are not ranked: they keep the language that of the paper, where log(Q0) is no formula
    but log|Q0| is.
    """
    coordinates = evaluation.value_points(seed, n_points)
    return Points(coordinates, required=2 * n_points, ranked=n_points, rounded=True)


def enumerate_set(
    size: int, domain: str = "signed", seed: int = SEED, n_points: int = 1000
) -> tuple[tuple[str, ...], ...]:
    """Return the formulas of F_size, tokens in postfix order, by size and then token order.

    F6 takes seconds.

    Kept are the first formulas of each ranking. A formula that is undefined at some points of
    `value_points` gives way to one that ranks the remaining points alike and is defined at more:
    -Q0 stands for 1/Q0.

    Args:
      size: largest number of tokens, 1 to 6.
      domain: `signed` or `values`: which of the two sets of points.
      seed: of the points.

    Raises:
      JbrlError: size or domain not accepted.
    """
    if domain not in DOMAINS:
        raise JbrlError(f"domain of a formula set: '{domain}' is unknown{nearest(domain, DOMAINS)}")
    if not 1 <= size <= LARGEST_SET:
        raise JbrlError(
            f"size of a formula set: {size!r} is not accepted; expected 1 to {LARGEST_SET}"
        )
    points = signed_points(seed, n_points) if domain == "signed" else value_points(seed, n_points)
    classes: dict[bytes, list[Ranking]] = {}
    kept: list[Form] = []
    for ranked in _rankings(points, size):
        kept += _new_behaviours(ranked, classes, points.required - points.ranked)
    return tuple(tuple(TOKENS[t] for t in form) for form in kept)


def _rankings(points: Points, size: int) -> Iterator[list[tuple[Form, Ranking]]]:
    """Yield, for each size up to `size`, the formulas that differ in value from all earlier ones,
    in order, with their rankings.
    """
    levels: list[list[Form]] = [[]]
    values: list[np.ndarray] = [np.empty((0, 0))]
    seen: set[bytes] = set()
    for now in range(1, size + 1):
        forms: dict[bytes, Form] = {}
        rankings: dict[bytes, Ranking] = {}
        rows: dict[bytes, np.ndarray] = {}
        for form, row in _built(now, levels, values, points):
            digest = blake2b(row.data, digest_size=16).digest()
            if digest in seen:
                continue
            if digest not in forms:
                rankings[digest] = rank(row, points)
                if now < size:
                    rows[digest] = row.copy()
            forms[digest] = min(form, forms.get(digest, form))
        seen.update(forms)
        ordered = sorted(forms, key=forms.__getitem__)
        yield [(forms[digest], rankings[digest]) for digest in ordered]
        levels.append([forms[digest] for digest in ordered])
        values.append(np.array([rows[digest] for digest in ordered if digest in rows]))


def _built(
    size: int, levels: list[list[Form]], values: list[np.ndarray], points: Points
) -> Iterator[tuple[Form, np.ndarray]]:
    """Yield every defined formula of `size` tokens made of the kept formulas of smaller sizes, with
    its values [P].
    """
    if size == 1:
        yield from (((i,), row + 0.0) for i, row in enumerate(points.coordinates))
        return
    for operator in UNARY:
        rows, numbers = _apply(operator, points.required, values[size - 1])
        suffix = (TOKENS.index(operator),)
        yield from (
            (levels[size - 1][i] + suffix, row) for i, row in zip(numbers, rows, strict=True)
        )
    for left in range(1, size - 1):
        right = size - 1 - left
        for form, row in zip(levels[left], values[left], strict=True):
            for operator in BINARY:
                rows, numbers = _apply(operator, points.required, row, values[right])
                suffix = (TOKENS.index(operator),)
                yield from (
                    (form + levels[right][i] + suffix, row)
                    for i, row in zip(numbers, rows, strict=True)
                )


def _apply(operator: str, required: int, *arguments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values [k, P] of the results that are defined where they must be (NaN where they are
    not elsewhere), and their row numbers [k].
    """
    with np.errstate(all="ignore"):
        made = OPERATIONS[operator](*arguments)
    finite = np.isfinite(made)
    numbers = np.flatnonzero(finite[:, :required].all(axis=1))
    # Adding 0 makes -0 a 0: they are equal, their bytes are not.
    return np.where(finite[numbers], made[numbers] + 0.0, np.nan), numbers


def rank(row: np.ndarray, points: Points) -> Ranking:
    """Return how values [P], NaN where undefined, rank the points."""
    ranked = row[points.ranked :]
    if points.rounded:
        # Formulas equal but for rounding, such as Q0*(1/Q0) and Q0-Q0, must tie like constants.
        mantissa, exponent = np.frexp(ranked)
        ranked = np.ldexp(np.round(mantissa * 2.0**_SIGNIFICANT_BITS), exponent)
    return Ranking(
        np.argsort(ranked, kind="stable").astype(np.int16), int(np.isfinite(ranked).sum())
    )


def covers(one: Ranking, other: Ranking) -> bool:
    """Return whether `one` is defined wherever `other` is and ranks these points alike."""
    if one.defined < other.defined:
        return False
    wanted = np.zeros(len(other.order), bool)
    wanted[other.order[: other.defined]] = True
    shared = one.order[: one.defined]
    return np.array_equal(shared[wanted[shared]], other.order[: other.defined])


def _new_behaviours(
    ranked: list[tuple[Form, Ranking]], classes: dict[bytes, list[Ranking]], inside: int
) -> list[Form]:
    """Return the formulas of one size that no smaller one covers, without those covered by another
    of them; add them to `classes`.

    Args:
      classes: rankings kept so far, by their order of the first `inside` points, where all
        are defined.
    """
    fresh: dict[bytes, list[tuple[Form, Ranking]]] = {}
    for form, ranking in ranked:
        key = ranking.order[ranking.order < inside].tobytes()
        rivals = fresh.setdefault(key, [])
        if any(covers(old, ranking) for old in classes.get(key, [])) or any(
            covers(rival, ranking) for _, rival in rivals
        ):
            continue
        fresh[key] = [(f, r) for f, r in rivals if not covers(ranking, r)] + [(form, ranking)]
    for key, rivals in fresh.items():
        if rivals:
            classes.setdefault(key, []).extend(r for _, r in rivals)
    return sorted(form for rivals in fresh.values() for form, _ in rivals)


def encode(tokens: Sequence[str]) -> str:
    """Encode tokens, one character each: the inverse of `formulas.decode`."""
    return "".join(formulas.CODES[TOKENS.index(token)] for token in tokens)


def ship(folder: Path) -> None:
    """Write the sets that `formulas.formula_set` reads: F6 of each domain, of which the smaller
    sets are the beginning.
    """
    for domain in DOMAINS:
        lines = [encode(tokens) for tokens in enumerate_set(LARGEST_SET, domain)]
        (folder / f"{domain}.txt").write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    ship(Path(formulas.__file__).parent / "data")
