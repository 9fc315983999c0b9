"""Lifetimes in an environment of Gymnasium: the agent is compiled, the environment is stepped on
the host.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jbrl.agents.registry import shown_name
from jbrl.base.errors import JbrlError
from jbrl.environments.spec import Episodes, Lifetime, Observation, OneHot
from jbrl.play.blocks import LifetimeRun
from jbrl.play.offline import SearchCheckpoint
from jbrl.play.protocol import Chunk
from jbrl.play.stepping import WARM, Latency, Player, Stepping
from jbrl.play.timing import since
from jbrl.rollout.contract import OfflineSearch


class PlayedEpisodes(NamedTuple):
    """Episodes of one lifetime in an environment of the host."""

    returns: np.ndarray  # [E] float64, undiscounted; the last one may be cut off by the lifetime
    steps: np.ndarray  # [E] int64
    seconds: np.ndarray  # [T] float64, wall seconds of each decision, learning included


class HostRun(LifetimeRun):
    """Variant of `Run` for an environment of Gymnasium, one lifetime after the other.

    Raises:
      JbrlError: the agent learns in environments drawn from its prior.
    """

    def prepare(self, checkpoint: SearchCheckpoint | None = None) -> None:
        if isinstance(self.given, OfflineSearch):
            raise JbrlError(
                f"{shown_name(self.given)} needs a prior to draw environments from: "
                f"'{self.protocol.test.short_name}' is stepped on the host and cannot be compiled"
            )
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
            seed = self.protocol.seed + index
            played = play_episodes(life, problem.env, self.protocol.lifetime, seed)
            self._seconds.append(played.seconds)
            yield Chunk(
                index,
                np.array([played.returns.mean()]),
                None,
                float(played.seconds.sum()),
                len(played.seconds),
                {"episodes": np.array([float(len(played.returns))])},
            )

    def latency(self) -> Latency:
        """Return the wall seconds of the decisions that were played."""
        seconds = np.concatenate(self._seconds)
        return Latency.of(list(seconds[WARM:] if len(seconds) > WARM else seconds))


def play_episodes(life: Stepping, env: Any, lifetime: Lifetime, seed: int) -> PlayedEpisodes:
    """Play a lifetime in an environment of Gymnasium, whose first reset takes the `seed`.

    Raises:
      JbrlError: an observation or a reward that its spaces do not announce, or an episode without
        an end.
    """
    known, first = life.player.spec.observation, int(getattr(env.action_space, "start", 0))
    from_0 = int(getattr(env.observation_space, "start", 0))
    returns, steps, seconds = [0.0], [0], list[float]()
    seen = _seen(known, env.reset(seed=seed)[0], from_0)
    while True:
        started = time.perf_counter()
        action = life.act(seen)
        acted = since(started)
        reached, reward, terminated, truncated, _ = env.step(action + first)
        reached = _seen(known, reached, from_0)
        started = time.perf_counter()
        # a limit of time at the terminal state cuts nothing off
        life.observe(reward, reached, terminated, bool(truncated) and not terminated)
        seconds.append(acted + since(started))
        returns[-1] += float(reward)
        steps[-1] += 1
        ended = bool(terminated or truncated)
        if _over(lifetime, len(returns), ended, len(seconds), steps[-1]):
            return PlayedEpisodes(np.array(returns), np.array(steps), np.array(seconds))
        if ended:
            returns.append(0.0)
            steps.append(0)
            reached = _seen(known, env.reset()[0], from_0)
        seen = reached


def _over(lifetime: Lifetime, episodes: int, ended: bool, decisions: int, steps: int) -> bool:
    """Return whether a lifetime is over after a step.

    Raises:
      JbrlError: an episode goes on for longer than the lifetime allows.
    """
    if not isinstance(lifetime, Episodes):
        return decisions >= lifetime.steps
    if not ended and steps >= lifetime.max_steps:
        raise JbrlError(
            f"episode {episodes}: no end after {lifetime.max_steps} steps: expected an environment "
            "that ends, such as one with TimeLimit"
        )
    return ended and episodes >= lifetime.episodes


def _seen(known: Observation, observation: Any, first: int) -> Any:
    """Return an observation as agents know it: states are counted from 0, one-hot vectors given by
    the index of their 1.
    """
    if isinstance(known, OneHot) and np.ndim(observation) == 1:
        ones = np.flatnonzero(observation)
        return int(ones[0]) if len(ones) else -1
    return observation - first if first else observation
