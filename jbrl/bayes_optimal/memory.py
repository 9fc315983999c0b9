"""Bytes that arrays take beside those of the look-ahead, about."""

from jbrl.bayes_optimal.control import n_features
from jbrl.bayes_optimal.lifetimes import LANES, Rows
from jbrl.bayes_optimal.model import Model
from jbrl.bayes_optimal.upper import PILOT

VALUE = 8  # bytes
CELL = 1024  # bytes of the totals of a cell
FEATURES = 3  # times that the features of the least squares are in memory at once
LIFETIME = 40  # bytes of a transition in a lifetime that is played: its probability, its counts


def bytes_of_samples(model: Model, n_mdps: int) -> int:
    """Return what MDPs take that are drawn and solved: uniform numbers, rows, their logarithms,
    free probabilities, values.
    """
    rows = sum(block.concentrations.size for block in model.blocks)
    return VALUE * n_mdps * (2 * model.n_free + 2 * rows + 4 * model.n_states)


def bytes_of_fit(model: Model) -> int:
    """Return what the fit of the control function takes."""
    return FEATURES * VALUE * PILOT * n_features(model.n_free)


def bytes_of_lifetimes(model: Model) -> int:
    """Return what lifetimes of a policy of the look-ahead take."""
    return LIFETIME * LANES * Rows.of(model).concentrations.size


def bytes_text(n: int) -> str:
    """Return a number of bytes in words: `1.2 GiB`, `256 MiB`, `1,000 bytes`."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if n >= unit:
            return f"{n / unit:.3g} {name}"
    return f"{n:,} bytes"
