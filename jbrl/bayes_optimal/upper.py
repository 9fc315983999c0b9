"""Upper bounds: look ahead D decisions, then be shown the MDP."""

import dataclasses

import numpy as np

from jbrl.bayes_optimal import clairvoyant
from jbrl.bayes_optimal.control import Control, fit_control
from jbrl.bayes_optimal.induction import solve
from jbrl.bayes_optimal.layers import Cell, Layers
from jbrl.bayes_optimal.leaves import estimate

PILOT = 8192  # MDPs that the control function is fitted to


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
        mdps = clairvoyant.draw(model, PILOT, seed)
        values = clairvoyant.values(model, mdps, self.discount, (self.left,))
        return fit_control(self.layers, mdps, values[self.left])

    def replication(
        self, control: Control, n_mdps: int, seed: np.random.SeedSequence
    ) -> tuple[float, float]:
        """Return one estimate of the upper bound and one of the clairvoyant value.

        The expectation of the first is not below the bound.

        Args:
          n_mdps: number of MDPs drawn, a power of 2.
        """
        mdps, values, shown = self.sample(n_mdps, seed)
        cells = self.layers.layer(self.decisions)
        leaves = estimate(self.layers, cells, mdps, values, control, self.threads)
        return self.solve(leaves), shown

    def sample(
        self, n_mdps: int, seed: np.random.SeedSequence
    ) -> tuple[clairvoyant.SampledMDPs, np.ndarray, float]:
        """Draw MDPs; return them, their optimal values with the decisions that are left after the
        look-ahead, and the mean clairvoyant value.
        """
        model = self.layers.model
        mdps = clairvoyant.draw(model, n_mdps, seed)
        steps = tuple({self.left, self.horizon})
        values = clairvoyant.values(model, mdps, self.discount, steps)
        shown = float(values[self.horizon][list(model.first_states)].mean())
        return mdps, values[self.left], shown

    def floor(self) -> float:
        """Return the value of the best policy for D decisions if all later rewards are the
        smallest possible one; the Bayes-optimal value itself where D is the horizon.
        """
        least = self.layers.model.least_reward
        rest = least * sum(self.discount**t for t in range(self.left))
        cells = self.layers.layer(self.decisions)
        return self.solve({cell: np.full(self.layers.shape(cell), rest) for cell in cells})

    def solve(self, leaves: dict[Cell, np.ndarray]) -> float:
        return solve(self.layers, self.decisions, leaves, self.discount, self.threads)
