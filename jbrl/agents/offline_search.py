"""Agents that learn offline in environments drawn from the prior, in rounds: they try strategies,
which are agents themselves, or train one.

Such a search decides on the host what to try next, so it is no function that JAX could trace. The
runner hands it `Trials`, which play many strategies in one compiled call, or compute a round of
training, and keeps what it yields: progress is shown, a search that is killed goes on where it was,
and what one experiment has found serves all others with the same prior.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np

from jbrl.agents.agent import Agent


@dataclass(frozen=True)
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
    def key(self) -> jax.Array:
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
        """


class MadeOfWeights:
    """Mixin of strategies that training has made: agents whose fields are arrays, not parameters,
    and which are not in the register.
    """


class OfflineSearch:
    """Mixin of agents that learn offline in rounds that can be resumed.

    In place of `train`, the runner calls `search`, keeps its checkpoints, and then plays the
    `strategy` that was found.
    """

    budget: int  # a parameter: trajectories to make use of

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

    def arms(self, findings: Findings) -> dict[str, np.ndarray]:
        """Return what was tried, a table of N rows: `strategy` (text), `pulls`, `mean` and `std` of
        the returns, `discarded`, `chosen`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method arms")
