"""An agent that takes its time without working, so that tasks of a cluster can be caught in
the act.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.agents.registry import register_agent
from jbrl.agents.scripted import Random, RandomState
from jbrl.base.parameters import parameter

# for one decision of all MDPs of a call on one device
SECONDS = float(os.environ.get("PATIENT_SECONDS", "0.0"))


def _wait(action: np.ndarray) -> np.ndarray:
    time.sleep(SECONDS)
    return action


@register_agent("Patient")
class Patient(Random):
    """Random actions, slowly."""

    number: float = parameter(0.0, "tells one from another")

    def act(
        self, key: jax.Array, state: RandomState, observation: jax.Array
    ) -> tuple[jax.Array, RandomState]:
        action, state = super().act(key, state, observation)
        told = jax.pure_callback(
            _wait, jax.ShapeDtypeStruct((), jnp.int32), action, vmap_method="broadcast_all"
        )
        return told, state
