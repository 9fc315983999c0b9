"""Play one agent in one experiment, from Python; in an environment of Gymnasium the agent is
compiled, the environment is stepped on the host.
"""

import dataclasses
import operator
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jbrl.agents.complete import Complete, played_agent
from jbrl.agents.registry import check_agent, check_record, named_agent
from jbrl.base.errors import JbrlError, shown
from jbrl.base.notebook import Bar
from jbrl.environments.environment import Environment, errors_named
from jbrl.environments.spec import Episodes, Lifetime, Observation, OneHot, Steps
from jbrl.play import batching
from jbrl.play.blocks import LifetimeRun
from jbrl.play.experiment import Run
from jbrl.play.offline import SearchCheckpoint
from jbrl.play.protocol import Chunk, Played, Protocol, check_returns, played
from jbrl.play.stepping import WARM, DivergedError, Latency, Player, Stepping
from jbrl.play.timing import since
from jbrl.problems.hosted import HostProblem, host_problem, is_host_environment
from jbrl.problems.lookup import problem, problem_of
from jbrl.problems.problem import Problem
from jbrl.rollout.contract import Agent, MadeOfWeights, with_plain_numbers
from jbrl.rollout.faults import check_host_values


def make_run(agent: Agent, protocol: Protocol, **options: Any) -> Run:
    """Return the run of an agent in an experiment, of the kind that its lifetimes need.

    Arguments as those of `Run`.
    """
    kind = LifetimeRun if protocol.in_blocks else Run
    if isinstance(protocol.test, HostProblem):
        kind = HostRun
    return kind(agent, protocol, **options)


def lifetime_of(test: Problem, horizon: int | None, episodes: int | None) -> Lifetime:
    """Return the lifetime that is asked for, or that of the problem.

    Raises:
      JbrlError: both are asked for, or a number is out of range.
    """
    if horizon is not None and episodes is not None:
        raise JbrlError(f"both horizon = {horizon} and episodes = {episodes}: expected one of them")
    if episodes is not None:
        given = test.lifetime
        return (
            Episodes(episodes, given.max_steps)
            if isinstance(given, Episodes)
            else Episodes(episodes)
        )
    return test.lifetime if horizon is None else Steps(horizon)


def play(
    agent: Agent | str,
    *,
    test: str | Problem | None = None,
    prior: str | Problem | None = None,
    n_environments: int | None = None,
    seed: int = 0,
    horizon: int | None = None,
    episodes: int | None = None,
    discount: float = 0.95,
    record: bool = False,
    latency: bool = False,
) -> Played:
    """Play `agent` with prior `prior` for one lifetime in each of `n_environments` environments
    drawn from `test`.

    A lifetime in which the learning of a deep agent diverges fails alone: its score is NaN, and
    `failure` of the outcome says why.

    Args:
      agent: an agent with its parameters, for example `EpsilonGreedy(epsilon=0.1)`; or a name,
        with parameters where wanted: one of the register (`"e-Greedy"`, `"BEB(beta=4)"`), or
        `"module:Class"`, the module being importable or lying in the working directory.
      test, prior: a name of the catalogue, an environment outside the package as `module:Class`,
        the path of a JSON file, a `Problem`, or an environment of Gymnasium, which is stepped on
        the host. One of them may be left out: it is the other one then.
      n_environments: default: that of the test problem (500; 1 for a setting of bsuite).
      horizon: decisions of each lifetime; default: the lifetime of the test problem (250 for
        Dirichlet distributions).
      episodes: episodes of each lifetime, in place of `horizon`.
      discount: of the criterion of lifetimes in finite MDPs; other problems are scored by
        their recorder.
      record: keep states, actions and rewards; for finite MDPs.
      latency: also measure what one decision takes a caller who plays one lifetime.

    Raises:
      JbrlError: a parameter or a name that is not accepted, a class that is not registered, an
        agent that cannot use what the prior offers, or one that takes random numbers or times from
        the host; all lifetimes have failed.

    >>> jbrl.play("Random", test="GC", n_environments=4, horizon=8).returns.shape
    (4,)
    """
    batching.use_all_cores()
    agent, name = resolve_agent(agent)
    if test is None and prior is None:
        raise JbrlError('test: expected a problem, for example test="GC"')
    tested = resolve_problem(prior if test is None else test)
    prior_problem = tested if prior is None or test is None else resolve_problem(prior)
    protocol = Protocol(
        prior_problem,
        tested,
        tested.n_environments if n_environments is None else n_environments,
        seed,
        lifetime_of(tested, horizon, episodes),
        discount,
    )
    protocol.check_agent(agent, name)
    check_host_values(played_agent(agent), name, protocol.agent_prior())
    run = make_run(agent, protocol, record=record)
    parts = _parts(run, name)
    return played(
        parts,
        offline_seconds=run.offline_seconds,
        **(run.latency().columns() if latency else {"latency_seconds": None}),
        compile_seconds=run.compile_seconds,
        device=run.device,
        batch=run.batch,
        learned=run.learned,
        trained=run.trained(),
    )


def _parts(run: Run, name: str) -> list[Chunk]:
    """Compile and play; a notebook shows a bar."""
    bar, whole = Bar(), run.protocol.n_environments
    bar.update(f"{name}: compiling", 0, whole)
    run.prepare()
    parts = []
    for part in run.chunks():
        parts.append(check_returns(part))
        bar.update(name, part.start + len(part.returns), whole)
    return parts


def resolve_agent(given: Any) -> tuple[Agent, str]:
    """Return the agent to play, and its name for messages.

    Raises:
      JbrlError: a name that is not known, a parameter that is not accepted, or no agent at all.
    """
    if isinstance(given, str):
        agent, name = named_agent(given, Path.cwd())
    elif isinstance(given, type) and issubclass(given, Agent):
        check_record(given, given.__name__)
        raise JbrlError(
            f"agent = {given.__name__}: expected an agent, not its class: write {given.__name__}()"
        )
    elif isinstance(given, Agent):
        agent, name = given, type(given).__name__
        if isinstance(given, MadeOfWeights):
            return agent, name
        if not isinstance(given, Complete):
            check_record(type(given), name)
            agent = with_plain_numbers(agent)
    else:
        raise JbrlError(
            f'agent = {shown(given)}: expected an agent, or the name of one, for example "e-Greedy"'
        )
    check_agent(played_agent(agent))
    return agent, name


def resolve_problem(given: Any) -> Problem:
    """Return a problem by its name, or as it is given: a `Problem`, an environment of this package
    or a class of one, or an environment of Gymnasium.

    Raises:
      JbrlError: no such problem, or an environment that its settings do not tell.
    """
    if isinstance(given, type) and issubclass(given, Environment):
        given = given()
    if isinstance(given, Environment):
        return problem_of(given, Path.cwd())
    if is_host_environment(given):
        return host_problem(given)
    return given if isinstance(given, Problem) else problem(given, Path.cwd())


class PlayedEpisodes(NamedTuple):
    """Episodes of one lifetime in an environment of the host."""

    returns: np.ndarray  # [E] float64, undiscounted; the last one may be cut off by the lifetime
    steps: np.ndarray  # [E] int64
    seconds: np.ndarray  # [T] float64, wall seconds of each decision, learning included


class HostRun(LifetimeRun):
    """Variant of `Run` for an environment of Gymnasium, one lifetime after the other."""

    def prepare(self, checkpoint: SearchCheckpoint | None = None) -> None:
        self.learn(checkpoint)
        self.compile()

    def compile(self) -> None:
        self._seconds: list[np.ndarray] = []

    @property
    def batch(self) -> int:
        return 1

    def chunks(self, start: int = 0, size: int | None = None, **options: Any) -> Iterator[Chunk]:
        problem: Any = self.protocol.test
        player = Player(self.agent, self.knowledge, problem.spec, in_blocks=True)
        for index in range(start, self.protocol.n_environments):
            life = Stepping(player, self.key, index)
            self.compile_seconds += life.compile_seconds
            yield self._played(life, index, options.get("between"))

    def _played(self, life: Stepping, index: int, between: Callable[[Any], Any] | None) -> Chunk:
        """Play lifetime number `index`; where learning diverges it fails, and the others go on."""
        problem: Any = self.protocol.test
        seed, kept, failure = self.protocol.seed + index, _Lifetime(), ""
        try:
            play_episodes(life, problem.env, self.protocol.lifetime, seed, between, kept)
        except DivergedError as error:
            failure = f"lifetime {index}, {error}"
        except JbrlError as error:
            where = f"environment '{problem.short_name}', lifetime {index}"
            raise JbrlError(f"{where}, {error}") from error
        self._seconds.append(np.array(kept.seconds))
        score, ended = (np.nan, np.nan) if failure else (np.mean(kept.returns), float(kept.ended))
        return Chunk(
            index,
            np.array([score]),
            None,
            sum(kept.seconds),
            len(kept.seconds),
            {"episodes": np.array([ended])},
            failed=np.array([bool(failure)]),
            failure=failure,
        )

    def latency(self) -> Latency:
        """Return the wall seconds of the decisions that were played."""
        seconds = np.concatenate(self._seconds)
        return Latency.of(list(seconds[WARM:] if len(seconds) > WARM else seconds))


@dataclasses.dataclass
class _Lifetime:
    """Lists behind `PlayedEpisodes`, and the number of episodes that have ended."""

    returns: list[float] = dataclasses.field(default_factory=lambda: [0.0])
    steps: list[int] = dataclasses.field(default_factory=lambda: [0])
    seconds: list[float] = dataclasses.field(default_factory=list)
    ended: int = 0


def play_episodes(
    life: Stepping,
    env: Any,
    lifetime: Lifetime,
    seed: int,
    between: Callable[[Any], Any] | None = None,
    kept: _Lifetime | None = None,
) -> PlayedEpisodes:
    """Play a lifetime in an environment of Gymnasium, whose first reset takes the `seed`.

    Args:
      between: called with None after each step; what it raises ends the lifetime.
      kept: receives what is played, also of a lifetime that fails.

    Raises:
      JbrlError: an observation or a reward that its spaces do not announce, or an episode without
        an end; `DivergedError`: learning has diverged. Names the step and the episode.
    """
    kept = kept or _Lifetime()
    known, first = life.player.spec.observation, int(getattr(env.action_space, "start", 0))
    from_0 = int(getattr(env.observation_space, "start", 0))
    try:
        seen = _seen(known, _called(env, "reset", seed=seed)[0], from_0)
        while True:
            started = time.perf_counter()
            action = life.act(seen)
            acted = since(started)
            reached, reward, terminated, truncated, _ = _called(env, "step", action + first)
            reached = _seen(known, reached, from_0)
            started = time.perf_counter()
            # a limit of time at the terminal state cuts nothing off
            life.observe(reward, reached, terminated, bool(truncated) and not terminated)
            kept.seconds.append(acted + since(started))
            kept.returns[-1] += float(reward)
            kept.steps[-1] += 1
            ended = bool(terminated or truncated)
            kept.ended += ended
            if between:
                between(None)
            if _over(lifetime, kept, ended):
                break
            if ended:
                kept.returns.append(0.0)
                kept.steps.append(0)
                reached = _seen(known, _called(env, "reset")[0], from_0)
            seen = reached
    except JbrlError as error:
        place = f"step {len(kept.seconds) + 1} (episode {len(kept.returns)})"
        raise type(error)(f"{place}: {error}") from error
    return PlayedEpisodes(np.array(kept.returns), np.array(kept.steps), np.array(kept.seconds))


_RETURNED = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}


def _called(env: Any, method: str, *arguments: Any, **named: Any) -> Any:
    """Return what a method of an environment returns.

    Raises:
      JbrlError: an error of the method, with its place; not as many values as those of Gymnasium.
    """
    with errors_named(method):
        given = getattr(env, method)(*arguments, **named)
    names = _RETURNED[method]
    if not isinstance(given, tuple | list) or len(given) != len(names):
        raise JbrlError(f"{method} returns {shown(given)}: expected ({', '.join(names)})")
    return given


def _over(lifetime: Lifetime, kept: _Lifetime, ended: bool) -> bool:
    """Return whether a lifetime is over after a step.

    Raises:
      JbrlError: an episode goes on for longer than the lifetime allows.
    """
    if not isinstance(lifetime, Episodes):
        return len(kept.seconds) >= lifetime.steps
    if not ended and kept.steps[-1] >= lifetime.max_steps:
        raise JbrlError(
            f"no end after {lifetime.max_steps} steps: expected an environment that ends, such as "
            "one with TimeLimit"
        )
    return ended and kept.ended >= lifetime.episodes


def _seen(known: Observation, observation: Any, first: int) -> Any:
    """Return an observation as agents know it: states are counted from 0, one-hot vectors given by
    the index of their 1.

    Raises:
      JbrlError: a state that is not among those from `first`, if that is not 0, or a vector that is
        not one-hot.
    """
    if isinstance(known, OneHot) and np.ndim(observation) == 1:
        ones = np.flatnonzero(observation)
        if len(ones) > 1 or not np.all(np.asarray(observation)[ones] == 1):
            raise JbrlError(f"observation = {shown(observation)}: expected one 1 among zeros")
        return int(ones[0]) if len(ones) else -1
    if not first:
        return observation
    n = getattr(known, "n", 0)
    try:
        state = operator.index(observation)
    except TypeError:
        state = first + n
    if not first <= state < first + n:
        raise JbrlError(
            f"observation = {shown(observation)}: expected an integer from {first} to "
            f"{first + n - 1}"
        )
    return state - first
