"""Random against its twin, and with a prior that is no Dirichlet distribution."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.twins import agents as twins
from jbrl.agents.random import Random
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment
from jbrl.environments.spec import Box, Discrete, Episodes, Spec
from jbrl.problems.lookup import problem
from jbrl.problems.prior import EnvironmentPrior
from jbrl.rollout.contract import check_requirements
from tests.reference.trajectories import KEY, decisions, disagreements


def test_its_twin_decides_alike():
    for _, steps in decisions(Random(), "GDL"):
        assert disagreements(steps, twins.Random(problem("GDL").mdps)) == []


@record
class Plane(Environment):
    """Two numbers are seen, five actions may be taken."""

    @property
    def spec(self):
        return Spec(Box((2,)), Discrete(5))


def test_it_needs_nothing_but_actions():
    prior = EnvironmentPrior(Plane(), jnp.float32(1), Episodes(3))
    agent = Random()
    check_requirements(agent, "Random", prior, "plane")
    state = agent.reset(KEY, agent.train(KEY, prior))
    actions = jax.vmap(lambda key: agent.act(key, state, jnp.zeros(2))[0])(
        jax.random.split(KEY, 100)
    )
    assert actions.dtype == jnp.int32 and set(np.asarray(actions).tolist()) == set(range(5))
