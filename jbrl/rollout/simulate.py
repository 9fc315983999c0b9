"""The lane kernel: one lifetime of one agent in one environment, as a pure function.

    gc, key = jbrl.problem("GC"), jbrl.problem("GC").key(seed)
    lifetimes = jax.vmap(lambda i: jbrl.simulate(agent, gc, key, i))(jnp.arange(500))
    lifetimes.scores(gc)  # [500] float64, those of jbrl.play(agent, test="GC", seed=seed)

Under `jax.jit` and `jax.vmap` it maps over parameters of agents, seeds, numbers of environments,
and settings of environments, on any device.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from jbrl.base.errors import JbrlError, check_count, check_discount, expect, shown
from jbrl.base.parameters import check_parameters, kind_of
from jbrl.base.plugins import is_outside
from jbrl.base.pytree import record
from jbrl.environments.environment import Environment, Tabular, check_environment
from jbrl.environments.spec import Lifetime, Steps
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.problems.features import check_planned
from jbrl.problems.prior import EnvironmentPrior, Prior
from jbrl.problems.problem import DirichletProblem, EnvironmentProblem, Problem, check_same_sizes
from jbrl.problems.recorder import EpisodeMean, scores_of
from jbrl.rollout.contract import (
    Agent,
    MadeOfWeights,
    OfflineSearch,
    as_arrays,
    check_requirements,
    plain,
    with_plain_numbers,
)
from jbrl.rollout.episodes import Rules, play_lifetime
from jbrl.rollout.faults import check_host_values, nan_fault, train
from jbrl.rollout.steps import Trajectory, discounted, draw_inputs, draw_rollout, play_steps


@record
class Simulated:
    """A lifetime that has been played; mapped, several with leading axes."""

    steps: Array  # [] int32, decisions
    episodes: Array  # [] int32, episodes that have ended
    fault: Array  # [] int32, why it does not count, a code of `rollout.faults`; 0: it does
    trajectory: Trajectory | None  # of T decisions in a finite MDP
    recorder: Any  # of other lifetimes, the state of the recorder

    def scores(
        self, problem: Problem | None = None, discount: float = 0.95
    ) -> npt.NDArray[np.float64]:
        """Return the score of each lifetime, NaN where one has failed. On the host.

        Discounted returns of T decisions in finite MDPs, else what the recorder of `problem`, by
        default the mean return per episode, makes of a lifetime.
        """
        check_discount(discount)
        shape = self.steps.shape
        if self.trajectory is not None:
            rewards = np.asarray(self.trajectory.rewards)
            values = discounted(rewards.reshape(-1, rewards.shape[-1]), discount)
        else:
            recorder = (problem and problem.recorder) or EpisodeMean()
            states = jax.tree.map(
                lambda v: np.asarray(v).reshape(-1, *v.shape[len(shape) :]), self.recorder
            )
            values = scores_of(recorder, states, self.steps.size)
        return np.where(np.asarray(self.fault) == 0, values.reshape(shape), np.nan)


def simulate(
    agent: Agent,
    environment: Problem | Environment,
    key: Array,
    index: Array | int = 0,
    *,
    prior: Prior | Problem | None = None,
    lifetime: Lifetime | None = None,
    discount: float = 0.95,
    record: bool = False,
) -> Simulated:
    """Play lifetime number `index` of the seed behind `key`.

    A pure function that JAX can trace and map. The draws are those of `jbrl.play`: on CPUs so are
    all decisions of agents on finite MDPs, to the last bit; of agents with networks if as many
    lanes are mapped at once as `jbrl.play` plays in a group, else up to float32 rounding.

    Args:
      agent: a budget that JAX traces, such as `simulations`, is cut to the capacity that the agent
        is made with, such as `max_simulations`; of BOSS, more models than `max_models` are a fault.
      environment: a problem, whose environment number `index` is played, or an environment.
      key: of the seed, as `problem.key(seed)` returns it.
      index: [] int32.
      prior: what the agent is told; default: the problem itself, or the environment.
      lifetime: default: that of the problem or of the environment.
      discount: of the agent's prior, in finite MDPs.
      record: keep states and actions of T decisions in a finite MDP as well as rewards.

    Raises:
      JbrlError: an agent that cannot use what the prior offers, that learns on the host, that takes
        random numbers or times from the host, or that has no capacity for a budget which JAX
        traces; a parameter that JAX traces and that belongs to the compiled program; a prior of
        other sizes than the environment; an environment outside jbrl that breaks its contract; a
        parameter or a discount out of range, unless JAX traces it; a lifetime that the problem does
        not know.

    >>> problem, agent = jbrl.problem("GC"), jbrl.agents.Random()
    >>> one = lambda index: jbrl.simulate(agent, problem, problem.key(0), index)
    >>> jax.vmap(one)(jnp.arange(4)).scores().shape
    (4,)
    """
    name = type(agent).__name__
    if not isinstance(agent, Agent) or not isinstance(environment, Problem | Environment):
        raise JbrlError(
            f"simulate({shown(agent)}, {shown(environment)}): expected an agent, and a problem or "
            'an environment, such as jbrl.agents.Random() and jbrl.problem("GC")'
        )
    if isinstance(agent, OfflineSearch):
        raise JbrlError(
            f"{name} learns on the host before it plays: expected another agent, for example the "
            "strategy that it finds, `jbrl.play(…).learned.strategy`"
        )
    lifetime = lifetime or environment.lifetime
    _check(key, index, lifetime, prior)
    agent, discount = _checked(agent, name), plain(discount)
    if not isinstance(discount, jax.core.Tracer):
        check_discount(discount)
        if any(isinstance(problem, DirichletProblem) for problem in (environment, prior)):
            check_planned(discount)
    if isinstance(environment, Problem):
        test, where = environment.prior(lifetime, discount), environment.short_name
    else:
        if is_outside(type(environment)):
            check_environment(environment, f"environment '{type(environment).__name__}'")
        test, where = EnvironmentPrior(environment, jnp.float32(1), lifetime), "environment"
    if prior is not None:
        check_same_sizes(prior, environment)
    told = prior.prior(lifetime, discount) if isinstance(prior, Problem) else prior or test
    check_requirements(agent, name, told, where)
    check_host_values(agent, name, told)
    index = jnp.asarray(index, jnp.int32)
    # data, not constants that the compiler would compute with in another way
    data: Any = lax.optimization_barrier((as_arrays(agent), told, test))
    agent, told, test = data
    knowledge = train(agent, jax.random.fold_in(key, 2**32 - 1), told)
    unsound = nan_fault(() if knowledge is told else jax.tree.map(jnp.asarray, knowledge))
    if isinstance(environment, DirichletProblem | Tabular) and isinstance(lifetime, Steps):
        if isinstance(environment, DirichletProblem):
            unit = has_unit_concentrations(environment.mdps)
            inputs = draw_rollout(test, key, index, unit=unit)
        else:
            inputs = draw_inputs(test.environment.mdp, key, index, lifetime.steps)
        trajectory, fault = play_steps(agent, knowledge, inputs, keep=record)
        fault = jnp.where(unsound == 0, fault, unsound)
        return Simulated(jnp.int32(lifetime.steps), jnp.int32(0), fault, trajectory, None)
    recorder = environment.recorder if isinstance(environment, EnvironmentProblem) else None
    rules = Rules(agent, test.environment, recorder or EpisodeMean(), key, lifetime)
    lane = play_lifetime(rules, knowledge, index)
    fault = jnp.where(unsound == 0, lane.fault, unsound)
    return Simulated(lane.steps, lane.episodes, fault, None, lane.recorder)


def _check(key: Any, index: Any, lifetime: Any, prior: Any) -> None:
    """Refuse arguments of `simulate` of another kind; values that JAX traces are not known."""
    expect("key", key, Array | np.ndarray, "a key of JAX, as problem.key(seed) returns it")
    words = 0 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 1  # axes of a single key
    if key.ndim != words:
        raise JbrlError(f"key has shape {key.shape}: expected one key; jax.vmap maps over several")
    if not isinstance(index, jax.core.Tracer):
        check_count("index", plain(index), low=0)
    elif index.shape or not jnp.issubdtype(index.dtype, jnp.integer):
        raise JbrlError(f"index = {index.aval}: expected one integer; jax.vmap maps over several")
    expect("lifetime", lifetime, Lifetime, "for example jbrl.Steps(250) or jbrl.Episodes(10)")
    expect("prior", prior, Prior | Problem | None, "a problem or a prior")


def _checked(agent: Agent, name: str) -> Agent:
    """Return the agent with Python's numbers where its parameters are known.

    Raises:
      JbrlError: a parameter out of range; those that JAX traces are not known, and refused where
        they belong to the compiled program.
    """
    if isinstance(agent, MadeOfWeights) or not dataclasses.is_dataclass(agent):
        return agent
    for field in dataclasses.fields(agent):
        value = getattr(agent, field.name)
        if not isinstance(value, jax.core.Tracer):
            continue
        if field.metadata.get("static"):
            raise JbrlError(
                f"{name}: {field.name} is traced by JAX: expected one value, since it belongs to "
                "the compiled program"
            )
        if value.shape and kind_of(field) in (int, float, bool):
            raise JbrlError(
                f"{name}: {field.name} has shape {value.shape}: expected one value; jax.vmap maps "
                "over several"
            )
    agent = with_plain_numbers(agent)
    values = {
        f.name: getattr(agent, f.name)
        for f in dataclasses.fields(agent)
        if kind_of(f) in (int, float, bool, str)
    }
    known = {n: v for n, v in values.items() if not isinstance(v, jax.core.Tracer)}
    check_parameters(type(agent), known, name)
    return agent
