"""Score tables whose evaluation is known, or can be computed by the twin."""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import ndtri

DATA = Path(__file__).parents[2] / "experiments" / "evaluation"


def mini() -> pd.DataFrame:
    """Three algorithms on two environments, normal quantiles rounded to one decimal; results in
    `mini_expected.csv`.
    """
    parts = []
    for i in range(3):
        T = 200 + 100 * i
        for j, centre in enumerate((0.5 * i, -0.3 * i)):
            scores = np.round(centre + (1 + 0.25 * j) * ndtri((np.arange(T) + 0.5) / T), 1)
            parts.append(
                pd.DataFrame({"algorithm": f"A{i}", "environment": f"E{j}", "score": scores})
            )
    return pd.concat(parts, ignore_index=True)


def expected() -> pd.DataFrame:
    return pd.read_csv(DATA / "mini_expected.csv", keep_default_na=False)


def table_of(samples: dict[tuple[int, int], np.ndarray]) -> pd.DataFrame:
    """Score table of {(algorithm, environment): scores}, numbered."""
    parts = [
        pd.DataFrame({"algorithm": f"A{i}", "environment": f"E{j}", "score": np.asarray(x, float)})
        for (i, j), x in samples.items()
    ]
    return pd.concat(parts, ignore_index=True)


def random_samples(
    seed: int, n: int, m: int, sizes: tuple[int, int] = (3, 9), values: int | None = 5
) -> dict[tuple[int, int], np.ndarray]:
    """Few samples with many ties (`values` distinct ones), or none (None)."""
    generator = np.random.default_rng(seed)
    samples = {}
    for i in range(n):
        for j in range(m):
            T = int(generator.integers(*sizes))
            samples[i, j] = (
                generator.normal(size=T) + 0.3 * i
                if values is None
                else generator.integers(0, values, T) + (i + j) % 2
            )
    return samples
