"""Searches on the prior: strategies tried in batches, the clock, and the use of the findings."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array

from jbrl.agents.registry import AGENTS, registered_name
from jbrl.base.errors import JbrlError, bytes_text
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.play import batching, compilation
from jbrl.play.timing import since
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Agent, Findings, OfflineSearch
from jbrl.rollout.faults import ILLEGAL_ACTION, train
from jbrl.rollout.steps import discounted, draw_rollout, play_steps

# on each CPU device: fewer than where MDPs are played, since the first rounds of a search request
# for few
LANES = 64
WEIGHTS = "weights/"  # what the names of arrays begin with that a strategy consists of
# of so many lanes that a call may play on each CPU device; later rounds request hundreds
BLOCKS = 8


class Trials:
    """Player of strategies on MDPs drawn from the prior: `rollout.contract.Trials` on the
    devices.

    Args:
      prior: the distribution that MDPs are drawn from, with the discount and the number
        of decisions.
      discount: in double precision.
      key: all randomness depends on it, the arm and the number of the pull.
      lanes: trajectories that each device plays at once, accelerators at most; None: few on CPUs,
        on accelerators as many as are wanted.
      memory: bytes that may be used; 0: unknown, no bound.
    """

    def __init__(
        self,
        prior: DirichletPrior,
        discount: float,
        key: Array,
        devices: list[jax.Device],
        lanes: int | None = None,
        memory: int = 0,
    ) -> None:
        self._prior, self._discount, self._devices = prior, discount, devices
        self.key, self.memory = key, memory
        unit = isinstance(prior, DirichletPrior) and has_unit_concentrations(prior.mdps)
        self._trial = _trial_unit if unit else _trial
        self._on_cpu = devices[0].platform == "cpu"
        self._lanes, self._max_lanes = lanes or LANES, lanes or batching.WIDEST_ON_ACCELERATOR
        self._blocks = BLOCKS if self._on_cpu else 1
        self._programs: dict[Any, compilation.Program] = {}
        self._learn: Any = None
        self._shared: Any = None

    @property
    def width(self) -> int:
        return self._lanes * len(self._devices)

    def compile_round(self, fn: Callable[[Any], Any], example: Any) -> Callable[[Any], Any]:
        device = self._devices[0]
        program = compilation.compile_once(fn, jax.device_put(example, device))
        if self.memory and program.bytes > self.memory:
            raise JbrlError(
                f"a round of training takes {bytes_text(program.bytes)}: expected at most "
                f"{bytes_text(self.memory)}, the memory that may be used (--memory); a smaller "
                "network or batch takes less"
            )
        return lambda arguments: program.call(jax.device_put(arguments, device))

    def compile(self, examples: Sequence[Agent], wanted: int) -> None:
        if not self._on_cpu:
            self._lanes = min(
                self._max_lanes, batching.lanes_on_accelerator(wanted, len(self._devices))
            )
        learner = jax.device_put(
            (jax.tree.map(lambda v: v[0], examples[0]), self.key, self._prior), self._devices[0]
        )
        shared = (compilation.shapes_of(train, *learner), self._prior, self.key)
        number = jax.ShapeDtypeStruct((), np.int32)
        lanes = [
            (
                jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), agents),
                number,
                number,
            )
            for agents in examples
        ]
        size = (self._lanes, self._devices, self._blocks)
        (learning, *programs), _ = compilation.compile_together(
            lambda: compilation.compile_once(train, *learner),
            *(
                functools.partial(batching.compile_blocks, self._trial, shared, lane, *size)
                for lane in lanes
            ),
        )
        self._learn = functools.partial(learning.call, *learner)
        self._programs = dict(zip(map(_structure, examples), programs, strict=True))

    def __call__(self, agents: Agent, arms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        if self._shared is None:  # within the clock, as part of the search
            self._shared = batching.spread(
                [(self._learn(), self._prior, self.key)] * len(self._devices), self._devices
            )
        program, returns = self._programs[_structure(agents)], []
        for call in batching.calls(len(arms), self._lanes, len(self._devices), self._blocks):
            lanes = jax.tree.map(
                lambda v, call=call: v[call.lanes],
                (agents, np.asarray(arms, np.int32), np.asarray(numbers, np.int32)),
            )
            played = (
                batching.parts(v, call, self._lanes)
                for v in program.call(self._shared, call.blocks, lanes)
            )
            found = [
                np.where(legal, discounted(rewards, self._discount), np.nan)
                for rewards, legal in zip(*played, strict=True)
            ]
            returns.append(np.concatenate(found)[: call.wanted])
        return np.concatenate(returns)


def _structure(agents: Agent) -> Any:
    """Return the key of a compiled program: everything except the number of agents."""
    return jax.tree.structure(agents), tuple(v.shape[1:] for v in jax.tree.leaves(agents))


@dataclasses.dataclass(frozen=True)
class Learned:
    """Findings of a search, and their cost.

    The clock counts wall seconds, without compilation.
    """

    strategy: Agent  # one of the register, or made of `weights` by `agent`
    arms: dict[str, np.ndarray]  # what was tried: `OfflineSearch.arms`
    consumed: int  # trajectories that the search made use of
    simulated: int  # trajectories played
    seconds: float
    agent: Agent | None = None  # that has searched, where the strategy consists of weights
    weights: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # seconds of all threads of the process; NaN: not known, as of a search that was interrupted
    processor: float = math.nan

    def __repr__(self) -> str:
        """Return the strategy and its cost, not the arrays."""
        found = f"{_count(self.weights):,} weights" if self.weights else repr(self.strategy)
        return f"<Learned: {found}, {self.consumed:,} trajectories, {self.seconds:.3g} s>"

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arms and the weights, by the names that they are stored under."""
        return {**self.arms, **{WEIGHTS + name: v for name, v in self.weights.items()}}

    def describe(self) -> dict[str, Any]:
        """Return all but the arrays, as plain data."""
        named: Any = self.agent if self.weights else self.strategy
        strategy: dict[str, Any] = {
            "algorithm": registered_name(type(named)),
            "parameters": dataclasses.asdict(named),
        }
        if self.weights:
            strategy["weights"] = _count(self.weights)
        return {
            "strategy": strategy,
            "consumed": self.consumed,
            "simulated": self.simulated,
            "seconds": self.seconds,
            **({} if math.isnan(self.processor) else {"processor_seconds": self.processor}),
        }

    @classmethod
    def read(cls, described: dict[str, Any], arrays: dict[str, np.ndarray]) -> "Learned":
        """Invert `describe` and `arrays`.

        Raises:
          JbrlError: the strategy is an agent that is not registered here.
        """
        name, parameters = (described["strategy"][key] for key in ("algorithm", "parameters"))
        if name not in AGENTS:
            raise JbrlError(
                f"the strategy found is an agent called '{name}', which is unknown here: import "
                "its module first"
            )
        consumed, simulated, seconds = (
            described[key] for key in ("consumed", "simulated", "seconds")
        )
        processor = described.get("processor_seconds", math.nan)
        arms = {key: v for key, v in arrays.items() if not key.startswith(WEIGHTS)}
        weights = {
            key.removeprefix(WEIGHTS): v for key, v in arrays.items() if key.startswith(WEIGHTS)
        }
        agent: Any = AGENTS[name].agent(**parameters)
        if weights:
            strategy = agent.trained(weights)
            return cls(strategy, arms, consumed, simulated, seconds, agent, weights, processor)
        return cls(agent, arms, consumed, simulated, seconds, processor=processor)


def _count(weights: dict[str, np.ndarray]) -> int:
    """Return the number of weights that were learned: without plans and sizes, where these are
    apart.
    """
    learned = [weights["parameters"]] if "parameters" in weights else weights.values()
    return sum(v.size for v in learned)


class SearchCheckpoint:
    """Storage for the findings of a search.

    This one stores nothing; inherit from it to store findings.
    """

    def learned(self) -> Learned | None:
        """Return the findings of an earlier search with the same outcome."""
        return None

    def unfinished(self) -> tuple[Findings, float] | None:
        """Return the findings of an earlier search that was interrupted, and the seconds that it
        took.
        """
        return None

    def advanced(self, findings: Findings, seconds: float) -> None:
        """Record that a round is done."""

    def interrupted(self, findings: Findings, seconds: float) -> None:
        """Record that the search stops here for now."""

    def concluded(self, learned: Learned) -> None:
        """Record that the search is done."""


def learn(
    agent: OfflineSearch,
    seed: int,
    prior: DirichletPrior,
    trials: Trials,
    checkpoint: SearchCheckpoint,
) -> tuple[Learned, float]:
    """Search, or read the earlier findings.

    Returns: what was found, and the wall seconds that getting ready took, nearly all of them
      compilation: not part of the search's own.

    Raises:
      JbrlError: the search has found nothing.
    """
    found = checkpoint.learned()
    if found:
        return found, 0.0
    before, seconds = checkpoint.unfinished() or (None, 0.0)
    steps, began = agent.search(seed, prior, trials, before), time.perf_counter()
    findings = next(steps)  # compiles
    preparing, worked = since(began), 0.0 if before is None else math.nan
    try:
        while True:
            started, working = time.perf_counter(), time.process_time()
            step = next(steps, None)
            seconds += since(started)
            worked += max(0.0, time.process_time() - working)
            if step is None:
                break
            findings = step
            checkpoint.advanced(findings, seconds)
    except KeyboardInterrupt:
        checkpoint.interrupted(findings, seconds)
        raise
    learned = Learned(
        agent.strategy(findings),
        agent.arms(findings),
        findings.consumed,
        findings.simulated,
        seconds,
        agent,  # type: ignore[arg-type]
        agent.weights(findings),
        worked,
    )
    checkpoint.concluded(learned)
    return learned, preparing


# What follows is traced: functions of (what all lanes share, what belongs to one).


def _tried(
    shared: tuple[Any, DirichletPrior, Array], lane: tuple[Agent, Array, Array], *, unit: bool
) -> tuple[Array, Array]:
    """Return the rewards [T] of one trajectory of an agent, and whether it always had an action to
    play.
    """
    knowledge, prior, key = shared
    agent, arm, number = lane
    own = jax.random.fold_in(key, arm)
    drawn = draw_rollout(prior, own, number, unit=unit)
    trajectory, fault = play_steps(agent, knowledge, drawn, keep=False)
    return trajectory.rewards, fault != ILLEGAL_ACTION


_trial, _trial_unit = (functools.partial(_tried, unit=unit) for unit in (False, True))
