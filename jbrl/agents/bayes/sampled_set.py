"""What agents that plan in a merged MDP have in common: BOSS, SBOSS."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.agent import Agent
from jbrl.agents.bayes.search import hashing, merged
from jbrl.mdp import planning, sampling
from jbrl.mdp.dirichlet import DirichletMDPs, Prior
from jbrl.pytree import record


@record
class SampledSetState:
    counts: chex.Array  # [S * A, S] float32, prior concentrations + transitions seen
    reference: chex.Array  # [S * A, S] float32, the counts that the present ones are compared with
    rewards: chex.Array  # [S * A, S] float32, known
    discount: chex.Array  # [] float32
    q: chex.Array  # [S, A] float32, of the merged MDP
    due: chex.Array  # [] bool, whether to sample anew before the next decision


class SampledSet(Agent[Prior, SampledSetState]):
    """Plays greedily in a merged MDP (`search.merged`), drawn and solved when the trajectory begins and again when it is `outdated`.

    Class attributes:
      renews: whether the counts of each sampling become those to compare with, or the prior remains.
    """

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

    def simulated_steps(self, mdps: DirichletMDPs) -> float:
        """One for two probabilities drawn, and as much for each pair as for a sample of it."""
        counts = mdps.concentrations.reshape(-1, mdps.n_states)
        rows = float(jnp.clip(self.samples(counts), 1, self.capacity).sum())
        return self.renewing(counts) * (rows + counts.shape[0]) * mdps.n_states / 2

    def fewest_lanes(self, n_actions: int) -> int:
        return 1

    def bytes_needed(self, n_states: int, n_actions: int) -> int:
        return merged.bytes_needed(n_states, n_actions, self.capacity)

    def check_size(self, n_states: int, n_actions: int) -> None:
        merged.check_memory(type(self).__name__, n_states, n_actions, self.capacity)

    def reset(self, knowledge: Prior) -> SampledSetState:
        mdps = knowledge.mdps
        n_states, n_actions = mdps.n_states, mdps.n_actions
        self.check_size(n_states, n_actions)
        counts, rewards = mdps.concentrations.reshape(-1, n_states), mdps.rewards.reshape(-1, n_states)
        return SampledSetState(counts, counts, rewards, knowledge.discount, jnp.zeros((n_states, n_actions)), jnp.bool_(True))

    def act(self, key: chex.PRNGKey, state: SampledSetState, x: chex.Array) -> tuple[chex.Array, SampledSetState]:
        words = jax.random.key_data(key)
        state = vectorize.when_any(state.due, _sample, (self, words, state))[2]
        return self.choose(
            vectorize.get_row(state.q, x), sampling.words_to_uniforms(words[0]), planning.tie_tolerance(state.q.max(-1))
        ), state

    def choose(self, q: chex.Array, uniform: chex.Array, tolerance: chex.Array) -> chex.Array:
        """An action of greatest value, [] int32, from values [A]. Default: those that tie are drawn uniformly."""
        return sampling.choose_maximiser(q, uniform, tolerance)

    def observe(self, state: SampledSetState, x: chex.Array, action: chex.Array, y: chex.Array, reward: chex.Array) -> SampledSetState:
        pair = x * state.q.shape[1] + action
        row = vectorize.get_row(state.counts, pair)
        row = row + (jnp.arange(row.shape[0], dtype=jnp.int32) == y).astype(jnp.float32)
        due = state.due | self.outdated(state, pair, row)
        return SampledSetState(vectorize.set_row(state.counts, pair, row), state.reference, state.rewards, state.discount, state.q, due)


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
