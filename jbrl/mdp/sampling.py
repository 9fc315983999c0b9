"""Random numbers where they are cheap: uniforms out of keys, categorical draws by inverse CDF,
gamma variates, Dirichlet rows.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl import vectorize
from jbrl.base.pytree import record

STREAMS = ("mdp", "environment", "agent", "parameters")


def stream(key: Array, index: Array, name: str) -> Array:
    """Return the key of one of the `STREAMS` of environment number `index`.

    Everything random about a lifetime depends on the seed and its number alone, so results do not
    depend on how lifetimes are grouped. Environments and their randomness are shared by all agents
    (common random numbers).
    """
    return jax.random.fold_in(jax.random.fold_in(key, index), STREAMS.index(name))


def uniforms(key: Array) -> Array:
    """Return the two words of a key, read as two uniform numbers in [0, 1): [2] float32.

    The keys of a trajectory are the outputs of one `jax.random.split`, hence random words already;
    reading them costs nothing, where drawing from them would cost one more evaluation of the
    generator at each decision. Use a key either here or with `jax.random`, not both.
    """
    return words_to_uniforms(jax.random.key_data(key))


def words_to_uniforms(words: Array) -> Array:
    """Return multiples of 2^-24 in [0, 1), float32, from the upper 24 bits of uint32 words of any
    shape.
    """
    return (words >> 8).astype(jnp.float32) * jnp.float32(2**-24)


def four_uniforms(key: Array) -> Array:
    """Read a key as four numbers, odd multiples of 2^-17 in (0, 1): [4] float32.

    For uses of which none needs more than 16 bits; as `uniforms` otherwise.
    """
    words = jax.random.key_data(key)
    halves = jnp.stack([words >> 16, words & 0xFFFF]).reshape(-1)
    return (halves.astype(jnp.float32) + 0.5) * jnp.float32(2**-16)


def uniform_index(uniform: Array, n: int | Array) -> Array:
    """Return an index from 0..n-1, int32, by uniform numbers in [0, 1), float32 of any shape."""
    return jnp.minimum((uniform * n).astype(jnp.int32), n - 1)


def bits_of(words: Array, n: int) -> Array:
    """Return n bits, [n] int32: bit i is bit i mod 32 of word ⌊i / 32⌋ of `words`, uint32."""
    parts = [
        (words[k] >> jnp.arange(min(32, n - 32 * k), dtype=jnp.uint32)) & 1
        for k in range(-(-n // 32))
    ]
    bits = parts[0] if len(parts) == 1 else jnp.concatenate(parts)
    return bits.astype(jnp.int32)


def standard_normal(uniform: Array) -> Array:
    """Return the standard normal quantile, float32 of any shape, of numbers as `uniforms`
    reads them.

    Each number is taken as the middle of its 2^-24.
    """
    return jnp.float32(2**0.5) * lax.erf_inv(2 * uniform - jnp.float32(1 - 2**-24))


def cumulative(probabilities: Array) -> Array:
    """Return cumulative probabilities along the last axis, same shape, such that `inverse_cdf`
    never returns an entry of probability 0.

    The terms are added in order, so that an entry of probability 0 repeats the one before exactly;
    the last is exactly 1.
    """

    def add(total: Array, term: Array) -> tuple[Array, Array]:
        total = total + term
        return total, total

    total, sums = lax.scan(
        add, jnp.zeros_like(probabilities[..., 0]), jnp.moveaxis(probabilities, -1, 0)
    )
    return jnp.moveaxis(sums, 0, -1) / total[..., None]


def inverse_cdf(cdf: Array, uniform: Array) -> Array:
    """Return the first index whose cumulative probability exceeds `uniform` in [0, 1): [] int32
    from [S].
    """
    return (cdf <= uniform).sum(-1, dtype=jnp.int32)


def categorical(probabilities: Array, uniform: Array) -> Array:
    """Return an index drawn with `probabilities` [A], by one `uniform` in [0, 1): [] int32."""
    return inverse_cdf(cumulative(probabilities), uniform)


def choose_maximiser(values: Array, uniform: Array, tolerance: float | Array = 0.0) -> Array:
    """Return an index among those within `tolerance` of the greatest of `values` [A], uniformly by
    one `uniform` in [0, 1): [] int32.
    """
    best = values >= values.max(-1, keepdims=True) - tolerance
    rank = jnp.cumsum(best.astype(jnp.int32), axis=-1)
    wanted = (uniform * rank[..., -1].astype(jnp.float32)).astype(jnp.int32)
    return (rank <= wanted).sum(-1, dtype=jnp.int32)


def open_uniforms(key: Array, shape: tuple[int, ...]) -> Array:
    """Return uniform numbers strictly between 0 and 1, float32: odd multiples of 2^-24."""
    # the same numbers as of `shape` at once, compiled ten times faster
    bits = jax.random.bits(key, (math.prod(shape),)).reshape(shape)
    return ((bits >> 9).astype(jnp.float32) + 0.5) * jnp.float32(2**-23)


def exponentials(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw standard exponential variates, float32, none of them 0."""
    return -jnp.log(open_uniforms(key, shape))


def gamma(key: Array, shapes: Array) -> Array:
    """Draw gamma variates of scale 1, float32, for shape parameters of any value from 0 and any
    array shape.

    Shape 0 gives exactly 0; a shape far below 1 may give a number too small for float32, hence 0
    too. The draws depend on the key and the array alone, mapped or not. Marsaglia and Tsang 2000,
    with their device of section 6 for shapes below 1.
    """
    d, values = _marsaglia_tsang(key, shapes)
    return jnp.where(shapes > 0, jnp.where(shapes < 1, jnp.exp(values), d * (1 + values) ** 3), 0.0)


def dirichlet(key: Array, concentrations: Array) -> Array:
    """Draw rows from Dirichlet distributions: [..., S] float32 from concentrations [..., S], each
    row with a positive entry.

    A concentration of 0 gives exactly 0. Rows of tiny concentrations are sound, since ratios are
    formed from logarithms. Measured on one CPU core: 150 ns per entry of 1 or 2, 50 ns where nine
    in ten are 0; `jax.random.dirichlet` needs above 800 ns and does not allow zeros.
    """
    d, values = _marsaglia_tsang(key, concentrations)
    logs = jnp.where(
        concentrations < 1,
        values,
        jnp.log(d) + 3 * jnp.log1p(jnp.where(concentrations < 1, 0.0, values)),
    )
    logs = jnp.where(concentrations > 0, logs, -jnp.inf)
    weights = jnp.exp(logs - logs.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


GROUP = 16


@record
class _Gammas:
    """State of the generation of gamma variates, in groups that try one entry at a time."""

    round: Array  # [] int32
    at: Array  # [G] int32, the entry being tried; GROUP: none is left
    values: Array  # [G, GROUP] float32


def _marsaglia_tsang(key: Array, shapes: Array) -> tuple[Array, Array]:
    """Return arrays (d, values) of the given shape: a gamma variate is d (1 + values)^3, or
    exp(values) where its shape is below 1.

    Each round tries one entry of each group; an accepted one gives way to the next of positive
    shape. So neither the rejections (5% at most) nor the entries of shape 0, most of them in many
    models, cost a round of proposals for all.
    """
    groups = jnp.pad(shapes.reshape(-1), (0, -shapes.size % GROUP)).reshape(-1, GROUP)
    d = jnp.where(groups < 1, groups + 1, groups) - jnp.float32(1 / 3)
    begin = _Gammas(
        jnp.int32(0), _next_wanted(groups, jnp.full(groups.shape[:1], -1)), jnp.zeros_like(groups)
    )
    # A lane that is done never changes again, for any work of the others: no selection between old
    # and new carries.
    end = vectorize.while_active(_unfinished, _try, begin, (key, groups), keep="nothing")
    d, values = (v.reshape(-1)[: shapes.size].reshape(shapes.shape) for v in (d, end.values))
    return d, values


def _next_wanted(groups: Array, at: Array) -> Array:
    """Return the first entry of positive shape after `at` in each group; GROUP if there is none."""
    entry = jnp.arange(GROUP)[None, :]
    return jnp.where((groups > 0) & (entry > at[:, None]), entry, GROUP).min(-1)


def _unfinished(search: _Gammas, _: tuple[Any, ...]) -> Array:
    return (search.at < GROUP).any()


def _try(search: _Gammas, consts: tuple[Any, ...]) -> _Gammas:
    """Make one proposal for the entry that each group is at."""
    key, groups = consts
    here = jnp.arange(GROUP)[None, :] == search.at[:, None]
    shape = jnp.where(here, groups, 0.0).sum(-1)
    normal, accept, boost = open_uniforms(jax.random.fold_in(key, search.round), (3, *shape.shape))
    d = jnp.where(shape < 1, shape + 1, shape) - jnp.float32(1 / 3)
    t = jnp.float32(2**0.5) * lax.erf_inv(2 * normal - 1) / jnp.sqrt(9 * d)
    accepted = (t > -1) & (jnp.log(accept) < d * excess(t))
    # A variate of shape a + 1, times U^(1/a), has shape a.
    values = jnp.where(
        shape < 1, jnp.log(d) + 3 * jnp.log1p(jnp.maximum(t, -1.0)) + jnp.log(boost) / shape, t
    )
    return _Gammas(
        search.round + 1,
        jnp.where(accepted, _next_wanted(groups, search.at), search.at),
        jnp.where(here & accepted[:, None], values[:, None], search.values),
    )


def excess(t: Array) -> Array:
    """Return 3 log(1 + t) - 3 t + 3 t^2 / 2 - t^3: the logarithm of the acceptance probability, for
    d = 1.

    The terms up to t^3 cancel, which rounding would spoil for large d, that is small t: there the
    series is summed instead.
    """
    series = -3 * t**4 * (1 / 4 - t * (1 / 5 - t * (1 / 6 - t * (1 / 7 - t / 8))))
    direct = 3 * (jnp.log1p(jnp.maximum(t, -1.0)) - t + t**2 / 2) - t**3
    return jnp.where(jnp.abs(t) < 0.1, series, direct)
