"""Agents outside the package: `algorithm = "module:Class"` in a study."""

import dataclasses
import hashlib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

import jax

from jbrl.agents.agent import AGENTS, Agent
from jbrl.errors import JbrlError, nearest

_digests: dict[str, str] = {}  # of each module's file when it was imported


def find_agent(name: str, folder: Path) -> tuple[type[Agent], str | None]:
    """The class of an algorithm, and the digest of its source file when it is not one of jbrl's own.

    Args:
      name: a name of the register, or `module:Class`, the module being importable as it is or lying in `folder`.

    Raises:
      JbrlError: no such algorithm, or it cannot be imported, or it is no agent.
    """
    if ":" not in name:
        if name not in AGENTS:
            raise JbrlError(f"unknown algorithm '{name}'{nearest(name, AGENTS)}; your own agent is written 'module:Class'")
        return AGENTS[name].agent, None
    module_name, _, class_name = name.partition(":")
    module = _imported(module_name, folder)
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, Agent)):
        agents = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Agent) and value is not Agent]
        raise JbrlError(f"'{name}': module '{module_name}' has no agent called '{class_name}'{nearest(class_name, agents)}")
    _check_record(found, name)
    return found, _digests[module_name]


def _check_record(cls: type[Agent], name: str) -> None:
    """Refuse a class that JAX cannot look into, or that has no defaults to go by."""
    if "__dataclass_fields__" not in vars(cls):  # its own, not inherited
        raise JbrlError(f"'{name}' is not registered: write @register_agent(\"{cls.__name__}\") above the class")
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING:
            raise JbrlError(
                f"'{name}': field '{field.name}' has no default: expected {field.name}: float = parameter(0.1, \"what it means\")"
            )
    if any(isinstance(leaf, cls) for leaf in jax.tree.leaves(cls())):
        raise JbrlError(f"'{name}' is a plain dataclass: write @register_agent(\"{cls.__name__}\") above the class instead")


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
    place = "" if isinstance(error, ImportError) else f" ({frame.filename}, line {frame.lineno})"
    return f"{type(error).__name__}: {error}{place}"
