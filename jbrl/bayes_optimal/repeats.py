"""Upper bounds for problems whose rows are all alike: an agent chooses which outcome repeats.

After n outcomes of a row with concentrations of sum a, the next outcome is a new draw from the mean
row with probability a / (a + n), and one of the n again otherwise (Blackwell and MacQueen 1973).
New draws do not depend on the row, so nobody steers them; of those that repeat, the agent of this
bound may choose. docs/bounds-proofs.md has the proof. Nothing is sampled.
"""

import dataclasses
import itertools

import numpy as np

from jbrl.mdp.model import Model

MOST = 250  # outcomes of a kind that are counted; with more, each decision pays the reward
MOST_STEPS = 1000  # decisions; after them, too

Counted = tuple[np.ndarray, np.ndarray]  # how many repeat, and what one of them is worth


@dataclasses.dataclass(frozen=True)
class Repeats:
    """A problem with rows that are alike: S states, a transition to each of them as likely as to
    the others under the prior. Some states are *targets*: they pay in transitions to one other
    state. The first state is none of them.
    """

    n_states: int
    n_targets: int
    reward: float
    total: float  # a, the sum of the concentrations of a row
    discount: float
    horizon: int

    @property
    def _paid(self) -> float:
        """Return the mean reward of a decision in a target."""
        return self.reward / self.n_states

    @property
    def _mean(self) -> float:
        """Return the mean reward of a decision in a state drawn evenly."""
        return self._paid * self.n_targets / self.n_states

    def value(self) -> float:
        """Return the bound: the value of the mean MDP, and what there is to gain beyond it."""
        return self.discount * self._mean * self._sum(self.horizon - 1) + self._gain()

    def _sum(self, decisions: int) -> float:
        """Return what a reward of 1 in each of so many decisions is worth."""
        return (1 - self.discount**decisions) / (1 - self.discount)

    def _gain(self) -> float:
        """Return a limit of what learning adds to the value of the mean MDP.

        Arrays [I, Z]: i transitions to targets, and z payments, so far. `new` and `again` are gains
        in a state that a new draw leads to, on average over the states of its kind, and in one that
        is chosen.
        """
        most = min(self.horizon, MOST)
        i, z = np.indices((most + 2, most + 2)).astype(float)
        outside = (i > most) | (z > most)
        steps = min(self.horizon, MOST_STEPS)
        rest = np.full(i.shape, self.reward * self._sum(self.horizon - steps))
        other_new = other_again = target_new = target_again = rest
        for t in reversed(range(steps)):
            discount = self.discount if t < self.horizon - 1 else 0.0
            after = _After(self, discount, other_new, other_again, target_new, target_again)
            other_new, other_again = after.elsewhere(t, i)
            target_new, target_again = after.in_target(i, z)
            limit = self.reward * self._sum(self.horizon - t)
            for array in (other_new, other_again, target_new, target_again):
                np.minimum(array, limit, out=array)
                array[outside] = limit
        return float(other_new[0, 0])


class _After:
    """Gains of a decision, from those after it."""

    def __init__(
        self,
        problem: Repeats,
        discount: float,
        other_new: np.ndarray,
        other_again: np.ndarray,
        target_new: np.ndarray,
        target_again: np.ndarray,
    ) -> None:
        self._problem, self._discount = problem, discount
        self._lost = discount * problem._mean  # by not reaching a target
        # a transition to a target is one more of them
        new, again = _more(target_new, 0), _more(target_again, 0)
        paid = _more(other_again, 1)
        n, q = problem.n_states, problem.n_targets
        reached = q / n * new
        self._base = discount * (reached + (n - q) / n * other_new)
        in_target = discount * (reached + paid / n + (n - q - 1) / n * other_new)
        self._base_in_target = np.maximum(in_target, self._base - problem._paid)
        self._to_target = discount * (again + problem._paid) - self._lost
        self._to_other = discount * other_again - self._lost
        self._payment = problem.reward + discount * paid - self._lost

    def elsewhere(self, t: int, i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gains after t decisions in a state that is no target."""
        n = self._problem.n_states - self._problem.n_targets - 1
        base, visits = self._base, np.full_like(i, t)
        counted = [(i, self._to_target - base), (visits, self._to_other - base)]
        return base + self._spread(counted, n), base + self._best(counted)

    def in_target(self, i: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gains in a target, which is one of the i transitions."""
        base, paid, q = self._base_in_target, self._problem._paid, self._problem.n_targets
        before = np.maximum(i - 1, 0)
        counted = [
            (z, self._payment - paid - base),
            (before, self._to_target - paid - base),
            (before, self._to_other - paid - base),
        ]
        return base + self._spread(counted, q), base + self._best(counted)

    def _spread(self, counted: list[Counted], n_states: int) -> np.ndarray:
        """Return a limit of the mean gain by repeated outcomes of n states that share them."""
        a, gain = self._problem.total, np.zeros_like(self._base)
        for count, worth in counted:
            each = count / n_states
            gain += np.minimum(each / (a + 1), each / (a + each)) * np.maximum(worth, 0)
        return gain

    def _best(self, counted: list[Counted]) -> np.ndarray:
        """Return the greatest gain by repeated outcomes if one row has any number of each of them:
        all or none, since the gain is monotone in each number.
        """
        best = np.zeros_like(self._base)
        for some in itertools.product((0, 1), repeat=len(counted)):
            total, gain = np.full_like(best, self._problem.total), np.zeros_like(best)
            for chosen, (count, worth) in zip(some, counted, strict=True):
                if chosen:
                    total += count
                    gain += count * worth
            np.maximum(best, gain / total, out=best)
        return best


def _more(array: np.ndarray, axis: int) -> np.ndarray:
    """Return the values with one more outcome of a kind."""
    last = np.take(array, [-1], axis)
    return np.concatenate([np.delete(array, 0, axis), last], axis)


def repeats(model: Model, discount: float, horizon: int) -> Repeats | None:
    """Return the bound, or None where the problem is not of this kind."""
    weights = np.asarray(model.mdps.concentrations, np.float64)
    rewards = np.asarray(model.mdps.rewards, np.float64)
    pays = np.any(rewards > 0, axis=(1, 2))
    first = model.first_states
    if np.ptp(weights) > 0 or (rewards < 0).any() or not pays.any() or len(first) != 1:
        return None
    reward, n_states = float(rewards.max()), len(weights)
    to = [np.flatnonzero((rewards[x] > 0).any(0)) for x in np.flatnonzero(pays)]
    if ((rewards > 0) & (rewards < reward)).any() or any(len(one) != 1 for one in to):
        return None
    if pays[first[0]] or any(pays[int(one[0])] for one in to) or pays.sum() > n_states - 2:
        return None
    total = float(weights[0, 0].sum())
    return Repeats(n_states, int(pays.sum()), reward, total, float(discount), int(horizon))
