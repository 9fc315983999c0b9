"""Bootstrap intervals of the aggregate scores: percentile, as in the paper, or bias-corrected and
accelerated.

An interval has the level 1 - delta / (n·m), as the published program takes it. For 11 algorithms on
15 environments and delta = 0.05 this leaves 1.5 of 10,000 resamples beyond each end: ends are
Monte-Carlo numbers.

A resample draws each cell's samples anew, with replacement, to their number, the cells
independently. What it needs of them is how often each sample was drawn; the samples of an
environment being sorted once and for all, the payoffs follow in one pass through them.

On CPUs both are loops of scalar steps, which XLA compiles as C would be; that is some ten times
faster than the same by array operations, since of n comparisons with each place of the support only
one row is ever not zero. On accelerators they are array operations. Resamples are spread over the
devices. Number r of a seed is the same for any number, device and grouping.

Source: Jordan et al. 2020, section 4.3 and appendix G; Efron 1987 (BCa), its acceleration for
several samples from Davison and Hinkley 1997, section 5.4.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from jbrl.base.errors import check_choice, check_count
from jbrl.base.pytree import record
from jbrl.stats.evaluation.game import EQUAL, TIE, Equilibrium, equilibrium
from jbrl.stats.evaluation.propagation import check_delta, check_two
from jbrl.stats.evaluation.samples import Samples, frequencies, payoffs
from jbrl.stats.paired_bootstrap import bca_levels

RESAMPLES = 10_000
Interval = Literal["percentile", "bca"]


@dataclasses.dataclass(frozen=True)
class Bootstrap:
    """Resampled aggregate scores and the intervals they give."""

    scores: np.ndarray  # [resamples, n] float64
    lower: np.ndarray  # [n] float64
    upper: np.ndarray  # [n] float64


def bootstrap(
    samples: Samples,
    delta: float = 0.05,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    interval: Interval = "percentile",
    progress: Callable[[int], Any] | None = None,
) -> Bootstrap:
    """Return intervals of all aggregate scores from `resamples` bootstrap resamples.

    Args:
      interval: "percentile" or "bca".
      progress: called with the number of resamples done so far.

    Raises:
      JbrlError: delta is not in (0, 0.5], `resamples` not an integer from 1, `seed` not one from 0,
        `interval` neither name, or a cell has one sample only.
    """
    check_delta(delta)
    check_count("resamples", resamples, 2**32 - 1)
    check_count("seed", seed, 2**32 - 1, low=0)
    check_choice("interval", interval, ("percentile", "bca"))
    check_two(samples, "bootstrap")
    scores = resampled_scores(samples, resamples, seed, progress)
    n, m = samples.shape
    tail = delta / (n * m) / 2
    levels = np.tile([tail, 1 - tail], (n, 1))
    if interval == "bca":
        levels = _bca_levels(samples, scores, levels)
    ends = np.array([np.quantile(scores[:, i], levels[i]) for i in range(n)])
    return Bootstrap(scores, ends[:, 0], ends[:, 1])


def _bca_levels(samples: Samples, scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return levels corrected for bias and acceleration, [n, 2]."""
    z = payoffs(samples)
    point = equilibrium(z)
    known = point.scores.round(DECIMALS)
    below = (scores < known).mean(axis=0) + (scores == known).mean(axis=0) / 2
    return bca_levels(below[:, None], len(scores), acceleration(samples, point)[:, None], levels)


def acceleration(samples: Samples, point: Equilibrium) -> np.ndarray:
    """Return the acceleration of each aggregate score, [n] float64.

    What player q plays depends on the order of the payoffs only, hence not on a small change of one
    sample's weight; influences are therefore those of the payoffs, weighed by q, and no sample need
    be left out in turn.
    """
    n, m = samples.shape
    squares, cubes = np.zeros(n), np.zeros(n)
    for j in range(m):
        weights, cdf = frequencies(samples, j), samples.cdf(j)
        above = 1 - cdf + weights  # P(X >= u), the payoff of X against a sample at u
        for i in range(n):
            # opponents whose payoffs depend on samples
            counts = np.where(samples.same[i, j], 0, point.q[j])
            influence = counts[:, None] * above[i]  # on y_i, of a sample of opponent k at u
            influence[i] += counts @ cdf  # of one of its own
            influence -= (influence * weights).sum(axis=1, keepdims=True)
            total = samples.totals[:, j]
            squares[i] += (weights * influence**2).sum(axis=1) @ (1 / total)
            cubes[i] += (weights * influence**3).sum(axis=1) @ (1 / total**2)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = cubes / (6 * squares**1.5)
    return np.where(squares > 0, ratio, 0.0)


CHUNK = 64  # resamples of one device in one call
WIDE = 16  # of these at once, on accelerators
TOLERANCE = 1e-10  # of the stationary distribution, sum of errors
DECIMALS = 10  # of resampled scores: further digits differ by processor


@record
class _Cells:
    """One environment, padded.

    An entry is a distinct score of an algorithm; entries stand in order of score, then algorithm.

    A pass through the support adds each entry to what is below, then reads what is below it; where
    algorithms share a score, all of them are added first. Where they do not, one step does both.
    """

    owner: Array  # [E] int32, algorithm of each entry
    place: Array  # [E] int32, number of its score among the distinct ones
    steps: Array  # [P] int32, entry that each step of the pass is about
    adds: Array  # [P] int32, 1 where the step adds
    reads: Array  # [P] int32, 1 where the step reads
    entry: Array  # [N] int32, entry of each sample, those of an algorithm side by side
    first: Array  # [N] int32, first sample of the same algorithm
    total: Array  # [N] uint32, their number
    totals: Array  # [n] float64
    n_steps: Array  # [] int32
    n_samples: Array  # [] int32
    same: Array  # [n, n] bool


def resampled_scores(
    samples: Samples, resamples: int, seed: int = 0, progress: Callable[[int], Any] | None = None
) -> np.ndarray:
    """Return aggregate scores of `resamples` bootstrap resamples, [resamples, n] float64.

    Args:
      progress: called with the number of resamples done so far.
    """
    parts, done, point = [], 0, payoffs(samples)
    for z in resampled_payoffs(samples, resamples, seed):
        parts.append(aggregate_scores(z, point))
        done += len(z)
        if progress:
            progress(done)
    return np.concatenate(parts)


def resampled_payoffs(samples: Samples, resamples: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield payoffs of bootstrap resamples, in groups [R, n, m, n] float64."""
    devices = jax.devices()
    width = min(CHUNK, -(-resamples // len(devices)))
    program = _over_devices(_payoffs_of_cell, tuple(devices))
    environments = range(len(samples.environments))
    with jax.enable_x64(True):
        key = jax.random.key(seed)
        shared = [(jax.random.fold_in(key, j), _cells(samples, j)) for j in environments]
    for start in range(0, resamples, width * len(devices)):
        numbers = np.arange(start, start + width * len(devices), dtype=np.uint32)
        with jax.enable_x64(True):  # not while the caller has the turn
            parts = [np.asarray(program(one, numbers)) for one in shared]
        yield np.stack(parts, axis=2)[: resamples - start]


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
    return scores.round(DECIMALS)


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
    specs: Any = {"in_specs": (PartitionSpec(), split), "out_specs": split}
    return jax.jit(jax.shard_map(part, mesh=mesh, check_vma=False, **specs))


def _cells(samples: Samples, environment: int) -> _Cells:
    counts = samples.counts[environment]
    place, owner = np.nonzero(counts.T)  # sorted by score, then by algorithm
    each = counts[owner, place]
    steps, adds, reads = _steps(place)
    by_algorithm = np.argsort(owner, kind="stable")
    totals = counts.sum(axis=1)
    entry = np.repeat(by_algorithm, each[by_algorithm])
    first = np.repeat(np.cumsum(totals) - totals, totals)
    arrays = (owner, place, steps, adds, reads, entry, first)
    fields = [jnp.asarray(_padded(values).astype(np.int32)) for values in arrays]
    fields += [
        jnp.asarray(_padded(np.repeat(totals, totals)).astype(np.uint32)),
        jnp.asarray(totals.astype(np.float64)),
        jnp.int32(len(steps)),
        jnp.int32(totals.sum()),
        jnp.asarray(samples.same[:, environment]),
    ]
    return _Cells(*fields)


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


def _payoffs_of_cell(shared: tuple[Array, _Cells], number: Array) -> Array:
    """Return payoffs of one environment in resample `number`, [n, n]."""
    key, cells = shared
    bits = jax.random.bits(jax.random.fold_in(key, number), cells.entry.shape, jnp.uint32)
    ways = {"cpu": _compared_by_loops, "default": _compared_by_arrays}
    sums = lax.platform_dependent(cells, _drawn(cells, bits), **ways)
    return jnp.where(cells.same, 0.5, sums / (cells.totals[:, None] * cells.totals[None, :]))


def _drawn(cells: _Cells, bits: Array) -> Array:
    """Return the sample that each random word [N] uint32 draws from its cell: the entry, [N] int32.

    Uniform up to T / 2^32.
    """
    step = (bits.astype(jnp.uint64) * cells.total.astype(jnp.uint64)) >> jnp.uint64(32)
    return cells.entry[cells.first + step.astype(jnp.int32)]


def _compared_by_loops(cells: _Cells, drawn: Array) -> Array:
    """Sum, over the draws of algorithm i, the draws of algorithm k at or below them, [n, n]."""
    n = len(cells.totals)

    def count(t: Array, times: Array) -> Array:
        e = _at(drawn, t)
        return _set(times, e, _at(times, e) + 1)

    never = jnp.zeros(cells.owner.shape, jnp.int32)
    times = lax.fori_loop(jnp.int32(0), cells.n_samples, count, never)

    width = -(-n // 4) * 4  # rows of whole vectors

    def step(s: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        sums, below = carry
        e = _at(cells.steps, s)
        owner, drawn = _at(cells.owner, e), _at(times, e)
        added = (drawn * _at(cells.adds, s)).astype(jnp.float64)
        below = _set(below, owner, _at(below, owner) + added)
        more = (drawn * _at(cells.reads, s)).astype(jnp.float64) * below
        row = owner * width
        own = lax.dynamic_slice(sums, (row,), (width,)) + more
        return lax.dynamic_update_slice(sums, own, (row,)), below

    begin = (jnp.zeros(n * width, jnp.float64), jnp.zeros(width, jnp.float64))
    return lax.fori_loop(jnp.int32(0), cells.n_steps, step, begin)[0].reshape(n, width)[:, :n]


def _compared_by_arrays(cells: _Cells, drawn: Array) -> Array:
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


def _at(array: Array, index: Array) -> Array:
    return lax.dynamic_index_in_dim(array, index, keepdims=False)


def _set(array: Array, index: Array, value: Array) -> Array:
    return lax.dynamic_update_index_in_dim(array, value, index, 0)


def _scores_of_game(guess: Array, payoff: Array) -> tuple[Array, Array]:
    """Return aggregate scores [n] of one game, and a bound on the error of its stationary
    distribution; see `jbrl.stats.evaluation.game`.
    """
    n = len(payoff)
    u = payoff.reshape(n, -1)
    B = u.shape[1]
    damping = (n + B - 2) / (n * B - 1)
    p, q = _rates(u.T), _rates(-u)
    diagonal = damping + p.sum(axis=2).T + q.sum(axis=2)

    def apply(d: Array) -> Array:
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


def _rates(value: Array) -> Array:
    shape = (*value.shape, value.shape[1])
    here, there = (jnp.broadcast_to(jnp.expand_dims(value, axis), shape) for axis in (2, 1))
    equal = jnp.abs(here - there) <= EQUAL * jnp.maximum(jnp.abs(here), jnp.abs(there))
    rate = jnp.where(equal, TIE, (there > here).astype(value.dtype))
    return jnp.where(jnp.eye(value.shape[1], dtype=bool)[None], 0.0, rate)
