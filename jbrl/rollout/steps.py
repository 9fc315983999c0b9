"""One agent in one finite MDP for T decisions."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.pytree import record
from jbrl.environments.environment import Tabular
from jbrl.mdp import mdp as mdps
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import draw_mdp
from jbrl.mdp.mdp import MDP
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Agent, Stepwise, Transition, watched
from jbrl.rollout.faults import (
    ILLEGAL_ACTION,
    act,
    begin,
    check_state,
    nan_fault,
    observe_key,
    traced,
)


@record
class Trajectory:
    """Record of a rollout. `states` and `actions` are None unless recording was asked for."""

    rewards: Array  # [T] float32
    states: Array | None = None  # [T + 1] int32
    actions: Array | None = None  # [T] int32


@record
class RolloutInputs:
    """One MDP, and everything random that will happen in a lifetime of T decisions in it."""

    environment: Tabular
    first: Array  # [] int32, initial state
    noise: Array  # [T] float32 in [0, 1), one uniform number for each transition
    keys: Array  # [T], one for each decision
    own: Array  # of the agent: for its parameters, if it draws them, and for `reset`

    @property
    def mdp(self) -> MDP:
        return self.environment.mdp


def draw_inputs(mdp: MDP, key: Array, index: Array, horizon: int) -> RolloutInputs:
    """Draw the inputs of rollout number `index` of the seed behind `key`, for
    `horizon` decisions.
    """
    environment = jax.random.split(stream(key, index, "environment"))
    return RolloutInputs(
        Tabular.of(mdp),
        first=mdps.start(mdp.initial_state, mdp.n_states, sampling.uniforms(environment[0])[0]),
        noise=jax.random.uniform(environment[1], (horizon,)),
        keys=jax.random.split(stream(key, index, "agent"), horizon),
        own=stream(key, index, "parameters"),
    )


def draw_rollout(prior: DirichletPrior, key: Array, index: Array, *, unit: bool) -> RolloutInputs:
    """Draw the MDP and the inputs of rollout number `index` of the seed behind `key`.

    Args:
      unit: all concentrations are 0 or 1.
    """
    mdp = draw_mdp(stream(key, index, "mdp"), prior.mdps, unit=unit)
    return draw_inputs(mdp, key, index, prior.horizon)


def discounted(rewards: np.ndarray, discount: float) -> np.ndarray:
    """Return discounted returns [n] float64 of rewards [n, T].

    On the host, by Horner's rule, where every product and every sum is rounded by itself: the same
    to the last bit on any processor, and for any lifetimes played beside it.
    """
    returns = np.zeros(len(rewards))
    for column in rewards.T[::-1]:
        returns *= discount
        returns += column
    return returns


def play_steps(
    agent: Agent[Any, Any], knowledge: Any, inputs: RolloutInputs, *, keep: bool
) -> tuple[Trajectory, Array]:
    """Play one trajectory.

    Args:
      knowledge: what `agent.train` returned.
      keep: record states and actions as well as rewards.

    Returns: the trajectory, and why it does not count, [] int32: 0, `faults.ILLEGAL_ACTION` or, by
      the state of the agent at the end, a code of `faults.nan_fault`. An illegal action is replaced
      by the nearest legal one.
    """
    agent, state = begin(agent, knowledge, inputs.own, inputs.environment)
    state = jax.tree.map(jnp.asarray, state)  # it may hold numbers of Python
    play = _play_stepwise if isinstance(agent, Stepwise) else _play
    trajectory, legal, state = play(agent, state, inputs, keep)
    fault = nan_fault(watched(agent, state), lanes_last=isinstance(agent, Stepwise))
    return trajectory, jnp.where(legal, fault, ILLEGAL_ACTION)


def _transition(x: Array, action: Array, reward: Array, y: Array) -> Transition:
    """Return a transition of an MDP that never ends."""
    return Transition(x, action, reward, y, jnp.bool_(False), jnp.bool_(False))


def _play(
    agent: Any, state: Any, inputs: RolloutInputs, keep: bool
) -> tuple[Trajectory, Array, Any]:
    """Play all lanes in step.

    Returns: the trajectory, whether every action was legal, and the state of the agent at the end.
    """

    def decide(carry: tuple[Any, ...], drawn: tuple[Any, ...]) -> tuple[Any, Any]:
        state, x, legal = carry
        key, uniform = drawn
        action, decided, allowed = act(agent, key, state, x, inputs.mdp.n_actions)
        y, reward = mdps.step(inputs.environment.cdf, inputs.mdp.rewards, x, action, uniform)
        transition = _transition(x, action, reward, y)
        learned = traced(agent, "observe", observe_key(key), decided, transition)
        check_state(agent, state, decided, learned)
        return (learned, y, legal & allowed), (reward, (x, action) if keep else None)

    if len(inputs.noise) == 1:  # XLA aborts where it sees through what a loop of one step is given
        state = lax.optimization_barrier(state)
    first = (state, inputs.first, jnp.bool_(True))
    (state, last, legal), (rewards, moves) = lax.scan(decide, first, (inputs.keys, inputs.noise))
    if not keep:
        return Trajectory(rewards), legal, state
    states, actions = moves
    return Trajectory(rewards, jnp.append(states, last), actions), legal, state


@record
class _PacedRollout:
    """A trajectory that is being played. Entry T of the arrays receives what does not count."""

    state: Any
    x: Array  # [] int32
    t: Array  # [] int32, decisions taken
    legal: Array  # [] bool
    rewards: Array  # [T + 1] float32
    states: Array | None  # [T + 1] int32
    actions: Array | None  # [T + 1] int32


def _play_stepwise(
    agent: Any, state: Any, inputs: RolloutInputs, keep: bool
) -> tuple[Trajectory, Array, Any]:
    """Play each lane at its own pace: in each round all lanes take one step of learning, and those
    that are ready a decision before that.

    Returns: as `_play`.
    """
    horizon, n_actions = inputs.noise.shape[0], inputs.mdp.n_actions
    moves = jnp.zeros(horizon + 1, jnp.int32) if keep else None
    first = _PacedRollout(
        state, inputs.first, jnp.int32(0), jnp.bool_(True), jnp.zeros(horizon + 1), moves, moves
    )
    consts = (
        agent,
        inputs.environment.cdf,
        inputs.mdp.rewards,
        jax.random.key_data(inputs.keys),
        inputs.noise,
    )
    wrap = functools.partial(jax.random.wrap_key_data, impl=jax.random.key_impl(inputs.keys))

    def advance(now: _PacedRollout, consts: tuple[Any, ...]) -> _PacedRollout:
        agent, cdf, gains, words, noise = consts
        live = agent.converged(now.state) & (now.t < horizon)
        t = jnp.minimum(now.t, horizon - 1)
        action, state, allowed = act(
            agent, wrap(vectorize.get_entry(words, t)), now.state, now.x, n_actions
        )
        y, reward = mdps.step(cdf, gains, now.x, action, vectorize.get_entry(noise, t))
        state = agent.improve(agent.add_transition(state, _transition(now.x, action, reward, y)))
        slot = jnp.where(live, t, horizon)
        return _PacedRollout(
            state,
            jnp.where(live, y, now.x),
            now.t + live.astype(jnp.int32),
            now.legal & (allowed | ~live),
            vectorize.set_entry(now.rewards, slot, reward),
            None if now.states is None else vectorize.set_entry(now.states, slot, now.x),
            None if now.actions is None else vectorize.set_entry(now.actions, slot, action),
        )

    end = vectorize.while_active(
        lambda now, _: now.t < horizon, advance, first, consts, keep="nothing", lanes_last=True
    )
    if not keep:
        return Trajectory(end.rewards[:horizon]), end.legal, end.state
    states = vectorize.set_entry(end.states, jnp.int32(horizon), end.x)
    return Trajectory(end.rewards[:horizon], states, end.actions[:horizon]), end.legal, end.state
