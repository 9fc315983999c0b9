"""Problems as pure functions in the signature of gymnax, for learners written with `jax.lax.scan`.

    import jax
    import jbrl.functional

    env, params = jbrl.functional.make("DeepSea(size=10)", vectors=True)
    observation, state = env.reset(jax.random.key(0), params)
    observation, state, reward, done, info = env.step(jax.random.key(1), state, 0, params)

`params` is an environment of the problem: its settings and physics are arrays that may be mapped
(`sample_params`). An episode that has ended is followed by the next one within `step`. Source of
the signature: Lange 2022, gymnax, `environments/environment.py`.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jbrl.base.errors import JbrlError, check_count
from jbrl.base.pytree import record, select, static
from jbrl.environments.environment import Environment, as_arrays
from jbrl.environments.spec import Box, Discrete, OneHot, Spec, Steps
from jbrl.mdp.sampling import stream
from jbrl.problems import lookup
from jbrl.problems.prior import Prior
from jbrl.problems.problem import Problem

MAX_SEED = 2**32 - 1


@record
class EpisodeState:
    """State of an episode."""

    environment: Any  # state of the environment
    time: Array  # [] int32, steps since the episode began


class Taken(NamedTuple):
    """Result of an action, before an episode that has ended is followed by another one."""

    observation: Array
    state: EpisodeState
    reward: Array  # [] float32
    terminated: Array  # [] bool
    truncated: Array  # [] bool, by the environment or after `max_steps` steps


class Actions(Discrete):
    """Actions 0..n-1, with `sample`."""

    def sample(self, key: Array) -> Array:
        """Draw an action uniformly, [] int32."""
        return jax.random.randint(key, (), 0, self.n, jnp.int32)


@dataclasses.dataclass(frozen=True)
class EpisodeRules:
    """Rules of an episode. Part of the compiled program."""

    spec: Spec
    max_steps: int  # steps after which an episode is truncated
    # observations as vectors of float32: indices are one-hot, arrays are flat
    vectors: bool = False

    def reset(self, key: Array, environment: Environment) -> tuple[Array, EpisodeState]:
        """Start an episode: the first observation and the state."""
        state, observation = environment.reset(jax.random.fold_in(typed(key), 1))
        return self.shown(observation), EpisodeState(state, jnp.int32(0))

    def step(
        self, key: Array, state: EpisodeState, action: Array, environment: Environment
    ) -> Taken:
        """Take one action, [] integer; one out of range is replaced by the nearest legal one."""
        legal = jnp.clip(jnp.asarray(action).astype(jnp.int32), 0, self.spec.actions.n - 1)
        after, step = environment.step(jax.random.fold_in(typed(key), 0), state.environment, legal)
        time = state.time + 1
        late = (time >= self.max_steps) & ~step.terminated
        return Taken(
            self.shown(step.observation),
            EpisodeState(after, time),
            step.reward,
            step.terminated,
            step.truncated | late,
        )

    def shown(self, observation: Array) -> Array:
        """Return an observation as a learner gets it."""
        space = self.spec.observation
        if not self.vectors:
            return observation
        if isinstance(space, Box):
            return observation.reshape(-1)
        return jax.nn.one_hot(observation, space.n, dtype=jnp.float32)

    def observation_space(self) -> Discrete | OneHot | Box:
        """Shape, dtype and nominal bounds of observations."""
        space = self.spec.observation
        if not self.vectors:
            return space
        if isinstance(space, Box):
            return Box((math.prod(space.shape),), space.low, space.high)
        return Box((space.n,), 0.0, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Functional:
    """A problem as functions of keys, states and `params`.

    Raises:
      JbrlError: a number out of range.
    """

    problem: Problem = dataclasses.field(repr=False)
    rules: EpisodeRules
    # `step` returns terminated and truncated in place of done, as gymnax 1.0 does
    split_done: bool = False

    @property
    def name(self) -> str:
        """Name of the problem."""
        return self.problem.short_name

    @property
    def num_actions(self) -> int:
        return self.rules.spec.actions.n

    @property
    def default_params(self) -> Environment:
        """Environment number 0 of seed 0, the one that agents meet in a study."""
        return self.sample_params(self.problem.key(0))

    def sample_params(self, key: Array, index: Array | int = 0) -> Environment:
        """Draw environment number `index` of the seed behind `key`; can be mapped over both."""
        return sample(self.problem, typed(key), index)

    def action_space(self, params: Any = None) -> Actions:
        return Actions(self.num_actions)

    def observation_space(self, params: Any = None) -> Discrete | OneHot | Box:
        """Shape, dtype and nominal bounds of observations."""
        return self.rules.observation_space()

    def reset(self, key: Array, params: Environment | None = None) -> tuple[Array, EpisodeState]:
        """Start an episode: the first observation and the state.

        Args:
          key: any key; it is folded before an environment reads it.
          params: the environment; default: `default_params`.
        """
        return self.rules.reset(key, self.default_params if params is None else params)

    def step_env(
        self,
        key: Array,
        state: EpisodeState,
        action: Array | int,
        params: Environment | None = None,
    ) -> Taken:
        """Take one action, [] integer; an episode that has ended is left as it is.

        An action out of range is replaced by the nearest legal one.
        """
        environment = self.default_params if params is None else params
        return self.rules.step(key, state, jnp.asarray(action), environment)

    def step(
        self,
        key: Array,
        state: EpisodeState,
        action: Array | int,
        params: Environment | None = None,
    ) -> tuple[Any, ...]:
        """Take one action; an episode that ends is followed by the next one.

        Returns:
          observation, state, reward, done, info; with `split_done`, terminated and truncated stand
          in the place of done. After the last step of an episode, observation and state are the
          first of the next one. `info` holds `terminated`, `truncated`, `discount` (0 where the
          episode has terminated, else 1; float32) and `final_observation`, the one that precedes a
          reset.
        """
        environment = self.default_params if params is None else params
        taken = self.step_env(key, state, action, environment)
        done = taken.terminated | taken.truncated
        info = {
            "terminated": taken.terminated,
            "truncated": taken.truncated,
            "discount": 1 - taken.terminated.astype(jnp.float32),
            "final_observation": taken.observation,
        }
        ends = (taken.terminated, taken.truncated) if self.split_done else (done,)
        first = self.reset(key, environment)
        observation, after = select(done, first, (taken.observation, taken.state))
        return (observation, after, taken.reward, *ends, info)


def make(
    name: str | Problem,
    *,
    seed: int = 0,
    index: int = 0,
    vectors: bool = False,
    max_steps: int | None = None,
    split_done: bool = False,
) -> tuple[Functional, Environment]:
    """Return a problem as functions, and environment number `index` of `seed` as their `params`.

    Args:
      name: of the problem, as `jbrl.problem` reads it, for example `"DeepSea(size=10)"` or `"GC"`.
      seed, index: which environment is played: the one that agents meet in a study with that seed.
      vectors: give observations as vectors of float32.
      max_steps: steps after which an episode is truncated; default: the steps of the problem's
        lifetime, or the most that one of its episodes may take.
      split_done: let `step` return terminated and truncated in place of done (gymnax 1.0).

    Raises:
      JbrlError: an unknown problem, or a number out of range.
    """
    check_count("seed", seed, MAX_SEED, low=0)
    check_count("index", index, low=0)
    for flag, value in (("vectors", vectors), ("split_done", split_done)):
        if not isinstance(value, bool):
            raise JbrlError(f"{flag} = {value!r}: expected True or False")
    problem, rules = episodes_of(name, max_steps, vectors)
    made = Functional(problem, rules, split_done)
    return made, made.sample_params(problem.key(seed), index)


def episodes_of(
    name: str | Problem, max_steps: int | None = None, vectors: bool = False
) -> tuple[Problem, EpisodeRules]:
    """Return a problem and the rules of its episodes; arguments as those of `make`."""
    problem = name if isinstance(name, Problem) else lookup.problem(name)
    if max_steps is None:
        lifetime = problem.lifetime
        max_steps = lifetime.steps if isinstance(lifetime, Steps) else lifetime.max_steps
    check_count("max_steps", max_steps)
    return problem, EpisodeRules(problem.spec, int(max_steps), vectors)


def typed(key: Array) -> Array:
    """Return a key of `jax.random.key`; one of `jax.random.PRNGKey` is turned into it."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


@record
class Lanes:
    """Several environments of a problem; what all of them share is held once."""

    leaves: list[Array]
    axes: tuple[int | None, ...] = static()  # of each leaf for `jax.vmap`; None: common to all
    structure: Any = static()  # of one environment

    @classmethod
    def draw(cls, problem: Problem, seed: int, indices: Array) -> "Lanes":
        """Draw the environments of a seed with the numbers `indices`, [N] int32."""
        key, prior = problem.key(seed), problem.prior(problem.lifetime, 0.0)
        traced, shape = jax.make_jaxpr(_sampled, return_shape=True)(prior, key, indices[0])
        # an output that is an input is the same for every index
        own = tuple(not any(out is v for v in traced.jaxpr.invars) for out in traced.jaxpr.outvars)
        stacked = iter(_stacked(own, prior, key, indices) if any(own) else [])
        first = jax.tree.leaves(_sampled(prior, key, indices[0]))
        leaves = [next(stacked) if k else leaf for leaf, k in zip(first, own, strict=True)]
        axes = tuple(0 if differs else None for differs in own)
        return cls(leaves, axes, jax.tree.structure(shape))

    def map(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(environment, *arguments)` of each lane, of arguments with a leading axis
        of lanes.
        """

        def one(own: list[Array], *given: Any) -> Any:
            return function(jax.tree.unflatten(self.structure, own), *given)

        return jax.vmap(one, (list(self.axes), *(0 for _ in arguments)))(self.leaves, *arguments)


def sample(problem: Problem, key: Array, index: Array | int) -> Environment:
    """Draw environment number `index` of the seed behind `key`."""
    prior = problem.prior(problem.lifetime, 0.0)
    return _sample(prior, key, jnp.asarray(index, jnp.int32))


def _sampled(prior: Prior, key: Array, index: Array) -> Environment:
    drawn = as_arrays(prior.sample(stream(key, index, "mdp")))
    return jax.tree.map(jnp.asarray, drawn)


_sample = jax.jit(_sampled)


@partial(jax.jit, static_argnums=0)
def _stacked(own: tuple[bool, ...], prior: Prior, key: Array, indices: Array) -> list[Array]:
    """Return the leaves that differ between environments, each with a leading axis."""

    def differing(index: Array) -> list[Array]:
        leaves = jax.tree.leaves(_sampled(prior, key, index))
        return [leaf for leaf, differs in zip(leaves, own, strict=True) if differs]

    return jax.vmap(differing)(indices)
