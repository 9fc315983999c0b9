"""Evaluation of any score table: its options here; percentiles, the game, intervals, ranks, metrics
in the modules.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

METHODS = ("pbp", "pbp-t", "bootstrap")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the intervals. The defaults are the published program's, without its defects.

    Attributes:
      delta: Probability that any interval of a method misses, above 0 up to 0.5.
      quantile: PBP-t quantiles: as in the published program, or as in the paper's text.
      published: Keep two defects of the published program, to compare with it.
      resamples: Number of bootstrap resamples.
      seed: Seed of all resampling.
      interval: Type of the bootstrap intervals.
    """

    delta: float = 0.05
    quantile: Literal["code", "paper"] = "code"
    published: bool = False
    resamples: int = 10_000
    seed: int = 0
    interval: Literal["percentile", "bca"] = "percentile"


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """Options of `jbrl.evaluate`, `jbrl.metrics` and `jbrl evaluate`: those of the intervals, and
    which scores are taken.

    Attributes:
      method: Method of the intervals.
      bounds (FILE): Columns environment, low, high: what scores can be (default: the extremes
        observed).
      identical (FILE): Columns environment, algorithm, algorithm: which are the same definition
        there.
      algorithms (A,B…): Only these.
      environments (X,Y…): Only these.
      algorithm_column (NAME): Column of algorithms. May be repeated: the names are joined.
      environment_column (NAME): Column of environments. May be repeated: the names are joined.
      score_column (NAME): Column of scores.
      plug_in: Compare an algorithm with itself by its samples, as in the paper's text, instead of
        counting 1/2.
      oracles: Of directories of results, take algorithms that see the environment itself as well.
      minutes (X>=0): Refuse a method that is expected to take longer.
    """

    method: Literal["pbp", "pbp-t", "bootstrap", "all"] = "pbp"
    bounds: str | Path | None = None
    identical: str | Path | None = None
    algorithms: Sequence[str] | None = None
    environments: Sequence[str] | None = None
    algorithm_column: Sequence[str] | None = None
    environment_column: Sequence[str] | None = None
    score_column: str = "score"
    plug_in: bool = False
    oracles: bool = False
    minutes: float = 10.0

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that are meant."""
        return METHODS if self.method == "all" else (self.method,)
