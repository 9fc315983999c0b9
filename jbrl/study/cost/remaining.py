"""Time left of a run, which its own units correct."""

import time
from collections.abc import Callable, Iterable, Mapping

from jbrl.study.cost.report import UnitCost

# Of all that is expected, so much counts as having taken what was expected, so that the first
# units, which are small, do not decide alone.
PRIOR_SHARE = 0.01


class TimeLeft:
    """Estimate of the time left of a run.

    What is left takes as much longer or shorter than expected as what is done, compilation and all
    else apart: they err for different reasons.

    Args:
      expected: cost of each unit to run, by its id.
      clock: returns seconds.
    """

    def __init__(
        self, expected: Mapping[str, UnitCost], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._left, self._clock = dict(expected), clock
        self._began = self._last = clock()
        self._whole = _parts(expected.values())
        self._done, self._compiling = (0.0, 0.0), 0.0

    def skipped(self, ids: Iterable[str]) -> None:
        """Leave out units that other processes have run."""
        for id in ids:
            self._left.pop(id, None)

    def finished(self, id: str, compiling: float) -> None:
        """Note that a unit is done, or has failed, and the seconds that were spent compiling."""
        cost = self._left.pop(id, None)
        if cost:
            self._done = _added(self._done, _parts([cost]))
        self._compiling += compiling
        self._last = self._clock()

    def seconds(self) -> float:
        """Return the wall seconds left."""
        elapsed = max(0.0, self._last - self._began)
        taken = (min(self._compiling, elapsed), max(0.0, elapsed - self._compiling))
        left = 0.0
        for whole, done, took, rest in zip(
            self._whole, self._done, taken, _parts(self._left.values()), strict=True
        ):
            prior = PRIOR_SHARE * whole
            left += rest * ((took + prior) / (done + prior) if done + prior else 1.0)
        return max(0.0, left - max(0.0, self._clock() - self._last))


def _parts(costs: Iterable[UnitCost]) -> tuple[float, float]:
    """Return the seconds of compilation, and all others."""
    found = [(cost.compiling, cost.seconds - cost.compiling) for cost in costs]
    return sum(c for c, _ in found), sum(o for _, o in found)


def _added(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    return a[0] + b[0], a[1] + b[1]
