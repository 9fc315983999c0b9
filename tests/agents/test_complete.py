"""Agents whose parameters are distributions: one fresh draw per lifetime, the right law, the same
results as drawing by hand.
"""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jbrl
from jbrl.agents.complete import Complete, Distribution, build, is_oracle
from jbrl.agents.registry import AGENTS
from jbrl.base.errors import JbrlError
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.environments.spec import Steps
from jbrl.mdp.sampling import stream
from jbrl.play.experiment import Run
from jbrl.play.protocol import Protocol
from jbrl.problems.lookup import problem
from jbrl.rollout.contract import Agent, DrawsParameters, as_arrays
from jbrl.study.file import Study
from tests.reference.trajectories import KEY, prior_of

GREEDY, BAMCP = AGENTS["e-Greedy"].agent, AGENTS["BAMCP"].agent


@record
class Weighted(Agent):
    """Learns a number, and plays action 0 as often as that says, action 2 otherwise."""

    share: float = parameter(0.5, "share of action 0", low=0, high=1)

    def train(self, key, prior):
        return self.share * prior.mdps.rewards.max()

    def reset(self, key, knowledge):
        return knowledge

    def act(self, key, state, x):
        return jnp.where(10 * jax.random.uniform(key) < state, 0, 2).astype(jnp.int32), state


LAWS = {
    "uniform": (Distribution((2.0, 5.0)), stats.uniform(2, 3).cdf),
    "log_uniform": (Distribution((0.1, 10.0), "log_uniform"), stats.loguniform(0.1, 10).cdf),
}


def draws(distribution, n=2000):
    keys = jax.random.split(jax.random.key(3), n)
    values = dataclasses.replace(
        distribution, values=tuple(jnp.asarray(v, kinds[type(v)]) for v in distribution.values)
    )
    return np.asarray(jax.jit(jax.vmap(values.draw))(keys))


kinds = {float: jnp.float32, int: jnp.int32, bool: jnp.bool_}


@pytest.mark.parametrize("law", LAWS)
def test_continuous_laws(law):
    """Kolmogorov-Smirnov test; false alarms: 1 in 1,000 for each."""
    distribution, cdf = LAWS[law]
    assert stats.kstest(draws(distribution), cdf).pvalue > 1e-3


def test_integers_and_choices():
    """Chi-squared tests of 2,000 draws; false alarms: 1 in 1,000 for each."""
    integers = draws(Distribution((3, 6), whole=True))
    assert integers.dtype == np.int32
    assert stats.chisquare(np.bincount(integers, minlength=7)[3:]).pvalue > 1e-3
    logarithmic = draws(Distribution((1, 7), "log_uniform", whole=True))
    shares = np.diff(np.log(np.arange(1, 9))) / np.log(8)
    assert stats.chisquare(np.bincount(logarithmic, minlength=8)[1:], 2000 * shares).pvalue > 1e-3
    chosen = draws(Distribution((0.5, 2.0, 2.0), "choice"))
    assert (
        stats.chisquare([(chosen == 0.5).sum(), (chosen == 2.0).sum()], [2000 / 3, 4000 / 3]).pvalue
        > 1e-3
    )
    assert set(draws(Distribution((True, False), "choice")).tolist()) == {True, False}


def protocol(n=6, seed=4):
    return Protocol(problem("GC", Path()), problem("GC", Path()), n, seed, Steps(20))


def played(agent, n=6):
    run = Run(agent, protocol(n))
    run.prepare()
    return np.concatenate([chunk.returns for chunk in run.chunks()])


def test_each_lifetime_is_played_as_by_an_agent_with_the_drawn_value():
    """Here the parameter plays a part in what is learned before the first decision, too."""
    agent, _ = build(Weighted, {"share": {"uniform": [0.1, 0.9]}}, "here")
    together = played(agent)
    key = jax.random.key(4)
    values = [
        float(as_arrays(agent).distributions["share"].draw(stream(key, i, "parameters")))
        for i in range(6)
    ]
    assert len(set(values)) == 6 and min(values) >= 0.1 and max(values) <= 0.9
    alone = np.array([played(Weighted(share=value)) for value in values])
    assert np.diagonal(alone) == pytest.approx(together, rel=1e-6)
    assert (alone != together).mean() > 0.4, "other values earn something else"


def test_results_do_not_depend_on_the_number_of_lifetimes():
    agent, _ = build(Weighted, {"share": {"uniform": [0, 1]}}, "here")
    assert (played(agent, 3) == played(agent, 6)[:3]).all()


def test_one_program_for_all_ranges():
    for low, high in ((0.0, 0.3), (0.5, 1.0)):
        run = Run(build(Weighted, {"share": {"uniform": [low, high]}}, "here")[0], protocol())
        run.prepare()
        seconds = run.compile_seconds
    assert seconds == 0


def test_there_is_capacity_for_the_largest_values():
    agent, parameters = build(
        BAMCP, {"simulations": {"log_uniform": [10, 100]}, "depth": {"choice": [3, 40]}}, "here"
    )
    assert isinstance(agent, Complete)
    assert (agent.base.max_simulations, agent.base.max_depth) == (128, 64)
    assert (agent.lanes, agent.version, agent.requires) == (
        BAMCP.lanes,
        BAMCP.version,
        BAMCP.requires,
    )
    assert not is_oracle(agent)
    assert agent.cost(prior_of("GC")) == agent.base.cost(prior_of("GC"))
    assert (
        parameters["simulations"] == {"log_uniform": [10, 100]}
        and parameters["max_simulations"] == 0
    )


def test_what_is_drawn_learns_with_a_key_of_its_own():
    agent = as_arrays(build(Weighted, {"share": {"uniform": [0, 1]}}, "here")[0])
    assert isinstance(agent, DrawsParameters)
    one, knowledge = jax.jit(agent.draw_and_train)(KEY, prior_of("GC"))
    assert type(one) is Weighted and float(one.share) == float(agent.draw(KEY).share)
    assert float(knowledge) == float(one.train(KEY, prior_of("GC"))) > 0


def test_a_study_tells_distributions_apart():
    text = {
        "study": {"name": "complete", "n_environments": 2, "horizon": 3},
        "experiments": [{"name": "GC", "prior": "GC", "test": "GC"}],
        "agents": [
            {"algorithm": "e-Greedy", "epsilon": [{"uniform": [0, 1]}, {"uniform": [0, 0.5]}, 0.5]}
        ],
    }
    units = Study(text).units
    assert len({unit.id for unit in units}) == 3
    assert units[0].label == 'GC/e-Greedy(epsilon={"uniform": [0.0, 1.0]}) seed 0'
    assert type(units[2].agent) is GREEDY


PROGRAM = "expected one value, since it belongs to the compiled program"


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        (
            "e-Greedy",
            {"epsilon": {"unifrom": [0, 1]}},
            r"here: epsilon = .*unifrom.*expected \{ uniform = .*did you mean 'uniform'",
        ),
        ("e-Greedy", {"epsilon": {"uniform": [0, 1], "choice": [0]}}, "expected { uniform"),
        ("e-Greedy", {"epsilon": {}}, "expected { uniform"),
        ("e-Greedy", {"epsilon": {"uniform": 1}}, "expected { uniform"),
        ("e-Greedy", {"epsilon": {"uniform": [1, 0]}}, "two numbers, the lower one first"),
        ("AC", {"learning_episodes": {"uniform": [1, 2**24 + 1]}}, "integers up to 16777216"),
        ("e-Greedy", {"epsilon": {"uniform": [0, 0.5, 1]}}, "expected two numbers"),
        ("e-Greedy", {"epsilon": {"uniform": [0, 2]}}, r"here: epsilon = 2\.0: .* from 0 up to 1"),
        ("e-Greedy", {"epsilon": {"choice": ["a"]}}, r"here: epsilon = 'a': expected a number"),
        ("e-Greedy", {"epsilom": {"uniform": [0, 1]}}, "'epsilom'; did you mean 'epsilon'"),
        ("BEB", {"beta": {"log_uniform": [0, 1]}}, "expected numbers above 0"),
        ("BEB", {"bonus": {"choice": ["pair"]}}, PROGRAM),
        ("PSRL", {"period": {"uniform": [1, 2.5]}}, r"here: period = 2\.5: expected an integer"),
        # made before the first lifetime
        ("OPPS-DS", {"budget": {"uniform": [5, 10]}}, "expected one value, or a list"),
        ("Linear", {"w0": {"uniform": [0, 1]}}, "expected one value, or a list"),
    ],
)
def test_bad_distributions_are_refused(name, values, message):
    with pytest.raises(JbrlError, match=message):
        build(AGENTS[name].agent, values, "here")


def test_numbers_are_at_most_as_far_apart_as_float32_holds():
    @record
    class Wide(Weighted):
        shift: float = parameter(0.0, "any number")

    build(Wide, {"shift": {"uniform": [3.1e38, 3.2e38]}}, "here")
    with pytest.raises(JbrlError, match=r"at most 3\.4e\+38 apart"):
        build(Wide, {"shift": {"uniform": [-3e38, 3e38]}}, "here")


def test_play_takes_distributions_and_checks_the_other_parameters():
    agent, _ = build(Weighted, {"share": {"uniform": [0, 1]}}, "agent")
    given = {"prior": "GC", "n_environments": 6, "horizon": 20, "seed": 4}
    np.testing.assert_array_equal(jbrl.play(agent, **given).returns, played(agent))
    table = {"alpha": {"uniform": [0.1, 0.5]}}
    agent, _ = build(AGENTS["Q-learning"].agent, table, "agent")
    wrong = dataclasses.replace(agent, base=dataclasses.replace(agent.base, epsilon=2.0))
    with pytest.raises(JbrlError, match="epsilon = 2"):
        jbrl.play(wrong, test="Chain-10s", n_environments=3, episodes=2)
