"""Trajectories of agents, and what twins (`benchmarks.twins`) would have done in their place."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.twins.agents import DISCOUNT
from jbrl.mdp.dirichlet import draw_mdp
from jbrl.mdp.sampling import stream
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Transition, as_arrays
from jbrl.rollout.steps import draw_inputs, play_steps

KEY = jax.random.key(0)  # where the key does not matter


def prior_of(name, horizon=250, discount=DISCOUNT):
    """Return the prior that a problem of the catalogue gives an agent."""
    return DirichletPrior(
        jax.tree.map(jnp.asarray, problem(name).mdps), jnp.float32(discount), horizon
    )


@functools.partial(jax.jit, static_argnames="unit")
def draw_all(prior, key, index, *, unit=True):
    """Inputs of rollouts in MDPs number `index` [N] drawn from a prior."""

    def one(number):
        mdp = draw_mdp(stream(key, number, "mdp"), prior.mdps, unit=unit)
        return draw_inputs(mdp, key, number, prior.horizon)

    return jax.vmap(one)(index)


@jax.jit
def play_all(agent, prior, key, inputs):
    """Trajectories of an agent that learns on `prior`."""
    knowledge = agent.train(jax.random.fold_in(key, 2**32 - 1), prior)
    return jax.vmap(lambda one: play_steps(agent, knowledge, one, keep=True)[0])(inputs)


def decisions(agent, prior, test=None, *, n_environments=24, horizon=80, seed=3):
    """Play and record: a list of (MDP number, [(x, u, y, uniforms [2], key)]) with what happened at
    each step.
    """
    key, numbers = jax.random.key(seed), jnp.arange(n_environments, dtype=jnp.int32)
    inputs = draw_all(prior_of(test or prior, horizon), key, numbers)
    moves = play_all(as_arrays(agent), prior_of(prior, horizon), key, inputs)
    uniforms = (np.asarray(jax.random.key_data(inputs.keys)) >> 8) / 2**24
    states, actions = np.asarray(moves.states), np.asarray(moves.actions)
    for i in range(n_environments):
        rows = states[i, :-1], actions[i], states[i, 1:], uniforms[i], inputs.keys[i]
        yield i, list(zip(*rows, strict=True))


def transition(x, action, y, reward=0.0):
    """A transition of an MDP that never ends."""
    numbers, never = (jnp.int32(x), jnp.int32(action), jnp.float32(reward)), jnp.bool_(False)
    return Transition(*numbers, jnp.int32(y), never, never)


def true_mdp(test, index, seed=3):
    """Transitions and rewards of the MDP of that number, in float64."""
    mdp = draw_mdp(
        stream(jax.random.key(seed), np.int32(index), "mdp"), problem(test).mdps, unit=True
    )
    return np.asarray(mdp.transitions, float), np.asarray(mdp.rewards, float)


def disagreements(steps, twin):
    """The steps at which the twin would have done otherwise."""
    wrong = []
    for t, (x, u, y, uniforms, _) in enumerate(steps):
        wanted = twin.act(x, uniforms)
        if wanted != u:
            wrong.append((t, int(x), int(u), wanted))
        twin.observe(x, u, y)
    return wrong


def word_disagreements(agent, twin, prior, test):
    """As `disagreements`, over 3 trajectories of a twin that takes the words of the keys; and how
    often it solved.
    """
    wrong, solved = [], 0
    for index, steps in decisions(agent, prior, test, n_environments=3, horizon=30):
        mind = twin(problem(prior).mdps)
        for t, (x, u, y, uniforms, key) in enumerate(steps):
            wanted = mind.act(x, tuple(int(w) for w in jax.random.key_data(key)), uniforms[0])
            if wanted != u:
                wrong.append((index, t, int(u), wanted))
            mind.observe(x, u, y)
        solved += mind.solved
    return wrong, solved
