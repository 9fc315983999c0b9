"""Agents trained on the prior: near-optimal where the optimum is known, resumed to the bit, kept as
plain data, refused with a sentence.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbrl.agents.prior_trained import belief_policy
from jbrl.agents.prior_trained.belief_ppo import BeliefPPO
from jbrl.agents.prior_trained.imitation import ANN, DPT
from jbrl.agents.prior_trained.rl2 import RL2
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import check_parameters
from jbrl.environments.spec import Steps
from jbrl.mdp.dirichlet import DirichletMDPs
from jbrl.play.offline import Learned, SearchCheckpoint, Trials, learn
from jbrl.problems.lookup import problem
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Findings, Transition, as_arrays
from tests.bayes_optimal.exact import exact

T, DISCOUNT = 8, 0.95
KEY = jax.random.key(3)
SURE = 0.55  # what action 0 pays; action 1 pays 1 with an unknown probability, 1/2 in the mean


def bandit_like() -> DirichletPrior:
    """Two states, two actions.

    Action 0 leads to state 0 for sure and pays `SURE`; action 1 leads to either state, with a
    probability of its own in each state, and pays 1 where it leads to state 1.
    """
    concentrations = np.zeros((2, 2, 2), np.float32)
    concentrations[:, 0, 0] = 1
    concentrations[:, 1] = 1
    rewards = np.zeros((2, 2, 2), np.float32)
    rewards[:, 0, 0], rewards[:, 1, 1] = SURE, 1
    mdps = DirichletMDPs(jnp.asarray(concentrations), jnp.asarray(rewards), jnp.int32(0))
    return DirichletPrior(mdps, jnp.float32(DISCOUNT), T)


def outcomes(x: int, u: int, counts: tuple) -> list[tuple[float, int, float, tuple]]:
    """Probability, next state, reward and counts after (x, u), by the posterior mean."""
    if u == 0:
        return [(1.0, 0, SURE, counts)]
    failures, successes = counts[x]
    chance = (1 + successes) / (2 + failures + successes)
    found = []
    for y, p in ((0, 1 - chance), (1, chance)):
        row = (failures + (y == 0), successes + (y == 1))
        found.append((p, y, float(y), tuple(row if z == x else counts[z] for z in (0, 1))))
    return found


NONE = ((0, 0), (0, 0))


@functools.cache
def optimal_value() -> float:
    return exact(bandit_like().mdps, DISCOUNT, T)


@functools.cache
def mean_plan(counts: tuple, left: int) -> tuple[tuple[float, float], tuple[int, int]]:
    """Values and actions that are optimal for the posterior mean with `left` decisions to go."""
    if left == 0:
        return (0.0, 0.0), (0, 0)
    after = mean_plan(counts, left - 1)[0]
    q = [
        [
            sum(p * (r + DISCOUNT * after[y]) for p, y, r, _ in outcomes(x, u, counts))
            for u in (0, 1)
        ]
        for x in (0, 1)
    ]
    return (max(q[0]), max(q[1])), (int(np.argmax(q[0])), int(np.argmax(q[1])))


@functools.cache
def greedy_value(x: int = 0, counts: tuple = NONE, t: int = 0) -> float:
    """The value of what is optimal for the posterior mean: it plans, and does not explore."""
    if t == T:
        return 0.0
    u = mean_plan(counts, T - t)[1][x]
    return sum(
        p * (r + DISCOUNT * greedy_value(y, c, t + 1)) for p, y, r, c in outcomes(x, u, counts)
    )


def exact_value(agent: Any) -> float:
    """The expected return of a deterministic agent, over all histories: no sample, no error."""
    player = as_arrays(agent)

    @jax.jit
    @jax.vmap
    def act(state: Any, x: Any) -> Any:
        return player.act(KEY, state, x)

    @jax.jit
    @jax.vmap
    def observe(state: Any, x: Any, u: Any, r: Any, y: Any) -> Any:
        never = jnp.bool_(False)
        return player.observe(KEY, state, Transition(x, u, r, y, never, never))

    width = 2**T  # padded, so that each function is compiled once
    histories = [(1.0, 0, NONE)]
    states = jax.tree.map(lambda v: np.stack([v] * width), player.reset(KEY, bandit_like()))
    total = 0.0
    for t in range(T):
        xs = np.zeros(width, np.int32)
        xs[: len(histories)] = [x for _, x, _ in histories]
        actions, states = act(states, xs)
        following, source, steps = [], [], []
        for i, (p, x, counts) in enumerate(histories):
            for q, y, r, c in outcomes(x, int(actions[i]), counts):
                total += DISCOUNT**t * p * q * r
                following.append((p * q, y, c))
                source.append(i)
                steps.append((x, int(actions[i]), r, y))
        chosen = np.zeros(width, int)
        chosen[: len(source)] = source
        table = np.zeros((width, 4))
        table[: len(steps)] = steps
        x, u, y = (table[:, i].astype(np.int32) for i in (0, 1, 3))
        states = observe(
            jax.tree.map(lambda v, chosen=chosen: np.asarray(v)[chosen], states),
            *(x, u, table[:, 2].astype(np.float32), y),
        )
        histories = following
    return total


AGENTS = {
    "BeliefPPO": BeliefPPO(
        budget=76_800, batch=256, hidden_width=16, learning_rate=3e-3, entropy_cost=0.1
    ),
    "RL2": RL2(budget=512_000, batch=256, units=16, learning_rate=5e-3, entropy_cost=0.1),
    "ANN": ANN(budget=5_120, batch=256, hidden_width=16),
    "DPT": DPT(budget=40_960, batch=256, hidden_width=16, inputs="history"),
}


def trials() -> Trials:
    return Trials(bandit_like(), DISCOUNT, KEY, jax.devices()[:1])


@functools.cache
def learned(name: str) -> Learned:
    return learn(AGENTS[name], 0, bandit_like(), trials(), SearchCheckpoint())[0]


def test_what_is_exact_is_consistent():
    """Exploring pays here, and what never explores is paid less."""
    sure = SURE * (1 - DISCOUNT**T) / (1 - DISCOUNT)
    assert sure <= greedy_value() < optimal_value() < (1 - DISCOUNT**T) / (1 - DISCOUNT)
    assert greedy_value() < 0.99 * optimal_value()


@pytest.mark.parametrize("name", ["BeliefPPO", pytest.param("RL2", marks=pytest.mark.slow)])
def test_it_is_nearly_bayes_optimal(name):
    """The value is exact; the seed of training is fixed."""
    value = exact_value(learned(name).strategy)
    assert 0.995 * optimal_value() <= value <= optimal_value() + 1e-4
    assert value > greedy_value()


def rounds(agent: Any, before: Findings | None = None) -> Iterator[Findings]:
    return agent.search(0, bandit_like(), trials(), before)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", AGENTS)
def test_it_is_taken_up_again_to_the_bit(name):
    whole = list(itertools.islice(rounds(AGENTS[name]), 6))
    again = list(itertools.islice(rounds(AGENTS[name], whole[2]), 4))
    for first, second in zip(whole[2:], again, strict=True):
        assert first.consumed == second.consumed
        assert first.arrays.keys() == second.arrays.keys()
        for key in first.arrays.keys() - {"spent"}:
            np.testing.assert_array_equal(first.arrays[key], second.arrays[key], err_msg=key)


@pytest.mark.first_case_quick
@pytest.mark.parametrize("name", AGENTS)
def test_what_was_found_is_kept_as_plain_data(name):
    found = learned(name)
    again = Learned.read(found.describe(), found.arrays)
    assert jax.tree.structure(again.strategy) == jax.tree.structure(found.strategy)
    for a, b in zip(jax.tree.leaves(again.strategy), jax.tree.leaves(found.strategy), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.arms["pulls"].sum() == found.consumed == found.simulated
    assert found.arms["chosen"].tolist() == [False] * (len(found.arms["pulls"]) - 1) + [True]


def first_is_better(n: np.ndarray) -> float:
    """The probability that arm 0 of two is better, after successes and failures n [2, 2] of each,
    from uniform priors: by the sum of densities on a grid.
    """
    x = (np.arange(2000) + 0.5) / 2000
    first, second = (x**s * (1 - x) ** f for s, f in n)
    below = np.cumsum(second) - second / 2
    return float((first * below).sum() / (first.sum() * second.sum()))


@pytest.mark.slow
def test_outputs_approach_the_probability_that_an_action_is_optimal():
    """On a bandit of two arms: their distance in the mean over all histories of up to 8 pulls is
    below a sixth of that of even chances. The seed of training is fixed.
    """
    prior = problem("Bandit").prior(Steps(40), DISCOUNT)
    agent = DPT(budget=51_200, batch=256, horizon=40, hidden_width=16)
    given = Trials(prior, DISCOUNT, KEY, jax.devices()[:1])
    policy: Any = learn(agent, 0, prior, given, SearchCheckpoint())[0].strategy
    found: Any = [n for n in itertools.product(range(9), repeat=4) if sum(n) <= 8]
    histories = np.array(found)

    @jax.jit
    @jax.vmap
    def outputs(numbers: Any) -> Any:
        counts = jnp.concatenate([numbers, jnp.zeros(1)])  # no certain rows
        seen = belief_policy.Seen(counts, (), 2 * numbers.sum().astype(jnp.int32))
        inputs = jax.tree.map(jnp.asarray, policy.inputs).inputs(seen, jnp.int32(0))
        return belief_policy.outputs_of(policy.network)(policy.parameters, inputs)

    chances = np.asarray(jax.nn.softmax(outputs(histories.astype(np.float32)), axis=1))[:, 0]
    exact = np.array([first_is_better(n.reshape(2, 2)) for n in histories])
    assert np.abs(chances - exact).mean() < np.abs(0.5 - exact).mean() / 6


TINY: dict[str, Any] = {"budget": 16, "batch": 8, "horizon": 3}
DIVERGED: list[tuple[Any, str]] = [
    (ANN(hidden_width=4, learning_rate=1e9, **TINY), r"as large as [1-9][\d.]*e\+\d+"),
    (DPT(hidden_width=4, learning_rate=1e9, **TINY), r"as large as [1-9][\d.]*e\+\d+"),
    (BeliefPPO(hidden_width=4, learning_rate=1e9, **TINY), r"as large as [1-9][\d.]*e\+\d+"),
    (RL2(units=4, learning_rate=1e9, **TINY), r"as large as [1-9][\d.]*e\+\d+"),
    (BeliefPPO(hidden_width=4, learning_rate=float("nan"), **TINY), "NaN"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "found"), DIVERGED)
@pytest.mark.first_case_quick
def test_training_that_diverges_is_refused(agent, found):
    """The step of Adam has one length: weights that have diverged may stay finite."""
    with pytest.raises(
        JbrlError,
        match=f"^{type(agent).__name__}: its weights are {found} after 1 round: training has "
        "diverged; a smaller learning_rate may help$",
    ):
        list(rounds(agent))


@pytest.mark.parametrize(
    ("weights", "counted"),
    [
        ({"parameters": np.zeros(42), "sizes": np.zeros(7), "inputs/.scale": np.zeros(())}, 42),
        ({"layer": np.zeros((3, 4)), "bias": np.zeros(3)}, 15),
    ],
)
def test_what_was_learned_is_counted(weights, counted):
    """Plans and sizes, which the strategy consists of as well, are none of it."""
    policy: Any = None
    found = Learned(policy, {}, 8, 8, 0.1, ANN(), weights)
    assert found.describe()["strategy"]["weights"] == counted


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent", [BeliefPPO(hidden_width=4, **TINY), RL2(units=4, **TINY)], ids=["BeliefPPO", "RL2"]
)
@pytest.mark.first_case_quick
def test_a_first_round_without_reward_sets_no_tiny_unit(agent):
    """The first decision, from a state that pays nothing, is all that is played in training."""
    prior = bandit_like()
    rewards = prior.mdps.rewards.at[0].set(0.0).at[1, 1, 1].set(8.0)
    quiet = DirichletPrior(
        DirichletMDPs(prior.mdps.concentrations, rewards, jnp.int32(0)), prior.discount, T
    )
    agent = dataclasses.replace(agent, horizon=1)
    found = list(agent.search(0, quiet, Trials(quiet, DISCOUNT, KEY, jax.devices()[:1]), None))
    assert not found[-1].arrays["curve"].any()
    assert found[-1].arrays["state/.returns"][1] == 8


def test_a_unit_of_rewards_changes_nothing_that_is_learned():
    """A power of two rounds nothing; 2^±60 squared are beyond what float32 can hold."""
    prior, learnt = bandit_like(), []
    agent = BeliefPPO(hidden_width=4, **TINY)
    for unit in (1.0, 2.0**-60, 2.0**60):
        mdps = dataclasses.replace(prior.mdps, rewards=prior.mdps.rewards * unit)
        scaled = dataclasses.replace(prior, mdps=mdps)
        given = Trials(scaled, DISCOUNT, KEY, jax.devices()[:1])
        *_, last = agent.search(0, scaled, given, None)
        learnt.append((last.arrays["state/.parameters"], last.arrays["curve"] / unit))
    for found in learnt[1:]:
        np.testing.assert_array_equal(found[0], learnt[0][0])
        np.testing.assert_array_equal(found[1], learnt[0][1])


def test_time_ends_a_training():
    found = list(rounds(BeliefPPO(budget=10**8, batch=256, hidden_width=16, seconds=0.2)))[-1]
    assert 0 < found.consumed < 10**8 and found.arrays["spent"] >= 0.2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 0}, "budget = 0: expected an integer from 1"),
        ({"inputs": "all"}, "inputs = 'all': expected one of 'belief', 'values'"),
        ({"clip": -1.0}, "clip = -1"),
    ],
)
def test_parameters_that_are_refused(values, message):
    with pytest.raises(JbrlError, match=message):
        check_parameters(BeliefPPO, values, "BeliefPPO")


@pytest.mark.first_case_quick
@pytest.mark.parametrize(
    "agent",
    [
        BeliefPPO(hidden_width=4096, hidden_layers=8),
        ANN(hidden_width=4096, hidden_layers=8),
        DPT(hidden_width=4096, hidden_layers=8),
        RL2(units=4096, batch=8, horizon=2),
    ],
    ids=lambda agent: type(agent).__name__,
)
def test_networks_that_do_not_fit_are_refused_before_they_are_made(agent):
    prior, memory = bandit_like(), 500 * 10**6
    limited = Trials(prior, DISCOUNT, KEY, jax.devices()[:1], memory=memory)
    with pytest.raises(
        JbrlError,
        match=rf"^{type(agent).__name__} takes [\d.]+ GiB for training, with a network of [\d,]+ "
        r"weights: expected at most 0.466 GiB, the memory that may be used \(--memory\); a smaller "
        "network or batch takes less$",
    ):
        next(agent.search(0, prior, limited, None))


@pytest.mark.parametrize(("agent", "measured"), [(ANN(), 180.8), (RL2(), 218.6)])
def test_mdps_of_a_group_are_part_of_the_memory_of_a_training(agent, measured):
    """Megabytes of the compiled round, by the compiler, with 100 states and four actions."""
    mdps = DirichletMDPs(jnp.ones((100, 4, 100)), jnp.ones((100, 4, 100)), jnp.int32(0))
    prior = DirichletPrior(mdps, jnp.float32(0.95), 250)
    assert 1 < agent.search_bytes(prior) / (measured * 1e6) < 1.3


def test_a_round_that_does_not_fit_by_the_count_of_the_compiler_is_refused():
    enough, limited = (
        Trials(bandit_like(), DISCOUNT, KEY, jax.devices()[:1], memory=n) for n in (8000, 7000)
    )
    enough.compile_round(jnp.negative, jnp.zeros(1000))
    with pytest.raises(
        JbrlError,
        match=r"^a round of training takes 7.81 KiB: expected at most 6.84 KiB, the memory that "
        r"may be used \(--memory\); a smaller network or batch takes less$",
    ):
        limited.compile_round(jnp.negative, jnp.zeros(1000))


@pytest.mark.parametrize(
    ("budget", "batch", "size"),
    [
        *((40_000, 512, 512), (8_192, 512, 512), (8_191, 512, 256), (1_024, 512, 64)),
        *((1_024, 48, 48), (1, 512, 32), (1, 8, 8)),
    ],
)
def test_rounds_of_dpt_are_smaller_where_the_budget_is(budget, batch, size):
    agent, prior = DPT(budget=budget, batch=batch), problem("GC").prior(Steps(250), 0.95)
    assert agent.lesson(prior).lifetimes == size
    whole = -(-budget // size) * size
    assert agent.search_seconds(prior) == pytest.approx(
        whole * agent.training_horizon(prior) * agent.decision_seconds(prior)
    )


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(JbrlError, match="batch = 300: expected a multiple of 256"):
        ANN(batch=300)
    with pytest.raises(JbrlError, match="heads = 3: expected a divisor of hidden_width, 32"):
        DPT(heads=3, inputs="history")
    with pytest.raises(JbrlError, match="minibatches = 7: expected a divisor of 256"):
        RL2(minibatches=7)
    with pytest.raises(JbrlError, match="budget = 2000000000: expected at most 524,288 rounds of"):
        next(BeliefPPO(budget=2_000_000_000, batch=1).search(0, bandit_like(), trials(), None))
    wide = BeliefPPO(batch=65_536, horizon=T)
    prior = bandit_like()
    huge = DirichletPrior(
        DirichletMDPs(jnp.ones((60, 2, 60)), jnp.ones((60, 2, 60)), prior.mdps.initial_state),
        prior.discount,
        T,
    )
    with pytest.raises(
        JbrlError, match=r"takes [\d.]+ GiB for a round of training: expected at most"
    ):
        next(wide.search(0, huge, trials(), None))
