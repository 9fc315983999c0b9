"""Public API: names and signatures are those of `tests/reference/api.txt`, and examples run.

`python -m tests.test_api` writes the list anew: a change of it belongs into the changelog.
"""

import doctest
import inspect
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pandas as pd
import pytest

import jbrl

LIST = Path(__file__).parent / "reference" / "api.txt"
MODULES = ("functional", "gymnasium", "plot")


def signature(value: Any) -> str:
    """Return the parameters as text: names, kinds and plain defaults, without types."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    plain = (bool, int, float, str, type(None))
    words, keyword_only = [], False
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and not keyword_only:
            words.append("*")
        keyword_only |= one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        prefix = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "…" if not isinstance(one.default, plain) else repr(one.default)
        words.append(prefix + one.name + ("" if one.default is one.empty else f"={default}"))
    return f"({', '.join(words)})"


def members(name: str, value: Any) -> list[str]:
    """Return a line for the value, and one for each public method that its class writes itself."""
    lines = [name + ("" if isinstance(value, ModuleType) else signature(value))]
    if inspect.isclass(value) and value.__module__.startswith("jbrl"):
        for method, written in sorted(vars(value).items()):
            if not method.startswith("_") and inspect.isfunction(written):
                lines.append(f"{name}.{method}{signature(written)}")
            elif not method.startswith("_") and isinstance(written, property):
                lines.append(f"{name}.{method}")
    return lines


def public() -> list[str]:
    """Return the lines of the public API."""
    lines = []
    for name in sorted(jbrl.__all__):
        lines += members(f"jbrl.{name}", getattr(jbrl, name))
    for name in MODULES:
        module = __import__(f"jbrl.{name}", fromlist=["*"])
        for part in sorted(getattr(module, "__all__", None) or _written(module)):
            lines += members(f"jbrl.{name}.{part}", getattr(module, part))
    return lines


def _written(module: ModuleType) -> list[str]:
    """Return public names that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def test_names_and_signatures_are_those_of_the_stored_list():
    stored = LIST.read_text(encoding="utf-8").splitlines()
    assert public() == stored, "a changed API: python -m tests.test_api, and a line in CHANGELOG.md"


def test_each_public_name_is_on_the_page_of_the_api():
    page = (LIST.parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    assert [name for name in jbrl.__all__ if f"`{name}`" not in page and name[0] != "_"] == []


def test_signatures_on_the_page_have_types():
    settings = (LIST.parents[2] / "docs" / "conf.py").read_text(encoding="utf-8")
    assert 'autodoc_typehints = "signature"' in settings
    functions = [value for name in jbrl.__all__ if inspect.isfunction(value := getattr(jbrl, name))]
    assert all(
        len(one.__annotations__) > len(inspect.signature(one).parameters) for one in functions
    )


def examples() -> list[doctest.DocTest]:
    """Return the examples in docstrings of public names."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    names = {"itertools": itertools, "jax": jax, "jbrl": jbrl, "jnp": jnp, "pd": pd}
    values = {name: getattr(jbrl, name) for name in jbrl.__all__}
    functions = {name: value for name, value in values.items() if callable(value)}
    each = [finder.find(value, name, globs=names) for name, value in functions.items()]
    return [test for tests in each for test in tests if test.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_examples_of_the_api_run(example):
    outcome = doctest.DocTestRunner().run(example)
    assert outcome.attempted and not outcome.failed


if __name__ == "__main__":
    LIST.write_text("\n".join(public()) + "\n", encoding="utf-8")
