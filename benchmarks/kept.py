"""Rows of measurements kept in `benchmarks/results`, and the tables that the documentation
includes, made of the latest of them.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.play.machine import machine, versions  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
TABLES = RESULTS / "tables"


def parser(doc: str, name: str) -> argparse.ArgumentParser:
    """Options that these scripts share: `--out` and `--tables`."""
    made = argparse.ArgumentParser(description=doc.split("\n\n")[0])
    default = RESULTS / f"{name}-cpu{os.cpu_count()}.jsonl"
    made.add_argument("--out", type=Path, default=default, help="file that rows are added to")
    made.add_argument(
        "--tables",
        action="store_true",
        help="measure nothing: write the tables of the documentation from the rows of --out",
    )
    return made


@cache
def _about() -> dict[str, Any]:
    """Versions and machine: they do not change while a script runs."""
    return {"versions": versions(), "machine": machine()}


def keep(row: Mapping[str, Any], file: Path) -> None:
    """Print a row, and add it to a file with date, versions and machine."""
    print(json.dumps(row), flush=True)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        opened.write(json.dumps({**row, "date": date, **_about()}) + "\n")


def latest(file: Path, keys: Sequence[str], **wanted: Any) -> dict[tuple, dict[str, Any]]:
    """Return the last row of each combination of `keys`, of the rows whose fields are as wanted."""
    found: dict[tuple, dict[str, Any]] = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        if all(key in row for key in keys) and all(row.get(k) == v for k, v in wanted.items()):
            found[tuple(row[key] for key in keys)] = row
    return found


def measured(rows: Iterable[Mapping[str, Any]]) -> str:
    """Describe when, where and with which versions rows were measured; empty for rows without a
    date.
    """
    dated = [row for row in rows if "date" in row]
    if not dated:
        return ""
    days = sorted({row["date"][:10] for row in dated})
    last = max(dated, key=lambda row: row["date"])
    place, known = last["machine"], last["versions"]
    return (
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}, {place['processor']}, "
        f"{place['cores']} cores, jax {known['jax']}, jaxlib {known['jaxlib']}."
    )


def number(value: float | None) -> str:
    """Three significant digits, thousands apart from 10,000 on; empty for None."""
    if value is None:
        return ""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a Markdown table; the first `texts` columns to the left, the others to the right."""
    ruler = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ruler, *rows))


def write(name: str, rows: Iterable[Mapping[str, Any]], text: str) -> None:
    """Write a table with a line that says when and where its rows were measured."""
    TABLES.mkdir(parents=True, exist_ok=True)
    about = measured(rows)
    (TABLES / f"{name}.md").write_text(f"{text}\n{f'{chr(10)}{about}{chr(10)}' if about else ''}")
