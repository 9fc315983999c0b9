"""Soft-max: random actions, the better ones more often."""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.bayes.planner import Planner
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.mdp import sampling
from jbrl.mdp.belief import Belief
from jbrl.mdp.incremental import Plan


@register_agent("Soft-max", cite="castronovo2016")
class SoftMax(Planner):
    """Random actions with probabilities that grow with their values in the posterior-mean MDP.

        P(u) = exp(Q(x, u) / tau) / sum_v exp(Q(x, v) / tau)

    with Q the optimal action values of the posterior-mean MDP, solved again after each transition.
    Small tau: greedy, ties drawn uniformly; large tau: uniformly random. Castronovo et al. 2016,
    section 5.1.3. (The program published with that paper does not normalise these weights and
    always plays action 0.)

    One decision costs a few sweeps of S^2 A multiplications.
    """

    tau: float = parameter(
        1.0,
        "temperature, in units of return: values closer than this are hardly distinguished",
        low=1e-6,
    )

    def act(
        self, key: jax.Array, state: Belief, observation: jax.Array
    ) -> tuple[jax.Array, Belief]:
        probabilities = boltzmann(state.plan, observation, self.tau)
        return sampling.inverse_cdf(
            sampling.cumulative(probabilities), sampling.uniforms(key)[0]
        ), state


def boltzmann(plan: Plan, x: jax.Array, tau: jax.Array | float) -> jax.Array:
    """Return probabilities of the actions in state `x` at temperature `tau`: [A] float32.

    Values that tie with the greatest are taken for equal to it: a small tau must not magnify
    rounding errors.
    """
    q, tolerance = vectorize.get_entry(plan.q, x), vectorize.get_entry(plan.tolerance, x)
    regret = q.max() - q
    weights = jnp.exp(-jnp.where(regret <= tolerance, 0.0, regret) / tau)
    return weights / weights.sum()
