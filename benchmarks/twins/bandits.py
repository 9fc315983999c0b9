"""Slow and obvious: bandits that pull one arm at a time.

`stream(arm, i)` is the i-th return of an arm; NaN means that the pull failed.
"""

import math
from collections.abc import Callable

import numpy as np

Stream = Callable[[int, int], float]
_WORD = 2**64 - 1


def ucb1_index(c: float) -> Callable:
    return lambda returns, t: np.mean(returns) + c * math.sqrt(math.log(t) / len(returns))


def ucbv_index(scale: float, zeta: float) -> Callable:
    def index(returns: list[float], t: int) -> np.floating:
        n = len(returns)
        return (
            np.mean(returns)
            + math.sqrt(2 * zeta * np.var(returns) * math.log(t) / n)
            + 3 * zeta * scale * math.log(t) / n
        )

    return index


def pulls_of_index_bandit(
    index: Callable, stream: Stream, n_arms: int, budget: int, seed: int
) -> tuple[list[int], list[list[float]], set]:
    """Return arms in the order in which they were pulled without failing, the returns of each arm,
    the arms discarded.
    """
    returns: list[list[float]] = [[] for _ in range(n_arms)]
    discarded: set[int] = set()
    order: list[int] = []

    def pull(arm: int) -> None:
        value = stream(arm, len(returns[arm]))
        if math.isnan(value):
            discarded.add(arm)
        else:
            returns[arm].append(value)
            order.append(arm)

    for arm in range(n_arms):
        if len(order) < budget:
            pull(arm)
    while len(order) < budget and len(discarded) < n_arms:
        t = len(order)
        scores = [
            -math.inf if arm in discarded else index(returns[arm], t) for arm in range(n_arms)
        ]
        equals = [arm for arm in range(n_arms) if scores[arm] == max(scores)]
        pull(max(equals, key=lambda arm: (priority(seed, t, arm), arm)))
    return order, returns, discarded


def priority(seed: int, pull: int, arm: int) -> int:
    """Return random order of equals: 31 bits of a hash of (seed, number of the pull, arm)."""
    word = (seed + (pull + 1) * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    word ^= word >> 31
    x = (word ^ (arm * 0x9E3779B1)) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return (x ^ (x >> 16)) >> 1


def sequential_halving(
    stream: Stream, n_arms: int, budget: int
) -> tuple[list[int], list[int], set]:
    """Return the pulls of each arm, the arms left (no equal means expected), the arms discarded."""
    returns: list[list[float]] = [[] for _ in range(n_arms)]
    discarded: set[int] = set()
    alive = list(range(n_arms))
    pulls, target = 0, 0
    n_stages = max(1, math.ceil(math.log2(n_arms)))
    for stage in range(n_stages):
        if stage and len(alive) <= 1:
            break
        target += max(1, budget // (len(alive) * n_stages))
        for arm in list(alive):
            while len(returns[arm]) < target and pulls < budget:
                value = stream(arm, len(returns[arm]))
                if math.isnan(value):
                    discarded.add(arm)
                    alive.remove(arm)
                    break
                returns[arm].append(value)
                pulls += 1
        if pulls == budget and any(len(returns[arm]) < target for arm in alive):
            break
        alive = sorted(sorted(alive, key=lambda arm: -np.mean(returns[arm]))[: -(-len(alive) // 2)])
    return [len(r) for r in returns], alive, discarded
