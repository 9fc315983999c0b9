"""Units of work: the parts of a study, and their identities."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jbrl.base.errors import JbrlError, expect
from jbrl.base.plugins import is_outside, source_digest

if TYPE_CHECKING:  # results are read without JAX
    from jbrl.play.protocol import Protocol
    from jbrl.rollout.contract import Agent

LATENCY_DECISIONS = 256  # over which the latency of a unit is measured
CRITERION = "discounted return"  # of what has no recorder, which says what its scores are
FORMAT = 1  # of identities and result files; raised when either changes its meaning


@dataclasses.dataclass(frozen=True)
class Unit:
    """One agent with its parameters, in one experiment, with one seed."""

    experiment: str
    prior: str  # as the study names it
    test: str
    protocol: "Protocol"
    algorithm: str  # as it is shown: its name in the register, if it has one
    agent: "Agent"
    parameters: dict[str, Any]
    # digest of the source of the agent, when it is not jbrl's own (`plugins.source_digest`)
    source: str | None = None
    written: str | None = None  # the algorithm as the study writes it, where that is not its name
    latency: bool = False
    record: bool = False
    # names of the parameters that the study sets, which the label shows; None: all
    named: tuple[str, ...] | None = None
    # lifetimes between two checkpoints; None: as many as one compiled call plays
    chunk: int | None = None

    @property
    def configuration(self) -> dict[str, Any]:
        """Everything that the returns depend on."""
        protocol = self.protocol
        if protocol.in_blocks:
            criterion: dict[str, Any] = {
                "lifetime": dataclasses.asdict(protocol.lifetime),
                "recorder": repr(protocol.test.recorder),
            }
            recorder = type(protocol.test.recorder)
            if is_outside(recorder):
                criterion["recorder_source"] = source_digest(recorder)
        else:
            criterion = {"discount": protocol.discount, "horizon": protocol.horizon}
        return {
            "format": FORMAT,
            "experiment": self.experiment,
            "prior": protocol.prior.digest,
            "test": protocol.test.digest,
            **criterion,
            "n_mdps": protocol.n_environments,
            "seed": protocol.seed,
            "algorithm": self.written or self.algorithm,
            "agent_version": self.agent.version,
            "agent_source": self.source,
            "parameters": self.parameters,
        }

    @cached_property
    def id(self) -> str:
        """Name of the unit's result file: 32 hexadecimal digits of the SHA-256 of its
        configuration.
        """
        return digest(self.configuration, 32)

    @cached_property
    def knowledge_id(self) -> str | None:
        """Name of the file of what the agent finds on the prior, if it searches: the same in all
        experiments that share the prior.
        """
        from jbrl.rollout.contract import OfflineSearch

        if not isinstance(self.agent, OfflineSearch):
            return None
        irrelevant = ("experiment", "test", "n_mdps")
        relevant = {
            name: value for name, value in self.configuration.items() if name not in irrelevant
        }
        return digest(relevant, 32)

    @property
    def is_oracle(self) -> bool:
        """True if the agent is shown the environment: a reference line, not a competitor."""
        from jbrl.agents.complete import is_oracle

        return is_oracle(self.agent)

    @property
    def rules(self) -> dict[str, Any]:
        """Rules of its experiment and its score, in words, and the figures that it brings, for the
        manifest.
        """
        # "steps" or "episodes"
        kind, n = next(iter(dataclasses.asdict(self.protocol.lifetime).items()))
        criterion = CRITERION
        if self.protocol.in_blocks:
            criterion = getattr(self.protocol.test.recorder, "criterion", "score")
        rules = {"criterion": criterion, "lifetime": f"{n:,} {kind if n != 1 else kind[:-1]}"}
        figures = [dataclasses.asdict(f) for f in getattr(self.protocol.test, "figures", ())]
        return rules | ({"figures": figures} if figures else {})

    @property
    def label(self) -> str:
        """The unit in words, with the parameters that the study sets, for example
        `GC/e-Greedy(epsilon=0.1) seed 0`: what `--only` is matched against.
        """
        return self._label(self.named)

    @property
    def full_label(self) -> str:
        """The label with all parameters, which `--only` may match, too."""
        return self._label(None)

    def _label(self, named: tuple[str, ...] | None) -> str:
        values = ", ".join(
            f"{name}={json.dumps(value)}"
            for name, value in self.parameters.items()
            if named is None or name in named
        )
        agent = f"{self.algorithm}({values})" if values else self.algorithm
        return f"{self.experiment}/{agent} seed {self.protocol.seed}"

    @property
    def decisions(self) -> int:
        """Decisions of all its lifetimes: an estimate where episodes differ in length."""
        return round(self.protocol.n_environments * self.protocol.expected_steps)

    def row(self) -> dict[str, Any]:
        """Return the columns of the score table that are known before the unit is run."""
        return {
            "experiment": self.experiment,
            "prior": self.prior,
            "test": self.test,
            "algorithm": self.algorithm,
            "parameters": canonical(self.parameters),
            "seed": self.protocol.seed,
        }


def canonical(value: Any) -> str:
    """Write JSON text of `value`, the same for any order of its keys."""
    return json.dumps(value, sort_keys=True, allow_nan=False)


def digest(value: Any, digits: int) -> str:
    """Return so many hexadecimal digits of the SHA-256 of a value as `canonical` writes it."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:digits]


def select(
    units: Sequence[Unit], only: str | None = None, shard: str | None = None, given: str = "--only"
) -> list[Unit]:
    """Return the units whose label matches the regular expression `only`, and of these every N-th
    for shard `I/N`.

    Args:
      given: name of `only` in messages.

    Raises:
      JbrlError: not a regular expression, nothing matches, or no such shard.
    """
    chosen = list(units)
    if only is not None:
        expect("only", only, str, "a regular expression")
        try:
            pattern = re.compile(only)
        except re.error as error:
            raise JbrlError(f"{given} '{only}': not a regular expression ({error})") from None
        chosen = [
            unit for unit in chosen if pattern.search(unit.label) or pattern.search(unit.full_label)
        ]
        if not chosen:
            raise JbrlError(
                f"{given} '{only}' matches none of the {len(units)} units, for example not "
                f"'{units[0].label}'"
            )
    if shard is not None:
        number, total = _shard(shard)
        chosen = chosen[number - 1 :: total]
    return chosen


def _shard(text: str) -> tuple[int, int]:
    parts = re.fullmatch(r"(\d+)/(\d+)", str(text).strip())
    number, total = (int(parts[1]), int(parts[2])) if parts else (0, 0)
    if not 1 <= number <= total:
        raise JbrlError(
            f"--shard '{text}': expected I/N with 1 <= I <= N, for example 2/3 for the second of "
            "three"
        )
    return number, total
