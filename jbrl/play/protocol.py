"""The rules of one experiment, and its measurements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import jbrl
from jbrl.agents.complete import parameters_of
from jbrl.base import notebook
from jbrl.base.errors import JbrlError, check_count, check_discount
from jbrl.environments.spec import Lifetime, Steps
from jbrl.play.offline import Learned
from jbrl.problems.features import check_precision
from jbrl.problems.hosted import HostProblem
from jbrl.problems.jordan import check_learning
from jbrl.problems.prior import Prior
from jbrl.problems.problem import DirichletProblem, EnvironmentProblem, Problem, check_same_sizes
from jbrl.rollout.contract import Agent, OfflineSearch, check_requirements

if TYPE_CHECKING:
    from jbrl.policy import Policy

DEFAULT_LIFETIME = Steps(250)


@dataclass(frozen=True)
class Protocol:
    """The rules of one experiment.

    Raises:
      JbrlError: a number out of range, or a prior that does not fit the test distribution.
    """

    prior: Problem
    test: Problem
    n_environments: int = 500
    seed: int = 0
    lifetime: Lifetime = DEFAULT_LIFETIME
    discount: float = 0.95  # of the criterion; not used where a recorder makes the score

    def __post_init__(self) -> None:
        check_count("n_environments", self.n_environments)
        check_count("seed", self.seed, 2**32 - 1, low=0)
        for name in ("n_environments", "seed"):  # integers of NumPy are none of JSON
            object.__setattr__(self, name, int(getattr(self, name)))
        check_discount(self.discount)
        check_same_sizes(self.prior, self.test)
        for problem in {id(p): p for p in (self.prior, self.test)}.values():
            if isinstance(problem, DirichletProblem):
                check_precision(problem, self.discount)
        # refuses a lifetime that the problem does not know
        self.test.prior(self.lifetime, self.discount)
        self.agent_prior()

    @property
    def in_blocks(self) -> bool:
        """True if lifetimes are played in blocks of steps by the episode driver, and scored by a
        recorder.
        """
        return self.test.recorder is not None

    @property
    def together(self) -> bool:
        """True if settings belong to lanes, so that units which share shapes are played at once."""
        return isinstance(self.test, EnvironmentProblem) and self.test.together

    @property
    def horizon(self) -> int:
        """Decisions of a lifetime of known length."""
        if not isinstance(self.lifetime, Steps):
            raise TypeError(f"a lifetime of {self.lifetime} has no horizon")
        return self.lifetime.steps

    @property
    def expected_steps(self) -> float:
        """About how many decisions a lifetime takes, for estimates."""
        return self.test.expected_steps(self.lifetime)

    def agent_prior(self) -> Prior:
        """Return the prior of the agents.

        A Dirichlet prior has no episodes: where lifetimes are made of these, its horizon is the
        expected number of decisions.
        """
        lifetime = self.lifetime
        if isinstance(self.prior, DirichletProblem) and self.in_blocks:
            lifetime = Steps(math.ceil(self.expected_steps))
        return self.prior.prior(lifetime, self.discount)

    def test_prior(self) -> Prior:
        """Return the distribution that environments are drawn from, in the form of a prior."""
        return self.test.prior(self.lifetime, self.discount)

    def check_agent(self, agent: Agent, name: str) -> None:
        """Raise `JbrlError` if an agent cannot use what the prior offers."""
        check_requirements(agent, name, self.agent_prior(), self.prior.short_name)
        asked = parameters_of(agent).get("learning_episodes")
        check_learning(self.test.recorder, asked, self.test.short_name)
        hosted = isinstance(self.test, HostProblem)
        if (self.together or hosted) and isinstance(agent, OfflineSearch):
            raise JbrlError(
                f"{name} needs a prior to draw environments from: '{self.prior.short_name}' is "
                f"{'stepped on the host' if hosted else 'one environment of a sweep'}"
            )


@dataclass(frozen=True)
class Chunk:
    """Results of consecutive lifetimes, the first being number `start`."""

    start: int
    # [n] float64, scores: discounted returns, or what the recorder makes of a lifetime
    returns: np.ndarray
    # states [n, T+1] int32, actions [n, T] int32, rewards [n, T] float32
    trajectories: dict[str, np.ndarray] | None
    online_seconds: float  # wall time of all decisions of the chunk
    decisions: int  # that they took
    # what the recorder keeps beside the score, [n] float64 each
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    # [] seconds: interquartile range of repetitions of `online_seconds`; NaN: not repeated
    online_spread: float = math.nan
    # [n] bool, lifetimes that failed, whose scores and metrics are NaN; None: none
    failed: np.ndarray | None = None
    failure: str = ""  # why the first of them did
    # as `online_seconds`, of each CPU device that worked: less where others kept the machine busy
    processor_seconds: float = math.nan

    @property
    def lost(self) -> np.ndarray:
        """True for lifetimes that failed, [n] bool."""
        return np.zeros(len(self.returns), bool) if self.failed is None else self.failed


def check_returns(chunk: Chunk) -> Chunk:
    """Return the chunk, if all its scores are finite numbers, but for lifetimes that have failed.

    Raises:
      JbrlError: names the first lifetime of which it is not.
    """
    finite = np.isfinite(chunk.returns) | chunk.lost
    if not finite.all():
        first = int(np.argmin(finite))
        raise JbrlError(
            f"the score in environment {chunk.start + first} is {chunk.returns[first]}: expected a "
            "finite number; sums of rewards are kept up to 3.4e38"
        )
    return chunk


class Trained(NamedTuple):
    """An agent that is ready to play, and the rules that it was trained for."""

    given: Agent
    agent: Agent  # that plays, parameters as arrays; for an agent that searches, what it found
    knowledge: Any  # what it has learned on the prior
    protocol: Protocol
    learned: Learned | None
    offline_seconds: float
    compile_seconds: float


@dataclass(frozen=True)
class Played:
    """Everything measured of one agent in one experiment. Times are wall seconds."""

    # [N] float64, scores: discounted returns, or what the recorder makes of a lifetime
    returns: np.ndarray
    trajectories: dict[str, np.ndarray] | None
    offline_seconds: float
    online_seconds: float  # per decision, amortised over the lifetimes played at once
    # of one decision, to a caller who plays one lifetime: median and 99th percentile
    latency_seconds: float | None
    compile_seconds: float
    device: str
    batch: int  # lifetimes played at once
    decisions: int  # in all lifetimes
    metrics: dict[str, np.ndarray]  # what the recorder keeps beside the score, [N] float64 each
    learned: Learned | None = None  # what an agent that searches offline has found
    # why the first of the lifetimes that failed did, whose scores and metrics are NaN; "": none
    failure: str = ""
    latency_p99_seconds: float | None = None
    trained: Trained | None = field(default=None, repr=False, compare=False)

    def policy(self) -> "Policy":
        """Return what has played as a policy, to be saved and played in a loop of one's own.

        Raises:
          JbrlError: it has to be shown the environment.
        """
        return jbrl.policy(self)

    def __repr__(self) -> str:
        """Return the mean score, its standard error and the time per decision."""
        facts = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"<Played: {facts}>"

    @property
    def _whole(self) -> np.ndarray:
        """True for lifetimes that have not failed: [N] bool."""
        return ~np.isnan(self.returns)

    def _facts(self) -> dict[str, str]:
        """Return the facts that describe the scores in few words."""
        whole = self.returns[self._whole]
        n, failed = len(whole), len(self.returns) - len(whole)
        mean, error = whole.mean(), whole.std(ddof=1) / n**0.5 if n > 1 else 0.0
        *_, middle = notebook.numbers(mean - error, mean + error, mean)
        lost = f", of which {failed:,} failed and have no score" if failed else ""
        found = {
            "lifetimes": f"{len(self.returns):,}{lost}",
            "mean score": middle + (f" (standard error {error:.2g})" if n > 1 else ""),
            "offline": notebook.duration(self.offline_seconds),
            "per decision": notebook.duration(self.online_seconds),
        }
        if self.latency_seconds is not None and self.latency_p99_seconds is not None:
            median, high = map(notebook.duration, (self.latency_seconds, self.latency_p99_seconds))
            found["latency"] = f"{median} (99th percentile {high})"
        return found | {"device": self.device}

    def _repr_html_(self) -> str:
        """Table of facts and a histogram of scores, for notebooks."""
        means = {name: f"mean {v[self._whole].mean():.5g}" for name, v in self.metrics.items()}
        kept = {name: f"{v.dtype}{list(v.shape)}" for name, v in (self.trajectories or {}).items()}
        content = notebook.facts(self._facts() | means | kept)
        return content + notebook.histogram(self.returns[self._whole], "score of a lifetime")


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return consecutive chunks, none or more, as one."""

    def arrays(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        names = parts[0] if parts else ()
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    return Chunk(
        start=chunks[0].start if chunks else 0,
        returns=np.concatenate([np.zeros(0), *(chunk.returns for chunk in chunks)]),
        trajectories=arrays([c.trajectories for c in chunks if c.trajectories is not None]) or None,
        online_seconds=sum(chunk.online_seconds for chunk in chunks),
        decisions=sum(chunk.decisions for chunk in chunks),
        metrics=arrays([chunk.metrics for chunk in chunks]),
        online_spread=sum(chunk.online_spread for chunk in chunks),
        failed=np.concatenate([np.zeros(0, bool), *(chunk.lost for chunk in chunks)]),
        failure=next((chunk.failure for chunk in chunks if chunk.failure), ""),
        processor_seconds=sum(chunk.processor_seconds for chunk in chunks),
    )


def played(parts: list[Chunk], **facts: object) -> Played:
    """Join the chunks of an experiment.

    Raises:
      JbrlError: all lifetimes have failed.
    """
    whole = joined(parts)
    if whole.failure and np.isnan(whole.returns).all():
        raise JbrlError(whole.failure)
    return Played(
        returns=whole.returns,
        trajectories=whole.trajectories,
        online_seconds=whole.online_seconds / whole.decisions,
        decisions=whole.decisions,
        metrics=whole.metrics,
        failure=whole.failure,
        **facts,  # type: ignore[arg-type]
    )
