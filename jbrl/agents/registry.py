"""The register of agents, their checks on the host, and agents by name."""

import contextlib
import dataclasses
import tomllib
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax

from jbrl.agents.complete import build, played_agent
from jbrl.base.errors import JbrlError, Register, check_count, expect, nearest, shown, with_hints
from jbrl.base.parameters import check_parameters, separated
from jbrl.base.plugins import find_class, is_outside, source_digest, summary
from jbrl.base.pytree import record
from jbrl.rollout.contract import Agent


@dataclasses.dataclass(frozen=True)
class AgentEntry:
    """One line of the register."""

    name: str
    agent: type[Agent]
    cite: str  # key in references.bib, or a BibTeX entry

    @property
    def summary(self) -> str:
        """First line of the agent's docstring."""
        return summary(self.agent)


AGENTS: Register[AgentEntry] = Register("agent")

AgentClass = TypeVar("AgentClass", bound=type[Agent])


@dataclass_transform(frozen_default=True)
def register_agent(name: str, *, cite: str = "") -> Callable[[AgentClass], AgentClass]:
    """Make the class a record and list it under `name` (class decorator)."""
    expect("register_agent: name", name, str, 'a text, as in @register_agent("Mine")')

    def register(cls: AgentClass) -> AgentClass:
        made: Any = with_hints(record(cls), name)
        if name in AGENTS:
            raise ValueError(f"two agents are called {name}")
        AGENTS[name] = AgentEntry(name, made, cite)
        return made

    return register


def check_agent(agent: Agent) -> None:
    """Raise `JbrlError` unless every parameter of `agent` has a value that it accepts."""
    values = {f.name: getattr(agent, f.name) for f in dataclasses.fields(agent)}  # type: ignore[arg-type]
    check_parameters(type(agent), values, type(agent).__name__)


class FoundAgent(NamedTuple):
    """An algorithm that a study names."""

    agent: type[Agent]
    name: str  # in the register, or `module:Class` where it is not there
    source: str | None  # SHA-256 of its source where it is not one of jbrl's own, in hexadecimal


def find_agent(name: str, folder: Path) -> FoundAgent:
    """Return the algorithm of that name.

    Args:
      name: a name of the register, or `module:Class`, the module being importable as it is or lying
        in `folder`.

    Raises:
      JbrlError: no such algorithm, or it cannot be imported, or it is no agent.
    """
    if ":" not in name:
        if name not in AGENTS:
            hint = nearest(name, AGENTS)
            raise JbrlError(
                f"unknown algorithm '{shown(name, str)}'{hint}; "
                "your own agent is written 'module:Class'"
            )
        agent = AGENTS[name].agent
        if not is_outside(agent):
            return FoundAgent(agent, name, None)
        check_record(agent, name)
        return FoundAgent(agent, name, source_digest(agent) or None)
    agent, digest = find_class(name, folder, Agent, "agent")
    check_record(agent, name)
    return FoundAgent(agent, registered_name(agent) or name, digest)


def named_agent(text: str, folder: Path) -> tuple[Agent, str]:
    """Return an agent by its name, with or without parameters, and the name alone.

    Args:
      text: a name as of `find_agent`, or `name(parameter=value, …)` with values as in TOML.

    Raises:
      JbrlError: as of `find_agent`; parameters that are not written so, or not accepted.
    """
    name, bracket, inside = (part.strip() for part in text.partition("("))
    if text in AGENTS or not bracket:
        found = find_agent(text, folder)
        return found.agent(), found.name
    found = find_agent(name, folder)
    items = [item.partition("=") for item in separated(inside.removesuffix(")")) if item]
    values = {key.strip(): _value(value.strip()) for key, equals, value in items if equals}
    if len(values) < len(items) or not inside.endswith(")"):
        raise JbrlError(
            f"agent '{shown(text, str)}': expected parameters once each, as in BEB(beta=4)"
        )
    return build(found.agent, values, f"agent '{name}'")[0], found.name


def _value(text: str) -> Any:
    """Return a value as TOML or Python has it; other texts, as answers show them, are strings."""
    refused = (ValueError, SyntaxError, RecursionError, MemoryError)
    with contextlib.suppress(*refused):
        return tomllib.loads(f"value = {text}")["value"]
    with contextlib.suppress(*refused):
        return literal_eval(text)
    return text


def registered_name(cls: type) -> str | None:
    """Return the name of an agent's class in the register; None where it is not there."""
    return next((name for name, entry in AGENTS.items() if entry.agent is cls), None)


def shown_name(agent: Agent) -> str:
    """Return the name of an agent for messages: as registered, else that of its class; of an agent
    that draws its parameters, that of those drawn.
    """
    kind = type(played_agent(agent))
    return registered_name(kind) or kind.__name__


def check_record(cls: type[Agent], name: str) -> None:
    """Refuse a class that is no pytree of JAX, that has no defaults, or whose lanes or version are
    no integers.

    Raises:
      JbrlError: says what to write.
    """
    if "__dataclass_fields__" not in vars(cls):  # its own, not inherited
        raise JbrlError(
            f"'{name}' is not registered: write @register_agent(\"{cls.__name__}\") above the class"
        )
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.default is dataclasses.MISSING:
            raise JbrlError(
                f"'{name}': field '{field.name}' has no default: "
                f'expected {field.name}: float = parameter(0.1, "what it means")'
            )
    made = cls()
    if any(isinstance(leaf, cls) for leaf in jax.tree.leaves(made)):
        raise JbrlError(
            f"'{name}' is a plain dataclass: "
            f'write @register_agent("{cls.__name__}") above the class instead'
        )
    check_count(f"'{name}': lanes", made.lanes)
    check_count(f"'{name}': version", made.version, low=0)
