"""Tables of the documentation are made of kept rows, the latest of each configuration."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import compiler, formulas, jordan, kept, opps, planner, search, throughput, trained

ROOT = Path(__file__).parents[1]
TABLES = ROOT / "benchmarks" / "results" / "tables"
SCRIPTS = {
    "compiler": compiler,
    "formulas": formulas,
    "jordan": jordan,
    "opps": opps,
    "planner": planner,
    "search": search,
    "throughput": throughput,
    "trained": trained,
}


def test_rows_are_kept_with_date_versions_and_machine(tmp_path: Path) -> None:
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


def test_numbers_have_three_digits() -> None:
    assert [kept.number(v) for v in (None, 0.06849, 1.0, 99.96, 12_345.0)] == [
        "",
        "0.0685",
        "1",
        "100",
        "12,300",
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_tables_are_those_of_the_kept_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "TABLES", tmp_path)
    SCRIPTS[name].main(
        ["--tables", "--out", str(ROOT / "benchmarks" / "results" / f"{name}-cpu2.jsonl")]
    )
    written = sorted(tmp_path.iterdir())
    assert written
    for path in written:
        assert path.read_text() == (TABLES / path.name).read_text()


def test_every_table_is_included_and_every_inclusion_is_there() -> None:
    included = set()
    for page in (ROOT / "docs").rglob("*.md"):
        if "_build" not in page.parts:
            for target in re.findall(r"```\{include\} (\S+)", page.read_text(encoding="utf-8")):
                assert (page.parent / target).is_file(), f"{page.name}: {target}"
                included.add((page.parent / target).resolve())
    assert {path.resolve() for path in TABLES.iterdir()} <= included


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        opps.main(["searhc"])
    assert ended.value.code == 2
    assert "part 'searhc': expected search, overhead, batch" in capsys.readouterr().err


def test_kept_rows_are_json_lines() -> None:
    for name in SCRIPTS:
        for line in (ROOT / f"benchmarks/results/{name}-cpu2.jsonl").read_text().splitlines():
            assert isinstance(json.loads(line), dict)
