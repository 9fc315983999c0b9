"""What an agent is, and the register of all agents.

An agent is a frozen dataclass. Its fields are its parameters: leaves of a pytree, so that a grid of values runs under one
compilation, except those declared `static`, which are capacities. It is written for one MDP; `jbrl.runner` maps it over many.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import chex
import jax
import jax.numpy as jnp

from jbrl.errors import JbrlError, nearest
from jbrl.mdp.dirichlet import DirichletMDPs, Prior
from jbrl.mdp.mdp import MDP
from jbrl.pytree import record

NO_ACTION = -1

Knowledge = TypeVar("Knowledge")
State = TypeVar("State")


class Agent(Generic[Knowledge, State]):
    """The contract. All methods are pure functions that JAX can trace.

    Class attributes:
      oracle: the agent sees the true MDP (a reference line, not a competitor): `reveal` is called before each trajectory.
      lanes: MDPs that one compiled call plays at once on one CPU device. Results do not depend on how many MDPs are
        played because they always run at this width.
      thinks: learning takes a number of equal steps that differs from MDP to MDP. In place of `observe` the runner calls `note`, then
        `think` until `ready`, each MDP at its own pace; the outcome is the same. The state must keep lanes independent and be
        handled by `lanes.over_lanes` functions.
      version: raised whenever the agent's behaviour changes, so that stored results are not taken for the new ones.
    """

    oracle: ClassVar[bool] = False
    lanes: ClassVar[int] = 256
    thinks: ClassVar[bool] = False
    version: ClassVar[int] = 1

    def check_size(self, n_states: int, n_actions: int) -> None:
        """Raise `JbrlError` if an MDP of that size takes more memory than is allowed. On the host, before compiling. Default: never."""

    def simulated_steps(self, mdps: DirichletMDPs) -> float:
        """What the time of one decision grows with, for estimates: about how many steps of a simulation of BAMCP's take as long.

        On the host. Default: none.
        """
        del mdps
        return 0.0

    def fewest_lanes(self, n_actions: int) -> int:
        """MDPs, from 1 to `lanes`, that cost each as much as `lanes` of them do, so that a few tell the time of many. Default: `lanes`."""
        del n_actions
        return self.lanes

    def bytes_needed(self, n_states: int, n_actions: int) -> int:
        """Memory for decisions that all MDPs of a device share, where it grows with the agent's parameters. On the host. Default: none."""
        del n_states, n_actions
        return 0

    def player(self) -> "Agent":
        """The agent that is compiled and plays in place of this one, whose methods are then not used. On the host. Default: itself."""
        return self

    def train(self, key: chex.PRNGKey, prior: Prior) -> Knowledge:
        """Think before the first trajectory; timed as offline time. Default: remember the prior."""
        del key
        return prior  # type: ignore[return-value]

    def reveal(self, knowledge: Knowledge, mdp: MDP) -> Knowledge:
        """Oracles only: knowledge after being shown the true MDP."""
        raise NotImplementedError(f"{type(self).__name__} is no oracle")

    def reset(self, knowledge: Knowledge) -> State:
        """State at the start of a trajectory."""
        raise NotImplementedError(f"{type(self).__name__} has no method reset")

    def act(self, key: chex.PRNGKey, state: State, x: chex.Array) -> tuple[chex.Array, State]:
        """One decision in MDP state `x` ([] int32): the action, [] int32, and the state after deciding. `NO_ACTION`: none can be chosen."""
        raise NotImplementedError(f"{type(self).__name__} has no method act")

    def observe(self, state: State, x: chex.Array, action: chex.Array, y: chex.Array, reward: chex.Array) -> State:
        """Learn from one transition. Default: nothing to learn."""
        del x, action, y, reward
        return state

    def refusal(self, n_actions: int) -> str:
        """What to tell the user when `act` has chosen no action, or one that does not exist."""
        return f"chose an action outside 0..{n_actions - 1}"

    def note(self, state: State, x: chex.Array, action: chex.Array, y: chex.Array, reward: chex.Array) -> State:
        """Agents that think: take in one transition. Must return a state that is not `ready` unchanged, as must `act`."""
        raise NotImplementedError(f"{type(self).__name__} does not think")

    def think(self, state: State) -> State:
        """Agents that think: one step. Must return a state that is `ready` unchanged."""
        raise NotImplementedError(f"{type(self).__name__} does not think")

    def ready(self, state: State) -> chex.Array:
        """Agents that think: whether the next decision may be taken, [] bool."""
        raise NotImplementedError(f"{type(self).__name__} does not think")


def parameter(
    default: Any,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    static: bool = False,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], None] | None = None,
) -> Any:
    """A parameter of an agent: its default, what it means and the values it may take.

    The type is that of `default`: float, int, bool or str. Strings and `static` values belong to the compiled program.

    Args:
      check: raises `JbrlError`, with what is accepted, for a value of the right type that is not.
    """
    fixed = static or isinstance(default, str)
    rules = {"doc": doc, "low": low, "high": high, "open_low": open_low, "static": fixed, "choices": choices, "check": check}
    return dataclasses.field(default=default, metadata=rules)


@dataclasses.dataclass(frozen=True)
class AgentEntry:
    """One line of the register."""

    name: str
    agent: type[Agent]
    cite: str  # key in references.bib, or a BibTeX entry

    @property
    def summary(self) -> str:
        """First line of the agent's docstring."""
        return (self.agent.__doc__ or "").strip().splitlines()[0]


AGENTS: dict[str, AgentEntry] = {}


def register_agent(name: str, *, cite: str = "") -> Callable[[type], type]:
    """Class decorator: make the class a record and list it under `name`."""

    def register(cls: type) -> type:
        made: type = record(cls)
        if name in AGENTS:
            raise ValueError(f"two agents are called {name}")
        AGENTS[name] = AgentEntry(name, made, cite)
        return made

    return register


def check_parameters(cls: type[Agent], values: dict[str, Any], where: str) -> dict[str, Any]:
    """All parameters of an agent, defaults filled in, each of its declared type.

    Args:
      where: place to name in messages, for example `study.toml: agents[2]`.

    Raises:
      JbrlError: an unknown parameter, a value of the wrong type or out of range.
    """
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise JbrlError(f"{where}: unknown parameter '{name}'{nearest(name, fields)}")
    return {name: _checked(field, values.get(name, field.default), f"{where}: {name}") for name, field in fields.items()}


def check_agent(agent: Agent) -> None:
    """Raise `JbrlError` unless every parameter of `agent` has a value that it accepts."""
    values = {f.name: getattr(agent, f.name) for f in dataclasses.fields(agent)}  # type: ignore[arg-type]
    check_parameters(type(agent), values, type(agent).__name__)


def as_arrays(agent: Agent) -> Agent:
    """The agent that plays for `agent`, its parameters as float32, int32 or bool arrays, so that all values share one compiled program."""
    kinds = {float: jnp.float32, int: jnp.int32, bool: jnp.bool_}
    return jax.tree.map(lambda v: jnp.asarray(v, kinds[type(v)]) if type(v) in kinds else v, agent.player())


def _checked(field: dataclasses.Field, value: Any, where: str) -> Any:
    kind, rules = type(field.default), field.metadata
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not kind:
        raise JbrlError(f"{where} = {value!r}: expected {_accepted(field)}")
    if rules.get("choices") and value not in rules["choices"]:
        raise JbrlError(f"{where} = {value!r}: expected {_accepted(field)}")
    if kind in (int, float):
        number: Any = value
        low, high = rules.get("low", -math.inf), rules.get("high", math.inf)
        below = number <= low if rules.get("open_low") else number < low
        if not math.isfinite(number) or below or number > high:
            raise JbrlError(f"{where} = {value!r}: expected {_accepted(field)}")
    if rules.get("check"):
        try:
            rules["check"](value)
        except JbrlError as error:
            raise JbrlError(f"{where}: {error}") from None
    return value


def _accepted(field: dataclasses.Field) -> str:
    """What a parameter accepts, in words."""
    rules = field.metadata
    if rules.get("choices"):
        return "one of " + ", ".join(repr(c) for c in rules["choices"])
    noun = {float: "a number", int: "an integer", bool: "true or false", str: "a string"}[type(field.default)]
    low, high = rules.get("low", -math.inf), rules.get("high", math.inf)
    above = f" {'above' if rules.get('open_low') else 'from'} {low:g}" if low > -math.inf else ""
    below = f" up to {high:g}" if high < math.inf else ""
    return noun + above + below
