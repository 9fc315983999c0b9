"""Lifetimes of a policy of the look-ahead, many at once."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jbrl.bayes_optimal.counts import Cell
from jbrl.bayes_optimal.look_ahead import Table
from jbrl.bayes_optimal.model import Model
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import DirichletMDPs

LANES = 4096  # lifetimes of a compiled call; results do not depend on how many calls there are
FIRST_SWEEPS = 200  # of value iteration before the first of the last decisions
SWEEPS = 6  # of value iteration after each transition
AT_ONCE = 1024  # lifetimes


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """All rows of a model, padded to `K` successors; the `W` rows of a state are the certain ones,
    then the uncertain ones.
    """

    successors: np.ndarray  # [S, W, K] int
    rewards: np.ndarray  # [S, W, K] float32
    concentrations: np.ndarray  # [S, W, K] float32; 1 for the successor of a certain row
    uncertain: np.ndarray  # [S, W] bool
    exists: np.ndarray  # [S, W] bool

    @classmethod
    def of(cls, model: Model) -> "Rows":
        n_rows = [len(rows) for rows in model.certain]
        for block in model.blocks:
            n_rows[block.state] += len(block.actions)
        shape = (
            model.n_states,
            max(n_rows),
            max([1, *(len(block.successors) for block in model.blocks)]),
        )
        successors, rewards = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        concentrations = np.zeros(shape, np.float32)
        uncertain, exists = np.zeros(shape[:2], bool), np.zeros(shape[:2], bool)
        for x, rows in enumerate(model.certain):
            for w, row in enumerate(rows):
                successors[x, w, 0], rewards[x, w, 0] = row.successor, row.reward
                concentrations[x, w, 0], exists[x, w] = 1, True
        for block in model.blocks:
            first, k = len(model.certain[block.state]), len(block.successors)
            part = (block.state, slice(first, first + len(block.actions)), slice(k))
            successors[part], rewards[part] = block.successors, block.rewards
            concentrations[part] = block.concentrations
            uncertain[part[:2]] = exists[part[:2]] = True
        return cls(successors, rewards, concentrations, uncertain, exists)


class Lifetimes:
    """Lifetimes of a policy: first the choices of a table; then those greedy in the posterior-mean
    MDP with `bonus` / (1 + n) added to the reward of a row of n observations, concentrations
    included.
    """

    def __init__(self, table: Table, discount: float, horizon: int) -> None:
        self.table, self.discount = table, discount
        self.rows = Rows.of(table.layers.model)
        self._values = Chance(table.layers.model.mdps, discount, horizon).values
        self._finish = _finish(self.rows, discount, self._values[table.decisions :])

    def play(self, bonus: float, n_mdps: int, seed: np.random.SeedSequence) -> np.ndarray:
        """Play one lifetime in each of N MDPs drawn from the prior.

        Args:
          n_mdps: N, at least 1.

        Returns: discounted returns less their `Chance`, [N] float64; the first ones are the same
        for any N.
        """
        returns = []
        for number in range(math.ceil(n_mdps / LANES)):
            own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
            returns.append(self._play(bonus, np.random.default_rng(own)))
        return np.concatenate(returns)[:n_mdps]

    def _play(self, bonus: float, generator: np.random.Generator) -> np.ndarray:
        keys = jax.random.split(jax.random.key(int(generator.integers(2**32))), LANES)
        true = np.asarray(_draw(self.rows.concentrations, keys), np.float64)
        played = _Played(self.table, self.rows, self._values, self.discount)
        states, lanes = _follow(played, true, generator)
        rest = self._finish(
            np.float32(bonus),
            jnp.asarray(lanes.true, jnp.float32),
            jnp.asarray(lanes.counts, jnp.float32),
            jnp.asarray(states, jnp.int32),
            jax.random.key(int(generator.integers(2**32))),
        )
        return lanes.earned + _power(self.discount, self.table.decisions) * np.asarray(
            rest, np.float64
        )


@jax.jit
def _draw(concentrations: jax.Array, keys: jax.Array) -> jax.Array:
    """Draw one MDP for each of N keys by the draws of played MDPs, [S, W, K, N] float32.

    NumPy's Beta draws differ between C libraries.
    """
    draw = functools.partial(sampling.dirichlet, concentrations=concentrations)
    return jnp.where(concentrations[..., None] > 0, jax.vmap(draw, out_axes=-1)(keys), 0.0)


def _power(discount: float, exponent: int) -> float:
    """Return a power by products alone, which are the same on every processor."""
    return math.prod([discount] * exponent)


@dataclasses.dataclass(eq=False)
class _Lanes:
    """Lifetimes that follow a table. Rows of a state stand in the order of the splits."""

    true: np.ndarray  # [S, W, K, LANES] float64
    counts: np.ndarray  # [S, W, K, LANES] int16
    splits: np.ndarray  # [B, LANES] int64, the split of each block
    earned: np.ndarray  # [LANES] float64, less chance


@dataclasses.dataclass(frozen=True, eq=False)
class _Played:
    """A table that is followed."""

    table: Table
    rows: Rows
    values: np.ndarray  # v of the control after so many decisions, [T + 1, S]
    discount: float

    def gain(self, t: int, x: int, expected: np.ndarray | float) -> np.ndarray | float:
        """Return what decision number t adds to returns, given what was to be expected of it."""
        return _power(self.discount, t) * (expected - self.values[t, x])

    def after(self, t: int, y: np.ndarray | int) -> np.ndarray:
        """Return the discounted v of states after decision number t."""
        return np.asarray(self.discount * self.values[t + 1, y])


def _follow(
    played: _Played, true: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, _Lanes]:
    """Follow the table; return the states then, [LANES] int64, and the lanes."""
    table = played.table
    layers = table.layers
    first = np.array(layers.model.first_states)
    states = first[generator.integers(len(first), size=LANES)]
    lanes = _Lanes(
        true,
        np.zeros(true.shape, np.int16),
        np.zeros((len(layers.blocks), LANES), np.int64),
        played.values[0, states],
    )
    nothing = tuple(block.nothing for block in layers.blocks)
    groups = {Cell(int(x), nothing): np.flatnonzero(states == x) for x in first}
    for t, choices in enumerate(table.choices):
        uniforms = generator.random(LANES)
        following: dict[Cell, list[np.ndarray]] = {}
        for cell, group in groups.items():
            if len(group):
                chosen = choices[cell][tuple(lanes.splits[:, group])]
                for new, moved in _move(played, lanes, t, cell, group, chosen, uniforms[group]):
                    following.setdefault(new, []).append(moved)
        groups = {cell: np.concatenate(parts) for cell, parts in following.items()}
    for cell, group in groups.items():
        states[group] = cell.state
    return states, lanes


def _move(
    played: _Played,
    lanes: _Lanes,
    t: int,
    cell: Cell,
    group: np.ndarray,
    chosen: np.ndarray,
    uniforms: np.ndarray,
) -> Iterator[tuple[Cell, np.ndarray]]:
    """Take one decision in the lanes of a cell; yield new cells and the lanes that are there."""
    x, layers, rows = cell.state, played.table.layers, played.rows
    certain = layers.model.certain[x]
    for w, row in enumerate(certain):
        mine = group[chosen == w]
        if len(mine):
            expected = row.reward + played.after(t, row.successor)
            lanes.earned[mine] += played.gain(t, x, expected)
            yield Cell(row.successor, cell.totals), mine
    uncertain = chosen >= len(certain)
    if not uncertain.any():
        return
    number = int(layers.model.block_of[x])
    block, total = layers.blocks[number], cell.totals[number]
    group, taken = group[uncertain], chosen[uncertain]
    cdf = np.cumsum(lanes.true[x][taken, :, group], axis=1)
    greatest = (rows.concentrations[x, taken] > 0).cumsum(1).argmax(1)
    outcome = np.minimum((cdf <= uniforms[uncertain][:, None]).sum(1), greatest)
    weights = rows.concentrations[x, taken] + lanes.counts[x][taken, :, group]
    worth = rows.rewards[x, taken] + played.after(t, rows.successors[x, taken])
    lanes.earned[group] += played.gain(t, x, (weights * worth).sum(1) / weights.sum(1))
    lanes.counts[x, taken, outcome, group] += 1
    part = slice(len(certain), len(certain) + len(block.block.actions))
    k_of = len(block.block.successors)
    for k in np.unique(outcome):
        mine = group[outcome == k]
        counts = lanes.counts[x, part, :k_of][:, :, mine].transpose(2, 0, 1)
        lanes.splits[number, mine], order = block.place(block.add(total, int(k)), counts)
        for array in (lanes.counts, lanes.true):
            ours = array[x, part][:, :, mine]
            array[x, part, :, mine] = np.take_along_axis(
                ours.transpose(2, 0, 1), order[:, :, None], 1
            )
        yield layers.successor(cell, int(k)), mine


def _finish(rows: Rows, discount: float, values: np.ndarray) -> Callable[..., jax.Array]:
    """Return a compiled function that plays the last decisions of all lanes.

    Args:
      values: v of `Chance` from then on, [T + 1, S].

    Its arguments: the bonus [], MDPs [S, W, K, N], counts [S, W, K, N], states [N], a key. It
    returns discounted rewards less chance and v of the state, [N] float32.
    """
    successors, rewards = rows.successors, jnp.asarray(rows.rewards)[..., None]
    uncertain = jnp.asarray(rows.uncertain)[..., None]
    missing = jnp.asarray(np.where(rows.exists, 0.0, -np.inf), jnp.float32)[..., None]

    def plan(
        bonus: jax.Array, counts: jax.Array, value: jax.Array, sweeps: int
    ) -> tuple[jax.Array, jax.Array]:
        totals = counts.sum(2)
        mean = counts / jnp.maximum(totals, 1e-30)[:, :, None]
        gains = (mean * rewards).sum(2) + missing + jnp.where(uncertain, bonus / (1 + totals), 0.0)

        def sweep(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            after = carry[1][successors.reshape(-1)].reshape(counts.shape)
            q = gains + discount * (mean * after).sum(2)
            return q, q.max(1)

        return lax.fori_loop(0, sweeps, sweep, (gains, value))

    def play(
        bonus: jax.Array, true: jax.Array, counts: jax.Array, x: jax.Array, key: jax.Array
    ) -> jax.Array:
        counts = counts + jnp.asarray(rows.concentrations)[..., None]
        lanes = jnp.arange(x.shape[0])
        cdf = jnp.cumsum(true, 2)
        last = jnp.asarray((rows.concentrations > 0).cumsum(2).argmax(2))

        def step(carry: tuple[Any, ...], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            counts, value, x, earned = carry
            uniform, factor, now, after = inputs
            q, value = plan(bonus, counts, value, SWEEPS)
            w = q[x, :, lanes].argmax(1)
            y = jnp.minimum((cdf[x, w, :, lanes] <= uniform[:, None]).sum(1), last[x, w])
            row = counts[x, w, :, lanes]
            worth = rewards[x, w, :, 0] + after[jnp.asarray(successors)[x, w]]
            gained = (row * worth).sum(1) / row.sum(1) - now[x]
            seen = jnp.where(uncertain[x, w, 0], 1.0, 0.0)
            counts = counts.at[x, w, y, lanes].add(seen)
            x = jnp.asarray(successors)[x, w, y]
            return (counts, value, x, earned + factor * gained), None

        value = plan(bonus, counts, jnp.zeros((len(successors), x.shape[0])), FIRST_SWEEPS)[1]
        steps = len(values) - 1
        factors = discount ** jnp.arange(steps, dtype=jnp.float32)
        uniforms = jax.random.uniform(key, (steps, x.shape[0]))
        v = jnp.asarray(values, jnp.float32)
        carry = (counts, value, x, jnp.zeros(x.shape, jnp.float32))
        return lax.scan(step, carry, (uniforms, factors, v[:-1], discount * v[1:]))[0][3]

    return jax.jit(play)


class Chance:
    """The part of a return that is chance: what transitions add to what was to be expected of them.

    For any function v of the state, the reward and the discounted v of the next state, less their
    mean given the history, have the mean 0 given the history, whatever the agent does. Their sum is
    taken from a return: this leaves its mean as it is, and most of its variance out (a control
    variate; the martingale of Henderson and Glynn 2002). Here v is the optimal value of the mean
    MDP with the decisions that are left of `horizon`.
    """

    def __init__(self, mdps: DirichletMDPs, discount: float, horizon: int) -> None:
        self._prior = np.asarray(mdps.concentrations, np.float64)
        self._rewards = np.asarray(mdps.rewards, np.float64)
        self._discount = discount
        mean = self._prior / self._prior.sum(-1, keepdims=True)
        gains = (mean * self._rewards).sum(-1)
        value = np.zeros(mdps.n_states)
        values = [value]
        for _ in range(horizon):
            value = (gains + discount * (mean * value).sum(-1)).max(1)  # no product of BLAS
            values.append(value)
        self.values = np.array(values[::-1])  # v after so many decisions, [T + 1, S]

    def least(self, first_states: Sequence[int]) -> float:
        """Return a number that no return is below from which its chance is taken.

        It is v of the first state and, discounted, the differences of what is to be expected of
        each transition and v of the state; an expectation is not below the worst outcome.
        """
        possible = self._prior > 0
        least = np.zeros(len(self._prior))
        for now, after in zip(self.values[-2::-1], self.values[:0:-1], strict=True):
            worth = np.where(possible, self._rewards + self._discount * after, np.inf).min(-1)
            rest = np.where(possible, self._discount * least, np.inf).min(-1)
            least = (worth - now[:, None] + rest).min(1)
        return float((self.values[0] + least)[list(first_states)].min())

    def of(self, trajectories: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the part of each discounted return that is chance, [N] float64.

        Args:
          trajectories: `states`, [N, T + 1] int, and `actions`, [N, T] int.
        """
        states, actions = trajectories["states"], trajectories["actions"]
        parts = [slice(first, first + AT_ONCE) for first in range(0, len(states), AT_ONCE)]
        return np.concatenate([self._of(states[part], actions[part]) for part in parts])

    def _of(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        lanes = np.arange(len(states))
        counts = np.zeros((len(states), *self._prior.shape))
        chance, factor = np.zeros(len(states)), 1.0
        for t, after in enumerate(self.values[1:]):
            x, u, y = states[:, t], actions[:, t], states[:, t + 1]
            row = self._prior[x, u] + counts[lanes, x, u]
            worth = self._rewards[x, u] + self._discount * after
            expected = (row * worth).sum(1) / row.sum(1)
            chance += factor * (worth[lanes, y] - expected)
            counts[lanes, x, u, y] += 1
            factor *= self._discount
        return chance
