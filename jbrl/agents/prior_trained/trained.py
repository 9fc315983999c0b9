"""Agents trained on the prior: rounds that can be resumed, and the arrays that are left of them."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from jbrl.agents.prior_trained.networks import FlatNetwork
from jbrl.agents.prior_trained.rounds import MOST_ROUNDS, Settings
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.mdp.mdp import decisions_until
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Agent, Findings, OfflineSearch, Trials, as_arrays

TRAINING = 2**32 - 2  # number of the key of training; searches that try strategies use small ones
LARGEST_BUDGET = 2 * 10**9
MAX_BYTES = 4 << 30  # of what one round plays
# of the parameters: with both moments before and after a round and on the host, the gradient, its
# parts, and the layers cut out of them
COPIES = 12
STRETCHES = 50  # of a training, that its table shows
NEGLIGIBLE = 0.005  # discount of rewards that training leaves to the value function
SMALLEST_SHARE = 0.02  # of the step size, at the end
WIDTH = 256  # lifetimes of a group, at most
# beyond which training has diverged: inputs, rewards and values are scaled to about 1, so that
# weights stay near 1, but the step of Adam has one length however large they have become
LARGEST_WEIGHT = 1e6


def budget_parameter(default: int) -> Any:
    """Declare the budget of a training."""
    return parameter(default, "lifetimes to train on, in whole rounds", low=1, high=LARGEST_BUDGET)


def batch_parameter(default: int, low: int = 1) -> Any:
    """Declare the lifetimes of a round."""
    text = f"lifetimes of a round, up to {WIDTH} or a multiple of it"
    return parameter(default, text, low=low, high=65_536, static=True)


def horizon_parameter(otherwise: str = "") -> Any:
    """Declare the decisions of a lifetime in training; `otherwise` ends the help."""
    text = "decisions of a lifetime in training; 0: up to where the discount is below 0.005"
    return parameter(0, text + otherwise, low=0, high=100_000, static=True)


@dataclasses.dataclass(frozen=True)
class Lesson:
    """A training, ready to be compiled."""

    # of (state, share, key, (settings, given)): the next state, and [2] float32, mean and standard
    # deviation of the returns
    round: Callable[..., Any]
    settings: tuple[Settings, Any]  # and what a round is given beside them, a pytree of arrays
    start: Callable[[Array], Any]  # the first state, by a key; has `parameters`
    # the weights of the strategy that training leaves as they are
    known: dict[str, npt.NDArray[Any]]

    @property
    def lifetimes(self) -> int:
        """Lifetimes of a round."""
        return self.settings[0].lifetimes


@record
class TrainedOnPrior(OfflineSearch, Agent[None, None]):
    """Base of agents that are trained on lifetimes drawn from the prior, in rounds.

    A round plays new lifetimes, so that all that is needed to go on is the state of the learner.
    Step size and weight of the entropy fall to a fiftieth in a straight line.
    """

    budget: int = budget_parameter(100_000)
    seconds: float = parameter(
        0.0,
        "seconds after which training ends in any case; 0: after the budget. Results then depend "
        "on the machine",
        low=0,
        high=1e7,
    )
    batch: int = batch_parameter(512)
    horizon: int = horizon_parameter()

    def __post_init__(self) -> None:
        # leaves of JAX's are no parameters
        if type(self.batch) is int and self.batch > WIDTH and self.batch % WIDTH:
            raise JbrlError(
                f"batch = {self.batch}: expected a multiple of {WIDTH}, or no more than it"
            )

    def lesson(self, prior: Any) -> Lesson:
        """Return what is to be done on this prior. On the host.

        Raises:
          JbrlError: sizes that do not fit.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method lesson")

    def round_size(self) -> int:
        """Return the lifetimes of a round."""
        return self.batch

    def group_width(self) -> int:
        """Return the lifetimes of a group, which are played together."""
        return min(WIDTH, self.round_size())

    def training_horizon(self, prior: Any) -> int:
        """Return H, the decisions of a lifetime in training: as asked for, or up to where the
        discount is negligible; never more than the lifetime has.
        """
        discount, horizon = float(prior.discount), int(prior.lifetime.steps)
        if self.horizon:
            return min(self.horizon, horizon)
        if discount >= 1:
            return horizon
        return min(horizon, max(2, decisions_until(NEGLIGIBLE, max(discount, 1e-6))))

    def settings(
        self, prior: Any, network: FlatNetwork, discount: float, *, sweeps: int = 0
    ) -> Settings:
        """Return the settings of a round, in groups of at most `WIDTH` lifetimes."""
        size, horizon, width = self.round_size(), self.training_horizon(prior), self.group_width()
        return Settings(
            as_arrays(self),
            jnp.float32(discount),
            network,
            width,
            size // width,
            horizon,
            prior.lifetime == Steps(horizon),
            isinstance(prior, DirichletPrior) and has_unit_concentrations(prior.mdps),
            sweeps,
        )

    def decision_seconds(self, prior: Any) -> float:
        """Return about how many seconds of a core a decision takes in training."""
        raise NotImplementedError(f"{type(self).__name__} has no method decision_seconds")

    def search_seconds(self, prior: Any) -> float:
        size = self.round_size()
        decisions = math.ceil(self.budget / size) * size * self.training_horizon(prior)
        return min(decisions * self.decision_seconds(prior), self.seconds or math.inf)

    def network(self, prior: Any) -> FlatNetwork:
        """Return the network that is trained."""
        raise NotImplementedError(f"{type(self).__name__} has no method network")

    def round_bytes(self, prior: Any) -> int:
        """Return about how many bytes a round plays: the steps, and the MDPs of a group. On the
        host.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method round_bytes")

    def search_bytes(self, prior: Any) -> int:
        played = self.round_bytes(prior)
        self._check_round(played)
        return played + 4 * COPIES * self.network(prior).parameters

    def search(
        self, seed: int, prior: Any, trials: Trials, before: Findings | None
    ) -> Iterator[Findings]:
        self._check_memory(prior, trials.memory)
        lesson = self.lesson(prior)
        key = jax.random.fold_in(trials.key, TRAINING)
        state = jax.jit(lesson.start)(key)
        example = (state, jnp.float32(1), key, lesson.settings)
        call = trials.compile_round(lesson.round, example)
        curve, spent = np.zeros((0, 2)), 0.0
        if before is not None:
            state = filled(state, before.arrays, "state/")
            curve, spent = before.arrays["curve"], float(before.arrays["spent"])
        yield self._findings(lesson, state, curve, spent)
        started = time.perf_counter() - spent
        while len(curve) * lesson.lifetimes < self.budget and (
            not self.seconds or spent < self.seconds
        ):
            share = self._share(len(curve) * lesson.lifetimes, spent)
            state, returns = call((state, jnp.float32(share), key, lesson.settings))
            curve = np.concatenate([curve, np.asarray(returns, np.float64)[None]])
            spent = max(spent, time.perf_counter() - started)
            self._check_numbers(state)
            yield self._findings(lesson, state, curve, spent)

    def _share(self, lifetimes: int, spent: float) -> float:
        """Return the part of the step size that is left."""
        left = 1 - lifetimes / self.budget
        if self.seconds:
            left = min(left, 1 - spent / self.seconds)
        return max(left, SMALLEST_SHARE)

    def _check_round(self, played: int) -> None:
        """Refuse sizes that fit on no machine; `played`: bytes that a round plays."""
        if math.ceil(self.budget / self.round_size()) > MOST_ROUNDS:
            raise JbrlError(
                f"budget = {self.budget}: expected at most {MOST_ROUNDS:,} rounds of "
                f"{self.round_size():,} lifetimes"
            )
        if played > MAX_BYTES:
            raise JbrlError(
                f"{type(self).__name__} takes {played / 2**30:.3g} GiB for a round of "
                f"training: expected at most {MAX_BYTES >> 30} GiB; a smaller batch takes less"
            )

    def _check_memory(self, prior: Any, memory: int) -> None:
        needed = self.search_bytes(prior)
        if memory and needed > memory:
            raise JbrlError(
                f"{type(self).__name__} takes {needed / 2**30:.3g} GiB for training, with a "
                f"network of {self.network(prior).parameters:,} weights: expected at most "
                f"{memory / 2**30:.3g} GiB, the memory that may be used (--memory); a smaller "
                "network or batch takes less"
            )

    def _check_numbers(self, state: Any) -> None:
        largest = float(np.abs(np.asarray(state.parameters)).max())  # NaN where one is
        if not largest <= LARGEST_WEIGHT:
            size = "NaN" if math.isnan(largest) else f"as large as {largest:.2g}"
            raise JbrlError(
                f"{type(self).__name__}: its weights are {size} after {int(state.round):,} "
                f"round{'s' if int(state.round) > 1 else ''}: training has diverged; a smaller "
                "learning_rate may help"
            )

    def _findings(
        self, lesson: Lesson, state: Any, curve: npt.NDArray[Any], spent: float
    ) -> Findings:
        arrays = {
            **named(state, "state/"),
            **{f"known/{name}": value for name, value in lesson.known.items()},
            "curve": curve,
            "spent": np.array(spent),
            "lifetimes": np.array(lesson.lifetimes),
        }
        lifetimes = len(curve) * lesson.lifetimes
        return Findings(lifetimes, lifetimes, max(self.budget, lifetimes), arrays)

    def weights(self, findings: Findings) -> dict[str, npt.NDArray[Any]]:
        known = {
            name.removeprefix("known/"): value
            for name, value in findings.arrays.items()
            if name.startswith("known/")
        }
        return {"parameters": findings.arrays["state/.parameters"], **known}

    def strategy(self, findings: Findings) -> Agent:
        return self.trained(self.weights(findings))

    def arms(self, findings: Findings) -> dict[str, npt.NDArray[Any]]:
        """Return the course of the training, a row for each stretch of it."""
        curve, lifetimes = findings.arrays["curve"], int(findings.arrays["lifetimes"])
        edges = np.unique(np.linspace(0, len(curve), min(STRETCHES, len(curve)) + 1).astype(int))
        parts = [curve[a:b] for a, b in itertools.pairwise(edges)]
        means = np.array([part[:, 0].mean() for part in parts])
        spread = [(part[:, 1] ** 2 + part[:, 0] ** 2).mean() for part in parts]
        return {
            "strategy": np.array([f"to lifetime {edge * lifetimes:,}" for edge in edges[1:]]),
            "pulls": np.diff(edges) * lifetimes,
            "mean": means,
            "std": np.sqrt(np.maximum(np.array(spread) - means**2, 0)),
            "discarded": np.zeros(len(parts), bool),
            "chosen": np.arange(len(parts)) == len(parts) - 1,
        }


def named(tree: Any, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a pytree, copied to the host, by their paths."""
    return {
        prefix + jax.tree_util.keystr(path): np.array(leaf)
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def filled(example: Any, arrays: dict[str, npt.NDArray[Any]], prefix: str) -> Any:
    """Undo `named`: a pytree of the structure of `example`."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: arrays[prefix + jax.tree_util.keystr(path)], example
    )
