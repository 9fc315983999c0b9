"""The contract of an agent: its four methods, what they exchange, and mixins found by type.

An agent is a frozen dataclass. Its fields are its parameters: leaves of a pytree, so that a grid of
values runs under one compilation, except those declared `static`, which are capacities. It is
written for one lane; `jbrl.play` maps it over many. What only some agents need are mixins:

    Oracle          sees the true environment
    Stepwise        learns from a transition in a number of steps that differs from lane to lane
    OfflineSearch   learns before the first lifetime in rounds that can be resumed
    DrawsParameters stands for a distribution over agents
    Compiled        another agent plays in its place
    HasCost         states what a decision costs, beside playing itself
    Sized, Measured, StaysWithNaN, MayDiverge, RestsAtEnd, MadeOfWeights
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from jbrl import vectorize
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import kind_of
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment
from jbrl.environments.spec import Box, Discrete, OneHot, Spec
from jbrl.problems.prior import DirichletPrior, EnvironmentPrior, EpisodicPrior, Prior

NO_ACTION = -1

Knowledge = TypeVar("Knowledge", default=Any)
State = TypeVar("State", default=Any)


@record
class Transition:
    """One step of a lifetime, as an agent sees it."""

    observation: Array  # as the spec says
    action: Array  # [] int32
    reward: Array  # [] float32
    next_observation: Array  # after the last step of an episode the terminal observation
    terminated: Array  # [] bool, the episode has ended: nothing can be earned afterwards
    truncated: Array  # [] bool, the episode was cut off


@dataclasses.dataclass(frozen=True)
class Requirements:
    """Requirements of an agent: a kind of prior, and one of some kinds of observation."""

    prior: type[Prior] = Prior
    observations: tuple[type, ...] = (Discrete, OneHot, Box)
    # returns what a prior of that kind lacks, in words after «needs»; empty: nothing
    lacking: Callable[[Any], str] | None = None


BAYESIAN = Requirements(prior=DirichletPrior, observations=(Discrete,))
TABULAR = Requirements(observations=(Discrete, OneHot))


class Agent(Generic[Knowledge, State]):
    """The contract: four pure methods that JAX can trace.

    Class attributes:
      requires: the prior and the observations that it can use; checked on the host before anything
        is compiled.
      lanes: lifetimes that one compiled call plays at once on one CPU device. Results do not depend
        on how many lifetimes are played because they always run at the same width.
      holds_model: each decision goes through a table of S^2 A numbers: on a CPU device no more
        lifetimes are played at once than have their tables in its cache.
      version: raised whenever the agent's behaviour changes, so that stored results are not
        mistaken for new ones.
    """

    requires: ClassVar[Requirements] = Requirements()
    lanes: ClassVar[int] = 256
    holds_model: ClassVar[bool] = False
    version: ClassVar[int] = 1

    def train(self, key: Array, prior: Any) -> Knowledge:
        """Think before the first lifetime; timed as offline time.

        Default: remember the prior, of the kind that `requires` names.
        """
        del key
        return prior

    def reset(self, key: Array, knowledge: Knowledge) -> State:
        """Return the state at the start of a lifetime."""
        raise NotImplementedError(f"{type(self).__name__} has no method reset")

    def act(self, key: Array, state: State, observation: Array) -> tuple[Array, State]:
        """Take one decision: the action, [] int32, and the state after deciding.

        `NO_ACTION`: none can be chosen.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method act")

    def observe(self, key: Array, state: State, transition: Transition) -> State:
        """Learn from one transition. Default: nothing to learn."""
        del key, transition
        return state

    def refusal(self, n_actions: int) -> str:
        """Return the message to the user when `act` has chosen no action, or one that does not
        exist.
        """
        return f"chose an action outside 0..{n_actions - 1}"


class Oracle:
    """Mixin of agents that see the true environment: reference lines, not competitors."""

    def reveal(self, knowledge: Any, environment: Environment) -> Any:
        """Return the knowledge after being shown the environment of a lifetime, before
        it starts.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method reveal")


class Stepwise(Agent[Knowledge, State]):
    """Base of agents that learn from a transition in a number of equal steps, which differs from
    lane to lane.

    In place of `observe`, the driver for T steps calls `add_transition`, then `improve` until
    `converged`, each lane at its own pace; the outcome is the same. The state must keep lanes
    independent and be handled by `vectorize.over_lanes` functions.
    """

    def observe(self, key: Array, state: State, transition: Transition) -> State:
        begun = self.add_transition(state, transition)
        return vectorize.while_active(
            _unconverged, _improve, begun, self, keep="nothing", lanes_last=True
        )

    def add_transition(self, state: State, transition: Transition) -> State:
        """Take in one transition.

        Must return a state that is not `converged` unchanged, as must `act`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method add_transition")

    def improve(self, state: State) -> State:
        """Take one step of learning. Must return a state that has `converged` unchanged."""
        raise NotImplementedError(f"{type(self).__name__} has no method improve")

    def converged(self, state: State) -> Array:
        """Return whether the next decision may be taken, [] bool."""
        raise NotImplementedError(f"{type(self).__name__} has no method converged")


def _unconverged(state: Any, agent: Stepwise) -> Array:
    return ~agent.converged(state)


def _improve(state: Any, agent: Stepwise) -> Any:
    return agent.improve(state)


class Sized:
    """Mixin of agents whose work at each step differs from lane to lane, since they draw how many
    weights they have.

    Lifetimes of similar size are played in one group. Results do not depend on it.
    """

    def sizes(self, state: Any) -> np.ndarray:
        """Return the work of a step of each lane, [n] int64 in any unit, from the states of n lanes
        stacked along a leading axis. On the host.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method sizes")


class Measured:
    """Mixin of agents that keep numbers of a lifetime, which stand beside those of the recorder."""

    def metrics(self, state: Any) -> dict[str, Any]:
        """Return entries of the state by name, [] float32 or int32 each: those at the end of the
        block in which the lifetime ended.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method metrics")


class StaysWithNaN:
    """Mixin of agents that go on with NaN in their state: it is no fault, and they keep count of
    it.
    """


class RestsAtEnd:
    """Mixin of agents that rest once as many episodes are over as a lifetime of their prior has:
    lanes that wait for others to end then cost less. A policy plays on.
    """

    def without_end(self, state: Any) -> Any:
        """Return the state, at the start of a lifetime, of one that never ends."""
        raise NotImplementedError(f"{type(self).__name__} has no method without_end")


def watched(agent: Any, state: Any) -> Any:
    """Return the part of an agent's state in which NaN is a fault: all, unless it
    `StaysWithNaN`.
    """
    return () if isinstance(agent, StaysWithNaN) else state


class MayDiverge:
    """Mixin of agents whose learning may diverge: where the state of the agent becomes NaN, or it
    has no action to choose, only that lifetime fails, and the others go on.

    `refusal` says that learning has diverged.
    """


class DrawsParameters:
    """Mixin of agents that stand for a distribution over agents, one drawn for each lifetime."""

    def draw(self, key: Array) -> Any:
        """Draw the agent of one lifetime."""
        raise NotImplementedError(f"{type(self).__name__} has no method draw")

    def draw_and_train(self, key: Array, prior: Prior) -> tuple[Any, Any]:
        """Draw the agent of one lifetime, and what it learns on the prior."""
        raise NotImplementedError(f"{type(self).__name__} has no method draw_and_train")

    def values(self, key: Array) -> dict[str, Array]:
        """Return the values that `draw` draws with this key, numbers [] by parameter."""
        raise NotImplementedError(f"{type(self).__name__} has no method values")


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


SECONDS_PER_STEP = 4e-8  # of `Cost`: one core with vectors of 512 bits


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of a decision beside playing itself, for estimates and for the choice of short runs."""

    # about how many steps of a simulation of BAMCP's take as long as one decision
    steps: float = 0.0
    memory_bytes: int = 0  # for decisions, shared by all lanes of a device
    # lifetimes that cost each as much as `lanes` of them do; None: `lanes`
    fewest_lanes: int | None = None
    # times as long as the programs of a plain learner take to compile, in blocks of steps
    compiling: float = 1.0


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


@dataclasses.dataclass(frozen=True)
class Findings:
    """Findings of a search so far. Plain data."""

    consumed: int  # trajectories that it has made use of
    simulated: int  # trajectories played
    budget: int  # trajectories to make use of in all
    arrays: dict[str, np.ndarray]  # all that is needed to go on


class Trials(Protocol):
    """Player of strategies in environments drawn from the prior, which the runner offers to a
    search.
    """

    @property
    def key(self) -> Array:
        """Key of all that is random before the first lifetime: no lifetime uses it."""

    @property
    def width(self) -> int:
        """Trajectories that one call plays at little more than the cost of one."""

    @property
    def memory(self) -> int:
        """Bytes that may be used; 0: unknown, no bound."""

    def compile(self, examples: Sequence[Agent], wanted: int) -> None:
        """Make ready, outside the clock, to try agents of the structures of `examples`, about
        `wanted` at once.

        Each example is a stack, like what is tried later. All learn alike from the prior: `train`
        of the first one serves the others.
        """

    def __call__(self, agents: Agent, arms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return discounted returns of one trajectory each: [R] float64, NaN where an agent could
        not choose an action.

        Args:
          agents: R of them, stacked along a leading axis.
          arms, numbers: [R] int: arm and number of the pull. The environment and all randomness
            depend on these and the seed alone.
        """

    def compile_round(self, fn: Callable[[Any], Any], example: Any) -> Callable[[Any], Any]:
        """Compile a round of training, outside the clock: return `fn`, compiled for one device.

        One device, since on several the last bits of gradients depend on how many there are.

        Args:
          fn: a function of the module level.
          example: an argument, pytree of arrays.

        Raises:
          JbrlError: by the compiler's count it takes more than `memory`.
        """


class MadeOfWeights:
    """Mixin of strategies that training has made: agents whose fields are arrays, not parameters,
    and which are not in the register.
    """


class OfflineSearch:
    """Mixin of agents that learn offline, in environments drawn from the prior, in rounds that can
    be resumed: they try strategies, which are agents themselves, or train one.

    Such a search decides on the host what to try next, so it is no function that JAX could trace.
    In place of `train`, the runner calls `search` with `Trials`, which play many strategies in one
    compiled call or compute a round of training. It keeps what `search` yields, so that a search
    that is killed goes on where it was, and one search serves all experiments with the same prior;
    it then plays the `strategy` that was found.
    """

    budget: int  # a parameter: trajectories to make use of; absent where nothing is tried

    def search(
        self, seed: int, prior: Any, trials: Trials, before: Findings | None
    ) -> Iterator[Findings]:
        """Search until the budget is spent.

        Args:
          prior: of the kind that the agent `requires`.
          before: go on from these findings of the same search with the same prior and seed;
            None: start.

        Yields: the findings so far. The first ones come before anything is tried, once all is
          compiled: from there on the clock runs.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method search")

    def strategy(self, findings: Findings) -> Agent:
        """Return the best that was found, an agent of the register, by findings that are complete.

        Raises:
          JbrlError: there is none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method strategy")

    def weights(self, findings: Findings) -> dict[str, np.ndarray]:
        """Return the arrays that the strategy consists of, by name, where it is no agent of the
        register: `trained` makes it of them. Default: it is one.

        Those under `parameters`, where there is such a name, are counted as what was learned.
        """
        return {}

    def trained(self, weights: dict[str, np.ndarray]) -> Agent:
        """Return the strategy that consists of these `weights`."""
        raise NotImplementedError(f"{type(self).__name__} has no method trained")

    def search_seconds(self, prior: Any) -> float | None:
        """Return about how many seconds the search takes on one core; None: as long as trying
        strategies does.
        """
        return None

    def search_bytes(self, prior: Any) -> int:
        """Return about how many bytes the search takes, beside those of trying strategies.

        Raises:
          JbrlError: sizes that do not fit, on any machine.
        """
        return 0

    def arms(self, findings: Findings) -> dict[str, np.ndarray]:
        """Return what was tried, a table of N rows: `strategy` (text), `pulls`, `mean` and `std` of
        the returns, `discarded`, `chosen`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method arms")


def as_arrays(agent: Agent) -> Agent:
    """Return the agent that plays for `agent`, its parameters as float32, int32 or bool arrays, so
    that all values share one compiled program.
    """
    kinds = {float: jnp.float32, int: jnp.int32, bool: jnp.bool_}
    player = agent.player() if isinstance(agent, Compiled) else agent
    return jax.tree.map(lambda v: jnp.asarray(v, kinds[type(v)]) if type(v) in kinds else v, player)


def plain(value: Any) -> Any:
    """Return the number in an array of one or in a scalar of NumPy as Python has it, all else,
    what JAX traces included, as it is.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    traced = isinstance(value, jax.core.Tracer)
    return value.item() if kind and kind in "biuf" and not value.ndim and not traced else value


def with_plain_numbers(agent: Agent) -> Agent:
    """Return the agent with Python's numbers in place of arrays and scalars of NumPy and JAX, and
    with integers in place of whole numbers where they are expected.
    """
    changed = {}
    for field in dataclasses.fields(agent):  # type: ignore[arg-type]
        given = getattr(agent, field.name)
        value = plain(given)
        if kind_of(field) is int and type(value) is float and value.is_integer():
            value = int(value)
        if field.init and type(value) is not type(given):
            changed[field.name] = value
    return dataclasses.replace(agent, **changed) if changed else agent  # type: ignore[type-var]


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
    if needs.lacking is not None and (lacking := needs.lacking(prior)):
        raise JbrlError(f"{name} needs {lacking}: '{problem}' is none")


_PRIORS = {
    Prior: "a prior",
    DirichletPrior: "a Dirichlet prior over finite MDPs",
    EpisodicPrior: "an environment with episodes",
    EnvironmentPrior: "an environment of this package",
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
