"""Scripted policies: the returns that are known of them; and Random, without a Dirichlet prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.scripted import LARGEST, POLICIES, Random, Scripted, View
from jbrl.base.errors import JbrlError
from jbrl.environments.bsuite_cartpole import BsuiteCartPoleSwingup
from jbrl.environments.images import ImageBandit
from jbrl.environments.spec import Episodes
from jbrl.environments.walks import Chain
from jbrl.play.play import play
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import check_requirements
from tests.reference.trajectories import KEY

# Problem, episodes, least mean return of every lifetime.
KNOWN = [
    ("bsuite/bandit/5", 30, 1.0),
    ("bsuite/mnist/0", 30, 1.0),
    ("bsuite/catch/0", 30, 1.0),
    ("bsuite/deep_sea/0", 30, 0.99),
    ("bsuite/discounting_chain/3", 3, 1.1),
    ("bsuite/memory_len/4", 30, 1.0),
    ("bsuite/memory_size/6", 30, 1.0),
    ("bsuite/mountain_car/0", 3, -130.0),
    ("bsuite/cartpole/0", 2, 1001.0),
    ("bsuite/cartpole_swingup/10", 2, 820.0),
]


@pytest.mark.first_case_quick
@pytest.mark.parametrize(("name", "episodes", "least"), KNOWN)
def test_returns_are_those_that_are_known(name, episodes, least):
    played = play(Scripted(), test=name, n_environments=4, episodes=episodes)
    assert (played.returns >= least - 1e-5).all()
    if least in (1.0, 1.1, 0.99, 1001.0):  # the best possible
        np.testing.assert_allclose(played.returns, least, rtol=1e-5)


def test_the_umbrella_is_always_right():
    """Rewards before the last are noise, so regret says more than the return."""
    played = play(Scripted(), test="bsuite/umbrella_length/4", n_environments=4, episodes=30)
    assert np.nanmax(played.metrics["log_total_regret"]) == 0


@pytest.mark.slow
def test_noise_and_scale_do_not_disturb_it():
    played = play(Scripted(), test="bsuite/catch_noise/19", n_environments=2, episodes=30)
    assert np.nanmax(played.metrics["log_total_regret"]) == 0


def test_a_pole_that_hangs_is_pushed_by_its_movement_unless_it_rests():
    """To the left where it moves to the left with too little energy, anywhere where it rests."""
    for speed, action in ((0.0, 2), (0.06, 2), (1.0, 2), (-1.0, 0)):
        seen = jnp.array([0, 0, 0, -1, speed, 0, 0, 0], jnp.float32)
        found = POLICIES[BsuiteCartPoleSwingup](View(BsuiteCartPoleSwingup(), seen, seen))
        assert found == action, speed


def test_random_needs_nothing_but_actions():
    agent, prior = Random(), problem("Catch").prior(Episodes(3), 1.0)
    check_requirements(agent, "Random", prior, "Catch")
    state, observation = agent.reset(KEY, agent.train(KEY, prior)), jnp.zeros((10, 5))
    keys = jax.random.split(KEY, 100)
    actions = jax.jit(jax.vmap(lambda key: agent.act(key, state, observation)[0]))(keys)
    assert actions.dtype == jnp.int32 and set(np.asarray(actions).tolist()) == {0, 1, 2}


def test_other_environments_are_refused():
    with pytest.raises(JbrlError, match="Scripted has no policy for Chain: expected Bandit, "):
        Scripted().reveal(None, Chain())
    many = ImageBandit(
        pixels=np.zeros((LARGEST, 1, 2), np.uint8), labels=np.zeros(LARGEST, np.uint8)
    )
    with pytest.raises(JbrlError, match="for example by a smaller fraction"):
        Scripted().reveal(None, many)
    with pytest.raises(JbrlError, match="needs an environment with episodes"):
        play(Scripted(), test="GC")
