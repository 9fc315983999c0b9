"""The example of the page «Write your own agent» runs as it stands."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def jbrl(*args):
    done = subprocess.run([sys.executable, "-m", "jbrl", *map(str, args)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    jbrl("run", DOCS / "examples" / "curious_q.toml", "--out", out, "--quiet", "--set", "study.horizon=100")
    rows = list(csv.DictReader(io.StringIO(jbrl("scores", out, "--format", "csv"))))
    return {(row["algorithm"], json.loads(row["parameters"]).get("bonus")): row for row in rows}


def test_its_study_runs_and_learns(scores):
    assert {row["status"] for row in scores.values()} == {"done"}
    assert len(scores) == 4
    random, own = scores["Random", None], scores["curious_q:CuriousQ", 0.0]
    # Means of 500 returns: 4 standard errors of their difference at least.
    error = (float(random["ci95"]) ** 2 + float(own["ci95"]) ** 2) ** 0.5 / 1.96
    assert float(own["mean"]) - float(random["mean"]) > 4 * error


def test_the_page_shows_the_files_that_run():
    page = (DOCS / "write-your-own-agent.md").read_text(encoding="utf-8")
    for name in ("curious_q.py", "curious_q.toml"):
        assert f"{{literalinclude}} examples/{name}" in page
    assert len((DOCS / "examples" / "curious_q.py").read_text(encoding="utf-8").splitlines()) <= 45
