"""One-sided confidence limits of means."""

import math

import numpy as np
from scipy.stats import t as student


def standard_error(samples: np.ndarray) -> float:
    """Return the standard error of the mean of independent samples, at least two."""
    return float(np.std(samples, ddof=1) / math.sqrt(len(samples)))


def margin(samples: np.ndarray, confidence: float) -> float:
    """Return how far the mean of samples lies from its one-sided confidence limit, by
    Student's distribution.
    """
    return float(student.ppf(confidence, len(samples) - 1)) * standard_error(samples)
