"""Agents whose learning is a number of equal steps that differs from lane to lane."""

from typing import Any

import jax

from jbrl import vectorize
from jbrl.rollout.contract import Agent, Knowledge, State, Stepwise, Transition


class StepwiseLearner(Stepwise, Agent[Knowledge, State]):
    """An agent that learns from a transition by `note`, then `think` until it is `ready`."""

    def observe(self, key: jax.Array, state: State, transition: Transition) -> State:
        noted = self.note(state, transition)
        return vectorize.while_active(
            _unready, _think, noted, self, keep="nothing", lanes_last=True
        )


def _unready(state: Any, agent: Any) -> jax.Array:
    return ~agent.ready(state)


def _think(state: Any, agent: Any) -> Any:
    return agent.think(state)
