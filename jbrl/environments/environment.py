"""The contract of an environment, the register of all environments, and environments made of
others: a finite MDP, and one with other rewards.

An environment is a frozen pytree: its settings and its physics are leaves, so that a sweep over
settings, or a perturbation drawn for each lifetime, runs under one compilation; its sizes are
static. It is written for one lane, without a batch axis, and never resets itself: the rollout does,
so that the last observation of an episode is not lost.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from jbrl.base.errors import MAX_COUNT, JbrlError, Register, expect, shown, with_hints
from jbrl.base.host_values import find_host_values, refusal
from jbrl.base.parameters import parameter
from jbrl.base.plugins import explained, is_outside, summary
from jbrl.base.pytree import record, select
from jbrl.base.schema import MetricFigure
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Observation, Spec, Steps
from jbrl.mdp import mdp as mdps
from jbrl.mdp import sampling
from jbrl.mdp.mdp import MDP

State = TypeVar("State", default=Any)


@record
class Step:
    """Result of an action."""

    # as the spec says; after the last step of an episode the terminal observation
    observation: Array
    reward: Array  # [] float32
    terminated: Array  # [] bool, the episode has ended: nothing can be earned afterwards
    # [] bool, the episode was cut off: never together with `terminated`
    truncated: Array = np.False_  # type: ignore[assignment]


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

    def reset(self, key: Array) -> tuple[State, Any]:
        """Start an episode: its state, of any structure, and the first observation."""
        raise NotImplementedError(f"{type(self).__name__} has no method reset")

    def step(self, key: Array, state: State, action: Array) -> tuple[State, Step]:
        """Take one action, [] int32 from 0..n-1."""
        raise NotImplementedError(f"{type(self).__name__} has no method step")

    def metrics(self, state: State) -> dict[str, Array]:
        """Return counters of the episode so far, [] float32 each, for example regret.

        Recorders add them up over episodes. Default: none.
        """
        del state
        return {}


class Perturbed:
    """Mixin of environments whose physics differ from one lifetime to the next."""

    def perturb(self, key: Array) -> Self:
        """Draw the environment of one lifetime: the same class and shapes, other values."""
        raise NotImplementedError(f"{type(self).__name__} has no method perturb")

    def moved(self, widths: Mapping[str, float], offsets: Iterable[Array]) -> Self:
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


def step_or_reset(
    environment: Environment, key: Array, state: Any, action: Array
) -> tuple[Any, Array, Step]:
    """Take a step, and start the next episode where one has ended.

    Returns: the state and the observation to go on from, and the result of the step.
    """
    after, step = environment.step(key, state, action)
    anew = environment.reset(jax.random.fold_in(key, 1))
    ended = step.terminated | step.truncated
    state, observation = select(ended, anew, (after, step.observation))
    return state, observation, step


def drawn(environment: Environment, key: Array) -> Environment:
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
    expect("register_environment: name", name, str, 'a text, as in @register_environment("Mine")')

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


def check_environment(environment: Environment[Any], where: str) -> None:
    """Trace an environment, without compiling, and check it against its contract.

    Args:
      where: place to name in messages.

    Raises:
      JbrlError: a method fails, returns something of the wrong structure, shape or dtype, or, in a
        class outside jbrl, takes random numbers or times from the host.
    """
    if not isinstance(environment, Environment):
        raise JbrlError(f"{where}: {shown(environment)}: expected an environment")
    environment = as_arrays(environment)
    for path, leaf in jax.tree.leaves_with_path(environment):
        if not hasattr(leaf, "dtype"):
            field = jax.tree_util.keystr(path).lstrip(".")
            raise JbrlError(
                f"{where}: field '{field}' = {leaf!r}: expected a number or an array; "
                "parameter(…) and static() hold others"
            )
    with errors_named(f"{where}: spec"):
        spec = environment.spec
    _check_spec(spec, f"{where}: spec")
    programs = _check_methods(environment, spec.observation, where)
    if is_outside(type(environment)):
        method = find_host_values(lambda: ((name, trace()) for name, trace in programs.items()))
        if method:
            raise JbrlError(f"{where}: {refusal(method)}")


def _check_methods(
    environment: Environment[Any], space: Observation, where: str
) -> dict[str, Callable[[], Any]]:
    """Check what the methods return; return, by name, what traces them."""
    programs: dict[str, Callable[[], Any]] = {}

    def shapes(method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        programs[method] = lambda: jax.make_jaxpr(lambda *args: function(*args))(*arguments)
        with errors_named(f"{where}: {method}"):
            return jax.eval_shape(function, *arguments)

    key, action = jax.random.key(0), jax.ShapeDtypeStruct((), jnp.int32)
    lane = shapes("perturb", drawn, environment, key)
    if _shapes(lane) != _shapes(environment):
        raise JbrlError(
            f"{where}: perturb returned another structure or other shapes: expected those of the "
            "environment itself"
        )
    first = shapes("reset", lambda e, k: e.reset(k), lane, key)
    if not (isinstance(first, tuple) and len(first) == 2):
        raise JbrlError(f"{where}: reset returned {_kind(first)}: expected (state, observation)")
    _check_observation(space, first[1], f"{where}: reset")
    after = shapes("step", lambda e, k, s, a: e.step(k, s, a), lane, key, first[0], action)
    if not (isinstance(after, tuple) and len(after) == 2 and isinstance(after[1], Step)):
        raise JbrlError(f"{where}: step returned {_kind(after)}: expected (state, Step)")
    if _shapes(after[0]) != _shapes(first[0]):
        raise JbrlError(
            f"{where}: step returned a state {_described(after[0])}: expected "
            f"{_described(first[0])}, as reset returns it"
        )
    _check_observation(space, after[1].observation, f"{where}: step")
    for name, dtype in (("reward", jnp.float32), ("terminated", bool), ("truncated", bool)):
        _check_scalar(getattr(after[1], name), dtype, f"{where}: step returned {name}")
    counters = shapes("metrics", lambda e, s: e.metrics(s), lane, after[0])
    if not isinstance(counters, dict):
        raise JbrlError(f"{where}: metrics returned {_kind(counters)}: expected a dictionary")
    for name, value in counters.items():
        if not isinstance(name, str) or name == "episodes":  # which recorders count
            raise JbrlError(
                f"{where}: metrics returned {name!r}: expected a text other than 'episodes'"
            )
        _check_scalar(value, jnp.float32, f"{where}: metrics returned {name}")
    return programs


@contextlib.contextmanager
def errors_named(where: str) -> Iterator[None]:
    """Raise errors of code outside jbrl as `JbrlError` with the place in that code."""
    try:
        yield
    except JbrlError:
        raise
    except (Exception, SystemExit) as error:
        raise JbrlError(f"{where}: {explained(error)}") from error


def _check_spec(spec: Any, where: str) -> None:
    if (
        not isinstance(spec, Spec)
        or not isinstance(spec.actions, Discrete)
        or not isinstance(spec.observation, Observation)
    ):
        raise JbrlError(
            f"{where} = {spec!r}: expected Spec(observation, actions) with actions Discrete(n)"
        )
    for name in ("observation", "actions"):
        space = getattr(spec, name)
        n = getattr(space, "n", 1)
        if type(n) is not int or not 1 <= n <= MAX_COUNT:
            raise JbrlError(
                f"{where}.{name} = {space!r}: expected n to be an integer from 1 to {MAX_COUNT}, "
                "made of static fields"
            )
    box, where = spec.observation, f"{where}.observation = {spec.observation!r}"
    if not isinstance(box, Box):
        return
    if not isinstance(box.shape, tuple) or not all(isinstance(n, int) and n > 0 for n in box.shape):
        raise JbrlError(f"{where}: expected shape to be a tuple of integers from 1")
    size = math.prod(box.shape)
    for bound in (box.low, box.high):
        numbers = bound if isinstance(bound, tuple) else (bound,) * size
        kinds = int | float | np.integer | np.floating
        if len(numbers) != size or not all(isinstance(number, kinds) for number in numbers):
            raise JbrlError(
                f"{where}: expected low and high to be one number, or {size} in a tuple, one for "
                "each entry"
            )


def _check_observation(space: Observation, value: Any, where: str) -> None:
    if not hasattr(value, "dtype") or value.shape != space.shape or value.dtype != space.dtype:
        expected = f"{np.dtype(space.dtype).name}{list(space.shape)}"
        raise JbrlError(
            f"{where} returned an observation {_described(value)}: expected {expected}, as spec "
            f"says ({space})"
        )


def _check_scalar(value: Any, dtype: Any, where: str) -> None:
    if not hasattr(value, "dtype") or value.shape != () or value.dtype != dtype:
        raise JbrlError(f"{where} {_described(value)}: expected a scalar {np.dtype(dtype).name}")


def _shapes(tree: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the structure of a tree, and shapes and dtypes of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [
        (np.shape(v), v.dtype if hasattr(v, "dtype") else jax.dtypes.result_type(v)) for v in leaves
    ]


def _described(tree: Any) -> str:
    """Return shapes and dtypes, for messages."""
    texts = [
        f"{v.dtype}{list(v.shape)}" if hasattr(v, "dtype") else type(v).__name__
        for v in jax.tree.leaves(tree)
    ]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _kind(value: Any) -> str:
    """Describe a value's type, for messages."""
    return f"{len(value)} values" if isinstance(value, tuple) else type(value).__name__


@record
class Tabular(Environment[Array]):
    """One finite MDP. Its state is the observation."""

    lifetime = Steps(250)

    mdp: MDP
    cdf: Array  # [S, A, S] float32, cumulative transition probabilities

    @classmethod
    def of(cls, mdp: MDP) -> Self:
        """Return the environment of an MDP."""
        return cls(mdp, sampling.cumulative(mdp.transitions))

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.mdp.n_states), Discrete(self.mdp.n_actions))

    def reset(self, key: Array) -> tuple[Array, Array]:
        first = mdps.start(self.mdp.initial_state, self.mdp.n_states, sampling.uniforms(key)[0])
        return first, first

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Step]:
        y, reward = mdps.step(self.cdf, self.mdp.rewards, state, action, sampling.uniforms(key)[0])
        never = y < 0
        return y, Step(y, reward, never, never)


@record
class _Wrapper(Environment[Any], Perturbed):
    """An environment in which `reward` replaces each reward; all else, metrics included, is
    its own.
    """

    environment: Any  # an `Environment`

    @property
    def spec(self) -> Spec:
        return self.environment.spec

    @property
    def typical_steps(self) -> float:
        return self.environment.typical_steps

    def perturb(self, key: Array) -> Self:
        """Draw the wrapped environment, if it is `Perturbed`."""
        return dataclasses.replace(self, environment=drawn(self.environment, key))

    def reset(self, key: Array) -> tuple[Any, Any]:
        return self.environment.reset(key)

    def step(self, key: Array, state: Any, action: Array) -> tuple[Any, Step]:
        after, step = self.environment.step(key, state, action)
        return after, dataclasses.replace(step, reward=self.reward(key, step.reward))

    def reward(self, key: Array, reward: Array) -> Array:
        """Return the agent's reward, [] float32, for a reward of the environment."""
        raise NotImplementedError

    def metrics(self, state: Any) -> dict[str, Array]:
        return self.environment.metrics(state)


@record
class RewardNoise(_Wrapper):
    """Wrapper that adds `scale` times a standard normal number to each reward, those of 0 included.

    Metrics are those of the environment, without the noise. Source: google-deepmind/bsuite 0.3.6,
    `utils/wrappers.py`.
    """

    STREAM: ClassVar[int] = 2  # folded into the key of a step; the driver folds in 1 for a reset

    scale: float = parameter(1.0, "standard deviation of the noise", low=0, high=1e6)

    def reward(self, key: Array, reward: Array) -> Array:
        within, stream = self.environment, self.STREAM
        while isinstance(within, _Wrapper):  # noise on noise is drawn apart
            stream += isinstance(within, RewardNoise)
            within = within.environment
        uniform = sampling.uniforms(jax.random.fold_in(key, stream))[0]
        return reward + self.scale * sampling.standard_normal(uniform)


@record
class RewardScale(_Wrapper):
    """Wrapper that multiplies each reward by `scale`.

    Metrics are those of the environment, not scaled. Source: google-deepmind/bsuite 0.3.6,
    `utils/wrappers.py`.
    """

    scale: float = parameter(1.0, "factor", low=-1e6, high=1e6)

    def reward(self, key: Array, reward: Array) -> Array:
        del key
        return reward * self.scale


def unwrapped(environment: Environment) -> Environment:
    """Return the environment inside all wrappers."""
    while isinstance(environment, _Wrapper):
        environment = environment.environment
    return environment
