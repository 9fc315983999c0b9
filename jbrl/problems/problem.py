"""The contract of a problem, and the register of all problems.

A problem is a distribution over environments with a name and a lifetime. Everything here runs on
the host and holds NumPy arrays, so that looking at problems starts no accelerator; `sample` alone
is traced.
"""

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl.base.errors import JbrlError, Register, check_count, expect, shown
from jbrl.base.plugins import is_outside, source_digest, summary
from jbrl.base.schema import MetricFigure
from jbrl.environments.environment import (
    ENVIRONMENTS,
    Environment,
    as_arrays,
    check_environment,
    errors_named,
)
from jbrl.environments.spec import Discrete, Episodes, Lifetime, Spec, Steps
from jbrl.mdp.dirichlet import DirichletMDPs, check_mdps
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior, EnvironmentPrior, Prior
from jbrl.problems.recorder import EpisodeMean, Recorder


@dataclasses.dataclass(frozen=True)
class Problem:
    """A named distribution over environments, with the lifetime that belongs to it.

    The contract; subclasses hold the distribution.

    Attributes:
      recorder: what is kept of a lifetime, and its score; None: all rewards, and their discounted
        sum (only for lifetimes of T steps in finite MDPs).
      digest: SHA-256 of the distribution alone, in hexadecimal.
    """

    name: str
    # its name in the catalogue, with the parameters that differ from their defaults
    short_name: str
    description: str = dataclasses.field(default="", kw_only=True)
    # keys in references.bib, or a BibTeX entry
    cite: str = dataclasses.field(default="", kw_only=True)
    digest: str = dataclasses.field(init=False)

    def __repr__(self) -> str:
        """Return the name and what goes in and out, not the arrays."""
        return f"<{type(self).__name__} {self.short_name}: {self.spec}>"

    @property
    def spec(self) -> Spec:
        """Observations and actions of its environments."""
        raise NotImplementedError

    def key(self, seed: int) -> Array:
        """Return the key that all randomness of a seed comes from."""
        if not hasattr(seed, "dtype"):  # of arrays, which JAX may trace
            check_count("seed", seed, 2**32 - 1, low=0)
        return jax.random.key(seed)

    @property
    def lifetime(self) -> Lifetime:
        """Default lifetime of an agent in each environment."""
        raise NotImplementedError

    @property
    def n_environments(self) -> int:
        """Default number of environments, or lifetimes, of an experiment."""
        return 500

    @property
    def recorder(self) -> Recorder | None:
        raise NotImplementedError

    def prior(self, lifetime: Lifetime, discount: float) -> Prior:
        """Return the agent's prior: the distribution itself, a lifetime and a discount."""
        raise NotImplementedError

    def expected_steps(self, lifetime: Lifetime) -> float:
        """Estimate how many decisions a lifetime takes, for estimates of time."""
        return lifetime.steps if isinstance(lifetime, Steps) else float(lifetime.episodes)

    def sample(self, key: Array, index: Array) -> Environment:
        """Draw environment number `index`, [] int32, of the seed behind `key`."""
        return self.prior(self.lifetime, 0.0).sample(stream(key, index, "mdp"))


@dataclasses.dataclass(frozen=True, repr=False)
class DirichletProblem(Problem):
    """A Dirichlet distribution over finite MDPs that never end.

    Raises:
      JbrlError: the distribution is not sound, as said in `dirichlet.check_mdps`.
    """

    mdps: DirichletMDPs = dataclasses.field(compare=False)  # of NumPy arrays

    def __post_init__(self) -> None:
        object.__setattr__(self, "mdps", check_mdps(self.mdps, f"problem '{self.short_name}'"))
        object.__setattr__(self, "digest", _digest(self.mdps))

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(self.mdps.n_states), Discrete(self.mdps.n_actions))

    @property
    def lifetime(self) -> Steps:
        return Steps(250)

    @property
    def recorder(self) -> None:
        return None

    def prior(self, lifetime: Lifetime, discount: float) -> DirichletPrior:
        """As `Problem.prior`.

        Raises:
          JbrlError: a lifetime of episodes, which never end here.
        """
        if not isinstance(lifetime, Steps):
            raise JbrlError(
                f"episodes = {lifetime.episodes}: the MDPs of '{self.short_name}' never end: "
                "expected horizon"
            )
        # NumPy's: an array of JAX takes a hundred times as long, for each of thousands of units
        as_float: Any = jnp.float32 if isinstance(discount, Array) else np.float32
        return DirichletPrior(self.mdps, as_float(discount), lifetime.steps)


@dataclasses.dataclass(frozen=True, repr=False)
class EnvironmentProblem(Problem):
    """One environment with its settings, its physics drawn anew for each lifetime where it is
    `Perturbed`.

    Raises:
      JbrlError: the environment does not keep to its contract (`check_environment`).
    """

    environment: Environment = dataclasses.field(compare=False)  # with NumPy arrays
    # Defaults, not factories: they put the fields in the place of the contract's properties.
    lifetime: Lifetime = dataclasses.field(default=Episodes(100))
    recorder: Recorder = dataclasses.field(default=EpisodeMean())
    # what distinguishes it; empty: class, version and settings
    identity: dict[str, Any] = dataclasses.field(default_factory=dict)
    # of metrics, which a report shows
    figures: tuple[MetricFigure, ...] = dataclasses.field(default=(), kw_only=True)
    # Settings belong to lanes: problems whose environments share shapes are played at once.
    together: bool = dataclasses.field(default=False, kw_only=True)
    # Folded into the key of the seed where not 0: other random numbers for the same environment.
    stream: int = dataclasses.field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        environment = as_arrays(self.environment)
        leaves, structure = jax.tree.flatten(environment)
        kind = (
            structure,
            tuple((leaf.shape, leaf.dtype) for leaf in leaves if hasattr(leaf, "dtype")),
        )
        if not (self.together and kind in _CHECKED):
            check_environment(environment, f"environment '{self.short_name}'")
        if self.together:
            _CHECKED.add(kind)
        object.__setattr__(self, "environment", environment)
        self._check_rules(f"environment '{self.short_name}'")
        known = self.identity or identity(self.environment)
        content = json.dumps(known, sort_keys=True)
        object.__setattr__(self, "digest", hashlib.sha256(content.encode()).hexdigest())

    def _check_rules(self, where: str) -> None:
        lifetime, recorder = self.lifetime, self.recorder
        expect(f"{where}: lifetime", lifetime, Lifetime, "for example jbrl.Episodes(100)")
        methods = [getattr(recorder, name, None) for name in ("begin", "record", "scores")]
        leaves = jax.tree.leaves(recorder)  # itself, where it is a class, or no record
        arrays = [
            isinstance(leaf, float | int | np.generic | np.ndarray | Array) for leaf in leaves
        ]
        if not all(map(callable, methods)) or not all(arrays):
            raise JbrlError(
                f"{where}: recorder = {shown(recorder)}: expected an instance of a class with "
                "@jbrl.record, begin, record and scores, such as jbrl.EpisodeMean()"
            )
        with errors_named(f"{where}: typical_steps"):
            typical = float(self.environment.typical_steps)
        if not 0 < typical < math.inf:
            raise JbrlError(f"{where}: typical_steps = {typical}: expected a number above 0")

    @property
    def spec(self) -> Spec:
        return self.environment.spec

    def key(self, seed: int) -> Array:
        key = super().key(seed)
        return jax.random.fold_in(key, self.stream) if self.stream else key

    def expected_steps(self, lifetime: Lifetime) -> float:
        if isinstance(lifetime, Steps):
            return lifetime.steps
        return lifetime.episodes * min(float(self.environment.typical_steps), lifetime.max_steps)

    def prior(self, lifetime: Lifetime, discount: float) -> EnvironmentPrior:
        """As `Problem.prior`. `discount` is not used: scores are undiscounted."""
        return EnvironmentPrior(self.environment, jnp.float32(1), lifetime)


def check_same_sizes(prior: Problem | Prior, test: Problem | Environment) -> None:
    """Refuse a prior with other observations, actions or known rewards than the test distribution.

    Raises:
      JbrlError: says what differs.
    """
    one, other = (getattr(d, "short_name", type(d).__name__) for d in (prior, test))
    if isinstance(prior, DirichletProblem) and isinstance(test, DirichletProblem):
        if prior.spec != test.spec:
            raise JbrlError(
                f"prior '{one}' has {prior.mdps.n_states} states and {prior.mdps.n_actions} "
                f"actions, test '{other}' has {test.mdps.n_states} and {test.mdps.n_actions}: "
                "expected the same sizes"
            )
        if not np.array_equal(prior.mdps.rewards, test.mdps.rewards):
            raise JbrlError(
                f"prior '{one}' and test '{other}' have different rewards: expected the same, "
                "since agents know them"
            )
    elif prior.spec != test.spec:
        raise JbrlError(
            f"prior '{one}' has {prior.spec}, test '{other}' has {test.spec}: expected the same "
            "observations and actions"
        )


# structures and shapes of environments of suites, whose hundreds of settings share few
_CHECKED: set[Any] = set()


def identity(environment: Environment[Any], name: str = "") -> dict[str, Any]:
    """Return the identity of an environment, as data for JSON: its name, the version of its
    behaviour, all its fields but those that came late (`parameter`) and have their defaults.

    Of a class outside jbrl also the SHA-256 of its source.

    Args:
      name: default: that in the register; `module:Class` where it is not registered.
    """
    cls = type(environment)
    registered = (entry.name for entry in ENVIRONMENTS.values() if entry.environment is cls)
    values = {}
    for field in dataclasses.fields(environment):  # type: ignore[arg-type]
        value = getattr(environment, field.name)
        as_before = field.metadata.get("late") and value == field.default
        if field.name not in environment.aside and not as_before:
            values[field.name] = _fingerprint(value)
    known = {
        "environment": name or next(registered, f"{cls.__module__}:{cls.__qualname__}"),
        "version": environment.version,
        "settings": values,
    }
    if environment.recorder is not None:  # another score is another problem
        known["recorder"] = source_digest(type(environment.recorder))
    source = source_digest(cls) if is_outside(cls) else ""
    return known | ({"source": source} if source else {})


def _fingerprint(value: Any) -> Any:
    """Return a number, a string or None unchanged; the SHA-256 of anything else that is made of
    arrays.
    """
    if value is None or isinstance(value, int | float | str):
        return value
    content = hashlib.sha256()
    leaves, structure = jax.tree.flatten(value)
    for text in (
        str(structure),
        *(f"{array.dtype.str}{array.shape}" for array in map(np.asarray, leaves)),
    ):
        content.update(text.encode())
    for leaf in leaves:
        content.update(np.ascontiguousarray(leaf).tobytes())
    return content.hexdigest()


def _digest(mdps: DirichletMDPs) -> str:
    content = hashlib.sha256()
    for array in map(np.asarray, (mdps.concentrations, mdps.rewards, mdps.initial_state)):
        content.update(f"{array.dtype.str}{array.shape}".encode())
        content.update((array + array.dtype.type(0)).tobytes())  # -0.0 becomes 0.0
    return content.hexdigest()


class Setting(NamedTuple):
    """Result of a registered function for a problem made of one environment."""

    environment: Environment
    lifetime: Lifetime
    recorder: Recorder = EpisodeMean()


@dataclasses.dataclass(frozen=True)
class ProblemEntry:
    """One line of the register."""

    name: str
    title: str
    make: Callable[..., "DirichletMDPs | Setting"]
    cite: str

    @property
    def summary(self) -> str:
        """First line of the maker's docstring."""
        return summary(self.make)

    @property
    def parameters(self) -> dict[str, int | str]:
        """Parameters and their defaults: integers and texts."""
        return {p.name: p.default for p in inspect.signature(self.make).parameters.values()}


PROBLEMS: Register[ProblemEntry] = Register("problem")
# problems made out of another one, written name(other) or name(other, parameter=value, …)
DERIVED: dict[str, Callable[..., Problem]] = {}


Maker = TypeVar("Maker", bound=Callable[..., DirichletMDPs | Setting])


def register_problem(name: str, *, title: str, cite: str = "") -> Callable[[Maker], Maker]:
    """Register a function (decorator) of integers and texts, all with defaults, that returns a
    distribution over MDPs or a `Setting`.
    """

    def register(make: Maker) -> Maker:
        if name in PROBLEMS:
            raise ValueError(f"two problems are called {name}")
        PROBLEMS[name] = ProblemEntry(name, title, make, cite)
        return make

    return register


Derive = TypeVar("Derive", bound=Callable[..., Problem])


def register_derived(name: str) -> Callable[[Derive], Derive]:
    """Register a function (decorator) that makes a problem from another one; further parameters
    are numbers and texts with defaults, or problems with the default None.
    """

    def register(make: Derive) -> Derive:
        DERIVED[name] = make
        return make

    return register
