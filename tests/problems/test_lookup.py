"""Names with parameters, names that are refused, paths; the distributions themselves."""

import dataclasses
from importlib import resources

import numpy as np
import pytest
from scipy.stats import beta

from experiments.wrong_priors import total_variation
from jbrl.base.errors import JbrlError
from jbrl.environments.bsuite_tasks import DeepSea
from jbrl.environments.environment import ENVIRONMENTS, RewardScale
from jbrl.play.play import resolve_problem
from jbrl.problems.families import wrong
from jbrl.problems.json_format import read_json, write_json
from jbrl.problems.lookup import listed, problem
from jbrl.problems.problem import PROBLEMS


@pytest.mark.parametrize(
    ("name", "short_name", "n_states", "n_actions"),
    [
        ("GC(n_states=8)", "GC(n_states=8)", 8, 3),
        (" GC ( n_actions = 1 , n_states = 5 ) ", "GC(n_actions=1)", 5, 1),
        ("GC()", "GC", 5, 3),
        ("GDL(length=1)", "GDL(length=1)", 3, 2),
        ("Grid(rows=4,columns=6)", "Grid(rows=4,columns=6)", 24, 4),
        ("uniform(GC)", "uniform(GC)", 5, 3),
        ("uniform(Grid(rows=2, columns=3))", "uniform(Grid(rows=2,columns=3))", 6, 4),
        ("UGrid(rows=2,columns=3)", "UGrid(rows=2,columns=3)", 6, 4),
        ("Bandit(prior='2 1, 1; 1 1 1', states=2)", 'Bandit(prior="2 1, 1; 1 1 1",states=2)', 8, 2),
        ('Bandit(arms=3,prior="1 1")', "Bandit(arms=3)", 3, 3),
        ("wrong(GC)", 'wrong(GC,kind="uniform",degree=0)', 5, 3),
        (
            "wrong( Grid(rows=2, columns=3), kind='scaled', degree=-1e1)",
            'wrong(Grid(rows=2,columns=3),kind="scaled",degree=-10)',
            *(6, 4),
        ),
        (
            """wrong(GC,kind="family",degree=.5,towards='Bandit(arms=3,prior="1 1 1 1")')""",
            """wrong(GC,kind="family",degree=0.5,towards='Bandit(arms=3,prior="1 1 1 1")')""",
            *(5, 3),
        ),
    ],
)
def test_names_with_parameters(name, short_name, n_states, n_actions):
    found = problem(name)
    assert (found.short_name, found.mdps.n_states) == (short_name, n_states)
    assert found.mdps.n_actions == n_actions
    assert problem(short_name).digest == found.digest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("GX", r"unknown problem 'GX'; did you mean 'GC'\? \(known: .*Chain, Chain-10d, .*, GC, "),
        ("deepsea", "unknown problem 'deepsea'; did you mean 'DeepSea'"),
        ("Gridwrold-5s", "did you mean 'Gridworld-5s'"),
        ("gdl", r"did you mean 'GDL'\?"),
        ("unifrom(GC)", r"unknown problem 'unifrom\(GC\)'; did you mean 'uniform'"),
        ("", "unknown problem ''"),
        ("GC(n_states=5", "unknown problem"),
        ("GC)(", "unknown problem"),
        ("GC(5)", r"'5' is not written parameter=value: expected GC\(n_states=5, n_actions=3\)"),
        ("GC(n_states=4,n_states=5)", "n_states is given twice"),
        ("Chain-10d(n_states=5)", "unknown parameter 'n_states': it takes no parameters"),
        (
            "DeepSea-stochastic(size=1)",
            r"\(size=1\)': size = 1: expected an integer from 2 to 1000",
        ),
        ("GC(n_state=3)", "unknown parameter 'n_state'; did you mean 'n_states'"),
        ("GC(n_states=many)", "n_states = many: expected an integer"),
        ("GC(n_states=2.5)", "expected an integer"),
        ("GC(n_states=1)", "n_states = 1: expected an integer from 2"),
        ("GC(n_actions=0)", "n_actions = 0: expected an integer from 1"),
        ("ShortestPath(n_states=1)", "n_states = 1: expected an integer from 2"),
        ("BernoulliBandit(arms=1)", "arms = 1: expected an integer from 2"),
        ("BernoulliBandit(losses=0)", "losses = 0: expected an integer from 1"),
        (f"BernoulliBandit(wins=1{'0' * 43})", "expected an integer of at most nine digits"),
        ('Bandit(prior="1e-50,1")', r"'1e-50,1': expected .* \(1e-30 to 1e\+30\)"),
        ('Bandit(prior="1e300,1")', "prior = '1e300,1': expected two to ten"),
        ("Bandit(prior=1 2)", "prior = 1 2: expected a text in quotes"),
        ('Bandit(prior="1")', "prior = '1': expected two to ten positive concentrations"),
        ('Bandit(prior="1 0")', "prior = '1 0': expected two to ten positive concentrations"),
        ('Bandit(prior="1 nan")', "prior = '1 nan': expected two to ten positive"),
        ('Bandit(arms=3,prior="1 2; 2 1")', "for each of 3 arms"),
        ('Bandit(prior="one two")', "prior = 'one two': expected two to ten"),
        ("Bandit(states=5)", "states = 5: expected an integer from 1 to 4"),
        ("ShortestPath(n_actions=0)", "n_actions = 0: expected an integer from 1"),
        ("GC(n_states=999999999)", "too large"),
        ("GDL(length=0)", "length = 0: expected an integer from 1"),
        ("Grid(rows=1,columns=2)", "rows = 1, columns = 2: expected a cell between start and goal"),
        ("Grid(rows=-3,columns=20)", "rows = -3"),
        ("uniform", "expected the name of a problem in parentheses"),
        ("uniform()", "expected the name of a problem in parentheses"),
        ("uniform(GX)", "unknown problem 'GX'"),
        ("wrong(degree=1)", "expected the name of a problem in parentheses"),
        ("uniform(GC,degree=1)", "unknown parameter 'degree': it takes no parameters"),
        ("wrong(DeepSea)", "expected a Dirichlet distribution over finite MDPs"),
        ('wrong(GC,kind="unifrom")', "kind = 'unifrom'; did you mean 'uniform'"),
        ("wrong(GC,degree=1.1)", "degree = 1.1: expected a number from 0 to 1"),
        ("wrong(GC,degree=1e999)", "degree = 1e999: expected a number"),
        ("wrong(GC,degree=1.2.3)", "degree = 1.2.3: expected a number"),
        ('wrong(GC,kind="scaled",degree=-1000)', "expected a number from -999 to 999"),
        (
            'wrong(GC,kind="family",degree=1)',
            "towards is missing: expected a Dirichlet .* of 5 sta",
        ),
        ("wrong(GC,kind='family',towards=\"GDL\")", "towards is 'GDL' .* 5 states and 3 actions"),
        ('wrong(GC,towards="GC")', "towards = 'GC': expected none where kind is no family"),
        ("nowhere.json", "nowhere.json: cannot be read: No such file or directory"),
    ],
)
def test_bad_names_are_refused(name, message, tmp_path):
    with pytest.raises(JbrlError, match=message):
        problem(name, tmp_path)


@pytest.mark.parametrize(
    ("of", "given", "message"),
    [
        ("GC", {}, r"wrong\(GC\): expected a Dirichlet distribution"),
        (None, {"degree": "much"}, "degree = 'much': expected a number from 0 to 1"),
        (None, {"degree": 10**400}, "degree = 10*…: expected a number from 0 to 1"),
        (None, {"kind": "family", "towards": "GDL"}, r"towards is 'GDL' \(no problem\): expected"),
    ],
)
def test_bad_arguments_of_wrong_are_refused(of, given, message):
    with pytest.raises(JbrlError, match=message):
        wrong(of or problem("GC"), **given)


def test_paths_are_relative_to_the_base(tmp_path, monkeypatch):
    write_json(problem("GDL"), tmp_path / "mine.JSON")
    assert problem("mine.JSON", tmp_path).digest == problem("GDL").digest
    assert problem("uniform(mine.JSON)", tmp_path).digest == problem("UGDL").digest
    assert problem(str(tmp_path / "mine.JSON")).digest == problem("GDL").digest
    monkeypatch.chdir(tmp_path)
    assert read_json("mine.JSON").digest == problem("GDL").digest


SHIPPED = ("GC", "GDL", "Grid", "UGC", "UGDL", "UGrid")


@pytest.mark.parametrize("name", SHIPPED)
def test_code_makes_what_the_published_files_hold(name):
    made, shipped = (
        problem(name),
        read_json(resources.files("jbrl.problems") / "data" / f"{name}.json"),
    )
    assert (made.name, made.short_name) == (shipped.name, shipped.short_name)
    np.testing.assert_array_equal(made.mdps.concentrations, shipped.mdps.concentrations)
    np.testing.assert_array_equal(made.mdps.rewards, shipped.mdps.rewards)
    assert int(made.mdps.initial_state) == int(shipped.mdps.initial_state) == 0


@pytest.mark.parametrize("name", ["GC", "GDL", "Grid"])
def test_uniform_of_a_problem_is_its_uniform_prior(name):
    assert problem(f"uniform({name})").digest == problem(f"U{name}").digest


@pytest.mark.parametrize("name", ["GC", "GDL", "Grid"])
def test_a_wrong_prior_begins_at_the_right_one_and_ends_at_another(name):
    right = problem(name)
    for kind in ("scaled", "uniform", "support", f'family",towards="{name}'):
        assert problem(f'wrong({name},kind="{kind}",degree=0)').digest == right.digest
    assert problem(f"wrong({name},degree=1)").digest == problem(f"U{name}").digest
    lost = problem(f'wrong({name},kind="support",degree=1)').mdps.concentrations
    assert ((lost > 0).sum(-1) == 1).all()
    np.testing.assert_array_equal(lost.sum(-1), right.mdps.concentrations.sum(-1))


def test_concentrations_of_wrong_priors_by_hand():
    def row(inside):  # of state 1 of GC, whose concentrations are 1 0 1 0 0
        return problem(f"wrong(GC,{inside})").mdps.concentrations[1, 2].tolist()

    assert row('kind="scaled",degree=3') == [4, 0, 4, 0, 0]
    assert row('kind="scaled",degree=-3') == [0.25, 0, 0.25, 0, 0]
    assert row("degree=0.25") == [1, 0.25, 1, 0.25, 0.25]
    assert row('kind="support",degree=0.25') == [1.25, 0, 0.75, 0, 0]
    assert row('kind="family",degree=0.25,towards="UGC"') == [1, 0.25, 1, 0.25, 0.25]


def test_total_variation_of_wrong_priors():
    """One row: Beta(1, 1) and Beta(2, 2) cross where 6x(1 - x) = 1, at (1 ± 1/√3)/2."""
    right, wrong = (problem(f'Bandit(arms=2,prior="{text}; 3 3")') for text in ("1 1", "2 2"))
    exact = beta.cdf((1 + 3**-0.5) / 2, 2, 2) - beta.cdf((1 - 3**-0.5) / 2, 2, 2) - 3**-0.5
    distances = [total_variation(right.mdps, wrong.mdps, 2_000, seed) for seed in range(200)]
    missed = sum(abs(mean - exact) > 3.3 * error for mean, error in distances)
    assert missed <= 3  # 0.2 are expected; more than 3 in fewer than 1 of 10,000 correct programs
    assert total_variation(right.mdps, right.mdps) == (0, 0)
    assert total_variation(right.mdps, problem("uniform(Bandit)").mdps) == (1, 0)


def test_a_list_of_values_names_a_problem_for_each():
    name = 'wrong(GC(n_states=[3, 4]),kind=["uniform","support"],degree=0.1)'
    assert listed(name) == {
        f"{n}/{kind}": f'wrong(GC(n_states={n}),kind="{kind}",degree=0.1)'
        for n in (3, 4)
        for kind in ("uniform", "support")
    }
    with pytest.raises(JbrlError, match="degree = : expected a number"):
        problem(*listed("wrong(GC,degree=[])").values())


def test_appendix_differs_in_one_transition():
    printed, shipped = problem("GC-appendix").mdps, problem("GC").mdps
    different = np.argwhere(printed.concentrations != shipped.concentrations)
    np.testing.assert_array_equal(different, [(4, u, 1) for u in range(3)])
    np.testing.assert_array_equal(printed.concentrations[4, 0], [1, 1, 0, 0, 1])
    np.testing.assert_array_equal(printed.rewards, shipped.rewards)


def test_a_shortest_path_of_three_states():
    mdps = problem("ShortestPath(n_states=3,n_actions=1)").mdps
    np.testing.assert_allclose(
        mdps.concentrations[:, 0], [[1 / 3] * 3, [1 / 3] * 3, [0, 0, 1]], rtol=1e-7
    )
    np.testing.assert_array_equal(mdps.rewards[:, 0], [[-1] * 3, [-1] * 3, [0] * 3])
    assert int(mdps.initial_state) == 0


def test_a_longer_chain():
    mdps = problem("GC(n_states=7,n_actions=2)").mdps
    for x in range(7):
        np.testing.assert_array_equal(np.flatnonzero(mdps.concentrations[x, 1]), [0, min(x + 1, 6)])
    assert (mdps.rewards[3, 0, 0], mdps.rewards[3, 0, 6], mdps.rewards[3, 0, 4]) == (2, 10, 0)


def test_longer_loops():
    mdps = problem("GDL(length=6)").mdps
    possible = [np.flatnonzero(row).tolist() for row in mdps.concentrations[:, 0]]
    certain, risky = [[x] for x in range(2, 7)], [[0, x] for x in range(8, 13)]
    assert possible == [[1, 7], *certain, [0], *risky, [0]]
    assert np.argwhere(mdps.rewards[:, 0]).tolist() == [[6, 0], [12, 0]]
    assert (mdps.rewards[6, 1, 0], mdps.rewards[12, 1, 0]) == (1, 2)


def test_a_wider_grid():
    rows, columns = 3, 4
    mdps = problem(f"Grid(rows={rows},columns={columns})").mdps
    left, right, up, down = (mdps.concentrations[:, u] for u in range(4))
    assert np.flatnonzero(right[5]).tolist() == [5, 6]
    assert np.flatnonzero(left[5]).tolist() == [4, 5]
    assert np.flatnonzero(up[5]).tolist() == [1, 5]
    assert np.flatnonzero(down[5]).tolist() == [5, 9]
    assert [np.flatnonzero(off[0]).tolist() for off in (left, up)] == [[0], [0]]
    assert np.flatnonzero(right[10]).tolist() == [0, 10]
    assert np.flatnonzero(down[7]).tolist() == [0, 7]
    assert np.argwhere(mdps.rewards).tolist() == [[7, 3, 0], [10, 1, 0]]
    assert not mdps.concentrations[:11, :, 11].any()


def test_transposing_a_grid_exchanges_its_actions():
    wide, tall = problem("Grid(rows=3,columns=4)").mdps, problem("Grid(rows=4,columns=3)").mdps
    states = np.arange(12).reshape(3, 4).T.reshape(-1)  # tall state -> wide state
    actions = [2, 3, 0, 1]
    np.testing.assert_array_equal(
        tall.concentrations, wide.concentrations[states][:, actions][:, :, states]
    )
    np.testing.assert_array_equal(tall.rewards, wide.rewards[states][:, actions][:, :, states])


def test_no_name_is_that_of_a_problem_and_of_an_environment():
    assert not set(PROBLEMS) & set(ENVIRONMENTS)


def test_an_environment_stands_for_its_problem():
    for name in ("DeepSea(size=4)", "CartPole"):
        known = problem(name)
        assert resolve_problem(known.environment).digest == known.digest
    assert resolve_problem(ENVIRONMENTS["Acrobot"].environment).short_name == "Acrobot"


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        (DeepSea(size=4, mapping=np.ones((4, 4), np.int8)), "DeepSea': field 'mapping'"),
        (dataclasses.replace(DeepSea(size=4), mapping_seed=7), "DeepSea': field 'mapping'"),
        (RewardScale(DeepSea(size=4), 2.0), "RewardScale': field 'environment'"),
    ],
)
def test_an_environment_that_its_settings_do_not_tell_is_refused(environment, field):
    with pytest.raises(JbrlError, match=f"{field} does not follow .* jbrl.simulate"):
        resolve_problem(environment)
