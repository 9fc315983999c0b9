"""Every form of a report is written where it should be."""

import pytest

from jbrl.base.errors import JbrlError
from jbrl.report.study import write_report
from tests.report.synthetic import MANIFEST, study

SMALL = study(n=3, experiments=(("GC", "GC", "GC"),))


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("form", "path"),
    [("html", "index.html"), ("latex", "latex/report.tex"), ("markdown", "markdown/report.md")],
)
def test_forms(form, path, tmp_path):
    found = write_report(*SMALL, MANIFEST, tmp_path, form=form)
    assert found == tmp_path / path
    assert "BEB" in found.read_text(encoding="utf-8")


def test_unknown_forms_are_refused(tmp_path):
    with pytest.raises(JbrlError, match="unknown form of a report 'latx'; did you mean 'latex'"):
        write_report(*SMALL, MANIFEST, tmp_path, form="latx")


@pytest.mark.parametrize("form", ["latex", "markdown"])
def test_where_nothing_can_be_written_it_says_so(form, tmp_path):
    (tmp_path / "file").write_text("")
    little = study(n=3, experiments=(("GC", "GC", "GC"),), agents=(("Random", {}),))
    with pytest.raises(JbrlError, match="the report cannot be written here"):
        write_report(*little, MANIFEST, tmp_path / "file", form=form)
