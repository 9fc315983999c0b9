"""A report is written whole or not at all, in each form where it should be; a study as large as the
published one fits.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import large_study
from jbrl.base.errors import JbrlError
from jbrl.base.files import writing
from jbrl.report.chapters import write_report
from jbrl.report.sections import sections
from tests.faults.cases import contents
from tests.report.synthetic import MANIFEST, study

ROOT = Path(__file__).parents[2]
PLACES = {"html": "index.html", "latex": "latex/report.tex", "markdown": "markdown/report.md"}
SMALL = study(n=3, experiments=(("GC", "GC", "GC"),))


class Full:
    """A disk with room for some files, or for some renames."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, real):
        def write(*given, **named):
            if self.left == 0:
                raise OSError(28, "No space left on device")
            self.left -= 1
            return real(*given, **named)

        return write


@pytest.mark.first_case_quick
@pytest.mark.parametrize("form", PLACES)
@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, form, before):
    out = tmp_path / "new" / "report"
    if before:
        out.mkdir(parents=True)
        (out / "index.html").write_text("before")
    expected = contents(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", Full(1 if form == "html" else 0)(Path.write_text))
        with pytest.raises(JbrlError, match=r"report.*: the report cannot be written here: No sp"):
            write_report(*SMALL, MANIFEST, out, form=form)
    assert contents(tmp_path) == expected
    assert (tmp_path / "new").exists() == before
    page = write_report(*SMALL, MANIFEST, out, form=form)  # there is space again
    assert page == out / PLACES[form] and "BEB" in page.read_text(encoding="utf-8")


def test_unknown_forms_are_refused(tmp_path):
    with pytest.raises(JbrlError, match="unknown form of a report 'latx'; did you mean 'latex'"):
        write_report(*SMALL, MANIFEST, tmp_path, form="latx")


def test_other_files_stay_and_old_ones_are_replaced(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("index.html", "mine.txt", "figures/a.svg"):
        (tmp_path / name).write_text("before")
    with writing(tmp_path) as folder:
        (folder / "figures").mkdir()
        for name in ("index.html", "figures/b.svg"):
            (folder / name).write_text("after")
        assert (tmp_path / "index.html").read_text() == "before"
    found = {name: content.decode() for name, content in contents(tmp_path).items()}
    assert found == {
        "index.html": "after",
        "mine.txt": "before",
        "figures/a.svg": "before",
        "figures/b.svg": "after",
    }
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("fails", range(3))
def test_a_folder_that_cannot_be_moved_whole_stays_as_it_was(tmp_path, monkeypatch, fails):
    """Old pages never stand beside new tables, whichever file the disk refuses."""
    for name in ("a.csv", "index.html"):
        (tmp_path / name).write_text("before")
    before, moved, replace = contents(tmp_path), [], Path.replace
    places = sorted(tmp_path.rglob("*"))

    def full(path: Path, place: Path) -> Path:
        if len(moved) == fails:
            raise OSError(28, "No space left on device")
        moved.append(path)
        return replace(path, place)

    with pytest.raises(JbrlError, match="No space left"), writing(tmp_path) as folder:
        for name in ("a.csv", "figures/b.svg", "index.html"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("after")
        monkeypatch.setattr(Path, "replace", full)
    assert len(moved) == fails and contents(tmp_path) == before
    assert sorted(tmp_path.rglob("*")) == places


def test_what_killed_processes_left_is_removed(tmp_path):
    old, new = tmp_path / ".report.00000000.tmp", tmp_path / ".report.11111111.tmp"
    for left in (old, new):
        left.mkdir()
        (left / "index.html").write_text("half")
    os.utime(old, (0, 0))
    with writing(tmp_path) as folder:
        (folder / "index.html").write_text("whole")
    assert not old.exists() and new.exists()


@pytest.mark.parametrize("name", ["x" * 300, "file/below"])
def test_a_place_that_cannot_be_used_is_told_in_one_sentence(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(JbrlError, match="cannot be written here"), writing(tmp_path / name):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_an_interrupt_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "out") as folder:
        (folder / "index.html").write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_the_grid_is_that_of_the_paper():
    found = Counter(name for name, _ in large_study.agents())
    expected = {"Random": 1, "e-Greedy": 11, "Soft-max": 10, "OPPS-DS": 40, "BAMCP": 21}
    assert found == expected | {"BFS3": 72, "SBOSS": 77, "BEB": 10, "Optimal": 1}
    assert found.total() - found["Optimal"] == 242


@pytest.mark.slow
def test_one_experiment_takes_a_sixth_of_five_megabytes(tmp_path):
    scores, returns = large_study.study(n=10, experiments=large_study.EXPERIMENTS[:1])
    page = write_report(scores, returns, {"oracles": ["Optimal"]}, tmp_path)
    assert page.stat().st_size < 5e6 / 6
    text = page.read_text(encoding="utf-8")
    assert text.count('id="gc--online-mark-') == text.count('id="gc--latency-mark-') == 242


@pytest.mark.slow
def test_tables_of_the_whole_study():
    parts = sections(*large_study.study(), ["Optimal"])
    assert [len(s.competitors) for s in parts] == [242] * 6
    assert all(s.contest.winners({}).algorithms for s in parts)
