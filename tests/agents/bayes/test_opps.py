"""OPPS: the search, with returns made up so that it is quick, and pulls, against their twin.

What is kept of a search: tests/play/test_offline.py.
"""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from benchmarks.twins import bandits as reference
from benchmarks.twins.opps import Formula as Twin
from benchmarks.twins.opps import trial
from experiments.halving import HalvingOPPSDS
from jbrl import play
from jbrl.agents.complete import build
from jbrl.agents.opps.formulas import formula_set
from jbrl.agents.opps.opps import OPPSCS, OPPSDS, space_of
from jbrl.agents.opps.ranking import formula_policies
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_parameters
from jbrl.play.offline import Trials
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import OfflineSearch
from tests.reference.trajectories import prior_of

KEY = jax.random.key(7)
FAILING = {5, 8, 11}  # arms of F2


def made_up(arm, number):
    """The number-th return of an arm; those of arm 3 are the greatest."""
    if arm in FAILING and number == 2:
        return float("nan")
    return float(np.random.default_rng((int(arm), int(number))).normal(30 - abs(arm - 3), 4))


class MadeUp:
    """Trials whose returns are made up."""

    width = 32

    def compile(self, examples, wanted):
        pass

    def __call__(self, agents, arms, numbers):
        assert len(jax.tree.leaves(agents)[0]) == len(arms)
        return np.array([made_up(a, n) for a, n in zip(arms, numbers, strict=True)])


def search(agent, before=None, rounds=None):
    """Findings after so many rounds, by default at the end."""
    *_, findings = itertools.islice(agent.search(4, prior_of("GC"), MadeUp(), before), rounds)
    return findings


def test_pulls_are_those_of_the_loop_that_pulls_one_at_a_time():
    agent = OPPSDS("F2", 300, "UCB1", 25.0)
    findings = search(agent)
    order, returns, discarded = reference.pulls_of_index_bandit(
        reference.ucb1_index(25.0), made_up, 12, 300, 4
    )
    arms = agent.arms(findings)
    assert arms["pulls"].tolist() == [len(r) for r in returns]
    assert set(np.flatnonzero(arms["discarded"])) == discarded == FAILING
    np.testing.assert_allclose(arms["mean"], [np.mean(r) for r in returns], rtol=1e-12)
    np.testing.assert_allclose(arms["std"], [np.std(r, ddof=1) for r in returns], rtol=1e-9)
    assert findings.consumed == len(order) == 300
    assert findings.consumed <= findings.simulated <= 1.15 * 300  # 25 pulls for each arm
    assert agent.strategy(findings).formula == formula_set("F2")[3].text == "|Q0|"
    assert arms["strategy"][arms["chosen"]].tolist() == ["|Q0|"]


@pytest.mark.parametrize(
    "agent", [OPPSDS("F2", 300), OPPSDS("F2", 300, "UCB-V"), HalvingOPPSDS("F2", 300)]
)
def test_a_search_goes_on_where_it_was_interrupted(agent):
    whole = search(agent)
    half = search(agent, rounds=4)
    assert 0 < half.consumed < 300
    again = search(agent, before=half)
    for name, values in whole.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], values)
    assert (again.consumed, again.simulated) == (whole.consumed, whole.simulated)


def test_the_exploration_constant_follows_the_range_of_returns():
    """Rewards of GC are from 0 to 10: c = √2 · 10 (1 - γ^T) / (1 - γ)."""
    explicit = OPPSDS("F2", 200, "UCB1", 2**0.5 * 10 * (1 - 0.95**250) / 0.05)
    np.testing.assert_array_equal(
        search(explicit).arrays["counts"], search(OPPSDS("F2", 200)).arrays["counts"]
    )
    told = prior_of("GC")
    impossible = np.asarray(told.mdps.concentrations) == 0
    paid = np.where(impossible, -1e6, told.mdps.rewards)
    other = dataclasses.replace(told, mdps=dataclasses.replace(told.mdps, rewards=paid))
    assert OPPSDS()._bandit(other) == OPPSDS()._bandit(told)


def test_all_arms_failing_is_said():
    class Failing(MadeUp):
        def __call__(self, agents, arms, numbers):
            return np.full(len(arms), np.nan)

    agent = OPPSDS("F2", 50)
    *_, findings = agent.search(0, prior_of("GC"), Failing(), None)
    with pytest.raises(JbrlError, match="no arm to recommend"):
        agent.strategy(findings)


def test_weights_are_searched(monkeypatch):
    """The mean return is greatest where w0 = 2/3 and w2 = -2/3, the centre of a cell of the first
    two cuts.
    """

    noise = np.random.default_rng(0).normal(0, 1, 60_000)

    class Sloping(MadeUp):
        def __call__(self, agents, arms, numbers):
            apart = np.asarray(agents.weights) - np.array([2 / 3, -2 / 3])
            return 5 - (apart**2).sum(1) + noise[np.asarray(numbers)]

    agent = OPPSCS("Q0,Q2", 60_000, 200)
    *_, half = itertools.islice(agent.search(1, prior_of("GC"), Sloping(), None), 100)
    *_, findings = agent.search(1, prior_of("GC"), Sloping(), half)
    *_, whole = agent.search(1, prior_of("GC"), Sloping(), None)
    for name, values in whole.arrays.items():
        np.testing.assert_array_equal(findings.arrays[name], values)
    assert findings.consumed == findings.simulated == 60_000
    strategy, arms = agent.strategy(findings), agent.arms(findings)
    assert abs(strategy.w0 - 2 / 3) < 0.25 and abs(strategy.w2 + 2 / 3) < 0.25 and strategy.w1 == 0
    assert arms["pulls"].sum() == 60_000 and arms["chosen"].sum() == 1
    assert len(set(arms["strategy"])) == len(arms["strategy"])  # a cell and its middle part are one
    text = f"{strategy.w0:.4g} Q0 - {-strategy.w2:.4g} Q2"
    assert arms["strategy"][arms["chosen"]].tolist() == [text]
    monkeypatch.setattr(Sloping, "__call__", lambda self, agents, *_: -agents.weights[:, 0])
    agent = OPPSCS("Q0", 60_000, 200, width=1e-5)
    *_, findings = agent.search(1, prior_of("GC"), Sloping(), None)
    arms = agent.arms(findings)
    assert len(set(arms["strategy"])) == len(arms["strategy"]) > 9
    assert "-6.667e-06 Q0" in arms["strategy"]


@pytest.mark.parametrize(
    ("budget", "draws", "values"),
    [(1, 500, 1), (999, 500, 1), (1500, 500, 3), (4, 1, 4), (24_999, 5000, 4)],
)
def test_a_budget_that_ends_before_the_box_is_split_is_refused(budget, draws, values):
    message = (
        rf"budget = {budget}, draws = {draws}: {values} values? cannot tell .* expected a budget "
        r"of 5 times `draws` or more"
    )
    with pytest.raises(JbrlError, match=message):
        OPPSCS(budget=budget, draws=draws)
    with pytest.raises(JbrlError, match="here: " + message):
        build(OPPSCS, {"budget": budget, "draws": draws}, "here")
    OPPSCS(budget=5 * draws, draws=draws)


@pytest.fixture(scope="module")
def trials():
    """Trials of formulas of one variable on GC."""
    made = Trials(prior_of("GC", DECISIONS), 0.95, KEY, jax.devices()[:1])
    made.compile([formula_policies(FORMULAS)], 10)
    return made


FORMULAS, DECISIONS = formula_set("F2"), 40


@pytest.mark.first_case_quick
def test_pulls_are_those_of_the_twin(trials):
    """Each from its key up: the MDP, the luck, the decisions."""
    arms, numbers = np.arange(len(FORMULAS)), np.arange(len(FORMULAS)) % 3
    returns = trials(formula_policies(FORMULAS), arms, numbers)
    wanted = [
        trial(Twin(problem("GC").mdps, e.tokens), problem("GC").mdps, KEY, a, n, DECISIONS)
        for e, a, n in zip(FORMULAS, arms, numbers, strict=True)
    ]
    assert 0 < np.isnan(wanted).sum() < len(FORMULAS) / 2
    np.testing.assert_array_equal(np.isnan(returns), np.isnan(wanted))
    np.testing.assert_allclose(returns, wanted, rtol=1e-5)


def test_a_pull_is_the_same_in_any_company(trials):
    policies, arms = formula_policies(FORMULAS), np.arange(len(FORMULAS))
    returns = trials(policies, arms, arms)
    repeated = np.tile(arms[::-1], 60)  # many blocks, more than one call, and another lane
    again = trials(jax.tree.map(lambda v: v[repeated], policies), repeated, repeated)
    np.testing.assert_array_equal(again, returns[repeated])


@pytest.mark.slow
def test_it_finds_what_is_good_on_the_prior():
    """Among Q0/Q2 (41 on GC), Q2/Q0 (28) and Q0*Q1/Q1 (undefined at once) in 300 pulls."""
    played = play(OPPSDS("Q2/Q0; Q0/Q1*Q1; Q0/Q2", 300, c=60.0), prior="GC", n_environments=20)
    learned = played.learned
    assert learned.strategy.formula == "Q0/Q2"
    assert learned.arms["discarded"].tolist() == [False, True, False]
    assert learned.consumed == 300 <= learned.simulated
    assert 0 < learned.seconds < played.offline_seconds


@pytest.mark.slow  # a minute: six searches, six programs
@pytest.mark.parametrize(
    ("prior", "test", "published"),
    [
        ("GC", "GC", 42.47),
        ("GDL", "GDL", 3.10),
        ("Grid", "Grid", 7.03),
        ("UGC", "GC", 39.29),
        ("UGDL", "GDL", 2.99),
    ],
)
def test_it_scores_as_published(prior, test, published):
    """F3, 10,000 pulls.

    Both have a standard error: 3 combined ones have a false-alarm rate of 0.3 % for each pair.
    UGrid: docs/opps.md.
    """
    returns = play(OPPSDS("F3", 10_000), prior=prior, test=test).returns
    assert abs(returns.mean() - published) < 3 * np.sqrt(2) * returns.std(ddof=1) / np.sqrt(500)


def test_they_are_found_by_type():
    names = {name for name, entry in AGENTS.items() if isinstance(entry.agent(), OfflineSearch)}
    assert names == {"OPPS-DS", "OPPS-CS", "BeliefPPO", "RL2", "ANN", "DPT", "Look-ahead"}


def test_spaces():
    assert space_of("F3", "signed") == formula_set("F3") and space_of(
        " F3 ", "values"
    ) == formula_set("F3", "values")
    assert [e.rpn for e in space_of("Q0; Q0 Q2 /;", "signed")] == ["Q0", "Q0 Q2 /"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"space": ""}, "an empty space"),
        ({"space": " ; "}, "an empty space"),
        ({"space": "F9"}, "unknown space; expected one of F1, F2"),
        ({"space": "Q0; Q0/Q3"}, "position 4: unknown variable or function 'Q3'"),
        ({"space": "Q0; log(Q1-Q1)"}, "undefined at every point"),
        ({"space": "Q0; Q0"}, "there twice"),
        ({"budget": 0}, "budget = 0: expected an integer from 1"),
        ({"bandit": "UCB2"}, "expected one of 'UCB1'"),
        ({"c": -1.0}, "c = -1.0: expected a number from 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(parameters, message):
    with pytest.raises(JbrlError, match="study: .*" + message):
        check_parameters(OPPSDS, parameters, "study")


def test_defaults_are_accepted():
    for cls in (OPPSDS, OPPSCS):
        assert set(check_parameters(cls, {}, "study")) == {
            field.name for field in dataclasses.fields(cls)
        }
