"""Capacities: static sizes that follow from parameters, so that agents whose parameters are close
share one compiled program.
"""

from typing import Any


def raise_capacity(agent: Any, name: str, needed: int) -> None:
    """Raise a capacity of a frozen agent to what is needed; one that suffices stays.

    For `__post_init__` alone.

    Args:
      name: the field that holds the capacity.
    """
    object.__setattr__(agent, name, max(getattr(agent, name), needed))


def round_up(number: int) -> int:
    """Return the least power of two that is not below `number`, 1 at least."""
    return 1 << max(0, number - 1).bit_length()
