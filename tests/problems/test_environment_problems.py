"""Problems made of one environment: names, settings, environments of the user's own."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Episodes, Steps
from jbrl.environments.walks import Chain
from jbrl.problems import lookup
from jbrl.problems.lookup import problem
from jbrl.problems.prior import EnvironmentPrior
from jbrl.problems.problem import EnvironmentProblem, identity
from jbrl.problems.recorder import EpisodeMean, scores_of

NAMES = [
    ("Chain", "Chain", "Chain"),
    ("Chain-50s", "Chain-50s", "Chain of 50 states, stochastic"),
    ("Gridworld-10d", "Gridworld-10d", "Gridworld of 10 x 10 cells, deterministic"),
    ("MountainCar", "MountainCar", "Mountain car"),
    (" MountainCar ( random_start = true , ) ", "MountainCar(random_start=true)", "Mountain car"),
    ("MountainCar(force=1e-3)", "MountainCar", "Mountain car"),
    ("Chain(last_reward=-1)", "Chain(last_reward=-1.0)", "Chain"),
    ("Gridworld(size=10, stochastic=true)", "Gridworld(size=10,stochastic=true)", "Gridworld"),
    ("MountainCar(spread=0, force=2e-3)", "MountainCar(force=0.002,spread=0.0)", "Mountain car"),
    ("MountainCar(max_steps=1_000)", "MountainCar(max_steps=1000)", "Mountain car"),
    ("DeepSea(size=20)", "DeepSea(size=20)", "Deep sea"),
    ("DeepSea(stochastic=true,size=12)", "DeepSea(size=12,stochastic=true)", "Deep sea"),
    ("DeepSea-stochastic(size=12)", "DeepSea-stochastic(size=12)", "Deep sea, stochastic"),
]


@pytest.mark.parametrize(("name", "short_name", "title"), NAMES)
def test_names_with_settings(name, short_name, title):
    found = problem(name)
    assert isinstance(found, EnvironmentProblem)
    assert (found.short_name, found.name, found.recorder) == (short_name, title, EpisodeMean())
    assert found.lifetime == Episodes(10_000 if title.startswith("Deep sea") else 100)
    assert problem(short_name) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Chain-10d", "Chain"),
        ("Chain-50s", "Chain(n_states=50,stochastic=true)"),
        ("Gridworld-5d", "Gridworld"),
        ("Gridworld-10s", "Gridworld(size=10,stochastic=true)"),
        ("DeepSea-stochastic(size=30)", "DeepSea(size=30,stochastic=true)"),
    ],
)
def test_two_names_of_one_environment_have_one_digest(one, other):
    assert problem(one).digest == problem(other).digest


BAD = {
    "MountainCar(random_start)": "'MountainCar': 'random_start' is not written parameter=value",
    "MountainCar(random_star=true)": "parameter 'random_star'; did you mean 'random_start'",
    "MountainCar(random_start=True)": "True: expected a number, true, false or a string in quotes",
    "MountainCar(random_start=1)": "random_start = 1: expected true or false",
    "MountainCar(force='strong')": "force = 'strong': expected a number from 0 up to 1",
    "MountainCar(force=)": "force = : expected a number",
    "Chain(last_reward=1)": "last_reward = 1.0: expected a number from -1 up to 0",
    "Gridworld(perpendicular=1)": "perpendicular = 1: expected true or false",
    "MountainCar(force=-1)": "force = -1.0: expected a number from 0 up to 1",
    "MountainCar(force=nan)": "force = nan: expected a number from 0 up to 1",
    "MountainCar(force=[1])": "force = [1]: expected a number",
    "MountainCar(max_steps=0)": "max_steps = 0: expected an integer from 1 up to 100000",
    "MountainCar(max_steps=10.5)": "max_steps = 10.5: expected an integer",
    "MountainCar(force=1e-3, force=2e-3)": "force is given twice",
    "DeepSea(mapping=1)": "unknown parameter 'mapping'",
    "DeepSea(size=1)": "size = 1: expected an integer from 2",
    "uniform(Chain)": "uniform(Chain): expected a Dirichlet distribution over finite MDPs, for",
    "uniform(DeepSea(size=12))": "uniform(DeepSea(size=12)): expected a Dirichlet distribution",
}


@pytest.mark.parametrize(("name", "message"), BAD.items())
def test_bad_settings_are_refused(name, message):
    with pytest.raises(JbrlError) as caught:
        problem(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_may_hold_commas_in_quotes():
    assert lookup._items("""a = "x, y", b = 'z,' , c=1""", "here") == {
        "a": '"x, y"',
        "b": "'z,'",
        "c": "1",
    }


def test_titles_are_names_in_words():
    titles = {"DeepSea": "Deep sea", "mine:MyOwnThing2D": "My own thing2 D", "maze": "Maze"}
    titles["CartPoleXY"] = "Cart pole XY"
    assert {name: lookup._title(name) for name in titles} == titles


def test_prior_is_the_environment_itself_with_its_lifetime():
    found = problem("Chain-10s")
    for lifetime in (Episodes(3), Steps(50)):
        prior = found.prior(lifetime, 0.9)
        assert isinstance(prior, EnvironmentPrior)
        assert (prior.lifetime, prior.spec) == (lifetime, found.spec)
        assert float(prior.discount) == 1  # returns are not discounted
    assert EnvironmentPrior(found.environment, jnp.float32(1)).lifetime == Episodes(100)
    slips = {float(found.sample(jax.random.key(0), np.int32(i)).slip) for i in range(4)}
    assert len(slips) == 4
    assert all(0 <= slip <= 0.25 for slip in slips)


def test_environments_of_problems_hold_arrays():
    for leaf in jax.tree.leaves(problem("DeepSea(size=12)").environment):
        assert isinstance(leaf, np.ndarray)


def test_identity_holds_every_field():
    plain, other = Chain(5), Chain(5, slip=np.float32(0.5))
    assert identity(plain, "Chain") == {
        "environment": "Chain",
        "version": 1,
        "settings": {"n_states": 5, "slip": 0.0, "stochastic": False},
    }
    assert identity(other, "Chain") != identity(plain, "Chain")
    assert identity(other, "Chain") != identity(Chain(5, slip=np.float32(0.25)), "Chain")
    assert identity(plain)["environment"] == "Chain"


def test_a_late_setting_with_its_default_is_not_part_of_the_identity():
    plain, paper = (identity(Chain(5, last_reward=r), "Chain") for r in (0.0, -1.0))
    assert "last_reward" not in plain["settings"]
    assert paper["settings"] == {**plain["settings"], "last_reward": -1.0}
    assert problem("Chain(last_reward=0)").digest == problem("Chain-10d").digest
    made = [EnvironmentProblem("c", "c", environment=Chain(last_reward=r)) for r in (0.0, -1.0)]
    assert made[0].digest != made[1].digest


def test_late_settings_leave_digests_as_they_were():
    digests = {
        "Chain-10d": "9c11d1d5f26736de",
        "Chain-10s": "7d59e4bd3ce31539",
        "Chain-50d": "e5276f098afe178e",
        "Chain-50s": "955516bcdcfc29c5",
        "Gridworld-5d": "e4e520240a4d0077",
        "Gridworld-5s": "787138da2f2b8bfd",
        "Gridworld-10d": "658a9e2f611198fa",
        "Gridworld-10s": "f845ad9ad5209404",
    }
    assert {name: problem(name).digest[:16] for name in digests} == digests


# An environment of one's own ----------------------------------------------------------------------

COIN = '''
"""A coin."""

import dataclasses

import jax.numpy as jnp

from jbrl.environments.environment import Environment, Step, register_environment
from jbrl.environments.spec import Discrete, Episodes, Spec
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.mdp import sampling
from jbrl.base.parameters import parameter


@register_environment("NAME")
class Coin(Environment):
    """Guess the side of a coin. Once per episode."""

    lifetime = Episodes(7)
    heads: float = parameter(0.5, "probability of heads", low=0, high=1)
    label: str = parameter("a", "anything")

    def __post_init__(self):
        if self.label == "refused":
            raise JbrlError("label = 'refused': expected another one")
        if self.label == "broken":
            raise KeyError("broken")

    @property
    def spec(self):
        return Spec(Discrete(1), Discrete(2))

    def reset(self, key):
        return jnp.int32(0), jnp.int32(0)

    def step(self, key, state, action):
        won = (sampling.uniforms(key)[0] < self.heads) == (action == 1)
        return state, Step(state, won.astype(jnp.float32), jnp.bool_(True), jnp.bool_(False))


class Plain(Coin):
    pass


class NoCoin:
    pass
'''


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module of this name into a folder that only this test imports from."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    written = []

    def to_file(module, text):
        written.append(module)
        (tmp_path / f"{module}.py").write_text(text.replace("NAME", module))
        return tmp_path

    yield to_file
    for module in written:
        sys.modules.pop(module, None)


def test_environment_of_ones_own(write):
    folder = write("coin_sound", COIN)
    found = problem("coin_sound:Coin(heads=0.25,label='b, c')", folder)
    assert found.short_name == 'coin_sound:Coin(heads=0.25,label="b, c")'
    assert (found.name, found.lifetime, found.description) == (
        "Coin",
        Episodes(7),
        "Guess the side of a coin. Once per episode.",
    )
    assert float(found.environment.heads) == 0.25
    assert (found.identity["environment"], len(found.identity["source"])) == ("coin_sound:Coin", 64)
    assert problem(found.short_name, folder) == found
    assert problem("coin_sound:Coin", folder).short_name == "coin_sound:Coin"


def test_problems_made_in_python_have_digests_of_their_own():
    found = {
        EnvironmentProblem("mine", "mine", environment=Chain(n_states=n)).digest for n in (10, 11)
    }
    assert len(found) == 2


def test_source_of_ones_own_is_part_of_the_digest(write):
    one = problem("coin_one:Coin", write("coin_one", COIN))
    other = problem("coin_two:Coin", write("coin_two", COIN + "# other\n"))
    assert one.identity["source"] != other.identity["source"]
    assert one.digest != other.digest


FAULTS = {
    "coin_bad:Cion": "'coin_bad' has no environment called 'Cion'; did you mean 'Coin'",
    "coin_bad:NoCoin": "has no environment called 'NoCoin'",
    "coin_bad:Plain": 'is not registered: write @register_environment("Plain") above the class',
    "coin_bad:Coin(heads=2)": "'coin_bad:Coin': heads = 2.0: expected a number from 0 up to 1",
    "coin_bad:Coin(tails=2)": "unknown parameter 'tails'",
    "coin_bad:Coin(label='refused')": "(label=\"refused\")': label = 'refused': expected another",
    "coin_bad:Coin(label='broken')": "'coin_bad:Coin(label=\"broken\")': KeyError: 'broken'",
    "no_such_module:Coin": "cannot import 'no_such_module'",
}


@pytest.mark.parametrize(("name", "message"), FAULTS.items())
def test_faults_of_ones_own_are_told(name, message, write):
    module = f"coin_bad_{list(FAULTS).index(name)}"  # each is imported once
    folder = write(module, COIN)
    with pytest.raises(JbrlError) as caught:
        problem(name.replace("coin_bad", module), folder)
    assert message.replace("coin_bad", module) in str(caught.value)


WRONG = [
    (
        "= parameter(0.5, ",
        "= dataclasses.field(default=(0.5,)); _ = dict(doc=",
        "a default, a number",
    ),
    (
        'heads", low=0, high=1)',
        'x"); side: str = "b"',
        "'side' = 'b': expected a number or an array",
    ),
    ("jnp.bool_(True)", "jnp.int32(1)", "step returned terminated int32[]: expected a scalar bool"),
    ("Spec(Discrete(1)", "Spec(Discrete(0)", "observation = Discrete(n=0): expected n to be an"),
    ("import sampling", "import no_such_thing", "cannot import"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG, ids=range(5))
def test_contract_is_checked_before_anything_is_compiled(old, new, message, write):
    assert old in COIN
    module = f"coin_wrong_{WRONG.index((old, new, message))}"
    folder = write(module, COIN.replace(old, new))
    with pytest.raises(JbrlError) as caught:
        problem(f"{module}:Coin", folder)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"lifetime": 50}, "lifetime = 50: expected for example jbrl.Episodes"),
        ({"recorder": EpisodeMean}, "expected an instance of a class with @jbrl.record, begin, "),
        ({"recorder": type("Mine", (EpisodeMean,), {})()}, "an instance of a class with @jbrl.rec"),
        ({"recorder": 3}, "recorder = 3: expected an instance of a class"),
        ({"typical_steps": "many"}, "typical_steps: ValueError: could not convert string"),
        ({"typical_steps": float("nan")}, "typical_steps = nan: expected a number above 0"),
    ],
)
def test_other_facts_of_a_problem_are_checked(facts, message):
    typical = facts.pop("typical_steps", 1.0)
    environment = record(type("Mine", (Chain,), {"typical_steps": typical}))()
    with pytest.raises(JbrlError, match=f"^environment 'x': .*{message}"):
        EnvironmentProblem("x", "x", environment, **facts)


def test_a_recorder_returns_a_score_for_each_lifetime():
    one = record(type("One", (EpisodeMean,), {"scores": lambda self, state: 1.0}))()
    with pytest.raises(JbrlError, match=r"One.scores .* shape \(\): expected \(3,\)"):
        scores_of(one, None, 3)
