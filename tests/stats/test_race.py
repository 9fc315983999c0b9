"""Races: how often a guarantee fails, counted; bits; limits of means; the cost of an evaluation."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import races
from benchmarks.races import FIELDS, KINDS, scores
from jbrl.base.errors import JbrlError
from jbrl.stats.evaluation import EvaluateOptions
from jbrl.stats.evaluation.game import Moves, sides_of
from jbrl.stats.evaluation.propagation import payoff_bounds, propagate
from jbrl.stats.evaluation.ranking import scores_needed, separation
from jbrl.stats.evaluation.samples import check_effort, check_table, effort, samples_of
from jbrl.stats.race import Evidence, Race, interval, lower_limit
from tests.stats.evaluation_cases import table_of

FALSE_ALARM = 0.05  # of a race


def raced(means: list[float], draw: str, seed: int, *, epsilon: float, most: int) -> Race:
    """Race candidates of known means until no other may be better by epsilon, or all is played."""
    names = [str(k) for k in range(len(means))]
    race = Race(names, span=1.0, epsilon=epsilon, confidence=1 - FALSE_ALARM)
    rng, start, stop = np.random.default_rng(seed), 0, 64
    while stop <= most:
        for name, own in zip(names, scores(means, draw, rng, stop - start), strict=True):
            if name in race.running or start == 0:
                race.add(name, own)
        race.drop()
        if not race.open():
            break
        start, stop = stop, 2 * stop
    return race


def errors(n: int, most: int) -> tuple[int, int]:
    """Return how many of n races broke a guarantee, and how many ended."""
    wrong = ended = 0
    cases = itertools.product(FIELDS.values(), KINDS)
    for seed, (means, draw) in zip(range(n), itertools.cycle(cases), strict=False):
        race = raced(means, draw, seed, epsilon=0.02, most=most)
        best = [means[int(name)] >= means[int(race.left[name][0])] for name in race.left]
        over = not race.open()
        lost = over and max(means) >= means[int(race.leader)] + race.epsilon
        wrong += any(best) or lost
        ended += over
    return wrong, ended


def test_a_race_errs_as_seldom_as_it_says():
    # 60 races at 5 %: nine or more would be wrong with probability 0.4 % if the rate were 5 %
    wrong, ended = errors(60, 4096)
    assert wrong <= 8
    assert ended >= 20


@pytest.mark.slow
def test_of_a_thousand_races_one_in_twenty_errs_at_most():
    # more than 73 would be with probability 0.1 % if the rate were 5 %
    wrong, _ = errors(1000, 2**15)
    assert wrong <= 73


def test_what_the_page_says_of_races_beside_other_rules():
    root = Path(races.__file__).parents[1]
    kept = pd.read_json(root / "benchmarks/results/races.jsonl", lines=True)
    kept = kept.set_index(["field", "kind", "rule"]).sort_index()
    words = " ".join((root / "docs/statistics.md").read_text(encoding="utf-8").split())
    rules = {name: rows.droplevel("rule") for name, rows in kept.groupby("rule")}
    race = rules["race"]
    assert race["ended"].all() and not race["wrong"].any()
    assert f"In {race['races'].sum():,} races" in words
    for rule, text in (("challenger", "{:.1f} to {:.1f} times"), ("halving", "{:.1f} to {:.1f},")):
        part = rules[rule]["scores"] / race["scores"]
        part = part.drop("equal", level="field") if rule == "halving" else part
        assert text.format(part.min(), part.max()) in words
    again = pd.DataFrame(races.compared(FIELDS["apart"], "heavy", 200)).T
    assert again["scores"].to_dict() == kept["scores"].xs(("apart", "heavy")).to_dict()


def test_rules_stop_with_the_best_where_it_is_far_ahead():
    table = np.array([[0.2], [0.9], [0.1], [0.3]]) + np.zeros(2**12)
    for rule in (races.race, races.challenger):
        best, played, ended = rule(table)
        assert (best, ended) == (1, True) and played < 4 * 2**12
    assert races.halving(table, 8) == 1


def test_the_limits_of_a_mean_hold_and_shrink():
    rng, missed, widths = np.random.default_rng(0), 0, []
    for _ in range(40):
        scores = (rng.random(1000) < 0.1).astype(float)
        low, high = interval(scores, 0.0, 1.0, 0.9)
        missed += not low <= 0.1 <= high
        widths.append(high - low)
    # false alarms: more than 10 of 40 at 10 % with probability 0.2 %
    assert missed <= 10
    # a limit that knew the range only would be 0.12 wide (Hoeffding)
    assert np.mean(widths) < 0.08


def test_evidence_does_not_depend_on_the_order_of_blocks_nor_overflow():
    numbers = np.random.default_rng(0).random(5000)
    whole, parts = Evidence(0.3, 0.0), Evidence(0.3, 0.0)
    whole.add(numbers)
    for first in range(0, 5000, 700):
        parts.add(numbers[first : first + 700])
    assert whole.n == parts.n == 5000
    assert whole.wealth > 1e200
    assert np.isclose(np.log(whole.wealth), np.log(parts.wealth), rtol=1e-12)


def test_wealth_is_the_mean_of_the_products_of_the_bets():
    evidence = Evidence(0.5, 0.0)
    evidence.add(np.array([1.0, 0.25, 0.75]))
    stakes = 0.5 ** np.arange(18) / 0.5
    expected = np.mean([np.prod(1 + c * np.array([0.5, -0.25, 0.25])) for c in stakes])
    assert np.isclose(evidence.wealth, expected, rtol=1e-14)


def test_one_that_is_worse_leaves_and_one_that_copies_the_leader_is_settled():
    race = Race(["a", "copy", "worse"], span=1.0, epsilon=0.05)
    scores = np.random.default_rng(0).random(2000) * 0.5 + 0.5
    for name, given in (("a", scores), ("copy", scores), ("worse", scores - 0.3)):
        race.add(name, given)
    assert race.drop() == ["worse"]
    assert race.left == {"worse": ("a", 2000)}
    assert race.leader == "a"
    assert race.open() == []
    assert race.difference("copy", "a")[0] == 0
    low, high = race.difference("worse", "a")[1:]
    assert low <= -0.3 <= high < 0


def test_one_whose_last_block_was_cut_off_leads_if_it_is_better_where_both_have_played():
    race = Race(["whole", "cut", "half"], span=1.0, epsilon=0.1)
    for name, n, mean in (("whole", 16, 0.5), ("cut", 13, 0.6), ("half", 8, 0.9)):
        race.add(name, np.full(n, mean))
    assert race.leader == "cut"
    race.add("cut", np.zeros(3))
    assert race.leader == "whole"


@pytest.mark.parametrize("low", [-3.0, 0.1, 47.1])
def test_scores_that_are_the_least_but_for_rounding_have_limits(low):
    for drawn in (np.full(100, low), np.full(100, np.nextafter(low, 99))):
        assert low <= interval(drawn, low, 99.0)[0] <= drawn[0]
        assert -drawn[0] <= interval(-drawn, -99.0, -low)[1] <= -low


def test_a_limit_of_nothing_is_the_end_of_the_range():
    assert lower_limit(np.zeros(0), -2.0, 3.0, 0.05) <= -1.9
    assert lower_limit(np.ones(9), -2.0, 3.0, 0.0) <= -1.9  # a level that is rounded to 0


@pytest.fixture(scope="module")
def few():
    """Three algorithms, one of them far better, ten scores each."""
    rng = np.random.default_rng(0)
    raw = {(i, j): rng.normal(size=10) + 3 * (i == 2) for i in range(3) for j in range(2)}
    return samples_of(table_of(raw))


def test_bounds_that_tell_nothing_apart_say_why(few):
    ends = propagate(*payoff_bounds(few, 0.05), few.same)
    separated = separation(few, *ends, 0.05)
    assert (
        separated is not None
        and separated.best == "A2"
        and separated.pairs == 3
        and separated.scores == 10
    )
    assert separated.half_width == pytest.approx(np.sqrt(np.log(2 * 6 / 0.05) / 20))
    assert separated.first == 1.0 and separated.apart >= 2  # of 400 resamples
    text = " ".join(separated.sentences())
    for words in ("none of 3 pairs", "±0.52", "an estimate", "A2 from", "100% of them"):
        assert words in text


def test_the_number_of_scores_that_is_named_suffices_and_half_of_it_does_not(few):
    needed = scores_needed(few, 2, 0, 0.05)
    assert needed is not None and needed > 10
    for number, apart in ((1.05 * needed, True), (needed / 2, False)):
        low, high = payoff_bounds(few, 0.05, scale=(10 / number) ** 0.5)
        lower, upper = propagate(low, high, few.same)
        assert (lower[2] > upper[0]) == apart
    assert scores_needed(few, 0, 0, 0.05) is None


def test_what_would_take_minutes_is_left_out_and_said(few, monkeypatch):
    monkeypatch.setattr("jbrl.stats.evaluation.ranking.LARGEST", 10)
    separated = separation(few, np.zeros(3), np.ones(3), 0.05)
    assert separated is not None and not separated.others and separated.first is None
    assert "--method bootstrap" in separated.sentences()[-1]


def test_bounds_that_tell_algorithms_apart_need_no_words(few):
    assert separation(few, np.array([0.0, 0.1, 0.9]), np.array([0.2, 0.3, 1.0]), 0.05) is None


def test_costs_are_known_and_refused_beforehand():
    small, large = (effort(n, m, n * m * 30, ["pbp"])[0] for n, m in ((12, 20), (100, 40)))
    assert small.seconds < 60 and large.seconds > 30 * small.seconds
    assert large.bytes < 4e9
    assert EvaluateOptions().minutes == 10.0
    check_effort([small], 12, 20, 60)
    with pytest.raises(
        JbrlError, match=r"pbp: 100 algorithms on 40 environments take about .* min"
    ):
        check_effort([large], 100, 40, 0.1)
    dense = effort(100, 40, 120_000, ["bootstrap"])
    with pytest.raises(JbrlError, match=r"bootstrap: 100 algorithms .* GB: expected at most 6 GB"):
        check_effort(dense, 100, 40, 1e9)
    with pytest.raises(JbrlError, match=r"3,000 algorithms with 90,000 different scores on .*'e0'"):
        check_table(3_000, 90_000, "e0")


@pytest.mark.parametrize("width", [0.05, 0.4])
def test_memory_grows_with_the_strategies_not_with_their_squares(width):
    """30 algorithms on 20 environments: 18,000 joint strategies with 11 million moves."""
    rng = np.random.default_rng(0)
    n, m = 30, 20
    z = rng.uniform(0, 1, (n, m, n))
    same = np.broadcast_to(np.eye(n, dtype=bool)[:, None, :], z.shape)
    z[same], wide = 0.5, np.where(same, 0, width)
    sides = sides_of(z - wide, z + wide, same)
    game = Moves.greedy((n, n * m), sides, rng.random((n, n * m)))
    stored = game._members.nbytes + game._stretches.data.nbytes + game._stretches.indices.nbytes
    assert stored < 18_000 * 2_000  # bytes; the matrix of all moves takes 90 MB
    assert game.apply(np.ones(18_000)) == pytest.approx(game.damping, abs=1e-12)
