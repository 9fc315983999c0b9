"""OPPS: offline, prior-based policy search, over formulas (OPPS-DS) or weights (OPPS-CS)."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jbrl.agents.opps import bandits
from jbrl.agents.opps.bandits import Bandit, SequentialHalving
from jbrl.agents.opps.evaluation import check_defined
from jbrl.agents.opps.formulas import (
    DOMAINS,
    LARGEST_SET,
    VARIABLES,
    Expression,
    formula_set,
)
from jbrl.agents.opps.parsing import parse
from jbrl.agents.opps.ranking import (
    Formula,
    FormulaPolicy,
    Linear,
    features,
    formula_policies,
    linear_policies,
)
from jbrl.agents.opps.stosoo import PartitionTree, StoSOO
from jbrl.agents.opps.ucb import UCB1, UCBV
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError, shown
from jbrl.base.parameters import parameter
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Findings, OfflineSearch, Trials

SETS = tuple(f"F{n}" for n in range(1, LARGEST_SET + 1))
LARGEST_BUDGET = 10**8
FEWEST_VALUES = 5  # of a search by StoSOO that can find more than the centre of the box


@functools.cache
def space_of(space: str, domain: str) -> tuple[Expression, ...]:
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
    found = [parse(text.strip()) for text in texts]
    for number, expression in enumerate(found):
        check_defined(expression)
        if expression in found[:number]:
            raise JbrlError(
                f"'{given}': formula '{expression.text}' is there twice; expected each once"
            )
    return tuple(found)


def _check_space(text: str) -> None:
    space_of(text, DOMAINS[0])


@dataclasses.dataclass(frozen=True)
class _Groups:
    """A space of formulas, sorted by number of variables: each sort is one compiled program."""

    policies: dict[int, FormulaPolicy]  # by number of variables, stacked
    group: np.ndarray  # [N] number of variables of each formula
    row: np.ndarray  # [N] its place among those of its group

    def pick(self, group: int, arms: np.ndarray) -> FormulaPolicy:
        """Return the policies of `arms`, all of one group."""
        return jax.tree.map(lambda v: v[self.row[arms]], self.policies[group])


@functools.cache
def _grouped(space: tuple[Expression, ...]) -> _Groups:
    group = np.array([len(e.variables) for e in space])
    row = np.zeros(len(space), np.int64)
    policies = {}
    for number in np.unique(group):
        members = np.flatnonzero(group == number)
        row[members] = np.arange(len(members))
        policies[int(number)] = formula_policies([space[i] for i in members])
    return _Groups(policies, group, row)


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

    space: str = parameter("F3", "F1 … F6, or formulas separated by semicolons", check=_check_space)
    budget: int = parameter(10_000, "pulls in all", low=1, high=LARGEST_BUDGET)
    bandit: str = parameter(
        "UCB1", "how the next formula to try is chosen", choices=("UCB1", "UCB-V", "halving")
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
        groups, bandit = _grouped(space_of(self.space, self.domain)), self._bandit(prior)
        n_arms = len(groups.group)
        trials.compile(list(groups.policies.values()), max(n_arms, self.budget // 8))
        bandit.compile(n_arms, max(trials.width, n_arms, self.budget // 4))
        start = (
            bandits.begin(bandit, n_arms, seed)
            if before is None
            else bandits.restored(bandit, n_arms, before.arrays)
        )

        def pull(arms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
            returns = np.empty(len(arms))
            for group in groups.policies:
                mine = np.flatnonzero(groups.group[arms] == group)
                if len(mine):
                    returns[mine] = trials(
                        groups.pick(group, arms[mine]), arms[mine], numbers[mine]
                    )
            return returns

        yield self._findings(start)
        for progress in bandits.search(bandit, start, self.budget, pull, trials.width):
            yield self._findings(progress)

    def strategy(self, findings: Findings) -> Agent:
        space, bandit = space_of(self.space, self.domain), self._bandit(None)
        chosen = space[
            bandit.recommend(bandits.restored(bandit, len(space), findings.arrays).state)
        ]
        parameters: dict[str, Any] = {"formula": chosen.text}
        return Formula(**parameters)

    def arms(self, findings: Findings) -> dict[str, np.ndarray]:
        space, bandit = space_of(self.space, self.domain), self._bandit(None)
        state = bandits.restored(bandit, len(space), findings.arrays).state
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

    def _bandit(self, prior: DirichletPrior | None) -> Bandit[Any]:
        """Return the bandit; without a prior, one that can only recommend."""
        scale = 0.0 if prior is None else _range(prior)
        kinds: dict[str, Bandit[Any]] = {
            "UCB1": UCB1(self.c or math.sqrt(2) * scale),
            "UCB-V": UCBV(scale),
            "halving": SequentialHalving(),
        }
        return kinds[self.bandit]

    def _findings(self, progress: bandits.BanditProgress[Any]) -> Findings:
        return Findings(
            progress.state.pulls, progress.streams.simulated, self.budget, bandits.arrays(progress)
        )


def _range(prior: DirichletPrior) -> float:
    """Return the distance between the least and the greatest possible discounted return."""
    rewards, discount = np.asarray(prior.mdps.rewards, np.float64), float(prior.discount)
    return float(rewards.max() - rewards.min()) * (1 - discount**prior.horizon) / (1 - discount)


def _check_features(text: str) -> None:
    features(text)


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
        "Q0,Q1,Q2", "Q-functions to weigh, separated by commas", check=_check_features
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
        names, rules, draws = (
            features(self.variables),
            self._rules(seed),
            min(self.draws, self.budget),
        )
        trials.compile([linear_policies(names, np.zeros((1, len(names))))], draws)
        start = rules.start() if before is None else _tree(before)
        evaluations = itertools.count(start.evaluations)

        def value(weights: np.ndarray) -> float:
            first = next(evaluations) * draws
            policies = linear_policies(names, np.broadcast_to(weights, (draws, len(names))))
            return float(
                trials(policies, np.zeros(draws, np.int64), np.arange(first, first + draws)).mean()
            )

        yield self._findings(start)
        for tree in rules.search(value, start):
            yield self._findings(tree)

    def strategy(self, findings: Findings) -> Agent:
        tree, names = _tree(findings), features(self.variables)
        weights = tree.centres[self._rules(0).best(tree)]
        parameters: dict[str, Any] = {
            f"w{name[1]}": float(w) for name, w in zip(names, weights, strict=True)
        }
        return Linear(**parameters | {"variables": ",".join(names)})

    def arms(self, findings: Findings) -> dict[str, np.ndarray]:
        tree, names = _tree(findings), features(self.variables)
        centres = np.round(tree.centres, 4) + 0.0  # no -0
        texts = [
            " + ".join(f"{w:g} {name}" for name, w in zip(names, centre, strict=True))
            for centre in centres
        ]
        tried = tree.counts > 0
        return {
            "strategy": np.array(texts)[tried],
            "pulls": (tree.counts * min(self.draws, self.budget))[tried],
            "mean": tree.means[tried],
            "std": np.full(int(tried.sum()), np.nan),
            "discarded": np.zeros(int(tried.sum()), bool),
            "chosen": (np.arange(len(tree.counts)) == self._rules(0).best(tree))[tried],
        }

    def _rules(self, seed: int) -> StoSOO:
        n = len(features(self.variables))
        evaluations = max(1, self.budget // self.draws)
        return StoSOO(
            (-self.width,) * n,
            (self.width,) * n,
            evaluations,
            scale=self.scale,
            linger=self.linger,
            seed=seed,
        )

    def _findings(self, tree: PartitionTree) -> Findings:
        used = tree.evaluations * min(self.draws, self.budget)
        return Findings(
            used, used, self.budget, {name: np.asarray(value) for name, value in vars(tree).items()}
        )


def _tree(findings: Findings) -> PartitionTree:
    saved: dict[str, Any] = {
        name: value if value.ndim else value.item() for name, value in findings.arrays.items()
    }
    return PartitionTree(**saved)
