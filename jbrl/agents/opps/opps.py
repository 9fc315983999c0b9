"""OPPS: offline, prior-based policy search, over formulas (OPPS-DS) or weights (OPPS-CS)."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jbrl.agents.opps import bandits
from jbrl.agents.opps.bandits import Bandit, StreamState
from jbrl.agents.opps.evaluation import check_defined
from jbrl.agents.opps.formulas import DOMAINS, SETS, VARIABLES, Expression, formula_set, parse
from jbrl.agents.opps.ranking import Formula, Linear, features, formula_policies, linear_policies
from jbrl.agents.opps.stosoo import PartitionTree, StoSOO
from jbrl.agents.opps.ucb import UCB1, UCBV
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError, shown
from jbrl.base.parameters import parameter
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Findings, OfflineSearch, Trials

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
    rewards, discount = np.asarray(prior.mdps.rewards, np.float64), float(prior.discount)
    return float(rewards.max() - rewards.min()) * (1 - discount**prior.horizon) / (1 - discount)


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
        centres = np.round(tree.centres, 4) + 0.0  # no -0
        texts = [
            " + ".join(f"{w:g} {name}" for name, w in zip(names, centre, strict=True))
            for centre in centres
        ]
        tried = tree.counts > 0
        return {
            "strategy": np.array(texts)[tried],
            "pulls": (tree.counts * self._draws)[tried],
            "mean": tree.means[tried],
            "std": np.full(int(tried.sum()), np.nan),
            "discarded": np.zeros(int(tried.sum()), bool),
            "chosen": (np.arange(len(tree.counts)) == self._rules(0).best(tree))[tried],
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
