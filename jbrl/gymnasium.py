"""Problems as environments of Gymnasium, one at a time or as a vector of them.

    import jbrl.gymnasium

    env = jbrl.gymnasium.make("DeepSea(size=10)", seed=0)
    envs = jbrl.gymnasium.make_vec("DeepSea(size=10)", num_envs=16, seed=0)

An environment here is one of those that agents meet in a study: number `index` of `seed`. A reset
starts the next episode in it; `reset(seed=…)` sets the random numbers of episodes and leaves the
environment as it is. Needs the package `gymnasium` (`pip install gymnasium`). Source of the
interface: Towers et al. 2024, Gymnasium: a standard interface for reinforcement learning
environments.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.base.errors import JbrlError, check_count, expect, shown
from jbrl.base.pytree import select
from jbrl.environments.spec import Box, OneHot
from jbrl.functional import MAX_SEED, EpisodeRules, Lanes, episodes_of, sample
from jbrl.problems.problem import Problem

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "gymnasium":
        raise
    raise JbrlError(
        "jbrl.gymnasium: the package gymnasium is not installed: expected pip install gymnasium"
    ) from None

ID = "jbrl/Problem-v0"  # of `gymnasium.make`


def make(problem: str | Problem, **options: Any) -> "ProblemEnv":
    """Return one environment of a problem; arguments as those of `ProblemEnv`."""
    return ProblemEnv(problem, **options)


def make_vec(problem: str | Problem, num_envs: int = 1, **options: Any) -> "ProblemVectorEnv":
    """Return several environments of a problem; arguments as those of `ProblemVectorEnv`."""
    return ProblemVectorEnv(problem, num_envs, **options)


class ProblemEnv(gymnasium.Env):
    """One environment of a problem.

    Observations are `Discrete` where the problem's are, else float32 arrays; one-hot vectors are
    given as such. Bounds of arrays are infinite, since those of a problem are nominal. An `info`
    holds the environment's counters of the episode, for example regret.

    Attributes:
      problem: the `Problem`.

    Args:
      problem: its name, as `jbrl.problem` reads it, for example `"DeepSea(size=10)"` or `"GC"`.
      seed, index: which environment is played: the one that agents meet in a study with that seed.
      vectors: give all observations as vectors of float32.
      max_steps: steps after which an episode is truncated; default: the steps of the problem's
        lifetime, or the most that one of its episodes may take.
      render_mode: None; nothing is rendered.

    Raises:
      JbrlError: an unknown problem, or a value that is not accepted.
    """

    metadata = {"render_modes": []}  # noqa: RUF012, as Gymnasium declares it

    def __init__(
        self,
        problem: str | Problem,
        *,
        seed: int = 0,
        index: int = 0,
        vectors: bool = False,
        max_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        _check(seed, index, render_mode)
        self.problem, self._rules = _episodes_of(problem, max_steps, vectors)
        self.render_mode, self._seed = render_mode, seed
        self.observation_space = _observations(self._rules)
        self.action_space = spaces.Discrete(self._rules.spec.actions.n)
        self._choose(index)
        self._state: Any = None

    def _choose(self, index: int) -> None:
        """Go to environment number `index`."""
        check_count("index", index, low=0)
        self._environment = sample(self.problem, self.problem.key(self._seed), index)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
          seed: of the random numbers from here on.
          options: `{"index": i}` goes to environment number i; others are ignored.

        Raises:
          JbrlError: options that are no mapping, or an index that is no whole number from 0.
        """
        chosen = _given(options, "{'index': 0}")
        super().reset(seed=seed)
        if "index" in chosen:
            self._choose(chosen["index"])
        words = self.np_random.integers(0, 2**32, 2, np.uint32)
        self._key, self._count = jax.random.wrap_key_data(jnp.asarray(words)), 0
        observation, self._state, info = _reset(self._rules, self._key, self._environment)
        self._over = False
        return self._shown(observation), _floats(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one action.

        Raises:
          JbrlError: an action out of range, no episode has begun, or it has ended.
        """
        if self._state is None:
            raise JbrlError("step before reset: expected reset() first")
        if self._over:
            raise JbrlError("the episode has ended: expected reset() first")
        if not self.action_space.contains(action):
            raise JbrlError(
                f"action = {shown(action)}: expected an integer from 0 to "
                f"{self._rules.spec.actions.n - 1}"
            )
        self._count += 1
        taken, info = _step(
            self._rules, self._key, self._count, self._state, int(action), self._environment
        )
        self._state = taken.state
        ends = bool(taken.terminated), bool(taken.truncated)
        self._over = any(ends)
        return self._shown(taken.observation), float(taken.reward), *ends, _floats(info)

    def _shown(self, observation: Any) -> Any:
        array = np.asarray(observation)
        return np.int64(array) if isinstance(self.observation_space, spaces.Discrete) else array


class ProblemVectorEnv(VectorEnv):
    """Several environments of a problem, stepped as one array.

    Lane i plays environment number `indices[i]`. Observations, bounds and infos are those of
    `ProblemEnv`; an `info` holds an array for each counter. In the mode `SAME_STEP` its
    `"final_obs"` is the array of last observations, `"_final_obs"` a mask of the lanes whose
    episode ended, and `"final_info"` their counters.

    Args:
      problem, vectors, max_steps, render_mode: as those of `ProblemEnv`.
      num_envs: lanes.
      seed: of the study whose environments are played.
      indices: number of the environment of each lane; default: 0, 1, 2, …
      autoreset_mode: a `gymnasium.vector.AutoresetMode` or its value: the step after the last one
        of an episode starts the next (`NEXT_STEP`), the last one does itself (`SAME_STEP`), or
        `reset(options={"reset_mask": mask})` does (`DISABLED`).

    Raises:
      JbrlError: an unknown problem, or a value that is not accepted.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012, as Gymnasium declares it

    def __init__(
        self,
        problem: str | Problem,
        num_envs: int = 1,
        *,
        seed: int = 0,
        indices: Sequence[int] | None = None,
        vectors: bool = False,
        max_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        check_count("num_envs", num_envs)
        given = range(num_envs) if indices is None else indices
        expect("indices", given, Sequence | np.ndarray, "a list of integers")
        numbers = list(given)
        if len(numbers) != num_envs:
            raise JbrlError(f"indices: {len(numbers)} numbers: expected num_envs = {num_envs}")
        for number in numbers:
            _check(seed, number, render_mode)
        self._mode = _mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self._mode}
        self.problem, self._rules = _episodes_of(problem, max_steps, vectors)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = _observations(self._rules)
        self.single_action_space = spaces.Discrete(self._rules.spec.actions.n)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._lanes = Lanes.draw(self.problem, seed, jnp.asarray(numbers, jnp.int32))
        self._words = np.zeros((num_envs, 2), np.uint32)  # of the key of each lane
        self._state: Any = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every lane.

        Args:
          seed: of the random numbers from here on: lane i takes seed + i, or the i-th of a list.
          options: `{"reset_mask": mask}`, [N] bool, leaves the other lanes and their random numbers
            as they are; others are ignored.

        Raises:
          JbrlError: options that are no mapping; seeds or a mask of the wrong length or kind.
        """
        mask = self._mask(options)
        self._seed_lanes(seed, mask)
        fresh = _reset_lanes(self._rules, self._keys, self._lanes)
        if mask.all() or self._state is None:
            self._count = np.zeros(self.num_envs, np.int32)
            self._observation, self._state, info = fresh
            self._ended = np.zeros(self.num_envs, bool)
        else:
            self._count = np.where(mask, 0, self._count)
            now = (self._observation, self._state, fresh[2])
            self._observation, self._state, info = _select_lanes(mask, fresh, now)
            self._ended &= ~mask
        return self._shown(self._observation), self._infos(info, mask)

    def _mask(self, options: dict[str, Any] | None) -> np.ndarray:
        """Lanes to reset, [N] bool."""
        chosen = _given(options, "{'reset_mask': mask}")
        mask = np.asarray(chosen.get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.dtype != np.bool_ or mask.shape != (self.num_envs,) or not mask.any():
            raise JbrlError(
                f"reset_mask: {mask.dtype}{list(mask.shape)}: expected bool[{self.num_envs}] with "
                "at least one True"
            )
        if not mask.all() and self._state is None:
            raise JbrlError("reset_mask before the first reset: expected all lanes")
        return mask

    def _seed_lanes(self, seed: int | Sequence[int | None] | None, mask: np.ndarray) -> None:
        """Give each lane of a mask, [N] bool, a key of its own."""
        if seed is None or isinstance(seed, int | np.integer):
            if seed is not None or self._np_random is None:
                self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)
            if seed is None:
                words = self.np_random.integers(0, 2**32, (self.num_envs, 2), np.uint32)
            else:
                words = np.array([_words(int(seed) + i) for i in range(self.num_envs)])
        elif np.shape(cast(Any, seed)) == (self.num_envs,):
            words = np.array([_words(one) for one in seed])
        else:
            raise JbrlError(
                f"seed = {shown(seed)}: expected None, an integer, or num_envs = {self.num_envs} "
                "of them"
            )
        self._words = np.where(mask[:, None], words, self._words)
        self._keys = jax.random.wrap_key_data(jnp.asarray(self._words, jnp.uint32))

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action in every lane, [N] integers.

        Raises:
          JbrlError: actions out of range or of another shape, no episode has begun, or, in the mode
            `DISABLED`, one has ended.
        """
        given = self._checked(actions)
        self._count = self._count + np.int32(1)
        states = self._state, self._ended
        after, outcome, last = _step_lanes(
            self._rules, self._mode.value, self._keys, self._count, states, given, self._lanes
        )
        self._observation, self._state, info = after
        reward, terminated, truncated = (np.array(v) for v in outcome)
        self._ended = ended = terminated | truncated
        infos = self._infos(info, np.ones(self.num_envs, bool))
        if self._mode is AutoresetMode.SAME_STEP:
            self._ended = np.zeros(self.num_envs, bool)
            if ended.any():
                infos["final_obs"] = self._shown(last[0])
                infos["final_info"] = self._infos(last[1], ended)
                infos["_final_obs"] = infos["_final_info"] = ended
        reward = reward.astype(np.float64)
        return self._shown(self._observation), reward, terminated, truncated, infos

    def _checked(self, actions: Any) -> np.ndarray:
        """Return the actions as [N] int32."""
        given = np.asarray(actions)
        n = self._rules.spec.actions.n
        if self._state is None:
            raise JbrlError("step before reset: expected reset() first")
        if self._mode is AutoresetMode.DISABLED and self._ended.any():
            lane = int(self._ended.argmax())
            raise JbrlError(f"lane {lane} has ended: expected reset(options={{'reset_mask': …}})")
        legal = given.shape == (self.num_envs,) and np.issubdtype(given.dtype, np.integer)
        if not legal or not ((given >= 0) & (given < n)).all():
            raise JbrlError(
                f"actions = {shown(given)}: expected {self.num_envs} integers from 0 to {n - 1}"
            )
        return given.astype(np.int32)

    def _shown(self, observation: Any) -> np.ndarray:
        return np.array(observation, self.observation_space.dtype)

    def _infos(self, counters: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
        """Counters as Gymnasium lays out those of vectors: an array and a mask for each."""
        arrays = {name: np.array(value, np.float64) for name, value in counters.items()}
        return arrays | {f"_{name}": mask.copy() for name in counters}


def _episodes_of(
    problem: str | Problem, max_steps: int | None, vectors: bool
) -> tuple[Problem, EpisodeRules]:
    """One-hot vectors are given as such in any case."""
    made, rules = episodes_of(problem, max_steps, vectors)
    vectors = vectors or isinstance(rules.spec.observation, OneHot)
    return made, dataclasses.replace(rules, vectors=vectors)


def _observations(rules: EpisodeRules) -> Any:
    """Return the space of observations."""
    space = rules.observation_space()
    if not isinstance(space, Box):
        return spaces.Discrete(space.n)
    low, high = (0.0, 1.0) if not isinstance(rules.spec.observation, Box) else (-np.inf, np.inf)
    return spaces.Box(low, high, space.shape, np.float32)


def _mode(given: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(given)
    except ValueError:
        raise JbrlError(
            f"autoreset_mode = {shown(given)}: expected one of "
            f"{', '.join(mode.value for mode in AutoresetMode)}"
        ) from None


def _check(seed: int, index: int, render_mode: str | None) -> None:
    check_count("seed", seed, MAX_SEED, low=0)
    check_count("index", index, low=0)
    if render_mode is not None:
        raise JbrlError(f"render_mode = {render_mode!r}: expected None: nothing is rendered")


def _given(options: Any, example: str) -> Mapping[str, Any]:
    """Return the options of a reset; unknown ones are ignored, as Gymnasium's environments do."""
    expect("options", options, Mapping | NoneType, f"None or a mapping, as {example}")
    return options or {}


def _words(seed: int | None) -> np.ndarray:
    """Return the words of a key, [2] uint32, that a seed of Gymnasium gives."""
    given = int(seed) if isinstance(seed, np.integer) else seed  # Gymnasium refuses it
    return gymnasium.utils.seeding.np_random(given)[0].integers(0, 2**32, 2, np.uint32)


def _floats(info: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in info.items()}


@partial(jax.jit, static_argnums=0)
def _reset(rules: EpisodeRules, key: Any, environment: Any) -> tuple[Any, ...]:
    """Return the first observation, the state and the counters."""
    observation, state = rules.reset(key, environment)
    return observation, state, environment.metrics(state.environment)


@partial(jax.jit, static_argnums=0)
def _step(
    rules: EpisodeRules, key: Any, count: Any, state: Any, action: Any, environment: Any
) -> tuple[Any, ...]:
    """Return the result of an action, and the counters."""
    taken = rules.step(jax.random.fold_in(key, count), state, action, environment)
    return taken, environment.metrics(taken.state.environment)


@partial(jax.jit, static_argnums=0)
def _reset_lanes(rules: EpisodeRules, keys: Any, lanes: Lanes) -> Any:
    return lanes.map(lambda environment, key: _reset(rules, key, environment), keys)


@partial(jax.jit, static_argnums=(0, 1))
def _step_lanes(
    rules: EpisodeRules, mode: str, keys: Any, counts: Any, states: Any, actions: Any, lanes: Lanes
) -> Any:
    """Take one step in all lanes; `states` are those of the episodes, and whether each has ended.

    Returns:
      observation, state and counters after it; reward, terminated and truncated; observation and
      counters before an episode that has ended is followed by another one.
    """

    def one(environment: Any, key: Any, count: Any, now: Any, action: Any) -> tuple[Any, ...]:
        state, over = now
        taken, info = _step(rules, key, count, state, action, environment)
        shown = (taken.observation, taken.state, info)
        outcome = (taken.reward, taken.terminated, taken.truncated)
        fresh = _reset(rules, jax.random.fold_in(key, count), environment)
        if mode == AutoresetMode.NEXT_STEP.value:
            nothing = jax.tree.map(jnp.zeros_like, outcome)
            shown, outcome = select(over, (fresh, nothing), (shown, outcome))
        elif mode == AutoresetMode.SAME_STEP.value:
            shown = select(taken.terminated | taken.truncated, fresh, shown)
        return shown, outcome, (taken.observation, info)

    return lanes.map(one, keys, counts, states, actions)


@jax.jit
def _select_lanes(mask: Any, fresh: Any, now: Any) -> Any:
    return jax.vmap(select)(mask, fresh, now)


gymnasium.register(
    ID,
    entry_point="jbrl.gymnasium:ProblemEnv",
    vector_entry_point="jbrl.gymnasium:ProblemVectorEnv",
)
