"""Hyperparameters that a complete algorithm draws for each lifetime, and what its agents share.

A complete algorithm has no parameter that anybody has to choose: each hyperparameter is drawn anew
for each lifetime, from a distribution that is part of the algorithm. Jordan et al. 2020, section 2
and table 4. Here the ends of the distributions are the parameters of the agent, in pairs `_low` and
`_high`; the same number twice fixes a hyperparameter. Those of the steps of a buffer and of a
minibatch of PPO-linear are constants, which the sizes of its arrays follow from.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jbrl import vectorize
from jbrl.agents.linear.features import Features, features_of
from jbrl.agents.linear.table import Table
from jbrl.agents.linear.traces import Orders
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Episodes, Lifetime
from jbrl.problems.prior import EnvironmentPrior, Prior
from jbrl.rollout.contract import (
    SECONDS_PER_STEP,
    Agent,
    Cost,
    HasCost,
    Measured,
    Requirements,
    Sized,
    StaysWithNaN,
    Transition,
)

# of each hyperparameter among the uniform numbers of a lifetime; new ones go to the end
PLACES = (
    "gamma",
    "lambda",
    "dependent",
    "independent",
    "epsilon",
    "alpha",
    "alpha_v",
    "alpha_p",
    "alpha_w",
    "clip",
    "entropy",
    "steps",
    "batch",
    "epochs",
)


# Of a weight or trace in one pass (`benchmarks/jordan.py`); with Fourier terms each comes with its
# share of a cosine, and a group of lanes does not fit into the cache.
SECONDS_PER_ENTRY = 2e-10
SECONDS_PER_TERM = 5e-10


def uniform(u: jax.Array, low: Any, high: Any) -> jax.Array:
    """Return the quantile `u` in [0, 1) of the uniform distribution on [low, high]: [] float32."""
    return jnp.clip(low + u * (high - low), low, high)


def log_uniform(u: jax.Array, low: Any, high: Any) -> jax.Array:
    """Return the quantile `u` of the distribution whose logarithm is uniform on
    [ln low, ln high]: [] float32.
    """
    lows, highs = jnp.log(low), jnp.log(high)
    return jnp.clip(jnp.exp(lows + u * (highs - lows)), low, high)


def integer(u: jax.Array, low: Any, high: Any) -> jax.Array:
    """Return the quantile `u` of the uniform distribution on the integers low..high: [] int32."""
    low, high = jnp.int32(low), jnp.int32(high)
    drawn = low + jnp.floor(u * (high - low + 1).astype(jnp.float32)).astype(jnp.int32)
    return jnp.clip(drawn, low, high)


def step_size(default: float, description: str) -> Any:
    """Return the field of one end of a range of step sizes."""
    return parameter(default, description, low=0, high=1e9, open_low=True)


@record
class Progress:
    """Record of a lifetime so far, and its hyperparameters."""

    drawn: dict  # name: [] float32
    episodes: jax.Array  # [] int32, that have ended
    fresh: jax.Array  # [] bool, no step of the episode has been learned yet
    skipped: jax.Array  # [] int32, updates skipped, the error being NaN
    undefined: jax.Array  # [] int32, steps of which a value or a preference was NaN
    features: Features = static(Table(1))
    lifetime: Lifetime = static(Episodes(1))

    @property
    def orders(self) -> Orders:
        """Orders of the Fourier basis."""
        playing = self.episodes < _episodes(self.lifetime)
        if isinstance(self.features, Table):
            return Orders(jnp.int32(0), jnp.int32(0), playing)
        dependent, independent = (
            self.drawn[name].astype(jnp.int32) for name in ("dependent", "independent")
        )
        return Orders(dependent, independent, playing)

    def encoded(self, observation: jax.Array, here: jax.Array) -> jax.Array:
        """Return an observation as passes over weights take it: `here`, which is that of the last
        transition, and computed at the first step of an episode only.
        """

        def compute(operand: Any) -> jax.Array:
            return self.features.encoded(*operand)

        return self.at_first(compute, (observation, self.orders), here)

    def at_first(self, fn: Callable[[Any], Any], operand: Any, otherwise: jax.Array) -> jax.Array:
        """Return `fn(operand)` at the first step of an episode, else `otherwise`, of its shape.

        Lookups in a table are cheapest for all lanes at once, features for those that need them.
        """
        if isinstance(self.features, Table):
            found = vectorize.computed_if_any(self.fresh, fn, operand)
            return jnp.where(self.fresh, found, otherwise)
        return vectorize.computed_where(self.fresh, fn, operand, otherwise)

    def after(
        self, transition: Transition, learns: jax.Array, error: jax.Array, *values: jax.Array
    ) -> "Progress":
        """Return the progress after a transition.

        Args:
          learns: [] bool, whether the agent still learns.
          error: the update is skipped where it is NaN.
          values: that decisions or updates depend on, of any shape.
        """
        counts = learns.astype(jnp.int32)
        ended = transition.terminated | transition.truncated
        bad = jnp.stack([jnp.isnan(v).any() for v in values]).any()
        return dataclasses.replace(
            self,
            episodes=self.episodes + ended.astype(jnp.int32),
            fresh=ended,
            skipped=self.skipped + counts * jnp.isnan(error).astype(jnp.int32),
            undefined=self.undefined + counts * bad.astype(jnp.int32),
        )


class Drawing:
    """Uniform numbers of a lifetime, one for each hyperparameter, and the values drawn by them.

    Args:
      key: of the lifetime.
    """

    def __init__(self, key: jax.Array, features: Features, lifetime: Lifetime) -> None:
        self._uniforms = jax.random.uniform(key, (len(PLACES),))
        self.features, self.lifetime = features, lifetime
        self.drawn: dict[str, jax.Array] = {}

    def number(self, name: str) -> jax.Array:
        """Return the uniform number of a hyperparameter: [] float32 in [0, 1)."""
        return self._uniforms[PLACES.index(name)]

    def keep(self, name: str, value: jax.Array) -> None:
        """Keep the value of a hyperparameter, as float32."""
        self.drawn[name] = jnp.asarray(value, jnp.float32)

    def progress(self) -> Progress:
        """Return the progress of a lifetime that begins with what has been drawn so far."""
        zero = jnp.int32(0)
        return Progress(
            dict(self.drawn), zero, jnp.bool_(True), zero, zero, self.features, self.lifetime
        )


@record
class CompleteLinear(HasCost, Measured, Sized, StaysWithNaN, Agent[Prior, Any]):
    """Base of the complete algorithms with linear functions.

    Class attributes:
      per_feature: the step sizes for arrays of numbers are divided by the number of features.
      passes: about how many times a step passes over weights and traces, each counted once.
      beside: about how many seconds a decision takes beside that.
      compiling: as in `Cost`.
    """

    version = 2  # Fourier bases: features are computed once for each step, and round otherwise
    requires = Requirements(prior=EnvironmentPrior)
    per_feature: ClassVar[bool] = False
    passes: ClassVar[float] = 1.0
    beside: ClassVar[float] = 1e-7
    compiling: ClassVar[float] = 2.0

    gamma_gap_low: float = parameter(
        1e-4, "least 1 - gamma, drawn log-uniformly", low=0, high=1, open_low=True
    )
    gamma_gap_high: float = parameter(0.05, "greatest 1 - gamma", low=0, high=1, open_low=True)
    lambda_low: float = parameter(0.0, "least decay of traces, drawn uniformly", low=0, high=1)
    lambda_high: float = parameter(1.0, "greatest decay of traces", low=0, high=1)
    dependent_low: int = parameter(
        0, "least order of Fourier terms of several inputs, drawn uniformly", low=0, high=1000
    )
    dependent_high: int = parameter(
        9, "greatest order of Fourier terms of several inputs", low=0, high=1000, static=True
    )
    independent_low: int = parameter(
        1, "least order of Fourier terms of one input, drawn uniformly", low=0, high=1000
    )
    independent_high: int = parameter(
        9, "greatest order of Fourier terms of one input", low=0, high=1000, static=True
    )
    learning_episodes: int = parameter(
        0, "episodes after which it stops learning; 0: it never does", low=0, high=2**31 - 2
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name.endswith("_low"):
                self._check_pair(field.name, field.name.removesuffix("_low") + "_high")

    def _check_pair(self, lower: str, upper: str) -> None:
        low, high = getattr(self, lower), getattr(self, upper)
        # leaves are arrays, or anything else, where JAX rebuilds the record
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            raise JbrlError(f"{lower} = {low}, {upper} = {high}: expected the lower one first")

    def cost(self, prior: Any) -> Cost:
        """Count the passes over the weights and traces of the middle of the sizes that are drawn;
        their memory is that of the greatest.

        Raises:
          JbrlError: observations without finite ends, or orders that give too many features.
        """
        features = self.features(prior)
        state = jax.eval_shape(lambda: self.reset(jax.random.key(0), prior))
        arrays = jax.tree.leaves(state)
        numbers = sum(v.size for v in arrays if v.ndim == 2)
        share = _mean_size(features, self) / features.capacity
        each = SECONDS_PER_ENTRY if isinstance(features, Table) else SECONDS_PER_TERM
        seconds = self.beside + self.passes * numbers * share * each
        lane_bytes = sum(v.size * v.dtype.itemsize for v in arrays)
        return Cost(
            steps=seconds / SECONDS_PER_STEP, lane_bytes=lane_bytes, compiling=self.compiling
        )

    def features(self, prior: Prior) -> Features:
        """Return the features, for the greatest orders.

        Raises:
          JbrlError: observations without finite ends, or orders that give too many features.
        """
        orders = self.dependent_high, self.independent_high
        return features_of(prior.spec.observation, *orders)

    def drawing(self, key: jax.Array, prior: Prior) -> Drawing:
        """Return the drawing of a lifetime, with the hyperparameters that all algorithms have.

        Raises:
          JbrlError: observations without finite ends, or orders that give too many features.
        """
        features = self.features(prior)
        drawing = Drawing(key, features, prior.lifetime)
        gap = log_uniform(drawing.number("gamma"), self.gamma_gap_low, self.gamma_gap_high)
        drawing.keep("gamma", 1 - gap)
        ends = self.lambda_low, self.lambda_high
        drawing.keep("lambda", uniform(drawing.number("lambda"), *ends))
        if not isinstance(features, Table):
            for order in ("dependent", "independent"):
                ends = getattr(self, f"{order}_low"), getattr(self, f"{order}_high")
                drawing.keep(order, integer(drawing.number(order), *ends))
        sizes = features.sizes(drawing.progress().orders)
        drawing.keep("features", sizes.astype(jnp.float32))
        return drawing

    def draw_alpha(self, drawing: Drawing, name: str, *, parts: int = 1, prefix: str = "") -> None:
        """Draw the step size `name`, by the range for tables or that for Fourier bases.

        Args:
          parts: weights for each feature, which the step size is divided by along with the number
            of features, where the algorithm does so.
          prefix: of the parameters that hold the range.
        """
        table = isinstance(drawing.features, Table)
        ends = [
            getattr(self, f"{prefix}{'' if table else 'fourier_'}alpha_{end}")
            for end in ("low", "high")
        ]
        value = log_uniform(drawing.number(name), *ends)
        if self.per_feature and not table:
            value = value / (drawing.drawn["features"] * jnp.float32(parts))
        drawing.keep(name, value)

    def learns(self, progress: Progress) -> jax.Array:
        """Return whether the agent learns from the next transition: [] bool.

        It does until its lifetime is over, or before if asked to stop.
        """
        last = _episodes(progress.lifetime)
        limit = jnp.where(self.learning_episodes > 0, self.learning_episodes, last)
        return progress.episodes < jnp.minimum(limit, last)

    def sizes(self, state: Any) -> np.ndarray:
        """See `Sized`: the number of features."""
        return np.asarray(state.progress.drawn["features"], np.int64)

    def metrics(self, state: Any) -> dict[str, Any]:
        """See `Measured`: hyperparameters as `drawn_`, updates that were skipped, and steps at
        which a value was NaN.
        """
        progress = state.progress
        found = {f"drawn_{name}": value for name, value in progress.drawn.items()}
        return found | {
            "skipped_updates": progress.skipped,
            "undefined_steps": progress.undefined,
        }


def _episodes(lifetime: Lifetime) -> jax.Array:
    """Return the number of episodes of a lifetime, [] int32."""
    return jnp.int32(lifetime.episodes if isinstance(lifetime, Episodes) else 2**31 - 1)


def _mean_size(features: Features, agent: CompleteLinear) -> float:
    """Return the mean number of features that lanes draw."""
    if isinstance(features, Table):
        return features.n
    orders = [
        range(int(getattr(agent, f"{name}_low")), getattr(agent, f"{name}_high") + 1)
        for name in ("dependent", "independent")
    ]
    return float(np.mean([features.size(*pair) for pair in itertools.product(*orders)]))


def decay(progress: Progress) -> jax.Array:
    """Return gamma lambda, and 0 at the first step of an episode: [] float32."""
    drawn = progress.drawn
    return jnp.where(progress.fresh, 0.0, drawn["gamma"] * drawn["lambda"])
