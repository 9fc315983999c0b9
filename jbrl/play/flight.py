"""Lifetimes while they are played: where each is, and what is kept of those that are over."""

import dataclasses

import jax
import numpy as np

from jbrl.play import batching
from jbrl.rollout.episodes import Lane

OF_LIFETIMES = ("steps", "episodes", "faults", "over")  # fields with one entry for each lifetime


@dataclasses.dataclass
class Flight:
    """Lifetimes first..stop-1 while they are played.

    Results of lanes that are over are kept on the host.
    """

    first: int
    stop: int
    lanes: Lane  # of all positions of a call, on the devices
    numbers: np.ndarray  # [positions] int64, which lifetime is where; -1: none that counts
    groups: np.ndarray  # [devices] int32, groups that each device plays
    recorder: list[np.ndarray]  # leaves of what is kept of a lane, [stop - first, ...] each
    steps: np.ndarray  # [stop - first] int64, of those that are over
    episodes: np.ndarray  # [stop - first] int64, as well
    faults: np.ndarray  # [stop - first] int32, codes of `faults`, of those that are over; 0: none
    over: np.ndarray  # [stop - first] bool
    decisions: int = 0  # taken so far
    seconds: float = 0.0

    @property
    def finished(self) -> int:
        return int(self.over.sum())

    @property
    def whole(self) -> bool:
        """True if the lanes exist: a call that failed has consumed their memory."""
        return not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.lanes))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return all of it as arrays, from which `LifetimeRun.restored` makes it again."""
        live = np.flatnonzero(self.numbers >= 0)
        arrays = {f"lane_{i}": v[live] for i, v in enumerate(batching.bare_leaves(self.lanes))}
        arrays |= {f"recorder_{i}": v for i, v in enumerate(self.recorder)}
        span = np.array([self.first, self.stop], np.int64)
        return {
            **arrays,
            "numbers": self.numbers[live],
            **{name: getattr(self, name) for name in OF_LIFETIMES},
            "span": span,
        }


def deal(
    live: np.ndarray, sizes: np.ndarray | None, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each lifetime and the number of groups of each device, as even and
    compact as possible.

    Args:
      live: [n] int64, numbers of the lifetimes.
      sizes: [n] of each, in any unit: those of similar size share a group, the largest first; None
        where they do not differ.
      shape: devices, groups of each at most, and lanes of a group.

    Returns: [positions] int64, the lifetime at each, -1 where none counts; [devices] int32.
    """
    devices, max_groups, width = shape
    if sizes is not None:
        live = live[np.lexsort((live, -sizes))]
    parts = [live[k : k + width] for k in range(0, len(live), width)]
    share = -(-len(parts) // devices)
    numbers = np.full((devices, max_groups * width), -1, np.int64)
    for device in range(devices):
        # of groups that differ, each device has its share of the large ones
        theirs = (
            slice(device * share, (device + 1) * share)
            if sizes is None
            else slice(device, None, devices)
        )
        mine = np.concatenate([live[:0], *parts[theirs]])
        numbers[device, : len(mine)] = mine
    groups = np.array([-(-(row >= 0).sum() // width) for row in numbers], np.int32)
    return numbers.reshape(-1), groups
