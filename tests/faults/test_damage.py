"""Damaged files: every flipped bit is noticed, what was damaged is done again with the same
outcome, and nothing is executed.
"""

import hashlib
import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import jbrl
from jbrl.play.unit import canonical
from jbrl.study.plan import plan
from jbrl.study.storage.files import DamagedError, pack, pack_json, unpack, unpack_json
from jbrl.study.storage.store import ResultWarning, Store
from tests.faults.cases import (
    Interrupt,
    differences,
    empty,
    files,
    flip,
    halve,
    outcome,
    sealed,
    write_study,
)

HEADER = {"format": 1, "id": "a", "status": "done", "n": 3}
ARRAYS = {"returns": np.sqrt(np.arange(3.0)), "states": np.arange(12, dtype=np.int32).reshape(3, 4)}


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


Record = Callable[[str, object], None]  # of how many faults a test has gone through


@pytest.mark.parametrize(
    ("content", "read"),
    [(pack(HEADER, ARRAYS), unpack), (pack_json(HEADER), unpack_json)],
    ids=["result", "manifest"],
)
def test_every_bit_and_every_truncation_counts(content, read, record_property):
    record_property("tries", 9 * len(content) + 1)
    read(content)
    harmed = [flipped(content, bit) for bit in range(8 * len(content))]
    harmed += [content[:length] for length in range(len(content))] + [content + b"\0"]
    for wrong in harmed:
        with pytest.raises(DamagedError):
            read(wrong)


def test_files_without_a_seal_are_refused():
    text = np.frombuffer(canonical(HEADER).encode(), np.uint8)
    for content, read in (
        (archive(header=text, **ARRAYS), unpack),
        (json.dumps(HEADER).encode(), unpack_json),
    ):
        with pytest.raises(DamagedError, match="it has no checksum"):
            read(content)


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


def in_header(bomb: Bomb) -> bytes:
    return archive(header=np.array([bomb], dtype=object), returns=np.zeros(3))


def in_returns(bomb: Bomb) -> bytes:
    return archive(
        header=np.frombuffer(canonical(HEADER).encode(), np.uint8),
        returns=np.array([bomb], dtype=object),
    )


def as_file(bomb: Bomb) -> bytes:
    return pickle.dumps(bomb)


def as_array(bomb: Bomb) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([bomb], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def archive(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


def resealed(content: bytes) -> bytes:
    """With a right seal, as somebody would set it who knows how."""
    seal = b"sha256:" + bytes(64)
    changed = bytearray(content + seal)
    # length of the comment of a zip archive
    changed[len(content) - 2 : len(content)] = len(seal).to_bytes(2, "little")
    body = bytes(changed[:-64])
    return body + hashlib.sha256(body).hexdigest().encode()


@pytest.mark.parametrize("dress", [bytes, resealed])
@pytest.mark.parametrize("make", [in_header, in_returns, as_file, as_array])
def test_nothing_is_executed(tmp_path, make, dress):
    mark = tmp_path / "mark"
    content = dress(make(Bomb(mark)))
    with pytest.raises(DamagedError):
        unpack(content)
    for folder in ("units", "knowledge"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.npz").write_bytes(content)
    store = Store(tmp_path)
    with pytest.warns(ResultWarning, match="damaged"):
        assert store.result("a") is None and store.knowledge("a") is None
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()  # it would have gone off


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A study whose directory has every kind of file, and, beside it, what it comes to."""
    folder = tmp_path_factory.mktemp("kinds")
    study = write_study(folder, "search")
    jbrl.run(study, folder / "whole")
    for only in ("Random", "OPPS"):
        with pytest.raises(KeyboardInterrupt):
            plan(study, folder / "part", only=only).execute(Interrupt(played=8, searched=100))
    jbrl.run(study, folder / "part", only="alpha=0.1")
    return folder


KINDS = {
    "result": "whole/units/*.npz",
    "knowledge": "whole/knowledge/*.npz",
    "manifest": "whole/study.json",
    "checkpoint": "part/units/*.partial.npz",
    "search": "part/knowledge/*.partial.npz",
}


# How a file was harmed plays no part in what is done about it.
@pytest.mark.parametrize(
    ("kind", "harm"), list(zip(KINDS, (halve, flip, empty, halve, flip), strict=True))
)
def test_what_is_damaged_is_done_again(complete, kind, harm, tmp_path):
    expected = outcome(complete / "whole")
    source = complete / KINDS[kind].split("/")[0]
    for path in files(source):
        copied = tmp_path / path.relative_to(source)
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(path.read_bytes())
    path = next(iter(tmp_path.glob(KINDS[kind].split("/", 1)[1])))
    harm(path)
    if kind == "knowledge":  # so that somebody needs it
        next(
            unit
            for unit in (tmp_path / "units").iterdir()
            if "learned" in Store(tmp_path).result(unit.stem).header
        ).unlink()  # type: ignore[union-attr]
    only = {"checkpoint": "Random", "search": "OPPS"}.get(kind)
    with pytest.warns(ResultWarning, match=f"{path.name} is damaged .* counts as missing"):
        jbrl.run(complete / "study.toml", tmp_path, only=only)
    assert all(sealed(path) for path in files(tmp_path))
    found = outcome(tmp_path)
    assert list(differences(found, expected)) == []
    assert only or found.keys() == expected.keys()
