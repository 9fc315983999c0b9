"""Agents of a study: names of the register, and agents outside the package, `algorithm = "module:Class"`."""

import dataclasses
from pathlib import Path

import jax

from jbrl.agents.agent import AGENTS, Agent
from jbrl.errors import JbrlError, nearest
from jbrl.outside import find_class


def find_agent(name: str, folder: Path) -> tuple[type[Agent], str | None]:
    """Return the class of an algorithm, and the digest of its source file when it is not one of jbrl's own.

    Args:
      name: a name of the register, or `module:Class`, the module being importable as it is or lying in `folder`.

    Raises:
      JbrlError: no such algorithm, or it cannot be imported, or it is no agent.
    """
    if ":" not in name:
        if name not in AGENTS:
            raise JbrlError(f"unknown algorithm '{name}'{nearest(name, AGENTS)}; your own agent is written 'module:Class'")
        return AGENTS[name].agent, None
    found, digest = find_class(name, folder, Agent, "agent")
    _check_record(found, name)
    return found, digest


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
