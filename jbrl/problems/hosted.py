"""Environments of Gymnasium as problems: stepped on the host, one at a time.

They cannot be traced, so no program contains them: agents that learn from transitions play them
(`jbrl.play`, `jbrl.policy`), agents that draw environments from a prior do not. Nothing here needs
the package `gymnasium`: whatever has its spaces and methods will do.
"""

import dataclasses
import hashlib
import json
import secrets
import weakref
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl.base.errors import JbrlError, check_count, shown
from jbrl.base.plugins import source_digest
from jbrl.base.pytree import record, static
from jbrl.environments.environment import Environment
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, Observation, Spec
from jbrl.problems.prior import EpisodicPrior
from jbrl.problems.problem import Problem
from jbrl.problems.recorder import EpisodeMean

TYPICAL_STEPS = 100  # of an episode, for estimates of time
# of Gymnasium; what is wrapped is looked at by itself
_RESET = {"env", "_np_random", "_np_random_seed", "_elapsed_steps", "_has_reset", "_cached_spec"}
_CONTENTS = weakref.WeakKeyDictionary[Any, str]()  # of environments; to play changes their values
_NONE = Spec(Discrete(1), Discrete(1))


@record
class HostPrior(EpisodicPrior):
    """Prior without a distribution: observations, actions, and how long a lifetime is."""

    discount: Array  # [] float32, 1
    # the defaults put the fields in the place of the contract's properties
    spec: Spec = static(_NONE)
    lifetime: Lifetime = static(Episodes(100))

    def sample(self, key: Array) -> Environment:
        """Raise `JbrlError`: nothing can be drawn.

        Raises:
          JbrlError: always.
        """
        raise JbrlError(
            "an environment of Gymnasium is stepped on the host and cannot be compiled: expected "
            "an agent that learns from transitions, such as Q-learning or DQN"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class HostProblem(Problem):
    """An environment of Gymnasium, each lifetime some episodes in it; None: known by its spaces."""

    spec: Spec = dataclasses.field(default=_NONE)
    env: Any = dataclasses.field(default=None, compare=False)
    lifetime: Lifetime = dataclasses.field(default=Episodes(100))
    recorder: Any = dataclasses.field(default=EpisodeMean())
    n_environments: int = 1

    def __post_init__(self) -> None:
        content = f"{self.short_name} {self.spec!r}"
        object.__setattr__(self, "digest", hashlib.sha256(content.encode()).hexdigest())

    @property
    def content(self) -> str:
        """Digest of the sources of the environment and its wrappers, and of the values that they
        hold, in hexadecimal. Another one at each call where these cannot be read: functions,
        objects, a class of a notebook. Of each environment what it is when it is first seen.
        """
        try:
            return _CONTENTS.setdefault(self.env, self._content())
        except TypeError:  # it can be no key
            return self._content()

    def _content(self) -> str:
        layers, layer = list[Any](), self.env
        while layer is not None:
            kind = type(layer)
            known = source_digest(kind) or secrets.token_hex()
            layers.append((f"{kind.__module__}:{kind.__qualname__}", known, _held(layer)))
            layer = getattr(layer, "env", None)
        return hashlib.sha256(repr(layers).encode()).hexdigest()[:32]

    def expected_steps(self, lifetime: Lifetime) -> float:
        if not isinstance(lifetime, Episodes):
            return lifetime.steps
        return lifetime.episodes * float(min(TYPICAL_STEPS, lifetime.max_steps))

    def prior(self, lifetime: Lifetime, discount: float) -> HostPrior:
        """As `Problem.prior`. `discount` is not used: scores are undiscounted."""
        return HostPrior(jnp.float32(1), self.spec, lifetime)


def _held(layer: Any) -> str:
    """Return the values that a wrapper or an environment holds, apart from what each reset sets."""
    try:
        held = {k: v for k, v in vars(layer).items() if k not in _RESET}
        return json.dumps(held, default=_plain)
    except (TypeError, ValueError):  # no attributes, keys that are no texts, a circle
        return secrets.token_hex()


def _plain(value: Any) -> Any:
    """Return a value as plain data."""
    if isinstance(value, np.ndarray | np.generic):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, bytes | type) or hasattr(value, "contains"):  # a space
        return repr(value)
    if hasattr(value, "entry_point"):  # how it was made
        return value.kwargs
    return secrets.token_hex()


def is_host_environment(given: Any) -> bool:
    """Return whether something has the spaces and methods of an environment of Gymnasium."""
    return all(hasattr(given, n) for n in ("observation_space", "action_space", "reset", "step"))


def host_problem(env: Any) -> HostProblem:
    """Return an environment of Gymnasium as a problem.

    Raises:
      JbrlError: its spaces are none that agents know, or it is a vector of environments.
    """
    if hasattr(env, "num_envs"):
        raise JbrlError(
            f"environment {shown(env)}: a vector of environments: expected a single one"
        )
    made = getattr(env, "spec", None)
    name = getattr(made, "id", None) or type(getattr(env, "unwrapped", env)).__name__
    actions = env.action_space
    if not hasattr(actions, "n") or getattr(actions, "shape", ()) != ():
        raise JbrlError(f"environment '{name}': actions {shown(actions)}: expected Discrete(n)")
    check_count(f"environment '{name}': actions: n", int(actions.n))
    spec = Spec(_observations(env.observation_space, name), Discrete(int(actions.n)))
    return HostProblem(name, name, description="an environment of Gymnasium", spec=spec, env=env)


def _observations(space: Any, name: str) -> Observation:
    """Return a space of Gymnasium as agents know it."""
    if hasattr(space, "n") and getattr(space, "shape", ()) == ():
        check_count(f"environment '{name}': observations: n", int(space.n))
        return Discrete(int(space.n))
    shape, dtype = getattr(space, "shape", None), getattr(space, "dtype", None)
    numbers = dtype is not None and np.dtype(dtype).kind in "biuf"
    if shape and 0 not in shape and numbers and hasattr(space, "low"):
        with np.errstate(over="ignore"):  # what float32 does not reach is infinite
            ends = [np.asarray(end).astype(np.float32) for end in (space.low, space.high)]
        bounded = all(np.isfinite(end).all() for end in ends)
        low, high = (tuple(end.ravel().tolist()) for end in ends)
        return Box(tuple(map(int, shape)), *((low, high) if bounded else ()))
    raise JbrlError(
        f"environment '{name}': observations {shown(space)}: expected Discrete(n) or a Box of "
        "numbers; a wrapper such as FlattenObservation makes one of others"
    )
