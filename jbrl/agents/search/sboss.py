"""SBOSS: smarter best of sampled set."""

import jax

from jbrl import vectorize
from jbrl.agents.registry import register_agent
from jbrl.agents.search.sampled_set import SampledSet, SampledSetState, has_moved, samples_of
from jbrl.base.parameters import parameter


@register_agent("SBOSS", cite="castro2010")
class SBOSS(SampledSet):
    """Greedy in an MDP that merges sampled models, more of them where less is known, drawn anew
    when the belief has moved.

    With n(y) the posterior counts of a pair (x, u), n0 their sum and m(y) = n(y) / n0 the mean, the
    variance of the probability of y is v(y) = m(y) (1 - m(y)) / (n0 + 1). Models of each pair, one
    at least and `max_samples` at most:

        K(x, u) = max_y ceil(v(y) / epsilon).

    Their merged MDP (`search.merged`) is solved when the trajectory begins, and again whenever for
    any pair

        sum_y |m(y) - m'(y)| / sqrt(v'(y)) > delta,

    m' and v' being those at the last solution; a y whose probability has not moved adds nothing,
    also where its variance is 0. Only the row of the last transition has moved since the last test,
    so only this row is tested. A sum that exceeds delta, or a quotient that exceeds an integer, by
    no more than rounding is equal to it. Actions that tie are drawn uniformly.

    Castro and Precup 2010; Castronovo et al. 2016, section 5.1.7 and algorithm 9. The published
    program computes something else: SBOSS-published. A decision with new samples costs S sum_xu
    K(x, u) gamma variates and a few sweeps over as many rows; O(S) otherwise.
    """

    epsilon: float = parameter(
        0.01, "variance that one sample accounts for: the smaller, the more samples", low=1e-9
    )
    delta: float = parameter(
        1.0, "movement of the belief, in standard deviations, that calls for new samples", low=0.0
    )
    max_samples: int = parameter(
        1024, "cap on the samples of a pair of state and action", low=1, high=2**20, static=True
    )

    version = 3

    @property
    def capacity(self) -> int:
        return self.max_samples

    def samples(self, counts: jax.Array) -> jax.Array:
        return samples_of(counts, self.epsilon)

    def renewing(self, counts: jax.Array) -> float:
        # the more the prior counts, the more often what is seen moves the belief
        return 1 / (1 + 4 * self.delta**2 / float(counts.sum(-1).mean()))

    def outdated(self, state: SampledSetState, pair: jax.Array, now: jax.Array) -> jax.Array:
        return has_moved(vectorize.get_row(state.reference, pair), now, self.delta)[0]
