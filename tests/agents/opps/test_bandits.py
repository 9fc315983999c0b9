"""Searches: bandits and StoSOO, against slow twins and known answers."""

import dataclasses
import math
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from benchmarks.twins import bandits as reference
from experiments.halving import SequentialHalving
from jbrl.agents.opps import ucb
from jbrl.agents.opps.bandits import BanditProgress, StreamState, begin, no_streams, search
from jbrl.agents.opps.opps import StoSOO
from jbrl.agents.opps.ucb import UCB1, UCBV
from jbrl.base.errors import JbrlError

N_ARMS = 13
MEANS = np.random.default_rng(7).normal(30, 6, N_ARMS)
INDICES = {
    "ucb1": (UCB1(20.0), reference.ucb1_index(20.0)),
    "ucb1 of the paper": (UCB1(660.0), reference.ucb1_index(660.0)),
    "ucb-v": (UCBV(10.0), reference.ucbv_index(10.0, 1.2)),
}


def gaussian(arm: int, number: int) -> float:
    return float(np.random.default_rng((arm, number)).normal(MEANS[arm], 10))


def with_ties(arm: int, number: int) -> float:
    """Returns that are often 0, as on Grid: many arms have equal indices."""
    return float(np.random.default_rng((arm, number)).random() < 0.1)


def with_failures(arm: int, number: int) -> float:
    fails = (arm % 4 == 1 and number == 0) or (arm == 6 and number == 3)
    return float("nan") if fails else gaussian(arm, number)


STREAMS = {"gaussian": gaussian, "ties": with_ties, "failures": with_failures}


def simulator(stream):
    """Simulates requests, and checks that no return of a stream is asked for twice or out
    of turn.
    """
    next_number: dict[int, int] = {}

    def pull(arms, numbers):
        for arm, number in zip(arms.tolist(), numbers.tolist(), strict=True):
            assert next_number.get(arm, 0) == number
            next_number[arm] = number + 1
        return np.array(
            [stream(a, i) for a, i in zip(arms.tolist(), numbers.tolist(), strict=True)]
        )

    return pull


def finish(bandit, stream, budget, width=1, seed=3, n_arms=N_ARMS) -> BanditProgress:
    return last(search(bandit, begin(bandit, n_arms, seed), budget, simulator(stream), width))


def last(rounds: Iterator[BanditProgress]) -> BanditProgress:
    *_, progress = rounds
    return progress


@pytest.mark.first_case_quick
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", INDICES)
def test_pulls_are_those_of_the_one_at_a_time_loop(name, stream):
    bandit, index = INDICES[name]
    for budget, width in ((1, 1), (7, 64), (400, 1), (400, 37), (400, 512)):
        order, returns, discarded = reference.pulls_of_index_bandit(
            index, STREAMS[stream], N_ARMS, budget, seed=3
        )
        state = finish(bandit, STREAMS[stream], budget, width).state
        assert state.counts.tolist() == [order.count(arm) for arm in range(N_ARMS)]
        assert set(np.flatnonzero(state.discarded)) == discarded
        np.testing.assert_allclose(state.sums, [sum(r) for r in returns], rtol=1e-12)
        np.testing.assert_allclose(
            state.squares, [sum(v**2 for v in r) for r in returns], rtol=1e-12
        )


def test_pull_by_pull_order_is_the_same():
    """With one return at a time the order of the pulls can be seen, ties included."""
    bandit, index = INDICES["ucb-v"]
    order, _, _ = reference.pulls_of_index_bandit(index, with_ties, N_ARMS, 120, seed=5)
    state, streams, seen = bandit.start(N_ARMS, 5), no_streams(N_ARMS), []
    pull = simulator(with_ties)
    while not bandit.finished(state, 120):
        demand = bandit.demand(state, streams, 1, 120)
        assert demand.sum() == 1
        arms, numbers = streams.request(state, demand)
        streams = streams.extend(arms, pull(arms, numbers))
        state, streams = bandit.advance(state, streams, 120)
        seen.append(int(arms[0]))
    assert seen == order


def test_the_order_of_equals_is_that_of_the_hash():
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(ucb._priorities)(np.arange(500), np.int64(3), np.int64(7)))
    wanted = [reference.priority(3, 7, arm) << 32 | arm for arm in range(500)]
    np.testing.assert_array_equal(found, wanted)


def test_equals_are_chosen_at_random():
    """Ten arms that always return 1: after the first pulls all are equal, and which is pulled next
    depends on the seed only.

    100 seeds, 9 degrees of freedom: chi-squared above 27.9 has probability 0.001 under uniform
    choice; the seeds are fixed.
    """
    chosen = np.zeros(10)
    for seed in range(100):
        state = finish(UCB1(1.0), lambda arm, number: 1.0, 11, seed=seed, n_arms=10).state
        chosen[np.argmax(state.counts)] += 1
    assert ((chosen - 10) ** 2 / 10).sum() < 27.9


@pytest.mark.parametrize(
    ("n_arms", "budget", "c"),
    [(43, 430, 660.0), (43, 4300, 660.0), (43, 4300, 60 * 2**0.5), (226, 2260, 660.0)],
)
def test_little_is_simulated_in_vain(n_arms, budget, c):
    """Gaussian arms like those of GC: means of standard deviation 7, returns of 15; from ten pulls
    per arm.
    """
    means = np.random.default_rng(1).normal(30, 7, n_arms)
    rng = np.random.default_rng(2)
    for progress in search(
        UCB1(c), begin(UCB1(c), n_arms), budget, lambda arms, _: rng.normal(means[arms], 15), 64
    ):
        assert progress.streams.simulated == progress.state.pulls + len(progress.streams.values)
    assert progress.state.pulls == budget
    assert 0 <= progress.streams.simulated - progress.state.pulls < 0.05 * budget


def test_demand_is_never_more_than_asked_for_nor_beyond_the_budget():
    bandit = UCB1(20.0)
    state, streams = bandit.start(N_ARMS), no_streams(N_ARMS)
    assert bandit.demand(state, streams, 5, 100).tolist() == [1] * 5 + [0] * 8
    assert bandit.demand(state, streams, 50, 7).tolist() == [1] * 7 + [0] * 6
    assert bandit.demand(state, streams, 50, 100).sum() == 50
    assert bandit.demand(state, streams, 50, 20).sum() == 20


@pytest.mark.parametrize("bandit", [UCB1(20.0), SequentialHalving()])
def test_a_search_can_be_taken_up_again(bandit):
    whole = finish(bandit, gaussian, 300, 16)
    pull = simulator(gaussian)
    halfway = next(
        p for p in search(bandit, begin(bandit, N_ARMS, 3), 300, pull, 16) if p.state.pulls > 100
    )
    progress = last(search(bandit, halfway, 300, pull, 16))
    assert progress.state.counts.tolist() == whole.state.counts.tolist()
    np.testing.assert_allclose(progress.state.sums, whole.state.sums, rtol=1e-12)
    assert list(search(bandit, whole, 300, pull)) == []


@pytest.mark.parametrize("stream", ["gaussian", "failures"])
@pytest.mark.parametrize(
    ("n_arms", "budget"), [(13, 5), (13, 20), (13, 130), (13, 1300), (8, 240), (2, 9), (1, 7)]
)
def test_sequential_halving_is_that_of_the_loop(stream, n_arms, budget):
    counts, left, discarded = reference.sequential_halving(STREAMS[stream], n_arms, budget)
    for width in (1, 50):
        state = finish(SequentialHalving(), STREAMS[stream], budget, width, n_arms=n_arms).state
        assert state.counts.tolist() == counts
        assert set(np.flatnonzero(state.discarded)) == discarded
        assert np.flatnonzero(state.alive).tolist() == left
        assert state.pulls <= budget


@pytest.mark.parametrize("bandit", [UCB1(15.0), UCBV(5.0), SequentialHalving()])
def test_the_best_arm_is_found(bandit):
    progress = finish(bandit, gaussian, 2000, 200)
    assert bandit.recommend(progress.state) == int(np.argmax(MEANS))


def test_any_of_the_most_pulled_arms_is_recommended_and_none_that_was_discarded():
    nothing, discarded = np.zeros(4), np.array([False, True, False, False])
    states = [
        StreamState(np.array([5, 9, 2, 5]), nothing, nothing, discarded, seed) for seed in range(30)
    ]
    assert {UCB1().recommend(state) for state in states} == {0, 3}


@pytest.mark.parametrize("bandit", [UCB1(), SequentialHalving()])
def test_no_arm_works(bandit):
    progress = finish(bandit, lambda arm, number: float("nan"), 50)
    assert progress.state.discarded.all()
    assert progress.state.pulls == 0
    with pytest.raises(JbrlError, match="no arm to recommend"):
        bandit.recommend(progress.state)


def answer(rules: StoSOO, function) -> tuple[np.ndarray, object]:
    *_, tree = rules.search(function)
    return tree.centres[rules.best(tree)], tree


def test_defaults_are_those_of_the_publication():
    """k = n / log(n)^3, depth sqrt(n / k)."""
    rules = StoSOO((0.0,), (1.0,), budget=1000)
    assert (rules.k, rules.depth) == (3, 18)
    assert StoSOO((0.0,), (1.0,), budget=1).k == 1
    assert StoSOO((0.0,), (1.0,), budget=30).k == 1
    assert UCB1().widths(8.0, 0.0)[0] == pytest.approx(0.5)  # sqrt(2 / n)


@pytest.mark.parametrize(
    ("linger", "points"),
    [
        # Sweeps: root; root cut, first part; second; third; third part cut, its first part; second
        # part cut, …
        (False, [4.5, 1.5, 4.5, 7.5, 6.5, 7.5, 8.5, 3.5, 4.5]),
        # One sweep: root, cut; its parts, the third cut; its parts, the third cut; …
        (True, [4.5, 1.5, 4.5, 7.5, 6.5, 7.5, 8.5, 8 + 1 / 6, 8.5]),
    ],
)
def test_first_steps_by_hand(linger, points):
    """f(x) = x on [0, 9], one evaluation before a cell is cut, bounds without width."""
    rules = StoSOO((0.0,), (9.0,), budget=9, scale=0.0, linger=linger)
    seen = []
    for _ in rules.search(lambda x: seen.append(float(x[0])) or seen[-1]):
        pass
    assert seen == pytest.approx(points)


def test_bounds_by_hand():
    """Two values, 1 and 2, of a range of 3."""
    rules = StoSOO((0.0,), (1.0,), budget=1000, scale=3.0)
    tree = dataclasses.replace(rules.start(), counts=np.array([2]), sums=np.array([3.0]))
    assert rules._bounds(tree, np.array([0])) == pytest.approx(
        1.5 + 3 * math.sqrt(math.log(1000 * 3 * 1000**0.5) / (2 * 2))
    )


@pytest.mark.parametrize(
    ("linger", "noise", "regret"),
    [
        *((False, 0.1, 0.05), (True, 0.1, 0.02)),
        pytest.param(False, 0.0, 0.001, marks=pytest.mark.slow),
        pytest.param(True, 0.0, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_smooth_function_of_one_number(linger, noise, regret):
    """Mean over 3 seeds of what the answer loses against the maximum, 1 at 0.7; a point at random
    loses 0.8 on average.
    """
    lost = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rules = StoSOO((-1.0,), (2.0,), budget=400, linger=linger)
        point, tree = answer(
            rules, lambda x, rng=rng: 1 - (x[0] - 0.7) ** 2 + noise * rng.standard_normal()
        )
        lost.append((point[0] - 0.7) ** 2)
        assert tree.evaluations == 400
        assert tree.counts.max() <= rules.k
    assert np.mean(lost) < regret


def test_several_numbers_and_several_maxima():
    def function(x):
        return math.sin(13 * x[0]) * math.sin(27 * x[0]) / 2 + 0.5 - abs(x[1] - 0.2)

    grid = np.linspace(0, 1, 2001)
    greatest = (np.sin(13 * grid) * np.sin(27 * grid) / 2 + 0.5).max()
    point, _ = answer(StoSOO((0.0, 0.0), (1.0, 1.0), budget=400, linger=True), function)
    assert function(point) > greatest - 0.01


def test_a_search_of_points_can_be_taken_up_again():
    rules = StoSOO((0.0, -1.0), (1.0, 1.0), budget=120, seed=4)
    whole = list(rules.search(lambda x: float(-np.abs(x).sum())))
    rest = list(rules.search(lambda x: float(-np.abs(x).sum()), whole[49]))
    assert len(whole) == 120
    assert len(rest) == 70
    np.testing.assert_array_equal(rest[-1].centres, whole[-1].centres)
    np.testing.assert_array_equal(rest[-1].sums, whole[-1].sums)


def test_cells_tile_the_box():
    rules = StoSOO((0.0, -1.0), (1.0, 1.0), budget=100)
    _, tree = answer(rules, lambda x: float(x[0]))
    leaves = ~tree.cut
    assert np.prod(tree.high - tree.low, axis=1)[leaves].sum() == pytest.approx(2.0)
    assert tree.depth.max() <= rules.depth + 1
    assert (tree.counts[tree.depth > rules.depth] == 0).all()


def test_bad_values_are_refused():
    rules = StoSOO((0.0,), (1.0,), budget=10)
    with pytest.raises(JbrlError, match="value nan at"):
        next(rules.search(lambda x: math.nan))
    with pytest.raises(JbrlError, match="before the first evaluation"):
        rules.best(rules.start())


@pytest.mark.parametrize("linger", [False, True])
@pytest.mark.parametrize("budget", [*range(1, 13), 250, 1000])
def test_fewest_is_the_budget_from_which_a_part_of_the_box_is_cut(budget, linger):
    rules = StoSOO((-1.0,) * 3, (1.0,) * 3, budget, linger=linger)
    noise = np.random.default_rng(budget)
    *_, tree = rules.search(lambda x: float(x.sum() + noise.normal()))
    assert tree.cut[1:].any() == (budget >= rules.fewest)
    if budget < rules.fewest:
        assert not tree.centres[rules.best(tree)].any()
