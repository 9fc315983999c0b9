"""A folder of a report is written whole or not at all."""

import os
from pathlib import Path

import pytest

from jbrl.base.errors import JbrlError
from jbrl.report.files import writing
from jbrl.report.study import write_report
from tests.report.synthetic import MANIFEST, study

FORMS = ("html", "latex", "markdown")


def listed(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


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
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [False, True])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, form, before):
    scores, returns = study(n=4, experiments=(("GC", "GC", "GC"),))
    out = tmp_path / "new" / "report"
    if before:
        out.mkdir(parents=True)
        (out / "index.html").write_text("before")
    expected = listed(tmp_path)
    monkeypatch.setattr(Path, "write_text", Full(1 if form == "html" else 0)(Path.write_text))
    with pytest.raises(JbrlError, match=r"report.*: the report cannot be written here: No space"):
        write_report(scores, returns, MANIFEST, out, form=form)
    assert listed(tmp_path) == expected
    assert (tmp_path / "new").exists() == before


def test_other_files_stay_and_old_ones_are_replaced(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("index.html", "mine.txt", "figures/a.svg"):
        (tmp_path / name).write_text("before")
    with writing(tmp_path) as folder:
        (folder / "figures").mkdir()
        for name in ("index.html", "figures/b.svg"):
            (folder / name).write_text("after")
        assert (tmp_path / "index.html").read_text() == "before"
    found = {name: content.decode() for name, content in listed(tmp_path).items()}
    assert found == {
        "index.html": "after",
        "mine.txt": "before",
        "figures/a.svg": "before",
        "figures/b.svg": "after",
    }
    assert not list(tmp_path.glob(".*"))


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
