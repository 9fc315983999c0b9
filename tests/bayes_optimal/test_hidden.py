"""A hidden state: against value iteration, expectimax and posterior samples by hand."""

import dataclasses
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import jbrl
from jbrl.bayes_optimal import hidden_ahead, samples
from jbrl.bayes_optimal.bracket import ONE_SIDED
from jbrl.bayes_optimal.hidden import Between, Hidden
from jbrl.bayes_optimal.hidden_ahead import HiddenAhead, HiddenLeaves, candidates, hide
from jbrl.bayes_optimal.look_ahead import LookAhead
from jbrl.bayes_optimal.plan import Sizes
from jbrl.mdp.counts import Layers
from jbrl.mdp.dirichlet import DirichletMDPs, distribution
from jbrl.mdp.model import make_model
from tests import kept
from tests.bayes_optimal.exact import PRIORS, computed_again, exact, problem, some_problem

DISCOUNT = 0.5
SMALL = "GC(n_states=2,n_actions=2)"
HORIZON = 12  # later there is 20 / 2^12 to earn, less than a hundredth


def ahead_of(mdps: DirichletMDPs, decisions: int, horizon: int = HORIZON) -> LookAhead:
    return LookAhead(Layers(make_model(mdps)), DISCOUNT, horizon, decisions, threads=1)


def hidden_of(ahead: LookAhead, numbers: tuple[int, ...], trials: int) -> HiddenAhead:
    return HiddenAhead(ahead, worths_of(ahead.layers, numbers, trials))


def worths_of(layers: Layers, numbers: tuple[int, ...], trials: int) -> Hidden:
    counts = tuple(layers.blocks[number] for number in numbers)
    return Hidden(layers.model, counts, DISCOUNT, numbers, trials)


def replications(one: HiddenAhead, n: int, n_mdps: int = 1024) -> np.ndarray:
    control = one.ahead.control(np.random.SeedSequence(1))
    seeds = np.random.SeedSequence(2).spawn(n)
    return np.array([one.replication(control, n_mdps, seed).value for seed in seeds])


def test_between_two_visits_against_value_iteration_by_hand():
    model = make_model(jbrl.problem("GC(n_states=3,n_actions=2)").mdps)
    rows = tuple(np.exp(one) for one in samples.draw(model, 4, 1).log_rows)
    between = Between(model, rows, 0.9, hidden=(2,))
    for m in range(4):
        assert between.least[m] < between.most[m]
        for share in (0.0, 0.013, 0.4, 0.77, 1.0):
            w = float(between.least[m] + share * (between.most[m] - between.least[m]))
            value = np.array([0.0, 0.0, w])
            for _ in range(200):
                value[:2] = [
                    max(
                        sum(
                            rows[x][a, k, m] * (model.blocks[x].rewards[a, k] + 0.9 * value[int(y)])
                            for k, y in enumerate(model.blocks[x].successors)
                        )
                        for a in range(2)
                    )
                    for x in range(2)
                ]
            for y in range(3):
                found = float(between.at(y, np.full(4, w, np.float32))[m])
                assert value[y] - 1e-4 <= found <= value[y] + 0.02


def test_rewards_of_another_size_change_nothing_but_the_size():
    mdps = jbrl.problem("GC(n_states=3,n_actions=2)").mdps
    found = []
    for scale in (1.0, 2.0**-40):
        model = make_model(distribution(mdps.concentrations, scale * mdps.rewards))
        rows = tuple(np.exp(one) for one in samples.draw(model, 4, 1).log_rows)
        between = Between(model, rows, 0.9, hidden=(2,))
        middle = (between.least + between.most) / 2
        found.append(np.array([between.at(y, middle) for y in range(3)]) / scale)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "numbers"), [("unlike", (0,)), ("fractions", (0,)), ("fractions", (1, 0))]
)
def test_the_worth_against_expectimax(name, numbers):
    """With 10^8 pseudo-counts a row is as good as known. After 7 decisions there is at most
    5 / 2^7 / (1 - 1/2) to earn or to lose.
    """
    weights, rewards = (np.array(one, float) for one in PRIORS[name])
    theta = np.array([[0.3, 0.7], [0.6, 0.4]])
    known = weights.copy()
    if 1 not in numbers:
        known[1] = 1e8 * theta
    hidden = worths_of(Layers(make_model(distribution(weights, rewards))), numbers, trials=9)
    rows = (np.full((2, 2, 1), 0.5), theta[:, :, None])
    with ThreadPoolExecutor(1) as pool:
        between, worth = hidden.solve(rows, np.random.SeedSequence(3), pool)
    for first in (0, 1):
        found = hidden.at(first, worth[hidden.nothing], between).item()
        expected = exact(distribution(known, rewards, first), DISCOUNT, 7)
        assert found == pytest.approx(expected, abs=0.08)
        if numbers == (0,):
            assert found != pytest.approx(between.at(first, between.most)[0], abs=0.08)


def test_worths_are_made_in_little_more_memory_than_they_are_kept_in():
    model = make_model(jbrl.problem("UGC").mdps)
    hidden = worths_of(Layers(model, merge_states=False), (4,), trials=6)
    rows = tuple(np.exp(one) for one in samples.draw(model, 64, 1).log_rows)
    with ThreadPoolExecutor(1) as pool:
        hidden.solve(rows, np.random.SeedSequence(3), pool)  # what later calls find
        tracemalloc.start()
        _, worth = hidden.solve(rows, np.random.SeedSequence(3), pool)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert taken < 3 * sum(own.nbytes for each in worth.values() for own in each)


@pytest.mark.parametrize("numbers", [(0,), (1, 0)])
def test_shown_rows_are_worth_what_value_iteration_gives(numbers):
    """No outcome before all is shown: the mean over MDPs of the optimal value; 5 standard errors,
    the seeds are fixed.
    """
    layers = Layers(make_model(problem(PRIORS["unlike"]).mdps))
    model, hidden = layers.model, worths_of(layers, numbers, 0)
    rows = tuple(map(np.exp, samples.draw(model, 256, 3).log_rows))
    with ThreadPoolExecutor(1) as pool:
        between, worth = hidden.solve(rows, np.random.SeedSequence(3), pool)
    many = samples.draw(model, 2**14, 5)
    for x, expected in enumerate(samples.values(model, many, DISCOUNT, (40,))[40]):
        found = hidden.at(x, worth[hidden.nothing], between)
        error = np.hypot(found.std() / 16, expected.std() / 16)
        assert found.mean() == pytest.approx(expected.mean(), abs=5 * error)


@pytest.mark.parametrize("numbers", [(1,), (1, 0)])
def test_leaves_against_the_posterior(numbers):
    """5 combined standard errors, the seeds are fixed. With two states hidden the look-ahead ends
    before the third decision in all cells.
    """
    trials = 4 - len(numbers)
    relaxed = hidden_of(ahead_of(problem(PRIORS["fractions"]).mdps, 3), numbers, trials)
    layers, hidden = relaxed.layers, relaxed.hidden
    model, control = layers.model, relaxed.ahead.control(np.random.SeedSequence(1))
    cells, found = list(relaxed.leaves()), []
    assert set(relaxed.leaves().values()) == {len(numbers) - 1}
    with ThreadPoolExecutor(1) as pool:
        for seed in np.random.SeedSequence(4).spawn(8):
            own, shown = seed.spawn(2)
            mdps = samples.draw(model, 512, own)
            leaves = HiddenLeaves(relaxed, control)
            leaves.add(list(mdps.log_rows), 1 / 512, shown, pool)
            found.append(leaves.estimates)
        generator = np.random.default_rng(5)
        for cell in cells[:5]:
            splits = [
                block.splits(total).counts[0]
                for block, total in zip(layers.blocks, cell.totals, strict=True)
            ]
            rows = tuple(
                np.moveaxis(
                    np.array([generator.dirichlet(row, 400) for row in block.concentrations + own]),
                    1,
                    2,
                )
                for block, own in zip(model.blocks, splits, strict=True)
            )
            between, worth = hidden.solve(rows, np.random.SeedSequence(6), pool)
            own = tuple(cell.totals[number] for number in numbers)
            values = hidden.at(cell.state, worth[own], between)[(0,) * len(numbers)]
            means = [one[cell][(0,) * len(layers.blocks)] for one in found]
            error = np.hypot(np.std(means, ddof=1) / 8**0.5, values.std() / 20)
            assert np.mean(means) == pytest.approx(values.mean(), abs=5 * error + 1e-3)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("numbers", [(0,), (1,), (0, 1)])
def test_lies_between_the_exact_value_and_being_shown_everything(numbers):
    """Slack of 20 standard errors of four replications, as in `test_look_ahead`."""
    mdps = jbrl.problem(SMALL).mdps
    value = ahead_of(mdps, HORIZON).extremes()[0]
    before = np.inf
    for decisions in (0, 2, 4):
        ahead = ahead_of(mdps, decisions)
        control = ahead.control(np.random.SeedSequence(1))
        shown = ahead.replication(control, 2**14, np.random.SeedSequence(7)).value
        samples = replications(hidden_of(ahead, numbers, 6), 4)
        slack = 10 * float(np.std(samples, ddof=1)) + 1e-3
        assert value - slack <= samples.mean() < shown
        assert samples.mean() <= before + slack
        before = float(samples.mean())


def test_the_look_ahead_ends_where_the_rows_are_shown():
    ahead, nowhere = (ahead_of(jbrl.problem(SMALL).mdps, decisions) for decisions in (4, 0))
    few, many = (replications(hidden_of(ahead, (1,), trials), 2).mean() for trials in (1, 6))
    shown = nowhere.replication(
        nowhere.control(np.random.SeedSequence(1)), 2**14, np.random.SeedSequence(7)
    ).value
    assert many < few - 0.01 < shown


@pytest.mark.slow
def test_the_state_that_is_hidden_follows_a_permutation_of_the_states():
    mdps = jbrl.problem("GC(n_states=3,n_actions=2)").mdps
    order = [2, 0, 1]  # the old state of each new one
    at = np.ix_(order, [1, 0], order)
    moved = distribution(np.asarray(mdps.concentrations)[at], np.asarray(mdps.rewards)[at], 1)
    both = [hide(ahead_of(one, 2), np.random.SeedSequence(0)) for one in (mdps, moved)]
    for number, (one, other) in enumerate(zip(*both, strict=True)):
        assert len(one.states) == number + 1
        assert one.states == tuple(order[x] for x in other.states)
        values = [replications(relaxed, 4, 512) for relaxed in (one, other)]
        slack = 5 * float(np.hypot(*(found.std(ddof=1) for found in values))) + 1e-3
        assert values[0].mean() == pytest.approx(values[1].mean(), abs=slack)


@pytest.mark.slow
def test_merging_exchangeable_states_leaves_the_bound_valid():
    """States 1 and 2 are exchangeable: neither may be hidden, the others may."""
    layers = Layers(make_model(jbrl.problem("UGC(n_states=4,n_actions=2)").mdps))
    ahead = LookAhead(layers, DISCOUNT, HORIZON, 2, threads=1)
    assert {one.states for one in hidden_ahead.candidates(ahead)} == {(0,), (3,)}
    merged = replications(hidden_of(ahead, (3,), 3), 2, 512).mean()
    apart = LookAhead(Layers(layers.model, merge_states=False), DISCOUNT, HORIZON, 2, threads=1)
    assert replications(hidden_of(apart, (3,), 3), 2, 512).mean() == pytest.approx(merged, rel=1e-3)


def test_the_search_ends_with_the_time_that_there_is(monkeypatch):
    """It counts no outcomes beyond those that are one too many."""
    ahead, seed = ahead_of(jbrl.problem(SMALL).mdps, 2), np.random.SeedSequence(0)
    roots, lengths, splits = [], [], hidden_ahead._splits
    monkeypatch.setattr(HiddenAhead, "root", lambda one, *_: roots.append(one) or 0.0)
    n_candidates = len(hidden_ahead.candidates(ahead))
    assert hide(ahead, seed) and len(roots) == n_candidates > 1
    found = hide(ahead, seed, 1e-9)
    assert [one.states for one in found] == [roots[n_candidates].states]
    assert len(roots) == n_candidates + 1
    monkeypatch.setattr(hidden_ahead, "_splits", lambda c, n: lengths.append(n) or splits(c, n))
    assert found[0].fitting(1e-9).hidden.trials == 1
    assert max(lengths) == 2


def test_more_time_lets_more_outcomes_be_followed(monkeypatch):
    ahead = ahead_of(jbrl.problem(SMALL).mdps, 2)
    one = hidden_of(ahead, (1,), 3)
    least = one.seconds(hidden_ahead.LEAST_MDPS)
    longer = hide(ahead, np.random.SeedSequence(0), 100 * least)
    assert longer[0].hidden.trials > hide(ahead, np.random.SeedSequence(0), least)[0].hidden.trials
    assert hide(ahead_of(jbrl.problem("UGrid").mdps, 0), np.random.SeedSequence(0)) == []
    certain = distribution(np.eye(2)[:, None].repeat(2, 1), np.ones((2, 2, 2)), 0)
    assert hide(ahead_of(certain, 0), np.random.SeedSequence(0)) == []
    monkeypatch.setattr(hidden_ahead, "WORTHS", 1)
    assert hidden_of(ahead_of(jbrl.problem(SMALL).mdps, 0), (1,), 3)._chunk == 1


def test_a_deeper_look_ahead_lets_more_outcomes_be_followed(monkeypatch):
    monkeypatch.setattr(hidden_ahead, "USUAL_SPLITS", 10)
    monkeypatch.setattr(hidden_ahead, "LEAVES", 1)
    model, seed = jbrl.problem("GC").mdps, np.random.SeedSequence(0)
    shallow, deep = (hide(ahead_of(model, decisions), seed)[0] for decisions in (4, 8))
    for one in (shallow, deep):
        followed = hidden_ahead._splits(one.hidden.counts, one.hidden.trials + 1)
        leaves = one.ahead.layers.count(one.ahead.decisions)
        assert followed[-2] <= leaves < followed[-1]
    assert shallow.hidden.trials < deep.hidden.trials


def test_threads_change_no_bit():
    layers = Layers(make_model(jbrl.problem(SMALL).mdps))
    found = []
    for threads in (1, 2):
        ahead = LookAhead(layers, DISCOUNT, HORIZON, 3, threads)
        found.append(replications(hidden_of(ahead, (1,), 4), 1, 256)[0])
    assert found[0] == found[1]
    kept.compare("upper end with a hidden state", {"number": f"{found[0]:.5g}"})


@pytest.mark.slow
def test_a_bracket_rests_on_it_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(hidden_ahead, "USUAL_MDPS", 1024)
    arguments = {"discount": DISCOUNT, "horizon": HORIZON, "decisions": 2}
    found = jbrl.bound(SMALL, **arguments, out=tmp_path)
    assert "all rows but those of" in found.upper_end.rests_on["method"]
    value = ahead_of(jbrl.problem(SMALL).mdps, HORIZON).extremes()[0]
    assert found.lower <= value <= found.upper < found.clairvoyant

    monkeypatch.setattr(HiddenAhead, "replication", computed_again)
    assert jbrl.bound(SMALL, **arguments, out=tmp_path) == found


def test_the_unit_of_rewards_and_what_all_have_in_common_change_nothing(monkeypatch):
    """What is estimated in single precision are rewards from 0 on."""
    monkeypatch.setattr(hidden_ahead, "USUAL_MDPS", 1024)
    monkeypatch.setattr(hidden_ahead, "USUAL_SPLITS", 300)
    mdps, ends = jbrl.problem(SMALL).mdps, []
    for unit, common in ((1.0, 0.0), (2.0**-80, 0.0), (1.0, 1e4), (2.0**80, 0.0)):
        same = problem((mdps.concentrations, unit * mdps.rewards + common))
        found = jbrl.bound(same, discount=DISCOUNT, horizon=HORIZON, decisions=2, played=300)
        assert "all rows but those of" in found.upper_end.rests_on["method"]
        rest = common * (1 - DISCOUNT**HORIZON) / (1 - DISCOUNT)
        ends.append(((found.lower - rest) / unit, (found.upper - rest) / unit))
    np.testing.assert_allclose(ends[1::2], [ends[0]] * 2, rtol=1e-3)
    np.testing.assert_allclose(ends[2][1], ends[0][1], rtol=1e-6)


def test_the_greatest_value_is_that_of_all_states():
    """Values up to 6, less 0 in a state and -100 in the other."""
    one = hidden_of(ahead_of(problem(PRIORS["unlike"]).mdps, 1), (0,), 2)
    control = one.ahead.control(np.random.SeedSequence(1))
    constant, slopes = np.array([0.0, -100.0]), 0 * control.slopes
    control = dataclasses.replace(control, constant=constant, slopes=slopes, curvatures=None)
    made = one.replication(control, 1024, np.random.SeedSequence(2))
    assert made.greatest == pytest.approx(106)


def misses(numbers: range) -> int:
    """Count limits at 97.5 % that lie below the value, of lifetimes after which little is left."""
    missed, n_mdps = 0, 256
    for number in numbers:
        mdps = some_problem(number).mdps
        value = ahead_of(mdps, HORIZON).extremes()[0]
        least = make_model(mdps).least_reward
        rewards = np.asarray(mdps.rewards, np.float64) - least
        ahead = ahead_of(dataclasses.replace(mdps, rewards=rewards), 1)
        common = least * (1 - DISCOUNT**HORIZON) / (1 - DISCOUNT)
        control, seeds = ahead.control(np.random.SeedSequence(1)), np.random.SeedSequence(number)
        for one in candidates(ahead):
            made = [one.replication(control, n_mdps, seed) for seed in seeds.spawn(2)]
            mean = np.mean([replication.value for replication in made])
            limit = mean + common + one.ahead.margin(made, n_mdps, ONE_SIDED)
            missed += limit < value - 1e-4 * max(1.0, abs(value))
    return missed


def test_few_limits_are_false():
    """Of an ordinary problem and of one with a rare outcome. Two misses of at most four at 97.5 %
    occur once in 280 runs; seeds are fixed.
    """
    assert misses(range(2)) <= 1


@pytest.mark.slow
def test_limits_are_false_as_seldom_as_they_say():
    """Of 200 to 400 limits; 20 misses of 400 at 97.5 % occur once in 300 runs; seeds are fixed."""
    assert misses(range(4, 204)) <= 19


@pytest.mark.slow
@pytest.mark.parametrize(("name", "decisions"), [("GC", 12), ("GC", 18), ("UGC", 5)])
def test_replications_take_no_more_memory_than_foreseen(name, decisions):
    layers = Layers(make_model(jbrl.problem(name).mdps), merge_states=False)
    ahead, seed = LookAhead(layers, 0.95, 250, decisions, threads=2), np.random.SeedSequence(0)
    control, bounds = ahead.control(seed), [ahead, *hide(ahead, seed)]
    tracemalloc.start()
    for one in bounds:
        one.replication(control, 2 * getattr(one, "_chunk", samples.CHUNK), seed)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < Sizes(layers).of(decisions).memory
