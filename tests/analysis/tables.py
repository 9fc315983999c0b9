"""Score tables made by hand."""

import numpy as np
import pandas as pd


def returns_of(
    agents: dict[tuple[str, str], list[float]], experiment: str = "GC", seed: int = 0
) -> pd.DataFrame:
    """Score table of one experiment from {(algorithm, parameters): scores}."""
    frames = [
        pd.DataFrame(
            {
                "experiment": experiment,
                "algorithm": algorithm,
                "parameters": parameters,
                "unit": np.arange(len(scores)),
                "seed": seed,
                "score": np.asarray(scores, np.float64),
            }
        )
        for (algorithm, parameters), scores in agents.items()
    ]
    return pd.concat(frames, ignore_index=True)
