"""Bootstrap resamples of a score table and their games, thousands in one call.

A resample draws each cell's samples anew, with replacement, to their number, the cells
independently. What it needs of them is how often each sample was drawn; the samples of an
environment being sorted once and for all, the payoffs follow in one pass through them.

On CPUs both are loops of scalar steps, which XLA compiles as C would be; that is some ten times
faster than the same by array operations, since of n comparisons with each place of the support only
one row is ever not zero. On accelerators they are array operations. Resamples are spread over the
devices. Number r of a seed is the same for any number, device and grouping.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from jbrl.base.pytree import record
from jbrl.stats.game import equilibrium
from jbrl.stats.moves import TIE
from jbrl.stats.percentiles import Samples, payoffs
from jbrl.stats.sides import EQUAL

CHUNK = 64  # resamples of one device in one call
WIDE = 16  # of these at once, on accelerators
TOLERANCE = 1e-10  # of the stationary distribution, sum of errors


@record
class _Cells:
    """One environment, padded.

    An entry is a distinct score of an algorithm; entries stand in order of score, then algorithm.

    A pass through the support adds each entry to what is below, then reads what is below it; where
    algorithms share a score, all of them are added first. Where they do not, one step does both.
    """

    owner: jax.Array  # [E] int32, algorithm of each entry
    place: jax.Array  # [E] int32, number of its score among the distinct ones
    steps: jax.Array  # [P] int32, entry that each step of the pass is about
    adds: jax.Array  # [P] int32, 1 where the step adds
    reads: jax.Array  # [P] int32, 1 where the step reads
    entry: jax.Array  # [N] int32, entry of each sample, those of an algorithm side by side
    first: jax.Array  # [N] int32, first sample of the same algorithm
    total: jax.Array  # [N] uint32, their number
    totals: jax.Array  # [n] float64
    n_steps: jax.Array  # [] int32
    n_samples: jax.Array  # [] int32
    same: jax.Array  # [n, n] bool


def resampled_scores(
    samples: Samples, resamples: int, seed: int = 0, tell: Callable[[int], Any] | None = None
) -> np.ndarray:
    """Return aggregate scores of `resamples` bootstrap resamples, [resamples, n] float64.

    Args:
      tell: called with the number of resamples done so far.
    """
    parts, done, point = [], 0, payoffs(samples)
    for z in resampled_payoffs(samples, resamples, seed):
        parts.append(aggregate_scores(z, point))
        done += len(z)
        if tell:
            tell(done)
    return np.concatenate(parts)


def resampled_payoffs(samples: Samples, resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield payoffs of bootstrap resamples, in groups [R, n, m, n] float64."""
    devices = jax.devices()
    width = min(CHUNK, -(-resamples // len(devices)))
    program = _over_devices(_payoffs_of_cell, tuple(devices))
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        shared = [
            (jax.random.fold_in(key, j), _cells(samples, j))
            for j in range(len(samples.environments))
        ]
    for start in range(0, resamples, width * len(devices)):
        numbers = np.arange(start, start + width * len(devices), dtype=np.uint32)
        with jax.enable_x64(True):  # not while the caller has the turn
            found = [np.asarray(program(one, numbers)) for one in shared]
        yield np.stack(found, axis=2)[: resamples - start]


def aggregate_scores(payoff: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return aggregate scores [R, n] float64 of R games with payoffs [R, n, m, n], all of them near
    [n, m, n] (that saves iterations).
    """
    devices = jax.devices()
    count = len(payoff)
    short = -count % len(devices)
    padded = np.concatenate([payoff, payoff[:1].repeat(short, axis=0)]) if short else payoff
    guess = equilibrium(near).d
    with jax.enable_x64(True):
        scores, error = _over_devices(_scores_of_game, tuple(devices))(
            jnp.asarray(guess), jnp.asarray(padded)
        )
        scores, error = np.array(scores)[:count], np.asarray(error)[:count]
    for r in np.flatnonzero(~(error <= TOLERANCE)):  # the few on which the iteration breaks down
        scores[r] = equilibrium(payoff[r]).scores
    return scores


@functools.cache
def _over_devices(
    fn: Callable[[Any, Any], Any], devices: tuple[jax.Device, ...]
) -> Callable[[Any, Any], Any]:
    """Call `fn(shared, lane)` for many lanes, an equal part of them on each device: one after the
    other on CPUs, some at once elsewhere.
    """
    wide = None if devices[0].platform == "cpu" else WIDE

    def part(shared: Any, lanes: Any) -> Any:
        return lax.map(functools.partial(fn, shared), lanes, batch_size=wide)

    mesh, split = Mesh(np.array(devices), ("resamples",)), PartitionSpec("resamples")
    return jax.jit(
        jax.shard_map(
            part, mesh=mesh, in_specs=(PartitionSpec(), split), out_specs=split, check_vma=False
        )
    )


def _cells(samples: Samples, environment: int) -> _Cells:
    counts = samples.counts[environment]
    place, owner = np.nonzero(counts.T)  # sorted by score, then by algorithm
    each = counts[owner, place]
    steps, adds, reads = _steps(place)
    by_algorithm = np.argsort(owner, kind="stable")
    totals = counts.sum(axis=1)
    arrays = {
        "owner": owner,
        "place": place,
        "steps": steps,
        "adds": adds,
        "reads": reads,
        "entry": np.repeat(by_algorithm, each[by_algorithm]),
        "first": np.repeat(np.cumsum(totals) - totals, totals),
    }
    padded = {
        name: jnp.asarray(_padded(values).astype(np.int32)) for name, values in arrays.items()
    }
    return _Cells(
        **padded,
        total=jnp.asarray(_padded(np.repeat(totals, totals)).astype(np.uint32)),
        totals=jnp.asarray(totals.astype(np.float64)),
        n_steps=jnp.int32(len(steps)),
        n_samples=jnp.int32(totals.sum()),
        same=jnp.asarray(samples.same[:, environment]),
    )


def _steps(place: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps of the pass through entries with scores number `place` [E]: entry, whether
    it adds, whether it reads.
    """
    number = np.arange(len(place))
    last = np.append(place[1:] != place[:-1], True)  # of its score: adds and reads
    early = number[~last]  # adds at its turn, reads after the last one of its score
    turn = np.concatenate([number, number[last][place[early]]])
    order = np.argsort(turn, kind="stable")
    adds = np.append(np.ones(len(place)), np.zeros(len(early)))
    reads = np.append(last, np.ones(len(early)))
    return np.append(number, early)[order], adds[order], reads[order]


def _padded(values: np.ndarray) -> np.ndarray:
    """Lengthen an array to one of eight lengths in each octave, so that environments of similar
    size share a program.
    """
    step = max(16, (1 << (len(values) - 1).bit_length()) // 16)
    return np.pad(values, (0, -len(values) % step))


# What follows is traced: functions of (what all resamples share, what belongs to one).


def _payoffs_of_cell(shared: tuple[jax.Array, _Cells], number: jax.Array) -> jax.Array:
    """Return payoffs of one environment in resample `number`, [n, n]."""
    key, cells = shared
    bits = jax.random.bits(jax.random.fold_in(key, number), cells.entry.shape, jnp.uint32)
    ways = {"cpu": _compared_by_loops, "default": _compared_by_arrays}
    sums = lax.platform_dependent(cells, _drawn(cells, bits), **ways)
    return jnp.where(cells.same, 0.5, sums / (cells.totals[:, None] * cells.totals[None, :]))


def _drawn(cells: _Cells, bits: jax.Array) -> jax.Array:
    """Return the sample that each random word [N] uint32 draws from its cell: the entry, [N] int32.

    Uniform up to T / 2^32.
    """
    step = (bits.astype(jnp.uint64) * cells.total.astype(jnp.uint64)) >> jnp.uint64(32)
    return cells.entry[cells.first + step.astype(jnp.int32)]


def _compared_by_loops(cells: _Cells, drawn: jax.Array) -> jax.Array:
    """Sum, over the draws of algorithm i, the draws of algorithm k at or below them, [n, n]."""
    n = len(cells.totals)

    def count(t: jax.Array, times: jax.Array) -> jax.Array:
        e = _at(drawn, t)
        return _set(times, e, _at(times, e) + 1)

    times = lax.fori_loop(
        jnp.int32(0), cells.n_samples, count, jnp.zeros(cells.owner.shape, jnp.int32)
    )

    width = -(-n // 4) * 4  # rows of whole vectors

    def step(s: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        sums, below = carry
        e = _at(cells.steps, s)
        owner, drawn = _at(cells.owner, e), _at(times, e)
        below = _set(
            below, owner, _at(below, owner) + (drawn * _at(cells.adds, s)).astype(jnp.float64)
        )
        more = (drawn * _at(cells.reads, s)).astype(jnp.float64) * below
        row = owner * width
        return lax.dynamic_update_slice(
            sums, lax.dynamic_slice(sums, (row,), (width,)) + more, (row,)
        ), below

    begin = (jnp.zeros(n * width, jnp.float64), jnp.zeros(width, jnp.float64))
    return lax.fori_loop(jnp.int32(0), cells.n_steps, step, begin)[0].reshape(n, width)[:, :n]


def _compared_by_arrays(cells: _Cells, drawn: jax.Array) -> jax.Array:
    """Compute the same by a matrix product over the support."""
    n, width = len(cells.totals), len(cells.owner)
    counted = (jnp.arange(len(drawn), dtype=jnp.int32) < cells.n_samples).astype(jnp.int32)
    times = jnp.zeros((n, width), jnp.int32).at[cells.owner[drawn], cells.place[drawn]].add(counted)
    below = jnp.cumsum(times, axis=1, dtype=jnp.int32)
    return jnp.einsum(
        "iu,ku->ik",
        times.astype(jnp.float64),
        below.astype(jnp.float64),
        precision=lax.Precision.HIGHEST,
    )


def _at(array: jax.Array, index: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _set(array: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    return lax.dynamic_update_index_in_dim(array, value, index, 0)


def _scores_of_game(guess: jax.Array, payoff: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return aggregate scores [n] of one game, and a bound on the error of its stationary
    distribution; see `jbrl.stats.game`.
    """
    n = len(payoff)
    u = payoff.reshape(n, -1)
    B = u.shape[1]
    damping = (n + B - 2) / (n * B - 1)
    p, q = _rates(u.T), _rates(-u)
    diagonal = damping + p.sum(axis=2).T + q.sum(axis=2)

    def apply(d: jax.Array) -> jax.Array:
        return diagonal * d - jnp.einsum("bij,ib->jb", p, d) - jnp.einsum("ibc,ib->ic", q, d)

    right = jnp.full((n, B), damping / (n * B), jnp.float64)
    d, _ = jax.scipy.sparse.linalg.bicgstab(
        apply,
        right,
        x0=guess,
        tol=0.0,
        atol=TOLERANCE * damping / (n * B) ** 0.5,
        maxiter=200,
        M=lambda r: r / diagonal,
    )
    error = jnp.abs(right - apply(d)).sum() / damping
    return u @ (d / d.sum()).sum(axis=0), error


def _rates(value: jax.Array) -> jax.Array:
    shape = (*value.shape, value.shape[1])
    here, there = (jnp.broadcast_to(jnp.expand_dims(value, axis), shape) for axis in (2, 1))
    equal = jnp.abs(here - there) <= EQUAL * jnp.maximum(jnp.abs(here), jnp.abs(there))
    rate = jnp.where(equal, TIE, (there > here).astype(value.dtype))
    return jnp.where(jnp.eye(value.shape[1], dtype=bool)[None], 0.0, rate)
