"""BOSS: best of sampled set."""

import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.capacity import raise_capacity, round_up
from jbrl.agents.registry import register_agent
from jbrl.agents.search.sampled_set import SampledSet, SampledSetState
from jbrl.base.parameters import parameter


@register_agent("BOSS", cite="asmuth2009")
class BOSS(SampledSet):
    """Greedy in an MDP that merges K sampled models, drawn anew when a pair of state and action has
    become known.

    K models are drawn from the posterior, and in their merged MDP (`search.merged`) each step may
    follow whichever of them suits best: optimistic within the limits of the belief. The merged MDP
    is solved when the trajectory begins, and again each time a pair has been tried B times, once
    for each pair. Actions that tie are drawn uniformly. Asmuth, Li, Littman, Nouri and Wingate
    2009, algorithm 1.

    A decision with new samples costs S^2 A K gamma variates and a few sweeps over S A K rows;
    O(S) otherwise.
    """

    sampled: int = parameter(10, "K, models drawn from the posterior", low=1, high=2**20)
    known: int = parameter(5, "B, times that a pair has to be tried to be known", low=1, high=2**24)
    max_models: int = parameter(
        16, "capacity for models, raised to what is needed", low=1, high=2**20, static=True
    )

    renews = False

    def __post_init__(self) -> None:
        """Make capacity for the models where their number is known: not for a traced one, which is
        cut to the capacity there is.
        """
        if type(self.sampled) is int:
            raise_capacity(self, "max_models", round_up(self.sampled))

    @property
    def capacity(self) -> int:
        return self.max_models

    def samples(self, counts: jax.Array) -> jax.Array:
        # All samples of a row with a single possible outcome are the same.
        certain = (counts > 0).sum(-1, dtype=jnp.int32) == 1
        return jnp.where(certain, 1.0, jnp.asarray(self.sampled, jnp.float32))

    def renewing(self, counts: jax.Array) -> float:
        return 1 / (10 + self.known)

    def outdated(self, state: SampledSetState, pair: jax.Array, now: jax.Array) -> jax.Array:
        tried = now.sum() - vectorize.get_row(state.reference, pair).sum()
        return jnp.round(tried).astype(jnp.int32) == self.known
