"""Inputs of a network that sees a belief: counts of transitions, action values of models, the time.

Rows (state, action) with a single possible successor are certain, and have no inputs. What is left
is [R, K]: R uncertain rows of up to K successors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jbrl import vectorize
from jbrl.agents.opps.ranking import plans
from jbrl.base.pytree import record, static
from jbrl.mdp import incremental
from jbrl.mdp.incremental import Plan
from jbrl.problems.prior import DirichletPrior

KINDS = ("belief", "values", "both", "mean", "mean and belief")
BELIEF = ("belief", "both", "mean and belief")  # kinds that see means and numbers of observations
MODELS = {"values": 3, "both": 3, "mean": 1, "mean and belief": 1}  # of Q0, Q1, Q2, that they see
DRAWN_OUT = 10.0  # factor of differences of action values, which are small beside the values


@record
class Rows:
    """The uncertain rows of a Dirichlet distribution over MDPs, and where transitions are in them.

    `D` = S A + 1: rows of the MDP, and one that stands for none.
    """

    concentrations: jax.Array  # [R, K] float32, 0 where a row has fewer successors
    row: jax.Array  # [S A] int32, the uncertain row of (state, action), R where it is certain
    place: jax.Array  # [S A S] int32, entry of a transition in [R, K], R K where it is certain
    successor: jax.Array  # [S A K] int32, the next state of each entry; certain ones repeated
    reward: jax.Array  # [S A K] float32

    @property
    def shape(self) -> tuple[int, int]:
        """R and K."""
        return self.concentrations.shape[-2], self.concentrations.shape[-1]


def rows_of(prior: DirichletPrior) -> Rows:
    """Return the uncertain rows. On the host; NumPy arrays."""
    alpha, rewards = np.asarray(prior.mdps.concentrations), np.asarray(prior.mdps.rewards)
    n_states = alpha.shape[0]
    alpha, rewards = alpha.reshape(-1, n_states), rewards.reshape(-1, n_states)
    possible = alpha > 0
    uncertain = possible.sum(1) > 1
    n_rows, width = int(uncertain.sum()), max(2, int(possible.sum(1).max()))
    row = np.where(uncertain, np.cumsum(uncertain) - 1, n_rows)
    # the possible successors first, in order; where there are fewer, the first again
    order = np.argsort(~possible, axis=1, kind="stable")
    order = np.pad(order, ((0, 0), (0, max(0, width - n_states))), mode="edge")[:, :width]
    found = np.arange(width) < possible.sum(1, keepdims=True)
    order = np.where(found, order, order[:, :1])
    place = np.full(alpha.shape, n_rows * width)
    for pair in np.flatnonzero(uncertain):
        k = possible[pair].sum()
        place[pair, order[pair, :k]] = row[pair] * width + np.arange(k)
    return Rows(
        np.where(found, np.take_along_axis(alpha, order, 1), 0)[uncertain].astype(np.float32),
        row.astype(np.int32),
        place.reshape(-1).astype(np.int32),
        order.reshape(-1).astype(np.int32),
        np.take_along_axis(rewards, order, 1).reshape(-1).astype(np.float32),
    )


@record
class Seen:
    """Observations of a lifetime so far."""

    counts: jax.Array  # [R K + 1] float32, transitions; the last entry takes those of certain rows
    plans: tuple[Plan, ...]  # of the models of Q0, Q1, Q2; none where values are no inputs
    time: jax.Array  # [] int32, decisions taken


@record
class BeliefInputs:
    """Inputs of a network by what a lifetime has shown."""

    rows: Rows
    plans: tuple[Plan, ...]  # before the first transition
    scale: jax.Array  # [] float32, action values are divided by it
    n_states: int = static()
    n_actions: int = static()
    horizon: int = static()  # H: time counts up to here
    kind: str = static()  # one of `KINDS`

    @property
    def size(self) -> int:
        """Number of inputs."""
        return _size(self.kind, self.n_states, self.n_actions, *self.rows.shape)

    def begin(self) -> Seen:
        """Return what is known before the first transition."""
        n_rows, width = self.rows.shape
        return Seen(jnp.zeros(n_rows * width + 1), self.plans, jnp.int32(0))

    def note(self, seen: Seen, x: jax.Array, u: jax.Array, y: jax.Array, reward: jax.Array) -> Seen:
        """Return what is known after one more transition."""
        counts = seen.counts
        if self.kind in BELIEF:
            transition = (x * self.n_actions + u) * self.n_states + y
            counts = _counted(counts, self.rows.place, transition)
        changed = tuple(incremental.learn(plan, x, u, y, reward) for plan in seen.plans)
        return Seen(counts, changed, seen.time + 1)

    def inputs(self, seen: Seen, x: jax.Array) -> jax.Array:
        """Return the inputs in state `x`: [size] float32.

        In this order: the state as one of S numbers that is 1; the time left, as a share;
        the posterior mean of each row but for its last successor, and 1 / sqrt(1 + n) of its n
        transitions, then the same of the rows of state `x`; of each of Q0, Q1 and Q2 the greatest
        value in `x`, and the distances of all values from it. The kind "mean": the values of Q0.
        """
        if self.kind == "mean":
            return _plain_values(seen.plans[0], x, self.scale)
        time = jnp.minimum(seen.time, self.horizon).astype(jnp.float32)
        left = 1 - time / self.horizon
        parts = [_one_hot(x, jnp.zeros(self.n_states)), left[None]]
        if self.kind in BELIEF:
            parts.append(_belief(seen.counts, self.rows.concentrations, self._rows_at(x)))
        parts += [_values(plan, x, self.scale) for plan in seen.plans]
        return jnp.concatenate(parts)

    def _rows_at(self, x: jax.Array) -> jax.Array:
        return vectorize.get_entry(self.rows.row.reshape(self.n_states, -1), x)


def number_of_inputs(prior: DirichletPrior, kind: str) -> int:
    """Return the number of inputs of a kind; on the host, and without values of models."""
    rows = rows_of(prior)
    return _size(kind, prior.mdps.n_states, prior.mdps.n_actions, *rows.concentrations.shape)


def _size(kind: str, n_states: int, n_actions: int, n_rows: int, width: int) -> int:
    if kind == "mean":
        return n_actions
    total = n_states + 1 + MODELS.get(kind, 0) * (n_actions + 1)
    if kind in BELIEF:
        total += n_rows * width + n_actions * width
    return total


def greatest_reward(prior: DirichletPrior) -> float:
    """Return the greatest absolute value of a reward that is possible; 1 where there is none. On
    the host.
    """
    possible = np.asarray(prior.mdps.concentrations) > 0
    return float(np.abs(np.where(possible, np.asarray(prior.mdps.rewards), 0)).max()) or 1.0


def belief_inputs(prior: DirichletPrior, kind: str, horizon: int) -> BeliefInputs:
    """Return the inputs for a prior. On the host.

    Args:
      kind: one of `KINDS`.
      horizon: H, of training.
    """
    n_models = MODELS.get(kind, 0)
    found: Any = plans(prior)[:n_models] if n_models else ()
    scale = greatest_reward(prior)
    if found:
        scale = float(jnp.abs(found[0].action_values).max()) or 1.0
    return BeliefInputs(
        rows_of(prior),
        tuple(found),
        jnp.float32(scale),
        prior.mdps.n_states,
        prior.mdps.n_actions,
        horizon,
        kind,
    )


@vectorize.over_lanes
def _counted(counts: jax.Array, place: jax.Array, transition: jax.Array) -> jax.Array:
    at = vectorize.prevent_fusion_index(vectorize.pick(place, transition))
    return vectorize.add_at(counts, at, jnp.ones(at.shape, counts.dtype))


@vectorize.over_lanes
def _one_hot(x: jax.Array, zeros: jax.Array) -> jax.Array:
    numbers = jnp.arange(zeros.shape[0], dtype=jnp.int32)[:, None]
    return (numbers == x[None]).astype(zeros.dtype)


@vectorize.over_lanes
def _belief(counts: jax.Array, concentrations: jax.Array, at: jax.Array) -> jax.Array:
    """Return the inputs by counts [R K + 1, N], of all rows and of the rows `at` [A, N]: [R K +
    A K, N].
    """
    n_rows, width, _ = concentrations.shape
    seen = counts[:-1].reshape(n_rows, width, counts.shape[-1])
    number = vectorize.fold(jnp.add, lambda k: seen[:, k], width)
    prior = concentrations.sum(1)
    means = (concentrations + seen)[:, :-1] / (prior + number)[:, None]
    table = jnp.concatenate([means, lax.rsqrt(1 + number)[:, None]], axis=1)
    lanes = max(table.shape[-1], at.shape[-1])
    table = jnp.broadcast_to(table, (n_rows, width, lanes))
    certain = jnp.concatenate([table, jnp.zeros((1, width, lanes), table.dtype)])
    here = [vectorize.pick(certain, at[u]) for u in range(at.shape[0])]
    here = [jnp.broadcast_to(v, (width, lanes)) for v in here]
    return jnp.concatenate([table.reshape(n_rows * width, lanes), *here])


def _lanes_values(plan: Plan, x: jax.Array, scale: jax.Array) -> jax.Array:
    values = vectorize.pick(plan.q, x) + plan.level[None]
    return vectorize.prevent_fusion(values / scale[None])


@vectorize.over_lanes
def _plain_values(plan: Plan, x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return the action values in state `x`, in units of `scale`: [A, N]."""
    return _lanes_values(plan, x, scale)


@vectorize.over_lanes
def _values(plan: Plan, x: jax.Array, scale: jax.Array) -> jax.Array:
    """Return the inputs by the action values in state `x`: [1 + A, N]."""
    values = _lanes_values(plan, x, scale)
    greatest = vectorize.fold(jnp.maximum, lambda u: values[u], values.shape[0])
    # small differences decide: they are drawn out
    return jnp.concatenate([greatest[None], DRAWN_OUT * (values - greatest[None])])
