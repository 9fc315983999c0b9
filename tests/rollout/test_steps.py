"""Start of lifetimes of T steps, the inputs that they depend on, and `jbrl.simulate` beside
`jbrl.play`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jbrl
from jbrl.agents import BAMCP, BEB, BFS3, DQN, OPPSDS, EpsilonGreedy, Formula, QLearning, Random
from jbrl.base.pytree import record
from jbrl.environments.spec import Steps
from jbrl.mdp import sampling
from jbrl.mdp.dirichlet import distribution, draw_mdp
from jbrl.play.experiment import Run
from jbrl.play.play import resolve_agent
from jbrl.play.protocol import Protocol
from jbrl.problems.problem import DirichletProblem
from jbrl.rollout import steps

S, A = 5, 2


def anywhere(initial_state: int = -1) -> DirichletProblem:
    """A distribution over MDPs in which lifetimes start in a state drawn uniformly."""
    rewards = np.arange(S * A * S).reshape(S, A, S) % 3
    return DirichletProblem(
        "Anywhere", "Anywhere", mdps=distribution(np.ones((S, A, S)), rewards, initial_state)
    )


@pytest.mark.parametrize("initial_state", [-1, 3])
def test_first_states_of_what_is_played(initial_state):
    """Uniform over all states, the last one included: a chi-square test, false-alarm rate 1e-4,
    seed fixed.

    Or the one that is said.
    """
    problem = anywhere(initial_state)
    run = Run(Random(), Protocol(problem, problem, 1000, 0, Steps(2)), record=True)
    run.prepare()
    states = np.concatenate([chunk.trajectories["states"] for chunk in run.chunks()])
    counts = np.bincount(states[:, 0], minlength=S)
    if initial_state < 0:
        assert counts[-1] > 0
        assert stats.chisquare(counts).pvalue > 1e-4
    else:
        assert counts[initial_state] == 1000


def test_first_states_go_up_to_the_last():
    """For the least and the greatest uniform number that there are."""
    uniforms = jnp.array([0.0, 0.2, 0.9, 1 - 2**-24])
    firsts = jax.vmap(steps.mdps.start, in_axes=(None, None, 0))(jnp.int32(-1), S, uniforms)
    np.testing.assert_array_equal(firsts, [0, 1, 4, 4])


def test_what_moves_the_environment_does_not_hang_on_the_keys_of_the_agent(monkeypatch):
    """Other keys for the agent: the same first state and the same random numbers
    for transitions.
    """
    key, mdps = jax.random.key(1), jax.tree.map(jnp.asarray, anywhere().mdps)
    mdp = draw_mdp(key, mdps, unit=True)
    plain = steps.draw_inputs(mdp, key, jnp.int32(7), 20)
    stream = steps.stream
    drawn = [jax.random.split(stream(key, i, "environment"))[0] for i in range(7, 11)]
    firsts = [int(steps.draw_inputs(mdp, key, jnp.int32(i), 1).first) for i in range(7, 11)]
    assert firsts == [int(sampling.uniforms(one)[0] * S) for one in drawn]
    monkeypatch.setattr(
        steps,
        "stream",
        lambda key, i, name: stream(key, i if name == "environment" else i + 1, name),
    )
    other = steps.draw_inputs(mdp, key, jnp.int32(7), 20)
    assert int(plain.first) == int(other.first)
    np.testing.assert_array_equal(plain.noise, other.noise)
    assert (jax.random.key_data(plain.keys) != jax.random.key_data(other.keys)).all()


STEPS, EPISODES = jbrl.Steps(20), jbrl.Episodes(3)


@pytest.mark.parametrize(
    ("agent", "name", "lifetime"),
    [
        (QLearning(), "GC", STEPS),
        (QLearning(), "DeepSea(size=4)", EPISODES),
        pytest.param(EpsilonGreedy(epsilon=0.1), "GC", STEPS, marks=pytest.mark.slow),
        pytest.param(BAMCP(simulations=5), "GC", STEPS, marks=pytest.mark.slow),
        pytest.param(Formula(), "GC", STEPS, marks=pytest.mark.slow),
        pytest.param(DQN(), "Catch", EPISODES, marks=pytest.mark.slow),
    ],
)
def test_scores_are_those_of_play(agent, name, lifetime):
    problem = jbrl.problem(name)
    key, index = problem.key(3), jnp.arange(6)
    run = jax.jit(jax.vmap(lambda i: jbrl.simulate(agent, problem, key, i, lifetime=lifetime)))
    wanted = {"horizon": 20} if lifetime is STEPS else {"episodes": 3}
    played = jbrl.play(agent, test=problem, n_environments=6, seed=3, **wanted)
    simulated = run(index)
    np.testing.assert_array_equal(simulated.scores(problem), played.returns)
    assert simulated.steps.sum() == played.decisions


def test_a_sweep_over_parameters_and_seeds_is_played_bit_for_bit():
    gc, epsilons, seeds = jbrl.problem("GC"), (0.0, 0.1, 0.5), (0, 7)
    keys = jnp.stack([gc.key(seed) for seed in seeds])

    def lifetime(epsilon, key, index):
        agent = EpsilonGreedy(epsilon=epsilon)
        return jbrl.simulate(agent, gc, key, index, prior=jbrl.problem("UGC"), lifetime=STEPS)

    over_seeds = jax.vmap(jax.vmap(lifetime, (None, None, 0)), (None, 0, None))
    grid = jax.jit(jax.vmap(over_seeds, (0, None, None)))
    scores = grid(jnp.array(epsilons), keys, jnp.arange(6)).scores(gc)
    for i, epsilon in enumerate(epsilons):
        for j, seed in enumerate(seeds):
            agent, options = EpsilonGreedy(epsilon=epsilon), {"prior": "UGC", "test": "GC"}
            played = jbrl.play(agent, **options, n_environments=6, seed=seed, horizon=20)
            np.testing.assert_array_equal(scores[i, j], played.returns)


def test_discounts_can_be_mapped():
    """An agent that earns more the further it looks ahead."""
    gc, discounts = jbrl.problem("GC"), (0.0, 0.95)

    def rewards(discount):
        agent = EpsilonGreedy()
        return jbrl.simulate(agent, gc, gc.key(0), lifetime=STEPS, discount=discount).trajectory

    mapped = jax.vmap(rewards)(jnp.array(discounts)).rewards
    for found, discount in zip(mapped, discounts, strict=True):
        np.testing.assert_array_equal(found, jax.jit(lambda d=discount: rewards(d))().rewards)
    assert (mapped[0] != mapped[1]).any()


def test_settings_of_an_environment_can_be_mapped():
    """A cart that is pushed off at once falls sooner the lower the threshold is."""
    pole, key = jbrl.problem("CartPole").environment, jax.random.key(0)

    def steps(gravity):
        heavier = dataclasses.replace(pole, gravity=gravity)
        return jbrl.simulate(Random(), heavier, key, lifetime=EPISODES).steps

    lengths = jax.jit(jax.vmap(steps))(jnp.array([0.01, 50.0]))
    assert lengths[0] > lengths[1]


def test_states_and_actions_are_kept_when_asked_for():
    gc = jbrl.problem("GC")
    simulate = jax.jit(lambda key: jbrl.simulate(Random(), gc, key, lifetime=STEPS, record=True))
    simulated = simulate(gc.key(0))
    played = jbrl.play(Random(), test="GC", n_environments=1, horizon=20, record=True)
    for name in ("states", "actions", "rewards"):
        ours = getattr(simulated.trajectory, name)
        np.testing.assert_array_equal(ours, played.trajectories[name][0])


def test_what_cannot_be_simulated_is_refused():
    gc, catch = jbrl.problem("GC"), jbrl.problem("Catch")
    with pytest.raises(jbrl.JbrlError, match="OPPSDS learns on the host before it plays"):
        jbrl.simulate(OPPSDS(), gc, gc.key(0))
    with pytest.raises(jbrl.JbrlError, match=r"BAMCP needs a Dirichlet prior.*'Catch' offers"):
        jbrl.simulate(BAMCP(), catch, catch.key(0))
    with pytest.raises(jbrl.JbrlError, match=r"prior 'Grid' has 25 states.*the same sizes"):
        jbrl.simulate(BEB(), gc, gc.key(0), prior=jbrl.problem("Grid"))
    with pytest.raises(jbrl.JbrlError, match="expected the same observations and actions"):
        jbrl.simulate(Random(), catch, catch.key(0), prior=jbrl.problem("DeepSea"))
    with pytest.raises(jbrl.JbrlError, match=r"^discount = 0\.99999: expected at most 0\.9999"):
        jbrl.simulate(BEB(), gc, gc.key(0), discount=0.99999)
    with pytest.raises(jbrl.JbrlError, match=r"^key has shape \(2,\): expected one key"):
        jbrl.simulate(Random(), gc, jax.random.split(gc.key(0)))
    for budget in (lambda n: BAMCP(simulations=n), lambda n: BFS3(samples=n)):
        with pytest.raises(jbrl.JbrlError, match="traced by JAX: expected a capacity"):
            jax.vmap(lambda n, b=budget: jbrl.simulate(b(n), gc, gc.key(0)))(jnp.arange(1, 3))
    with pytest.raises(jbrl.JbrlError, match="DQN: hidden_width is traced by JAX: expected one"):
        jax.vmap(lambda n: jbrl.simulate(DQN(hidden_width=n), gc, gc.key(0)))(jnp.arange(1, 3))
    with pytest.raises(jbrl.JbrlError, match=r"BEB: beta has shape \(2,\): expected one value"):
        jax.jit(lambda beta: jbrl.simulate(BEB(beta=beta), gc, gc.key(0)))(jnp.ones(2))


@pytest.mark.parametrize("name", ["BOSS", "SBOSS", "BAMCP", "e-Greedy"])
def test_a_lifetime_may_be_one_decision(name):
    """XLA aborts where it sees through the samples of BOSS (jaxlib 0.10.2)."""
    returns = jbrl.play(name, test="GC", n_environments=3, horizon=1).returns
    assert set(returns) <= {0.0, 2.0, 10.0}


def test_a_default_may_be_a_number_of_numpy():
    @jbrl.record
    class Own(EpsilonGreedy):
        epsilon: float = jbrl.parameter(np.float64(0.5), "chance", low=0, high=1)

    options = {"test": "GC", "n_environments": 2, "horizon": 2}
    agents = (Own(), EpsilonGreedy(epsilon=0.5))
    found, wanted = (jbrl.play(agent, **options).returns for agent in agents)
    np.testing.assert_array_equal(found, wanted)
    with pytest.raises(jbrl.JbrlError, match=r"epsilon = 7.0: expected a number"):
        jbrl.play(Own(epsilon=7.0), **options)


def test_an_agent_is_made_once():
    @jbrl.record
    class Halved(EpsilonGreedy):
        def __post_init__(self) -> None:
            object.__setattr__(self, "epsilon", self.epsilon / 2)

    assert resolve_agent(Halved(epsilon=0.5))[0].epsilon == 0.25


def test_a_whole_number_is_an_integer_where_one_is_expected():
    options = {"test": "GC", "n_environments": 2, "horizon": 3}
    found, wanted = (jbrl.play(jbrl.agents.BAMCP(simulations=n), **options) for n in (5.0, 5))
    np.testing.assert_array_equal(found.returns, wanted.returns)


@pytest.mark.parametrize("kind", [np.float64, np.array, jnp.float32])
def test_numbers_of_numpy_and_jax_are_those_of_python(kind):
    gc, options = jbrl.problem("GC"), {"test": "GC", "n_environments": 2, "horizon": 20}
    one = {"environment": gc, "key": gc.key(0), "lifetime": STEPS}
    agent, expected = EpsilonGreedy(epsilon=kind(0.5)), EpsilonGreedy(epsilon=0.5)
    found, wanted = (jbrl.play(a, **options).returns for a in (agent, expected))
    np.testing.assert_array_equal(found, wanted)
    assert jbrl.simulate(agent, **one, discount=kind(0.95)).scores(gc) == wanted[0]
    beyond = EpsilonGreedy(epsilon=kind(7.0))
    for play in (lambda: jbrl.simulate(beyond, **one), lambda: jbrl.play(beyond, **options)):
        with pytest.raises(jbrl.JbrlError, match=r"EpsilonGreedy: epsilon = 7.0: expected a numb"):
            play()
    with pytest.raises(jbrl.JbrlError, match=r"discount = 2.0: expected a number from 0"):
        jbrl.simulate(Random(), **one, discount=kind(2.0))


@record
class Sums(jbrl.Agent):
    """Keeps a number of Python as its state."""

    def reset(self, key, knowledge):
        return 0.0

    def act(self, key, state, observation):
        return jnp.int32(0), state

    def observe(self, key, state, transition):
        return state + transition.reward


@record
class Short(jbrl.Environment):
    """An episode of three steps, its state a number of Python at first."""

    @property
    def spec(self):
        return jbrl.Spec(jbrl.Discrete(4), jbrl.Discrete(2))

    def reset(self, key):
        return 0, jnp.int32(0)

    def step(self, key, state, action):
        after = jnp.int32(state + 1)
        return after, jbrl.Step(after, jnp.float32(1), after == 3)


def test_states_may_be_numbers_of_python():
    def play(index):
        return jbrl.simulate(Sums(), Short(), jax.random.key(0), index, lifetime=EPISODES)

    assert jax.vmap(play)(jnp.arange(2)).scores().tolist() == [3, 3]


def test_an_environment_that_leaves_is_refused():
    def leave(self, key, state, action):
        raise SystemExit(3)

    leaving = record(type("Leaving", (Short,), {"step": leave}))()
    with pytest.raises(jbrl.JbrlError, match="environment 'Leaving': step: SystemExit: 3"):
        jbrl.simulate(Random(), leaving, jax.random.key(0))


@pytest.mark.parametrize(("name", "lifetime"), [("GC", STEPS), ("Chain", EPISODES)])
def test_nan_in_what_is_learned_is_a_fault_and_a_finite_mdp_never_ends(name, lifetime):
    def last(self, key, state, transition):
        return jnp.where(transition.terminated | transition.truncated, jnp.nan, state)

    unsound = record(type("Unsound", (Sums,), {"train": lambda self, key, prior: jnp.nan}))()
    problem = jbrl.problem(name)
    simulated = jbrl.simulate(unsound, problem, problem.key(0), lifetime=lifetime)
    assert simulated.fault != 0 and np.isnan(simulated.scores(problem))
    ending = record(type("Ending", (Sums,), {"observe": last}))()
    simulated = jbrl.simulate(ending, problem, problem.key(0), lifetime=lifetime)
    assert bool(simulated.fault) == (name == "Chain")
