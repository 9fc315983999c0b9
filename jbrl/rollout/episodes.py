"""One agent in one environment for a lifetime of episodes, in blocks of steps.

The randomness of a block is folded from the seed, the number of the environment and the number of
the block, so the memory of a lifetime is that of a block, and a lifetime can be left after any
block and taken up again. Nothing here selects between old and new states of the agent: a lane whose
lifetime is over goes on until its block ends, and its steps no longer count.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.plugins import is_outside
from jbrl.base.pytree import record, select, static
from jbrl.environments.environment import Environment, Step, drawn, unwrapped
from jbrl.environments.spec import Box, Discrete, Episodes, Lifetime, OneHot
from jbrl.mdp.sampling import stream
from jbrl.problems.recorder import Guarded
from jbrl.rollout.contract import DrawsParameters, Transition, watched
from jbrl.rollout.faults import (
    BAD_OBSERVATION,
    BAD_REWARD,
    ILLEGAL_ACTION,
    NO_END,
    TWO_ENDS,
    act,
    check_state,
    nan_fault,
    observe_key,
    traced,
)
from jbrl.rollout.faults import begin as begin_agent

BLOCK = 128  # steps of a block; results depend on it, since each block has its own keys
_FIRST_RESET = 2**32 - 1  # number of a block that does not occur: its key starts the first episode


@record
class Rules:
    """Rules that all lanes share."""

    agent: Any  # an `Agent`, or one that `DrawsParameters`
    environment: Any  # an `Environment`, before its physics are drawn
    recorder: Any  # a `Recorder`
    key: Array  # of the seed
    lifetime: Lifetime = static()


@record
class Lane:
    """A lifetime after some blocks."""

    index: Array  # [] int32, number of the environment
    block: Array  # [] int32, blocks played
    agent: Any
    environment: Any  # state of the environment
    observation: Array
    recorder: Any
    steps: Array  # [] int32, decisions that count
    episodes: Array  # [] int32, episodes that have ended
    episode_steps: Array  # [] int32, decisions of the current episode
    fault: Array  # [] int32, why the lifetime ended early, a code of `faults`; 0: it did not


def begin(rules: Rules, knowledge: Any, index: Array) -> Lane:
    """Start lifetime number `index`, [] int32.

    Args:
      knowledge: what `agent.train` returned; the prior itself for agents that draw
        their parameters.
    """
    environment, own = _environment(rules, index), stream(rules.key, index, "parameters")
    _, begun = begin_agent(rules.agent, knowledge, own, environment)
    first_key = jax.random.fold_in(stream(rules.key, index, "environment"), _FIRST_RESET)
    state, observation = environment.reset(first_key)
    zero, fault = jnp.int32(0), _seen(environment, observation)
    recorder = rules.recorder.begin(environment, state)
    lane = Lane(index, zero, begun, state, observation, recorder, zero, zero, zero, fault)
    return jax.tree.map(jnp.asarray, lane)  # states may hold numbers of Python


def live(lane: Lane, lifetime: Lifetime) -> Array:
    """Return whether a lifetime continues, [] bool."""
    within = (
        lane.episodes < lifetime.episodes
        if isinstance(lifetime, Episodes)
        else lane.steps < lifetime.steps
    )
    return within & (lane.fault == 0)


def advance(rules: Rules, lane: Lane) -> Lane:
    """Play one block.

    A lifetime that is over is left as it is, but for states that no longer matter.

    NaN in the states after the block is a fault of a lifetime that was not over before it, even if
    it ended within the block: its state at that step is not kept, and an agent that becomes NaN
    within 127 further decisions is not reliable either.
    """
    environment, agent = _environment(rules, lane.index), rules.agent
    if isinstance(agent, DrawsParameters):
        agent = agent.draw(stream(rules.key, lane.index, "parameters"))
    keys = tuple(
        jax.random.split(jax.random.fold_in(stream(rules.key, lane.index, name), lane.block), BLOCK)
        for name in ("agent", "environment")
    )

    def step(now: Lane, keys: tuple[Array, ...]) -> tuple[Lane, None]:
        return _step(rules, agent, environment, now, *keys), None

    end, _ = lax.scan(step, lane, keys)
    fault = jnp.where(
        live(lane, rules.lifetime) & (end.fault == 0),
        nan_fault((watched(agent, end.agent), end.environment)),
        end.fault,
    )
    return dataclasses.replace(end, block=lane.block + 1, fault=fault)


def play_lifetime(rules: Rules, knowledge: Any, index: Array) -> Lane:
    """Play lifetime number `index` to its end.

    A pure function that JAX can trace and map: an agent may call it in `train`.
    """

    def going(lane: Lane, rules: Rules) -> Array:
        return live(lane, rules.lifetime)

    def one_block(lane: Lane, rules: Rules) -> Lane:
        return advance(rules, lane)

    return vectorize.while_active(
        going, one_block, begin(rules, knowledge, index), rules, keep="nothing"
    )


def _environment(rules: Rules, index: Array) -> Environment:
    """Return the environment of a lifetime, drawn again for each block: unperturbed parts stay
    common to all lanes.
    """
    return drawn(rules.environment, stream(rules.key, index, "mdp"))


def _step(
    rules: Rules, agent: Any, environment: Environment, lane: Lane, act_key: Array, step_key: Array
) -> Lane:
    """Take one decision."""
    goes_on, observation = live(lane, rules.lifetime), _legal(environment, lane.observation)
    action, decided, legal = act(
        agent, act_key, lane.agent, observation, environment.spec.actions.n
    )
    # or XLA chooses it anew in each operation that uses it
    action = vectorize.prevent_fusion_index(action)
    after, step = environment.step(step_key, lane.environment, action)
    reached = _legal(environment, step.observation)
    transition = Transition(
        observation, action, step.reward, reached, step.terminated, step.truncated
    )
    state = traced(agent, "observe", observe_key(act_key), decided, transition)
    check_state(agent, lane.agent, decided, state)
    ended = step.terminated | step.truncated
    recorded = _recorded(rules.recorder, goes_on, lane.recorder, environment, after, step)
    restarted, first = environment.reset(jax.random.fold_in(step_key, 1))
    counts = goes_on.astype(jnp.int32)
    episode_steps = lane.episode_steps + counts
    fault = _fault(rules, environment, step, legal, episode_steps, ended)
    if is_outside(type(unwrapped(environment))):  # or what a reset has returned is not checked
        fault = jnp.where(_seen(environment, lane.observation) == 0, fault, BAD_OBSERVATION)
    return Lane(
        lane.index,
        lane.block,
        state,
        select(ended, restarted, after),
        select(ended, first, step.observation),
        recorded,
        lane.steps + counts,
        lane.episodes + (ended & goes_on).astype(jnp.int32),
        jnp.where(ended, 0, episode_steps),
        jnp.where(goes_on, fault, lane.fault),
    )


def _recorded(
    recorder: Any, counts: Array, state: Any, environment: Environment, after: Any, step: Step
) -> Any:
    """Return the state of the recorder after a step; the old one where the step does not count."""
    if isinstance(recorder, Guarded):
        return recorder.record_if(counts, state, environment, after, step)
    return select(counts, recorder.record(state, environment, after, step), state)


def _fault(
    rules: Rules,
    environment: Environment,
    step: Step,
    legal: Array,
    episode_steps: Array,
    ended: Array,
) -> Array:
    """Return the first of the faults of a step, [] int32; 0: none."""
    fault = _seen(environment, step.observation)
    fault = jnp.where(jnp.isfinite(step.reward), fault, BAD_REWARD)
    fault = jnp.where(step.terminated & step.truncated, TWO_ENDS, fault)
    if isinstance(rules.lifetime, Episodes):
        fault = jnp.where(~ended & (episode_steps >= rules.lifetime.max_steps), NO_END, fault)
    return jnp.where(legal, fault, ILLEGAL_ACTION)


def _seen(environment: Environment, observation: Array) -> Array:
    """Return `BAD_OBSERVATION` for one that no agent may be shown, else 0: [] int32."""
    spec = environment.spec.observation
    if isinstance(spec, Box):
        return jnp.where(jnp.isfinite(observation).all(), 0, BAD_OBSERVATION)
    sound = (observation >= _lowest(spec)) & (observation < spec.n)
    return jnp.where(sound, 0, BAD_OBSERVATION)


def _legal(environment: Environment, observation: Array) -> Array:
    """Return an observation, an index out of range replaced by the nearest one in it: agents write
    in tables, and would reach that of another lane. Environments of jbrl need no check.
    """
    spec = environment.spec.observation
    if isinstance(spec, Box) or not is_outside(type(unwrapped(environment))):
        return observation
    return jnp.clip(observation, _lowest(spec), spec.n - 1)


def _lowest(spec: Discrete | OneHot) -> int:
    return -1 if isinstance(spec, OneHot) else 0
