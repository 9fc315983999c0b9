"""One decision at a time: lifetimes whose outcomes a caller brings, in a compiled step.

`Player` holds the three pure functions of a lifetime, to be traced and mapped; `Stepping` compiles
them and is called from a loop in Python. Keys are those of `rollout`, so that lifetime number i of
a seed takes the decisions that `jbrl.play` takes, given the same outcomes.

A decision is one call: learning from the last transition and choosing the next action are compiled
together. The state is donated and stays on the device; what comes and goes are one array of a few
words and the action.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl.agents.complete import may_diverge
from jbrl.agents.registry import shown_name
from jbrl.base import notebook
from jbrl.base.errors import MAX_COUNT, JbrlError, bytes_text, check_count, shown
from jbrl.base.pytree import record, static
from jbrl.environments.environment import step_or_reset
from jbrl.environments.spec import Box, OneHot, Spec
from jbrl.mdp.sampling import stream
from jbrl.play import compilation
from jbrl.play.batching import is_key
from jbrl.play.machine import available_memory
from jbrl.play.timing import since
from jbrl.problems.hosted import HostPrior
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import DrawsParameters, RestsAtEnd, Transition
from jbrl.rollout.episodes import BLOCK
from jbrl.rollout.faults import observe_key, reset_key
from jbrl.vectorize import native

WAITED = 1.5  # wall seconds for each of the processor, from which on these are shown
WARM = 8  # decisions before those that are timed: the first calls of a program take longer
# bytes of small arrays that travel as one: XLA's threads share the work on larger ones, which
# takes longer than the work
TOGETHER = 512
# bits of the word that says how an episode ended
_TERMINATED, _TRUNCATED, _BOTH = 1, 2, 3
_WORDS_BYTES = 64  # of what a lifetime is given and returns, for a step
OUTCOME = "reward", "ends", "reached"  # of a decision, as a saved life names it
_TEXT = str, bytes, bytearray  # which Python takes for numbers, too
_GREATEST = float(np.finfo(np.float32).max)  # of rewards


class DivergedError(JbrlError):
    """The learning of an agent that `MayDiverge` has left it without an action."""


@record
class LifeState:
    """A lifetime so far. Leaves as the agent has them; mapped, with leading axes."""

    own: Any  # the agent drawn for this lifetime; (): none is drawn
    agent: Any  # state of the agent
    key: Array  # of all decisions
    t: Array  # [] int32, transitions observed
    observation: Array  # of the last decision
    action: Array  # [] int32, the last one


@record
class Player:
    """The pure functions of a lifetime, which JAX can trace and map."""

    agent: Any  # its parameters as arrays
    knowledge: Any  # what it learned on the prior; the prior for agents that draw parameters
    spec: Spec = static()
    in_blocks: bool = static()  # keys as in lifetimes of blocks, else as for T decisions

    def reset(self, key: Array, index: Array | int = 0) -> LifeState:
        """Start lifetime number `index`, [] int32, of the seed behind `key`."""
        index = jnp.asarray(index, jnp.int32)
        own = stream(key, index, "parameters")
        agent, knowledge, drawn = self.agent, self.knowledge, ()
        if isinstance(agent, DrawsParameters):
            agent, knowledge = agent.draw_and_train(own, knowledge)
            drawn = agent
        seen, state = self.spec.observation, agent.reset(reset_key(own), knowledge)
        if isinstance(agent, RestsAtEnd):
            state = agent.without_end(state)
        return LifeState(
            own=drawn,
            # XLA aborts where it sees through what native code is given (jaxlib 0.10.2)
            agent=lax.optimization_barrier(state),
            key=stream(key, index, "agent"),
            t=jnp.int32(0),
            observation=jnp.zeros(seen.shape, seen.dtype),
            action=jnp.int32(0),
        )

    def act(self, life: LifeState, observation: Array) -> tuple[Array, LifeState]:
        """Return the action, [] int32, and the lifetime after deciding.

        `NO_ACTION`: none can be chosen.
        """
        action, state = self._agent(life).act(self._key(life), life.agent, observation)
        decided = dataclasses.replace(life, agent=state, observation=observation, action=action)
        return action, decided

    def observe(
        self,
        life: LifeState,
        reward: Array,
        next_observation: Array,
        terminated: Array | bool = False,
        truncated: Array | bool = False,
    ) -> LifeState:
        """Learn from the outcome of the last action: [] float32, an observation, [] bool twice."""
        transition = Transition(
            life.observation,
            life.action,
            jnp.asarray(reward, jnp.float32),
            next_observation,
            jnp.asarray(terminated, bool),
            jnp.asarray(truncated, bool),
        )
        learned = self._agent(life).observe(observe_key(self._key(life)), life.agent, transition)
        return dataclasses.replace(life, agent=learned, t=life.t + 1)

    def _agent(self, life: LifeState) -> Any:
        return life.own if isinstance(self.agent, DrawsParameters) else self.agent

    def _key(self, life: LifeState) -> Array:
        """Return the key of the present decision: entry t of `jax.random.split(key, n)`, for any n,
        which is a fold.
        """
        if not self.in_blocks:
            return jax.random.fold_in(life.key, life.t)
        return jax.random.fold_in(jax.random.fold_in(life.key, life.t // BLOCK), life.t % BLOCK)


@dataclasses.dataclass(frozen=True)
class Latency:
    """Wall seconds of a decision to a caller in Python, dispatch included."""

    median: float
    p99: float
    decisions: int  # measured
    lifetimes: int  # played at once
    empty: float  # median of a compiled call that does nothing, measured beside it
    compile_seconds: float = 0.0
    # as `p99`, of processor seconds of the calling thread, which others keep waiting but not
    # working; 0: not measured
    processor_p99: float = 0.0

    @classmethod
    def of(
        cls,
        seconds: Sequence[float],
        lifetimes: int = 1,
        compiling: float = 0.0,
        processor: Sequence[float] = (0.0,),
    ) -> "Latency":
        """Return the latency by decisions that took `seconds` each."""
        return cls(
            median=float(np.median(seconds)),
            p99=float(np.percentile(seconds, 99, method="higher")),
            decisions=len(seconds),
            lifetimes=lifetimes,
            empty=_empty_call(),
            compile_seconds=compiling,
            processor_p99=float(np.percentile(processor, 99, method="higher")),
        )

    def columns(self) -> dict[str, float]:
        """Return the latency as a result keeps it."""
        return {"latency_seconds": self.median, "latency_p99_seconds": self.p99}

    def __repr__(self) -> str:
        return f"<Latency: {self.in_words()}>"

    def in_words(self) -> str:
        """Return all figures on one line."""
        return ", ".join(f"{name} {value}" for name, value in self.facts().items())

    def _repr_html_(self) -> str:
        return notebook.facts(self.facts())

    def facts(self) -> dict[str, str]:
        """Return the figures by name, with their units; of slow decisions that have waited for
        other programs, or threads, how long they worked.
        """
        slow, worked = map(notebook.duration, (self.p99, self.processor_p99))
        waited = 0 < self.processor_p99 < self.p99 / WAITED
        return {
            "median": notebook.duration(self.median),
            "99th percentile": slow + f" ({worked} of processor time)" * waited,
            "empty call": notebook.duration(self.empty),
            "decisions": f"{self.decisions:,}",
            "lifetimes at once": f"{self.lifetimes:,}",
        }


def _plain(leaf: Any) -> Array:
    """Return an array, of a random key its words."""
    return jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The structure of a pytree whose leaves travel as plain arrays, random keys as their words."""

    structure: Any
    impls: tuple[Any, ...]  # of each leaf, None where it is no key
    kinds: tuple[Any, ...]  # shape and dtype of each leaf

    @classmethod
    def of(cls, tree: Any) -> "_Layout":
        """Return the layout of a pytree of arrays, or of their shapes."""
        leaves, structure = jax.tree.flatten(tree)
        impls: list[Any] = []

        def plain(leaves: list[Any]) -> list[Array]:
            impls[:] = [jax.random.key_impl(v) if is_key(v) else None for v in leaves]
            return list(map(_plain, leaves))

        kinds = tuple((v.shape, np.dtype(v.dtype)) for v in jax.eval_shape(plain, leaves))
        return cls(structure, tuple(impls), kinds)

    def flat(self, tree: Any) -> list[Any]:
        return list(map(_plain, jax.tree.leaves(tree)))

    def tree(self, leaves: Sequence[Any]) -> Any:
        found = (
            v if impl is None else jax.random.wrap_key_data(v, impl=impl)
            for v, impl in zip(leaves, self.impls, strict=True)
        )
        return jax.tree.unflatten(self.structure, list(found))

    @property
    def _groups(self) -> list[list[int]]:
        """Return the numbers of the leaves that share an array: of one dtype, `TOGETHER` bytes at
        most.
        """
        groups: list[list[int]] = []
        latest: dict[Any, tuple[float, list[int]]] = {}  # bytes and members of the last group
        for number, (shape, dtype) in enumerate(self.kinds):
            size = math.prod(shape) * dtype.itemsize
            before, group = latest.get(dtype, (math.inf, []))
            if before + size > TOGETHER:
                before, group = 0, []
                groups.append(group)
            group.append(number)
            latest[dtype] = before + size, group
        return groups

    def packed(self, tree: Any) -> list[Any]:
        """Return the leaves, small ones as parts of vectors: each array that a call returns costs
        a microsecond.
        """
        leaves = self.flat(tree)
        return [
            leaves[group[0]]
            if len(group) == 1
            else jnp.concatenate([leaves[number].reshape(-1) for number in group])
            for group in self._groups
        ]

    def unpacked(self, arrays: Sequence[Any]) -> Any:
        """Invert `packed`."""
        leaves: list[Any] = [None] * len(self.kinds)
        for array, group in zip(arrays, self._groups, strict=True):
            if len(group) == 1:
                leaves[group[0]] = array
                continue
            sizes = [math.prod(self.kinds[number][0]) for number in group]
            parts = jnp.split(array, np.cumsum(sizes)[:-1])
            for number, part in zip(group, parts, strict=True):
                leaves[number] = part.reshape(self.kinds[number][0])
        return self.tree(leaves)


@dataclasses.dataclass(frozen=True)
class _Programs:
    """Functions that are compiled: equal ones share their programs.

    Inputs of a decision are int32 words, [k], and for arrays as observations these apart: the bits
    of the reward, how the episode ended, and where observations are indices the one reached and the
    one to act upon.
    """

    player: _Layout
    life: _Layout
    spec: Spec
    lifetimes: int | None  # None: one, without an axis

    def begin(self, player: Any, words: Any, seen: Any) -> tuple[Any, Any]:
        """Start lifetimes and take their first decision. `words`: key, key, index: uint32 [3]."""

        def one(words: Array, seen: Array) -> tuple[Any, Array]:
            key = jax.random.wrap_key_data(words[:2])
            playing = self.player.tree(player)
            life = playing.reset(key, words[2].astype(jnp.int32))
            action, life = playing.act(life, seen)
            return self.life.packed(life), action

        return self._mapped(one)(words, seen)

    def step(self, player: Any, life: Any, words: Any, arrays: Any) -> tuple[Any, Any]:
        """Learn from the last transitions and take the next decisions."""

        def one(life: Any, words: Array, arrays: Any) -> tuple[Any, Array]:
            playing, now = self.player.tree(player), self.life.unpacked(life)
            reached, seen = arrays or (words[2], words[3])
            reward = lax.bitcast_convert_type(words[0], jnp.float32)
            ends = (words[1] & _TERMINATED) != 0, (words[1] & _TRUNCATED) != 0
            action, now = playing.act(playing.observe(now, reward, reached, *ends), seen)
            return self.life.packed(now), action

        return self._mapped(one)(life, words, arrays)

    def compiled(self, name: str, args: tuple[Any, ...]) -> compilation.Program:
        """Compile one of the two methods; the state of `step` is donated.

        XLA hands operations of a program with arrays of more than 512 bytes to other threads, and
        one lifetime waits for these longer than it computes; native code stays in one thread.
        """
        types = tuple(jax.typeof(leaf) for leaf in jax.tree.leaves(args))
        devices = jax.devices()[:1]
        natively = self.lifetimes is None and devices[0].platform == "cpu"

        def found(lowered: Callable[[], Any]) -> compilation.Program:
            return compilation.find_or_compile((self, name, types), lowered, devices, 1, alone=True)

        try:
            return found(lambda: self._lowered(name, args, natively))
        except jax.errors.JaxRuntimeError:
            if not natively:
                raise
            return found(lambda: self._lowered(name, args, False))

    def _lowered(self, name: str, args: tuple[Any, ...], natively: bool) -> Any:
        donated = (1,) if name == "step" else ()
        traced = jax.jit(getattr(self, name), donate_argnums=donated).trace(*args)
        run = native.as_native(traced) if natively else None
        if run is None:
            return traced.lower()

        def whole(*args: Any) -> Any:
            *results, numbers = run(*jax.tree.leaves(args))
            return *jax.tree.unflatten(structure, results), numbers

        structure = jax.tree.structure(traced.out_info)
        return jax.jit(whole, donate_argnums=donated).lower(*args)

    def _mapped(self, one: Any) -> Any:
        return one if self.lifetimes is None else jax.vmap(one)


class Stepping:
    """Lifetimes that a caller plays, one decision at a time.

    Args:
      lifetimes: at once, those numbered from `index`; None: one, whose actions are integers.

    Attributes:
      decisions: taken so far by each lifetime.
    """

    def __init__(
        self, player: Player, key: Array, index: int = 0, lifetimes: int | None = None
    ) -> None:
        if lifetimes is not None:
            check_count("lifetimes", lifetimes)
            _check_memory(player, lifetimes)
        check_count("index", index, MAX_COUNT + 1 - (lifetimes or 1), low=0)
        self.player, self.lifetimes, self.decisions = player, lifetimes, 0
        self._seen, self._n_actions = player.spec.observation, player.spec.actions.n
        self._shape = () if lifetimes is None else (lifetimes,)
        words = np.array(jax.random.key_data(key), np.uint32)
        numbers = np.arange(index, index + (lifetimes or 1), dtype=np.uint32)
        begun = np.column_stack([np.tile(words, (len(numbers), 1)), numbers])
        self._words = begun[0] if lifetimes is None else begun
        self._life: Any = None  # leaves on the device, once the first decision is taken
        # the outcome that the next decision learns from
        self._outcome: tuple[Any, ...] | None = None
        self._compile()

    def _compile(self) -> None:
        layout = _Layout.of(self.player)
        life = _Layout.of(compilation.shapes_of(_reset, self.player, jax.random.key(0)))
        programs = _Programs(layout, life, self.player.spec, self.lifetimes)
        self._data = jax.device_put(layout.flat(self.player))
        seen = np.zeros((*self._shape, *self._seen.shape), self._seen.dtype)
        words, arrays = self._inputs((0, 0, seen), seen)  # for example
        start = (self._data, self._words, seen)
        self._leaves, _ = compilation.shapes_of(programs.begin, *start)
        follow = (self._data, self._leaves, words, arrays)
        (beginning, stepping), self.compile_seconds = compilation.compile_together(
            lambda: programs.compiled("begin", start), lambda: programs.compiled("step", follow)
        )
        self._begin, self._step = beginning.call, stepping.call

    def act(self, observation: Any) -> Any:
        """Return the action of the present observation: an integer, or [n] int32 for n lifetimes.

        Raises:
          JbrlError: `observe` was not called since the last action, an observation that the policy
            does not know, the agent can choose no action, or a decision was interrupted before;
            `DivergedError`: its learning has diverged.
        """
        seen = self._observation(observation, "observation")
        if self._life is None:
            life, action, *_ = self._begin(self._data, self._words, seen)
        elif self._outcome is None:
            raise JbrlError(
                "act after act: expected observe(reward, next_observation) for the last action "
                "first"
            )
        else:
            inputs = self._inputs(self._outcome, seen)
            try:
                life, action, *_ = self._step(self._data, self._life, *inputs)
            except Exception:  # of XLA, which has several kinds
                self._check_state()
                raise
        self._life, self._outcome = life, None
        self.decisions += 1
        if self.lifetimes is None:
            chosen = action.item()
            if 0 <= chosen < self._n_actions:
                return chosen
        else:
            chosen = np.array(action)
            if chosen.min() >= 0 and chosen.max() < self._n_actions:
                return chosen
        agent = self.player.agent
        error = DivergedError if may_diverge(agent) else JbrlError
        raise error(
            f"{shown_name(agent)}, decision {self.decisions}: {agent.refusal(self._n_actions)}"
        )

    def observe(
        self, reward: Any, next_observation: Any, terminated: Any = False, truncated: Any = False
    ) -> None:
        """Say what came of the last action; the next decision learns from it.

        Args:
          reward: a finite number, or [n].
          next_observation: after the last step of an episode the terminal one; the next `act` is
            then given the first observation of the next episode.
          terminated, truncated: whether the episode has ended, or was cut off: bool, or [n].

        Raises:
          JbrlError: no action waits for its outcome, or a value that is not accepted.
        """
        if self._life is None or self._outcome is not None:
            raise JbrlError("observe before act: expected act(observation) first")
        reached = self._observation(next_observation, "next_observation")
        if self.lifetimes is None:
            gained, ends = _outcome(reward, terminated, truncated)
            sound, both = abs(gained) <= _GREATEST, ends == _BOTH  # not NaN
        else:
            gained = self._array(reward, "reward", np.float32, self._shape)
            ends = self._flag(terminated, "terminated") * np.int32(_TERMINATED)
            ends = ends | self._flag(truncated, "truncated") * np.int32(_TRUNCATED)
            sound, both = bool(np.isfinite(gained).all()), bool(np.any(ends == _BOTH))
        if not sound:
            raise JbrlError(f"reward = {shown(reward)}: expected a finite number")
        if both:
            raise JbrlError("both terminated and truncated: expected one of them at most")
        self._outcome = (gained, ends, reached)

    def _inputs(self, outcome: tuple[Any, ...], seen: Any) -> tuple[Any, Any]:
        """Return the words and the arrays of a step."""
        gained, ends, reached = outcome
        box = isinstance(self._seen, Box)
        words = np.empty((*self._shape, 2 if box else 4), np.int32)
        words.view(np.float32)[..., 0] = gained
        words[..., 1] = ends
        if box:
            return words, (reached, seen)
        words[..., 2] = reached
        words[..., 3] = seen
        return words, ()

    def _observation(self, given: Any, name: str) -> Any:
        """Return an observation as the programs take it."""
        spec = self._seen
        if isinstance(spec, Box):
            found = self._array(given, name, np.float32, (*self._shape, *spec.shape))
            if not np.isfinite(found).all():
                raise JbrlError(f"{name} = {shown(given)}: expected finite numbers")
            return found
        low = -1 if isinstance(spec, OneHot) else 0
        if self.lifetimes is None:
            kind = type(given)
            if kind is not int:
                given = self._array(given, name, np.int32, ()).item()
            if not low <= given < spec.n:
                raise JbrlError(f"{name} = {given}: expected an integer from {low} to {spec.n - 1}")
            return np.int32(given) if self._life is None else given
        found = self._array(given, name, np.int32, self._shape)
        if found.min() < low or found.max() >= spec.n:
            raise JbrlError(
                f"{name} = {shown(given)}: expected integers from {low} to {spec.n - 1}"
            )
        return found.astype(np.int32)

    def _array(self, given: Any, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of this shape, integers as they are; numbers of another kind are
        refused.
        """
        try:
            found = np.asarray(given)
        except (TypeError, ValueError):
            found = np.empty(0, object)
        kinds = "biu" if dtype is np.int32 else "biuf"
        if found.shape != shape or found.dtype.kind not in kinds:
            kind = "an integer" if dtype is np.int32 else "a number"
            wanted = f"an array {np.dtype(dtype).name}{list(shape)}" if shape else kind
            raise JbrlError(f"{name} = {shown(given)}: expected {wanted}")
        if dtype is np.int32:
            return found
        with np.errstate(over="ignore"):  # the caller refuses what is not finite
            return found.astype(dtype)

    def _flag(self, given: Any, name: str) -> np.ndarray:
        """Return True or False of each lifetime, [n] bool, from as many or from one."""
        try:
            found = np.asarray(given)
        except ValueError:
            found = np.empty(0, object)
        if found.shape not in ((), self._shape) or found.dtype.kind not in "biuf":
            wanted = f"True, False or an array bool{list(self._shape)}"
            raise JbrlError(f"{name} = {shown(given)}: expected {wanted}")
        return np.broadcast_to(found.astype(bool), self._shape)

    # ---- the state, as arrays ----

    def _check_state(self) -> None:
        """Raise `JbrlError` if an interrupted decision has consumed the state."""
        if any(leaf.is_deleted() for leaf in self._life or ()):
            raise JbrlError(
                f"decision {self.decisions + 1} was interrupted, and the state of the life is lost "
                "with it: expected a new life, or one that was saved before"
            )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all that is needed to go on: the state, and the outcome that is not learned.

        Raises:
          JbrlError: a decision was interrupted.
        """
        self._check_state()
        state = {f"life/{i:04d}": np.array(v) for i, v in enumerate(self._life or ())}
        if self._outcome is not None:
            waiting = zip(OUTCOME, self._outcome, strict=True)
            state |= {f"outcome/{name}": np.asarray(value) for name, value in waiting}
        return state

    def restore(self, arrays: dict[str, np.ndarray], decisions: int) -> None:
        """Invert `arrays`.

        Raises:
          JbrlError: they are not of a lifetime of this policy.
        """
        leaves = [arrays[name] for name in sorted(arrays) if name.startswith("life/")]
        wanted = [(v.shape, v.dtype) for v in self._leaves]
        if [(v.shape, v.dtype) for v in leaves] != (wanted if decisions else []):
            raise JbrlError("the state of a life: expected one of this policy")
        self._life = jax.device_put(leaves) if leaves else None
        if any(name.startswith("outcome/") for name in arrays):
            reward, ends, reached = (arrays[f"outcome/{name}"] for name in OUTCOME)
            self.observe(reward, reached, ends & _TERMINATED, ends & _TRUNCATED)
        self.decisions = decisions


def _reset(player: Player, key: Array) -> LifeState:
    return player.reset(key)


def _check_memory(player: Player, lifetimes: int) -> None:
    """Raise `JbrlError` if the states of so many lifetimes, before and after a step, and what they
    are given take more memory than is free.
    """
    life = jax.tree.leaves(compilation.shapes_of(_reset, player, jax.random.key(0)))
    each = 2 * sum(math.prod(v.shape) * v.dtype.itemsize for v in life) + _WORDS_BYTES
    free = available_memory()
    if 0 < free < each * lifetimes:
        raise JbrlError(
            f"lifetimes = {lifetimes:,}: their states take {bytes_text(each * lifetimes)}: "
            f"expected at most {free // each:,}, for the {bytes_text(free)} that are free"
        )


def _outcome(reward: Any, terminated: Any, truncated: Any) -> tuple[Any, Any]:
    """Return a reward and how the episode ended, as numbers.

    Raises:
      JbrlError: they are none.
    """
    try:
        if (
            isinstance(reward, _TEXT)
            or isinstance(terminated, _TEXT)
            or isinstance(truncated, _TEXT)
        ):
            raise TypeError
        return float(reward), bool(terminated) * _TERMINATED | bool(truncated) * _TRUNCATED
    except (TypeError, ValueError, OverflowError):
        raise JbrlError(
            f"reward, terminated, truncated = {shown((reward, terminated, truncated))}: expected a "
            "number, and True or False twice"
        ) from None


def measure(player: Player, prior: Prior, decisions: int, lifetimes: int | None = None) -> Latency:
    """Return what `act` and `observe` of a decision take in a loop, in environments drawn from the
    prior, whose own steps the clock leaves out.
    """
    check_count("n", decisions)
    if lifetimes is not None:
        check_count("lifetimes", lifetimes)
    key = jax.random.key(0)
    step = _still(player, lifetimes) if isinstance(prior, HostPrior) else _drawn(prior, lifetimes)
    stepping, seconds, processor = Stepping(player, key, lifetimes=lifetimes), [], []
    seen, _ = step(None, 0)
    for number in range(decisions + WARM):
        began, started = time.thread_time(), time.perf_counter()
        action = stepping.act(seen)
        acted, worked = since(started), time.thread_time() - began
        seen, outcome = step(action, number)
        began, started = time.thread_time(), time.perf_counter()
        try:
            stepping.observe(*outcome)
        except JbrlError as error:
            raise JbrlError(f"environment of the prior, decision {number + 1}: {error}") from None
        seconds.append(acted + since(started))
        processor.append(worked + time.thread_time() - began)
    compiling = stepping.compile_seconds
    return Latency.of(seconds[WARM:], lifetimes or 1, compiling, processor[WARM:])


def _still(player: Player, lifetimes: int | None) -> Callable[..., Any]:
    """Return outcomes where nothing can be drawn: observations and rewards stay 0."""
    seen = player.spec.observation
    shape = () if lifetimes is None else (lifetimes,)
    zeros = np.zeros((*shape, *seen.shape), seen.dtype)
    return lambda *_: (zeros, (np.zeros(shape), zeros))


def _drawn(prior: Prior, lifetimes: int | None) -> Callable[..., Any]:
    """Return outcomes in environments drawn from the prior: a function of the actions, None for
    the first observation, and the number of the step.
    """
    keys = jax.random.split(jax.random.key(0), lifetimes or 1)
    with compilation.compiling("quick"):
        environments, state, first = compilation.compile_once(_begun, keys, prior).call(keys, prior)
        given = (state, jnp.zeros(len(keys), jnp.int32), jnp.int32(0))
        advance = compilation.compile_once(_advanced, keys, environments, *given).call

    def host(v: Any) -> Any:
        found = np.asarray(v)
        return found if lifetimes else (found[0].item() if found.ndim == 1 else found[0])

    def step(action: Any, number: int) -> tuple[Any, Any]:
        nonlocal state
        if action is None:
            return host(first), None
        actions = np.asarray(action, np.int32).reshape(-1)
        state, seen, taken = advance(keys, environments, state, actions, np.int32(number))
        outcome = (taken.reward, taken.observation, taken.terminated, taken.truncated)
        return host(seen), tuple(map(host, outcome))

    return step


def _begun(keys: Array, prior: Any) -> Any:
    """Return environments, states and first observations, one for each key."""
    environments = jax.vmap(prior.sample)(keys)
    return environments, *jax.vmap(lambda e, k: e.reset(k))(environments, keys)


def _advanced(keys: Array, environments: Any, state: Any, actions: Array, number: Array) -> Any:
    """Take step `number` of environments, and start the next episodes where one has ended."""
    at_step = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)
    return jax.vmap(step_or_reset)(environments, at_step, state, actions)


@jax.jit
def _first_plus_one(words: Array) -> Array:
    return words[0] + 1


def _empty_call() -> float:
    """Return the median seconds of a compiled call that returns its argument plus one."""
    words, seconds = np.zeros(4, np.int32), []
    for _ in range(200):
        started = time.perf_counter()
        _first_plus_one(words).item()
        seconds.append(since(started))
    return float(np.median(seconds))
