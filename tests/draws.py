"""The random words that a program draws, found in its trace: nothing is compiled or played.

Each value of a program has the name of the expression that it comes from, and depends on arguments
of the program and on loops. It is a fault

- to draw with one key twice, to draw with a key and with a part of it, or to draw with a key and
  fold a small number into it, which gives the same words;
- to draw with a key that is the same in all turns of a loop, or for all values of an argument that
  it should depend on;
- to take words out of a draw and not to use them: others are used in their place.
"""

import collections
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

DRAWS = ("random_bits", "random_unwrap", "random_split")
PARTS = ("slice", "split", "squeeze", "dynamic_slice", "gather", "unstack")
# what makes numbers of words, or arranges them anew
MAKES = {"shift_right_logical", "and", "or", "convert_element_type", "bitcast_convert_type", "mul"}
MAKES |= {"add", "sub", "max", "reshape", "concatenate", "broadcast_in_dim", *PARTS}
NOTHING: frozenset[str] = frozenset()


class Value(NamedTuple):
    """A value of a traced program."""

    name: int  # the same for the same expression
    needs: frozenset[str] = NOTHING  # arguments and loops that it depends on
    drawn: bool = False  # words of a draw, some of them, or numbers made of them


class Draws:
    """The draws of a traced program.

    Args:
      varies: arguments that each key has to depend on.
    """

    def __init__(self, varies: frozenset[str] = NOTHING) -> None:
        self.found: list[str] = []
        self.draws: collections.Counter[int] = collections.Counter()  # by name of the key
        self._counted: set[int] = set()  # keys whose words are counted from 0 on
        self._folded: set[int] = set()  # keys that a small number is folded into
        self._small: set[int] = set()  # such numbers
        self._wholes: dict[int, int] = {}  # array that a key is a part of
        self._varies = varies
        self._names: dict[Any, int] = {}
        self._loops = itertools.count()

    @property
    def faults(self) -> list[str]:
        """What is wrong, in no order."""
        twice = [f"a key is drawn from {n} times" for n in self.draws.values() if n > 1]
        parts = [
            "a key is drawn from, and so is what it is a part of"
            for key in self.draws
            for whole in self._above(key)
            if whole in self.draws
        ]
        folds = ["a key is drawn from, and folded"] * len(self._folded & self._counted)
        return self.found + twice + parts + folds

    def _above(self, key: int) -> Iterator[int]:
        while key in self._wholes:
            key = self._wholes[key]
            yield key

    def name(self, *expression: Any) -> int:
        return self._names.setdefault(expression, len(self._names))

    def walk(self, jaxpr: Jaxpr, given: Sequence[Value], loops: frozenset[str]) -> list[Value]:
        """Return the results of a program whose arguments have these values, inside of loops."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, given, strict=True))
        known |= {v: Value(self.name("constant", id(v))) for v in jaxpr.constvars}

        def read(atom: Any) -> Value:
            literal = isinstance(atom, Literal)
            if not literal:
                return known[atom]
            value = Value(self.name("literal", str(atom.val)))
            if str(atom.val).isdigit() and int(atom.val) < 2**16:
                self._small.add(value.name)
            return value

        used = {id(atom) for e in jaxpr.eqns for atom in e.invars} | set(map(id, jaxpr.outvars))
        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            known.update(zip(equation.outvars, self._results(equation, inputs, loops), strict=True))
            if equation.primitive.name in PARTS and inputs[0].drawn:
                vain = sum(id(v) not in used for v in equation.outvars)
                self.found += ["words that are drawn are not used"] * vain
        return [read(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, inputs: list[Value], loops: frozenset[str]) -> list[Value]:
        kind, params = equation.primitive.name, equation.params
        if kind == "scan":
            constants = params["num_consts"]
            return self._loop(
                params["jaxpr"].jaxpr, inputs, constants, constants + params["num_carry"], loops
            )
        if kind == "while":
            first, body = params["cond_nconsts"], params["body_jaxpr"].jaxpr
            return self._loop(body, inputs[first:], params["body_nconsts"], len(inputs), loops)
        if kind == "cond":
            return self._branches(params["branches"], inputs, loops)
        inner = [found for found in map(program, params.values()) if found]
        if inner and len(inner[0].invars) == len(inputs):
            return self.walk(inner[0], inputs, loops)
        return self._plain(equation, inputs, loops)

    def _plain(self, equation: Any, inputs: list[Value], loops: frozenset[str]) -> list[Value]:
        kind = equation.primitive.name
        needs = NOTHING.union(*(value.needs for value in inputs))
        text = str(sorted((k, str(v)) for k, v in equation.params.items() if not program(v)))
        name = self.name(kind, text, *(value.name for value in inputs))
        if kind in DRAWS:
            self._draw(inputs[0], loops)
        if kind in ("random_bits", "random_split"):
            self._counted.add(inputs[0].name)
        if kind == "random_fold_in" and inputs[1].name in self._small:
            self._folded.add(inputs[0].name)
        made = kind in MAKES and any(value.drawn for value in inputs)
        drawn = kind in DRAWS[:2] or (made and all(v.drawn or not v.needs for v in inputs))
        if kind == "convert_element_type" and inputs[0].name in self._small:
            self._small.add(self.name(name, 0))
        names = [self.name(name, i) for i in range(len(equation.outvars))]
        if kind in PARTS:
            self._wholes |= dict.fromkeys(names, inputs[0].name)
        return [Value(each, needs, drawn) for each in names]

    def _draw(self, key: Value, loops: frozenset[str]) -> None:
        self.draws[key.name] += 1
        for missing in sorted((loops | self._varies) - key.needs):
            self.found.append(f"a key does not depend on {missing}")

    def _loop(
        self, body: Jaxpr, inputs: list[Value], first: int, last: int, loops: frozenset[str]
    ) -> list[Value]:
        """Constants up to `first`, carried values up to `last`, then arrays of one row a turn."""
        loop = f"loop {next(self._loops)}"
        given = list(inputs[:first])
        everything = NOTHING.union(*(v.needs for v in inputs))
        for i, value in enumerate(inputs[first:], first):
            carried = i < last
            if carried and body.outvars[i - first] is body.invars[i]:
                given.append(value)
                continue
            name = self.name("in a loop", loop, i)
            given.append(Value(name, (everything if carried else value.needs) | {loop}))
            if not carried:
                self._wholes[name] = value.name
                given[-1] = given[-1]._replace(drawn=value.drawn)
        results = self.walk(body, given, loops | {loop})
        return [
            Value(self.name("of a loop", loop, i), v.needs - {loop}) for i, v in enumerate(results)
        ]

    def _branches(
        self, branches: Sequence[Any], inputs: list[Value], loops: frozenset[str]
    ) -> list[Value]:
        """One of the branches is taken: what each draws counts once."""
        before, after, results = self.draws, collections.Counter[int](), []
        for branch in branches:
            self.draws = collections.Counter()
            results.append(self.walk(branch.jaxpr, inputs[1:], loops))
            after |= self.draws
        self.draws = before + after
        return [
            Value(
                self.name("one of", inputs[0].name, *(v.name for v in found)),
                inputs[0].needs.union(*(v.needs for v in found)),
            )
            for found in zip(*results, strict=True)
        ]


def program(value: Any) -> Jaxpr | None:
    """Return the program that a parameter of an operation is, if it is one."""
    value = value.jaxpr if isinstance(value, ClosedJaxpr) else value
    return value if isinstance(value, Jaxpr) else None


def draws_of(function: Callable[..., Any], *arguments: Any, varies: str = "") -> Draws:
    """Return the draws of a function.

    Args:
      varies: names of the first arguments, which each key that is drawn from has to depend on.
    """
    names = varies.split()
    closed = jax.make_jaxpr(function)(*arguments)
    counts = [len(jax.tree.leaves(argument)) for argument in arguments]
    owners = [
        names[i] if i < len(names) else "others" for i, n in enumerate(counts) for _ in range(n)
    ]
    found = Draws(frozenset(names))
    given = [Value(found.name("argument", i), frozenset({owner})) for i, owner in enumerate(owners)]
    found.walk(closed.jaxpr, given, NOTHING)
    return found
