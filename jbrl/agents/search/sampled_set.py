"""Agents that are greedy in samples of the posterior: BOSS and SBOSS in an MDP that merges several
models, PSRL in a single one.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.agents.registry import register_agent
from jbrl.agents.search import draws, merged
from jbrl.agents.search.merged import MergedTask
from jbrl.base.parameters import parameter, raise_capacity, round_up
from jbrl.base.pytree import record
from jbrl.mdp import planning, sampling
from jbrl.mdp.dirichlet import add_count, count_transition
from jbrl.mdp.mdp import expected_rewards
from jbrl.mdp.planning import TIE_TOLERANCE
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, NO_ACTION, Agent, Cost, HasCost, Transition


@record
class SampledSetState:
    counts: Array  # [S * A, S] float32, prior concentrations + transitions seen
    reference: Array  # [S * A, S] float32, the counts that the present ones are compared with
    rewards: Array  # [S * A, S] float32, known
    discount: Array  # [] float32
    q: Array  # [S, A] float32, of the merged MDP, less `level`
    level: Array  # [] float32
    tolerance: Array  # [S] float32, differences of `q` up to which actions tie
    due: Array  # [] bool, whether to sample anew before the next decision


class SampledSet(HasCost, Agent[DirichletPrior, SampledSetState]):
    """Agent that is greedy in a merged MDP (`search.merged`), drawn and solved when the trajectory
    begins and again when it is `outdated`.

    Class attributes:
      renews: whether the counts of each sampling become those to compare with, or the
        prior remains.
    """

    requires = BAYESIAN
    version = 2
    renews: ClassVar[bool] = True
    lanes: ClassVar[int] = 64

    def samples(self, counts: Array) -> Array:
        """Return how many rows to draw for each pair of state and action: [S * A] float32 from
        counts [S * A, S]; what is below 1 or above `capacity` is cut to these.
        """
        raise NotImplementedError

    def outdated(self, state: SampledSetState, pair: Array, now: Array) -> Array:
        """Return whether to sample again after a transition of `pair`, [] bool; `now` [S] are its
        counts, which `state` does not include.
        """
        raise NotImplementedError

    @property
    def capacity(self) -> int:
        """The most samples of a pair that there is capacity for."""
        raise NotImplementedError

    def models(self, counts: Array, rewards: Array) -> tuple[Array, Array]:
        """Return concentrations and rewards of the rows to draw, [S * A, S] each.

        Default: the posterior counts and the known rewards.
        """
        return counts, rewards

    def renewing(self, counts: Array) -> float:
        """Estimate the share of the decisions that draws again, given the prior counts [S * A, S]:
        for estimates of time.

        On the host.
        """
        raise NotImplementedError

    def cost(self, prior: DirichletPrior) -> Cost:
        """Count one step for two probabilities drawn, and as much for each pair as for a sample of
        it.
        """
        n_states, n_actions = prior.mdps.n_states, prior.mdps.n_actions
        needed = merged.check_memory(type(self).__name__, n_states, n_actions, self.capacity)
        counts = prior.mdps.concentrations.reshape(-1, n_states)
        rows = float(jnp.clip(self.samples(counts), 1, self.capacity).sum())
        return Cost(
            self.renewing(counts) * (rows + counts.shape[0]) * n_states / 2, needed, fewest_lanes=1
        )

    def notice(self, prior: DirichletPrior) -> str | None:
        """Say if the cap decides how many rows are drawn from the prior."""
        counts = prior.mdps.concentrations.reshape(-1, prior.mdps.n_states)
        wanted = int(self.samples(counts).max())
        if wanted <= self.capacity:
            return None
        return (
            f"max_samples decides how many samples of a pair of state and action are drawn, "
            f"{self.capacity:,}; epsilon asks for up to {wanted:,}"
        )

    def reset(self, key: Array, knowledge: DirichletPrior) -> SampledSetState:
        mdps = knowledge.mdps
        n_states, n_actions = mdps.n_states, mdps.n_actions
        merged.check_memory(type(self).__name__, n_states, n_actions, self.capacity)
        counts, rewards = (
            mdps.concentrations.reshape(-1, n_states),
            mdps.rewards.reshape(-1, n_states),
        )
        return SampledSetState(
            counts,
            reference=counts,
            rewards=rewards,
            discount=knowledge.discount,
            q=jnp.zeros((n_states, n_actions)),
            level=jnp.float32(0),
            tolerance=jnp.zeros(n_states),
            due=jnp.bool_(True),
        )

    def act(
        self, key: Array, state: SampledSetState, observation: Array
    ) -> tuple[Array, SampledSetState]:
        words = jax.random.key_data(key)
        state = vectorize.when_any(state.due, _sample, (self, words, observation, state))[3]
        return self.choose(state, observation, sampling.words_to_uniforms(words[0])), state

    def choose(self, state: SampledSetState, x: Array, uniform: Array) -> Array:
        """Choose an action of greatest value in state `x`, [] int32; those that tie are
        drawn uniformly.
        """
        tolerance = vectorize.get_entry(state.tolerance, x)
        return sampling.choose_maximiser(vectorize.get_row(state.q, x), uniform, tolerance)

    def observe(
        self, key: Array, state: SampledSetState, transition: Transition
    ) -> SampledSetState:
        pair = transition.observation * state.q.shape[1] + transition.action
        row, counts = add_count(state.counts, pair, transition.next_observation)
        due = state.due | self.outdated(state, pair, row)
        return dataclasses.replace(state, counts=counts, due=due)


def _sample(
    operand: tuple[SampledSet, Array, Array, SampledSetState],
) -> tuple[SampledSet, Array, Array, SampledSetState]:
    """Draw and solve a merged MDP."""
    agent, words, observation, state = operand
    n_states, n_actions = state.q.shape
    counts, rewards = agent.models(state.counts, state.rewards)
    task = MergedTask(
        stream=draws.stream(words),
        counts=counts.reshape(-1),
        rewards=rewards.reshape(-1),
        samples=jnp.where(
            state.due, jnp.clip(agent.samples(state.counts), 1, agent.capacity), 0
        ).astype(jnp.int32),
        values=state.q.max(-1),
        discount=state.discount,
        start=observation if n_states > 1 else None,
        n_states=n_states,
        n_actions=n_actions,
        max_samples=agent.capacity,
    )
    reference = state.counts if agent.renews else state.reference
    solution = merged.solve(task)
    now = dataclasses.replace(
        state,
        reference=reference,
        q=solution.q,
        level=solution.level,
        tolerance=solution.tolerance,
        due=jnp.bool_(False),
    )
    return agent, words, observation, now


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
        16,
        "capacity for models, raised to what is needed; no decision where JAX traces more",
        low=1,
        high=2**20,
        static=True,
    )

    renews = False

    def __post_init__(self) -> None:
        """Make capacity for the models where their number is known: not for a traced one."""
        if type(self.sampled) is int:
            raise_capacity(self, "max_models", round_up(self.sampled))

    @property
    def capacity(self) -> int:
        return self.max_models

    def samples(self, counts: Array) -> Array:
        # All samples of a row with a single possible outcome are the same.
        certain = (counts > 0).sum(-1, dtype=jnp.int32) == 1
        return jnp.where(certain, 1.0, jnp.asarray(self.sampled, jnp.float32))

    def choose(self, state: SampledSetState, x: Array, uniform: Array) -> Array:
        fits = jnp.asarray(self.sampled) <= self.capacity
        return jnp.where(fits, super().choose(state, x, uniform), NO_ACTION)

    def renewing(self, counts: Array) -> float:
        return 1 / (10 + self.known)

    def outdated(self, state: SampledSetState, pair: Array, now: Array) -> Array:
        tried = now.sum() - vectorize.get_row(state.reference, pair).sum()
        return jnp.round(tried).astype(jnp.int32) == self.known


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

    def samples(self, counts: Array) -> Array:
        return samples_of(counts, self.epsilon)

    def renewing(self, counts: Array) -> float:
        # the more the prior counts, the more often what is seen moves the belief
        return 1 / (1 + 4 * self.delta**2 / float(counts.sum(-1).mean()))

    def outdated(self, state: SampledSetState, pair: Array, now: Array) -> Array:
        return has_moved(vectorize.get_row(state.reference, pair), now, self.delta)[0]


def variances(counts: Array) -> Array:
    """Return posterior variances of transition probabilities: [..., S] from counts [..., S];
    exactly 0 for what is impossible or certain.
    """
    total = counts.sum(-1, keepdims=True)
    return counts * (total - counts) / (total**2 * (total + 1))


def samples_of(counts: Array, epsilon: float | Array) -> Array:
    """Return how many rows SBOSS draws for each pair, max_y ceil(v(y) / epsilon): [...] float32
    from counts [..., S].

    A quotient that exceeds an integer by less than `TIE_TOLERANCE` of it is that integer. In exact
    arithmetic that is what it often is; float32 is off by a tenth of that where counts are whole.
    """
    return jnp.ceil(variances(counts).max(-1) / epsilon * jnp.float32(1 - TIE_TOLERANCE))


def has_moved(before: Array, now: Array, delta: float | Array) -> tuple[Array, Array]:
    """Return whether a row has moved by more than `delta` standard deviations of the belief before,
    summed over its probabilities: [] bool from counts [S].

    A movement is infinite where what was thought impossible has happened; 0 where nothing can move,
    because a next state was impossible or certain and still is. The second result, [S] bool, says
    where that is.

    A sum that exceeds `delta` by less than `TIE_TOLERANCE` of it is equal to it. From counts (2, 3)
    to (3, 3), for example, a row moves by 1 in exact arithmetic. Of the 169 million ways in which a
    row of two next states, counts (1, 1) at first, can move within 250 transitions, 1,310 are a
    movement of 1, and 26 exceed 1 by less than the tolerance.
    """
    deviation = jnp.sqrt(variances(before))
    fixed = (deviation == 0) & ((now == 0) | (now == now.sum()))
    # Transitions are whole. Products of whole counts are exact; differences of means are not.
    seen, total = jnp.round(now - before), before.sum()
    shift = jnp.abs(seen * total - before * seen.sum()) / (total * (total + seen.sum()))
    moved = jnp.where(fixed, 0.0, shift / deviation).sum()
    return moved > delta * jnp.float32(1 + TIE_TOLERANCE), fixed


@record
class PSRLState:
    counts: Array  # [S, A, S] float32, prior concentrations + transitions seen
    rewards: Array  # [S, A, S] float32, known
    discount: Array  # [] float32
    policy: Array  # [S] int32, optimal in the sampled MDP
    left: Array  # [] int32, decisions until the next sample
    start: Array  # [] int32, where the trajectory starts, -1: anywhere


@register_agent("PSRL", cite="osband2013,strens2000")
class PSRL(HasCost, Agent[DirichletPrior, PSRLState]):
    """Optimal policy of an MDP that is drawn from the posterior every `period` decisions.

    An action is thus played as often as it is thought likely to be optimal; keeping to one sample
    for a while is what lets exploration reach distant states. The first MDP is drawn from the
    prior, at the first decision. Osband, Russo and Van Roy 2013, who sample at the start of each
    episode; Strens 2000 for trajectories without episodes. Of actions that tie the first is played.

    Every `period` decisions: S^2 A gamma variates and the solution of one MDP; O(S) for the others.
    """

    period: int = parameter(5, "decisions between two samples", low=1, high=2**30)

    requires = BAYESIAN
    holds_model = True
    version = 3

    def cost(self, prior: DirichletPrior) -> Cost:
        """Count one step for each probability drawn."""
        return Cost(steps=prior.mdps.concentrations.size / int(self.period))

    def reset(self, key: Array, knowledge: DirichletPrior) -> PSRLState:
        mdps = knowledge.mdps
        policy = jnp.zeros(mdps.n_states, jnp.int32)
        return PSRLState(
            mdps.concentrations,
            mdps.rewards,
            knowledge.discount,
            policy,
            left=jnp.int32(0),
            start=mdps.initial_state,
        )

    def act(self, key: Array, state: PSRLState, observation: Array) -> tuple[Array, PSRLState]:
        due = state.left == 0
        _, state = vectorize.when_any(due, _redrawn, (key, state))
        left = jnp.where(due, self.period, state.left) - 1
        return state.policy[observation], dataclasses.replace(state, left=left)

    def observe(self, key: Array, state: PSRLState, transition: Transition) -> PSRLState:
        counts = count_transition(
            state.counts, transition.observation, transition.action, transition.next_observation
        )
        return dataclasses.replace(state, counts=counts)


def _redrawn(operand: tuple[Array, PSRLState]) -> tuple[Array, PSRLState]:
    """Follow the optimal policy of an MDP drawn from the posterior."""
    key, state = operand
    transitions = sampling.dirichlet(key, state.counts)
    rewards = expected_rewards(transitions, state.rewards)
    policy = planning.policy_iteration(transitions, rewards, state.discount, state.start).policy
    return key, dataclasses.replace(state, policy=policy)
