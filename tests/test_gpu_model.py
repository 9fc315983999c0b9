"""Counts of kernels, loop iterations and bytes, on programs whose counts are known.

Modules of the compiler for CPUs have the form of those for CUDA.
"""

import json

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchmarks import gpu_model, kept
from benchmarks.gpu_model import LAUNCH, WAIT, Module, Work

LANES = 4
# As the compiler for CUDA writes it: two kernels in a loop of seven rounds, one of which updates a
# row of 1,024 numbers in place; a loop of unknown length inside it, of one kernel, and its test.
MODULE = """
HloModule jit_f

%update (a: f32[100,1024], row: f32[1,1024], i: s32[]) -> f32[100,1024] {
  %a = f32[100,1024]{1,0} parameter(0)
  %row = f32[1,1024]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  %more = f32[1,1024]{1,0} add(%row, %row)
  ROOT %new = f32[100,1024]{1,0} dynamic-update-slice(%a, %more, %i, %zero)
}

%inner (c: (s32[], f32[1024])) -> (s32[], f32[1024]) {
  %c = (s32[], f32[1024]{0}) parameter(0)
  %n = s32[] get-tuple-element(%c), index=0
  %v = f32[1024]{0} get-tuple-element(%c), index=1
  %w = f32[1024]{0} negate(%v)
  ROOT %t = (s32[], f32[1024]{0}) tuple(%n, %w)
}

%asked (d: (s32[], f32[1024])) -> pred[] {
  %d = (s32[], f32[1024]{0}) parameter(0)
  %m = s32[] get-tuple-element(%d), index=0
  ROOT %go = pred[] compare(%m, %m), direction=LT
}

%body (e: (s32[], f32[1024], f32[100,1024], f32[1,1024])) -> (s32[], f32[1024]) {
  %e = (s32[], f32[1024]{0}, f32[100,1024]{1,0}, f32[1,1024]{1,0}) parameter(0)
  %k = s32[] get-tuple-element(%e), index=0
  %x = f32[1024]{0} get-tuple-element(%e), index=1
  %big = f32[100,1024]{1,0} get-tuple-element(%e), index=2
  %some = f32[1,1024]{1,0} get-tuple-element(%e), index=3
  %written = f32[100,1024]{1,0} fusion(%big, %some, %k), kind=kLoop, calls=%update
  %copied = f32[1024]{0} copy(%x)
  %both = (s32[], f32[1024]{0}) tuple(%k, %copied)
  ROOT %out = (s32[], f32[1024]{0}) while(%both), condition=%asked, body=%inner, \
metadata={op_name="jit(f)/while/body/loop_uct_7/while"}
}

ENTRY %main (p: s32[], q: f32[1024]) -> (s32[], f32[1024]) {
  %p = s32[] parameter(0)
  %q = f32[1024]{0} parameter(1)
  %start = (s32[], f32[1024]{0}) tuple(%p, %q)
  ROOT %end = (s32[], f32[1024]{0}) while(%start), condition=%asked, body=%body, \
backend_config={"known_trip_count":{"n":"7"}}
}
"""


def test_a_module_is_counted():
    found = Module(MODULE, {"loop_uct_7": 3.0}).work()
    row = 4 * 1024
    assert found.kernels == 7 * (2 + 3 + 4)  # the test of a loop runs once more than its body
    assert found.iterations == 7 * (1 + 3)
    # the index, the row read and written; the copy; what the inner loop reads and writes; its test
    assert found.bytes == 7 * (4 + 2 * row + 2 * row + 3 * 2 * row + 4 * 9)
    assert found.seconds == pytest.approx(LAUNCH * (found.kernels + 7 * 4 * WAIT))


def test_bytes_take_longer_than_a_launch_when_there_are_enough():
    alone, many = (Module(MODULE, {"loop_uct_7": 0.0}, scale=s).work() for s in (1.0, 1e6))
    assert many.seconds > 100 * alone.seconds
    assert many.bytes == 1e6 * alone.bytes


def test_a_loop_that_was_not_counted_is_refused():
    with pytest.raises(LookupError, match="loop_uct_7"):
        Module(MODULE).work()


def test_a_loop_of_known_length_is_counted_in_what_the_compiler_makes_of_it():
    """Nine rounds of one fused operation and one matrix product."""

    @jax.jit
    def program(x):
        return lax.fori_loop(0, 9, lambda _, v: jnp.sin(v @ v) + 1, x)

    text = program.lower(jax.ShapeDtypeStruct((8, 8), jnp.float32)).compile().as_text()
    around = Module(text.replace('{"n":"9"}', '{"n":"0"}')).work()
    found = Module(text).work()
    found.add(around, -1.0)
    assert (found.iterations, found.kernels % 9) == (9, 0)
    assert found.kernels // 9 in (2, 3)  # and, on CPUs, the number of the round


def test_rounds_of_lanes_in_step_are_counted_beside_the_names_of_their_loops():
    """Lane i goes round i + 2 times: all of them 5 times, in each of three calls."""

    def grow(limit):
        return lax.while_loop(lambda n: n < limit, lambda n: n + 1, jnp.int32(0))

    counts = gpu_model.Counts()
    with gpu_model.as_on_a_gpu(counts):
        thrice = jax.jit(lambda v: lax.map(lambda _: jax.vmap(grow)(v), jnp.arange(3)))
        assert list(thrice(jnp.arange(LANES) + 2)[0]) == [2, 3, 4, 5]
    jax.effects_barrier()
    assert list(counts.means.values()) == [5.0]
    assert list(counts.entries.values()) == [3]
    with gpu_model.as_on_a_gpu():
        lowered = jax.jit(jax.vmap(grow)).lower(jnp.arange(LANES))
    (name,) = counts.means
    found = Module(gpu_model.text_of(lowered), {name: 5.0}).work()
    assert found.iterations == 5


def test_work_adds_up():
    total = Work(1, 2, 3.0, 4)
    total.add(Work(1, 1, 1.0, 1), 2)
    assert total == Work(3, 4, 5.0, 6)


def row(width, microseconds, two_cores=1e6):
    speed = width / microseconds * 1e6
    return {"width": width, "microseconds": microseconds, "decisions_per_second": speed} | {
        "two_cores": two_cores,
        "kernels": 20.0,
        "iterations": 1.0,
    }


def test_lanes_at_which_a_gpu_is_as_fast_as_two_cores():
    assert gpu_model.level([row(512, 100.0), row(4096, 200.0)]) == 100
    assert gpu_model.level([row(512, 600.0), row(4096, 700.0)]) == 700
    assert gpu_model.level([row(512, 600.0), row(4096, 9000.0)]) is None


def test_what_was_measured_stands_beside_its_prediction(tmp_path):
    """Of the same agent, problem and width, the lanes at level with them; rows without a figure are
    left out.
    """
    same = {"section": "decisions", "agent": "BEB", "problem": "GC", "graphs": False}
    rows = [
        same | {"width": 512, "decisions_per_second": 4e6},
        same | {"width": 512, "decisions_per_second": 6e6, "graphs": True},
        same | {"width": 4096, "skipped": "no time left"},
        {"section": "copy", "gigabytes_per_second": 3000.0},
    ]
    file = tmp_path / "gpu-h100.json"
    file.write_text(json.dumps({"rows": rows}))
    found = gpu_model.measured([file])
    assert found == {("BEB", "GC", 512, False): 4e6, ("BEB", "GC", 512, True): 6e6}
    predictions = {("BEB", "GC", w): row(w, 100.0) for w in gpu_model.WIDTHS}
    line = gpu_model.table(predictions, found).splitlines()[2]
    cells = "5,120 (4,000; in graphs 6,000) | 41,000 | 655,000"
    assert line == f"| BEB | GC | 20 | 1 | {cells} | 1,000 | 128 |"


def test_what_the_page_on_performance_says_of_a_gpu():
    text = (kept.RESULTS / "gpu-nvidia-h100-80gb-hbm3.json").read_text()
    rows = [row for row in json.loads(text)["rows"] if "failed" not in row]
    words = " ".join((kept.RESULTS.parents[1] / "docs/performance.md").read_text().split())

    def of(section, figure, **what):
        chosen = [row for row in rows if row["section"] == section and figure in row]
        return [row[figure] for row in chosen if what.items() <= row.items()]

    same = of("decisions", "same_returns")
    assert len(same) == 14 and same.count(1.0) == 12 and min(same) >= 511 / 512 - 1e-3
    assert "12 of 14 cases" in words and all(of("decisions", "same_bits"))
    assert max(of("precision", "error")) < 6e-7 and "6·10⁻⁷" in words
    loops = of("loop", "microseconds_per_iteration")
    assert [round(min(loops)), round(max(loops))] == [18, 24] and "18 to 24 µs" in words
    found = gpu_model.measured([kept.RESULTS / "gpu-nvidia-h100-80gb-hbm3.json"])
    faster = [rate / found[(*key, False)] for (*key, graphs), rate in found.items() if graphs]
    assert len(faster) == 5 and "five cases" in words
    assert [round(min(faster), 1), round(max(faster), 1)] == [1.3, 2.5]
    assert "1.3 to 2.5 times as fast" in words and all(of("decisions", "same_bits_without_graphs"))
    assert round(of("copy", "gigabytes_per_second")[0] / 1e3, 1) == 2.8 and "2.8 TB/s" in words
    rates = [
        *of("pulls", "pulls_per_second", problem="GC", width=16_384),
        *of("search", "pulls_per_second"),
        *(
            of("training", "decisions_per_second", agent=n, problem="GC")[0]
            for n in ("BeliefPPO", "DPT")
        ),
        *of("deep", "steps_per_second", agent="DQN", problem="catch/0", lanes=64),
        *of("deep", "steps_per_second", agent="PPO", problem="catch/0", lanes=4096),
    ]
    said = [244e3, 19_600, 3.6e6, 3.1e6, 645e3, 16.9e6]
    assert rates == pytest.approx(said, rel=0.01)
    for text in ("244,000", "19,600", "3.6 million", "on 3.1", "645,000", "16.9 million"):
        assert text in words
