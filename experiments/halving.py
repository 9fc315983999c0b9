"""OPPS-DS whose formulas are tried by sequential halving, in place of UCB1.

In a study beside this file: algorithm = "halving:HalvingOPPSDS", with the parameters of OPPS-DS.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jbrl.agents.opps.bandits import Bandit, Streams, StreamState, any_of, no_pulls, pulled_arms
from jbrl.agents.opps.opps import OPPSDS
from jbrl.base.pytree import record
from jbrl.problems.prior import DirichletPrior


@dataclass(frozen=True)
class HalvingState(StreamState):
    """State of sequential halving: what it has seen."""

    alive: np.ndarray  # [N] bool: neither dropped nor discarded
    stage: int  # halvings begun
    target: int  # pulls that each arm alive is to reach in this stage


@dataclass(frozen=True)
class SequentialHalving(Bandit[HalvingState]):
    """ceil(log2 N) stages of equal cost; after each, the better half of the arms goes on, by the
    mean of all pulls so far.

    Each arm is pulled floor(budget / (arms alive x stages)) times in a stage, at least once. What
    the rounding leaves of the budget is not spent. When arms are discarded those left may have
    more. Karnin, Koren and Somekh 2013; the aim is the best arm at the end, not the rewards on the
    way. A budget below N stages ends before the last halving, one below N before all arms
    are tried.
    """

    def start(self, n_arms: int, seed: int = 0) -> HalvingState:
        state = no_pulls(n_arms, seed)
        return HalvingState(**vars(state), alive=np.ones(n_arms, bool), stage=0, target=0)

    def demand(self, state: HalvingState, streams: Streams, size: int, budget: int) -> np.ndarray:
        """Return what the current stage lacks, the first arms first."""
        state = _next_stage(state, budget)
        due = _due(state)
        missing = np.maximum(_within(due, budget - state.pulls) - streams.lengths, 0)
        return _within(missing, size)

    def advance(
        self, state: HalvingState, streams: Streams, budget: int
    ) -> tuple[HalvingState, Streams]:
        while True:
            state = _next_stage(state, budget)
            if self.finished(state, budget):
                return state, streams
            state, streams = _consume(state, streams, budget)
            if _due(state).any():  # returns are missing, or the budget is spent
                return state, streams

    def finished(self, state: HalvingState, budget: int) -> bool:
        return state.pulls >= budget or int(state.alive.sum()) <= (state.stage > 1)

    def recommend(self, state: HalvingState) -> int:
        """Return the arm of the greatest mean among the remaining ones (among those dropped, if the
        last ones failed), ties broken at random.

        Raises:
          JbrlError: every pull has failed.
        """
        pulled = pulled_arms(state)
        left = pulled & state.alive
        means = np.where(left if left.any() else pulled, state.means, -np.inf)
        return any_of(state, means == means.max())


def _due(state: HalvingState) -> np.ndarray:
    """Return the pulls that the stage still asks for, by arm: [N] int64."""
    return np.where(state.alive, np.maximum(state.target - state.counts, 0), 0)


def _within(wanted: np.ndarray, limit: int) -> np.ndarray:
    """Return `wanted` [N], cut where its sum passes `limit`."""
    return np.clip(limit - (np.cumsum(wanted) - wanted), 0, wanted)


def _next_stage(state: HalvingState, budget: int) -> HalvingState:
    """Return the state in the next stage if the current one is complete, else the state itself."""
    if _due(state).any() or not state.alive.any():
        return state
    alive = state.alive
    if state.stage:
        order = np.random.default_rng((state.seed, state.stage)).permutation(np.flatnonzero(alive))
        best = order[np.argsort(-state.means[order], kind="stable")][: -(-len(order) // 2)]
        alive = np.zeros_like(alive)
        alive[best] = True
    stages = max(1, (len(alive) - 1).bit_length())
    share = max(1, budget // (int(alive.sum()) * stages))
    return replace(state, alive=alive, stage=state.stage + 1, target=state.target + share)


def _consume(state: HalvingState, streams: Streams, budget: int) -> tuple[HalvingState, Streams]:
    """Pull what the stage asks for, as far as returns and budget reach."""
    n_arms, left, due = len(state.counts), budget - state.pulls, _due(state)
    owners = np.repeat(np.arange(n_arms), streams.lengths)
    within = np.arange(len(owners)) - streams.starts[owners]
    failing = np.isnan(streams.values)
    good = streams.lengths.copy()  # returns before the first that failed
    np.minimum.at(good, owners[failing], within[failing])
    taken = _within(np.minimum(due, good), left)
    lost = (taken == good) & (good < streams.lengths) & (taken < due) & (np.cumsum(taken) < left)
    values = np.where(within < taken[owners], streams.values, 0.0)
    sums = state.sums + np.bincount(owners, values, n_arms)
    squares = state.squares + np.bincount(owners, values**2, n_arms)
    discarded = state.discarded | lost
    state = replace(
        state,
        counts=state.counts + taken,
        sums=sums,
        squares=squares,
        discarded=discarded,
        alive=state.alive & ~lost,
    )
    return state, streams.drop(taken + lost, discarded)


@record
class HalvingOPPSDS(OPPSDS):
    """OPPS-DS with sequential halving; `bandit` and `c` are not used."""

    def _bandit(self, prior: DirichletPrior | None) -> Bandit[Any]:
        return SequentialHalving()
