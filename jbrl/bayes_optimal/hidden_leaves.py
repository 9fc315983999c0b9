"""Values at the end of the look-ahead if one state stays hidden.

For counts c wanted is E[W_x(w(c_b)) | c], where W and the worth w of the hidden state b are
functions of the other states' rows. As in `leaves`, it is an average over MDPs drawn from the
prior, with the exact weights of the counts of all states but b.
"""

from concurrent.futures import Executor
from functools import partial

import numpy as np

from jbrl.bayes_optimal.between import Between
from jbrl.bayes_optimal.control import Control, variables_of
from jbrl.bayes_optimal.counts import Total
from jbrl.bayes_optimal.hidden import Hidden, Worth
from jbrl.bayes_optimal.layers import Cell, Layers
from jbrl.bayes_optimal.leaves import Weights, cut_blocks


class HiddenLeaves:
    """Sums over MDPs of the values at the end of the look-ahead.

    Args:
      cells: those with at most as many outcomes of the hidden state as `hidden` counts.
    """

    def __init__(self, layers: Layers, cells: list[Cell], control: Control, hidden: Hidden) -> None:
        self.layers, self.control, self.hidden = layers, control, hidden
        self.found = {cell: control.mean(cell) for cell in cells}
        cut, axis, end = cut_blocks(layers, cells), hidden.number, len(layers.blocks)
        first, last = slice(0, cut), slice(cut, end)
        self._hidden_first = axis < cut
        self._with, self._without = (first, last) if self._hidden_first else (last, first)
        self._groups: dict[tuple[int, tuple[Total, ...]], list[Cell]] = {}
        for cell in cells:
            key = (cell.state, cell.totals[self._with])
            self._groups.setdefault(key, []).append(cell)

    def add(
        self,
        log_rows: list[np.ndarray],
        share: float,
        seed: np.random.SeedSequence,
        pool: Executor,
    ) -> None:
        """Add the part of some MDPs.

        Args:
          log_rows: by block, [A, K, M].
          share: of one of these MDPs among all.
        """
        rows = tuple(np.exp(block) for block in log_rows)
        between, worth = self.hidden.solve(rows, seed, pool)
        p = variables_of(self.layers.model, rows, len(between.least))
        rest = _Rest(self.control, self.hidden.number, p)
        weights = Weights(self.layers, log_rows)
        add = partial(self._add, weights, between, worth, rest, share)
        list(pool.map(add, self._groups.items()))

    def _add(
        self,
        weights: Weights,
        between: Between,
        worth: Worth,
        rest: "_Rest",
        share: float,
        group: tuple[tuple[int, tuple[Total, ...]], list[Cell]],
    ) -> None:
        (x, totals), cells = group
        product = np.ones((1, len(between.least)), np.float32)
        for number, total in enumerate(totals, self._with.start):
            if number == self.hidden.number:
                factor = between.at(x, worth[total]) - rest.of(x, total)
            elif any(total):
                factor = weights.of(number, total)
            else:
                continue
            product = (product[:, None] * factor).reshape(-1, product.shape[1])
        product *= np.float32(share)
        for cell in cells:
            other = weights.product(self._without.start, cell.totals[self._without])
            a, b = (product, other) if self._hidden_first else (other, product)
            self.found[cell] += (a @ b.T).reshape(self.found[cell].shape)


class _Rest:
    """The mean of the control function given the counts of the hidden block and the rows of the
    others.

    Args:
      p: free transition probabilities of MDPs, [V, M].
    """

    def __init__(self, control: Control, axis: int, p: np.ndarray) -> None:
        self._control, self._axis, self._here = control, axis, control.slices[axis]
        self._others = p.copy()
        self._others[self._here] = 0
        self._of_state: dict[int, tuple[np.ndarray, np.ndarray | None]] = {}

    def of(self, x: int, total: Total) -> np.ndarray:
        """Return it for each split of a total, [n, M] float32."""
        if x not in self._of_state:
            self._of_state[x] = self._parts(x)
        base, slope = self._of_state[x]
        own, means = self._control.own(self._axis, total)
        found = base + own[x][:, None].astype(np.float32)
        if slope is not None:
            found += means.astype(np.float32) @ slope
        return found

    def _parts(self, x: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what concerns the other blocks alone, [M], and what multiplies the variables of
        the hidden one, [V_b, M]; None: nothing.
        """
        control, p = self._control, self._others
        base = control.constant[x] + control.slopes[x] @ p
        if control.curvatures is None:
            return base.astype(np.float32), None
        times = control.curvatures[x] @ p
        base += (p * times).sum(0)
        return base.astype(np.float32), (2 * times[self._here]).astype(np.float32)
