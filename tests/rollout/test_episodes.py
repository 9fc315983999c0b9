"""The episode driver, beside a loop that plays one step at a time."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.linear.action_values import QLearning
from jbrl.base.pytree import record, static
from jbrl.environments.environment import Environment, Perturbed, Step, as_arrays, drawn
from jbrl.environments.spec import Box, Discrete, Episodes, Spec, Steps
from jbrl.mdp import sampling
from jbrl.mdp.sampling import stream
from jbrl.problems.lookup import problem
from jbrl.problems.prior import EnvironmentPrior
from jbrl.problems.recorder import EpisodeMean
from jbrl.rollout import episodes
from jbrl.rollout.contract import Agent, Transition
from jbrl.rollout.faults import observe_key, reset_key
from jbrl.rollout.simulate import simulate


@record
class Counter(Agent[Any, tuple]):
    """Acts at random, by what it observes, and counts what it is shown."""

    n_actions: int = static(2)

    def reset(self, key: jax.Array, knowledge: Any) -> tuple:
        return (jnp.int32(0), jnp.int32(0), sampling.uniforms(key)[0])

    def act(self, key: jax.Array, state: tuple, observation: jax.Array) -> tuple[jax.Array, tuple]:
        shown = jnp.atleast_1d(observation).astype(jnp.int32)
        place = jnp.sum(shown * (1 + jnp.arange(shown.size, dtype=jnp.int32)), dtype=jnp.int32)
        drawn = (sampling.uniforms(key)[1] * self.n_actions).astype(jnp.int32)
        return (drawn + place) % self.n_actions, state

    def observe(self, key: jax.Array, state: tuple, transition: Transition) -> tuple:
        seen, ended, own = state
        mixed = (own + sampling.uniforms(key)[0]) % 1
        return (
            seen + 1,
            ended + (transition.terminated | transition.truncated).astype(jnp.int32),
            mixed,
        )


PLAY = jax.jit(episodes.play_lifetime)
PLAY_MANY = jax.jit(jax.vmap(episodes.play_lifetime, in_axes=(None, None, 0)))


def rules_of(name: str, lifetime: Episodes | Steps, seed: int = 0) -> episodes.Rules:
    chosen: Any = problem(name)
    return episodes.Rules(
        Counter(chosen.spec.actions.n),
        chosen.environment,
        EpisodeMean(),
        jax.random.key(seed),
        lifetime,
    )


@jax.jit
def _one_step(
    rules: episodes.Rules, environment: Any, now: tuple, act_key: jax.Array, step_key: jax.Array
) -> tuple:
    """Return the successor of (agent's state, environment's state, observation), and the start
    of another episode.
    """
    agent_state, state, observation = now
    action, agent_state = rules.agent.act(act_key, agent_state, observation)
    state, step = environment.step(step_key, state, action)
    transition = Transition(
        observation, action, step.reward, step.observation, step.terminated, step.truncated
    )
    agent_state = rules.agent.observe(observe_key(act_key), agent_state, transition)
    return (
        (agent_state, state, step.observation),
        step,
        environment.reset(jax.random.fold_in(step_key, 1)),
    )


def played_by_hand(rules: episodes.Rules, index: int) -> tuple[list[float], int, tuple]:
    """Returns of the episodes, decisions, and the agent's state after the last of them: one step
    after the other.
    """
    key, number = rules.key, jnp.int32(index)
    environment = drawn(rules.environment, stream(key, number, "mdp"))
    agent_state = rules.agent.reset(reset_key(stream(key, number, "parameters")), None)
    now = (
        agent_state,
        *environment.reset(jax.random.fold_in(stream(key, number, "environment"), 2**32 - 1)),
    )
    returns, earned, decisions, block = [], 0.0, 0, 0
    while True:
        keys = (
            jax.random.split(jax.random.fold_in(stream(key, number, name), block), episodes.BLOCK)
            for name in ("agent", "environment")
        )
        for act_key, step_key in zip(*keys, strict=True):
            now, step, restarted = _one_step(rules, environment, now, act_key, step_key)
            earned, decisions = earned + float(step.reward), decisions + 1
            if bool(step.terminated) or bool(step.truncated):
                returns.append(earned)
                if len(returns) == rules.lifetime.episodes:
                    return returns, decisions, now[0]
                earned, now = 0.0, (now[0], *restarted)
        block += 1


@pytest.mark.parametrize(
    ("name", "n_episodes"),
    [("Chain-10s", 3), pytest.param("Gridworld-5s", 2, marks=pytest.mark.slow)],
)
def test_a_lifetime_is_that_of_the_loop(name, n_episodes):
    rules = rules_of(name, Episodes(n_episodes, 10_000), seed=5)
    lane = PLAY(rules, None, jnp.int32(3))
    returns, decisions, seen = played_by_hand(rules, 3)
    assert (int(lane.episodes), int(lane.steps), int(lane.fault)) == (n_episodes, decisions, 0)
    score = EpisodeMean().scores(jax.tree.map(lambda v: np.asarray(v)[None], lane.recorder))
    np.testing.assert_allclose(score, np.mean(returns), rtol=1e-6)
    assert [int(v) for v in seen[:2]] == [decisions, n_episodes]


def test_lanes_are_independent_and_differ():
    rules = rules_of("Chain-10s", Episodes(4))
    together = PLAY_MANY(rules, None, jnp.arange(9, dtype=jnp.int32))
    alone = PLAY(rules, None, jnp.int32(7))
    assert int(together.steps[7]) == int(alone.steps)
    assert float(together.recorder.total[7]) == float(alone.recorder.total)
    assert len(set(np.asarray(together.steps).tolist())) > 5
    other = PLAY(rules_of("Chain-10s", Episodes(4), seed=1), None, jnp.int32(7))
    assert int(other.steps) != int(alone.steps)


def test_a_lifetime_of_steps_ends_within_an_episode():
    lane = PLAY(rules_of("Gridworld-5d", Steps(300)), None, jnp.int32(0))
    assert int(lane.steps) == 300
    totals = lane.recorder
    assert float(totals.total + totals.current) == -300.0
    assert int(totals.steps) > 0 or float(totals.current) == 0.0
    score = EpisodeMean().scores(jax.tree.map(lambda v: np.asarray(v)[None], totals))
    assert score == pytest.approx(-300 / (int(totals.episodes) + (int(totals.steps) > 0)))


def test_an_agent_may_play_on_its_prior_while_it_trains():
    """It plays a lifetime in an environment of the prior and knows what it earned."""

    def train(key: jax.Array, prior: EnvironmentPrior) -> jax.Array:
        rules = episodes.Rules(Counter(2), prior.environment, EpisodeMean(), key, prior.lifetime)
        lanes = PLAY_MANY(rules, None, jnp.arange(8, dtype=jnp.int32))
        return lanes.recorder.total / lanes.episodes.astype(jnp.float32)

    prior: Any = problem("Chain-10d").prior(Episodes(2), 0.95)
    means = np.asarray(jax.jit(train)(jax.random.key(2), prior))
    assert means.shape == (8,)
    assert (means < -8).all()
    assert (means >= -199).all()


@record
class Faulty(Environment[jax.Array]):
    """Does one thing wrong at its third step, or never ends."""

    reward: float = 1.0
    observation: float = 0.0
    terminated: bool = True
    truncated: bool = False

    @property
    def spec(self) -> Spec:
        return Spec(Box((1,)), Discrete(2))

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.int32(0), jnp.zeros(1)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, Step]:
        here = state == 2
        seen = jnp.where(here, self.observation, 0.0)[None]
        return state + 1, Step(
            seen, jnp.where(here, self.reward, 1.0), here & self.terminated, here & self.truncated
        )


@pytest.mark.parametrize(
    ("environment", "fault", "at"),
    [
        (Faulty(), 0, 6),
        (Faulty(reward=float("nan")), episodes.BAD_REWARD, 3),
        (Faulty(reward=float("inf")), episodes.BAD_REWARD, 3),
        (Faulty(observation=float("nan")), episodes.BAD_OBSERVATION, 3),
        (Faulty(truncated=True), episodes.TWO_ENDS, 3),
        (Faulty(terminated=False), episodes.NO_END, 50),
        (Faulty(terminated=False, truncated=True), 0, 6),
    ],
)
def test_faults_end_a_lifetime_where_they_happen(environment, fault, at):
    lane = _play(environment)
    assert (int(lane.fault), int(lane.steps)) == (fault, at)


def _play(environment: Faulty) -> episodes.Lane:
    """Two episodes of at most 50 steps."""
    return _lifetime(
        episodes.Rules(
            Counter(2), as_arrays(environment), EpisodeMean(), jax.random.key(0), Episodes(2, 50)
        )
    )


@jax.jit
def _lifetime(rules: episodes.Rules) -> episodes.Lane:
    return episodes.play_lifetime(rules, None, jnp.int32(0))


def test_settings_share_one_program():
    """The seven cases above, and these two, are one trace: settings are leaves."""
    for reward in (2.0, 3.0):
        assert float(_play(Faulty(reward=reward)).recorder.total) == 2 * (2 + reward)
    assert _lifetime._cache_size() == 1


@record
class OutOfRange(Environment[jax.Array], Perturbed):
    """Two states in turn, each the right action; an episode of two steps. In `bad` lifetimes there
    is a third one at the end; with `late`, at the start of some episodes.
    """

    bad: bool = False
    late: bool = static(False)

    @property
    def spec(self) -> Spec:
        return Spec(Discrete(2), Discrete(2))

    def perturb(self, key: jax.Array) -> Environment:
        return dataclasses.replace(self, bad=jax.random.bernoulli(key) & (not self.late))

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        wrong = jax.random.bernoulli(key, 0.03) & self.late
        return jnp.where(wrong, 5, 0), jnp.where(wrong, 2, 0)

    def step(self, key: jax.Array, state: jax.Array, action: jax.Array) -> tuple[jax.Array, Step]:
        seen = jnp.where(self.bad, 2, 1 - state % 2)
        reward = jnp.where(action == state % 2, 1.0, -1.0)
        return state + 1, Step(seen, reward, state % 2 == 1)

    def metrics(self, state: jax.Array) -> dict[str, jax.Array]:
        return {"wrong": (state > 2).astype(jnp.float32)}


def _simulated(late: bool, lanes: np.ndarray) -> Any:
    agent, environment = QLearning(q0=0.1, epsilon=0.2), OutOfRange(late=late)

    def one(index: jax.Array) -> Any:
        return simulate(agent, environment, jax.random.key(0), index, lifetime=Episodes(30))

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(lanes))


def test_a_state_out_of_range_changes_no_other_lane():
    together, alone = (_simulated(False, np.arange(*span)) for span in ((8,), (3, 4)))
    scores = together.scores()
    assert ((together.fault == episodes.BAD_OBSERVATION) == np.isnan(scores)).all()
    assert np.isnan(scores[:3]).any() and scores[3] == alone.scores()[0]
    assert np.nanmin(scores) > 1, "all learn the right actions where the environment is sound"


def test_what_a_reset_shows_is_checked_in_every_episode():
    played = _simulated(True, np.arange(40))
    wrong = (played.recorder.metrics["wrong"] > 0) | (played.episodes == 0)
    assert ((played.fault == episodes.BAD_OBSERVATION) == wrong).all()
    assert 0 < wrong.sum() < 40
