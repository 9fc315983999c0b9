"""The tiger (Kaelbling, Littman and Cassandra 1998) as a problem of one file: an environment with a
hidden state, a score of its own, and the figures that its report shows.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

import jbrl


@jbrl.record
class State:
    tiger: Array  # [] int32, the door of the tiger, 0 or 1: no observation shows it
    listened: Array  # [] float32, times in this episode
    treasure: Array  # [] float32, 1 where the right door was opened


@jbrl.record
class Doors(jbrl.EpisodeMean):
    """Score a lifetime by the share of its doors that hide the treasure."""

    criterion: ClassVar[str] = "share of treasures"

    def scores(self, state) -> np.ndarray:
        counted = self.metrics(state)
        return counted["treasures"] / np.maximum(counted["episodes"], 1)


@jbrl.register_environment("Tiger")
class Tiger(jbrl.Environment[State]):
    """Open one of two doors: a treasure is behind one, a tiger behind the other. Listening costs 1
    and tells the door of the tiger, wrongly at times.
    """

    lifetime = jbrl.Episodes(100)
    version = 1
    recorder = Doors()
    figures = (
        jbrl.MetricFigure(
            metric="listened",
            per="episodes",
            title="Patience",
            caption="How often an agent listens before it opens a door.",
        ),
        jbrl.MetricFigure(metric="treasures", title="Treasures", kind="distribution"),
    )

    accuracy: float = jbrl.parameter(0.85, "probability to hear right", low=0.5, high=1)

    @property
    def spec(self) -> jbrl.Spec:
        return jbrl.Spec(jbrl.Discrete(3), jbrl.Discrete(3))  # nothing, left, right; listen, open

    def reset(self, key: Array) -> tuple[State, Array]:
        tiger = (jbrl.sampling.uniforms(key)[0] < 0.5).astype(jnp.int32)
        return State(tiger, jnp.float32(0), jnp.float32(0)), jnp.int32(0)

    def step(self, key: Array, state: State, action: Array) -> tuple[State, jbrl.Step]:
        listens = action == 0
        right = jbrl.sampling.uniforms(key)[0] < self.accuracy
        heard = jnp.where(right, state.tiger, 1 - state.tiger) + 1
        found = ~listens & (action - 1 != state.tiger)
        after = State(
            state.tiger, state.listened + listens.astype(jnp.float32), found.astype(jnp.float32)
        )
        reward = jnp.where(listens, -1.0, jnp.where(found, 10.0, -100.0)).astype(jnp.float32)
        too_long = listens & (after.listened >= 20)
        observation = jnp.where(listens, heard, 0).astype(jnp.int32)
        return after, jbrl.Step(observation, reward, ~listens, too_long)

    def metrics(self, state: State) -> dict[str, Array]:
        return {"listened": state.listened, "treasures": state.treasure}
