"""Score tables made by hand."""

import numpy as np
import pandas as pd


def returns_of(
    agents: dict[tuple[str, str], list[float]], experiment: str = "GC", seed: int = 0
) -> pd.DataFrame:
    """Score table of one experiment from {(algorithm, parameters): scores}."""
    rows = [(*agent, unit) for agent, scores in agents.items() for unit in range(len(scores))]
    algorithms, parameters, units = zip(*rows, strict=True)
    return pd.DataFrame(
        {
            "experiment": experiment,
            "algorithm": algorithms,
            "parameters": parameters,
            "unit": units,
            "seed": seed,
            "score": np.concatenate([np.asarray(v, np.float64) for v in agents.values()]),
        }
    )


# a score table with names that look like numbers and like a missing one
SCORES = pd.DataFrame(
    {
        "algorithm": ["A", "B", "NA", "1.10"],
        "environment": ["x", "x", "y", "y"],
        "score": [0.1, 1 / 3, -2.0, 1e300],
    }
)
