"""A random sample of mutants of the whole package, and the share that the tests find.

python -m benchmarks.mutations [--number N] [--seed SEED] [--limit SECONDS] [--list | --table]

Lines of code are drawn evenly over all modules, and at each a mutant of its module: another
operator, comparison or number, arguments, branches or functions exchanged, a condition, a keyword
or a statement left out. Each is played as those of `mutants.py`, through the quick tests that
import its module and then those of its folder; what survives is printed as a row for
`mutants.toml`, to be judged: a mutant that only changes the speed or the look is none. What was
judged stands in benchmarks/results/mutant-samples.jsonl, one line for each sample, and in the table
beside it, which `--table` writes.
"""

import argparse
import ast
import itertools
import json
import math
import random
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.mutants import LIMIT, RESULTS, ROOT, Mutant, copy_to, mutated, run_tests

SAMPLES = RESULTS.with_name("mutant-samples.jsonl")
COMPARED = {"Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "Eq": "!=", "NotEq": "=="}
COMPARED |= {"In": "not in", "NotIn": "in", "Is": "is not", "IsNot": "is"}
COMPUTED = {"Add": "-", "Sub": "+", "Mult": "/", "Div": "*", "FloorDiv": "*", "Mod": "//"}
COMPUTED |= {"BitAnd": "|", "BitOr": "&", "RShift": "<<"}
OPPOSITES = ("max min", "any all", "argmax argmin", "maximum minimum", "floor ceil", "log exp")
OTHER = {a: b for pair in OPPOSITES for a, b in (pair.split(), pair.split()[::-1])}
SETTINGS = ("parameter", "field", "Option", "Argument", "Annotated", "isinstance", "getattr")
LONGEST = 3  # lines of what is replaced


def left_out(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes whose change is none of behaviour: types, messages, declarations."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts += getattr(node, "decorator_list", [])
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
            parts.append(node)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            parts.append(node)
        if isinstance(node, ast.Call) and called(node) in SETTINGS:
            parts.append(node)
        found.update(*(ast.walk(part) for part in parts if part is not None))
    return found


def called(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def changes(node: ast.AST) -> Iterator[str]:
    """Yield texts that may stand in the place of an expression."""
    text = ast.unparse
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = COMPARED[type(node.ops[0]).__name__]
        yield f"{text(node.left)} {other} {text(node.comparators[0])}"
    elif isinstance(node, ast.BinOp) and type(node.op).__name__ in COMPUTED:
        yield f"(({text(node.left)}) {COMPUTED[type(node.op).__name__]} ({text(node.right)}))"
    elif isinstance(node, ast.BoolOp):
        other = " or " if isinstance(node.op, ast.And) else " and "
        yield f"({other.join(f'({text(value)})' for value in node.values)})"
    elif isinstance(node, ast.UnaryOp):
        yield f"({text(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield f"({text(node.orelse)} if {text(node.test)} else {text(node.body)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield repr(2 * node.value or 1)
    elif isinstance(node, ast.Call):
        if called(node) in ("fold_in", "stream"):
            yield text(node.args[0])
        if called(node) in OTHER:
            name = text(node.func)
            other = name[: len(name) - len(called(node))] + OTHER[called(node)]
            yield text(ast.Call(ast.Name(other), node.args, node.keywords))
        if (
            len(node.args) > 1
            and called(node) not in OTHER
            and not any(isinstance(a, ast.Starred) for a in node.args)
        ):
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            yield text(ast.Call(node.func, swapped, node.keywords))
        if node.keywords and node.keywords[-1].arg not in (None, "strict"):
            yield text(ast.Call(node.func, node.args, node.keywords[:-1]))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "None"
    elif isinstance(node, ast.AugAssign) or _improves(node):
        yield "pass"


def _improves(node: ast.AST) -> bool:
    """Return whether a statement gives a variable a value that is made of its old one."""
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
        return False
    names = [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)]
    return node.targets[0].id in names


def mutations(file: str, source: str) -> Iterator[Mutant]:
    """Yield the mutants of a module; their names say where they are."""
    tree = ast.parse(source)
    without, lines = left_out(tree), source.splitlines(keepends=True)
    nodes: Iterator[Any] = ast.walk(tree)
    for node in nodes:
        if node in without or getattr(node, "end_lineno", 0) - getattr(node, "lineno", 0) > LONGEST:
            continue
        for number, new in enumerate(changes(node)):
            first, last = _place(lines, node)
            old = source[first:last]
            while source.count(old) > 1 and (first or last < len(source)):
                # as many lines more as make it the only one
                lower, upper = source.rfind("\n", 0, first - 1) + 1, source.find("\n", last) + 1
                new = source[lower:first] + new + source[last:upper]
                first, last = lower, upper or len(source)
                old = source[first:last]
            yield Mutant(f"{file}:{node.lineno}:{node.col_offset}:{number}", "", file, old, new, ())


def _place(lines: list[str], node: Any) -> tuple[int, int]:
    """Return where the text of a node begins and ends; the parser counts bytes of a line."""
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def at(line: int, byte: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:byte].decode())

    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def sample(number: int, seed: int, root: Path = ROOT) -> list[Mutant]:
    """Draw mutants of all modules in proportion to their lines of code."""
    generator, package = random.Random(seed), root / "jbrl"
    paths = sorted(package.rglob("*.py"))
    sizes = [len(re.findall(r"^\s*[^\s#]", path.read_text(), re.MULTILINE)) for path in paths]
    drawn = generator.choices(paths, sizes, k=number)
    found: list[Mutant] = []
    for path in sorted(set(drawn)):
        source = path.read_text()
        each = list(mutations(str(path.relative_to(package)), source))
        generator.shuffle(each)
        found += itertools.islice((m for m in each if _compiles(m, source)), drawn.count(path))
    return found


def _compiles(mutant: Mutant, source: str) -> bool:
    try:
        compile(mutated(mutant, source), mutant.file, "exec")
    except (SyntaxError, ValueError):
        return False
    return mutant.old != mutant.new


def test_sets(mutant: Mutant, root: Path = ROOT) -> list[tuple[str, ...]]:
    """Return the test files that import a module of a mutant, or run its command; and the others of
    its folder.
    """
    module = ".".join(["jbrl", *Path(mutant.file).with_suffix("").parts])
    package, _, name = module.rpartition(".")
    words = rf"{re.escape(module)}\b|from {re.escape(package)} import .*\b{name}\b"
    if package != "jbrl":  # a package may be imported as a whole
        words += rf"|from jbrl import .*\b{package.rpartition('.')[2]}\b"
    if package == "jbrl.cli":
        words += r"|from tests(\.terminal)? import .*\b(terminal|call)\b"
    importing = re.compile(words)
    folder, near, others = root / "tests" / Path(mutant.file).parent, [], []
    for path in sorted((root / "tests").rglob("test_*.py")):
        if importing.search(path.read_text()):
            near.append(str(path.relative_to(root)))
        elif path.parent == folder:
            others.append(str(path.relative_to(root)))
    return [tuple(files) for files in (near, others) if files]


def wilson(found: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, Wilson 1927."""
    centre, square = found / n + z * z / (2 * n), found * (n - found) / n**3
    width = z * math.sqrt(square + (z / (2 * n)) ** 2)
    return (centre - width) / (1 + z * z / n), (centre + width) / (1 + z * z / n)


def markdown(samples: str) -> str:
    """Return a table of samples, given as lines of JSON."""
    rows = []
    for line in map(json.loads, samples.splitlines()):
        low, high = wilson(line["killed"], line["valid"])
        share = f"{line['killed'] / line['valid']:.0%} ({low:.0%} to {high:.0%})"
        seen = [line["commit"], line["seed"], line["drawn"], line["valid"], line["killed"]]
        rows.append("| " + " | ".join("–" if v is None else str(v) for v in [*seen, share]) + " |")
    head = "| commit | seed | drawn | change a result | killed | share (95 % interval) |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for a set of tests")
    parser.add_argument("--list", action="store_true", help="say which there are, and run nothing")
    parser.add_argument("--table", action="store_true", help="write the table of samples alone")
    options = parser.parse_args()
    if options.table:
        SAMPLES.with_suffix(".md").write_text(markdown(SAMPLES.read_text()))
        return
    drawn, survivors = sample(options.number, options.seed), 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name) / "copy"
        folder.mkdir()
        copy_to(folder)
        for mutant in drawn:
            if options.list or survives(mutant, folder, options.limit):
                survivors += 1
                rows = {"name": mutant.name, "file": mutant.file}
                rows |= {"old": mutant.old, "new": mutant.new}
                print(*(f"{key} = {json.dumps(text)}" for key, text in rows.items()), "", sep="\n")
    if not options.list:
        print(f"{len(drawn) - survivors} of {len(drawn)} mutants are found")


def survives(mutant: Mutant, folder: Path, limit: float) -> bool:
    """Return whether all tests of a mutant pass in a copy of the package."""
    path = folder / mutant.path
    source = path.read_text()
    path.write_text(mutated(mutant, source))
    try:
        return all(run_tests(folder, tests, limit)[0] == "passed" for tests in test_sets(mutant))
    finally:
        path.write_text(source)


if __name__ == "__main__":
    main()
