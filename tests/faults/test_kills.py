"""`kill -9` loses nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import jbrl
from jbrl.study.plan import plan
from jbrl.study.progress import Progress
from tests.faults.cases import files, outcome
from tests.faults.kills import Ordeal, wrongs
from tests.faults.warm import Warm


@pytest.mark.slow
def test_four_kills(tmp_path: Path, warm: Warm, whole: dict) -> None:
    ordeal = Ordeal(warm, tmp_path, seed=0)
    assert {name: list(arrays) for name, arrays in ordeal.expected.items()} == {
        name: list(arrays) for name, arrays in whole.items()
    }
    figures = ordeal.run(4)
    assert figures.losses == []
    assert figures.tries == 4


@pytest.mark.slow
@pytest.mark.parametrize("kills", [5, 20])
def test_kills_of_a_study_of_episodes(tmp_path: Path, warm: Warm, kills: int) -> None:
    figures = Ordeal(warm, tmp_path, 2, "episodes").run(kills)
    assert figures.losses == []
    assert figures.tries == kills and figures.checkpoints


@pytest.mark.slow
def test_kills_of_a_study_with_a_search(tmp_path: Path, warm: Warm) -> None:
    """`benchmarks/faults.py` does it 200 times."""
    figures = Ordeal(warm, tmp_path, 1, "search").run(12)
    assert figures.losses == []
    assert figures.tries == 12 and figures.completed and figures.checkpoints


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    """Another unit's result, whole, under this name."""
    other = next(other for other in files(path.parent) if other != path)
    shutil.copy(other, path)


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    ("harm", "text"), [(flip, "damaged"), (swap, "another unit"), (Path.unlink, "is gone")]
)
def test_what_is_looked_for_would_be_found(
    study: Path, whole: dict, harm: Callable[[Path], None], text: str
) -> None:
    out = study.parent / "out"
    jbrl.run(study, out)
    assert list(wrongs(out, whole, set(whole))) == []
    harm(files(out / "units")[0])
    assert any(text in wrong for wrong in wrongs(out, whole, set(whole)))


def test_other_numbers_would_be_found(study: Path, whole: dict) -> None:
    out = study.parent / "out"
    jbrl.run(study, out)
    for name, arrays in whole.items():
        for key in arrays:
            expected = {**whole, name: {**arrays, key: arrays[key] + arrays[key].dtype.type(1)}}
            assert list(wrongs(out, expected, set())) == [f"{name}: {key} differs"]


class Interrupt(Progress):
    def advanced(self, unit: object, n: int, seconds: float, decisions: int) -> None:
        if n == 8:
            raise KeyboardInterrupt


def test_a_checkpoint_is_the_beginning_of_the_result(study: Path, whole: dict) -> None:
    out = study.parent / "out"
    with pytest.raises(KeyboardInterrupt):
        plan(study, out, only="Random").execute(Interrupt())
    ((name, arrays),) = outcome(out).items()
    assert ".partial." in name and {
        key: len(values) for key, values in arrays.items()
    } == dict.fromkeys(arrays, 8)
    assert list(wrongs(out, whole, set())) == []
