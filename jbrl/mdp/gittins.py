"""Multi-armed bandits with discounted pulls: Gittins indices and the Bayes-optimal value.

An arm pays one of K rewards with probabilities that have a Dirichlet prior. Which arm to pull is
decided by comparing each arm, alone, with a lump sum m for which it may be given up: phi(m) is the
value of that choice, a convex function whose slope W(m) is the expected discount when the arm is
given up. An arm's index is the least m that is not worth less than the arm (Gittins 1979). With a
lump sum M below all values, the value of all arms together is B - int_M^B prod_k W_k(m) dm, B being
a sum that none of them exceeds (Whittle 1980).

After `depth` pulls an arm is taken to be known, and to pay its mean. This never raises a value, and
lowers it by at most what the range of rewards for ever is worth, discounted by `depth` pulls, since
nothing changes before. Powers are products, and sums have a fixed order, so that all processors
compute the same bits. On the host, in float64.
"""

import dataclasses
import itertools
import math

import numpy as np

from jbrl.base.errors import JbrlError, check_discount, shown
from jbrl.mdp.dirichlet import DirichletMDPs

MOST_BELIEFS = 1_500_000  # of an arm, over all numbers of pulls
MOST_NODES = 1500  # lump sums at which arms are evaluated
FIRST_NODES = 33
NEW_NODES = 32  # of a round
TOGETHER = 2**16  # numbers of an array: those that fit into a cache
# of what the greatest reward for ever is worth beyond the least one
TOLERANCE = 3e-7  # of integrals and indices
TRUNCATED = 1e-7  # what deeper beliefs could change
NEAR = 1e-3


@dataclasses.dataclass(frozen=True)
class Arm:
    """The belief about an arm: rewards in rising order, and their concentrations.

    Raises:
      JbrlError: no rewards, or falling ones; concentrations that are not as many positive numbers.
    """

    rewards: tuple[float, ...]
    concentrations: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.rewards) or not all(a <= b for a, b in itertools.pairwise(self.rewards)):
            raise JbrlError(f"rewards = {shown(self.rewards)}: expected numbers in rising order")
        positive = all(0 < weight < math.inf for weight in self.concentrations)
        if not positive or len(self.concentrations) != len(self.rewards):
            raise JbrlError(
                f"concentrations = {shown(self.concentrations)}: expected {len(self.rewards)} "
                "positive numbers, one for each reward"
            )

    @property
    def mean(self) -> float:
        """Return the mean reward of a pull."""
        pairs = zip(self.rewards, self.concentrations, strict=True)
        return sum(r * a for r, a in pairs) / sum(self.concentrations)

    @property
    def variance(self) -> float:
        """Return the variance of what the arm pays on average, which is not known."""
        total, mean = sum(self.concentrations), self.mean
        pairs = zip(self.rewards, self.concentrations, strict=True)
        return sum((r - mean) ** 2 * a for r, a in pairs) / total / (total + 1)

    def lump_sums(
        self, sums: np.ndarray, discount: float, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return phi and W at lump sums: [G] float64 each, from [G].

        Args:
          discount: of a pull.
          depth: pulls, after which the arm is taken to be known.
        """
        at_once = max(1, TOGETHER // (depth + 1) ** (len(self.rewards) - 1))
        parts = [
            self._lump_sums(sums[i : i + at_once], discount, depth)
            for i in range(0, len(sums), at_once)
        ]
        values, slopes = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(slopes)

    def _lump_sums(
        self, sums: np.ndarray, discount: float, depth: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go backward over beliefs: arrays [G, n + 1, …] by the counts of all rewards but the
        last; entries with counts of more than n pulls in all are not used.
        """
        outcomes = range(len(self.rewards))
        sums = sums.reshape(-1, *[1] * (len(self.rewards) - 1))
        known = self._means(self._probabilities(depth)) / (1 - discount)
        values, slopes = np.maximum(sums, known), (sums >= known).astype(float)
        for pulls in reversed(range(depth)):
            chances = self._probabilities(pulls)
            value, slope = self._means(chances), np.array(0.0)
            for k in outcomes:
                more = (slice(int(j == k), pulls + 1 + int(j == k)) for j in outcomes[:-1])
                after = (slice(None), *more)
                value = value + discount * chances[k] * values[after]
                slope = slope + discount * chances[k] * slopes[after]
            values, slopes = np.maximum(value, sums), np.where(value <= sums, 1.0, slope)
        return values.reshape(-1), slopes.reshape(-1)

    def _means(self, probabilities: list[np.ndarray]) -> np.ndarray:
        """Return mean rewards, [n + 1, …]."""
        pairs = zip(self.rewards, probabilities, strict=True)
        return np.asarray(sum(reward * chance for reward, chance in pairs))

    def _probabilities(self, pulls: int) -> list[np.ndarray]:
        """Return the mean probability of each reward after so many pulls, K arrays [n + 1, …]."""
        counts = list(np.indices((pulls + 1,) * (len(self.rewards) - 1)).astype(float))
        counts.append(pulls - sum(counts, np.array(0.0)))
        total = sum(self.concentrations) + pulls
        return [(n + a) / total for n, a in zip(counts, self.concentrations, strict=True)]

    def index(self, discount: float) -> tuple[float, float]:
        """Return limits of the Gittins index, as a reward of a pull.

        The value of a pull falls short of the lump sum by at least 1 - discount for each unit that
        the sum is greater, so that what the truncation lowers is what it lowers the index by.

        Raises:
          JbrlError: a discount that is not in [0, 1).
        """
        check_discount(discount)
        depth, scale = depth_of([self], discount), 1 - discount
        low, high = self.mean, self.rewards[-1]
        width = high - self.rewards[0]
        while high - low > TOLERANCE * width:
            nodes = low + (high - low) * np.linspace(0, 1, NEW_NODES)
            values, _ = self.lump_sums(nodes / scale, discount, depth)
            worth = int((values > nodes / scale).sum())  # the first ones
            low, high = nodes[max(worth - 1, 0)], nodes[min(worth, len(nodes) - 1)]
        most = high + width * _power(discount, depth) / scale
        return float(low), float(min(most, self.rewards[-1]))


def depth_of(arms: list[Arm], discount: float) -> int:
    """Return the pulls after which an arm is taken to be known: as many as `TRUNCATED` asks for,
    or as there are beliefs for.
    """
    outcomes = max(len(arm.rewards) for arm in arms)
    depth, beliefs, left = 0, 0, 1.0
    while left > TRUNCATED and beliefs <= MOST_BELIEFS:
        depth, left = depth + 1, left * discount
        beliefs += (depth + 1) ** (outcomes - 1)
    return depth


def value(arms: list[Arm], discount: float) -> tuple[float, float]:
    """Return limits of the Bayes-optimal value of pulling one of several arms for ever.

    Args:
      arms: at least one.
      discount: of a pull, in [0, 1).
    """
    least, most = min(a.rewards[0] for a in arms), max(a.rewards[-1] for a in arms)
    if least == most:
        return least / (1 - discount), least / (1 - discount)
    scaled = [Arm(_scaled(a.rewards, least, most), a.concentrations) for a in arms]
    depth = depth_of(scaled, discount)
    low, high = _limits(scaled, discount, depth)
    start, scale = least / (1 - discount), most - least
    return start + scale * low, start + scale * (high + _power(discount, depth) / (1 - discount))


def _scaled(rewards: tuple[float, ...], least: float, most: float) -> tuple[float, ...]:
    return tuple((r - least) / (most - least) for r in rewards)


def _limits(arms: list[Arm], discount: float, depth: int) -> tuple[float, float]:
    """Return limits of Whittle's integral, for rewards from 0 to 1: between two lump sums only
    those intervals are divided whose limits lie far apart.
    """
    greatest = 1 / (1 - discount)
    different = sorted(set(arms), key=lambda arm: (arm.rewards, arm.concentrations))
    times = [arms.count(arm) for arm in different]
    nodes = np.linspace(0, greatest, FIRST_NODES)

    def evaluate(sums: np.ndarray) -> np.ndarray:
        parts = [arm.lump_sums(sums, discount, depth) for arm in different]
        return np.array(parts)  # [arms, 2, G]

    found = evaluate(nodes)
    while True:
        low, high = _integrals(nodes, found, times)
        gaps = high - low
        if gaps.sum() <= TOLERANCE * greatest or len(nodes) >= MOST_NODES:
            break
        worst = np.sort(np.argsort(gaps, kind="stable")[-NEW_NODES:])
        new = (nodes[worst] + nodes[worst + 1]) / 2
        found = np.insert(found, worst + 1, evaluate(new), axis=2)
        nodes = np.insert(nodes, worst + 1, new)
    return greatest - math.fsum(high), greatest - math.fsum(low)


def _integrals(
    nodes: np.ndarray, found: np.ndarray, times: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return limits of the integral of the product of slopes over each interval, [G - 1] each.

    Slopes rise, and the integral of each is known, since it is phi's difference. The product of
    their means is a lower limit (Chebyshev). The upper one is the integral for slopes that have the
    value of the left end up to a point, and then that of the right end: as they all rise, the later
    a slope has its mass, the greater is the integral of the product.
    """
    width = np.diff(nodes)
    low, high = np.ones_like(width), np.zeros_like(width)
    left, right = found[:, 1, :-1], found[:, 1, 1:]
    mean = np.clip(np.diff(found[:, 0]) / width, left, right)
    late = (mean - left) / np.where(right > left, right - left, 1.0)  # share of the interval
    for k, n in enumerate(times):
        for _ in range(n):
            low = low * mean[k]
    order = np.argsort(-late, axis=0, kind="stable")  # the first ones rise first
    start = np.zeros_like(width)
    for stage in range(len(times) + 1):
        last = stage == len(times)
        end = np.ones_like(width) if last else 1 - np.take_along_axis(late, order, 0)[stage]
        product = np.ones_like(width)
        for k, n in enumerate(times):
            risen = (order[:stage] == k).any(0)
            slope = np.where(risen, right[k], left[k])
            for _ in range(n):
                product = product * slope
        high, start = high + product * (end - start), end
    return width * low, width * high


@dataclasses.dataclass(frozen=True)
class Bandit:
    """A distribution over MDPs that is a bandit: the arms of each of its stages, which are visited
    in turn, every pull taking the same number of decisions.
    """

    stages: tuple[tuple[Arm, ...], ...]
    decisions: int  # of a pull: from one stage to the next

    def suits(self, discount: float, horizon: int) -> bool:
        """Return whether limits of the value are near each other, which takes a long horizon, and
        a discount for which the arms need not be followed for too long.
        """
        turn = _power(discount, len(self.stages) * self.decisions)
        arms = [arm for stage in self.stages for arm in stage]
        return _power(discount, horizon) + _power(turn, depth_of(arms, turn)) <= NEAR

    def value(self, discount: float, horizon: int) -> tuple[float, float]:
        """Return limits of the Bayes-optimal value of `horizon` decisions.

        They differ from those of a lifetime that never ends by what comes after: at least the best
        mean of the prior, at most what the best arm is expected to pay.
        """
        turn = len(self.stages) * self.decisions
        per_turn, low, high = _power(discount, turn), 0.0, 0.0
        for number, arms in enumerate(self.stages):
            start = number * self.decisions
            pulls = max(0, -(-(horizon - start) // turn))
            after = _power(per_turn, pulls) / (1 - per_turn)
            least, most = value(list(arms), per_turn)
            low += _power(discount, start) * (least - after * best_at_most(arms))
            high += _power(discount, start) * (most - after * max(arm.mean for arm in arms))
        return low, high


def best_at_most(arms: tuple[Arm, ...]) -> float:
    """Return a bound of what the best of several arms pays on average: for each M it is at most
    M plus what each is expected to exceed M by, which mean and variance bound (Scarf 1958).
    """
    means, deviations = np.array([a.mean for a in arms]), [math.sqrt(a.variance) for a in arms]
    spread = max(deviations)
    best = max(a.rewards[-1] for a in arms)
    for level in means.max() + spread * np.linspace(0, 4, 33):
        above = np.sqrt(np.square(deviations) + (means - level) ** 2) + means - level
        best = min(best, level + above.sum() / 2)
    return float(best)


def _power(base: float, exponent: int) -> float:
    """Return a power by products alone, which all processors compute alike."""
    result = 1.0
    for bit in f"{exponent:b}":
        result = result * result * (base if bit == "1" else 1.0)
    return result


def as_bandit(mdps: DirichletMDPs) -> Bandit | None:
    """Return a distribution over MDPs as a bandit; None where it is none.

    It is one if it starts in a state all of whose actions are arms; each outcome leads, without a
    choice or a further reward and after the same number of decisions, to the same next such state;
    and the last of them leads back to the first.
    """
    weights = np.asarray(mdps.concentrations, np.float64)
    rewards = np.asarray(mdps.rewards, np.float64)
    first = int(mdps.initial_state)
    stages: list[tuple[Arm, ...]] = []
    seen: list[int] = []
    durations = set()
    stage = first
    while stage not in seen:
        if stage < 0 or not _is_uncertain(weights[stage]):
            return None
        outcomes = np.flatnonzero((weights[stage] > 0).any(0))
        ends = {_walk(weights, rewards, int(y)) for y in outcomes}
        if len(ends) != 1 or None in ends:
            return None
        seen.append(stage)
        stages.append(tuple(map(_arm, weights[stage], rewards[stage])))
        stage, steps = ends.pop()  # type: ignore[misc]  # None is refused above
        durations.add(steps + 1)
    if stage != first or len(durations) != 1:
        return None
    return Bandit(tuple(stages), durations.pop())


def _is_uncertain(rows: np.ndarray) -> bool:
    return bool(((rows > 0).sum(1) > 1).any())


def _walk(weights: np.ndarray, rewards: np.ndarray, state: int) -> tuple[int, int] | None:
    """Return the next state with arms and the decisions until there; None: there is a choice, a
    reward, or no such state.
    """
    for steps in range(len(weights)):
        if _is_uncertain(weights[state]):
            return state, steps
        after = np.flatnonzero((weights[state] > 0).any(0))
        if len(after) != 1 or rewards[state][:, after[0]].any():
            return None
        state = int(after[0])
    return None


def _arm(weights: np.ndarray, rewards: np.ndarray) -> Arm:
    """Return a row as an arm, outcomes that pay the same taken together."""
    possible = weights > 0
    kinds = np.unique(rewards[possible])
    totals = [float(weights[possible & (rewards == kind)].sum()) for kind in kinds]
    return Arm(tuple(map(float, kinds)), tuple(totals))
