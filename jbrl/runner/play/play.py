"""Play one agent in one experiment, from Python."""

from pathlib import Path
from typing import Any

from jbrl.agents.agent import Agent, check_agent
from jbrl.environments.lifetime import Episodes, Lifetime, Steps
from jbrl.errors import JbrlError
from jbrl.problems.problem import Problem, problem
from jbrl.runner.play import batching
from jbrl.runner.play.experiment import Run
from jbrl.runner.play.lifetimes import LifetimeRun
from jbrl.runner.play.protocol import Played, Protocol, played


def make_run(agent: Agent, protocol: Protocol, **options: Any) -> Run:
    """Return the run of an agent in an experiment, of the kind that its lifetimes need. Arguments as those of `Run`."""
    return (LifetimeRun if protocol.in_blocks else Run)(agent, protocol, **options)


def lifetime_of(test: Problem, horizon: int | None, episodes: int | None) -> Lifetime:
    """Return the lifetime that is asked for, or that of the problem.

    Raises:
      JbrlError: both are asked for, or a number is out of range.
    """
    if horizon is not None and episodes is not None:
        raise JbrlError(f"both horizon = {horizon} and episodes = {episodes}: expected one of them")
    if episodes is not None:
        given = test.lifetime
        return Episodes(episodes, given.max_steps) if isinstance(given, Episodes) else Episodes(episodes)
    return test.lifetime if horizon is None else Steps(horizon)


def play(
    agent: Agent,
    *,
    test: str | Problem | None = None,
    prior: str | Problem | None = None,
    n_environments: int = 500,
    seed: int = 0,
    horizon: int | None = None,
    episodes: int | None = None,
    discount: float = 0.95,
    record: bool = False,
    latency: bool = False,
) -> Played:
    """Play `agent`, told `prior`, one lifetime in each of `n_environments` environments drawn from `test`.

    Args:
      test, prior: a name of the catalogue, an environment outside the package as `module:Class`, the path of a JSON file, or a `Problem`.
        One of them may be left out: it is the other one then.
      horizon: decisions of each lifetime; default: the lifetime of the test problem (250 for Dirichlet distributions).
      episodes: episodes of each lifetime, in place of `horizon`.
      discount: of the criterion of lifetimes in finite MDPs; other problems are scored by their recorder.
      record: keep states, actions and rewards; for finite MDPs.
      latency: measure the time per decision with a single lifetime as well.

    Raises:
      JbrlError: a parameter or a name that is not accepted, or an agent that cannot use what the prior offers.
    """
    batching.use_all_cores()
    check_agent(agent)
    if test is None and prior is None:
        raise JbrlError('test: expected a problem, for example test="GC"')
    tested = _problem(prior if test is None else test)  # type: ignore[arg-type]
    prior_problem = tested if prior is None or test is None else _problem(prior)
    protocol = Protocol(prior_problem, tested, n_environments, seed, lifetime_of(tested, horizon, episodes), discount)
    protocol.check_agent(agent, type(agent).__name__)
    run = make_run(agent, protocol, record=record)
    run.prepare()
    parts = list(run.chunks())
    return played(
        parts,
        offline_seconds=run.offline_seconds,
        latency_seconds=run.latency() if latency else None,
        compile_seconds=run.compile_seconds,
        device=run.device,
        batch=run.batch,
        learned=run.learned,
    )


def _problem(given: str | Problem) -> Problem:
    return given if isinstance(given, Problem) else problem(str(given), Path.cwd())
