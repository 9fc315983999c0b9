"""Features of observations: a table of one-hot features, or a Fourier basis.

Weights and traces are arrays [A, F] float32: one row of F features for each action, or one row
alone for a value function. `Table` has the passes over them that learning consists of; `Fourier`
has the same ones.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Box, Observation
from jbrl.vectorize import native

CHUNK = 512  # features of one iteration of a pass, where they are many
NEVER = 1 << 20  # an order that no lane has
ROUNDING = 8  # the capacity of a small basis is a multiple of this: vector instructions


class Chunk(NamedTuple):
    """Chunk of the arrays of a pass, along their last axis."""

    start: Any  # [] int32, its first feature; None where a pass is one chunk
    carry: Any  # from one chunk to the next
    written: Any
    read: Any
    orders: Any  # `Orders` of the lane
    consts: Any


Pass = Callable[[Chunk], tuple[Any, Any]]  # returns what is carried and what is written


@record
class Orders:
    """Orders of the Fourier basis of a lane, 0 for a table, and whether its passes count."""

    dependent: Array  # [] int32, the highest frequency of terms of several inputs
    independent: Array  # [] int32, the highest frequency of terms of one input
    playing: Array  # [] bool; where False, passes in chunks leave the lane out


@dataclasses.dataclass(frozen=True)
class Fourier:
    """Fourier basis of cosines on [0, 1]^d: phi_c(x) = cos(pi c . xs), xs = (x - low) / (high -
    low), not clipped. Konidaris, Osentoski and Thomas 2011, section 3.

    The vectors c of a lane with orders (D, I) are all of {0..D}^d, and for each input k = D+1..I
    times its unit vector: (D + 1)^d + d max(0, I - D) features. They are kept in an order in which
    a lane uses a few of the first: 0; k times each unit vector, k ascending; all others by their
    greatest entry.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    dependent: int  # the greatest D
    independent: int  # the greatest I

    @property
    def capacity(self) -> int:
        """F: all features of the greatest orders, rounded up to whole chunks."""
        count = len(_terms(len(self.low), self.dependent, self.independent)[1])
        unit = ROUNDING if count <= CHUNK else CHUNK
        return -(-count // unit) * unit

    @property
    def chunk(self) -> int:
        """Features of one iteration of a pass."""
        return min(self.capacity, CHUNK)

    def sizes(self, orders: Orders) -> Array:
        """Return the number of features that a lane uses: [] int32."""
        inputs = len(self.low)
        beyond = jnp.maximum(orders.independent - orders.dependent, 0)
        return (orders.dependent + 1) ** inputs + inputs * beyond

    def size(self, dependent: int, independent: int) -> int:
        """Return the number of features of these orders. On the host."""
        inputs = len(self.low)
        return (dependent + 1) ** inputs + inputs * max(0, independent - dependent)

    @property
    def blank(self) -> Array:
        """See `Table`."""
        return jnp.zeros(self.capacity, jnp.float32)

    def encoded(self, x: Array, orders: Orders) -> Array:
        """Return the features of `x`, an observation of any shape with d entries, in the order of
        the basis: [F] float32, 0 where a lane does not use them.
        """

        def write(now: Chunk) -> tuple[Any, Any]:
            return (), self._features(now.start, now.consts, now.orders)

        return self._pass(write, (), self.blank, (), orders, self._scaled(x.reshape(-1)))[1]

    def values(self, weights: Array, at: Array, orders: Orders) -> Array:
        """See `Table`; `at` is [F]."""
        return self.products(weights, (at,), orders)[0]

    def products(self, weights: Array, ats: tuple[Array, ...], orders: Orders) -> tuple[Array, ...]:
        """See `Table`."""

        def add(now: Chunk) -> tuple[Any, Any]:
            return jax.tree.map(jnp.add, now.carry, _products(*now.read)), ()

        zeros = tuple(jnp.zeros(weights.shape[0], jnp.float32) for _ in ats)
        return self._pass(add, zeros, (), (weights, ats), orders)[0]

    def traced(
        self, trace: Array, at: Array, orders: Orders, decay: Array, gradient: Array
    ) -> Array:
        """See `Table`."""

        def decayed(now: Chunk) -> tuple[Any, Any]:
            decay, gradient = now.consts
            return (), decay * now.written + gradient[:, None] * now.read[None]

        return self._pass(decayed, (), trace, at, orders, (decay, gradient))[1]

    def stepped(
        self, weights: Array, direction: Array, orders: Orders, step: Array, learns: Array
    ) -> Array:
        """See `Table`."""

        def move(now: Chunk) -> tuple[Any, Any]:
            step, learns = now.consts
            moves = self._active(now.start, now.orders)[None] & learns
            return (), jnp.where(moves, now.written + step * now.read, now.written)

        return self._pass(move, (), weights, direction, orders, (step, learns))[1]

    def squares(self, weights: Array, orders: Orders) -> Array:
        """See `Table`."""

        def add(now: Chunk) -> tuple[Any, Any]:
            squares = jnp.einsum("af,af->a", now.read, now.read, precision="highest")
            return now.carry + squares.sum(), ()

        return self._pass(add, jnp.float32(0), (), weights, orders, over=in_lockstep)[0]

    def rows(self, weights: Array, xs: Array, orders: Orders) -> Array:
        """See `Table`; `xs` is [B, d]."""

        def add(now: Chunk) -> tuple[Any, Any]:
            phi = self._stored_features(now.start, now.consts, now.orders)
            return now.carry + jnp.dot(phi, now.read.T, precision="highest"), ()

        zeros = jnp.zeros((xs.shape[0], weights.shape[0]), jnp.float32)
        return self._pass(add, zeros, (), weights, orders, self._scaled(xs), over=_looped)[0]

    def ascended(
        self,
        learner: tuple[Array, ...],
        xs: Array,
        gradients: Array,
        orders: Orders,
        update: Callable[..., tuple[Array, ...]],
        numbers: tuple[Array, ...],
    ) -> tuple[Array, ...]:
        """See `Table`; `xs` is [B, d]."""

        def ascend(now: Chunk) -> tuple[Any, Any]:
            points, gradients, numbers = now.consts
            phi = self._stored_features(now.start, points, now.orders)
            gradient = jnp.dot(gradients.T, phi, precision="highest")
            return (), update(now.written, gradient, *numbers)

        consts = (self._scaled(xs), gradients, numbers)
        return self._pass(ascend, (), learner, (), orders, consts, over=_looped)[1]

    def _scaled(self, x: Array) -> Array:
        low, high = np.array(self.low, np.float32), np.array(self.high, np.float32)
        shape = (1,) * (x.ndim - 1) + (-1,)
        return (x - low.reshape(shape)) * (1 / (high - low)).reshape(shape)

    def _active(self, start: Any, orders: Orders) -> Array:
        """Return which features of a chunk a lane uses: [C] bool."""
        _, dependent, independent = self._chunk_of_terms(start)
        return (dependent <= orders.dependent) | (independent <= orders.independent)

    def _stored_features(self, start: Any, x: Array, orders: Orders) -> Array:
        """Return `_features`, for use in several operations: XLA computes them once, not anew for
        each row of weights.
        """
        return vectorize.prevent_fusion(self._features(start, x, orders))

    def _features(self, start: Any, x: Array, orders: Orders) -> Array:
        """Return a chunk of features [..., C] of scaled observations [..., d], 0 where a lane does
        not use them.
        """
        vectors, _, _ = self._chunk_of_terms(start)
        if start is not None and x.ndim > 1:
            # XLA uses no vector instructions where it fuses these slices into a loop over
            # observations
            vectors = vectorize.prevent_fusion(vectors)
        product = sum(x[..., j, None] * _like(vectors[j], x.ndim) for j in range(len(self.low)))
        active = _like(self._active(start, orders), x.ndim)
        return jnp.where(active, cosine_of_pi(product), 0.0)

    def _chunk_of_terms(self, start: Any) -> tuple[Any, ...]:
        tables = _padded_terms(len(self.low), self.dependent, self.independent, self.capacity)
        if start is None:
            return tables
        return tuple(
            lax.dynamic_slice_in_dim(jnp.asarray(table), start, self.chunk, -1) for table in tables
        )

    def _pass(
        self,
        fn: Pass,
        carry: Any,
        written: Any,
        read: Any,
        orders: Orders,
        consts: Any = (),
        *,
        over: Callable[..., tuple[Any, Any]] | None = None,
    ) -> tuple[Any, Any]:
        """Pass over arrays at once, or in chunks where there are many features.

        Args:
          over: how to go through the chunks; None: as `in_chunks`.
        """
        whole = Chunk(None, carry, written, read, orders, consts)
        if self.capacity == self.chunk:
            return fn(whole)
        return (over or in_chunks)(fn, self.chunk, self._chunks(orders), whole)

    def _chunks(self, orders: Orders) -> Array:
        """Return the chunks that hold all features of a lane, none where it is over: [] int32."""
        inputs, greatest = len(self.low), max(self.dependent, self.independent)
        mixed = (orders.dependent + 1) ** inputs - 1 - inputs * orders.dependent
        alone = 1 + inputs * jnp.maximum(orders.dependent, orders.independent)
        end = jnp.where(mixed > 0, 1 + inputs * greatest + mixed, alone)
        return jnp.where(orders.playing, (end + self.chunk - 1) // self.chunk, 0)


def cosine_of_pi(t: Array) -> Array:
    """Return cos(pi t), float32 of any shape, to about 2e-7 where |t| is below 100.

    An odd polynomial of degree 9 for sin(pi y), fitted on |y| <= 1/2 by least squares to 1e-8,
    after the reduction to half a period: a tenth of the time of `jnp.cos` on CPUs.
    """
    reduced = t - 2 * jnp.round(0.5 * t)
    y = 0.5 - jnp.abs(reduced)
    z = y * y
    series = jnp.float32(_SINE[0])
    for coefficient in _SINE[1:]:
        series = coefficient + z * series
    return y * series


_SINE = (0.07744731, -0.59816167, 2.55005102, -5.16770808, 3.1415926)


def _like(row: Any, ndim: int) -> Any:
    return row.reshape((1,) * (ndim - 1) + (-1,))


def _products(weights: Array, ats: tuple[Array, ...]) -> tuple[Array, ...]:
    if weights.shape[0] == 1 and len(ats) > 1:
        # a product of two vectors would be summed without vector instructions
        return tuple(p[None] for p in _dot(jnp.stack(ats), weights[0]))
    return tuple(_dot(weights, phi) for phi in ats)


def _dot(matrix: Array, vector: Array) -> Array:
    return jnp.einsum("af,f->a", matrix, vector, precision="highest")


def in_chunks(fn: Pass, width: int, chunks: Array, whole: Chunk) -> tuple[Any, Any]:
    """Pass over the last axis of arrays in chunks of `width`.

    Mapped, lanes go one after the other on CPUs, each through its own `chunks`, [] int32; on other
    devices all make as many iterations as the one with most, and `fn` must leave alone what lies
    beyond a lane's own.
    """

    def on_all(lanes: tuple[Array, Chunk]) -> tuple[Any, Any]:
        return native.by_device(
            functools.partial(_in_turn, fn, width), functools.partial(_lockstep, fn, width), lanes
        )

    result: tuple[Any, Any] = native.for_one(on_all)((chunks, jax.tree.map(jnp.asarray, whole)))
    return result


def in_lockstep(fn: Pass, width: int, chunks: Array, whole: Chunk) -> tuple[Any, Any]:
    """As `in_chunks`, in lockstep on all devices: where CPUs would sum in another order."""
    on_all = native.for_one(functools.partial(_lockstep, fn, width))
    result: tuple[Any, Any] = on_all((chunks, jax.tree.map(jnp.asarray, whole)))
    return result


def _for_each_lane(lanes: tuple[Array, Chunk]) -> tuple[Array, Chunk]:
    """Return lanes of which each has what is common to all."""
    count = native.count_of(lanes)
    return jax.tree.map(lambda v: jnp.broadcast_to(v, (count, *v.shape[1:])), lanes)


def _lockstep(fn: Pass, width: int, lanes: tuple[Array, Chunk]) -> tuple[Any, Any]:
    chunks, whole = _for_each_lane(lanes)
    many = jax.vmap(fn, in_axes=(Chunk(None, 0, 0, 0, 0, 0),))
    return _looped(many, width, chunks.max(), whole)


def _in_turn(fn: Pass, width: int, lanes: tuple[Array, Chunk]) -> tuple[Any, Any]:
    """Pass over one lane after the other in machine code, which must use all that it is given."""
    chunks, whole = _for_each_lane(lanes)
    example = jax.eval_shape(functools.partial(_chunk_of, width), whole, 0, 0)
    traced = jax.make_jaxpr(fn)(example).jaxpr
    used = native.inputs_used(traced)
    leaves, structure = jax.tree.flatten(whole)

    @native.native
    def run(chunks: Array, given: list[Array]) -> tuple[Any, Any]:
        mine = iter(given)
        every = [
            next(mine) if n in used else jnp.zeros_like(leaf)
            for n, leaf in enumerate(leaves, 1)  # after the start
        ]
        return _lane_by_lane(fn, width, chunks, jax.tree.unflatten(structure, every))

    return run(chunks, [leaf for n, leaf in enumerate(leaves, 1) if n in used])


def _lane_by_lane(fn: Pass, width: int, chunks: Array, whole: Chunk) -> tuple[Any, Any]:
    def lane(n: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        def body(i: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
            now = whole._replace(carry=state[0], written=state[1])
            results = fn(_chunk_of(width, now, n, i * width))
            starts = (0, i * width)
            return tuple(
                jax.tree.map(functools.partial(_put, n, start), every, new)
                for start, every, new in zip(starts, state, results, strict=True)
            )

        return lax.fori_loop(0, _entry(chunks, n), body, state)

    return lax.fori_loop(0, len(chunks), lane, (whole.carry, whole.written))


def _chunk_of(width: int, whole: Chunk, n: Array, start: Array) -> Chunk:
    """Return a chunk of the arrays of lane `n`."""

    def part(v: Array) -> Array:
        at: Any = (n, *(0,) * (v.ndim - 2), start)
        sizes = (1, *v.shape[1:-1], width)
        return lax.dynamic_slice(v, at, sizes, allow_negative_indices=False)[0]

    own = {name: jax.tree.map(part, getattr(whole, name)) for name in ("written", "read")}
    own |= {
        name: jax.tree.map(lambda v: _entry(v, n), getattr(whole, name))
        for name in ("carry", "orders", "consts")
    }
    return Chunk(start=jnp.asarray(start, jnp.int32), **own)


def _entry(array: Array, n: Array) -> Array:
    return lax.dynamic_index_in_dim(array, n, keepdims=False, allow_negative_indices=False)


def _put(n: Array, start: Any, every: Array, new: Array) -> Array:
    """Return `every` with `new` in lane `n`, from `start` on along the last axis."""
    at = (n, *(0,) * (every.ndim - 2), *(start,) * (every.ndim > 1))
    return lax.dynamic_update_slice(every, new[None], at, allow_negative_indices=False)


def _looped(fn: Pass, width: int, chunks: Array, whole: Chunk) -> Any:
    """As `in_chunks`, of one lane."""

    def body(i: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, written = state
        start = i * width
        parts = jax.tree.map(
            lambda v: lax.dynamic_slice_in_dim(v, start, width, -1), (written, whole.read)
        )
        carry, new = fn(whole._replace(start=start, carry=carry, written=parts[0], read=parts[1]))
        put = functools.partial(lax.dynamic_update_slice_in_dim, start_index=start, axis=-1)
        return carry, jax.tree.map(put, written, new)

    return lax.fori_loop(0, chunks, body, (whole.carry, whole.written))


@functools.cache
def _terms(
    inputs: int, dependent: int, independent: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the vectors c of a basis in its order: [F, d] and the greatest entry of each, [F]."""
    greatest = max(dependent, independent)
    alone = [
        tuple(k * (j == i) for j in range(inputs))
        for k in range(1, greatest + 1)
        for i in range(inputs)
    ]
    every = itertools.product(range(dependent + 1), repeat=inputs)
    mixed = sorted((c for c in every if sum(k > 0 for k in c) > 1), key=lambda c: (max(c), c))
    vectors = np.array([(0,) * inputs, *alone, *mixed], np.float32).reshape(-1, inputs)
    return vectors, vectors.max(1).astype(np.int32)


@functools.cache
def _padded_terms(
    inputs: int, dependent: int, independent: int, capacity: int
) -> tuple[npt.NDArray[Any], ...]:
    """Return the vectors [d, F], and the least dependent and independent order that each belongs
    to, [F] int32; none for those that fill up the capacity, and no independent one for mixed terms.
    """
    vectors, greatest = _terms(inputs, dependent, independent)
    columns = np.zeros((inputs, capacity), np.float32)
    columns[:, : len(vectors)] = vectors.T
    first = np.full(capacity, NEVER, np.int32)
    first[: len(vectors)] = greatest
    alone = np.where(np.count_nonzero(columns, axis=0) == 1, first, NEVER).astype(np.int32)
    return columns, first, alone


GREATEST_CAPACITY = 1 << 20  # features: a lane then takes some 50 MB


@dataclasses.dataclass(frozen=True)
class Table:
    """One-hot features of n observations; below 0, as the observation of zeros is, all of them
    are 0.
    """

    n: int

    @property
    def capacity(self) -> int:
        """Number of features, F."""
        return self.n

    def sizes(self, orders: Orders) -> Array:
        """Return the number of features that a lane uses: [] int32."""
        return jnp.int32(self.n)

    @property
    def blank(self) -> Array:
        """An encoded observation before the first one."""
        return jnp.int32(0)

    def encoded(self, x: Array, orders: Orders) -> Array:
        """Return the observation `x` as passes over weights take it, here as it is: [] int32."""
        return x

    def values(self, weights: Array, at: Array, orders: Orders) -> Array:
        """Return the products of `weights` [A, F] with the features of an observation: [A] float32.

        Args:
          at: the observation, `encoded`.
        """
        rows, n = weights.shape
        where = jnp.maximum(at, 0) + n * jnp.arange(rows, dtype=jnp.int32)
        values = vectorize.get_rows(weights.reshape(-1, 1), where)[:, 0]
        return jnp.where(at < 0, 0.0, values)

    def products(self, weights: Array, ats: tuple[Array, ...], orders: Orders) -> tuple[Array, ...]:
        """Return `values` of several observations."""
        return tuple(self.values(weights, at, orders) for at in ats)

    def traced(
        self, trace: Array, at: Array, orders: Orders, decay: Array, gradient: Array
    ) -> Array:
        """Return the trace [A, F] after decaying and adding the gradient, [A], at the features of
        an observation.
        """
        here = jnp.arange(self.n, dtype=jnp.int32) == at
        return decay * trace + jnp.where(here[None], gradient[:, None], 0.0)

    def stepped(
        self, weights: Array, direction: Array, orders: Orders, step: Array, learns: Array
    ) -> Array:
        """Return `weights` + `step` * `direction` where `learns` ([] bool), else `weights`."""
        return jnp.where(learns, weights + step * direction, weights)

    def squares(self, weights: Array, orders: Orders) -> Array:
        """Return the sum of the squares of all weights: [] float32."""
        return jnp.square(weights).sum()

    def rows(self, weights: Array, xs: Array, orders: Orders) -> Array:
        """Return `values` of B observations `xs`: [B, A] float32. Of one lane, not mapped."""
        values = weights.at[:, jnp.maximum(xs, 0)].get(mode="promise_in_bounds")
        return jnp.where(xs < 0, 0.0, values).T

    def ascended(
        self,
        learner: tuple[Array, ...],
        xs: Array,
        gradients: Array,
        orders: Orders,
        update: Callable[..., tuple[Array, ...]],
        numbers: tuple[Array, ...],
    ) -> tuple[Array, ...]:
        """Return arrays [A, F] after `update(arrays, gradient, *numbers)`, the gradient [A, F]
        being the sum of `gradients` [B, A] times the features of `xs`. Of one lane, not mapped.
        """
        kept = jnp.where(xs[:, None] < 0, 0.0, gradients)
        zeros = jnp.zeros_like(learner[0])
        summed = zeros.at[:, jnp.maximum(xs, 0)].add(kept.T, mode="promise_in_bounds")
        return update(learner, summed, *numbers)


Features = Table | Fourier


def _ends(box: Box) -> list[np.ndarray]:
    """Return the least and the greatest value of each entry, float64."""
    ends = (np.asarray(end, np.float64) for end in (box.low, box.high))
    return [np.broadcast_to(end.reshape(-1), math.prod(box.shape)) for end in ends]


def has_ends(observation: Observation) -> bool:
    """Return whether each entry of an observation lies between finite ends, whose distance float32
    can divide by.
    """
    if not isinstance(observation, Box):
        return True
    with np.errstate(all="ignore"):
        low, high = (end.astype(np.float32) for end in _ends(observation))
        inverse = 1 / (high - low)
    return bool((np.isfinite(inverse) & (inverse > 0)).all())


def features_of(observation: Observation, dependent: int, independent: int) -> Features:
    """Return the features of observations of this kind. On the host.

    Args:
      dependent, independent: the greatest orders of a Fourier basis.

    Raises:
      JbrlError: an observation without finite ends, or a basis with too many features.
    """
    if not isinstance(observation, Box):
        return Table(observation.n)
    inputs, (low, high) = math.prod(observation.shape), _ends(observation)
    if not has_ends(observation):
        raise JbrlError(
            f"expected observations between finite ends: {observation} has an entry without"
        )
    basis = Fourier(tuple(low.tolist()), tuple(high.tolist()), dependent, independent)
    count = basis.size(dependent, independent)
    if count > GREATEST_CAPACITY:
        raise JbrlError(
            f"dependent_high = {dependent} and independent_high = {independent} give "
            f"{_number(count)} features of {inputs} inputs: expected orders that give at most "
            f"{GREATEST_CAPACITY:,}"
        )
    return basis


def _number(count: int) -> str:
    return f"{count:,}" if count < 10**12 else f"{float(count):.3g}" if count < 1e300 else "10^300"
