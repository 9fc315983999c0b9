"""Modules outside the package, named `module:Class` in a study: how they are found, and what
identifies their source.

The results of a class outside the package depend on its source: on the file of its module, on those
of its base classes, and on every module that one of these imports, directly or not, from outside
jbrl, the standard library and installed packages. Imports are read from the text of the files,
wherever they stand in it, relative ones and those of submodules included. Installed packages count
only where the class itself comes from one: then the modules of that package do. What no import
statement names (data files, `importlib.import_module` of a text that is computed) is not seen.
"""

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from jbrl.base.errors import JbrlError, nearest, shown

_digests: dict[str, str] = {}  # of the file of each imported module, when it was first looked at
_PACKAGE = Path(__file__).parents[1]
_refused_for = ContextVar("_refused_for", default="")  # of `without_imports`


def find_class(name: str, folder: Path, contract: type, kind: str) -> tuple[Any, str]:
    """Return a class outside the package, and the SHA-256 of its source in hexadecimal
    (`source_digest`).

    Args:
      name: `module:Class`, the module being importable as it is or lying in `folder`.
      contract: the class that it must inherit from.
      kind: the name of such a class in messages, for example "agent".

    Raises:
      JbrlError: the module cannot be imported, it or a module that it imports has changed since, or
        it has no such class.
    """
    module_name, _, class_name = name.partition(":")
    module = _imported(module_name, folder)
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, contract)):
        classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
        candidates = [
            key
            for key, value in classes.items()
            if issubclass(value, contract) and value is not contract
        ]
        known = (
            nearest(class_name, candidates)
            if candidates
            else f": it has no class that is a jbrl.{contract.__name__}"
        )
        raise JbrlError(
            f"'{name}': module '{module_name}' has no {kind} called '{class_name}'{known}"
        )
    return cls, source_digest(cls, module_name)


def summary(thing: Any) -> str:
    """Return the first paragraph of the docstring of a class or a function, on one line."""
    return " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())


def is_outside(cls: type) -> bool:
    """Return whether a class comes from outside jbrl."""
    return cls.__module__.partition(".")[0] != __name__.partition(".")[0]


def source_digest(cls: type, module_name: str | None = None) -> str:
    """Return the SHA-256 of the source of a class outside the package, in hexadecimal; "" where it
    has no file.

    That of the only file, where it is one; else of the names and digests of all modules, in any
    folder.

    Args:
      module_name: the module that offers the class, where it is not the one that defines it.

    Raises:
      JbrlError: a file has changed since it was imported.
    """
    defining = {
        base.__module__ for base in cls.__mro__ if _spec_file(base.__module__) and is_outside(base)
    }
    own = {cls.__module__, module_name or cls.__module__}
    packages = {name.partition(".")[0] for name in own}
    digests: dict[str, str] = {}
    waiting = sorted(own | {name for name in defining if _counts(name, packages)})
    while waiting:
        name = waiting.pop()
        if name in digests:
            continue
        file = _spec_file(name)
        if file is None:
            continue
        digests[name] = _digest(name, file)
        waiting += [
            other for other in _imports(name, file, digests[name]) if _counts(other, packages)
        ]
    if len(digests) < 2:
        return next(iter(digests.values()), "")
    return hashlib.sha256(
        "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items())).encode()
    ).hexdigest()


def _counts(name: str, packages: set[str]) -> bool:
    """Return whether a module is part of the source: outside all that is installed, or of the
    packages of the class itself.
    """
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == __name__.partition(".")[0]:
        return False
    file = _spec_file(name)
    return file is not None and (top in packages or not _is_installed(file))


def _digest(name: str, file: Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
      JbrlError: it is that of a module which Python has imported, and another one than before.
    """
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if name in sys.modules and _digests.setdefault(name, digest) != digest:
        raise JbrlError(
            f"{file} has changed since it was imported: start Python anew to run the new version"
        )
    return digest


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return (_PACKAGE.resolve(), *(Path(folder).resolve() for folder in folders))


def _is_installed(file: Path) -> bool:
    """Return whether a file belongs to jbrl, the standard library or an installed package."""
    whole = file.resolve()
    return (
        any(whole.is_relative_to(folder) for folder in _installed_folders())
        or "site-packages" in whole.parts
    )


def _spec_file(name: str) -> Path | None:
    """Return the file of a module, which need not be imported; None where there is none."""
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if path is None:
        spec = _spec(name)
        path = spec.origin if spec and spec.has_location else None
    return Path(path) if path and Path(path).is_file() else None


def _spec(name: str) -> ModuleSpec | None:
    """Return the specification of a module without importing it or the packages around it."""
    module = sys.modules.get(name)
    if module is not None:
        return getattr(module, "__spec__", None)
    parent, places = name.rpartition(".")[0], None
    if parent:
        above = _spec(parent)
        places = above.submodule_search_locations if above else None
        if places is None:
            return None
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, places)
        except (ImportError, AttributeError, ValueError, RecursionError):
            continue
        if spec is not None:
            return spec
    return None


def _imports(name: str, file: Path, digest: str) -> Iterator[str]:
    """Yield the modules that the text of a module imports, and the packages that they lie in."""
    spec = _spec(name)
    is_package = bool(spec and spec.submodule_search_locations)
    package = getattr(sys.modules.get(name), "__package__", None) or (
        name if is_package else name.rpartition(".")[0]
    )
    for imported in _written_imports(file, digest, package):
        parts = imported.split(".")
        yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


@functools.cache
def _written_imports(file: Path, digest: str, package: str) -> tuple[str, ...]:
    """Return the modules that import statements of a file of this content may name."""
    del digest
    if file.suffix != ".py":
        return ()
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return ()
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # beyond the top of the package, in code that is never run
                continue
            names += [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]
    return tuple(names)


@contextlib.contextmanager
def without_imports(what: str) -> Iterator[None]:
    """Refuse, within the block, classes whose module is not imported already.

    Args:
      what: names the class, in messages.
    """
    token = _refused_for.set(what)
    try:
        yield
    finally:
        _refused_for.reset(token)


def _imported(name: str, folder: Path) -> ModuleType:
    what = _refused_for.get()
    if what and name not in sys.modules:
        raise JbrlError(
            f"{what} is of the user's own: expected `import {name}` before the policy is loaded"
        )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise JbrlError(
            f"cannot import '{shown(name, str)}' (looked in {folder} too): {_in_short(error)}"
        ) from error
    file = _spec_file(name)
    if file:
        _digest(name, file)
    return module


def _in_short(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    return (
        f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError | RecursionError)
        else explained(error)
    )


UNKNOWN_YET = "Python needs the value of an array that is known only when the program runs"
_NUMBERS = "jnp and jax.lax in place of Python's numbers and loops, and of NumPy"
INSTEAD = {
    "TracerBoolConversionError": "jnp.where in place of Python's if, and, or; jax.lax.while_loop "
    "in place of while",
    "TracerArrayConversionError": _NUMBERS,
    "TracerIntegerConversionError": _NUMBERS,
    "ConcretizationTypeError": _NUMBERS,
}


_CALLED_BACK = "callback: Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def explained(error: BaseException) -> str:
    """Return an error in words: its type, its whole message, and the place in the code of the user
    that it comes from.

    The place, `file, line 12, in act`, stands at the end of the first line. It is that of the
    innermost frame outside jbrl, the standard library and installed packages; where there is none,
    nothing is said. An error of JAX about an array whose value is not known yet says what to write.
    """
    trace = traceback.walk_tb(error.__traceback__)
    frames = [(f.f_code.co_filename, line, f.f_code.co_qualname) for f, line in trace]
    said, kind = f"{type(error).__name__}: {error}".rstrip(), type(error).__name__
    if _CALLED_BACK in said:  # XLA hands on the error of a callback as a text
        frames = [(file, int(line), name) for file, line, name in _FRAME.findall(said)]
        said = said.split("\n")[-1]
    users = (f for f in reversed(frames) if Path(f[0]).is_file() and not _is_installed(Path(f[0])))
    place = next((f"{file}, line {line}, in {name}" for file, line, name in users), "")
    if kind in INSTEAD:
        return f"{UNKNOWN_YET}{f' ({place})' if place else ''}: expected {INSTEAD[kind]}"
    first, *rest = said.split("\n")
    return "\n".join([f"{first} ({place})" if place else first, *rest])
