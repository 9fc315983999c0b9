"""BEB: Bayesian exploration bonus."""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.bayes.planner import Planner
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.mdp import belief as beliefs
from jbrl.mdp import incremental, sampling
from jbrl.mdp.belief import Belief
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Transition


@register_agent("BEB", cite="kolter2009")
class BEB(Planner):
    """Greedy with respect to the posterior-mean MDP whose rewards are raised where little is known.

    With c(x, u, y) the posterior count of a transition (prior concentration plus times seen), n(x,
    u) = sum_y c(x, u, y) and P = c / n, the reward of (x, u) becomes

        r(x, u) + beta / (1 + n(x, u))                                   bonus = "pair"
        r(x, u) + sum_{y: c > 0} P(x, u, y) beta / c(x, u, y)            bonus = "transition"

    The first is that of Kolter and Ng 2009, section 3, and of the published program; the second
    that of Castronovo et al. 2016, section 5.1.8, whose sum is beta / n(x, u) times the number of
    possible next states; an impossible transition, c = 0, contributes nothing. Actions that tie are
    drawn uniformly. Fully deterministic otherwise. One decision costs a few sweeps of S^2 A
    multiplications.
    """

    beta: float = parameter(2.0, "weight of the bonus", low=0.0)
    bonus: str = parameter("pair", "what the bonus counts", choices=("pair", "transition"))

    def train(self, key: jax.Array, prior: DirichletPrior) -> Belief:
        counts = prior.mdps.concentrations
        total = counts.sum(-1)
        extra = self.beta * (
            total / (1 + total)
            if self.bonus == "pair"
            else (counts > 0).sum(-1, dtype=counts.dtype)
        )
        return beliefs.believe(prior.mdps, prior.discount, extra)

    def act(
        self, key: jax.Array, state: Belief, observation: jax.Array
    ) -> tuple[jax.Array, Belief]:
        return incremental.greedy(state.plan, observation, sampling.uniforms(key)[0]), state

    def note(self, state: Belief, transition: Transition) -> Belief:
        x, action, y = transition.observation, transition.action, transition.next_observation
        # A plan holds expected rewards times n. Of beta n / (1 + n), or beta times the number of
        # possible next states, what n + 1 adds.
        n_states, n_actions = state.plan.q.shape
        pair = x * n_actions + action
        if self.bonus == "pair":
            total = vectorize.get_entry(state.plan.totals.reshape(-1), pair)
            extra = self.beta / ((1 + total) * (2 + total))
        else:
            extra = jnp.where(
                vectorize.get_entry(state.counts.reshape(-1), pair * n_states + y) > 0,
                0.0,
                self.beta,
            )
        return beliefs.add_transition(state, x, action, y, extra)
