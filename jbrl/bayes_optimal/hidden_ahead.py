"""Upper bounds: look ahead D decisions, then be shown all rows but those of one state."""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from jbrl.bayes_optimal import clairvoyant
from jbrl.bayes_optimal.control import Control
from jbrl.bayes_optimal.hidden import Hidden, sums
from jbrl.bayes_optimal.hidden_leaves import HiddenLeaves
from jbrl.bayes_optimal.layers import Layers
from jbrl.bayes_optimal.leaves import CHUNK, estimate
from jbrl.bayes_optimal.model import Model
from jbrl.bayes_optimal.size import BACKED_UP, PRODUCTS
from jbrl.bayes_optimal.upper import LookAhead

MOST_SPLITS = 3000  # of the counts of the hidden state after its last outcome
MOST_DIVISIONS = 20 * MOST_SPLITS  # of them, exchangeable rows apart
MOST_TRIALS = 40
MOST_TRANSITIONS = 500  # uncertain ones of a problem
CHOOSING = 128  # MDPs on which the hidden state is chosen
LEAST_MDPS, USUAL_MDPS, MOST_MDPS = CHUNK, 4 * CHUNK, 32 * CHUNK  # of a replication

# Seconds on one core for 1,024 MDPs, with discount 0.95: of a transition of the problem, of an
# outcome of a count. Of the table in docs/bounds.md.
OF_TRANSITION, OF_OUTCOME = 0.025, 1.4e-5


@dataclasses.dataclass(frozen=True, eq=False)
class HiddenAhead:
    """The problem of the upper bound with a hidden state."""

    ahead: LookAhead
    hidden: Hidden

    @property
    def state(self) -> int:
        """Return the hidden state."""
        return self.hidden.counts.block.state

    def seconds(self, n_mdps: int) -> float:
        """Estimate the duration of a replication."""
        ahead, counts, model = self.ahead, self.hidden.counts, self.hidden.model
        outcomes = counts.block.possible.size * sum(
            len(counts.splits(total))
            for n in range(self.hidden.trials + 1)
            for total in sums(n, len(counts.block.successors))
        )
        sweeps = math.log(0.95) / math.log(max(ahead.discount, 0.01))
        once = OF_TRANSITION * sweeps * _transitions(model) + OF_OUTCOME * outcomes
        sizes = [ahead.layers.count(d) for d in range(ahead.decisions + 1)]
        products = 4 * sizes[-1] * n_mdps / PRODUCTS + sum(sizes) / BACKED_UP
        return (n_mdps / CHUNK * once + products) / ahead.threads

    def n_mdps(self, limit: float | None) -> int:
        """Return the number of MDPs with which a replication takes at most `limit` seconds; 0 where
        the fewest take longer.
        """
        if limit is None:
            return USUAL_MDPS
        found = MOST_MDPS
        while found >= LEAST_MDPS and self.seconds(found) > limit:
            found //= 2
        return found if found >= LEAST_MDPS else 0

    def replication(
        self, control: Control, n_mdps: int, seed: np.random.SeedSequence
    ) -> tuple[float, float]:
        """Return one estimate of the upper bound and one of the clairvoyant value.

        The expectation of the first is not below the bound.

        Args:
          n_mdps: number of MDPs drawn, a power of 2.
        """
        ahead, layers = self.ahead, self.ahead.layers
        own, shown = seed.spawn(2)
        mdps, values, shown_value = ahead.sample(n_mdps, own)
        number, trials = self.hidden.number, self.hidden.trials
        cells = layers.layer(ahead.decisions)
        few = [cell for cell in cells if sum(cell.totals[number]) <= trials]
        many = [cell for cell in cells if sum(cell.totals[number]) > trials]
        leaves = HiddenLeaves(layers, few, control, self.hidden)
        with ThreadPoolExecutor(ahead.threads) as pool:
            firsts = range(0, n_mdps, CHUNK)
            for first, own in zip(firsts, shown.spawn(len(firsts)), strict=True):
                some = [rows[..., first : first + CHUNK] for rows in mdps.log_rows]
                leaves.add(some, 1 / n_mdps, own, pool)
        found = {cell: value + self._for_ever() for cell, value in leaves.found.items()}
        if many:
            found |= estimate(layers, many, mdps, values, control, ahead.threads)
        return ahead.solve(found), shown_value

    def _for_ever(self) -> float:
        """Return what to add to a value for ever, so that it is not below that of the decisions
        that are left.
        """
        least, discount = self.ahead.layers.model.least_reward, self.ahead.discount
        return max(0.0, -least) / (1 - discount) * discount**self.ahead.left

    def root(self, n_mdps: int, seed: np.random.SeedSequence) -> float:
        """Return an estimate of the bound without looking ahead."""
        model, (own, shown) = self.hidden.model, seed.spawn(2)
        rows = tuple(map(np.exp, clairvoyant.draw(model, n_mdps, own).log_rows))
        with ThreadPoolExecutor(self.ahead.threads) as pool:
            between, worth = self.hidden.solve(rows, shown, pool)
        worth_first = worth[self.hidden.counts.nothing]
        return float(np.mean([between.at(x, worth_first) for x in model.first_states]))


def hide(ahead: LookAhead, seed: np.random.SeedSequence) -> HiddenAhead | None:
    """Return the bound with the hidden state that makes it lowest without looking ahead, on a
    sample; None where the problem is too large, or no state can be hidden.
    """
    found = candidates(ahead)
    if not found:
        return None
    return found[int(np.argmin([one.root(CHOOSING, seed) for one in found]))]


def candidates(ahead: LookAhead) -> list[HiddenAhead]:
    """Return the bounds with each state that may be hidden: those that no symmetry of the states
    moves, and all of whose rows are uncertain.
    """
    layers, model = ahead.layers, ahead.layers.model
    if _transitions(model) > MOST_TRANSITIONS:
        return []
    found = []
    for number, block in enumerate(model.blocks):
        moved = any(one.states[block.state] != block.state for one in layers.symmetries)
        trials = _trials(layers, number, ahead.horizon)
        if trials and not moved and not model.certain[block.state]:
            counts = layers.blocks[number]
            hidden = Hidden(model, counts, ahead.discount, number, trials)
            found.append(HiddenAhead(ahead, hidden))
    return found


def _transitions(model: Model) -> int:
    """Return the number of possible transitions of a problem."""
    certain = sum(map(len, model.certain))
    return certain + sum(int(block.possible.sum()) for block in model.blocks)


def _trials(layers: Layers, number: int, horizon: int) -> int:
    """Return the most outcomes with at most `MOST_SPLITS` counts, 0 if not even one has so few."""
    counts, most = layers.blocks[number], min(MOST_TRIALS, horizon)
    for n in range(1, most + 1):
        if math.comb(n + len(counts.block.successors) - 1, n) > MOST_SPLITS:
            return n - 1
        totals = sums(n, len(counts.block.successors))
        if sum(map(counts.divisions, totals)) > MOST_DIVISIONS:
            return n - 1
        if sum(len(counts.splits(total)) for total in totals) > MOST_SPLITS:
            return n - 1
    return most
