"""Small environments of the Behaviour Suite: bandit, catch, chains of memory and credit, and deep
sea, where one sequence of N actions out of 2^N is rewarded and each step towards it costs.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jbrl import vectorize
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Box, Discrete, Episodes, LowerTriangle, OneHot, Spec
from jbrl.mdp import sampling


@record
class BanditState:
    """State of a bandit: the regret of the last pull."""

    regret: Array  # [] float32, 0 before the pull


@register_environment("BsuiteBandit", cite="osband2020bsuite")
class Bandit(Environment[BanditState]):
    """Bandit of bsuite: pull one of 11 arms per episode, whose rewards are 0 to 1 by steps of 0.1.

    Observation: always 1, at the start and at the end. The order of the rewards is fixed: it is the
    original's, bit for bit, drawn by NumPy's `RandomState(mapping_seed)`. There is no noise.

    Metrics: `total_regret`, 1 minus the reward.

    `arms` follows from the other fields where it is None.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime = Episodes(10_000)

    n_arms: int = parameter(11, "number of arms", low=2, high=1000, static=True)
    mapping_seed: int = parameter(0, "seed of the order of the rewards", low=0, high=2**31 - 1)
    arms: Any = None  # [n_arms] float32, reward of each arm

    def __post_init__(self) -> None:
        if self.arms is None and isinstance(self.mapping_seed, int):  # not traced
            object.__setattr__(self, "arms", arm_rewards(self.n_arms, self.mapping_seed))

    @property
    def spec(self) -> Spec:
        return Spec(Box((1,), 0.0, 1.0), Discrete(self.n_arms))

    @property
    def typical_steps(self) -> float:
        return 1.0

    def reset(self, key: Array) -> tuple[BanditState, Array]:
        del key
        return BanditState(jnp.float32(0)), jnp.ones((1,), jnp.float32)

    def step(self, key: Array, state: BanditState, action: Array) -> tuple[BanditState, Step]:
        del key, state
        reward = jnp.asarray(self.arms).at[action].get(mode="promise_in_bounds")
        after = BanditState(1 - reward)
        return after, Step(jnp.ones((1,), jnp.float32), reward, jnp.bool_(True))

    def metrics(self, state: BanditState) -> dict[str, Array]:
        return {"total_regret": state.regret}


def arm_rewards(n_arms: int, seed: int) -> np.ndarray:
    """Return the reward of each arm, [n_arms] float32, as the original draws their order."""
    order = np.random.RandomState(seed).choice(n_arms, n_arms, replace=False)
    return np.linspace(0, 1, n_arms)[order].astype(np.float32)


@record
class CatchState:
    """The ball and the paddle, which stays in the last row."""

    ball_x: Array  # [] int32, column
    ball_y: Array  # [] int32, row
    paddle_x: Array  # [] int32, column


@register_environment("Catch", cite="osband2020bsuite")
class Catch(Environment[CatchState]):
    """Catch of bsuite: a ball falls from the top of a board of 10 x 5, the paddle should be
    below it.

    Observation: the board, 1 where the ball is and 1 where the paddle is, else 0; [rows, columns].
    Actions 0, 1, 2: left, stay, right; nothing leads beyond the borders. The ball starts in a
    column drawn uniformly and falls one row per step; the paddle starts in the middle of the
    last row.

    Reward: 1 for a ball that is caught, -1 for one that is not, when it reaches the last row, where
    the episode terminates after rows - 1 steps; 0 before.

    Metrics: `total_regret`, 2 for a ball that is not caught.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime = Episodes(10_000)

    rows: int = parameter(10, "rows of the board", low=2, high=1000, static=True)
    columns: int = parameter(5, "columns of the board", low=1, high=1000, static=True)

    @property
    def spec(self) -> Spec:
        return Spec(Box((self.rows, self.columns), 0.0, 1.0), Discrete(3))

    @property
    def typical_steps(self) -> float:
        return self.rows - 1.0

    def reset(self, key: Array) -> tuple[CatchState, Array]:
        ball_x = sampling.uniform_index(sampling.uniforms(key)[0], self.columns)
        state = CatchState(ball_x, jnp.int32(0), jnp.int32(self.columns // 2))
        return state, self._board(state)

    def step(self, key: Array, state: CatchState, action: Array) -> tuple[CatchState, Step]:
        del key
        moved = jnp.clip(state.paddle_x + action - 1, 0, self.columns - 1)
        paddle_x = vectorize.prevent_fusion_index(moved)
        after = CatchState(state.ball_x, state.ball_y + 1, paddle_x)
        ended = after.ball_y == self.rows - 1
        outcome = jnp.where(after.ball_x == paddle_x, jnp.float32(1), jnp.float32(-1))
        reward = jnp.where(ended, outcome, jnp.float32(0))
        return after, Step(self._board(after), reward, ended)

    def metrics(self, state: CatchState) -> dict[str, Array]:
        missed = (state.ball_y == self.rows - 1) & (state.ball_x != state.paddle_x)
        return {"total_regret": jnp.where(missed, jnp.float32(2), jnp.float32(0))}

    def _board(self, state: CatchState) -> Array:
        cells = jnp.arange(self.rows * self.columns, dtype=jnp.int32)
        ball = state.ball_y * self.columns + state.ball_x
        paddle = (self.rows - 1) * self.columns + state.paddle_x
        shown = (cells == ball) | (cells == paddle)
        return shown.astype(jnp.float32).reshape(self.rows, self.columns)


DELAYS = (1, 3, 10, 30, 100)  # number of the step that is rewarded, for each chain
LENGTH = 100  # steps of an episode
BEST = 1.1  # reward of one of the chains; 1 of the others


@record
class DiscountingChainState:
    """Index of the chain, and step of the episode."""

    chain: Array  # [] int32, -1 before the first action
    steps: Array  # [] int32, of this episode


@register_environment("DiscountingChain", cite="osband2020bsuite")
class DiscountingChain(Environment[DiscountingChainState]):
    """Discounting chain of bsuite: choose one of five delays, then wait; one reward is a
    little higher.

    Observation: the chain, -1 before the first action, and the steps taken, divided by 100; [2].
    The first action, 0 to 4, chooses the chain; later ones change nothing. The chains pay at step
    1, 3, 10, 30 or 100: 1.1 in chain `mapping_seed` modulo 5, 1 in the others. An episode
    terminates after 100 steps. The best return is 1.1, that of random actions 1.02.

    No metrics, as in the original.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime = Episodes(1000)

    mapping_seed: int = parameter(0, "number of the best chain, modulo 5", low=0, high=2**31 - 1)

    @property
    def spec(self) -> Spec:
        return Spec(Box((2,), (-1.0, 0.0), (len(DELAYS) - 1.0, 1.0)), Discrete(len(DELAYS)))

    @property
    def typical_steps(self) -> float:
        return float(LENGTH)

    def reset(self, key: Array) -> tuple[DiscountingChainState, Array]:
        del key
        state = DiscountingChainState(jnp.int32(-1), jnp.int32(0))
        return state, _observation(state)

    def step(
        self, key: Array, state: DiscountingChainState, action: Array
    ) -> tuple[DiscountingChainState, Step]:
        del key
        chain = jnp.where(state.steps == 0, action, state.chain)
        after = DiscountingChainState(chain, state.steps + 1)
        delay = jnp.int32(DELAYS[-1])
        for number, steps in enumerate(DELAYS[:-1]):
            delay = jnp.where(chain == number, steps, delay)
        pays = jnp.where(
            chain == self.mapping_seed % len(DELAYS), jnp.float32(BEST), jnp.float32(1)
        )
        reward = jnp.where(after.steps == delay, pays, jnp.float32(0))
        ended = after.steps == LENGTH
        return after, Step(_observation(after), reward, ended)


def _observation(state: DiscountingChainState) -> Array:
    time = state.steps.astype(jnp.float32) * jnp.float32(1 / LENGTH)
    return jnp.stack([state.chain.astype(jnp.float32), time])


KEY_BITS = 64  # of the two words of a key
QUERY_BITS = 24  # of a key, that choose the query of a memory chain


@record
class MemoryChainState:
    """Context to remember, query to come, and step of the episode."""

    words: Array  # [⌈num_bits / 32⌉] uint32, bit i of the context is bit i mod 32 of word ⌊i / 32⌋
    query: Array  # [] int32, number of the bit that is asked for
    steps: Array  # [] int32, of this episode
    right: Array  # [] bool, of the last answer, once the episode has ended


@register_environment("MemoryChain", cite="osband2020bsuite")
class MemoryChain(Environment[MemoryChainState]):
    """Memory chain of bsuite: bits are shown at the start, and one of them is asked for at the end.

    With t the steps taken before an observation is made and L the `memory_length`, the observation
    is [num_bits + 2]: 1 - t / L; the number of the query if t = L - 1, else 0; the bits as -1 or 1
    if t = 0, else 0. As in the original, the observation of a step is made before its steps
    are counted:
    the first observation is seen twice, and an episode has L + 1 steps. The last action counts: 1
    for a bit of 1, 0 for a bit of 0. So L = 1 needs no memory.

    Reward: 1 for the right answer, -1 for the wrong one, 0 before. An episode terminates with it.

    Metrics: `total_perfect`, 1 for a right answer; `total_regret`, 2 for a wrong one.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6, which differs from
    the paper.
    """

    lifetime = Episodes(10_000)

    memory_length: int = parameter(1, "L, steps from the bits to the query", low=1, high=100_000)
    num_bits: int = parameter(1, "bits to remember", low=1, high=1000, static=True)

    @property
    def spec(self) -> Spec:
        bits = self.num_bits
        low, high = (0.0, 0.0, *[-1.0] * bits), (1.0, max(bits - 1.0, 1.0), *[1.0] * bits)
        return Spec(Box((bits + 2,), low, high), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.memory_length) + 1

    def reset(self, key: Array) -> tuple[MemoryChainState, Array]:
        if self.num_bits <= KEY_BITS - QUERY_BITS:
            data = jax.random.key_data(key)
            words = data[: -(-self.num_bits // 32)]
            uniform = sampling.words_to_uniforms(data[1])
        else:
            words = jax.random.bits(key, (-(-self.num_bits // 32) + 1,))
            words, uniform = words[1:], sampling.words_to_uniforms(words[0])
        query = sampling.uniform_index(uniform, self.num_bits)
        state = MemoryChainState(words, query, jnp.int32(0), jnp.bool_(False))
        return state, self._observation(state)

    def step(
        self, key: Array, state: MemoryChainState, action: Array
    ) -> tuple[MemoryChainState, Step]:
        del key
        ended = state.steps == self.memory_length
        bits = sampling.bits_of(state.words, self.num_bits)
        asked = jnp.arange(self.num_bits, dtype=jnp.int32) == state.query
        answer = (bits & asked.astype(jnp.int32)).sum(dtype=jnp.int32)
        right = ended & (action == answer)
        outcome = jnp.where(right, jnp.float32(1), jnp.float32(-1))
        reward = jnp.where(ended, outcome, jnp.float32(0))
        after = MemoryChainState(state.words, state.query, state.steps + 1, right)
        return after, Step(self._observation(state), reward, ended)

    def metrics(self, state: MemoryChainState) -> dict[str, Array]:
        wrong = (state.steps > self.memory_length) & ~state.right
        regret = jnp.where(wrong, jnp.float32(2), jnp.float32(0))
        return {"total_perfect": state.right.astype(jnp.float32), "total_regret": regret}

    def _observation(self, state: MemoryChainState) -> Array:
        length = jnp.asarray(self.memory_length, jnp.int32)
        left = 1 - state.steps.astype(jnp.float32) / length.astype(jnp.float32)
        query = jnp.where(state.steps == length - 1, state.query, 0).astype(jnp.float32)
        bits = sampling.bits_of(state.words, self.num_bits)
        shown = jnp.where(state.steps == 0, 2 * bits - 1, 0).astype(jnp.float32)
        return jnp.concatenate([jnp.stack([left, query]), shown])


@record
class UmbrellaChainState:
    """The weather, the umbrella, and step of the episode."""

    need: Array  # [] int32, 1: an umbrella is needed
    have: Array  # [] int32, 1: the agent has one
    steps: Array  # [] int32, of this episode


@register_environment("UmbrellaChain", cite="osband2020bsuite")
class UmbrellaChain(Environment[UmbrellaChainState]):
    """Umbrella chain of bsuite: take the umbrella at the start or not; whether it was right shows
    at the end.

    Observation, [3 + n_distractor]: need; have; 1 - t / L after t of L steps; distractors, bits
    drawn anew for each observation. `need` is drawn once per episode, and so is `have`, until the
    first action replaces it: 1 takes the umbrella, 0 leaves it. Later actions change nothing.

    Reward: 1 if have = need, else -1, at step L, where the episode terminates; before, -1 or 1 by a
    fair coin.

    Metrics: `total_regret`, 2 where have differs from need at the end.

    Source: Osband et al. 2020, appendix; google-deepmind/bsuite 0.3.6 where it says more.
    """

    lifetime = Episodes(10_000)

    chain_length: int = parameter(20, "L, steps of an episode", low=1, high=100_000)
    n_distractor: int = parameter(20, "distracting bits", low=0, high=1000, static=True)

    @property
    def spec(self) -> Spec:
        return Spec(Box((3 + self.n_distractor,), 0.0, 1.0), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.chain_length)

    def reset(self, key: Array) -> tuple[UmbrellaChainState, Array]:
        bits = _random_bits(key, self.n_distractor + 2)
        state = UmbrellaChainState(bits[0], bits[1], jnp.int32(0))
        return state, self._observation(state, bits[2:])

    def step(
        self, key: Array, state: UmbrellaChainState, action: Array
    ) -> tuple[UmbrellaChainState, Step]:
        bits = _random_bits(key, self.n_distractor + 2)  # as many as reset draws
        first = state.steps == 0
        have = vectorize.prevent_fusion_index(jnp.where(first, action, state.have))
        after = UmbrellaChainState(state.need, have, state.steps + 1)
        ended = after.steps == self.chain_length
        good = jnp.where(ended, have == state.need, bits[0] == 1)
        reward = jnp.where(good, jnp.float32(1), jnp.float32(-1))
        return after, Step(self._observation(after, bits[2:]), reward, ended)

    def metrics(self, state: UmbrellaChainState) -> dict[str, Array]:
        wrong = (state.steps == self.chain_length) & (state.have != state.need)
        return {"total_regret": jnp.where(wrong, jnp.float32(2), jnp.float32(0))}

    def _observation(self, state: UmbrellaChainState, distractors: Array) -> Array:
        length = jnp.asarray(self.chain_length, jnp.int32).astype(jnp.float32)
        left = 1 - state.steps.astype(jnp.float32) / length
        known = [state.need.astype(jnp.float32), state.have.astype(jnp.float32), left]
        return jnp.concatenate([jnp.stack(known), distractors.astype(jnp.float32)])


def _random_bits(key: Array, n: int) -> Array:
    """Return n fair bits, [n] int32: those of the key's own words where they suffice."""
    if n <= KEY_BITS:
        return sampling.bits_of(jax.random.key_data(key), n)
    return sampling.bits_of(jax.random.bits(key, (-(-n // 32),)), n)


COST = 0.01  # of N moves to the right


@record
class DeepSeaState:
    """Position in the sea, and record of the episode so far."""

    row: Array  # [] int32, from 0; N: the episode has ended
    column: Array  # [] int32, from 0
    bad: Array  # [] bool, the diagonal was left by going left
    found: Array  # [] bool, the treasure was found


@register_environment("DeepSea", cite="osband2020bsuite")
class DeepSea(Environment[DeepSeaState]):
    """Deep sea of N x N cells: sink one row per step, and find the treasure by N steps to the
    right alone.

    Observation: the cell, as the one-hot vector of length N^2 with index row N + column; after the
    last step the vector of zeros, index -1. Which of the two actions goes right differs from cell
    to cell: where `mapping` is 1, action 1 does. The map is that of the original, bit for bit: one
    binomial draw of NumPy's `RandomState(mapping_seed)` per cell; each size has its own.

    Going right costs 0.01 / N, whether or not it succeeds. Going right in the last row and column
    pays 1. With `stochastic`, going right fails with probability 1 / N, and the last step adds a
    standard normal number where it is taken in the first or the last column. An episode terminates
    after N steps. The best mean return is 0.99; with `stochastic`, of an agent that goes left once
    it has slipped, q^(N - 1) - 0.01 (1 - q^N), where q = 1 - 1 / N.

    Metrics: `total_bad_episodes`, 1 from the step on that goes left on the diagonal, else 0;
    `denoised_return`, 1 once the treasure is found, else 0 (neither cost nor noise, as in
    the original).

    `mapping` follows from the other fields where it is None. `dataclasses.replace` keeps it:
    replace it by None along with them.

    Source: Osband et al. 2020, appendix; the published program (google-deepmind/bsuite 0.3.6) where
    it says more.
    """

    lifetime = Episodes(10_000)

    size: int = parameter(10, "N, rows and columns", low=2, high=1000, static=True)
    stochastic: bool = parameter(
        False, "let moves to the right fail, and add noise to the reward of the last step"
    )
    randomize_actions: bool = parameter(
        True, "draw the action that goes right for each cell; otherwise it is action 1 everywhere"
    )
    mapping_seed: int = parameter(42, "seed of that draw", low=0, high=2**31 - 1)
    mapping: Any = None  # [N, N] int8, the action that goes right

    def __post_init__(self) -> None:
        if self.mapping is None and isinstance(self.mapping_seed, int):  # neither of them is traced
            made = (
                action_mapping(self.size, self.mapping_seed)
                if self.randomize_actions
                else np.ones((self.size, self.size), np.int8)
            )
            object.__setattr__(self, "mapping", made)

    @property
    def spec(self) -> Spec:
        # no move goes more than one column to the right
        return Spec(OneHot(self.size**2, LowerTriangle(self.size)), Discrete(2))

    @property
    def typical_steps(self) -> float:
        return float(self.size)

    def reset(self, key: Array) -> tuple[DeepSeaState, Array]:
        del key
        zero, no = jnp.int32(0), jnp.bool_(False)
        return DeepSeaState(zero, zero, no, no), zero

    def step(self, key: Array, state: DeepSeaState, action: Array) -> tuple[DeepSeaState, Step]:
        N, last = self.size, self.size - 1
        slip, noise = sampling.uniforms(key)
        row, column = state.row, state.column
        cell = jnp.minimum(row, last) * N + column
        rightward = jnp.ravel(self.mapping).at[cell].get(mode="promise_in_bounds").astype(jnp.int32)
        right = vectorize.prevent_fusion_index((action == rightward).astype(jnp.int32)) == 1
        treasure = right & (column == last)
        noisy = jnp.logical_and(self.stochastic, (row == last) & ((column == 0) | (column == last)))
        gift = jnp.where(noisy, sampling.standard_normal(noise), 0.0)
        reward = gift + treasure.astype(jnp.float32) - jnp.where(right, COST / N, 0.0)
        moves = jnp.logical_or(jnp.logical_not(self.stochastic), slip > 1 / N)
        advanced = jnp.where(moves, jnp.minimum(column + 1, last), column)
        bad = state.bad | (~right & (row == column))
        column = jnp.where(right, advanced, jnp.maximum(column - 1, 0))
        row = row + 1
        ended = row >= N
        observation = jnp.where(ended, -1, row * N + column)
        return DeepSeaState(row, column, bad, state.found | treasure), Step(
            observation, reward, ended
        )

    def metrics(self, state: DeepSeaState) -> dict[str, Array]:
        return {
            "total_bad_episodes": state.bad.astype(jnp.float32),
            "denoised_return": state.found.astype(jnp.float32),
        }


def action_mapping(size: int, seed: int) -> np.ndarray:
    """Return the action that goes right in each cell, [N, N] int8, as the original draws it."""
    return np.random.RandomState(seed).binomial(1, 0.5, (size, size)).astype(np.int8)
