"""The look-ahead of the upper bound: backward induction over (state, counts) for D decisions, from
values at its end that are greater than the true ones: what an agent earns that is then shown the
MDP.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.limits import upper_margin
from jbrl.bayes_optimal.samples import Control, estimate, fit_control
from jbrl.mdp import backward
from jbrl.mdp.counts import Cell, Layers

PILOT = 8192  # MDPs that the control function is fitted to


@dataclasses.dataclass(frozen=True)
class Replication:
    """An estimate of an upper bound."""

    value: float
    clairvoyant: float  # an estimate of the value that an agent earns which is shown the MDP
    # the greatest mean square, over policies, of what an MDP adds, in returns after D decisions, or
    # of its distance from what another sample lets expect
    square: float
    expected: float  # what the square is expected to be, by another sample
    greatest: float  # no MDP can add more


def margin_of(replications: Sequence[Replication], n_mdps: int, confidence: float) -> float:
    """Return how far the mean of what MDPs add may lie above the average over replications of
    `n_mdps` each.
    """
    square = float(np.mean([one.square for one in replications]))
    expected, greatest = replications[0].expected, max(one.greatest for one in replications)
    return upper_margin(n_mdps * len(replications), square, expected, greatest, confidence)


@dataclasses.dataclass(frozen=True, eq=False)
class LookAhead:
    """The problem of the upper bound."""

    layers: Layers
    discount: float
    horizon: int
    decisions: int  # D
    threads: int

    @property
    def left(self) -> int:
        """Return the number of decisions after the look-ahead."""
        return self.horizon - self.decisions

    @property
    def exact(self) -> bool:
        """Return whether the look-ahead reaches the horizon: then nothing is sampled."""
        return self.left == 0

    def control(self, seed: np.random.SeedSequence) -> Control:
        """Fit the control function, to a sample of its own."""
        model = self.layers.model
        mdps = samples.draw(model, PILOT, seed, even=True)
        values = samples.values(model, mdps, self.discount, (self.left,))
        return fit_control(self.layers, mdps, values[self.left])

    def replication(
        self, control: Control, n_mdps: int, seed: np.random.SeedSequence
    ) -> Replication:
        """Return an estimate of the upper bound.

        The expectation of its value is not below the bound.

        Args:
          n_mdps: number of MDPs drawn.
        """
        mdps, values, shown = self.sample(n_mdps, seed)
        cells = self.layers.layer(self.decisions)
        leaves, squares = estimate(self.layers, cells, mdps, values, control, self.threads)
        square = self.square(self.layers, squares)
        _, most = self.layers.model.extremes(self.discount, self.left)
        greatest = float((most - control.least()).max())
        return Replication(self.solve(leaves), shown, square, control.residual, greatest)

    def margin(self, replications: Sequence[Replication], n_mdps: int, confidence: float) -> float:
        """Return how far the bound may lie above the average of independent estimates, whatever the
        distribution of the MDPs' values.

        For a policy of the look-ahead the average over MDPs estimates what it earns, and the
        greatest of these averages is not below that of the best policy. What an MDP adds to it is
        a mean of its values, less the control, in the states that the policy may have reached: its
        square is not above the mean of their squares.
        """
        margin = margin_of(replications, n_mdps, confidence)
        return math.prod([self.discount] * self.decisions) * margin

    def square(self, layers: Layers, leaves: dict[Cell, np.ndarray]) -> float:
        """Return the greatest mean, over policies, of squares at the leaves; it empties them."""
        return backward.solve(layers, self.decisions, leaves, 1.0, self.threads, paid=False)

    def sample(
        self, n_mdps: int, seed: np.random.SeedSequence, *, even: bool = False
    ) -> tuple[samples.SampledMDPs, np.ndarray, float]:
        """Draw MDPs; return them, their optimal values with the decisions that are left after the
        look-ahead, and the mean clairvoyant value.
        """
        model = self.layers.model
        mdps = samples.draw(model, n_mdps, seed, even=even)
        steps = tuple({self.left, self.horizon})
        values = samples.values(model, mdps, self.discount, steps)
        shown = float(values[self.horizon][list(model.first_states)].mean())
        return mdps, values[self.left], shown

    def extremes(self) -> tuple[float, float]:
        """Return the values of the best policies for D decisions if all later outcomes are the
        worst, and the best, for an agent that knows how to take them; no agent's value is
        greater than the second one, and both are the Bayes-optimal value where D is the horizon.
        """
        cells = self.layers.layer(self.decisions)
        least, most = [
            self.solve({cell: np.full(self.layers.shape(cell), rest[cell.state]) for cell in cells})
            for rest in self.layers.model.extremes(self.discount, self.left)
        ]
        return least, most

    def solve(self, leaves: dict[Cell, np.ndarray]) -> float:
        return backward.solve(self.layers, self.decisions, leaves, self.discount, self.threads)
