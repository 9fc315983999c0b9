"""Base of the complete algorithms with linear functions: hyperparameters drawn for each lifetime,
its progress, and linear functions that learn along eligibility traces.

A complete algorithm has no parameter that anybody has to choose: each hyperparameter is drawn anew
for each lifetime, from a distribution that is part of the algorithm. Jordan et al. 2020, section 2
and table 4. Here the ends of the distributions are the parameters of the agent, in pairs `_low` and
`_high`; the same number twice fixes a hyperparameter. Those of the steps of a buffer and of a
minibatch of PPO-linear are constants, which the sizes of its arrays follow from.

`jbrl.agents.complete` draws parameters of any agent, as a study asks for it; the random numbers of
the two differ, since stored results of both exist.
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from jbrl import vectorize
from jbrl.agents.complete import log_uniform, uniform
from jbrl.agents.linear.features import Features, Orders, Table, features_of, has_ends
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, static
from jbrl.environments.spec import Episodes, Lifetime
from jbrl.problems.prior import EpisodicPrior, Prior
from jbrl.rollout.contract import (
    SECONDS_PER_STEP,
    Agent,
    Cost,
    HasCost,
    Measured,
    Requirements,
    RestsAtEnd,
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
PARL2_START = 1.0  # step size
ENDLESS = 2**31 - 1  # episodes of a lifetime that has no number of them

# Of a weight or trace in one pass (`benchmarks/jordan.py`); with Fourier terms each comes with its
# share of a cosine, and a group of lanes does not fit into the cache.
SECONDS_PER_ENTRY = 2e-10
SECONDS_PER_TERM = 4e-10


def integer(u: Array, low: Any, high: Any) -> Array:
    """Return the quantile `u` of the uniform distribution on the integers low..high: [] int32."""
    low, high = jnp.int32(low), jnp.int32(high)
    drawn = low + jnp.floor(u * (high - low + 1).astype(jnp.float32)).astype(jnp.int32)
    return jnp.clip(drawn, low, high)


def positive(default: float, description: str) -> Any:
    """Declare one end of a range of numbers above 0."""
    return parameter(default, description, low=0, high=1e9, open_low=True)


def table_alpha(end: str, default: float, of: str = "") -> Any:
    """Declare one end, "least" or "greatest", of the step sizes for tables.

    Args:
      of: what learns with them, where an algorithm has several; for the text.
    """
    drawn = ", drawn log-uniformly" if end == "least" else ""
    return positive(default, f"{end} step size{of and f' of the {of}'} for tables{drawn}")


def fourier_alpha(end: str, default: float, of: str = "", *, divided: bool = False) -> Any:
    """Declare one end of the step sizes for Fourier bases; `divided`: by the number of weights."""
    note = ", before the division" if divided else ""
    return positive(default, f"{end} step size{of and f' of the {of}'} for Fourier bases{note}")


@record
class Progress:
    """Record of a lifetime so far, and its hyperparameters."""

    drawn: dict[str, Array]  # [] float32 each
    episodes: Array  # [] int32, that have ended
    fresh: Array  # [] bool, no step of the episode has been learned yet
    skipped: Array  # [] int32, updates skipped, the error being NaN
    undefined: Array  # [] int32, steps of which a value or a preference was NaN
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

    @property
    def decay(self) -> Array:
        """Decay of traces, gamma lambda; 0 at the first step of an episode: [] float32."""
        return jnp.where(self.fresh, 0.0, self.drawn["gamma"] * self.drawn["lambda"])

    def encoded(self, observation: Array, here: Array) -> Array:
        """Return an observation as passes over weights take it: `here`, which is that of the last
        transition, and computed at the first step of an episode only.
        """

        def compute(operand: Any) -> Array:
            return self.features.encoded(*operand)

        return self.at_first(compute, (observation, self.orders), here)

    def at_first(self, fn: Callable[[Any], Any], operand: Any, otherwise: Array) -> Array:
        """Return `fn(operand)` at the first step of an episode, else `otherwise`, of its shape.

        Lookups in a table are cheapest for all lanes at once, features for those that need them.
        """
        if isinstance(self.features, Table):
            first = vectorize.computed_if_any(self.fresh, fn, operand)
            return jnp.where(self.fresh, first, otherwise)
        computed: Array = vectorize.computed_where(self.fresh, fn, operand, otherwise)
        return computed

    def after(
        self, transition: Transition, learns: Array, error: Array, *values: Array
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


@record
class LinearFunction:
    """A linear function of features that learns along an eligibility trace."""

    weights: Array  # [A, F] float32
    trace: Array  # [A, F] float32
    alpha: Array  # [] float32, step size

    def learned(
        self,
        progress: Progress,
        at: Array,
        gradient: Array,
        error: Array,
        learns: Array,
        following: tuple[Array, Array] | None = None,
    ) -> "LinearFunction":
        """Return the function after e <- decay e + gradient phi, then w <- w + alpha error e.

        The weights stay as they are where `learns`, [] bool, is False or the error is NaN; the
        trace moves.

        Args:
          at: the observation, `encoded`.
          gradient: [A] float32, of each row, times the features `at`.
          following: the next observation, `encoded`, and gamma times the gradient there, [A], 0 at
            the end of an episode: the step size is then that of Parl2, the greatest with which an
            update does not overshoot. It is never raised, and not reset between episodes. Dabney
            and Barto 2012, alpha-bound, in the form of the program of Jordan et al. 2020.
        """
        features, orders, alpha = progress.features, progress.orders, self.alpha
        trace = features.traced(self.trace, at, orders, progress.decay, gradient)
        step = alpha * error
        if following is not None:
            there, next_gradient = following
            before, after = features.products(trace, (at, there), orders)
            gained = jnp.where(next_gradient > 0, next_gradient * after, 0.0)
            lost = jnp.where(gradient != 0, gradient * before, 0.0)
            alpha = jnp.where(learns, parl2_bounded(alpha, gained.sum() - lost.sum()), alpha)
            step = vectorize.prevent_fusion(alpha * error)
        keeps = learns & ~jnp.isnan(error)
        weights = features.stepped(self.weights, trace, orders, step, keeps)
        return LinearFunction(weights, trace, alpha)


def parl2_bounded(alpha: Array, change: Array) -> Array:
    """Return the step size of Parl2 after a transition: min(alpha, -1 / change) where `change`, the
    product of the trace with gamma phi' - phi, is negative.
    """
    return jnp.where(change < 0, jnp.minimum(alpha, -1 / change), alpha)


def _endless(prior: Prior) -> str:
    if has_ends(prior.spec.observation):
        return ""
    return (
        "an environment whose observations have finite ends (in Gymnasium, TransformObservation "
        "with a bounded Box declares them)"
    )


class Drawing:
    """Uniform numbers of a lifetime, one for each hyperparameter, and the values drawn by them."""

    def __init__(self, key: Array, features: Features, prior: Prior) -> None:
        self._uniforms = jax.random.uniform(key, (len(PLACES),))
        self.features, self.prior = features, prior
        self.drawn: dict[str, Array] = {}

    def draw(self, name: str, quantile: Callable[..., Array], low: Any, high: Any) -> Array:
        """Draw and keep a hyperparameter, [] float32: the quantile of its uniform number."""
        value = quantile(self._uniforms[PLACES.index(name)], low, high)
        self.drawn[name] = jnp.asarray(value, jnp.float32)
        return value

    def progress(self) -> Progress:
        """Return the progress of a lifetime that begins with what has been drawn so far."""
        zero, yes = jnp.int32(0), jnp.bool_(True)
        return Progress(dict(self.drawn), zero, yes, zero, zero, self.features, self.prior.lifetime)


@record
class CompleteLinear(HasCost, Measured, RestsAtEnd, Sized, StaysWithNaN, Agent[Prior, Any]):
    """Base of the complete algorithms with linear functions.

    Class attributes:
      per_feature: the step sizes for arrays of numbers are divided by the number of features.
      passes: about how many times a step passes over weights and traces, each counted once.
      beside: about how many seconds a decision takes beside that.
      compiling: as in `Cost`.
    """

    version = 2  # Fourier bases: features are computed once for each step, and round otherwise
    requires = Requirements(prior=EpisodicPrior, lacking=_endless)
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
            if not field.name.endswith("_low"):
                continue
            upper = field.name.removesuffix("low") + "high"
            low, high = getattr(self, field.name), getattr(self, upper)
            # leaves are arrays, or anything else, where JAX rebuilds the record
            if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
                raise JbrlError(
                    f"{field.name} = {low}, {upper} = {high}: expected the lower one first"
                )

    def cost(self, prior: Any) -> Cost:
        """Count the passes over the weights and traces of the middle of the sizes that are drawn;
        their memory is that of the greatest.

        Raises:
          JbrlError: observations without finite ends, or orders that give too many features.
        """
        features = self.features(prior)
        arrays = jax.tree.leaves(jax.eval_shape(lambda: self.reset(jax.random.key(0), prior)))
        numbers = sum(v.size for v in arrays if v.ndim == 2)
        used = numbers * self._mean_size(features) / features.capacity
        each = SECONDS_PER_ENTRY if isinstance(features, Table) else SECONDS_PER_TERM
        seconds = self.beside + self.passes * used * each
        return Cost(steps=seconds / SECONDS_PER_STEP, compiling=self.compiling)

    def _mean_size(self, features: Features) -> float:
        """Return the mean number of features that lanes draw."""
        if isinstance(features, Table):
            return features.n
        dependent = range(int(self.dependent_low), self.dependent_high + 1)
        independent = range(int(self.independent_low), self.independent_high + 1)
        pairs = itertools.product(dependent, independent)
        return float(np.mean([features.size(*pair) for pair in pairs]))

    def features(self, prior: Prior) -> Features:
        """Return the features, for the greatest orders.

        Raises:
          JbrlError: observations without finite ends, or orders that give too many features.
        """
        return features_of(prior.spec.observation, self.dependent_high, self.independent_high)

    def begin(self, key: Array, prior: Prior) -> Progress:
        """Return the progress of a lifetime that begins, all hyperparameters drawn.

        Raises:
          JbrlError: observations without finite ends, or orders that give too many features.
        """
        features = self.features(prior)
        drawing = Drawing(key, features, prior)
        gap = drawing.draw("gamma", log_uniform, self.gamma_gap_low, self.gamma_gap_high)
        drawing.drawn["gamma"] = 1 - gap
        drawing.draw("lambda", uniform, self.lambda_low, self.lambda_high)
        if not isinstance(features, Table):
            drawing.draw("dependent", integer, self.dependent_low, self.dependent_high)
            drawing.draw("independent", integer, self.independent_low, self.independent_high)
        sizes = features.sizes(drawing.progress().orders)
        drawing.drawn["features"] = sizes.astype(jnp.float32)
        self.draw(drawing)
        return drawing.progress()

    def draw(self, drawing: Drawing) -> None:
        """Draw the hyperparameters that not all algorithms have."""
        raise NotImplementedError(f"{type(self).__name__} has no method draw")

    def draw_alpha(self, drawing: Drawing, name: str, *, parts: int = 1, prefix: str = "") -> None:
        """Draw the step size `name`, by the range for tables or that for Fourier bases.

        Args:
          parts: weights for each feature, which the step size is divided by along with the number
            of features, where the algorithm does so.
          prefix: of the parameters that hold the range.
        """
        table = isinstance(drawing.features, Table)
        field = f"{prefix}alpha" if table else f"{prefix}fourier_alpha"
        low, high = (getattr(self, f"{field}_{end}") for end in ("low", "high"))
        value = drawing.draw(name, log_uniform, low, high)
        if self.per_feature and not table:
            drawing.drawn[name] = value / (drawing.drawn["features"] * jnp.float32(parts))

    def learns(self, progress: Progress) -> Array:
        """Return whether the agent learns from the next transition: [] bool.

        It does until its lifetime is over, or before if asked to stop.
        """
        last = _episodes(progress.lifetime)
        limit = jnp.where(self.learning_episodes > 0, self.learning_episodes, last)
        return progress.episodes < jnp.minimum(limit, last)

    def without_end(self, state: Any) -> Any:
        """See `RestsAtEnd`."""
        progress = dataclasses.replace(state.progress, lifetime=Episodes(ENDLESS))
        return dataclasses.replace(state, progress=progress)

    def sizes(self, state: Any) -> npt.NDArray[np.int64]:
        """See `Sized`: the number of features."""
        return np.asarray(state.progress.drawn["features"], np.int64)

    def metrics(self, state: Any) -> dict[str, Any]:
        """See `Measured`: hyperparameters as `drawn_`, updates that were skipped, and steps at
        which a value was NaN.
        """
        progress = state.progress
        counts = {"skipped_updates": progress.skipped, "undefined_steps": progress.undefined}
        return {f"drawn_{name}": value for name, value in progress.drawn.items()} | counts


def _episodes(lifetime: Lifetime) -> Array:
    """Return the number of episodes of a lifetime, [] int32."""
    return jnp.int32(lifetime.episodes if isinstance(lifetime, Episodes) else ENDLESS)
