"""Sampled MDPs and the values that an agent earns in them once it is shown them."""

import dataclasses

import numpy as np
from scipy.special import betaincinv
from scipy.stats import qmc

from jbrl.bayes_optimal.model import Model

MOST_FREE = qmc.Sobol.MAXDIM  # free transition probabilities, each a dimension of a sequence
SMALLEST_LOG = -700.0  # of a probability: below, exp() is 0 in double precision


@dataclasses.dataclass(frozen=True, eq=False)
class SampledMDPs:
    """MDPs drawn from the prior: the logarithms of the rows of each block."""

    log_rows: tuple[np.ndarray, ...]  # by block, [A, K, M] float64

    @property
    def n_mdps(self) -> int:
        return self.log_rows[0].shape[-1] if self.log_rows else 1


def draw(model: Model, n_mdps: int, seed: int | np.random.SeedSequence) -> SampledMDPs:
    """Draw MDPs from the prior, each of them by itself a draw from the prior, together spread
    evenly.

    A scrambled Sobol' sequence (Owen 1998) is uniform in each of its points. The rows are made by
    stick-breaking: the share of successor k of what the earlier ones have left has a
    Beta distribution.

    Args:
      n_mdps: a power of 2.
    """
    generator = np.random.default_rng(seed)
    uniforms = qmc.Sobol(max(model.n_free, 1), scramble=True, rng=generator).random(n_mdps)
    column, found = 0, []
    for block in model.blocks:
        log_rows = np.full((*block.concentrations.shape, n_mdps), SMALLEST_LOG)
        for row, weights in enumerate(block.concentrations):
            support = np.flatnonzero(weights)
            n = len(support) - 1
            log_rows[row, support] = log_row(weights[support], uniforms[:, column : column + n].T)
            column += n
        found.append(log_rows)
    return SampledMDPs(tuple(found))


def log_row(weights: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Return the logarithms of Dirichlet draws, [K, M], of uniform numbers [K - 1, M]."""
    left = np.zeros(uniforms.shape[1])
    found = []
    for k in range(len(weights) - 1):
        rest = weights[k + 1 :].sum()
        inside = np.clip(uniforms[k], 1e-15, 1 - 1e-15)
        share = betaincinv(weights[k], rest, inside)
        other = betaincinv(rest, weights[k], 1 - inside)
        found.append(np.maximum(left + _log(share), SMALLEST_LOG))
        left = np.maximum(left + _log(other), SMALLEST_LOG)
    return np.stack([*found, left])


def _log(values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(values, 1e-300))


def values(
    model: Model, mdps: SampledMDPs, discount: float, steps: tuple[int, ...]
) -> dict[int, np.ndarray]:
    """Return the values of the optimal policy of each MDP with that many decisions left.

    Value iteration from 0, without approximation.

    Returns: for each of `steps` the values of all states, [S, M] float64.
    """
    value = np.zeros((model.n_states, mdps.n_mdps))
    rows = tuple(np.exp(log_rows) for log_rows in mdps.log_rows)
    kept = {0: value} if 0 in steps else {}
    for step in range(1, max(steps, default=0) + 1):
        value = _sweep(model, rows, discount, value)
        if step in steps:
            kept[step] = value
    return kept


def _sweep(
    model: Model, rows: tuple[np.ndarray, ...], discount: float, value: np.ndarray
) -> np.ndarray:
    new = np.full_like(value, -np.inf)
    for x, certain in enumerate(model.certain):
        for row in certain:
            np.maximum(new[x], row.reward + discount * value[row.successor], out=new[x])
    for block, probabilities in zip(model.blocks, rows, strict=True):
        after = discount * value[block.successors]  # [K, M]
        for row, gains in zip(probabilities, block.rewards, strict=True):
            total = row[0] * (gains[0] + after[0])
            for k in range(1, len(gains)):
                total += row[k] * (gains[k] + after[k])
            np.maximum(new[block.state], total, out=new[block.state])
    return new
