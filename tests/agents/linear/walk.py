"""Table agents that walk along a chain, in the driver of studies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.environments import environment as environments
from jbrl.environments.spec import Discrete, Episodes, Spec
from jbrl.environments.walks import Chain
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes
from tests.agents.linear.scripted import SpecPrior

LENGTH, LANES = 5, 16
EPISODES = Episodes(10**6)  # more than are played


def two_parts(rules, prior, indices):
    """Lanes after half of the blocks and after all of them."""

    def half(lanes):
        return jax.lax.fori_loop(
            0, 20, lambda _, now: jax.vmap(episodes.advance, (None, 0))(rules, now), lanes
        )

    first = half(jax.vmap(episodes.begin, (None, None, 0))(rules, prior, indices))
    return first, half(first)


@functools.cache
def walk(agent):
    """Lanes halfway and at the end, and the text of the program."""
    chain = environments.as_arrays(Chain(n_states=LENGTH))
    rules = episodes.Rules(agent, chain, EpisodeMean(), jax.random.key(1), EPISODES)
    arguments = (
        rules,
        SpecPrior(Spec(Discrete(LENGTH), Discrete(2))),
        jnp.arange(LANES, dtype=jnp.int32),
    )
    program = jax.jit(two_parts).lower(*arguments).compile()
    return *jax.tree.map(np.asarray, jax.tree.map(_shown, program(*arguments))), program.as_text()


def _shown(value):
    return jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value


def optimal(gamma):
    """Optimal values of the chain, [LENGTH - 1, 2]: each step costs 1 but the last."""
    right = np.array([-sum(gamma**k for k in range(LENGTH - 2 - s)) for s in range(LENGTH - 1)])
    state = right[np.maximum(np.arange(LENGTH - 1) - 1, 0)]
    return np.stack([-1 + gamma * state, right], axis=1)
