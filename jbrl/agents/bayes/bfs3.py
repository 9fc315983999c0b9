"""BFS3: forward search sparse sampling on the belief."""

import chex
import jax
import jax.numpy as jnp

from jbrl import vectorize
from jbrl.agents.agent import Agent, parameter, register_agent
from jbrl.agents.bayes.search import forward_search
from jbrl.agents.bayes.search.forward_tree import SAMPLES_BITS, TIE_TOLERANCE, Capacity, Limits
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import DirichletMDPs, Prior
from jbrl.pytree import record

FEW_TRAJECTORIES = 4  # in one tree: capacity for more would cost time where they are fewer
CACHED = 1 << 26  # bytes of trees above which a node takes twice as long


@record
class BFS3State:
    counts: chex.Array  # [S, A, S] float32, prior concentrations + transitions seen
    rewards: chex.Array  # [S, A, S] float32, known
    discount: chex.Array  # [] float32
    low: chex.Array  # [] float32, no value lies below
    high: chex.Array  # [] float32, no value lies above


@register_agent("BFS3", cite="asmuth2011")
class BFS3(Agent[Prior, BFS3State]):
    """Bayesian forward search sparse sampling: the most optimistic action of a tree of sampled futures.

    Sampled futures form trees in which each node is a belief: a state and the counts of all transitions, those of the future so far
    included. Each action of a node has C next states, drawn from the mean of that belief. Bounds on the values, at first those of the
    least and of the greatest reward for ever, tighten from the leaves up (`forward_tree`).

        root = "resampled":  Q(x, u) = (1/C) sum_i R(x, u, y_i) + g U(y_i), where U(y_i) comes from a tree of its own, searched by
                             max(1, floor(K / C)) trajectories: A C trees for each decision. The published program.
        root = "single":     Q(x, u) = U(x, u) of one tree rooted in the present state, searched by K trajectories. Asmuth and Littman 2011.

    The action of greatest Q is played, ties uniform. Castronovo et al. 2016, section 5.1.6. One decision costs A C max(1, K/C) depth nodes
    (single: K depth), a node S A C operations.
    """

    trajectories: int = parameter(15, "K, trajectories of the search", low=1, high=10**6)
    samples: int = parameter(5, "C, sampled next states of each action", low=1, high=2**SAMPLES_BITS - 1)
    depth: int = parameter(15, "steps that a trajectory looks ahead", low=1, high=10**4)
    root: str = parameter("resampled", "one tree for each sampled next state, or one tree in all", choices=("resampled", "single"))
    max_trajectories: int = parameter(0, "capacity for trajectories in one tree, raised to what is needed", low=0, static=True)
    max_samples: int = parameter(0, "capacity for samples, raised to what is needed", low=0, high=2**SAMPLES_BITS - 1, static=True)
    max_depth: int = parameter(0, "capacity for the depth, raised to what is needed", low=0, static=True)

    # Each MDP has many trees: a few MDPs fill the cache, and more would only be padding where fewer are played.
    lanes = 8

    def __post_init__(self) -> None:
        """Make capacity for the budget where it is known: not for traced values, which are cut to the capacity there is."""
        budget = (self.trajectories, self.samples, self.depth)
        if not all(type(v) is int for v in budget):
            return
        in_one_tree = budget[0] if self.root == "single" else max(1, budget[0] // max(1, budget[1]))
        # A single trajectory needs no tree, so it has a program of its own; all that need few share one.
        trajectories = 1 if in_one_tree == 1 else max(FEW_TRAJECTORIES, _round_up(in_one_tree))
        for name, needed in (("max_trajectories", trajectories), ("max_samples", budget[1]), ("max_depth", _round_up(budget[2]))):
            object.__setattr__(self, name, max(getattr(self, name), needed))

    def check_size(self, n_states: int, n_actions: int) -> None:
        forward_search.trees_in_memory(self._capacity, n_states, n_actions)

    @property
    def _capacity(self) -> Capacity:
        return Capacity(self.max_trajectories, self.max_samples, self.max_depth)

    def bytes_needed(self, n_states: int, n_actions: int) -> int:
        each = forward_search.tree_bytes(self._capacity, n_states, n_actions)
        return each * min(forward_search.MEMORY // each, max(self.lanes, forward_search.TREES), self.lanes * self._trees(n_actions))

    def simulated_steps(self, mdps: DirichletMDPs) -> float:
        """Some for each node visited, more where states and actions are many or the trees outgrow the cache."""
        in_each = max(1, self.trajectories // (1 if self.root == "single" else self.samples))
        nodes = self._trees(mdps.n_actions) * in_each * self.depth
        each = 2.5 + mdps.n_states * mdps.n_actions / 20
        return nodes * each * (1 + self.bytes_needed(mdps.n_states, mdps.n_actions) / CACHED)

    def fewest_lanes(self, n_actions: int) -> int:
        return min(self.lanes, -(-forward_search.TREES // self._trees(n_actions)))

    def _trees(self, n_actions: int) -> int:
        """For one decision."""
        return 1 if self.root == "single" else n_actions * self.samples

    def reset(self, knowledge: Prior) -> BFS3State:
        mdps, discount = knowledge.mdps, knowledge.discount
        low, high = (extreme(mdps.rewards) / (1 - discount) for extreme in (jnp.min, jnp.max))
        return BFS3State(mdps.concentrations, mdps.rewards, discount, low, high)

    def act(self, key: chex.PRNGKey, state: BFS3State, x: chex.Array) -> tuple[chex.Array, BFS3State]:
        words = jax.random.key_data(key)
        q = self._values(words, state, x)
        tie = TIE_TOLERANCE * (state.high - state.low)
        return sampling.choose_maximiser(q, sampling.words_to_uniforms(words[0]), tie), state

    def observe(self, state: BFS3State, x: chex.Array, action: chex.Array, y: chex.Array, reward: chex.Array) -> BFS3State:
        n_states, n_actions, _ = state.counts.shape
        counts, entry = state.counts.reshape(-1, 1), (x * n_actions + action) * n_states + y
        counts = vectorize.set_row(counts, entry, vectorize.get_row(counts, entry) + 1).reshape(state.counts.shape)
        return BFS3State(counts, state.rewards, state.discount, state.low, state.high)

    def _values(self, words: chex.Array, state: BFS3State, x: chex.Array) -> chex.Array:
        """Q(x, u) of each action: [A]."""
        samples, depth, total = (jnp.asarray(v, jnp.int32) for v in (self.samples, self.depth, self.trajectories))
        in_one_tree = total if self.root == "single" else jnp.maximum(1, total // samples)
        limits = Limits(state.discount, state.low, state.high, in_one_tree, samples, depth)
        search = forward_search.single if self.root == "single" else forward_search.resampled
        return search(forward_search.Decision(words, x, state.counts, state.rewards, limits), self._capacity)


def _round_up(number: int) -> int:
    """The next power of two, so that near budgets share a program."""
    return 1 << max(0, number - 1).bit_length()
