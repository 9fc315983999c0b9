"""Environments of Gymnasium as problems: agents that learn from transitions play them, others are
refused in a sentence.
"""

import re

import numpy as np
import pytest

import jbrl
from jbrl.agents.linear.action_values import QLearning
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.play.play import play_episodes
from jbrl.problems.hosted import host_problem

gymnasium = pytest.importorskip("gymnasium")


class Corridor(gymnasium.Env):
    """Five states, counted from 1; action 4 goes right, action 3 left; the end earns 1."""

    observation_space = gymnasium.spaces.Discrete(5, start=1)
    action_space = gymnasium.spaces.Discrete(2, start=3)

    def __init__(self):
        self.seeds = []

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.state = 1
        return self.state, {}

    def step(self, action):
        assert action in (3, 4)
        self.state = max(1, self.state + (1 if action == 4 else -1))
        ended = self.state == 5
        return self.state, float(ended), ended, False, {}


def test_an_agent_learns_in_it():
    played = jbrl.play(QLearning(q0=1.0), test=Corridor(), episodes=40, seed=2, latency=True)
    assert played.returns.tolist() == [1.0] and played.metrics["episodes"].tolist() == [40.0]
    assert played.decisions >= 40 * 4 and played.latency_seconds > 0
    again = jbrl.play(QLearning(q0=1.0), test=Corridor(), episodes=40, seed=2)
    assert again.decisions == played.decisions


def test_a_policy_plays_it_and_is_kept(tmp_path):
    policy = jbrl.policy(QLearning(q0=1.0), Corridor())
    played = policy.play(corridor := Corridor(), episodes=200, seed=1)
    assert corridor.seeds[0] == 1 and set(corridor.seeds[1:]) == {None}
    assert played.returns.tolist() == [1.0] * 200
    assert played.steps[-50:].mean() < played.steps[:5].mean()
    assert len(played.seconds) == played.steps.sum()
    loaded = jbrl.load_policy(policy.save(tmp_path / "policy", decisions=20))
    again = loaded.play(Corridor(), episodes=200, seed=1)
    np.testing.assert_array_equal(again.steps, played.steps)


def test_a_policy_of_a_problem_plays_the_problem_as_an_environment():
    import jbrl.gymnasium

    policy = jbrl.policy("Q-learning", "DeepSea(size=4)")
    played = policy.play(jbrl.gymnasium.make("DeepSea(size=4)"), episodes=3)
    assert played.steps.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("BEB", "BEB needs a Dirichlet prior"),
        ("Optimal", "needs"),
        ("RL2", "RL2 needs a prior to draw environments from: 'Corridor' is stepped on the host"),
    ],
)
def test_agents_that_need_a_prior_are_refused(agent, said):
    for call in (jbrl.play, lambda one, test, **_: jbrl.choose(test, candidates=[one])):
        with pytest.raises(JbrlError, match=said):
            call(agent, test=Corridor(), episodes=1)


def test_what_is_not_accepted_is_said():
    with pytest.raises(JbrlError, match="expected observations"):
        jbrl.policy("Q-learning", Corridor()).play(jbrl_env(3))
    with pytest.raises(JbrlError, match="a vector of environments"):
        jbrl.play("Random", test=gymnasium.make_vec("CartPole-v1", 2), episodes=1)
    for place, named in (("observation_space", "observations"), ("action_space", "actions")):
        many = Corridor()
        setattr(many, place, gymnasium.spaces.Discrete(2**40))
        with pytest.raises(JbrlError, match=rf"'Corridor': {named}: n = .*: expected an integer"):
            jbrl.play("Random", test=many, episodes=1)
    for method, value, names in (
        ("reset", 1, "observation, info"),
        ("step", (1, 0.0, True, {}), "observation, reward, terminated, truncated, info"),
    ):
        old = Corridor()
        setattr(old, method, lambda *_, value=value, **__: value)
        said = rf"^step 1 \(episode 1\): {method} returns .*: expected \({names}\)"
        with pytest.raises(JbrlError, match=said):
            jbrl.policy("Random", Corridor()).play(old)
    with pytest.raises(JbrlError, match="no end after 3 steps"):
        jbrl.policy("Random", Corridor()).play(Corridor(), max_steps=3)


@pytest.mark.parametrize(
    ("method", "returned", "said"),
    [
        ("step", (2, float("nan"), False, False, {}), r"2, step 1 .* 1\): reward = nan: expected"),
        ("step", (6, 0.0, False, False, {}), "observation = 6: expected an integer from 1 to 5"),
        ("reset", (None, {}), "observation = None: expected an integer from 1 to 5"),
    ],
)
def test_a_mistake_is_said_in_the_terms_of_the_environment(method, returned, said):
    env, resets = Corridor(), iter(range(9))
    sound = getattr(env, method)

    def later(*given, **named):
        outcome = sound(*given, **named)
        return returned if method == "reset" or env.lifetime == 2 else outcome

    def counted(reset=env.reset, **named):
        env.lifetime = next(resets)
        return reset(**named)

    env.reset = counted
    setattr(env, method, later)
    with pytest.raises(JbrlError, match=rf"^environment 'Corridor', lifetime .*{said}"):
        jbrl.play("Random", test=env, n_environments=3, episodes=1)


@pytest.mark.parametrize("method", ["step", "reset"])
def test_an_error_of_the_environment_is_told_with_its_place(method):
    class Broken(Hill):
        def step(self, action):
            if method == "step" and self.steps == 2:
                raise KeyError("boom")
            return super().step(action)

        def reset(self, *, seed=None, options=None):
            if method == "reset" and seed is None:
                raise KeyError("boom")
            return super().reset()

    step = {"step": "step 3 .episode 1.", "reset": "step 9 .episode 2."}[method]
    said = rf"{step}: {method}: KeyError: 'boom' \({__file__}, line \d+, in .*Broken.{method}\)$"
    with pytest.raises(JbrlError, match=rf"^environment 'Broken', lifetime 0, {said}"):
        jbrl.play("Random", test=Broken(), episodes=3)
    with pytest.raises(JbrlError, match=f"^{said}"):
        jbrl.policy("Random", Broken()).play(Broken(), episodes=3)


def jbrl_env(n):
    env = Corridor()
    env.observation_space = gymnasium.spaces.Discrete(n)
    return env


class Hill(gymnasium.Env):
    """A point in [0, 1] that two actions push; an episode is of eight steps."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, low=0.0):
        self.observation_space = gymnasium.spaces.Box(low, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.place, self.steps = np.float32([0.5]), 0
        return self.place, {}

    def step(self, action):
        self.place = np.clip(self.place + np.float32(0.2 * action - 0.1), 0, 1)
        self.steps += 1
        return self.place, float(self.place[0]), False, self.steps == 8, {}


class Explosive(Hill):
    """A hill whose second lifetime pays more than a network can learn."""

    def reset(self, *, seed=None, options=None):
        self.pays = 1e38 * (seed == 1) if seed is not None else self.pays
        return super().reset()

    def step(self, action):
        seen, _, *ends = super().step(action)
        return seen, self.pays, *ends


def test_a_lifetime_whose_learning_diverges_fails_alone():
    agent = jbrl.agents.ActorCritic(hidden_width=4, sequence_length=4)
    played = jbrl.play(agent, test=Explosive(), n_environments=3, horizon=20)
    assert np.isnan(played.returns).tolist() == [False, True, False]
    # of 20 decisions, eight each: the third episode is cut off
    np.testing.assert_array_equal(played.metrics["episodes"], [2, np.nan, 2])
    assert re.match(
        r"lifetime 1, step \d+ \(episode \d\): ActorCritic, decision .* diverged", played.failure
    )
    with pytest.raises(JbrlError, match=r"lifetime 0, .* diverged"):
        jbrl.play(agent, test=Explosive(), seed=1, horizon=20)


def test_environments_are_told_apart_by_their_arguments_and_wrappers():
    def content(env):
        return host_problem(env).content

    make, wrappers = gymnasium.make, gymnasium.wrappers
    assert content(Hill()) == content(Hill()) != content(Corridor())
    lakes = [make("FrozenLake-v1", is_slippery=slippery) for slippery in (True, False, True)]
    lakes += [wrappers.TimeLimit(lakes[0], n) for n in (5, 6)]
    lakes += [wrappers.TransformReward(lakes[0], lambda r, n=n: n * r) for n in (1, 2)]
    found = list(map(content, lakes))
    assert found[0] == found[2] and len(set(found)) == 6
    again = wrappers.TransformReward(lakes[0], lakes[5].func)
    assert content(again) != found[5]  # what a function does is not known
    lakes[0].reset(seed=1)
    lakes[0].step(1)
    assert content(lakes[0]) == found[0]
    other = Hill()
    other.slope = 2.0
    assert content(other) != content(Hill())


def test_a_choice_keeps_the_blocks_of_each_environment_apart(tmp_path):
    for end in (0.0, -1.0):
        with pytest.raises(JbrlError, match="by name"):
            jbrl.choose(Hill(end), candidates=["Sarsa-lambda"], out=tmp_path, progress=refuse)
    assert len(list(tmp_path.glob("blocks/*"))) == 2


def refuse(*_):
    raise JbrlError("by name")


def test_linear_agents_know_the_ends_of_observations(tmp_path):
    policy = jbrl.policy("Sarsa-lambda", Hill())
    loaded = jbrl.load_policy(policy.save(tmp_path / "policy", decisions=None))
    assert loaded.measured is None and loaded.player.spec.observation.high == (1.0,)
    played = [one.play(Hill(), episodes=3, seed=1) for one in (policy, loaded)]
    np.testing.assert_array_equal(played[0].returns, played[1].returns)
    with pytest.raises(JbrlError, match="needs an environment whose observations have finite ends"):
        jbrl.policy("Sarsa-lambda", Hill(low=-np.inf))


@pytest.mark.parametrize("order", [2, 5])  # 81 features, and more than one pass takes
def test_a_policy_plays_and_learns_beyond_the_episodes_of_its_lifetime(order):
    import jbrl.gymnasium

    problem = "CartPole(max_steps=40)"
    agent = AGENTS["Sarsa-lambda-s"].agent(dependent_low=order, dependent_high=order)
    lives = [jbrl.policy(agent, problem, episodes=n).start() for n in (1, 6)]
    for life in lives:
        play_episodes(life, jbrl.gymnasium.make(problem), jbrl.Episodes(6), seed=0)
    first, second = (life.arrays() for life in lives)
    assert first.keys() == second.keys() and lives[0].decisions > 40
    for name, found in first.items():
        np.testing.assert_array_equal(found, second[name], err_msg=name)


def test_a_lifetime_can_be_ended():
    def stop(_):
        raise InterruptedError

    life = jbrl.policy("Random", Hill()).start()
    with pytest.raises(InterruptedError):
        play_episodes(life, Hill(), jbrl.Episodes(100), 0, stop)
    assert life.decisions == 1
