"""The 468 problems of bsuite: names, groups, settings, what they share, and what is refused."""

import jax
import numpy as np
import pytest

from jbrl.base.bsuite_sweep import SWEEP, TESTING
from jbrl.base.errors import JbrlError
from jbrl.environments.bsuite_tasks import DeepSea
from jbrl.environments.environment import RewardNoise, RewardScale, unwrapped
from jbrl.environments.spec import Episodes, Steps
from jbrl.play.lifetimes import program_of_lifetimes
from jbrl.play.protocol import Protocol
from jbrl.problems.bsuite import BsuiteProblem
from jbrl.problems.lookup import members, problem
from jbrl.problems.recorder import BsuiteLog
from jbrl.study.file import load_study


@pytest.fixture(scope="module")
def everything():
    return {name: problem(f"bsuite/{name}") for name in SWEEP}


def test_every_id_is_a_problem_of_its_own(everything):
    assert len(everything) == 468
    assert len({found.digest for found in everything.values()}) == 468
    assert len({found.stream for found in everything.values()} - {0}) == 468
    for name, found in everything.items():
        experiment = SWEEP[name].experiment
        assert isinstance(found, BsuiteProblem)
        assert (found.short_name, found.id) == (f"bsuite/{name}", name)
        assert found.lifetime == Episodes(experiment.episodes)
        assert found.recorder == BsuiteLog(experiment.columns)


SETTINGS = {
    "bandit/7": {"mapping_seed": 7},
    "bandit_noise/6": {"mapping_seed": 2},
    "cartpole_swingup/19": {"height_threshold": 0.95, "x_reward_threshold": 0.05},
    "deep_sea/20": {"size": 50, "mapping_seed": 42, "stochastic": False},
    "deep_sea_stochastic/0": {"size": 10, "mapping_seed": 42, "stochastic": True},
    "discounting_chain/13": {"mapping_seed": 13},
    "memory_len/22": {"memory_length": 100, "num_bits": 1},
    "memory_size/16": {"memory_length": 2, "num_bits": 40},
    "umbrella_distract/22": {"chain_length": 20, "n_distractor": 100},
    "umbrella_length/22": {"chain_length": 100, "n_distractor": 20},
}


WRAPPERS = {"catch/3": (0, 1), "catch_noise/19": (10, 1), "catch_noise/0": (0.1, 1)}
WRAPPERS["mountain_car_scale/0"] = (0, 0.001)


def test_settings_noise_and_scale_are_those_of_the_sweep(everything):
    for name, settings in SETTINGS.items():
        environment = unwrapped(everything[name].environment)
        for field, value in settings.items():
            np.testing.assert_allclose(getattr(environment, field), value, rtol=1e-6)
    for name, expected in WRAPPERS.items():
        environment = everything[name].environment
        assert isinstance(environment, RewardNoise)
        assert isinstance(environment.environment, RewardScale)
        found = environment.scale, environment.environment.scale
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_one_program_for_each_family_and_size_of_observation(everything):
    from jbrl.agents.scripted import Random

    agent = Random()
    programs, kinds = set(), set()
    for name, found in everything.items():
        programs.add(program_of_lifetimes(agent, Protocol(found, found, 1, 0, found.lifetime)))
        kinds.add((SWEEP[name].experiment.family, found.spec))
    assert len(programs) == len(kinds) == 68


def test_settings_that_are_alike_have_random_numbers_of_their_own(everything):
    keys = [everything[name].key(0) for name in ("cartpole/0", "cartpole/1")]
    assert (jax.random.key_data(keys[0]) != jax.random.key_data(keys[1])).any()
    plain = problem("DeepSea")  # stored results hang on this key
    assert (jax.random.key_data(plain.key(5)) == jax.random.key_data(jax.random.key(5))).all()


def test_groups():
    counts = {"all": 468, "testing": 13, "catch": 20, "memory_len": 23}
    for group, count in (counts | {"tag/noise": 167, "tag/memory": 40}).items():
        names = members(f"bsuite/{group}")
        assert len(set(names)) == len(names) == count
        assert {name.removeprefix("bsuite/") for name in names} <= set(SWEEP)


def test_names_that_are_no_groups_stand_for_themselves():
    assert members("GC") == ("GC",)
    assert members("some/where.json") == ("some/where.json",)
    assert members("bsuite/catch/3") == ("bsuite/catch/3",)
    assert members("bsuite/testing") == tuple(f"bsuite/{name}" for name in TESTING)
    assert members("bsuite/mnist(wrap=false)")[2] == "bsuite/mnist/2(wrap=false)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bsuite/catc/0", "unknown experiment 'catc'; did you mean 'catch'?"),
        ("bsuite/catch/20", "index = 20: expected an integer from 0 to 19"),
        ("bsuite/catch/-1", "index = -1: expected an integer from 0 to 19"),
        ("bsuite/catch", "it stands for 20 problems: expected one, such as catch/0"),
        ("bsuite/all", "it stands for 468 problems"),
        ("bsuite/", "unknown experiment ''"),
        ("bsuite/catch/0(rows=3)", "'rows=3': it takes no parameters"),
        ("bsuite/mnist/0(fraction=0)", "fraction = 0.0: expected a number above 0 up to 1"),
        ("bsuite/mnist/0(wrapped=false)", "unknown parameter 'wrapped'"),
    ],
)
def test_what_is_no_id_is_refused(name, message):
    with pytest.raises(JbrlError) as caught:
        problem(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_logs_need_episodes():
    found = problem("bsuite/catch/0")
    with pytest.raises(JbrlError, match="horizon = 100: expected episodes"):
        found.prior(Steps(100), 0.9)
    with pytest.raises(JbrlError, match="episodes = 1000001: expected 1 to 1000000"):
        found.prior(Episodes(10**6 + 1), 0.9)


def test_deep_sea_of_any_size_keeps_its_name():
    found = problem("DeepSea-stochastic(size=12)").environment
    assert isinstance(found, DeepSea)
    assert bool(found.stochastic)


def study(test, **experiment):
    return {
        "study": {"name": "x", "n_environments": 1},
        "experiments": [{"name": "mine", "test": test, **experiment}],
        "agents": [{"algorithm": "Random", "experiments": ["mine"]}],
    }


def test_a_study_may_name_a_group():
    units = load_study(study("bsuite/catch", episodes=3)).units
    assert [unit.experiment for unit in units] == [f"mine/catch/{i}" for i in range(20)]
    assert units[4].test == "bsuite/catch/4"
    assert len({unit.id for unit in units}) == 20
    assert {unit.protocol.lifetime for unit in units} == {Episodes(3)}
    assert units[0].rules["criterion"] == "mean return per episode"


def test_a_study_says_where_a_name_is_wrong():
    with pytest.raises(
        JbrlError, match=r"\[\[experiments\]\] 1 \(mine\): test: .*unknown experiment 'catc'"
    ):
        load_study(study("bsuite/catc"))
