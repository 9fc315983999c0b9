"""Observer of a run: called as units begin, advance and end."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jbrl.play.unit import Unit


class Progress:
    """Listener to the events of a run. This one is silent; inherit from it to show something."""

    def begin(self, units: Sequence[Unit], todo: Sequence[Unit]) -> None:
        """Report the beginning of a run: `todo` are those of `units` that have no result yet."""

    def started(self, unit: Unit) -> None:
        """Report that a unit begins: training and compilation come first."""

    def searching(self, unit: Unit, consumed: int, budget: int, seconds: float) -> None:
        """Report that an agent which searches on the prior has used `consumed` trajectories of
        `budget`, in `seconds`.
        """

    def advanced(self, unit: Unit, n: int, seconds: float, decisions: int) -> None:
        """Report that `n` lifetimes of a unit are over; `decisions` taken so far, of others too,
        took `seconds`.
        """

    def finished(self, unit: Unit, header: dict[str, Any], returns: np.ndarray) -> None:
        """Report that a unit is done or has failed, as `header["status"]` says."""
