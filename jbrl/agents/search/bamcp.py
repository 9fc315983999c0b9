"""BAMCP: Bayes-adaptive Monte-Carlo planning."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from jbrl import vectorize
from jbrl.agents.registry import register_agent
from jbrl.agents.search import draws, uct, uct_groups
from jbrl.agents.search.uct import Kept, SearchTask
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_capacity, parameter, raise_capacity, round_up
from jbrl.base.pytree import record
from jbrl.mdp.dirichlet import GREATEST, add_count
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, Cost, HasCost, Transition
from jbrl.vectorize import native

RATE = 0.2  # of Q-learning
MAX_BYTES = 4 << 30  # of one tree
SMALLEST_DEPTH = 64  # capacity for depth costs next to nothing


@record
class RolloutPolicy:
    """The policy beyond the tree: half random, half greedy for Q-values of real transitions.

        Q(x, u) += 0.2 (r + g max_v Q(y, v) - Q(x, u))        after each real transition

    A simulated step takes, with probability 1/2 each, any action or one of those of greatest
    Q(x, .). Guez et al. 2012, section 3.4, with the numbers of the program of Castronovo et al.
    2016. Without learning all actions stay greedy and the policy is uniform.
    """

    q: Array  # [S, A] float32
    greedy: Array  # [S, A] int32: greedy actions of each state, in front of the others
    n_greedy: Array  # [S] int32


def uniform_policy(n_states: int, n_actions: int) -> RolloutPolicy:
    """Return a policy with all actions greedy."""
    greedy = jnp.broadcast_to(jnp.arange(n_actions, dtype=jnp.int32), (n_states, n_actions))
    return RolloutPolicy(
        jnp.zeros((n_states, n_actions)), greedy, jnp.full(n_states, n_actions, jnp.int32)
    )


def learn_policy(
    policy: RolloutPolicy, x: Array, u: Array, y: Array, reward: Array, discount: Array
) -> RolloutPolicy:
    """Take one step of Q-learning."""
    row = vectorize.get_row(policy.q, x)
    step = reward + discount * vectorize.get_row(policy.q, y).max() - row
    row = row + jnp.where(
        jnp.arange(row.shape[0], dtype=u.dtype) == u, jnp.float32(RATE) * step, 0.0
    )
    best = row >= row.max()
    order = jnp.argsort(~best, stable=True).astype(jnp.int32)
    n_greedy = vectorize.set_row(policy.n_greedy[:, None], x, best.sum(dtype=jnp.int32)[None])[:, 0]
    return RolloutPolicy(
        vectorize.set_row(policy.q, x, row), vectorize.set_row(policy.greedy, x, order), n_greedy
    )


@record
class BAMCPState:
    counts: Array  # [S * A, S] float32, prior concentrations + transitions seen
    cdf: Array  # [S * A, S] float32, cumulative counts
    rewards: Array  # [S * A * S] float32
    spread: Array  # [] float32, greatest minus least possible reward
    discount: Array  # [] float32
    policy: RolloutPolicy
    kept: Kept | None


@register_agent("BAMCP", cite="guez2012")
class BAMCP(HasCost, Agent[DirichletPrior, BAMCPState]):
    """Monte-Carlo tree search (UCT) on the belief, each simulation in an MDP drawn from
    the posterior.

    At each decision K simulations of `depth` steps start in the present state. In the tree of
    histories met so far, simulations take the action of greatest

        Q(h, u) + c sqrt(log(N(h) + 1) / N(h, u)),

    actions never tried first, ties uniform; beyond the tree they follow the rollout policy. The
    discounted return enters the mean Q of each action taken. An action becomes part of the tree at
    its first visit, the history it leads to at its second. Nothing is known of what comes after
    `depth` steps: value 0. Then the action of greatest mean return is played, actions never tried
    counting as 0.

    MDPs are not drawn: next states come from a Polya urn, which has the same law (`search.draws`).
    Guez et al. 2012; Castronovo et al. 2016, section 5.1.5; the defaults are those of its program.
    One decision costs K depth steps of O(A + S).
    """

    simulations: int = parameter(500, "K, simulations for each decision", low=1, high=2**24)
    depth: int = parameter(15, "steps that a simulation looks ahead", low=1, high=2**20)
    exploration: float = parameter(3.0, "c, weight of the confidence bound", low=0.0, high=GREATEST)
    scaled: bool = parameter(False, "multiply c by the range of the return of a simulation")
    rollout: str = parameter(
        "q-learning",
        "beyond the tree: half greedy by Q-learning, or uniform",
        choices=("q-learning", "uniform"),
    )
    final: str = parameter(
        "mean",
        "play the action of greatest mean return, or the one most visited",
        choices=("mean", "visits"),
    )
    reuse: bool = parameter(
        False,
        "keep the part of the tree that the real transition leads to, within an episode",
        static=True,
    )
    max_simulations: int = parameter(
        0, "capacity for simulations, raised to what is needed", low=0, high=2**24, static=True
    )
    max_depth: int = parameter(
        0, "capacity for the depth, raised to what is needed", low=0, high=2**20, static=True
    )

    requires = BAYESIAN
    # One group: small runs do not wait for lanes that do not count.
    lanes = native.LANES

    def __post_init__(self) -> None:
        """Make capacity for the budget where it is known: not for traced values, which are cut to
        the capacity there is.
        """
        for name, needed, least in (
            ("simulations", self.simulations, 1),
            ("depth", self.depth, SMALLEST_DEPTH),
        ):
            if type(needed) is int:
                raise_capacity(self, f"max_{name}", max(least, round_up(needed)))

    def cost(self, prior: DirichletPrior) -> Cost:
        needed = self._check_memory(prior.mdps.n_states, prior.mdps.n_actions)
        return Cost(
            steps=float(self.simulations) * float(self.depth), memory_bytes=needed, fewest_lanes=1
        )

    def _check_memory(self, n_states: int, n_actions: int) -> int:
        """Return the bytes of one tree. Raise `JbrlError` when they are too many, or unknown."""
        check_capacity(self, "max_simulations", "max_depth")
        needed = uct.bytes_needed(n_states, n_actions, self._capacity, self.max_depth)
        if needed > MAX_BYTES or self.max_simulations * self.max_depth >= 2**31:
            raise JbrlError(
                f"BAMCP: simulations up to {self.max_simulations} and depth up to "
                f"{self.max_depth} with {n_states} states and {n_actions} actions take "
                f"{needed / 2**30:.1f} GiB: expected at most {MAX_BYTES >> 30} GiB and a product "
                "below 2^31"
            )
        return needed

    def reset(self, key: Array, knowledge: DirichletPrior) -> BAMCPState:
        mdps = knowledge.mdps
        self._check_memory(mdps.n_states, mdps.n_actions)
        counts = mdps.concentrations.reshape(-1, mdps.n_states)
        possible = mdps.concentrations > 0
        spread = (
            jnp.where(possible, mdps.rewards, -jnp.inf).max()
            - jnp.where(possible, mdps.rewards, jnp.inf).min()
        )
        policy = uniform_policy(mdps.n_states, mdps.n_actions)
        kept = uct.nothing_kept(self._capacity, mdps.n_actions) if self.reuse else None
        return BAMCPState(
            counts,
            draws.cumulative(counts),
            mdps.rewards.reshape(-1),
            spread,
            knowledge.discount,
            policy,
            kept,
        )

    def act(self, key: Array, state: BAMCPState, observation: Array) -> tuple[Array, BAMCPState]:
        stream = draws.stream(jax.random.key_data(key))
        root = uct_groups.search(self._task(stream, state, observation))
        worth = root.means if self.final == "mean" else root.visits
        tie = draws.word(stream, jnp.uint32(2**32 - 1))
        return uct.greatest(worth, tie), replace(state, kept=root.kept)

    def observe(self, key: Array, state: BAMCPState, transition: Transition) -> BAMCPState:
        x, action, y = transition.observation, transition.action, transition.next_observation
        n_states, n_actions = state.policy.q.shape
        row = x * n_actions + action
        seen, counts = add_count(state.counts, row, y)
        policy = state.policy
        if self.rollout == "q-learning":
            policy = learn_policy(policy, x, action, y, transition.reward, state.discount)
        # the next episode does not begin where this one has ended
        ended = transition.terminated | transition.truncated
        link = jnp.where(ended, -1, action * n_states + y)
        kept = state.kept and replace(state.kept, link=link)
        cdf = vectorize.set_row(state.cdf, row, draws.cumulative(seen))
        return replace(state, counts=counts, cdf=cdf, policy=policy, kept=kept)

    @property
    def _capacity(self) -> int:
        """Nodes: each simulation adds one at most."""
        return self.max_simulations * (2 if self.reuse else 1)

    def _task(self, stream: Array, state: BAMCPState, x: Array) -> SearchTask:
        simulations = jnp.minimum(jnp.asarray(self.simulations, jnp.int32), self.max_simulations)
        depth = jnp.minimum(jnp.asarray(self.depth, jnp.int32), self.max_depth)
        longest_return = (
            state.spread * (1 - state.discount ** depth.astype(jnp.float32)) / (1 - state.discount)
        )
        exploration = jnp.asarray(self.exploration, jnp.float32) * jnp.where(
            jnp.asarray(self.scaled), longest_return, 1.0
        )
        return SearchTask(
            stream=stream,
            x=x,
            cdf=state.cdf.reshape(-1),
            rewards=state.rewards,
            greedy=state.policy.greedy.reshape(-1),
            n_greedy=state.policy.n_greedy,
            simulations=simulations,
            depth=depth,
            exploration=exploration,
            discount=state.discount,
            kept=state.kept,
            n_actions=state.policy.q.shape[1],
            capacity=self._capacity,
            max_depth=self.max_depth,
        )
