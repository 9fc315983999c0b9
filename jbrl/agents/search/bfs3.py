"""BFS3: forward search sparse sampling on the belief."""

import dataclasses

import jax
import jax.numpy as jnp

from jbrl.agents.capacity import raise_capacity, round_up
from jbrl.agents.registry import register_agent
from jbrl.agents.search import forward_search
from jbrl.agents.search.forward_tree import SAMPLES_BITS, TIE_TOLERANCE, Capacity, Limits
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.mdp.belief import count_transition
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Cost, HasCost, Transition

FEW_TRAJECTORIES = 4  # in one tree: capacity for more would cost time where they are fewer
CACHED = 1 << 26  # bytes of trees above which a node takes twice as long


@record
class BFS3State:
    counts: jax.Array  # [S, A, S] float32, prior concentrations + transitions seen
    rewards: jax.Array  # [S, A, S] float32, known
    discount: jax.Array  # [] float32
    low: jax.Array  # [] float32, no value lies below
    high: jax.Array  # [] float32, no value lies above


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
        return Capacity(self.max_trajectories, self.max_samples, self.max_depth)

    def cost(self, prior: DirichletPrior) -> Cost:
        """Count some steps for each node visited, more where states and actions are many or the
        trees outgrow the cache.
        """
        n_states, n_actions = prior.mdps.n_states, prior.mdps.n_actions
        trees, fit = (
            self._trees(n_actions),
            forward_search.trees_in_memory(self._capacity, n_states, n_actions),
        )
        at_once = min(fit, max(self.lanes, forward_search.TREES), self.lanes * trees)
        memory = forward_search.tree_bytes(self._capacity, n_states, n_actions) * at_once
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
        return Cost(steps, memory, fewest_lanes=min(self.lanes, -(-forward_search.TREES // trees)))

    def _trees(self, n_actions: int) -> int:
        """Return the number of trees for one decision."""
        return 1 if self.root == "single" else n_actions * int(self.samples)

    def reset(self, key: jax.Array, knowledge: DirichletPrior) -> BFS3State:
        mdps, discount = knowledge.mdps, knowledge.discount
        low, high = (extreme(mdps.rewards) / (1 - discount) for extreme in (jnp.min, jnp.max))
        return BFS3State(mdps.concentrations, mdps.rewards, discount, low, high)

    def act(
        self, key: jax.Array, state: BFS3State, observation: jax.Array
    ) -> tuple[jax.Array, BFS3State]:
        words = jax.random.key_data(key)
        q = self._values(words, state, observation)
        tie = TIE_TOLERANCE * (state.high - state.low)
        return sampling.choose_maximiser(q, sampling.words_to_uniforms(words[0]), tie), state

    def observe(self, key: jax.Array, state: BFS3State, transition: Transition) -> BFS3State:
        counts = count_transition(
            state.counts, transition.observation, transition.action, transition.next_observation
        )
        return dataclasses.replace(state, counts=counts)

    def _values(self, words: jax.Array, state: BFS3State, x: jax.Array) -> jax.Array:
        """Return Q(x, u) of each action: [A]."""
        samples, depth, total = (
            jnp.asarray(v, jnp.int32) for v in (self.samples, self.depth, self.trajectories)
        )
        in_one_tree = total if self.root == "single" else jnp.maximum(1, total // samples)
        limits = Limits(state.discount, state.low, state.high, in_one_tree, samples, depth)
        search = forward_search.single if self.root == "single" else forward_search.resampled
        return search(
            forward_search.Decision(words, x, state.counts, state.rewards, limits), self._capacity
        )
