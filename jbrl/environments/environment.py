"""The contract of an environment, and the register of all environments.

An environment is a frozen pytree: its settings and its physics are leaves, so that a sweep over
settings, or a perturbation drawn for each lifetime, runs under one compilation; its sizes are
static. It is written for one lane, without a batch axis, and never resets itself: the rollout does,
so that the last observation of an episode is not lost.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, Self, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import TypeVar

from jbrl.base.errors import Register, with_hints
from jbrl.base.plugins import summary
from jbrl.base.pytree import record
from jbrl.base.schema import MetricFigure
from jbrl.environments.spec import Episodes, Lifetime, Spec

State = TypeVar("State", default=Any)


@record
class Step:
    """Result of an action."""

    # as the spec says; after the last step of an episode the terminal observation
    observation: jax.Array
    reward: jax.Array  # [] float32
    terminated: jax.Array  # [] bool, the episode has ended: nothing can be earned afterwards
    # [] bool, the episode was cut off: never together with `terminated`
    truncated: jax.Array = np.False_  # type: ignore[assignment]


class Environment(Generic[State]):
    """The contract.

    All methods are pure functions that JAX can trace; a subclass is a record whose fields
    have defaults.

    Fields declared with `jbrl.parameter` are settings. A field that defaults to None is
    no setting: it holds what `__post_init__` computes, on the host, from the settings.
    `__post_init__` also runs when JAX rebuilds a record from its leaves, of any kind, so it
    computes only where the field is None.

    Keys are outputs of `jax.random.split` or `fold_in`, hence random words: `mdp.sampling.uniforms`
    reads them at no cost. A value in `step` that several outputs depend on is worth a
    `vectorize.prevent_fusion`: XLA computes it anew for each of them otherwise.

    Class attributes:
      lifetime: of a problem that is made of this environment alone, where a study does not say
        another one.
      version: raised whenever the environment's behaviour changes, so that stored results are not
        mistaken for new ones.
      recorder: keeps the score of a lifetime (`jbrl.Recorder`) in a problem that is made of this
        environment alone; None: the mean return per episode.
      figures: of metrics, which a report shows.
      aside: fields that are not part of the identity of an environment, such as a path whose
        content is in another field.
    """

    lifetime: ClassVar[Lifetime] = Episodes(100)
    version: ClassVar[int] = 1
    recorder: ClassVar[Any] = None
    figures: ClassVar[tuple[MetricFigure, ...]] = ()
    aside: ClassVar[tuple[str, ...]] = ()

    @property
    def spec(self) -> Spec:
        """Observations and actions. On the host: it may depend on static fields alone."""
        raise NotImplementedError(f"{type(self).__name__} has no spec")

    @property
    def typical_steps(self) -> float:
        """About how many steps an episode takes, for estimates of time.

        On the host. Default: 100.
        """
        return 100.0

    def reset(self, key: jax.Array) -> tuple[State, Any]:
        """Start an episode: its state, of any structure, and the first observation."""
        raise NotImplementedError(f"{type(self).__name__} has no method reset")

    def step(self, key: jax.Array, state: State, action: jax.Array) -> tuple[State, Step]:
        """Take one action, [] int32 from 0..n-1."""
        raise NotImplementedError(f"{type(self).__name__} has no method step")

    def metrics(self, state: State) -> dict[str, jax.Array]:
        """Return counters of the episode so far, [] float32 each, for example regret.

        Recorders add them up over episodes. Default: none.
        """
        del state
        return {}


class Perturbed:
    """Mixin of environments whose physics differ from one lifetime to the next."""

    def perturb(self, key: jax.Array) -> Self:
        """Draw the environment of one lifetime: the same class and shapes, other values."""
        raise NotImplementedError(f"{type(self).__name__} has no method perturb")

    def moved(self, widths: Mapping[str, float], offsets: Iterable[jax.Array]) -> Self:
        """Return the environment with the fields that `widths` names moved within their ranges.

        A field `spread` is a factor of all widths.

        Args:
          widths: half the width of each range, relative to its middle, the value of the field.
          offsets: place in each range, from -1 to 1, [] float32.
        """
        this: Any = self
        values = {
            name: getattr(this, name) * (1 + this.spread * jnp.float32(width) * offset)
            for (name, width), offset in zip(widths.items(), offsets, strict=True)
        }
        return dataclasses.replace(this, **values)


def drawn(environment: Environment, key: jax.Array) -> Environment:
    """Return the environment of one lifetime: perturbed, if it is one whose physics differ."""
    return environment.perturb(key) if isinstance(environment, Perturbed) else environment


@dataclasses.dataclass(frozen=True)
class EnvironmentEntry:
    """One line of the register."""

    name: str
    environment: type[Environment]
    cite: str  # keys in references.bib, or a BibTeX entry

    @property
    def summary(self) -> str:
        """First line of the environment's docstring."""
        return summary(self.environment)


ENVIRONMENTS: Register[EnvironmentEntry] = Register("environment")


@dataclass_transform(frozen_default=True)
def register_environment(name: str, *, cite: str = "") -> Callable[[type], type]:
    """Make the class a record and list it under `name` (class decorator).

    Its fields are parameters, which `name(field=value)` sets.
    """

    def register(cls: type) -> type:
        if name in ENVIRONMENTS:
            raise ValueError(f"two environments are called {name}")
        made: type = with_hints(record(cls), name)
        ENVIRONMENTS[name] = EnvironmentEntry(name, made, cite)
        return made

    return register


def as_arrays(environment: Environment) -> Environment:
    """Return the environment with its numbers as float32, int32 or bool arrays, so that all values
    share one compiled program.
    """
    kinds = {float: np.float32, int: np.int32, bool: np.bool_}
    return jax.tree.map(
        lambda v: np.asarray(v, kinds[type(v)]) if type(v) in kinds else v, environment
    )
