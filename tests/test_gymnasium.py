"""Problems as environments of Gymnasium: its own checks, lanes as single environments, modes of
resets, and a learner of another package.
"""

import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest

from jbrl.base.errors import JbrlError
from jbrl.environments.environment import ENVIRONMENTS
from jbrl.problems.problem import PROBLEMS

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402
from gymnasium.vector import AutoresetMode  # noqa: E402

import jbrl.gymnasium  # noqa: E402

UNBOUNDED = r"A Box observation space (minimum|maximum) value is -?infinity"
# one of each family: the others differ in values
FAMILIES = sorted({*ENVIRONMENTS, *PROBLEMS} - {"Chain-50s", "Gridworld-10s"})
# one of each kind of observation: a state of an MDP, a state, a state among many, numbers, an image
QUICK = {"GC", "Chain", "DeepSea", "MountainCar", "ImageBandit"}
SETTINGS = {"DeepSea": "DeepSea(size=4)", "UmbrellaChain": "UmbrellaChain(n_distractor=2)"}


def checked(env):
    with warnings.catch_warnings():
        # of gymnasium's logger, which colours what it says
        warnings.filterwarnings("ignore", message=rf".*{UNBOUNDED}")
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES]
)
def test_every_family_passes_the_check_of_gymnasium(name):
    checked(jbrl.gymnasium.make(SETTINGS.get(name, name), max_steps=30))


def test_gymnasium_makes_them_by_its_own_register():
    env = gymnasium.make(jbrl.gymnasium.ID, problem="DeepSea(size=4)", seed=2)
    checked(env.unwrapped)
    envs = gymnasium.make_vec(jbrl.gymnasium.ID, num_envs=3, problem="DeepSea(size=4)")
    assert envs.reset(seed=0)[0].shape == (3, 16)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def played(env, actions, seed):
    """Observations, rewards and ends of one lane, as a vector in mode `NEXT_STEP` gives them."""
    found, over = [(np.asarray(env.reset(seed=seed)[0]), 0.0, False, False)], False
    for action in actions:
        found.append((env.reset()[0], 0.0, False, False) if over else env.step(action)[:4])
        over = found[-1][2] or found[-1][3]
    return found


@pytest.mark.slow
@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", ["GC", "Catch"])
def test_lanes_are_environments_and_physics_of_their_own(name):
    """The first episode of each lane is that of a single environment with its index and seed; in
    GC the transitions differ, in Catch the first column of the ball does.
    """
    envs = jbrl.gymnasium.make_vec(name, 3, indices=[4, 0, 9], seed=1, max_steps=12)
    first, _ = envs.reset(seed=[11, 12, 13])
    actions = np.random.default_rng(0).integers(0, 3, (10, 3))
    rows = [envs.step(a)[:4] for a in actions]
    for lane, (index, seed) in enumerate([(4, 11), (0, 12), (9, 13)]):
        env = jbrl.gymnasium.make(name, index=index, seed=1, max_steps=12)
        alone = played(env, actions[:, lane], seed)
        np.testing.assert_array_equal(first[lane], alone[0][0])
        for row, (observation, reward, terminated, truncated) in zip(rows, alone[1:], strict=True):
            np.testing.assert_array_equal(row[0][lane], observation)
            assert (row[1][lane], row[2][lane], row[3][lane]) == (reward, terminated, truncated)
            if terminated or truncated:
                break


def test_the_next_step_starts_the_next_episode():
    envs = jbrl.gymnasium.make_vec("DeepSea(size=2)", 2)
    first, _ = envs.reset(seed=0)
    right = np.zeros(2, int)
    _, _, terminated, _, info = envs.step(right)
    assert not terminated.any()
    last, _, terminated, _, _ = envs.step(right)
    assert terminated.all()
    observation, reward, terminated, _, info = envs.step(right)
    np.testing.assert_array_equal(observation, first)
    assert not np.array_equal(last, first)
    assert not reward.any() and not terminated.any() and set(info) >= {"_total_bad_episodes"}


def test_the_same_step_starts_it_and_keeps_the_last_observation():
    envs = jbrl.gymnasium.make_vec("DeepSea(size=2)", 2, autoreset_mode="SameStep")
    first, _ = envs.reset(seed=0)
    envs.step(np.zeros(2, int))
    observation, _, terminated, _, info = envs.step(np.zeros(2, int))
    assert terminated.all() and info["_final_obs"].all()
    np.testing.assert_array_equal(observation, first)
    assert not np.array_equal(info["final_obs"], first)
    assert info["final_info"]["total_bad_episodes"].shape == (2,)
    info["_total_bad_episodes"][:] = False
    assert info["_denoised_return"].all(), "each mask is its own"


def test_without_automatic_resets_a_mask_resets_lanes():
    """What is reset is a single environment of the same seed."""
    envs = jbrl.gymnasium.make_vec("GC", 2, max_steps=1, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    observation, _, _, truncated, _ = envs.step(np.zeros(2, int))
    assert truncated.all()
    with pytest.raises(JbrlError, match="lane 0 has ended"):
        envs.step(np.zeros(2, int))
    after, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert after[1] == observation[1]
    with pytest.raises(JbrlError, match="lane 1 has ended"):
        envs.step(np.zeros(2, int))
    envs.reset(seed=[0, 1], options={"reset_mask": np.array([False, True])})
    alone = jbrl.gymnasium.make("GC", index=1, max_steps=1)
    alone.reset(seed=1)
    assert envs.step(np.zeros(2, int))[0][1] == alone.step(0)[0]


@pytest.mark.parametrize("seed", [None, 5])
def test_a_mask_leaves_the_random_numbers_of_other_lanes(seed):
    def states(*resets):
        envs = jbrl.gymnasium.make_vec("GC", 2, autoreset_mode=AutoresetMode.DISABLED)
        envs.reset(seed=0)
        for step in range(12):
            if step in resets:
                envs.reset(seed=seed, options={"reset_mask": np.array([True, False])})
            yield envs.step(np.zeros(2, int))[0][1]

    assert list(states()) == list(states(1, 5))


def test_bad_use_is_refused_in_a_sentence():
    env = jbrl.gymnasium.make("GC")
    with pytest.raises(JbrlError, match="expected reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(JbrlError, match="action = 3: expected an integer from 0 to 2"):
        env.step(3)
    short = jbrl.gymnasium.make("GC", max_steps=1)
    for _ in range(2):
        short.reset(seed=0)
        assert short.step(0)[3]
        with pytest.raises(JbrlError, match="the episode has ended: expected reset"):
            short.step(0)
    envs = jbrl.gymnasium.make_vec("GC", 2)
    envs.reset(seed=0)
    with pytest.raises(JbrlError, match="expected 2 integers from 0 to 2"):
        envs.step(np.array([0, 3]))
    for options in ({"autoreset_mode": "Never"}, {"indices": [1]}, {"render_mode": "human"}):
        with pytest.raises(JbrlError, match=next(iter(options))):
            jbrl.gymnasium.make_vec("GC", 2, **options)
    with pytest.raises(JbrlError, match="index = -1"):
        env.reset(options={"index": -1})
    for made in (env, envs):
        with pytest.raises(JbrlError, match="options = 3: expected None or a mapping"):
            made.reset(options=3)
        made.reset(options={"low": -0.1})  # of another environment
    for seed in (1.5, [1], "12"):
        with pytest.raises(JbrlError, match=r"seed = .*: expected None, an integer, or num_envs"):
            envs.reset(seed=seed)
    envs.reset(seed=np.array([1, 2]))
    with pytest.raises(JbrlError, match="indices = 3: expected a list of integers"):
        jbrl.gymnasium.make_vec("GC", 2, indices=3)


def test_a_missing_package_is_named():
    code = "import sys; sys.modules['gymnasium'] = None; import jbrl, jbrl.gymnasium"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "JbrlError: jbrl.gymnasium: the package gymnasium is not installed" in ran.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_learner_of_another_package_learns():
    """DQN of skrl, 2,400 steps of DeepSea(size=4), whose best return is 0.99; a policy that chance
    chooses gets it once in 16 times.
    """
    pytest.importorskip("skrl.agents.jax.dqn")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        returns = returns_of_dqn()
    np.testing.assert_allclose(returns, 0.99, atol=1e-4)


def returns_of_dqn():
    """Return of each lane in one greedy episode."""
    import flax.linen as nn
    from skrl.agents.jax.dqn import DQN, DQN_CFG
    from skrl.envs.wrappers.jax import wrap_env
    from skrl.memories.jax import RandomMemory
    from skrl.models.jax import DeterministicMixin, Model
    from skrl.trainers.jax import SequentialTrainer
    from skrl.utils import set_seed

    class Values(DeterministicMixin, Model):
        def __init__(self, device, **spaces):
            Model.__init__(self, device=device, **spaces)
            DeterministicMixin.__init__(self)

        @nn.compact
        def __call__(self, inputs, role):
            return nn.Dense(self.num_actions)(inputs["observations"]), {}

    set_seed(1)
    envs = jbrl.gymnasium.make_vec("DeepSea(size=4)", 4)
    env = wrap_env(envs, verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    models = {role: Values(env.device, **spaces) for role in ("q_network", "target_q_network")}
    for role, model in models.items():
        model.init_state_dict(role=role)
    rules = DQN_CFG(random_timesteps=500, learning_starts=32, learning_rate=0.03, polyak=0.1)
    rules.experiment.write_interval = rules.experiment.checkpoint_interval = 0
    memory = RandomMemory(memory_size=600, num_envs=4, device=env.device)
    agent = DQN(models=models, memory=memory, device=env.device, cfg=rules, **spaces)
    trained = {"timesteps": 600, "headless": True, "disable_progressbar": True}
    trained |= {"close_environment_at_exit": False}
    SequentialTrainer(env=env, agents=agent, cfg=trained).train()
    (observations, _), returns = envs.reset(seed=5), np.zeros(4)
    for _ in range(4):
        values, _ = models["q_network"].act({"observations": observations}, role="q_network")
        observations, rewards, *_ = envs.step(np.asarray(values).argmax(-1))
        returns += rewards
    return returns
