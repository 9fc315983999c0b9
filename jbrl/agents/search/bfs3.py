"""BFS3: forward search sparse sampling on the belief, for many decisions at once.

Decisions come unbatched and stay so for their callers; mapped, all trees of all lanes are searched
in lockstep (`forward_tree`). All random numbers of a decision are functions of its 64 random bits,
for any number of lanes.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents.registry import register_agent
from jbrl.agents.search.draws import bits, mix, spread
from jbrl.agents.search.forward_tree import (
    SAMPLES_BITS,
    TIE_TOLERANCE,
    Capacity,
    Forest,
    Limits,
    grow,
    increment,
    take,
    thresholds,
)
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_capacity, parameter, raise_capacity, round_up
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import count_transition
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Cost, HasCost, Transition
from jbrl.vectorize import native

FEW_TRAJECTORIES = 4  # in one tree: capacity for more would cost time where they are fewer
CACHED = 1 << 26  # bytes of trees above which a node takes twice as long


@record
class BFS3State:
    counts: Array  # [S, A, S] float32, prior concentrations + transitions seen
    rewards: Array  # [S, A, S] float32, known
    discount: Array  # [] float32
    low: Array  # [] float32, no value lies below
    high: Array  # [] float32, no value lies above


@register_agent("BFS3", cite="asmuth2011")
class BFS3(HasCost, Agent[DirichletPrior, BFS3State]):
    """Bayesian forward search sparse sampling: the most optimistic action of a tree of
    sampled futures.

    Sampled futures form trees in which each node is a belief: a state and the counts of all
    transitions, those of the future so far included. Each action of a node has C next states, drawn
    from the mean of that belief. Bounds on the values, at first those of the least and of the
    greatest reward for ever, tighten from the leaves up (`forward_tree`).

        root = "resampled":  Q(x, u) = (1/C) sum_i R(x, u, y_i) + g U(y_i), where U(y_i) comes from
                             a tree of its own, searched by max(1, floor(K / C)) trajectories: A C
                             trees for each decision. The published program.
        root = "single":     Q(x, u) = U(x, u) of one tree rooted in the present state, searched by
                             K trajectories. Asmuth and Littman 2011.

    The action of greatest Q is played, ties uniform. Castronovo et al. 2016, section 5.1.6. One
    decision costs A C max(1, K/C) depth nodes (single: K depth), a node S A C operations.
    """

    trajectories: int = parameter(15, "K, trajectories of the search", low=1, high=10**6)
    samples: int = parameter(
        5, "C, sampled next states of each action", low=1, high=2**SAMPLES_BITS - 1
    )
    depth: int = parameter(15, "steps that a trajectory looks ahead", low=1, high=10**4)
    root: str = parameter(
        "resampled",
        "one tree for each sampled next state, or one tree in all",
        choices=("resampled", "single"),
    )
    max_trajectories: int = parameter(
        0, "capacity for trajectories in one tree, raised to what is needed", low=0, static=True
    )
    max_samples: int = parameter(
        0,
        "capacity for samples, raised to what is needed",
        low=0,
        high=2**SAMPLES_BITS - 1,
        static=True,
    )
    max_depth: int = parameter(
        0, "capacity for the depth, raised to what is needed", low=0, static=True
    )

    requires = BAYESIAN
    # Each MDP has many trees: a few MDPs fill the cache, and more would only be padding where fewer
    # are played.
    lanes = 8

    def __post_init__(self) -> None:
        """Make capacity for the budget where it is known: not for traced values, which are cut to
        the capacity there is.
        """
        budget = (self.trajectories, self.samples, self.depth)
        if not all(type(v) is int for v in budget):
            return
        in_one_tree = budget[0] if self.root == "single" else max(1, budget[0] // max(1, budget[1]))
        # A single trajectory needs no tree, so it has a program of its own; all that need few
        # share one.
        trajectories = 1 if in_one_tree == 1 else max(FEW_TRAJECTORIES, round_up(in_one_tree))
        for name, needed in (
            ("max_trajectories", trajectories),
            ("max_samples", budget[1]),
            ("max_depth", round_up(budget[2])),
        ):
            raise_capacity(self, name, needed)

    @property
    def _capacity(self) -> Capacity:
        check_capacity(self, "max_trajectories", "max_samples", "max_depth")
        return Capacity(self.max_trajectories, self.max_samples, self.max_depth)

    def cost(self, prior: DirichletPrior) -> Cost:
        """Count some steps for each node visited, more where states and actions are many or the
        trees outgrow the cache.
        """
        n_states, n_actions = prior.mdps.n_states, prior.mdps.n_actions
        trees, fit = (self._trees(n_actions), trees_in_memory(self._capacity, n_states, n_actions))
        at_once = min(fit, max(self.lanes, TREES), self.lanes * trees)
        memory = tree_bytes(self._capacity, n_states, n_actions) * at_once
        in_each = max(
            1, int(self.trajectories) // (1 if self.root == "single" else int(self.samples))
        )
        steps = (
            trees
            * in_each
            * int(self.depth)
            * (2.5 + n_states * n_actions / 20)
            * (1 + memory / CACHED)
        )
        return Cost(steps, memory, fewest_lanes=min(self.lanes, -(-TREES // trees)))

    def _trees(self, n_actions: int) -> int:
        """Return the number of trees for one decision."""
        return 1 if self.root == "single" else n_actions * int(self.samples)

    def reset(self, key: Array, knowledge: DirichletPrior) -> BFS3State:
        mdps, discount = knowledge.mdps, knowledge.discount
        low, high = (extreme(mdps.rewards) / (1 - discount) for extreme in (jnp.min, jnp.max))
        return BFS3State(mdps.concentrations, mdps.rewards, discount, low, high)

    def act(self, key: Array, state: BFS3State, observation: Array) -> tuple[Array, BFS3State]:
        words = jax.random.key_data(key)
        q = self._values(words, state, observation)
        tie = TIE_TOLERANCE * (state.high - state.low)
        return sampling.choose_maximiser(q, sampling.words_to_uniforms(words[0]), tie), state

    def observe(self, key: Array, state: BFS3State, transition: Transition) -> BFS3State:
        counts = count_transition(
            state.counts, transition.observation, transition.action, transition.next_observation
        )
        return dataclasses.replace(state, counts=counts)

    def _values(self, words: Array, state: BFS3State, x: Array) -> Array:
        """Return Q(x, u) of each action: [A]."""
        samples, depth, total = (
            jnp.asarray(v, jnp.int32) for v in (self.samples, self.depth, self.trajectories)
        )
        in_one_tree = total if self.root == "single" else jnp.maximum(1, total // samples)
        limits = Limits(state.discount, state.low, state.high, in_one_tree, samples, depth)
        search = _search(self._capacity, single if self.root == "single" else resampled)
        return search(Decision(words, x, state.counts, state.rewards, limits))


# searched at once on one device, when so many are wanted: what they need at each step fits the
# cache of a CPU core
TREES = 512
MEMORY = 1 << 29  # bytes of tree nodes on one device


@record
class Decision:
    """Inputs of a decision: the belief, the state, the limits and 64 random bits."""

    words: Array  # [2] uint32
    state: Array  # [] int32
    counts: Array  # [S, A, S] float32, posterior concentrations
    rewards: Array  # [S, A, S] float32
    limits: Limits


@lru_cache(maxsize=64)
def _search(
    capacity: Capacity, run: Callable[[Decision, Capacity, int], Array]
) -> Callable[[Decision], Array]:
    """Return the search for one decision, [A], which raises `JbrlError` where not even one tree of
    that capacity fits in memory; mapped, one call for all of them.

    Args:
      run: `resampled` or `single`.
    """

    def search(decisions: Decision) -> Array:
        n_lanes = max(int(v.shape[0]) for v in jax.tree.leaves(decisions))
        each = jax.tree.map(lambda v: jnp.broadcast_to(v, (n_lanes, *v.shape[1:])), decisions)
        _, n_states, n_actions, _ = each.counts.shape
        max_trees = trees_in_memory(capacity, n_states, n_actions)
        each = _cut(each, capacity)
        parts = next(
            p for p in range(1, n_lanes + 1) if n_lanes % p == 0 and n_lanes // p <= max_trees
        )
        if parts == 1:
            # one small table for all lanes stays in the cache
            each = dataclasses.replace(each, rewards=decisions.rewards)
            return run(each, capacity, max_trees)
        split = jax.tree.map(lambda v: v.reshape(parts, n_lanes // parts, *v.shape[1:]), each)
        return lax.map(lambda part: run(part, capacity, max_trees), split).reshape(n_lanes, -1)

    return native.for_one(search)


def _cut(decisions: Decision, capacity: Capacity) -> Decision:
    """Cut budgets to those that the compiled program has capacity for."""
    limits = decisions.limits
    budget = {
        name: jnp.minimum(getattr(limits, name), max_trees)
        for name, max_trees in capacity._asdict().items()
    }
    return dataclasses.replace(decisions, limits=dataclasses.replace(limits, **budget))


def trees_in_memory(capacity: Capacity, n_states: int, n_actions: int) -> int:
    """Return the number of trees that may be searched at once. Raise `JbrlError` when one is too
    large.
    """
    nodes = capacity.trajectories * capacity.depth
    bytes_per_tree = tree_bytes(capacity, n_states, n_actions)
    if bytes_per_tree > MEMORY or nodes >= 1 << (31 - SAMPLES_BITS):
        raise JbrlError(
            f"forward search: {capacity.trajectories} trajectories of depth {capacity.depth}, "
            f"{n_states} states and {n_actions} actions need {bytes_per_tree / 2**20:.0f} MiB for "
            f"one tree: expected at most {MEMORY / 2**20:.0f}; take fewer or shorter trajectories"
        )
    return MEMORY // bytes_per_tree


def tree_bytes(capacity: Capacity, n_states: int, n_actions: int) -> int:
    """Return the memory that one tree takes."""
    nodes = capacity.trajectories * capacity.depth if capacity.trajectories > 1 else 0
    path = capacity.depth * (2 * n_actions + 5) + 2 * n_states * n_actions * n_states
    return 4 * (path + nodes * (n_actions * (n_states + 2) + 1))


def resampled(decisions: Decision, capacity: Capacity, max_trees: int) -> Array:
    """Return Q(x, u), [L, A] float32: the mean over C sampled next states y of R(x, u, y) + g U(y),
    each y being the root of a tree of its own.

    This is what the program of Castronovo et al. 2016 computes (appendix A, algorithm 6).
    """
    n_lanes, n_states, n_actions, _ = decisions.counts.shape
    width = max(1, min(n_actions * capacity.samples, min(max_trees, TREES) // n_lanes))

    def group(number: Array, q: Array) -> Array:
        """Search trees number width * number, … of every lane; a tree's number is sample * A +
        action.
        """
        tree = number * width + jnp.arange(width, dtype=jnp.int32)
        action, sample = (jnp.repeat(v, n_lanes) for v in (tree % n_actions, tree // n_actions))
        forest, reward = _after_action(decisions, action, _seeds(decisions, tree))
        limits = forest.limits
        upper = grow(forest, capacity, n_states, n_actions)[0].max(0)
        value = reward + limits.discount * jnp.maximum(limits.low, upper)
        value = jnp.where(sample < limits.samples, value / limits.samples.astype(jnp.float32), 0.0)
        mine = action[:, None] == jnp.arange(n_actions, dtype=jnp.int32)[None, :]
        return q + jnp.where(mine, value[:, None], 0.0).reshape(width, n_lanes, n_actions).sum(0)

    groups = -(-decisions.limits.samples.max() * n_actions // width)
    return lax.fori_loop(0, groups, group, jnp.zeros((n_lanes, n_actions), jnp.float32))


def single(decisions: Decision, capacity: Capacity, max_trees: int) -> Array:
    """Return U(x, u), [L, A] float32, of one tree whose root is the state itself.

    Asmuth and Littman 2011.
    """
    del max_trees
    _, n_states, n_actions, _ = decisions.counts.shape
    seeds = _seeds(decisions, jnp.zeros((1,), jnp.int32))
    counts, rewards = _trees_last(decisions.counts, 1), decisions.rewards.reshape(-1)
    forest = Forest(
        seeds, decisions.state, counts, rewards, _tables(decisions, 1), decisions.limits
    )
    return grow(forest, capacity, n_states, n_actions)[0].T


def _seeds(decisions: Decision, tree: Array) -> Array:
    """Return seeds of the trees of given numbers [W]: [W L] uint32."""
    first, second = decisions.words[:, 0], decisions.words[:, 1]
    return mix(first[None, :] ^ mix(second[None, :] + spread(tree)[:, None])).reshape(-1)


def _trees_last(counts: Array, width: int) -> Array:
    """Return counts [L, S, A, S], repeated for `width` trees of each lane: [S A S W L] flat."""
    return jnp.tile(counts.reshape(counts.shape[0], -1).T, (1, width)).reshape(-1)


def _after_action(decisions: Decision, action: Array, seed: Array) -> tuple[Forest, Array]:
    """Return trees behind one sampled transition each, known to the belief at their roots, and the
    reward of that transition ([B]).
    """
    n_lanes, n_states, n_actions, _ = decisions.counts.shape
    size, trees = n_states * n_actions * n_states, action.shape[0]
    lane = jnp.tile(jnp.arange(n_lanes, dtype=jnp.int32), trees // n_lanes)
    table = _tables(decisions, trees // n_lanes)
    pair = take(decisions.state, lane) * n_actions + action
    entries = pair[None, :] * n_states + jnp.arange(n_states, dtype=jnp.int32)[:, None]
    row = take(decisions.counts.reshape(-1), lane[None, :] * size + entries)
    y = (thresholds(row[None])[0] <= bits(seed)[None, :]).sum(0, dtype=jnp.int32)
    rewards = decisions.rewards.reshape(-1)
    counts = increment(_trees_last(decisions.counts, trees // n_lanes), pair * n_states + y)
    limits = jax.tree.map(lambda v: take(v, lane), decisions.limits)
    return Forest(seed, y, counts, rewards, table, limits), take(
        rewards, table * size + pair * n_states + y
    )


def _tables(decisions: Decision, width: int) -> Array:
    """Return the index of the reward table of each tree: [W L] int32."""
    n_lanes, own = decisions.state.shape[0], decisions.rewards.shape[0] > 1
    return jnp.tile(jnp.arange(n_lanes, dtype=jnp.int32) * int(own), width)
