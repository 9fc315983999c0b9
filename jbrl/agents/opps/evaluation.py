"""Values of formulas on the device: as many different formulas as there are lanes, under one
compilation.

A formula becomes a list of instructions, one for each operator. An instruction combines two
operands a and b, each a variable or the result of an earlier instruction, by one of six families,
with signs s, t, w in {-1, 0, 1} that are data:

    sum s a + t b        maximum w max(s a, t b)        product a b        quotient (s a + w) / b
    logarithm log a        root sqrt a

so that a choice between six values, instead of one between eleven operators, serves lanes that run
different formulas. One 32-bit word holds an instruction. The loop over instructions is a real one:
were it unrolled, XLA would fuse them and compute each one again in all those after it.

On the host, `check_defined` computes a formula at the points that distinguish formulas.
"""

from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from jbrl.agents.opps.formulas import BINARY, VARIABLES, Expression, operands
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, static

_SUM, _MAXIMUM, _PRODUCT, _QUOTIENT, _LOGARITHM, _ROOT = range(6)
_COPY = (_SUM, 1, 0, 0)
_INSTRUCTIONS = {  # family, s, t, w; the operand b of a unary operator is a
    "neg": (_SUM, -1, 0, 0),
    "+": (_SUM, 1, 1, 0),
    "-": (_SUM, 1, -1, 0),
    "abs": (_MAXIMUM, 1, -1, 1),
    "max": (_MAXIMUM, 1, 1, 1),
    "min": (_MAXIMUM, -1, -1, -1),
    "*": (_PRODUCT, 0, 0, 0),
    "/": (_QUOTIENT, 1, 0, 0),
    "inv": (_QUOTIENT, 0, 0, 1),
    "log": (_LOGARITHM, 0, 0, 0),
    "sqrt": (_ROOT, 0, 0, 0),
}
# Shapes that programs are brought into, as (instructions, families, reach): what F3 needs, and what
# F6 needs.
_SHAPES = (
    (2, (_SUM, _MAXIMUM, _PRODUCT, _QUOTIENT), 1),
    (5, (_SUM, _MAXIMUM, _PRODUCT, _QUOTIENT, _LOGARITHM, _ROOT), 3),
)
# first bit and mask in a word
_FIELDS = {"family": (0, 7), "s": (3, 3), "t": (5, 3), "w": (7, 3), "a": (9, 63), "b": (15, 63)}


@record
class FormulaProgram:
    """One formula, or several stacked along a leading axis.

    K: instructions; shorter formulas end with copies.
    """

    words: Array  # [K] int32
    # those that occur, increasing: the others are not computed
    families: tuple[int, ...] = static()
    reach: int = static()  # an operand is a variable or one of so many last results


def programs(expressions: Sequence[Expression]) -> FormulaProgram:
    """Return the programs of B formulas, stacked along a leading axis, NumPy arrays: each lane may
    run another row.

    Raises:
      JbrlError: no formula.
    """
    if not expressions:
        raise JbrlError("programs: no formula is given; expected at least one")
    length = max(1, *(sum(token not in VARIABLES for token in e.tokens) for e in expressions))
    rows = [_instructions(e, length) for e in expressions]
    table = np.array(rows)  # [B, K, 6]
    words: Any = np.array([[_word(instruction) for instruction in row] for row in rows], np.int32)
    families = tuple(sorted(set(table[..., 0].ravel().tolist())))
    return FormulaProgram(
        words, families, reach=max(1, int(table[..., 4:].max()) - len(VARIABLES) + 1)
    )


def in_common_shape(program: FormulaProgram) -> FormulaProgram:
    """Return the same program in one of few shapes, so that most formulas share what is compiled
    for them.

    NumPy arrays.
    """
    words = np.asarray(program.words)
    for length, families, reach in _SHAPES:
        if (
            words.shape[-1] <= length
            and set(program.families) <= set(families)
            and program.reach <= reach
        ):
            copy = _word((*_COPY, len(VARIABLES), len(VARIABLES)))
            padding = np.full((*words.shape[:-1], length - words.shape[-1]), copy, np.int32)
            padded: Any = np.concatenate([words, padding], axis=-1)
            return FormulaProgram(padded, families, reach)
    return program


def _word(instruction: tuple[int, ...]) -> int:
    """Pack one instruction."""
    return sum(
        value + (name in "stw") << shift
        for (name, (shift, _)), value in zip(_FIELDS.items(), instruction, strict=True)
    )


def _instructions(expression: Expression, length: int) -> list[tuple[int, ...]]:
    """Return rows of family, s, t, w, a, b; operands 0 to 2 are the variables, 3 + j is the result
    of j instructions before the last one.
    """
    stack: list[int] = []  # operands: variables, or 3 + number of the instruction
    rows: list[tuple[int, ...]] = []
    for token in expression.tokens:
        if token in VARIABLES:
            stack.append(VARIABLES.index(token))
            continue
        right = stack.pop()
        left = stack.pop() if token in BINARY else right
        rows.append((*_INSTRUCTIONS[token], _back(left, len(rows)), _back(right, len(rows))))
        stack.append(len(VARIABLES) + len(rows) - 1)
    if not rows:
        rows.append((*_COPY, stack[0], stack[0]))
    return rows + [(*_COPY, len(VARIABLES), len(VARIABLES))] * (length - len(rows))


def _back(operand: int, now: int) -> int:
    """Return `operand` as instruction number `now` sees it."""
    return operand if operand < len(VARIABLES) else now - 1 - operand + 2 * len(VARIABLES)


@custom_vmap
def evaluate(program: FormulaProgram, q: Array) -> tuple[Array, Array]:
    """Return values of one formula for each action.

    Made to be mapped, over formulas as well as over values: the rule for `vmap` puts the lanes
    last, where they fill vector registers.

    Args:
      program: of one formula.
      q: [3, A] float32, the Q-values of the current state, one row per variable; a row that the
        formula does not use may hold anything.

    Returns: values [A] float32, and whether the formula is defined ([] bool): no division by
      exactly 0, no logarithm of a number that is not positive, no root of a negative one, no
      overflow, at any action. All values are 0 where it is not.
    """
    chex.assert_rank(q, 2)
    chex.assert_axis_dimension(q, 0, len(VARIABLES))
    return _run(program, q)


@evaluate.def_vmap
def _evaluate_lanes(
    size: int, batched: tuple[Any, ...], program: FormulaProgram, q: Array
) -> tuple[Any, ...]:
    mapped, q_mapped = batched
    words = jnp.moveaxis(program.words, 0, -1) if mapped.words else program.words[..., None]
    lanes = jnp.moveaxis(q, 0, -1) if q_mapped else jnp.broadcast_to(q[..., None], (*q.shape, size))
    values, valid = _run(FormulaProgram(words, program.families, program.reach), lanes)
    return (values.T, valid), (True, True)


def _run(program: FormulaProgram, q: Array) -> tuple[Array, Array]:
    """Return values [A, ...] and validity [...] for `q` [3, A, ...] and words [K, ...] with the
    same trailing axes (of length 1: shared).
    """

    def execute(k: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        results, defined = carry
        word = lax.dynamic_index_in_dim(program.words, k, 0, keepdims=True)
        operands = (q[0], q[1], q[2], *results)
        signs = [_field(word, name).astype(jnp.float32) - 1.0 for name in "stw"]
        a, b = (_pick(operands, _field(word, name)) for name in "ab")
        value = _combine(program.families, _field(word, "family"), signs, a, b)
        return (value, *results[:-1]), defined & jnp.isfinite(value)

    nothing = jnp.zeros(q.shape[1:], jnp.float32)
    start = ((nothing,) * program.reach, jnp.ones(q.shape[1:], bool))
    results, defined = lax.fori_loop(0, program.words.shape[0], execute, start)
    valid = defined.all(0)
    return jnp.where(valid[None], results[0], 0.0), valid


def _field(word: Array, name: str) -> Array:
    shift, mask = _FIELDS[name]
    return (word >> shift) & mask


def _pick(operands: Sequence[Array], number: Array) -> Array:
    value = operands[0]
    for i, operand in enumerate(operands[1:], start=1):
        value = jnp.where(number == i, operand, value)
    return value


def _combine(
    families: tuple[int, ...], family: Array, signs: Sequence[Array], a: Array, b: Array
) -> Array:
    """Return the result of one instruction, [A, ...]; `families` are those that have to be
    computed.
    """
    s, t, w = signs
    left, right = s * a, t * b
    made = {
        _SUM: lambda: left + right,
        _MAXIMUM: lambda: w * jnp.maximum(left, right),
        _PRODUCT: lambda: a * b,
        _QUOTIENT: lambda: (left + w) / b,
        _LOGARITHM: lambda: jnp.log(a),
        _ROOT: lambda: jnp.sqrt(a),
    }
    value = made[families[0]]()
    for number in families[1:]:
        value = jnp.where(family == number, made[number](), value)
    return value


SEED = 1  # of the points of the shipped sets
_SMALLEST = 1e-2  # of the values drawn log-uniformly
_PER_FACE = 48  # points on each face of the octant and on each plane of two equal variables

OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
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


def value_points(seed: int, n_points: int = 1000) -> np.ndarray:
    """Return points at which formulas are compared, [3, P] float64: values of Q0, Q1, Q2.

    First come uniform points of [-100, 100]^3, as in Castronovo et al. 2016, then possible values
    of the Q-functions when no reward is negative: as many points of [0, 100]^3, half of them
    uniform, half log-uniform above 0.01, since Q-values of different problems differ by orders of
    magnitude. Then follow points on each face where one, two or all variables are exactly 0 and on
    each plane where two are equal.
    """
    signed = np.random.default_rng(seed).uniform(-100, 100, (3, n_points))
    rng = np.random.default_rng((seed, 1))
    low = np.log(_SMALLEST)
    spread = np.exp(rng.uniform(low, np.log(100), (3, n_points - n_points // 2)))
    inside = np.concatenate([rng.uniform(0, 100, (3, n_points // 2)), spread], axis=1)
    places = [signed, inside]
    for zeros in range(1, 8):
        kept = np.array([[zeros >> i & 1 == 0] for i in range(3)])
        places.append(kept * rng.uniform(0, 100, (3, _PER_FACE if zeros < 7 else 1)))
    for a, b in ((0, 1), (0, 2), (1, 2)):
        plane = rng.uniform(0, 100, (3, _PER_FACE))
        plane[b] = plane[a]
        places.append(plane)
    return np.concatenate(places, axis=1)


def check_defined(expression: Expression) -> None:
    """Refuse a formula that has no value anywhere.

    Raises:
      JbrlError: undefined at every one of many points of [-100, 100]^3, zeros and equal values
        among them.
    """
    coordinates = value_points(SEED)
    stack: list[np.ndarray] = []
    with np.errstate(all="ignore"):
        for token in expression.tokens:
            if token in VARIABLES:
                stack.append(coordinates[VARIABLES.index(token)])
                continue
            first = len(stack) - operands(token)
            made = OPERATIONS[token](*stack[first:])
            stack[first:] = [np.where(np.isfinite(made), made, np.nan)]
    if np.isnan(stack[0]).all():
        raise JbrlError(
            f"formula '{expression.text}': undefined at every point; expected one that can be "
            "computed somewhere, without division by 0, logarithm of a number that is not "
            "positive or root of a negative one"
        )
