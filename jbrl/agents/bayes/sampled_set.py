"""What agents that plan in a merged MDP have in common: BOSS, SBOSS."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.agent import BAYESIAN, Agent, Cost, HasCost
from jbrl.agents.bayes.counts import add_count
from jbrl.agents.bayes.search import hashing, merged
from jbrl.mdp import planning, sampling
from jbrl.problems.prior import DirichletPrior
from jbrl.pytree import record
from jbrl.rollout.contract import Transition


@record
class SampledSetState:
    counts: chex.Array  # [S * A, S] float32, prior concentrations + transitions seen
    reference: chex.Array  # [S * A, S] float32, the counts that the present ones are compared with
    rewards: chex.Array  # [S * A, S] float32, known
    discount: chex.Array  # [] float32
    q: chex.Array  # [S, A] float32, of the merged MDP
    due: chex.Array  # [] bool, whether to sample anew before the next decision


class SampledSet(HasCost, Agent[DirichletPrior, SampledSetState]):
    """Plays greedily in a merged MDP (`search.merged`), drawn and solved when the trajectory begins and again when it is `outdated`.

    Class attributes:
      renews: whether the counts of each sampling become those to compare with, or the prior remains.
    """

    requires = BAYESIAN
    renews: ClassVar[bool] = True
    lanes: ClassVar[int] = 64

    def samples(self, counts: chex.Array) -> chex.Array:
        """How many rows to draw of each pair of state and action: [S * A] float32 from counts [S * A, S]; cut to 1 .. `capacity`."""
        raise NotImplementedError

    def outdated(self, state: SampledSetState, pair: chex.Array, now: chex.Array) -> chex.Array:
        """Whether to sample anew after a transition of `pair`, [] bool; `now` [S] are its counts, `state` does not know of it."""
        raise NotImplementedError

    @property
    def capacity(self) -> int:
        """The most samples of a pair that there is capacity for."""
        raise NotImplementedError

    def models(self, counts: chex.Array, rewards: chex.Array) -> tuple[chex.Array, chex.Array]:
        """Concentrations and rewards of the rows to draw, [S * A, S] each. Default: the posterior counts and the known rewards."""
        return counts, rewards

    def renewing(self, counts: chex.Array) -> float:
        """About what share of the decisions draws anew, given the prior counts [S * A, S]: for estimates of time. On the host."""
        raise NotImplementedError

    def cost(self, prior: DirichletPrior) -> Cost:
        """One step for two probabilities drawn, and as much for each pair as for a sample of it."""
        n_states, n_actions = prior.mdps.n_states, prior.mdps.n_actions
        needed = merged.check_memory(type(self).__name__, n_states, n_actions, self.capacity)
        counts = prior.mdps.concentrations.reshape(-1, n_states)
        rows = float(jnp.clip(self.samples(counts), 1, self.capacity).sum())
        return Cost(self.renewing(counts) * (rows + counts.shape[0]) * n_states / 2, needed, fewest_lanes=1)

    def reset(self, key: chex.PRNGKey, knowledge: DirichletPrior) -> SampledSetState:
        mdps = knowledge.mdps
        n_states, n_actions = mdps.n_states, mdps.n_actions
        merged.check_memory(type(self).__name__, n_states, n_actions, self.capacity)
        counts, rewards = mdps.concentrations.reshape(-1, n_states), mdps.rewards.reshape(-1, n_states)
        return SampledSetState(counts, counts, rewards, knowledge.discount, jnp.zeros((n_states, n_actions)), jnp.bool_(True))

    def act(self, key: chex.PRNGKey, state: SampledSetState, observation: chex.Array) -> tuple[chex.Array, SampledSetState]:
        words = jax.random.key_data(key)
        state = vectorize.when_any(state.due, _sample, (self, words, state))[2]
        q, tolerance = vectorize.get_row(state.q, observation), planning.tie_tolerance(state.q.max(-1))
        return self.choose(q, sampling.words_to_uniforms(words[0]), tolerance), state

    def choose(self, q: chex.Array, uniform: chex.Array, tolerance: chex.Array) -> chex.Array:
        """An action of greatest value, [] int32, from values [A]. Default: those that tie are drawn uniformly."""
        return sampling.choose_maximiser(q, uniform, tolerance)

    def observe(self, key: chex.PRNGKey, state: SampledSetState, transition: Transition) -> SampledSetState:
        pair = transition.observation * state.q.shape[1] + transition.action
        row, counts = add_count(state.counts, pair, transition.next_observation)
        due = state.due | self.outdated(state, pair, row)
        return SampledSetState(counts, state.reference, state.rewards, state.discount, state.q, due)


def variances(counts: chex.Array) -> chex.Array:
    """Posterior variances of transition probabilities: [..., S] from counts [..., S]; exactly 0 for what is impossible or certain."""
    total = counts.sum(-1, keepdims=True)
    return counts * (total - counts) / (total**2 * (total + 1))


def movements(before: chex.Array, now: chex.Array) -> tuple[chex.Array, chex.Array]:
    """How far each probability of a row has moved, in standard deviations of the belief before: [S] float32 from counts [S].

    Infinite where what was thought impossible has happened; 0 where nothing can move, because a next state was impossible or certain
    and still is. The second result, [S] bool, says where that is.
    """
    deviation = jnp.sqrt(variances(before))
    fixed = (deviation == 0) & ((now == 0) | (now == now.sum()))
    return jnp.where(fixed, 0.0, jnp.abs(before / before.sum() - now / now.sum()) / deviation), fixed


def _sample(operand: tuple[SampledSet, chex.Array, SampledSetState]) -> tuple[SampledSet, chex.Array, SampledSetState]:
    """Draw and solve a merged MDP."""
    agent, words, state = operand
    n_states, n_actions = state.q.shape
    counts, rewards = agent.models(state.counts, state.rewards)
    task = merged.MergedTask(
        stream=hashing.stream(words),
        counts=counts.reshape(-1),
        rewards=rewards.reshape(-1),
        samples=jnp.where(state.due, jnp.clip(agent.samples(state.counts), 1, agent.capacity), 0).astype(jnp.int32),
        values=state.q.max(-1),
        discount=state.discount,
        n_states=n_states,
        n_actions=n_actions,
        max_samples=agent.capacity,
    )
    reference = state.counts if agent.renews else state.reference
    now = SampledSetState(state.counts, reference, state.rewards, state.discount, merged.solve(task), jnp.bool_(False))
    return agent, words, now
