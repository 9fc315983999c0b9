"""Look-ahead: backward induction over what may be observed in the first decisions, then BEB."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl.agents.bayes.mean_model import BEB, Belief
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import incremental
from jbrl.mdp.backward import Table, make_table, mean_values
from jbrl.mdp.counts import Cell, Layers
from jbrl.mdp.dirichlet import GREATEST, distribution
from jbrl.mdp.model import make_model
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import (
    BAYESIAN,
    Agent,
    Findings,
    MadeOfWeights,
    OfflineSearch,
    Stepwise,
    Transition,
    Trials,
)

DEEPEST, MOST_LEAVES = 30, 50_000  # (state, counts) after the last decision of the look-ahead
MOST_ROWS = 30_000  # uncertain rows of all cells after it
ROW_SECONDS = 5e-4  # of one of them, by value iteration in the mean MDPs of its cell
MOST_BLOCKS = 60  # states with uncertain rows: axes of an array
PART = 32  # cells between two checkpoints
START, BEYOND = -1, 0  # nodes: before the first decision, after the look-ahead

Arrays = dict[str, np.ndarray]


@record
class LookAheadState:
    belief: Belief
    node: Array  # [] int32


@record
class LookAheadStrategy(MadeOfWeights, Stepwise[Belief, LookAheadState]):
    """The greedy actions of a look-ahead where what was observed is in it, then those of BEB.

    A node is what was observed so far: a state and the counts of transitions. Node 0 stands for all
    that the look-ahead does not know.
    """

    first: Array  # [S] int32, node in which a lifetime begins in each state
    states: Array  # [N] int32, -1 for node 0
    actions: Array  # [N] int32
    after: Array  # [N, S] int32, node after a transition to each state
    rest: BEB = BEB()

    requires = BAYESIAN

    def train(self, key: Array, prior: DirichletPrior) -> Belief:
        return self.rest.train(key, prior)

    def reset(self, key: Array, knowledge: Belief) -> LookAheadState:
        return LookAheadState(knowledge, jnp.int32(START))

    def _node(self, state: LookAheadState, x: Array) -> Array:
        """Return the node in state `x`, which another episode may have begun in."""
        node = jnp.where(state.node == START, self.first[x], jnp.maximum(state.node, BEYOND))
        return jnp.where(self.states[node] == x, node, BEYOND)

    def act(
        self, key: Array, state: LookAheadState, observation: Array
    ) -> tuple[Array, LookAheadState]:
        node = self._node(state, observation)
        action, _ = self.rest.act(key, state.belief, observation)
        return jnp.where(node == BEYOND, action, self.actions[node]), state

    def add_transition(self, state: LookAheadState, transition: Transition) -> LookAheadState:
        after = self.after[self._node(state, transition.observation), transition.next_observation]
        return LookAheadState(
            self.rest.add_transition(state.belief, transition),
            jnp.where(self.converged(state), after, state.node),
        )

    def improve(self, state: LookAheadState) -> LookAheadState:
        return dataclasses.replace(state, belief=self.rest.improve(state.belief))

    def converged(self, state: LookAheadState) -> Array:
        return incremental.converged(state.belief.plan)


@register_agent("Look-ahead", cite="martin1967,kolter2009")
class LookAheadAgent(OfflineSearch, Agent[None, None]):
    """Bayes-optimal for the first decisions if the posterior mean is all that matters after them,
    then BEB.

    Offline, backward induction over each state and counts of transitions that D decisions may lead
    to, from the optimal values of the posterior-mean MDPs there, for the decisions that are then
    left. Equal counts are merged, and so are exchangeable actions. The greedy
    actions play; of those that tie the first. After D decisions, and where something happens that
    is impossible under the prior, BEB with a bonus of beta / (1 + n) per pair plays. Where D is the
    horizon the policy is Bayes-optimal (Martin 1967).

    D is `decisions`, or less where (state, counts) would be more than 50,000. One decision costs
    what it costs BEB.
    """

    decisions: int = parameter(
        DEEPEST, "decisions to look ahead, at most", low=0, high=DEEPEST, static=True
    )
    beta: float = parameter(0.0, "weight of the bonus afterwards", low=0.0, high=GREATEST)

    requires = BAYESIAN
    version = 2

    def search(
        self, seed: int, prior: DirichletPrior, trials: Trials, before: Findings | None
    ) -> Iterator[Findings]:
        before = before or begin()
        yield before
        layers = layers_of(prior)
        depth, horizon = min(self.decisions, deepest(layers, prior.horizon)), prior.horizon
        yield from plan_ahead(layers, depth, float(prior.discount), horizon, before)

    def strategy(self, findings: Findings) -> Agent:
        return self.trained(self.weights(findings))

    def weights(self, findings: Findings) -> Arrays:
        return {name: findings.arrays[name] for name in ("first", "states", "actions", "after")}

    def trained(self, weights: Arrays) -> Agent:
        arrays: Any = weights
        return LookAheadStrategy(**arrays, rest=BEB(beta=self.beta))

    def search_seconds(self, prior: DirichletPrior) -> float:
        mdps = prior.mdps
        given = (np.asarray(v) for v in (mdps.concentrations, mdps.rewards))
        key = (v.tobytes() for v in given)
        return ROW_SECONDS * _rows(
            mdps.concentrations.shape, *key, int(mdps.initial_state), self.decisions, prior.horizon
        )

    def arms(self, findings: Findings) -> Arrays:
        """Return one row: the look-ahead, and its value by the mean MDPs."""
        arrays = findings.arrays
        return {
            "strategy": np.array([f"look-ahead of {int(arrays['depth'])} decisions"]),
            "pulls": np.array([findings.consumed]),
            "mean": arrays["value"][None],
            "std": np.array([np.nan]),
            "discarded": np.array([False]),
            "chosen": np.array([True]),
        }


def begin() -> Findings:
    """Return the findings before anything is computed."""
    return Findings(0, 0, 1, {"leaves": np.zeros(0)})


def plan_ahead(
    layers: Layers, depth: int, discount: float, horizon: int, before: Findings, threads: int = 1
) -> Iterator[Findings]:
    """Yield the values at the end of a look-ahead, more of them each time, and at last the
    greedy choices.
    """
    known, done, cells = before.arrays["leaves"], before.consumed, layers.layer(depth)
    while done < len(cells):
        part = cells[done : done + PART]
        values = mean_values(layers, part, discount, horizon - depth, threads)
        known = np.concatenate([known, *(values[cell].ravel() for cell in part)])
        done += len(part)
        yield Findings(done, done, len(cells) + 1, {"leaves": known})
    ends = np.cumsum([layers.size(cell) for cell in cells])[:-1]
    leaves = {
        cell: array.reshape(layers.shape(cell))
        for cell, array in zip(cells, np.split(known, ends), strict=True)
    }
    table = make_table(layers, depth, leaves, discount, threads)
    arrays = {"depth": np.array(depth), "value": np.array(table.value), **followed(table)}
    yield Findings(done + 1, done + 1, done + 1, arrays)


def layers_of(prior: DirichletPrior) -> Layers:
    """Return what may be counted under a prior. Symmetric states are not merged."""
    return Layers(make_model(prior.mdps), merge_states=False)


def deepest(layers: Layers, horizon: int) -> int:
    """Return the number of decisions of the deepest look-ahead that is small."""
    decisions = 0
    if len(layers.blocks) > MOST_BLOCKS:
        return decisions
    while decisions < min(DEEPEST, horizon) and _is_small(layers, decisions + 1):
        decisions += 1
    return decisions


def _is_small(layers: Layers, decisions: int) -> bool:
    if layers.divisions(decisions) > MOST_LEAVES or layers.count(decisions) > MOST_LEAVES:
        return False
    return len(layers.layer(decisions)) * layers.model.n_uncertain <= MOST_ROWS


@functools.lru_cache(64)
def _rows(
    shape: tuple[int, ...], weights: bytes, rewards: bytes, first: int, most: int, horizon: int
) -> int:
    """Return the number of uncertain rows of all cells after the look-ahead."""
    counts, gains = (np.frombuffer(v, np.float32).reshape(shape) for v in (weights, rewards))
    layers = Layers(make_model(distribution(counts, gains, first)), merge_states=False)
    depth = min(most, deepest(layers, horizon))
    return len(layers.layer(depth)) * layers.model.n_uncertain


def followed(table: Table) -> Arrays:
    """Return the greedy choices that a policy which takes them can come to: the arrays of a
    `LookAheadStrategy` by name.

    Nodes are of single actions, where the table merges exchangeable ones.
    """
    layers, nodes = table.layers, _Nodes()
    size = sum(block.block.concentrations.size for block in layers.blocks)
    # counts [n, size] after which a cell is met, and their nodes [n]
    here = {cell: np.zeros((1, size), np.int16) for cell in layers.first if table.choices}
    numbers = {cell: nodes.add(cell.state, 1) for cell in here}
    first = np.zeros(layers.model.n_states, np.int32)
    for cell, number in numbers.items():
        first[cell.state] = number[0]
    for t, choices in enumerate(table.choices):
        reached: dict[Cell, list[tuple[np.ndarray, np.ndarray]]] = {}
        for cell, counts in here.items():
            chosen = _actions(table, choices[cell], cell, counts)
            nodes.actions.append(chosen)
            for u in np.unique(chosen):
                mine = chosen == u
                for to, seen in _outcomes(layers, cell, int(u), counts[mine]):
                    reached.setdefault(to, []).append((numbers[cell][mine], seen))
        here, numbers = {}, {}
        for cell, parts in reached.items() if t + 1 < len(table.choices) else ():
            sources, seen = (np.concatenate(some) for some in zip(*parts, strict=True))
            here[cell], places = np.unique(seen, axis=0, return_inverse=True)
            numbers[cell] = nodes.add(cell.state, len(here[cell]))
            nodes.edges.append((sources, cell.state, numbers[cell][places.reshape(-1)]))
    return {"first": first, **nodes.arrays(layers.model.n_states)}


class _Nodes:
    """Nodes of a `LookAheadStrategy` that are numbered one after the other."""

    def __init__(self) -> None:
        self.states, self.actions = [np.array([-1])], [np.array([0])]
        self.edges: list[tuple[np.ndarray, int, np.ndarray]] = []  # nodes, next state, nodes there
        self._count = 1

    def add(self, state: int, n: int) -> np.ndarray:
        """Return the numbers of n new nodes in a state."""
        self.states.append(np.full(n, state))
        self._count += n
        return np.arange(self._count - n, self._count)

    def arrays(self, n_states: int) -> Arrays:
        after = np.full((self._count, n_states), BEYOND, np.int32)
        for sources, y, to in self.edges:
            after[sources, y] = to
        joined = {"states": self.states, "actions": self.actions}
        return {
            "after": after,
            **{k: np.concatenate(v).astype(np.int32) for k, v in joined.items()},
        }


def _parts(layers: Layers, counts: np.ndarray) -> list[np.ndarray]:
    """Return the counts of each block, views [n, A, K] of counts [n, size]."""
    shapes = [block.block.concentrations.shape for block in layers.blocks]
    ends = np.cumsum([a * k for a, k in shapes])[:-1]
    split = np.split(counts, ends, axis=1)
    return [part.reshape(-1, *shape) for part, shape in zip(split, shapes, strict=False)]


def _actions(table: Table, choices: np.ndarray, cell: Cell, counts: np.ndarray) -> np.ndarray:
    """Return the greedy actions after `counts` [n, size] in a cell: [n] int."""
    layers, model = table.layers, table.layers.model
    parts = zip(layers.blocks, cell.totals, _parts(layers, counts), strict=True)
    placed = [block.place(total, part) for block, total, part in parts]
    chosen = choices[tuple(place for place, _ in placed)].reshape(-1)
    certain = np.array([row.action for row in model.certain[cell.state]], int)
    number = int(model.block_of[cell.state])
    if number < 0:
        return certain[chosen]
    order, row = placed[number][1], np.maximum(chosen - len(certain), 0)
    row = np.take_along_axis(order, row[:, None], 1)[:, 0]
    uncertain = np.array(model.blocks[number].actions)[row]
    padded = np.append(certain, 0)
    return np.where(chosen < len(certain), padded[np.minimum(chosen, len(certain))], uncertain)


def _outcomes(
    layers: Layers, cell: Cell, action: int, counts: np.ndarray
) -> Iterator[tuple[Cell, np.ndarray]]:
    """Yield each cell that an action may lead to, and the counts there."""
    number = int(layers.model.block_of[cell.state])
    for row in layers.model.certain[cell.state]:
        if row.action == action:
            yield Cell(row.successor, cell.totals), counts
            return
    block = layers.model.blocks[number]
    row_number = block.actions.index(action)
    for k in map(int, np.flatnonzero(block.possible[row_number])):
        seen = counts.copy()
        _parts(layers, seen)[number][:, row_number, k] += 1
        yield layers.successor(cell, k), seen
