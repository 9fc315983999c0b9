"""The check of speed: what counts as slower, beside what, and that one unlucky measurement is
not enough.
"""

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import jax
import pytest

from benchmarks import all as table
from benchmarks import check, gpu, history, kept, kernels, opps, programs, published
from benchmarks.kernels import Kernel, Pair
from jbrl.play import compilation

LINES = [
    {"kind": "mine", "ratios": {"plan": 100.0, "urn": 5.0}},
    {"kind": "mine", "ratios": {"plan": 90.0}},
    {"kind": "mine", "ratios": {"plan": 1000.0, "urn": 7.0}},
    {"kind": "other", "ratios": {"plan": 1.0}},
]


def test_the_usual_ratio_is_the_median_on_machines_of_the_kind():
    assert history.usual(LINES, "mine") == {"plan": 100.0, "urn": 6.0}
    assert history.usual(LINES, "other") == {"plan": 1.0}
    assert history.usual(LINES, "new") == {}


def test_slower_by_half_is_slower():
    before = {"plan": 150.0, "urn": 6.0}
    assert history.worsened({"plan": 99.0, "urn": 4.1, "new": 0.1}, before) == ["plan"]
    assert history.worsened({"plan": 101.0, "urn": 60.0}, before) == []


def test_what_is_appended_is_read(tmp_path):
    file = tmp_path / "deep" / "history.jsonl"
    assert history.read(file) == []
    for ratio in (2.0, 4.0):
        history.append(history.entry({"plan": ratio}), file)
    lines = history.read(file)
    assert len(lines) == 2 and lines[0]["versions"]["jax"] and lines[0]["machine"]["cores"] > 0
    assert history.usual(lines, history.kind()) == {"plan": 3.0}


def test_machines_whose_instructions_are_limited_are_a_kind_of_their_own(monkeypatch):
    kinds = []
    for flags in ("--xla_a=1", "--xla_a=1 --xla_cpu_max_isa=AVX2", "--xla_cpu_max_isa=SSE4_2"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        kinds.append(history.kind())
    assert kinds == [kinds[0], f"{kinds[0]}-AVX2", f"{kinds[0]}-SSE4_2"]


class Clock:
    """Stands still but for the work of `worker`s."""

    now = 0.0

    def process_time(self) -> float:
        return self.now

    perf_counter = process_time

    def worker(self, *seconds: float) -> Callable[[], None]:
        """Takes so long, call after call, the last time for good."""
        left = list(seconds)

        def work() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return work


@pytest.fixture
def clock(monkeypatch):
    stopped = Clock()
    monkeypatch.setattr(kernels, "time", stopped)
    monkeypatch.setattr(gpu, "time", stopped)
    return stopped


def test_the_ratio_is_of_the_least_times_and_for_each_unit(clock):
    pair = Pair(clock.worker(0, 0.05, 0.004, 0.05), 4, clock.worker(0.05, 0.05, 0.02), 2)
    found = kernels.ratio_of(pair, 3)
    assert found["microseconds"] == pytest.approx(1_000)  # 4 ms for 4
    assert found["numpy"] == pytest.approx(10_000)
    assert found["times_numpy"] == found["numpy"] / found["microseconds"]


def test_a_kernel_that_seems_slow_is_measured_once_more(clock):
    slow_once = Kernel(
        "unlucky", lambda: Pair(clock.worker(0, 0.05, 0.05, 0.002), 1, clock.worker(0.01), 1)
    )
    always_slow = Kernel("slow", lambda: Pair(clock.worker(0.02), 1, clock.worker(0.01), 1))
    before = {"unlucky": 4.0, "slow": 4.0}
    ratios = check.ratios_of([slow_once, always_slow], before, rounds=2)
    assert history.worsened(ratios, before) == ["slow"]
    told = check.told(ratios, before).splitlines()
    assert [line.endswith("SLOWER") for line in told] == [False, False, True]


def test_more_or_larger_programs_than_before_are_told(tmp_path):
    file = tmp_path / "programs.json"
    assert not check.grown({"a": 9}, file)
    known = {"jax": jax.__version__, "operations": {"a": 9, "b": 1000}}
    file.write_text(json.dumps(known))
    assert not check.grown({"a": 9, "b": 999}, file) and not check.grown({"a": 9}, file)
    assert check.grown({"a": 9, "c": 1}, file) == [
        "c: not in programs.json: nothing to compare with"
    ]
    assert check.grown({"a": 9, "b": 1001}, file) == ["b: 1,001 operations, 1,000 before"]
    other, more = check.grown({"a": 9, "b": 9, "c": 9}, file)
    assert other.startswith("c: not in") and "takes 3 programs, 2 before" in more
    file.write_text(json.dumps(known | {"jax": "0.0"}))
    assert not check.grown({"a": 10}, file)


def test_units_that_differ_in_data_share_programs(tmp_path):
    """Of four algorithms, one with three values of a parameter: a program for each that plays, one
    that draws, one that trains BEB, and one that trains both e-Greedy and Soft-max; none is
    compiled.
    """
    study = tmp_path / "study.toml"
    study.write_text(
        '[study]\nname = "three"\n[[experiments]]\nname = "GC"\nprior = "GC"\ntest = "GC"\n'
        '[[agents]]\nalgorithm = "BEB"\nbeta = [0.5, 2.0, 8.0]\n'
        '[[agents]]\nalgorithm = "Random"\n'
        '[[agents]]\nalgorithm = "e-Greedy"\n'
        '[[agents]]\nalgorithm = "Soft-max"\n'
    )
    before = set(compilation.KEPT)
    operations = programs.operations_of(study)
    assert len(operations) == 7 and min(operations.values()) > 100
    assert set(compilation.KEPT) == before


def test_every_figure_of_the_program_has_a_unit_and_most_of_them_a_kernel():
    figures = kernels.cpp_figures()
    assert figures["BAMCP simulation on GC"] == 3.4
    assert figures["OPPS-DS pull of F3 on GC"] == pytest.approx(1e6 / 115)
    assert len({kernel.name for kernel in kernels.KERNELS} & set(figures)) >= 8


def test_the_table():
    row = {"kernel": "a", "microseconds": 0.0334, "numpy": 142.0, "times_numpy": 4251.5}
    rows = [row | {"cpp": 23.0, "times_cpp": 688.6}]
    job = {"compile_cache": "cold", "units": 3, "programs": 12, "seconds": 9.5}
    job |= {"compile": 5.0, "offline": 1.0, "decisions": 2.0, "rest": 1.5}
    text = table.markdown(rows, [job, {"same_bits": True}], history.entry({"a": 4251.5}))
    assert "| a | 0.0334 | 142 | 4252 | 23 | 689 |" in text
    assert "| cold | 12 | 9.5 | 5.0 | 1.0 | 2.0 | 1.5 |" in text
    assert "main job" not in table.markdown(rows, [], history.entry({}))


@pytest.mark.slow
def test_the_gpu_benchmark_runs_from_end_to_end(tmp_path):
    file, figure = tmp_path / "deep" / "gpu.json", tmp_path / "gpu.svg"
    gpu.main(["--device", "cpu", "--tiny", "--budget", "100000", "--out", str(file)])
    content = json.loads(file.read_text())
    assert content["device"] == "cpu" and content["versions"]["jax"] and content["tiny"]
    rows = content["rows"]
    assert [row for row in rows if "failed" in row] == []
    sections = "copy loop sweeps precision decisions hosted training pulls search deep"
    assert list(dict.fromkeys(row["section"] for row in rows)) == sections.split()
    played = [row for row in rows if row["section"] in ("decisions", "hosted")]
    assert all(row["same_bits"] and row["decisions_per_second"] > 0 for row in played)
    assert all(row["same_bits_in_graphs"] for row in played if row["section"] == "hosted")
    few = tmp_path / "few.json"
    chosen = ["--without-cpu", "--sections", "decisions", "--agents", "BAMCP", "--out", str(few)]
    gpu.main(["--device", "cpu", "--tiny", *chosen])
    assert {row["agent"] for row in json.loads(few.read_text())["rows"]} == {"BAMCP"}
    solved = [
        value
        for row in rows
        if row["section"] == "precision"
        for name, value in row.items()
        if name.endswith(("iteration", "error"))
    ]
    assert len(solved) == 6 and max(solved) < 1e-5
    gpu.main(["--draw", str(file), "--figure", str(figure)])
    assert "e-Greedy" in figure.read_text()


def test_the_gpu_benchmark_drops_what_does_not_fit_and_goes_on_after_a_failure(tmp_path, clock):
    report = gpu.Report(tmp_path / "gpu.json", {}, budget=100.0, started=0.0)

    def work() -> gpu.Row:
        clock.now += 45
        return {"done": True}

    def broken() -> gpu.Row:
        raise MemoryError("too much")

    for number, call in enumerate((work, broken, work, work)):
        report.measure({"section": number}, call)
    told = [
        set(row) - {"section"} for row in json.loads((tmp_path / "gpu.json").read_text())["rows"]
    ]
    # 90 seconds are gone, and another 45 would not fit
    assert told == [{"done"}, {"failed"}, {"done"}, {"skipped"}]


def test_results_of_the_agent_on_the_cpu_itself_agree():
    row = gpu.agent("Random", {}, "GC", 2, 8, jax.devices(), beside_cpu=True)
    assert row["agrees"] and row["same_returns"] == 1.0 and row["difference"] == 0.0


ROOT = Path(__file__).parents[1]
TABLES = ROOT / "benchmarks" / "results" / "tables"
SCRIPTS = [
    *("compiler", "formulas", "jordan", "opps", "planner"),
    *("published", "search", "throughput", "trained"),
]


def test_rows_are_kept_with_date_versions_and_machine(tmp_path):
    file = tmp_path / "deep" / "rows.jsonl"
    for rate in (1, 2):
        kept.keep({"benchmark": "x", "prior": "GC", "rate": rate}, file)
    kept.keep({"benchmark": "x", "prior": "GDL", "rate": 3}, file)
    kept.keep({"benchmark": "y", "prior": "GC", "rate": 4}, file)
    found = kept.latest(file, ("prior",), benchmark="x")
    assert {key: row["rate"] for key, row in found.items()} == {("GC",): 2, ("GDL",): 3}
    row = found["GC",]
    assert row["versions"]["jax"] and row["machine"]["cores"] > 0
    assert kept.measured(found.values()).startswith(row["date"][:10])
    assert kept.measured([{"rate": 1}]) == ""


def test_numbers_have_three_digits():
    numbers = (None, 0.06849, 1.0, 99.96, 12_345.0)
    assert [kept.number(v) for v in numbers] == ["", "0.0685", "1", "100", "12,300"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_tables_are_those_of_the_kept_rows(name, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "TABLES", tmp_path)
    rows = ROOT / "benchmarks" / "results" / f"{name}-cpu2.jsonl"
    import_module(f"benchmarks.{name}").main(["--tables", "--out", str(rows)])
    written = sorted(tmp_path.iterdir())
    assert written
    for path in written:
        assert path.read_text() == (TABLES / path.name).read_text()


def test_every_table_is_included_and_every_inclusion_is_there():
    included = set()
    for page in (ROOT / "docs").rglob("*.md"):
        if "_build" not in page.parts:
            for target in re.findall(r"```\{include\} (\S+)", page.read_text(encoding="utf-8")):
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
                included.add((page.parent / target).resolve())
    assert {path.resolve() for path in TABLES.iterdir()} <= included


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        opps.main(["searhc"])
    assert ended.value.code == 2
    assert "part 'searhc': expected search, overhead, batch" in capsys.readouterr().err


def test_kept_rows_are_json_lines():
    for name in SCRIPTS:
        for line in (ROOT / f"benchmarks/results/{name}-cpu2.jsonl").read_text().splitlines():
            assert isinstance(json.loads(line), dict)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", kernels.KERNELS, ids=lambda kernel: kernel.name)
def test_every_kernel_and_its_twin_run(kernel):
    found = kernels.ratio_of(kernel.make(), 1)
    assert found["microseconds"] > 0 and found["numpy"] > 0


def test_the_online_time_of_the_published_program_is_read():
    told = "\tOffline time:                 0.0078125ms\n\tOnline time (per trajectory): {}\n"
    assert published.online_seconds(told.format("3.79921ms")) == pytest.approx(3.79921e-3)
    assert published.online_seconds(told.format("1.2e+06ms")) == pytest.approx(1200)
    with pytest.raises(SystemExit, match="no online time"):
        published.online_seconds("Progression: 100%")
