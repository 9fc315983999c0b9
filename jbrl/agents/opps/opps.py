"""OPPS: offline, prior-based policy search, over formulas (OPPS-DS) or weights (OPPS-CS).

Weights are searched by StoSOO, stochastic simultaneous optimistic optimisation: the maximum of a
function of a few numbers that can only be evaluated with noise. Valko, Carpentier and Munos 2013.
The box of parameters is cut into ever smaller cells, a tree. Sweeps over the depths of the tree
take, at each depth, the cell of the greatest upper confidence bound, provided that it is no smaller
than that of any cell cut in this sweep at a lesser depth; the cell is evaluated at its centre or,
once it has been often enough, cut. How smooth the function is need not be known.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jbrl.agents.opps import bandits
from jbrl.agents.opps.bandits import Bandit, StreamState
from jbrl.agents.opps.evaluation import check_defined
from jbrl.agents.opps.formulas import DOMAINS, SETS, VARIABLES, Expression, formula_set, parse
from jbrl.agents.opps.ranking import Formula, Linear, features, formula_policies, linear_policies
from jbrl.agents.opps.ucb import UCB1, UCBV
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError, shown
from jbrl.base.parameters import parameter
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Findings, OfflineSearch, Trials

PARTS = 3  # into which a cell is cut, odd: one of them has the centre of the cell


@dataclass(frozen=True)
class PartitionTree:
    """State of a search. M cells, D parameters; a cell comes after its parent."""

    low: npt.NDArray[np.float64]  # [M, D]
    high: npt.NDArray[np.float64]  # [M, D]
    depth: np.ndarray  # [M] int64
    counts: np.ndarray  # [M] int64, evaluations
    sums: np.ndarray  # [M] float64, of values
    cut: np.ndarray  # [M] bool, the cell has children
    level: int  # depth that the sweep has come to
    bound: float  # greatest bound of a cell cut in this sweep

    @property
    def evaluations(self) -> int:
        return int(self.counts.sum())

    @property
    def centres(self) -> np.ndarray:
        """Points at which the cells are evaluated: [M, D]."""
        return (self.low + self.high) / 2

    @property
    def means(self) -> np.ndarray:
        """Mean values [M], NaN for cells never evaluated."""
        with np.errstate(invalid="ignore"):
            return self.sums / self.counts


@dataclass(frozen=True)
class StoSOO:
    """The rules of a search for the greatest value in a box.

    The bound of a cell evaluated m times is mean + scale sqrt(log(n k / delta) / (2 m)), for values
    in a range of `scale`; n is the budget, delta 1 / sqrt(n), and k the evaluations before a cell
    is cut into `PARTS`.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    budget: int  # evaluations in all
    scale: float = 1.0
    # stay at a depth until a cell of it is cut; published: one evaluation, then on to the
    # next depth
    linger: bool = False
    seed: int = 0  # of the parameter along which each cell is cut

    @property
    def k(self) -> int:
        """Evaluations before a cell is cut: n / log(n)^3."""
        if self.budget < 2:
            return 1
        return max(1, min(self.budget, int(self.budget / math.log(self.budget) ** 3)))

    @property
    def depth(self) -> int:
        """Depth of the smallest cells that are evaluated: sqrt(n / k)."""
        return max(1, math.isqrt(self.budget // self.k))

    @property
    def fewest(self) -> int:
        """Budget below which the answer is the centre of the box, for any values: no part of the
        box is cut before.

        The box and one of its parts take k evaluations each, all other parts one, and a cell is cut
        only if one is left.
        """
        return 2 * self.k + PARTS

    def start(self) -> PartitionTree:
        """Return the tree of the whole box, not evaluated."""
        one = np.zeros(1, np.int64)
        return PartitionTree(
            low=np.array([self.low], float),
            high=np.array([self.high], float),
            depth=one,
            counts=one,
            sums=np.zeros(1),
            cut=np.zeros(1, bool),
            level=0,
            bound=-math.inf,
        )

    def search(
        self,
        evaluate: Callable[[npt.NDArray[np.float64]], float],
        tree: PartitionTree | None = None,
    ) -> Iterator[PartitionTree]:
        """Search until the budget is spent; yields the tree after each evaluation.

        Args:
          evaluate: a value, with noise, at a point [D].
          tree: where to go on; None: from the start.

        Raises:
          JbrlError: a value that is not finite.
        """
        tree = tree or self.start()
        while tree.evaluations < self.budget:
            tree, cell = self._next(tree)
            value = evaluate(tree.centres[cell])
            if not math.isfinite(value):
                raise JbrlError(
                    f"StoSOO: value {value!r} at {tree.centres[cell].tolist()}: expected a finite "
                    "number"
                )
            counts, sums = tree.counts.copy(), tree.sums.copy()
            counts[cell] += 1
            sums[cell] += value
            tree = replace(tree, counts=counts, sums=sums)
            yield tree

    def best(self, tree: PartitionTree) -> int:
        """Return the cell whose centre is the answer: the one of the greatest mean among the
        deepest cells that were cut or, if none was, among all evaluated ones.

        Raises:
          JbrlError: nothing was evaluated.
        """
        candidates = np.flatnonzero(tree.counts > 0)
        if not len(candidates):
            raise JbrlError("StoSOO: no answer before the first evaluation")
        if tree.cut.any():
            candidates = np.flatnonzero(tree.cut & (tree.depth == tree.depth[tree.cut].max()))
        return int(candidates[np.argmax(tree.means[candidates])])

    def _next(self, tree: PartitionTree) -> tuple[PartitionTree, int]:
        """Return the tree with the cells cut on the way, and the cell to evaluate next."""
        while True:
            if tree.level > min(int(tree.depth.max()), self.depth):
                tree = replace(tree, level=0, bound=-math.inf)
            leaves = np.flatnonzero(~tree.cut & (tree.depth == tree.level))
            bounds = self._bounds(tree, leaves)
            deeper = replace(tree, level=tree.level + 1)
            if not len(leaves) or bounds.max() < tree.bound:
                tree = deeper
                continue
            cell = int(leaves[np.argmax(bounds)])
            if tree.counts[cell] < self.k:
                return tree if self.linger else deeper, cell
            tree = replace(self._cut(deeper, cell), bound=float(bounds.max()))

    def _bounds(self, tree: PartitionTree, cells: np.ndarray) -> np.ndarray:
        counts = tree.counts[cells]
        delta = 1 / math.sqrt(self.budget)
        spread = math.log(self.budget * self.k / delta)
        width = self.scale * np.sqrt(spread / (2 * np.maximum(counts, 1)))
        return np.where(counts > 0, tree.means[cells] + width, math.inf)

    def _cut(self, tree: PartitionTree, cell: int) -> PartitionTree:
        axis = int(np.random.default_rng((self.seed, cell)).integers(len(self.low)))
        edges = np.linspace(tree.low[cell, axis], tree.high[cell, axis], PARTS + 1)
        low, high = (
            np.repeat(side[cell : cell + 1], PARTS, axis=0) for side in (tree.low, tree.high)
        )
        low[:, axis], high[:, axis] = edges[:-1], edges[1:]
        cut = np.append(tree.cut, np.zeros(PARTS, bool))
        cut[cell] = True
        return replace(
            tree,
            low=np.concatenate([tree.low, low]),
            high=np.concatenate([tree.high, high]),
            depth=np.append(tree.depth, np.full(PARTS, tree.depth[cell] + 1)),
            counts=np.append(tree.counts, np.zeros(PARTS, np.int64)),
            sums=np.append(tree.sums, np.zeros(PARTS)),
            cut=cut,
        )


LARGEST_BUDGET = 10**8
FEWEST_VALUES = 5  # of a search by StoSOO that can find more than the centre of the box


@functools.cache
def space_of(space: str, domain: str = DOMAINS[0]) -> tuple[Expression, ...]:
    """Return the formulas to search: a set by its name, or a list separated by semicolons.

    Raises:
      JbrlError: no formula, one that cannot be read or is undefined everywhere, or the same twice.
    """
    if space.strip() in SETS:
        return formula_set(space.strip(), domain)
    texts = [text for text in space.split(";") if text.strip()]
    given, accepted = (
        shown(space, str),
        f"one of {', '.join(SETS)}, or formulas separated by semicolons: 'Q0; Q0/Q2'",
    )
    if not texts:
        raise JbrlError(f"'{given}': an empty space; expected {accepted}")
    if len(texts) == 1 and not any(name in space for name in VARIABLES):
        raise JbrlError(f"'{given}': unknown space; expected {accepted}")
    formulas = [parse(text.strip()) for text in texts]
    for number, expression in enumerate(formulas):
        check_defined(expression)
        if expression in formulas[:number]:
            raise JbrlError(
                f"'{given}': formula '{expression.text}' is there twice; expected each once"
            )
    return tuple(formulas)


@register_agent("OPPS-DS", cite="castronovo2016,castronovo2012,auer2002")
class OPPSDS(OfflineSearch, Agent[None, None]):
    """A small formula, chosen offline by a bandit that plays all of them on the prior.

    Each formula of the space is an arm. A pull draws an MDP from the prior, plays one trajectory by
    `Formula` on it and returns its discounted return. A formula that is undefined somewhere on the
    way is discarded; the pull does not count. After `budget` pulls the bandit recommends one
    formula, which then plays (UCB1 and UCB-V: the one most pulled). Castronovo et al. 2016,
    section 5.1.4.

    One decision costs what it costs `Formula`; a pull costs a trajectory of them.
    """

    space: str = parameter("F3", "F1 … F6, or formulas separated by semicolons", check=space_of)
    budget: int = parameter(10_000, "pulls in all", low=1, high=LARGEST_BUDGET)
    bandit: str = parameter(
        "UCB1", "how the next formula to try is chosen", choices=("UCB1", "UCB-V")
    )
    c: float = parameter(
        0.0,
        "exploration of UCB1, in units of return; 0: √2 times the range of returns (published "
        "program: 660)",
        low=0,
    )
    domain: str = parameter(
        "signed",
        "which set of each size; `values`: of what ranks alike where no value is negative, one",
        choices=DOMAINS,
    )

    requires = BAYESIAN
    holds_model = True
    version = 2

    def search(
        self, seed: int, prior: DirichletPrior, trials: Trials, before: Findings | None
    ) -> Iterator[Findings]:
        space, bandit = space_of(self.space, self.domain), self._bandit(prior)
        n_arms = len(space)
        # formulas of as many variables share a compiled program
        sizes = np.array([len(e.variables) for e in space])
        policies, rows = {}, np.zeros(n_arms, np.int64)
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            rows[members] = np.arange(len(members))
            policies[size] = formula_policies([space[i] for i in members])

        def pull(arms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            returns = np.empty(len(arms))
            for size in np.unique(sizes[arms]):
                mine = np.flatnonzero(sizes[arms] == size)
                agents = jax.tree.map(lambda v, mine=mine: v[rows[arms[mine]]], policies[size])
                returns[mine] = trials(agents, arms[mine], numbers[mine])
            return returns

        trials.compile(list(policies.values()), max(n_arms, self.budget // 8))
        bandit.compile(n_arms, max(trials.width, n_arms, self.budget // 4))
        start = bandits.begin(bandit, n_arms, seed)
        if before is not None:
            start = bandits.restored(start, before.arrays)
        yield self._findings(start)
        for progress in bandits.search(bandit, start, self.budget, pull, trials.width):
            yield self._findings(progress)

    def strategy(self, findings: Findings) -> Agent:
        space, bandit, state = self._ended(findings)
        return Formula(formula=space[bandit.recommend(state)].text)

    def arms(self, findings: Findings) -> dict[str, np.ndarray]:
        space, bandit, state = self._ended(findings)
        with np.errstate(invalid="ignore", divide="ignore"):
            deviations = np.sqrt(state.variances * state.counts / (state.counts - 1))
        return {
            "strategy": np.array([e.text for e in space]),
            "pulls": state.counts,
            "mean": state.means,
            "std": np.where(state.counts > 1, deviations, np.nan),
            "discarded": state.discarded,
            "chosen": np.arange(len(space)) == bandit.recommend(state),
        }

    def _ended(self, findings: Findings) -> tuple[tuple[Expression, ...], Bandit[Any], StreamState]:
        """Return the space, the bandit and the state in which a search has ended."""
        space, bandit = space_of(self.space, self.domain), self._bandit(None)
        return space, bandit, bandits.refilled(bandit.start(len(space)), findings.arrays)

    def _bandit(self, prior: DirichletPrior | None) -> Bandit[Any]:
        """Return the bandit; without a prior, one that can only recommend."""
        scale = 0.0 if prior is None else _range(prior)
        kinds: dict[str, Bandit[Any]] = {
            "UCB1": UCB1(self.c or math.sqrt(2) * scale),
            "UCB-V": UCBV(scale),
        }
        return kinds[self.bandit]

    def _findings(self, progress: bandits.BanditProgress[Any]) -> Findings:
        arrays = bandits.as_arrays(progress.state, progress.streams)
        return Findings(progress.state.pulls, progress.streams.simulated, self.budget, arrays)


def _range(prior: DirichletPrior) -> float:
    """Return the distance between the least and the greatest possible discounted return."""
    possible, discount = np.asarray(prior.mdps.concentrations) > 0, float(prior.discount)
    rewards = np.asarray(prior.mdps.rewards, np.float64)[possible]
    return float(np.ptp(rewards)) * (1 - discount**prior.horizon) / (1 - discount)


def _weighed(points: np.ndarray, names: Sequence[str], digits: int) -> list[str]:
    """Write the weights of each of `points` as `0.3333 Q0 - 0.1111 Q2`."""
    return [
        " + ".join(f"{w:.{digits}g} {name}" for w, name in zip(point, names, strict=True)).replace(
            "+ -", "- "
        )
        for point in points
    ]


@register_agent("OPPS-CS", cite="castronovo2016,valko2013")
class OPPSCS(OfflineSearch, Agent[None, None]):
    """Weights of three Q-functions, chosen offline by optimistic optimisation on the prior.

    The strategies are those of `Linear`, with weights in a box. StoSOO cuts the box into ever
    smaller cells; a value of a cell is the mean return of the weights in its centre over `draws`
    MDPs drawn from the prior, one trajectory on each. The best of the deepest cells that were cut
    plays. Part of the program published with Castronovo et al. 2016; Valko, Carpentier and
    Munos 2013.

    One decision costs what it costs `Linear`; a value of a cell costs `draws` trajectories.

    Raises:
      JbrlError: a budget of so few values that the centre of the box, all weights 0, would be the
        answer for any values.
    """

    variables: str = parameter(
        "Q0,Q1,Q2", "Q-functions to weigh, separated by commas", check=features
    )
    budget: int = parameter(50_000, "trajectories in all", low=1, high=LARGEST_BUDGET)
    draws: int = parameter(500, "trajectories for one value, at most the budget", low=1, high=10**6)
    width: float = parameter(
        1.0, "weights are searched from minus this to this", low=0, high=1e6, open_low=True
    )
    scale: float = parameter(1.0, "range of the values that the bounds suppose", low=0, high=1e9)
    linger: bool = parameter(
        False,
        "stay at a depth until one of its cells is cut, instead of moving on after each value",
    )

    requires = BAYESIAN
    holds_model = True
    version = 2

    def __post_init__(self) -> None:
        # leaves of JAX's, not parameters
        if not all(type(value) is int for value in (self.budget, self.draws)):
            return
        rules = self._rules(0)
        if rules.budget < rules.fewest:
            raise JbrlError(
                f"budget = {self.budget}, draws = {self.draws}: {rules.budget} "
                f"value{'s' * (rules.budget > 1)} cannot tell one part of the box of weights from "
                f"another: expected a budget of {FEWEST_VALUES} times `draws` or more"
            )

    def search(
        self, seed: int, prior: DirichletPrior, trials: Trials, before: Findings | None
    ) -> Iterator[Findings]:
        names, rules, draws = features(self.variables), self._rules(seed), self._draws
        trials.compile([linear_policies(names, np.zeros((1, len(names))))], draws)
        start = rules.start() if before is None else self._tree(before)
        evaluations = itertools.count(start.evaluations)

        def value(weights: np.ndarray) -> float:
            first = next(evaluations) * draws
            policies = linear_policies(names, np.broadcast_to(weights, (draws, len(names))))
            numbers = np.arange(first, first + draws)
            return float(trials(policies, np.zeros(draws, np.int64), numbers).mean())

        yield self._findings(start)
        for tree in rules.search(value, start):
            yield self._findings(tree)

    def strategy(self, findings: Findings) -> Agent:
        tree, names = self._tree(findings), features(self.variables)
        weights = tree.centres[self._rules(0).best(tree)].tolist()
        named = {f"w{name[1]}": w for name, w in zip(names, weights, strict=True)}
        return Linear(**named, variables=",".join(names))

    def arms(self, findings: Findings) -> dict[str, np.ndarray]:
        tree, names = self._tree(findings), features(self.variables)
        # the middle part of a cell has its centre, up to rounding, and is the same strategy
        centres = np.round(tree.centres / self.width, 12) + 0.0  # no -0
        points, cells = np.unique(centres, axis=0, return_inverse=True)
        cells = cells.reshape(-1)
        counts = np.bincount(cells, tree.counts).astype(np.int64)
        means = np.bincount(cells, tree.sums)[counts > 0] / counts[counts > 0]
        chosen = np.arange(len(counts)) == cells[self._rules(0).best(tree)]
        texts = _weighed(points * self.width, names, 4)
        if len(set(texts)) < len(texts):
            texts = _weighed(points * self.width, names, 12)
        return {
            "strategy": np.array(texts)[counts > 0],
            "pulls": counts[counts > 0] * self._draws,
            "mean": means,
            "std": np.full(len(means), np.nan),
            "discarded": np.zeros(len(means), bool),
            "chosen": chosen[counts > 0],
        }

    @property
    def _draws(self) -> int:
        return min(self.draws, self.budget)

    def _rules(self, seed: int) -> StoSOO:
        box = (self.width,) * len(features(self.variables))
        values = max(1, self.budget // self.draws)
        low = tuple(-end for end in box)
        return StoSOO(low, box, values, scale=self.scale, linger=self.linger, seed=seed)

    def _tree(self, findings: Findings) -> PartitionTree:
        tree: PartitionTree = bandits.refilled(self._rules(0).start(), findings.arrays)
        return tree

    def _findings(self, tree: PartitionTree) -> Findings:
        used = tree.evaluations * self._draws
        return Findings(used, used, self.budget, bandits.as_arrays(tree))
