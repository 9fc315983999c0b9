"""The contract of an agent, and the register of all agents.

An agent is a frozen dataclass. Its fields are its parameters: leaves of a pytree, so that a grid of
values runs under one compilation, except those declared `static`, which are capacities. It is
written for one lane; `jbrl.play` maps it over many.

Parts that only some agents need are mixins, found by type: `Oracle`, `Stepwise`
(`jbrl.rollout.contract`), `OfflineSearch` (`jbrl.agents.offline_search`), `HasCost` and `Compiled`
below.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Generic, dataclass_transform

import jax
import jax.numpy as jnp
from typing_extensions import TypeVar

from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_parameters
from jbrl.base.pytree import record
from jbrl.environments.environment import Box, Discrete, OneHot, Spec
from jbrl.problems.prior import DirichletPrior, EnvironmentPrior, Prior
from jbrl.rollout.contract import Transition

NO_ACTION = -1

Knowledge = TypeVar("Knowledge", default=Any)
State = TypeVar("State", default=Any)


@dataclasses.dataclass(frozen=True)
class Requirements:
    """Requirements of an agent: a kind of prior, and one of some kinds of observation."""

    prior: type[Prior] = Prior
    observations: tuple[type, ...] = (Discrete, OneHot, Box)


BAYESIAN = Requirements(prior=DirichletPrior, observations=(Discrete,))
TABULAR = Requirements(observations=(Discrete, OneHot))


class Agent(Generic[Knowledge, State]):
    """The contract: four pure methods that JAX can trace.

    Class attributes:
      requires: the prior and the observations that it can use; checked on the host before anything
        is compiled.
      lanes: lifetimes that one compiled call plays at once on one CPU device. Results do not depend
        on how many lifetimes are played because they always run at this width.
      version: raised whenever the agent's behaviour changes, so that stored results are not
        mistaken for new ones.
    """

    requires: ClassVar[Requirements] = Requirements()
    lanes: ClassVar[int] = 256
    version: ClassVar[int] = 1

    def train(self, key: jax.Array, prior: Any) -> Knowledge:
        """Think before the first lifetime; timed as offline time.

        Default: remember the prior, of the kind that `requires` names.
        """
        del key
        return prior

    def reset(self, key: jax.Array, knowledge: Knowledge) -> State:
        """Return the state at the start of a lifetime."""
        raise NotImplementedError(f"{type(self).__name__} has no method reset")

    def act(self, key: jax.Array, state: State, observation: jax.Array) -> tuple[jax.Array, State]:
        """Take one decision: the action, [] int32, and the state after deciding.

        `NO_ACTION`: none can be chosen.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method act")

    def observe(self, key: jax.Array, state: State, transition: Transition) -> State:
        """Learn from one transition. Default: nothing to learn."""
        del key, transition
        return state

    def refusal(self, n_actions: int) -> str:
        """Return the message to the user when `act` has chosen no action, or one that does not
        exist.
        """
        return f"chose an action outside 0..{n_actions - 1}"


SECONDS_PER_STEP = 4e-8  # of `Cost`: one core with vectors of 512 bits


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a decision beside playing itself, for estimates and for the choice of short runs."""

    # about how many steps of a simulation of BAMCP's take as long as one decision
    steps: float = 0.0
    memory_bytes: int = 0  # for decisions, shared by all lanes of a device
    lane_bytes: int = 0  # of the state of one lane, where it is large
    # lifetimes that cost each as much as `lanes` of them do; None: `lanes`
    fewest_lanes: int | None = None
    compiling: float = 1.0  # times as long as the programs of a plain learner take to compile


class HasCost:
    """Mixin of agents that state the cost of a decision."""

    def cost(self, prior: DirichletPrior) -> Cost:
        """Return the cost of a decision. On the host.

        Raises:
          JbrlError: it takes more memory than is allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method cost")

    def notice(self, prior: DirichletPrior) -> str | None:
        """Return what to know about the cost before a run, in words; None: nothing. On the host."""
        del prior
        return None


def cost(agent: Agent, prior: Prior) -> Cost:
    """Return the cost of a decision of `agent`; nothing beside playing, where the agent does not
    state it.
    """
    return agent.cost(prior) if isinstance(agent, HasCost) else Cost()  # type: ignore[arg-type]


def notice(agent: Agent, prior: Prior) -> str | None:
    """Return what to know about the cost of `agent` before a run, if anything."""
    return agent.notice(prior) if isinstance(agent, HasCost) else None  # type: ignore[arg-type]


class Compiled:
    """Mixin of agents of which another agent plays, for example a formula as a text of which
    arrays play.
    """

    def player(self) -> Agent:
        """Return the agent that is compiled and plays in place of this one, whose methods are then
        not used.

        On the host.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method player")


def check_requirements(agent: Agent, name: str, prior: Prior, problem: str) -> None:
    """Refuse an agent that cannot use what a problem offers. On the host.

    Args:
      name: the agent's, for the message.
      problem: name of the problem that the prior comes from, for the message.

    Raises:
      JbrlError: says what the agent needs and what the problem offers.
    """
    needs, spec = agent.requires, prior.spec
    if not isinstance(prior, needs.prior):
        raise JbrlError(
            f"{name} needs {_PRIORS[needs.prior]}: '{problem}' offers {_offered(prior)}"
        )
    if not isinstance(spec.observation, needs.observations):
        kinds = " or ".join(_OBSERVATIONS[kind] for kind in needs.observations)
        raise JbrlError(f"{name} needs {kinds}: '{problem}' offers {_observed(spec)}")


_PRIORS = {
    Prior: "a prior",
    DirichletPrior: "a Dirichlet prior over finite MDPs",
    EnvironmentPrior: "an environment with episodes",
}
_OBSERVATIONS = {
    Discrete: "discrete states",
    OneHot: "one-hot observations",
    Box: "arrays of numbers as observations",
}


def _offered(prior: Prior) -> str:
    kind = (
        "a Dirichlet prior over finite MDPs"
        if isinstance(prior, DirichletPrior)
        else "an environment without such a prior"
    )
    return f"{kind} ({prior.spec})"


def _observed(spec: Spec) -> str:
    return f"{_OBSERVATIONS[type(spec.observation)]} ({spec.observation})"


@dataclasses.dataclass(frozen=True)
class AgentEntry:
    """One line of the register."""

    name: str
    agent: type[Agent]
    cite: str  # key in references.bib, or a BibTeX entry

    @property
    def summary(self) -> str:
        """First line of the agent's docstring."""
        return " ".join((self.agent.__doc__ or "").strip().split("\n\n")[0].split())


AGENTS: dict[str, AgentEntry] = {}


@dataclass_transform(frozen_default=True)
def register_agent(name: str, *, cite: str = "") -> Callable[[type], type]:
    """Make the class a record and list it under `name` (class decorator)."""

    def register(cls: type) -> type:
        made: type = record(cls)
        if name in AGENTS:
            raise ValueError(f"two agents are called {name}")
        AGENTS[name] = AgentEntry(name, made, cite)
        return made

    return register


def check_agent(agent: Agent) -> None:
    """Raise `JbrlError` unless every parameter of `agent` has a value that it accepts."""
    values = {f.name: getattr(agent, f.name) for f in dataclasses.fields(agent)}  # type: ignore[arg-type]
    check_parameters(type(agent), values, type(agent).__name__)


def as_arrays(agent: Agent) -> Agent:
    """Return the agent that plays for `agent`, its parameters as float32, int32 or bool arrays, so
    that all values share one compiled program.
    """
    kinds = {float: jnp.float32, int: jnp.int32, bool: jnp.bool_}
    player = agent.player() if isinstance(agent, Compiled) else agent
    return jax.tree.map(lambda v: jnp.asarray(v, kinds[type(v)]) if type(v) in kinds else v, player)
