"""Gittins: pull the arm of the greatest Gittins index, from a table computed beforehand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl import vectorize
from jbrl.agents.registry import register_agent
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.mdp.gittins import as_bandit
from jbrl.problems.prior import DirichletPrior, Prior
from jbrl.rollout.contract import BAYESIAN, Agent, Requirements, Transition

MOST_ENTRIES = 2**18  # of the table of an arm
MOST_OUTCOMES = 4  # with more, a table would hold few pulls
SUMS = 512  # lump sums that an arm is compared with
TIE_TOLERANCE = 1e-4  # of the range of rewards


@record
class GittinsState:
    tables: Array  # [A, P + 1, (P + 1)^(K - 1)] float32, indices by pulls and counts
    concentrations: Array  # [A, K] float32 of outcomes, those of the prior
    rewards: Array  # [A, K] float32, from 0 to 1
    first: Array  # [] int32, the state of the arms
    counts: Array  # [A, K] int32, outcomes seen
    indices: Array  # [A] float32, of the arms as they are


def _needs_bandit(prior: Prior) -> str:
    """Return what the agent needs where the prior does not offer it; of a traced one nothing."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(prior)):
        return ""
    assert isinstance(prior, DirichletPrior)
    bandit = as_bandit(prior.mdps)
    in_one_state = bandit is not None and len(bandit.stages) == 1 and bandit.decisions == 2
    if in_one_state and prior.mdps.n_states <= MOST_OUTCOMES + 1:
        return ""
    return (
        f"a bandit in one state, whose outcomes are at most {MOST_OUTCOMES} states that lead back "
        "to it, such as Bandit(arms=3)"
    )


@register_agent("Gittins", cite="gittins1979")
class Gittins(Agent[GittinsState, GittinsState]):
    """The arm of the greatest Gittins index, on problems that are bandits.

    Each arm is compared, alone, with a lump sum for which it may be given up; its index is the
    least sum that is not worth less. Pulling the arm of the greatest index is Bayes-optimal in a
    lifetime that never ends (Gittins 1979); in one of T decisions the discount of T is what may be
    lost. Indices of all counts that an arm may reach are computed before the first decision; of an
    arm that has been pulled more than P times, P + 1 being the K-th root of 262,144 for K outcomes,
    the posterior mean counts. Indices within 1e-4 of the range of rewards tie. Where the
    discount is near 1, the index of an arm that is nearly known is off by up to 1e-3 of that range,
    mostly too high.

    Offline: 512 A P^K operations; one decision costs O(A).
    """

    requires = Requirements(DirichletPrior, BAYESIAN.observations, _needs_bandit)
    lanes = 32

    def train(self, key: Array, prior: DirichletPrior) -> GittinsState:
        mdps, first = prior.mdps, jnp.maximum(prior.mdps.initial_state, 0)
        # outcomes are the other states, in the order in which they follow the first one
        weights, gains = (
            jnp.roll(array[first], -first, axis=-1)[:, 1:]
            for array in map(jnp.asarray, (mdps.concentrations, mdps.rewards))
        )
        least = jnp.min(jnp.where(weights > 0, gains, jnp.inf))
        most = jnp.max(jnp.where(weights > 0, gains, -jnp.inf))
        rewards = jnp.where(weights > 0, (gains - least) / jnp.maximum(most - least, 1e-30), 0.0)
        n_actions, outcomes = weights.shape
        pulls = pulls_of(outcomes, -(-prior.horizon // 2))
        discount = prior.discount * prior.discount
        tables = jax.lax.map(
            lambda arm: index_table(arm[0], arm[1], discount, pulls), (weights, rewards)
        ).reshape(n_actions, -1)
        counts = jnp.zeros(weights.shape, jnp.int32)
        return GittinsState(tables, weights, rewards, first, counts, tables[:, 0])

    def reset(self, key: Array, knowledge: GittinsState) -> GittinsState:
        return knowledge

    def act(
        self, key: Array, state: GittinsState, observation: Array
    ) -> tuple[Array, GittinsState]:
        uniform = sampling.uniforms(key)[0]
        return sampling.choose_maximiser(state.indices, uniform, TIE_TOLERANCE), state

    def observe(self, key: Array, state: GittinsState, transition: Transition) -> GittinsState:
        arms, outcomes = state.counts.shape
        pulled = transition.observation == state.first
        outcome = (transition.next_observation - state.first - 1) % (outcomes + 1)
        seen = jnp.arange(outcomes, dtype=jnp.int32) == outcome
        mine = jnp.arange(arms, dtype=jnp.int32) == transition.action
        counts = state.counts + (pulled & mine[:, None] & seen[None]).astype(jnp.int32)
        arm = vectorize.get_entry(counts, transition.action)
        index = self._index(state, transition.action, arm)
        indices = jnp.where(mine, index, state.indices)
        return dataclasses.replace(state, counts=counts, indices=indices)

    def _index(self, state: GittinsState, action: Array, counts: Array) -> Array:
        outcomes = counts.shape[0]
        size = state.tables.shape[-1]
        pulls = round(size ** (1 / outcomes)) - 1
        total = counts.sum(dtype=jnp.int32)
        kept = jnp.minimum(total, pulls)
        place = kept
        for k in range(outcomes - 1):
            place = place * (pulls + 1) + jnp.minimum(counts[k], kept)
        tabled = vectorize.get_entry(state.tables.reshape(-1), action * size + place)
        weights = vectorize.get_entry(state.concentrations, action) + counts.astype(jnp.float32)
        rewards = vectorize.get_entry(state.rewards, action)
        return jnp.where(total > pulls, (weights * rewards).sum() / weights.sum(), tabled)


def pulls_of(outcomes: int, most: int) -> int:
    """Return the pulls of an arm that a table holds, at least 1 and at most `most`."""
    held = 1
    while held < most and (held + 2) ** outcomes <= MOST_ENTRIES:
        held += 1
    return held


def index_table(weights: Array, rewards: Array, discount: Array, pulls: int) -> Array:
    """Return Gittins indices of an arm, [P + 1, P + 1, …] float32 by pulls and the counts of all
    outcomes but the last. Entries with more counts than pulls mean nothing.

    After P pulls the index is the posterior mean.

    Args:
      weights: concentrations of outcomes, [K] float32.
      rewards: [K] float32, in [0, 1].
      discount: [] float32, of a pull.
    """
    outcomes = weights.shape[0]
    counts = np.indices((pulls + 1,) * (outcomes - 1), dtype=np.float32)[:, None]
    sums = jnp.linspace(0, 1, SUMS, dtype=jnp.float32).reshape(-1, *[1] * (outcomes - 1))

    def chances(n: Array) -> list[Array]:
        total = weights.sum() + jnp.maximum(n, counts.sum(0))
        last = jnp.maximum(n - counts.sum(0), 0)
        return [(seen + w) / total for seen, w in zip([*counts, last], weights, strict=True)]

    def means(n: Array) -> Array:  # [1, P + 1, …]
        pairs = zip(chances(n), rewards, strict=True)
        return sum((p * r for p, r in pairs), jnp.zeros(counts.shape[1:], jnp.float32))

    def pull(after: Array, n: Array) -> tuple[Array, Array]:
        value = (1 - discount) * means(n)
        for k, chance in enumerate(chances(n)):
            moved = after if k == outcomes - 1 else _shifted(after, k + 1)
            value = value + discount * chance * moved
        return jnp.maximum(value, sums), _crossing(value - sums, sums)

    known = means(jnp.float32(pulls))
    layers = jnp.arange(pulls - 1, -1, -1, dtype=jnp.float32)
    _, indices = jax.lax.scan(pull, jnp.maximum(sums, known), layers)
    return jnp.concatenate([indices[::-1], known])


def _shifted(values: Array, axis: int) -> Array:
    """Return what one count more along an axis is worth; the last entry is repeated."""
    last = values.shape[axis]
    return jnp.take(values, jnp.minimum(jnp.arange(last) + 1, last - 1), axis=axis)


def _crossing(gains: Array, sums: Array) -> Array:
    """Return where gains [G, …], which are convex and fall with the sum, become 0: [...].

    Between two sums, a straight line lies above them, and the one through the two sums before
    below: their crossings are limits, of which the mean is taken.
    """
    step = jnp.float32(1 / (SUMS - 1))
    last = jnp.clip((gains > 0).sum(0, dtype=jnp.int32) - 1, 0, SUMS - 2)
    before, here, after = (
        jnp.take_along_axis(gains, jnp.maximum(last + k, 0)[None], 0)[0] for k in (-1, 0, 1)
    )
    high = jnp.clip(here / jnp.maximum(here - after, 1e-30), 0.0, 1.0)
    low = jnp.clip(here / jnp.maximum(before - here, 1e-30), 0.0, high)
    low = jnp.where(last > 0, low, high)
    return sums.reshape(-1)[last] + step * (low + high) / 2
