"""Mistakes of an agent or an environment in lifetimes of episodes, in words."""

import numpy as np

from jbrl.agents.agent import Agent
from jbrl.agents.lookup import shown_name
from jbrl.errors import JbrlError
from jbrl.rollout import faults
from jbrl.rollout.contract import watched
from jbrl.rollout.episodes import Lane
from jbrl.runner.play.protocol import Protocol

OF_ENVIRONMENTS = {
    faults.BAD_REWARD: "the reward is not a finite number",
    faults.BAD_OBSERVATION: "the observation is NaN, infinite or out of range",
    faults.TWO_ENDS: "the episode is both terminated and truncated: expected one of them at most",
}


def refuse_mistakes(
    given: Agent, agent: Agent, protocol: Protocol, numbers: np.ndarray, lanes: Lane
) -> None:
    """Refuse the first lifetime in which an agent or an environment has made a mistake.

    Args:
      given: agent that messages name.
      agent: agent that plays.
      numbers: [positions] int64, which lifetime is where; -1: none that counts.
      lanes: of all positions, their counts and faults on the host.

    Raises:
      JbrlError: names the agent or the environment, the lifetime, the step and the episode.
    """
    wrong = np.flatnonzero((np.asarray(lanes.fault) != 0) & (numbers >= 0))
    if not len(wrong):
        return
    place = wrong[np.argmin(numbers[wrong])]
    code, problem = int(lanes.fault[place]), protocol.test.short_name
    episode = lanes.episodes[place] + 1
    when = f"lifetime {numbers[place]}, step {lanes.steps[place]} (episode {episode})"
    theirs, its = f"{shown_name(given)}, {when} of '{problem}'", f"environment '{problem}', {when}"
    if code >= faults.NAN:
        whose, *path = faults.nan_path((watched(agent, lanes.agent), lanes.environment), code)
        raise JbrlError(f"{its if whose.idx else theirs}: {faults.said_of_nan(tuple(path))}")
    if code == faults.ILLEGAL_ACTION:
        raise JbrlError(f"{theirs}: {agent.refusal(protocol.test.spec.actions.n)}")
    if code == faults.NO_END:
        raise JbrlError(
            f"{its}: no end after {protocol.lifetime.max_steps} steps: "  # type: ignore[union-attr]
            "expected terminated or truncated before, or max_steps of the lifetime to be higher"
        )
    raise JbrlError(f"{its}: {OF_ENVIRONMENTS[code]}")
