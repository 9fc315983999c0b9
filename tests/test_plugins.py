"""The source of a class outside the package: every file that its behaviour hangs on, and
no other.
"""

import hashlib
import sys
from pathlib import Path

import pytest

from jbrl.base import plugins
from jbrl.base.errors import JbrlError

FILES = {
    "planner.py": (
        "import json\nimport numpy\nimport jbrl\nfrom tools import helper\n"
        "from base_of import Base\n\n"
        "class Planner(Base):\n    pass\n"
    ),
    "base_of.py": "import jbrl\n\nclass Base(jbrl.Agent):\n    pass\n",
    "tools/__init__.py": "from . import deep\n",
    "tools/helper.py": "def two():\n    from .deep.deepest import TWO\n    return TWO\n",
    "tools/deep/__init__.py": "",
    "tools/deep/deepest.py": "import planner\nfrom . import beside\nTWO = 2\n",
    "tools/deep/beside.py": "x = 2\n",
    "tools/unused.py": "x = 1\n",
    "alone.py": "import jbrl\n\nclass Alone(jbrl.Agent):\n    pass\n",
}
USED = [name for name in FILES if name not in ("tools/unused.py", "alone.py")]


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    """Modules of one test are not those of another one."""
    monkeypatch.setattr(plugins, "_digests", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    forget()


def forget() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in ("planner", "base_of", "tools", "alone"):
            del sys.modules[name]
    plugins._digests.clear()
    sys.path_importer_cache.clear()


def write(folder: Path, **changed: str) -> Path:
    for name, text in {**FILES, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def digest(folder: Path, name: str = "planner:Planner") -> str:
    """As a new process sees it."""
    import jbrl

    forget()
    sys.path[:] = [place for place in sys.path if "source_of_" not in place]
    return plugins.find_class(name, folder, jbrl.Agent, "agent")[1]


def test_each_file_that_is_imported_counts_and_no_other(tmp_path):
    first = digest(write(tmp_path / "source_of_first"))
    assert len(first) == 64
    for number, name in enumerate(FILES):
        found = digest(
            write(tmp_path / f"source_of_{number}", **{name: FILES[name] + "# another\n"})
        )
        assert (found != first) == (name in USED), name


def test_the_digest_is_of_contents_wherever_they_lie(tmp_path):
    assert digest(write(tmp_path / "source_of_here")) == digest(
        write(tmp_path / "source_of_there" / "below")
    )


def test_a_file_that_imports_nothing_of_its_own_has_its_own_digest(tmp_path):
    folder = write(tmp_path / "source_of_one")
    assert digest(folder, "alone:Alone") == hashlib.sha256(FILES["alone.py"].encode()).hexdigest()


def test_a_module_that_moves_to_another_name_is_another_source(tmp_path):
    first = digest(write(tmp_path / "source_of_a"))
    renamed = {
        "planner.py": FILES["planner.py"].replace("base_of", "tools.unused"),
        "tools/unused.py": FILES["base_of.py"],
    }
    assert digest(write(tmp_path / "source_of_b", **renamed)) != first


def test_a_helper_that_has_changed_since_it_was_imported_is_refused(tmp_path):
    import jbrl

    folder = write(tmp_path / "source_of_changing")
    digest(folder)
    (folder / "tools" / "helper.py").write_text(FILES["tools/helper.py"] + "# another\n")
    with pytest.raises(
        JbrlError, match=r"helper\.py has changed since it was imported: start Python anew"
    ):
        plugins.find_class("planner:Planner", folder, jbrl.Agent, "agent")


def test_jbrl_the_standard_library_and_installed_packages_do_not_count(tmp_path):
    import jbrl

    write(tmp_path / "source_of_x")
    digest(tmp_path / "source_of_x")
    # and one not imported
    assert {*plugins._digests} == {"planner", "base_of", "tools", "tools.helper", "tools.deep"}
    assert plugins.is_outside(sys.modules["planner"].Planner) and not plugins.is_outside(jbrl.Agent)


def test_errors_are_told_with_the_innermost_line_of_the_user(tmp_path):
    path = tmp_path / "mine.py"
    act = "import json\n\nclass Mine:\n    def act(self):\n        return json.loads('{')\n"
    path.write_text(act + "\ndef boom():\n    raise ValueError('one\\ntwo')\n")
    back = f'callback: Traceback (most recent call last):\n  File "{path}", line 8, in boom\n'
    space: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    for call, message in (
        (space["Mine"]().act, f"line 1 column 2 (char 1) ({path}, line 5, in Mine.act)"),
        (space["boom"], f"ValueError: one ({path}, line 8, in boom)\ntwo"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert plugins.explained(caught.value).endswith(message)
    called = RuntimeError(f"{back}    raise E('one')\nE: one\n")  # of XLA, about a callback
    assert plugins.explained(called) == f"E: one ({path}, line 8, in boom)"
