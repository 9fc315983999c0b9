"""A model of jbrl on a GPU: kernels, bytes and operations of compiled modules, in seconds.

python -m benchmarks.gpu predict [--agents NAME…] [--tables]

The compiler for CUDA needs no GPU, only its description (`TARGET`) and the package
`jax-cuda12-plugin`. The programs that play are traced as where there is a GPU, compiled, and read:

- A kernel takes a launch, or as long as its bytes or its operations take, whichever is longest.
- A loop of known length takes its body so often. The condition of any other loop, and the choice of
  a branch, waits for the host, which takes as long as `WAIT` launches. How often loops go round and
  branches are taken is counted on the CPU, in the same program, whose lanes go in step as on a GPU.

What a kernel finds in the cache, launches recorded in graphs, and lanes of a kernel that wait for
each other are left out.
"""

import collections
import contextlib
import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from benchmarks import kept
from jbrl.agents.registry import AGENTS
from jbrl.environments.spec import Steps
from jbrl.play import compilation, experiment
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem

Row = dict[str, Any]
Cases = Sequence[tuple[str, Row, str, int]]  # agent, parameters, problem, decisions
FILE = kept.RESULTS / "gpu-predicted.jsonl"

WIDTHS = (512, 4096, 65_536)  # lanes
COUNTED = 512  # lanes in which loops are counted
COMPILED = 4096  # lanes of the module that is read; for others, bytes and operations are scaled
LAUNCH = 4e-6  # seconds, 3 to 5
WAIT = 2  # launches: a copy to the host, and the host
BANDWIDTH = 0.8 * 3.35e12  # bytes a second of an H100, as far as a copy reaches it
OPERATIONS = 33e12  # a second, in 32 bits
PRODUCTS = 60e12  # floating-point operations a second of a matrix product in 32 bits
SECTOR = 32  # bytes that memory gives at least

# of an H100 SXM, as the compiler asks for it
TARGET = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84978434048
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
runtime_version { major: 12 minor: 8 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


# ---- modules ----


@dataclass
class Instruction:
    """One line of a module."""

    name: str
    shape: str
    opcode: str
    operands: list[str]
    rest: str  # attributes, metadata


@dataclass
class Work:
    """Work of a computation, done once."""

    kernels: float = 0.0
    iterations: float = 0.0  # of all loops
    seconds: float = 0.0
    bytes: float = 0.0

    def add(self, other: "Work", times: float = 1.0) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + times * value)


BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2}
BYTES |= {"s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"}
MOVES = FREE | {"broadcast", "reshape", "transpose", "slice", "concatenate", "copy", "pad"}
SLICES = {"dynamic-slice", "gather", "slice"}
UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # and the operand that is written
_ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([a-z][\w-]*)\((.*)$")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")


def sizes_of(shape: str) -> list[tuple[int, int]]:
    """Return the numbers and the bytes of each array in a shape."""
    found = []
    for kind, axes in _ARRAY.findall(shape):
        count = math.prod(int(n) for n in axes.split(",") if n)
        found.append((count, count * BYTES.get(kind, 4)))
    return found


def count(shape: str) -> int:
    return sum(number for number, _ in sizes_of(shape))


def size(shape: str) -> int:
    return sum(bytes_ for _, bytes_ in sizes_of(shape))


class Module:
    """The text of a compiled module.

    Args:
      iterations: of each loop, and the share of each branch that was taken, by its name.
      scale: how many times as many lanes are meant.
    """

    def __init__(
        self, text: str, iterations: dict[str, float] | None = None, scale: float = 1.0
    ) -> None:
        self._iterations, self._scale = iterations or {}, scale
        self._computations: dict[str, list[Instruction]] = {}
        self._known: dict[str, Work] = {}
        for line in text.splitlines():
            if head := _HEAD.match(line):
                here = self._computations[head[2]] = []
                self._entry = head[2] if head[1] else getattr(self, "_entry", "")
            elif made := _LINE.match(re.sub(r"/\*.*?\*/", "", line)):
                given, _, rest = made[4].partition(")")
                here.append(
                    Instruction(made[1], made[2], made[3], re.findall(r"%([\w.-]+)", given), rest)
                )

    def work(self, name: str | None = None) -> Work:
        """Return the work of a computation, by default the whole module."""
        name = name or self._entry
        if name not in self._known:
            self._known[name] = total = Work()
            shapes = {one.name: one.shape for one in self._computations[name]}
            for one in self._computations[name]:
                self._add(total, one, shapes)
        return self._known[name]

    def _add(self, total: Work, one: Instruction, shapes: dict[str, str]) -> None:
        if one.opcode == "while":
            body, test = (re.search(rf"{k}=%?([\w.-]+)", one.rest) for k in ("body", "condition"))
            assert body and test
            known = re.search(r'"known_trip_count":\{"n":"(\d+)"', one.rest)
            times = float(known[1]) if known else self._counted(one)
            total.add(self.work(body[1]), times)
            total.add(Work(iterations=times))
            if not known:
                total.add(self.work(test[1]), times + 1)
                total.add(Work(seconds=WAIT * LAUNCH), times + 1)
        elif one.opcode == "conditional":
            taken = self._counted(one)
            branches = re.findall(r"(?:true|false)_computation=%?([\w.-]+)", one.rest)
            if listed := re.search(r"branch_computations=\{(.*?)\}", one.rest):
                branches = re.findall(r"%?([\w.-]+)", listed[1])[::-1]
            total.add(Work(seconds=WAIT * LAUNCH))
            total.add(self.work(branches[0]), taken)
            total.add(self.work(branches[1]), 1 - taken)
        elif one.opcode == "call":
            total.add(self.work(_called(one)))
        elif one.opcode not in FREE and not one.opcode.endswith("-done"):
            total.add(self._kernel(one, shapes))

    def _counted(self, one: Instruction) -> float:
        path = (re.search(r'op_name="([^"]*)"', one.rest) or ["", ""])[1].split("/")
        named = re.search(r"(?:loop|cond)_\w+", path[-2] if len(path) > 1 else "")
        if not named or named[0] not in self._iterations:
            raise LookupError(f"{one.name} ({'/'.join(path)}) has not been counted")
        return self._iterations[named[0]]

    def _kernel(self, one: Instruction, shapes: dict[str, str]) -> Work:
        inside = [one]
        moved = size(one.shape) + sum(size(shapes[o]) for o in one.operands)
        if one.opcode == "fusion":
            inside = self._computations[_called(one)]
            moved = _moved(inside)
        elif one.opcode in UPDATES:
            moved = 2 * size(shapes[one.operands[UPDATES[one.opcode]]])
        shapes = shapes | {i.name: i.shape for i in inside}
        operations = sum(count(i.shape) for i in inside if i.opcode not in MOVES)
        products = sum(2 * count(i.shape) * _contracted(i, shapes) for i in inside)
        busy = max(moved / BANDWIDTH, operations / OPERATIONS, products / PRODUCTS)
        return Work(1.0, 0.0, max(LAUNCH, self._scale * busy), self._scale * moved)


def _called(one: Instruction) -> str:
    found = re.search(r"(?:calls|to_apply)=%?([\w.-]+)", one.rest)
    assert found
    return found[1]


def _contracted(one: Instruction, shapes: dict[str, str]) -> int:
    """Return the length of the sums of a matrix product, 0 of anything else."""
    axes = re.search(r"lhs_contracting_dim(?:s|ensions)\"?[=:][{\[]([\d,\"]*)[}\]]", one.rest)
    if not axes or not one.operands:
        return 0
    array = _ARRAY.search(shapes[one.operands[0]])
    lengths = [int(n) for n in array[2].split(",")] if array and array[2] else []
    return math.prod(lengths[int(n)] for n in re.findall(r"\d+", axes[1]))


def _moved(inside: list[Instruction]) -> int:
    """Return the bytes that a fused kernel reads and writes: of an array of which it takes slices,
    these alone, and of one that it updates in place, what is new.
    """
    alias = {i.name: i.operands[0] for i in inside if i.opcode == "bitcast" and i.operands}

    def source(name: str) -> str:
        while name in alias:
            name = alias[name]
        return name

    by_name = {i.name: i for i in inside}
    total = 0
    for given in (i for i in inside if i.opcode == "parameter"):
        uses = [
            i
            for i in inside
            if i.opcode != "bitcast" and given.name in {source(o) for o in i.operands}
        ]
        read = 0
        for use in uses:
            first = source(use.operands[0]) == given.name
            if first and use.opcode in SLICES:
                read += _sliced(use)
            elif not (first and use.opcode in UPDATES):
                read = size(given.shape)
                break
        total += min(read, size(given.shape))
    last = by_name[source(inside[-1].name)]
    for written in (
        [by_name[source(o)] for o in last.operands] if last.opcode == "tuple" else [last]
    ):
        if written.opcode in UPDATES:
            written = by_name[written.operands[UPDATES[written.opcode]]]
        total += size(written.shape)
    return total


def _sliced(one: Instruction) -> int:
    """Return the bytes that a slice or gather reads, whole sectors for each row."""
    row = re.search(r"slice_sizes=\{([\d,]*)\}", one.rest)
    if one.opcode != "gather" or not row:
        return size(one.shape)
    numbers, bytes_ = sizes_of(one.shape)[0]
    rows = numbers / max(1, math.prod(int(n) for n in row[1].split(",") if n))
    return int(rows * max(SECTOR, bytes_ / max(1, rows)))


# ---- programs ----


@dataclass
class Counts:
    """Rounds of loops and choices of branches, by name."""

    sums: dict[str, float] = field(default_factory=lambda: collections.defaultdict(float))
    entries: dict[str, int] = field(default_factory=lambda: collections.defaultdict(int))

    def add(self, name: str, number: Any) -> None:
        self.sums[name] += float(number)
        self.entries[name] += 1

    @property
    def means(self) -> dict[str, float]:
        return {name: self.sums[name] / self.entries[name] for name in self.sums}


def _name(kind: str, fn: Callable[..., Any]) -> str:
    """Return the name of a loop or a choice: the place of its function."""
    code = (_origin(fn) or inspect.unwrap(fn)).__code__
    return f"{kind}_{Path(code.co_filename).stem}_{code.co_firstlineno}"


def _origin(fn: Any) -> Any:
    """Return a function outside of `jbrl.vectorize` that `fn` calls, or None."""
    fn = inspect.unwrap(getattr(fn, "func", fn))
    fn = getattr(fn, "__func__", fn)
    if "vectorize" not in (code := fn.__code__).co_filename and "jbrl" in code.co_filename:
        return fn
    inner = (cell.cell_contents for cell in fn.__closure__ or ())
    return next(filter(None, (_origin(v) for v in inner if hasattr(v, "__code__"))), None)


@contextlib.contextmanager
def as_on_a_gpu(counts: Counts | None = None) -> Iterator[None]:
    """Within the block programs are traced as where there is a GPU, and their loops have names; run
    on the CPU, they report to `counts`.
    """
    plain_while, plain_for, plain_cond = lax.while_loop, lax.fori_loop, lax.cond

    def report(name: str, number: Any) -> None:
        if counts is None:
            return

        @custom_vmap
        def most(number: Any) -> Any:
            jax.debug.callback(lambda n: counts.add(name, n), number)
            return number

        @most.def_vmap
        def _(size: int, batched: Any, number: Any) -> Any:
            del size, batched
            return most(jnp.max(number)), False

        most(jnp.asarray(number, jnp.int32))

    def repeat(name: str, test: Any, body: Any, start: Any) -> Any:
        with jax.named_scope(name):
            if counts is None:
                return plain_while(test, body, start)
            number, result = plain_while(
                lambda c: test(c[1]), lambda c: (c[0] + 1, body(c[1])), (jnp.int32(0), start)
            )
        report(name, number)
        return result

    def while_loop(cond_fun: Any, body_fun: Any, init_val: Any) -> Any:
        return repeat(_name("loop", body_fun), cond_fun, body_fun, init_val)

    def fori_loop(lower: Any, upper: Any, body_fun: Any, init_val: Any, **options: Any) -> Any:
        if not any(isinstance(v, jax.core.Tracer) for v in (lower, upper)):
            return plain_for(lower, upper, body_fun, init_val, **options)
        upper = jnp.asarray(upper)
        start = (jnp.asarray(lower, upper.dtype), init_val)
        step = lambda c: (c[0] + 1, body_fun(*c))  # noqa: E731
        return repeat(_name("loop", body_fun), lambda c: c[0] < upper, step, start)[1]

    def cond(pred: Any, *given: Any, **options: Any) -> Any:
        name = _name("cond", given[0])
        report(name, pred)
        with jax.named_scope(name):
            return plain_cond(pred, *given, **options)

    def platform_dependent(*given: Any, default: Any, cpu: Any = None) -> Any:
        del cpu
        return default(*given)

    with (
        mock.patch.object(jax, "default_backend", lambda: "gpu"),
        mock.patch.multiple(
            lax,
            while_loop=while_loop,
            fori_loop=fori_loop,
            cond=cond,
            platform_dependent=platform_dependent,
        ),
    ):
        yield


def compiler() -> Any:
    """Return the device that programs are compiled for.

    Raises:
      SystemExit: the compiler for CUDA is not installed.
    """
    from jax.experimental import topologies

    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    try:
        found = topologies.get_topology_desc(
            "1x1x1", "cuda", target_config=TARGET, topology="1x1x1"
        )
    except NotImplementedError:
        raise SystemExit(
            f"the compiler for CUDA is missing: pip install jax-cuda12-plugin=={jax.__version__} "
            f"jax-cuda12-pjrt=={jax.__version__}"
        ) from None
    return found.devices[0]


def text_of(lowered: Any) -> str:
    """Return the compiled module, never one from a cache whose loops have other names."""
    option = "jax_compilation_cache_include_metadata_in_key"
    before = jax.config.values[option]
    jax.config.update(option, True)
    try:
        return lowered.compile().as_text()
    finally:
        jax.config.update(option, before)


def players(name: str, parameters: Row, on: str, horizon: int, width: int) -> tuple[Any, Any, Any]:
    """Return the function that plays `width` lanes, and what they share and each draws, as
    shapes, with a function that draws.
    """
    protocol = Protocol(problem(on), problem(on), n_environments=width, lifetime=Steps(horizon))
    run = Run(AGENTS[name].agent(**parameters), protocol)
    run.learn()
    shared = (run.agent, run.knowledge)
    draw = jax.jit(lambda: jax.vmap(experiment._draw, (None, 0))(run.test, jnp.arange(width)))
    return jax.vmap(experiment._play, (None, 0)), shared, draw


def counted(name: str, parameters: Row, on: str, horizon: int) -> dict[str, float]:
    """Return how often loops go round and branches are taken, `COUNTED` lanes in step."""
    play, shared, draw = players(name, parameters, on, horizon, COUNTED)
    counts, drawn = Counts(), draw()
    jax.clear_caches()
    with as_on_a_gpu(counts):
        lowered = jax.jit(lambda *given: play(*given)).lower(shared, drawn)
    program = lowered.compile(compiler_options=compilation.options("cpu", "quick"))
    jax.block_until_ready(program(shared, drawn))
    jax.effects_barrier()
    return counts.means


def compiled(name: str, parameters: Row, on: str, horizon: int, device: Any) -> str:
    """Return the module that the compiler for CUDA makes of lanes that play."""
    play, shared, draw = players(name, parameters, on, horizon, COMPILED)
    shapes = jax.eval_shape(lambda *given: given, shared, jax.eval_shape(draw))
    place = jax.sharding.SingleDeviceSharding(device)
    jax.clear_caches()
    with as_on_a_gpu():
        program = jax.jit(lambda *given: play(*given), in_shardings=place, out_shardings=place)
        return text_of(program.lower(*shapes))


def of_two_cores(name: str, parameters: Row, on: str, horizon: int) -> float:
    """Return decisions per second of two cores, from the processor time of one."""
    protocol = Protocol(problem(on), problem(on), n_environments=COUNTED, lifetime=Steps(horizon))
    run = Run(AGENTS[name].agent(**parameters), protocol)
    run.prepare()
    list(run.chunks())
    spent = min(sum(chunk.processor_seconds for chunk in run.chunks()) for _ in range(3))
    return 2 * COUNTED * horizon / spent


def predicted(text: str, iterations: dict[str, float], horizon: int, width: int) -> Row:
    """Return what a decision of all lanes takes."""
    work = Module(text, iterations, width / COMPILED).work()
    return {
        "width": width,
        "kernels": round(work.kernels / horizon, 1),
        "iterations": round(work.iterations / horizon, 1),
        "megabytes": float(f"{work.bytes / horizon / 1e6:.3g}"),
        "microseconds": float(f"{work.seconds / horizon * 1e6:.3g}"),
        "decisions_per_second": float(f"{width * horizon / work.seconds:.3g}"),
    }


def predict(cases: Cases, file: Path) -> None:
    """Predict each case at each width, and add the rows to a file."""
    device = compiler()
    for case in cases:
        name, parameters, on, horizon = case
        what = {"agent": name, "parameters": parameters, "problem": on, "horizon": horizon}
        iterations, text = counted(*case), compiled(*case, device)
        cores = float(f"{of_two_cores(*case):.3g}")
        for width in WIDTHS:
            found = predicted(text, iterations, horizon, width)
            kept.keep(what | found | {"two_cores": cores}, file)


def level(rows: list[Row]) -> float | None:
    """Return how many lanes the GPU needs to be as fast as two cores, None: more than there are.

    Args:
      rows: of one agent, by width; where measured, as measured.
    """
    needed = ((row["two_cores"] * row["microseconds"] / 1e6, row["width"]) for row in rows)
    return next((lanes for lanes, width in needed if lanes <= width), None)


def measured(files: list[Path]) -> dict[tuple, float]:
    """Return decisions per second that `gpu.py` has measured, by agent, problem, width, and
    whether loops were recorded in graphs.
    """
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    return {
        (row["agent"], row["problem"], row["width"], row["graphs"]): row["decisions_per_second"]
        for row in rows
        if row["section"] in ("decisions", "hosted") and "decisions_per_second" in row
    }


def table(predictions: dict[tuple, Row], found: dict[tuple, float]) -> str:
    """Return thousands of decisions per second as Markdown; those measured in brackets, without
    graphs unless it says so. The lanes from which a GPU is faster come from what was measured
    without graphs, where it was.
    """

    def cell(key: tuple) -> str:
        seen = [
            f"{mark}{kept.number(rate / 1e3)}"
            for mark, graphs in (("", False), ("in graphs ", True))
            if (rate := found.get((*key, graphs)))
        ]
        alone = kept.number(predictions[key]["decisions_per_second"] / 1e3)
        return f"{alone} ({'; '.join(seen)})" if seen else alone

    lines = []
    for name, on in dict.fromkeys(key[:2] for key in predictions):
        keys = [(name, on, width) for width in WIDTHS]
        lanes = level([as_measured(predictions[key], found.get((*key, False))) for key in keys])
        first = predictions[keys[0]]
        lines.append(
            (
                *(name, on, kept.number(first["kernels"]), kept.number(first["iterations"])),
                *map(cell, keys),
                kept.number(first["two_cores"] / 1e3),
                kept.number(lanes) if lanes else f"over {WIDTHS[-1]:,}",
            )
        )
    header = ("agent", "problem", "kernels", "rounds", *(f"{w:,} lanes" for w in WIDTHS))
    return kept.table((*header, "two cores", "level at lanes"), lines, texts=2)


def as_measured(row: Row, rate: float | None) -> Row:
    """Return a prediction with the time of a decision of all lanes that was measured, if it was."""
    return row | {"microseconds": row["width"] / rate * 1e6} if rate else row


def write_table(file: Path) -> None:
    """Write the table of the documentation, with what was measured on GPUs so far."""
    rows = kept.latest(file, ("agent", "problem", "width"))
    files = [f for f in sorted(kept.RESULTS.glob("gpu-*.json")) if "cpu" not in f.stem]
    kept.write("gpu", rows.values(), table(rows, measured(files)))
