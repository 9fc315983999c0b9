"""Columns of the score table and figures of metrics, which are all that running and reading share.

One row is one score: that of one agent in one environment, for example its discounted return on one
MDP.
"""

import dataclasses
from typing import Literal

# an agent in an experiment; `parameters` is JSON text with sorted keys
AGENT = ("experiment", "algorithm", "parameters")
# an environment drawn, an MDP for example: pairing goes by both
MDP = ("seed", "unit")
RETURNS = (*AGENT, *MDP, "score")
ALL = "(all)"  # in the column experiment of a result: all of them together


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricFigure:
    """A figure that an environment or a problem brings into its report, as data alone.

    It shows a metric of the best agent of each algorithm: its mean over lifetimes with a 95%
    interval, or its distribution.
    """

    metric: str  # a counter of `Environment.metrics`, or another record of the recorder
    title: str
    caption: str = ""
    per: str = ""  # a metric that it is divided by in each lifetime, for example "episodes"
    kind: Literal["means", "distribution"] = "means"
