"""Formula agents and their trajectories once more, in plain NumPy and float64: three models, solved
from scratch after each transition.
"""

import jax
import numpy as np

from benchmarks.twins import formulas
from benchmarks.twins.agents import DISCOUNT, TIES, Learner
from jbrl.mdp.dirichlet import draw_mdp
from jbrl.mdp.sampling import stream


class Model(Learner):
    def __init__(self, counts, rewards):
        self.counts, self.rewards = np.array(counts, float), np.array(rewards, float)
        self.solve()


class Formula:
    """Raises `formulas.UndefinedError` where the formula has no value."""

    def __init__(self, prior, tokens):
        self.tokens = tokens
        shape = prior.concentrations.shape
        stay = np.broadcast_to(np.eye(shape[0])[:, None], shape)
        self.models = [
            Model(counts, prior.rewards) for counts in (prior.concentrations, stay, np.ones(shape))
        ]

    def values(self, x):
        q = np.array([model.q[x] for model in self.models])
        return np.array([formulas.evaluate(self.tokens, tuple(column)) for column in q.T])

    def act(self, x, uniforms):
        values = self.values(x)
        best = np.flatnonzero(values >= values.max() - TIES * np.abs(values).max())
        return best[int(uniforms[0] * len(best))]

    def observe(self, x, u, y):
        for model in self.models:
            model.observe(x, u, y)


def trial(agent, mdps, key, arm, number, horizon):
    """Return the discounted return of one trajectory on an MDP drawn from `mdps`, NaN where the
    formula is undefined: a pull, from its key up.
    """
    own = jax.random.fold_in(key, arm)
    mdp = draw_mdp(stream(own, np.int32(number), "mdp"), mdps, unit=True)
    cdf = np.cumsum(np.asarray(mdp.transitions, float), -1)
    environment = jax.random.split(stream(own, np.int32(number), "environment"))
    noise = np.asarray(jax.random.uniform(environment[1], (horizon,)))
    keys = jax.random.split(stream(own, np.int32(number), "agent"), horizon)
    uniforms = (np.asarray(jax.random.key_data(keys)) >> 8) / 2**24
    x, total = int(mdp.initial_state), 0.0
    for t in range(horizon):
        try:
            u = agent.act(x, uniforms[t])
        except formulas.UndefinedError:
            return np.nan
        y = int(min((cdf[x, u] <= noise[t]).sum(), len(cdf) - 1))
        total += DISCOUNT**t * float(mdps.rewards[x, u, y])
        agent.observe(x, u, y)
        x = y
    return total
