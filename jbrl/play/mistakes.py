"""Mistakes of an agent or an environment in lifetimes of episodes, in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jbrl.agents.complete import may_diverge
from jbrl.agents.registry import shown_name
from jbrl.base.errors import JbrlError
from jbrl.play.flight import Flight
from jbrl.play.protocol import Protocol
from jbrl.rollout import faults
from jbrl.rollout.contract import Agent, watched
from jbrl.rollout.episodes import Lane

OF_ENVIRONMENTS = {
    faults.BAD_REWARD: "the reward is not a finite number",
    faults.BAD_OBSERVATION: "the observation is NaN, infinite or out of range",
    faults.TWO_ENDS: "the episode is both terminated and truncated: expected one of them at most",
}


@dataclass(frozen=True)
class Mistake:
    """A mistake in a lifetime."""

    code: int  # of `faults`
    number: int  # of the lifetime
    step: int
    episode: int


class Mistakes:
    """The mistakes that are possible in a run, in words.

    Args:
      given: agent that messages name.
      agent: agent that plays.
      lanes: of the run, as arrays or shapes.
    """

    def __init__(self, given: Agent, agent: Agent, protocol: Protocol, lanes: Lane) -> None:
        self.given, self.agent, self.protocol = given, agent, protocol
        self._states: Any = (watched(agent, lanes.agent), lanes.environment)

    def refuse(self, numbers: np.ndarray, lanes: Lane) -> None:
        """Refuse the first lifetime in which an agent or an environment has made a mistake, unless
        it is a divergence.

        Args:
          numbers: [positions] int64, which lifetime is where; -1: none that counts.
          lanes: of all positions, their counts and faults on the host.

        Raises:
          JbrlError: names the agent or the environment, the lifetime, the step and the episode.
        """
        codes: Any = lanes.fault
        wrong = np.flatnonzero((codes != 0) & (numbers >= 0))
        for place in wrong[np.argsort(numbers[wrong])]:
            steps, episodes = lanes.steps[place], lanes.episodes[place]
            found = Mistake(*(int(v) for v in (codes[place], numbers[place], steps, episodes + 1)))
            if not self.is_divergence(found.code):
                raise JbrlError(self.sentence(found))

    def failure(self, flight: Flight) -> str:
        """Return why the first of the lifetimes of a flight that failed did; "" where none has."""
        failed = np.flatnonzero(flight.faults)
        if not len(failed):
            return ""
        place = int(failed[0])
        code, step, over = (
            int(values[place]) for values in (flight.faults, flight.steps, flight.episodes)
        )
        return self.sentence(Mistake(code, flight.first + place, step, over + 1))

    def is_divergence(self, code: int) -> bool:
        """Return whether only the lifetime fails: learning has diverged."""
        theirs = code == faults.ILLEGAL_ACTION or (
            code >= faults.NAN and not self._nan_path(code)[0].idx
        )
        return theirs and may_diverge(self.agent)

    def sentence(self, found: Mistake) -> str:
        """Return a sentence that names the agent or the environment, the lifetime, the step and the
        episode.
        """
        problem, code = self.protocol.test.short_name, found.code
        when = f"lifetime {found.number}, step {found.step} (episode {found.episode})"
        theirs = f"{shown_name(self.given)}, {when} of '{problem}'"
        its = f"environment '{problem}', {when}"
        if self.is_divergence(code) or code == faults.ILLEGAL_ACTION:
            return f"{theirs}: {self.agent.refusal(self.protocol.test.spec.actions.n)}"
        if code >= faults.NAN:
            whose, *path = self._nan_path(code)
            return f"{its if whose.idx else theirs}: {faults.said_of_nan(tuple(path))}"
        if code == faults.NO_END:
            return (
                f"{its}: no end after {self.protocol.lifetime.max_steps} steps: "  # type: ignore[union-attr]
                "expected terminated or truncated before, or max_steps of the lifetime to be higher"
            )
        return f"{its}: {OF_ENVIRONMENTS[code]}"

    def _nan_path(self, code: int) -> tuple[Any, ...]:
        """Return the path of a leaf that holds NaN, whose first entry has `idx` 0 for the agent's
        state and 1 for the environment's.
        """
        return faults.nan_path(self._states, code)
