"""The mutants fit the source as it is, and what has come of them is told."""

import dataclasses
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import mutants, mutations
from benchmarks.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_is_a_change_of_the_source_and_has_tests(mutant):
    source = (mutants.ROOT / mutant.path).read_text()
    changed = mutants.mutated(mutant, source)
    assert changed != source
    compile(changed, mutant.path, "exec")
    files = [(mutants.ROOT / file).read_text() for file in mutant.test_files]
    named = [name.partition("[")[0] for _, _, name in (t.partition("::") for t in mutant.tests)]
    assert files and all(f"def {name}(" in "".join(files) for name in named if name)


def test_names_differ():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 20


def test_text_that_is_not_there_once_is_refused():
    mutant = dataclasses.replace(MUTANTS[0], old="abc", new="d")
    for source, count in (("nothing", 0), ("abc abc", 2)):
        with pytest.raises(ValueError, match=f"'abc' {count} times: expected once"):
            mutants.mutated(mutant, source)


def test_outcomes_are_of_these_mutants_and_the_table_tells_them():
    found = mutants.read()
    assert list(found) == [mutant.name for mutant in MUTANTS]
    assert all(found[mutant.name]["breaks"] == mutant.breaks for mutant in MUTANTS)
    table = mutants.RESULTS.with_suffix(".md").read_text()
    assert table == mutants.markdown(list(found.values()))


def test_a_sample_is_drawn_from_all_modules_and_knows_their_tests(tmp_path):
    source = "def f(x: int = 4):\n    return max(x, 1) if x < 3 else g(x, -x)\n"
    changed = "x += 1\ny = fold_in(y, 5)\nz = h(c=True)\nw = zip(a, strict=True)\n"
    assert {m.new for m in mutations.mutations("two.py", changed)} == {
        *("pass", "2", "fold_in(5, y)", "y", "10", "h()", "z = h(c=False)\n")
    }
    found = {m.new for m in mutations.mutations("one.py", source)}
    assert found >= {"x <= 3", "min(x, 1)", "g(-x, x)", "(x)", "8", "6", "2"}
    assert "(g(x, -x) if x < 3 else max(x, 1))" in found and len(found) == 8
    for name, text in (("jbrl/one.py", source), ("tests/test_two.py", "from jbrl import one\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "tests" / "test_three.py").write_text("")
    drawn = mutations.sample(5, 1, tmp_path)
    assert len({m.name for m in drawn}) == 5 and drawn == mutations.sample(5, 1, tmp_path)
    expected = [("tests/test_two.py",), ("tests/test_three.py",)]
    assert mutations.test_sets(drawn[0], tmp_path) == expected


def test_the_table_of_samples_has_wilsons_intervals():
    samples = mutations.SAMPLES.read_text()
    assert mutations.SAMPLES.with_suffix(".md").read_text() == mutations.markdown(samples)
    assert mutations.wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


Played = Callable[..., dict[str, Any]]


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Plays a mutant of a package of one line, with pytest that ends as is said."""
    (tmp_path / "jbrl").mkdir()
    (tmp_path / "jbrl" / "one.py").write_text("x = 1\n")
    mutant = Mutant("off-by-one", "x is wrong", "one.py", "x = 1", "x = 2", ("-k", "x"))

    def play(mutated: int, plain: int = 0) -> dict[str, Any]:
        def run(command: list[str], **options: Any) -> Any:
            wrong = "2" in (tmp_path / "jbrl" / "one.py").read_text()
            if wrong and mutated < 0:
                raise subprocess.TimeoutExpired(command, options["timeout"])
            code = mutated if wrong else plain
            said = "FAILED t.py::x - no\n" if code else ""
            return subprocess.CompletedProcess(command, code, said)

        monkeypatch.setattr(subprocess, "run", run)
        found = mutants.outcome(mutant, tmp_path, 1.0)
        assert (tmp_path / "jbrl" / "one.py").read_text() == "x = 1\n"
        return found

    return play


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, ("survived", "")), (1, ("killed", "t.py::x")), (-1, ("timed out", ""))],
)
def test_what_becomes_of_a_mutant(played, code, expected):
    found = played(code)
    assert (found["outcome"], found["by"]) == expected


def test_a_mutant_is_not_killed_by_tests_that_fail_without_it_or_do_not_run(played):
    with pytest.raises(RuntimeError, match=r"off-by-one: t\.py::x fails without it, too"):
        played(1, plain=1)
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        played(4)
