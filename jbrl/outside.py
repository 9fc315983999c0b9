"""Modules outside the package, named `module:Class` in a study."""

import hashlib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from jbrl.errors import JbrlError, nearest

_digests: dict[str, str] = {}  # of each module's file when it was imported


def find_class(name: str, folder: Path, contract: type, kind: str) -> tuple[Any, str]:
    """Return a class outside the package, and the SHA-256 of its source file in hexadecimal.

    Args:
      name: `module:Class`, the module being importable as it is or lying in `folder`.
      contract: the class that it must inherit from.
      kind: what such a class is called in messages, for example "agent".

    Raises:
      JbrlError: the module cannot be imported, has changed since it was, or has no such class.
    """
    module_name, _, class_name = name.partition(":")
    module = _imported(module_name, folder)
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, contract)):
        classes = {key: value for key, value in vars(module).items() if isinstance(value, type)}
        candidates = [key for key, value in classes.items() if issubclass(value, contract) and value is not contract]
        known = nearest(class_name, candidates) if candidates else f": it has no class that is a jbrl.{contract.__name__}"
        raise JbrlError(f"'{name}': module '{module_name}' has no {kind} called '{class_name}'{known}")
    return found, _digests[module_name]


def _imported(name: str, folder: Path) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise JbrlError(f"cannot import '{name}' (looked in {folder} too): {_in_short(error)}") from error
    file = Path(module.__file__ or "")
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    if _digests.setdefault(name, digest) != digest:
        raise JbrlError(f"{file} has changed since it was imported: start Python anew to run the new version")
    return module


def _in_short(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    place = "" if isinstance(error, ImportError) else f" ({frame.filename}, line {frame.lineno})"
    return f"{type(error).__name__}: {error}{place}"
