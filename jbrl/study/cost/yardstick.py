"""Speed of this machine at present: how long it takes to compile and to play a fixed small program,
beside the other work that it does.

The constants of the rough rule (`study.cost.estimates`) are those of a machine that takes
`COMPILING` and `PLAYING` seconds for it; times are taken to be proportional. Two copies are
compiled side by side, as the programs of a unit are, so that the ratio holds for the number of
cores that there are.
"""

import functools
import os
import statistics
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jbrl.play import compilation
from jbrl.play.timing import timed

COMPILING = 1.0  # seconds
PLAYING = 0.0005
LANES, STEPS, STATES, ACTIONS = 64, 200, 8, 4
# that the program is played for: many turns of the scheduler, where other programs wait for a core
SECONDS = 0.2
LOAD_SECONDS = 60.0  # that the load average covers


@dataclass(frozen=True)
class Speed:
    """Times as long as on the machine of the constants."""

    compiling: float = 1.0
    playing: float = 1.0


@functools.cache
def measured(device: jax.Device) -> Speed:
    """Measure the speed of a device, once for the process."""
    numbers = np.random.default_rng(0).random((LANES, STEPS), np.float32)
    uniforms = jax.device_put(numbers, device)
    with compilation.compiling("full"):
        (program, _), compiling = compilation.compile_together(
            lambda: compilation.compile_once(_first, uniforms),
            lambda: compilation.compile_once(_second, uniforms),
        )
    seconds = [timed(program.call, uniforms)[1]]
    while sum(seconds) < SECONDS:
        seconds.append(timed(program.call, uniforms)[1])
    return Speed(compiling / COMPILING, statistics.mean(seconds) / PLAYING)


def busy_text(load: float, cores: int, own: float = 0.0) -> str:
    """Return what to say after a time if other programs keep the machine busy, with more threads
    than there are cores; otherwise "".

    Args:
      load: threads of all programs that run or wait, the mean of the last minute.
      cores: of the machine.
      own: seconds of processor time that this process has taken, in the last minute or before.
    """
    others = load - min(own / LOAD_SECONDS, cores)
    busy = f" while this machine is busy, load {others:.0f} on {cores} cores"
    return busy if others > cores else ""


def present_busy_text() -> str:
    """Return `busy_text` of this machine; "" where the system does not say."""
    if not hasattr(os, "getloadavg"):
        return ""
    return busy_text(os.getloadavg()[0], os.cpu_count() or 1, time.process_time())


def _first(uniforms: jax.Array) -> jax.Array:
    return _played(uniforms, 0.1)


def _second(uniforms: jax.Array) -> jax.Array:
    return _played(uniforms, 0.2)


def _played(uniforms: jax.Array, alpha: float) -> jax.Array:
    """Return the rewards of a learner of action values on a ring of states, [LANES] float32."""

    def step(carry: tuple, uniform: jax.Array) -> tuple:
        values, state = carry
        action = jnp.argmax(values[state] + jnp.sin(uniform * values[state]))
        slips = (jnp.linspace(0.1, 0.9, STATES) < uniform).sum()
        next_state = (state + action + slips).astype(jnp.int32) % STATES
        reward = jnp.where(next_state == 0, 1.0, jnp.exp(-uniform))
        error = reward + 0.9 * values[next_state].max() - values[state, action]
        return (values.at[state, action].add(alpha * error), next_state), reward

    def lane(uniforms: jax.Array) -> jax.Array:
        begun = jnp.zeros((STATES, ACTIONS)), jnp.int32(0)
        return lax.scan(step, begun, uniforms)[1].sum()

    return jax.vmap(lane)(uniforms)
