"""Mapped or not, what `lanes` offers is what its plain counterpart computes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from jbrl import vectorize
from jbrl.vectorize import native

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def integers(high, *shape):
    return RNG.integers(0, high, shape).astype(np.int32)


def maps(fn, *args):
    """`fn` alone, mapped and mapped twice, over arguments stacked along two leading axes of lengths
    2 and 3.
    """
    single = [jax.tree.map(lambda v: v[0, 0], args)]
    yield jax.jit(fn)(*single[0]), (0, 0)
    once = jax.jit(jax.vmap(fn))(*jax.tree.map(lambda v: v[1], args))
    for i in range(3):
        yield jax.tree.map(lambda v, i=i: v[i], once), (1, i)
    twice = jax.jit(jax.vmap(jax.vmap(fn)))(*args)
    for i, j in np.ndindex(2, 3):
        yield jax.tree.map(lambda v, i=i, j=j: v[i, j], twice), (i, j)


def same(new, old):
    jax.tree.map(np.testing.assert_array_equal, new, old)


# Rows


def test_rows():
    tables, rows, new = random(2, 3, 7, 4), integers(7, 2, 3), random(2, 3, 4)
    for row, at in maps(vectorize.get_row, tables, rows):
        same(row, tables[at][rows[at]])
    for table, at in maps(vectorize.set_row, tables, rows, new):
        expected = tables[at].copy()
        expected[rows[at]] = new[at]
        same(table, expected)
    several = integers(7, 2, 3, 3)
    for found, at in maps(vectorize.get_rows, tables, several):
        same(found, tables[at][several[at]])


def test_a_row_of_a_large_table_is_no_slice():
    """Where one lane is not mapped a program may pass over the whole table to write a slice: a
    policy of DQN took 253 µs for a decision with 10,000 transitions, 137 without.
    """
    for rows, primitive in ((100, "dynamic_update_slice"), (10_000, "scatter")):
        given = np.zeros((rows, 21), np.float32), np.int32(3), np.ones(21, np.float32)
        assert primitive in str(jax.make_jaxpr(vectorize.set_row)(*given))
        changed = np.asarray(jax.jit(vectorize.set_row)(*given))
        assert changed[3].all() and changed.sum() == 21


def test_rows_of_tables_with_more_entries_than_32_bits_can_count(monkeypatch):
    """As the replay of DQN on thousands of lanes of a GPU."""
    lanes, rows, columns = 4096, 10_000, 105
    table = jax.ShapeDtypeStruct((lanes, rows, columns), np.float32)
    at = jax.ShapeDtypeStruct((lanes,), np.int32)
    new = jax.ShapeDtypeStruct((lanes, columns), np.float32)
    assert jax.eval_shape(jax.vmap(vectorize.set_row), table, at, new).shape == table.shape
    monkeypatch.setattr(vectorize.lanes, "MOST_ENTRIES", 1)
    tables, places, values = random(3, 7, 4), integers(7, 3), random(3, 4)
    write = jax.jit(jax.vmap(lambda *given: vectorize.set_row(*given)))  # traced anew
    expected = tables.copy()
    expected[np.arange(3), places] = values
    same(write(tables, places, values), expected)


@pytest.mark.parametrize("axes", [(None, 0), (0, None)])
def test_rows_of_what_is_not_mapped(axes):
    table = random(7, 4) if axes[0] is None else random(3, 7, 4)
    row = integers(7) if axes[1] is None else integers(7, 3)
    got = jax.jit(jax.vmap(vectorize.get_row, axes))(table, row)
    tables, rows = np.broadcast_to(table, (3, 7, 4)), np.broadcast_to(row, 3)
    same(got, tables[np.arange(3), rows])
    write = jax.jit(jax.vmap(vectorize.set_row, (*axes, None)))
    changed = np.array(write(table, row, np.ones(4, np.float32)))
    assert (changed[np.arange(3), rows] == 1).all()
    changed[np.arange(3), rows] = tables[np.arange(3), rows]
    same(changed, tables)


@pytest.mark.parametrize("length", [5, 300])  # within reach of a dense pass, and beyond
def test_entries(length):
    tables, entries, values = random(2, 3, length), integers(length, 2, 3), random(2, 3)
    for value, at in maps(vectorize.get_entry, tables, entries):
        same(value, tables[at][entries[at]])
    for table, at in maps(vectorize.set_entry, tables, entries, values):
        expected = tables[at].copy()
        expected[entries[at]] = values[at]
        same(table, expected)


# Loops


def descend(carry, step):
    """Stop at the first multiple of 7 on the way down: lanes need between 0 and many rounds."""
    value, rounds = carry
    return value - step, rounds + 1


def above(carry, step):
    return (carry[0] % 7 != 0) & (carry[0] > 0)


def plainly(value, step):
    rounds = 0
    while value % 7 != 0 and value > 0:
        value, rounds = value - step, rounds + 1
    return value, rounds


KEEPS = ("all", "numbers", "nothing")
OPTIONS = [{"keep": keep, "lanes_last": last} for keep in KEEPS for last in (False, True)]


def careful(carry, step):
    """As `descend`, but leaves a lane that is not active as it is."""
    return jax.tree.map(
        lambda new, old: jnp.where(above(carry, step), new, old), descend(carry, step), carry
    )


def run_loop(options):
    """With a vector in the carry, where that is kept."""
    body = careful if options["keep"] == "nothing" else descend
    shape = () if options["keep"] == "numbers" else (2,)

    def run(value, step):
        carry = (value, jnp.zeros(shape, jnp.int32))
        value, rounds = vectorize.while_active(above, body, carry, step, **options)
        return value, rounds.min()

    return run


@pytest.mark.parametrize("options", OPTIONS)
def test_while_active(options):
    values, steps = integers(200, 2, 3), 1 + integers(3, 2, 3)
    for result, at in maps(run_loop(options), values, steps):
        assert tuple(map(int, result)) == plainly(values[at], steps[at])


def mapped_lengths(outer, inner):
    return ((2,) if outer == 0 else ()) + ((3,) if inner == 0 else ())


@pytest.mark.parametrize("options", OPTIONS[:2])
@pytest.mark.parametrize(
    "axes", [((0, None), (None, 0)), ((None, 0), (0, None)), ((0, 0), (None, 0))]
)
def test_while_active_where_some_arguments_are_shared(options, axes):
    (inner_value, inner_step), (outer_value, outer_step) = axes
    values = integers(200, *mapped_lengths(outer_value, inner_value))
    steps = 1 + integers(3, *mapped_lengths(outer_step, inner_step))
    once = jax.vmap(run_loop(options), (inner_value, inner_step))
    result = jax.jit(jax.vmap(once, (outer_value, outer_step)))(values, steps)
    values = np.broadcast_to(values if inner_value == 0 else values[..., None], (2, 3))
    steps = np.broadcast_to(steps if inner_step == 0 else steps[..., None], (2, 3))
    for at in np.ndindex(2, 3):
        assert tuple(int(v[at]) for v in result) == plainly(values[at], steps[at])


def test_a_leaf_that_the_body_hands_on_is_not_carried():
    def body(carry, _):
        table, total, i = carry
        return table, total + table[i], i + 1

    def run(table, first):
        return vectorize.while_active(
            lambda c, _: c[2] < 4, body, (table, jnp.float32(0), first), keep="all", lanes_last=True
        )[1:]

    table, first = random(4), np.array([0, 3, 4, 1], np.int32)
    jaxpr = str(jax.make_jaxpr(jax.vmap(run, (None, 0)))(table, first))
    assert "f32[4,4]" not in jaxpr  # the table is not spread over the lanes
    totals, ends = jax.jit(jax.vmap(run, (None, 0)))(table, first)
    np.testing.assert_allclose(totals, [table[i:].sum() for i in first], rtol=1e-6)
    same(ends, np.full(4, 4))


def test_while_active_of_a_body_that_changes_nothing():
    over = jax.vmap(
        lambda v: vectorize.while_active(lambda c, _: jnp.bool_(False), lambda c, _: c, (v, v), ())
    )
    np.testing.assert_array_equal(over(jnp.arange(3.0)), [[0, 1, 2]] * 2)


def test_while_active_in_a_scan_on_two_devices():
    def play(value):
        def step(value, _):
            value, rounds = vectorize.while_active(
                above, descend, (value, jnp.int32(0)), jnp.int32(2), lanes_last=True
            )
            return value + 5, rounds

        return lax.scan(step, value, None, length=3)

    values = integers(200, 8)
    mesh = Mesh(np.array(jax.devices()[:2]), ("lanes",))
    spec = PartitionSpec("lanes")
    specs = {"mesh": mesh, "in_specs": spec, "out_specs": spec, "check_vma": False}
    sharded = jax.jit(jax.shard_map(jax.vmap(play), **specs))(values)
    same(sharded, jax.jit(jax.vmap(play))(values))
    ends, rounds = values.copy(), np.zeros((8, 3), int)
    for i, t in np.ndindex(8, 3):
        ends[i], rounds[i, t] = plainly(ends[i], 2)
        ends[i] += 5
    same(sharded, (ends, rounds))


@pytest.mark.parametrize("wanted", [[False] * 3, [True, False, True]])
def test_when_any(wanted):
    values, wanted = random(2, 3, 4), np.array([wanted, wanted])
    run = lambda wanted, value: vectorize.when_any(  # noqa: E731
        wanted, lambda v: {"a": v["a"] + 1}, {"a": value}
    )
    for result, at in maps(run, wanted, values):
        same(result, {"a": values[at] + wanted[at]})


def test_when_any_does_nothing_when_none_wants_it():
    """The branch is a conditional of one predicate."""
    run = jax.vmap(lambda w, v: vectorize.when_any(w, jnp.sin, v))
    text = str(jax.make_jaxpr(run)(np.zeros(3, bool), np.ones(3, np.float32)))
    assert "cond" in text and "reduce_or" in text


# Functions of all lanes


@vectorize.over_lanes
def blend(pair, scale):
    """A function of arrays of different ranks, lanes last."""
    table, index = pair
    return {
        "picked": vectorize.pick(table, index) * scale[None],
        "table": table + vectorize.like(scale, table),
    }


def blended(table, row, scale):
    return blend((table, row), scale)


def test_over_lanes():
    tables, rows, scales = random(2, 3, 5, 4), integers(5, 2, 3), random(2, 3)
    for result, at in maps(blended, tables, rows, scales):
        picked, table = tables[at][rows[at]] * scales[at], tables[at] + scales[at]
        same(result, {"picked": picked, "table": table})


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ((0, None, None), (None, 0, None)),
        ((None, 0, None), (0, None, None)),
        ((None, None, 0), (None, None, 0)),
        ((0, 0, None), (None, 0, 0)),
    ],
)
def test_over_lanes_where_some_arguments_are_shared(outer, inner):
    full = [random(2, 3, 5, 4), integers(5, 2, 3), random(2, 3)]
    axes = list(zip(full, outer, inner, strict=True))
    args = [v[: 2 if o == 0 else 1, : 3 if i == 0 else 1] for v, o, i in axes]
    given = [
        v.reshape(mapped_lengths(o, i) + v.shape[2:])
        for v, (_, o, i) in zip(args, axes, strict=True)
    ]
    result = jax.jit(jax.vmap(jax.vmap(blended, inner), outer))(*given)
    tables, rows, scales = (np.broadcast_to(v, (2, 3, *v.shape[2:])) for v in args)
    for at in np.ndindex(2, 3):
        same(result["picked"][at], tables[at][rows[at]] * scales[at])
        same(result["table"][at], tables[at] + scales[at])


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 97, 200])
def test_fold(count):
    table = random(count, 6)

    @jax.jit
    def folded(table):
        both = (jnp.add, jnp.maximum)
        return [vectorize.fold(f, lambda i: vectorize.at(table, i), count) for f in both]

    sums, greatest = folded(table)
    np.testing.assert_allclose(sums, table.sum(0, dtype=float), atol=2e-5)
    same(greatest, table.max(0))


@pytest.mark.parametrize("shape", [(3, 4), (5, 3, 4), (40, 4), (20, 30, 4), (6, 7, 8, 4)])
def test_pick_along_any_axis(shape):
    table, pick = random(*shape), jax.jit(vectorize.pick, static_argnums=2)
    for axis in range(len(shape) - 1):
        i = integers(shape[axis], 4)
        expected = np.stack([np.take(table[..., n], i[n], axis) for n in range(4)], -1)
        same(pick(table, i, axis), expected)
        one = pick(table[..., :1], i, axis)  # common to all lanes
        same(one, np.stack([np.take(table[..., 0], i[n], axis) for n in range(4)], -1))


def test_add_at():
    table, i, amount = random(9, 4), integers(9, 4), random(4)
    expected = table.copy()
    expected[i, np.arange(4)] += amount
    same(jax.jit(vectorize.add_at)(table, i, amount), expected)


def test_separate_changes_nothing():
    odd = np.array([0, -0.0, 1.5, -3e38, 3e38, np.inf, -np.inf, np.nan, 1e-45, -1e-40], np.float32)
    result = np.asarray(jax.jit(vectorize.prevent_fusion)(odd))
    # Denormal numbers may become 0, as in any arithmetic of XLA on CPUs.
    normal = ~(abs(odd) < 1e-37)
    same(result[normal], odd[normal])
    i = np.array([0, 5, -3, 2**24 - 1], np.int32)
    same(jax.jit(vectorize.prevent_fusion_index)(i), i)


def test_what_any_lane_wants_is_computed_for_all_and_else_zeros():
    @jax.jit
    def found(wanted, x):
        results = lambda t: {"twice": 2 * t[0], "sum": t[0].sum() + t[1]}  # noqa: E731
        return jax.vmap(lambda w, v: vectorize.computed_if_any(w, results, (v, 1.0)))(wanted, x)

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    one = found(np.array([False, True, False]), x)
    np.testing.assert_array_equal(one["twice"], 2 * x)
    np.testing.assert_array_equal(one["sum"], [2, 6, 10])
    none = found(np.zeros(3, bool), x)
    assert not np.asarray(none["twice"]).any() and not np.asarray(none["sum"]).any()
    alone = jax.jit(lambda w, v: vectorize.computed_if_any(w, lambda v: v + 1, v))
    np.testing.assert_array_equal(alone(np.bool_(False), x), np.zeros((3, 2)))
    # one branch or the other runs, not both
    assert " conditional(" in found.lower(np.zeros(3, bool), x).compile().as_text()


def test_a_state_is_updated_where_it_is_wanted_and_else_left_alone():
    """The first part of the state is common to all lanes and remains so."""

    def updated(wanted, common, x):
        return vectorize.updated_where(wanted, lambda v: (v[0] + 1, v[1] * 2 + v[0]), (common, x))

    found = jax.jit(jax.vmap(updated, (0, None, 0)))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for wanted in ([False, True, False], [False] * 3, [True] * 3):
        common, mine = found(np.array(wanted), 3.0, x)
        np.testing.assert_array_equal(common, np.where(wanted, 4, 3))
        np.testing.assert_array_equal(mine, np.where(np.array(wanted)[:, None], 2 * x + 3, x))
    shared = jax.jit(jax.vmap(updated, (None, None, 0), (None, 0)))
    for wanted in (False, True):
        common, mine = shared(np.bool_(wanted), 3.0, x)
        assert common == 3 + wanted
        np.testing.assert_array_equal(mine, 2 * x + 3 if wanted else x)
        np.testing.assert_array_equal(jax.jit(updated)(np.bool_(wanted), 3.0, x)[1], mine)
    twice = jax.jit(jax.vmap(jax.vmap(updated, (0, None, 0)), (0, None, 0)))
    _, mine = twice(np.array([[True, False, False], [False] * 3]), 3.0, np.stack([x, x]))
    np.testing.assert_array_equal(mine, [[2 * x[0] + 3, *x[1:]], x])
    for wanted in (False, True):
        _, mine = twice(np.array([[wanted], [False]]), 3.0, np.stack([x[:1], x[:1]]))
        np.testing.assert_array_equal(mine, [2 * x[:1] + 3 if wanted else x[:1], x[:1]])


def test_what_one_lane_updates_stays_where_it_is():
    """A step like that of Adam, in which what is new is made of what else is new: no operation
    copies an array of the state, or chooses between it and a new one.
    """

    def moved(state):
        mean, place = state
        mean = 0.9 * mean + 0.1 * jnp.sin(place)
        return mean, place - mean / (1 + jnp.abs(mean))

    def step(state, wanted):
        return vectorize.updated_where(wanted, moved, state), wanted

    def run(states, wanted):
        return jax.lax.scan(jax.vmap(step), states, wanted)

    states = (np.ones((1, 4096), np.float32), np.ones((1, 4096), np.float32))
    wanted = np.array([[True], [False], [True]])
    compiled = jax.jit(run, donate_argnums=0).lower(states, wanted).compile()
    lines = [line.strip() for line in compiled.as_text().splitlines()]
    assert not [v for v in lines if re.search(r"= f32\[1,4096\]\S* (copy|select)\(", v)]
    mean, place = moved(moved(states))
    (mean_there, there), _ = compiled(*jax.tree.map(jnp.asarray, (states, wanted)))
    np.testing.assert_allclose((mean_there, there), (mean, place), rtol=1e-6)


@pytest.mark.parametrize("lanes", [[], [4], [0, 2, 5], range(20)])
def test_a_result_is_computed_for_the_lanes_that_want_it(lanes):
    wanted = np.isin(np.arange(20), list(lanes))
    x, old = np.arange(40, dtype=np.float32).reshape(20, 2), np.full((20, 2), -1, np.float32)

    def one(wanted, x, old):
        return vectorize.computed_where(wanted, lambda t: t[0] * t[1], (x, 2.0), old)

    expected = np.where(wanted[:, None], 2 * x, -1)
    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(wanted, x, old), expected)
    np.testing.assert_array_equal(jax.jit(one)(wanted[4], x[4], old[4]), expected[4])


TABLE = jnp.asarray(RNG.permutation(40_000), jnp.int32)


def step(table, i, unused, vanishing, empty):
    """Operations of which XLA would need nothing from three of the arguments."""
    total = lax.fori_loop(0, i, lambda j, t: t + TABLE[j], vanishing - vanishing + empty.sum())
    return {"table": table.at[i].set(3.0), "total": total}


def test_a_whole_program_becomes_native_code_whatever_it_uses():
    args = jnp.zeros(300), jnp.int32(5), jnp.ones(2), jnp.int32(7), jnp.zeros(0, jnp.int32)
    traced = jax.jit(step).trace(*args)
    run = jax.jit(native.as_native(traced))  # XLA aborts on an argument without a use
    *results, numbers = run(*args)
    same(jax.tree.unflatten(jax.tree.structure(traced.out_info), results), step(*args))
    assert numbers.tolist() == [0, 5, 7]


@pytest.mark.parametrize(
    "fn",
    [lambda x: x @ x, lambda x: x.at[jnp.array([1, 2])].set(0), lambda x: lax.map(jnp.sort, x)],
)
def test_products_sorts_and_writes_of_several_entries_do_not(fn):
    assert native.as_native(jax.jit(fn).trace(jnp.eye(3))) is None
