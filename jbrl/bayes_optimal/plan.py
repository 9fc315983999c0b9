"""Sizes of a look-ahead and of samples: what is accepted, how much memory and time they take."""

import dataclasses
import math
from numbers import Integral, Real

import numpy as np

from jbrl.base.errors import JbrlError, bytes_text
from jbrl.bayes_optimal.look_ahead import PILOT
from jbrl.bayes_optimal.samples import CHUNK, MOST_FREE, n_features
from jbrl.mdp.counts import Layers
from jbrl.mdp.model import Model

MOST_BLOCKS = 60  # states with uncertain rows: an array has an axis for each
MOST_ROWS = 4096  # uncertain rows of a problem
MOST_CELLS = 500_000  # of a layer: each is an array of its own
MOST_TRANSITIONS = 1_000_000  # from the cells of a layer
MOST_DIVISIONS = 2_000_000  # of a total among the rows of a state
MOST_DECISIONS = 120  # with more, the estimates of weights mean nothing; the horizon needs none

# bytes of temporary arrays, of products of weights that are kept, of the worths of hidden states
BASE = 2**29
WEIGHT = 4  # bytes, of a split in an MDP

# On one core of a slow machine, for a value and its square: with a budget, durations are measured.
PRODUCTS = 2e9  # floating-point operations of the estimates of leaves, a second
BACKED_UP = 5e6  # (state, counts) backed up in a second
OVERHEAD = 8e-4  # seconds for each cell
REPLICATIONS = 4
LEAST_MDPS, USUAL_MDPS, MOST_MDPS = CHUNK, 8 * CHUNK, 32 * CHUNK  # of a replication
BUDGET = 60.0  # seconds, where nothing else is said
SHARE = 0.6  # of the budget for the upper end
SHALLOW = 3000  # leaves of the first runs, and of what needs no sample where time is short
PLAYED, MOST_PLAYED = 20_480, 819_200
LARGEST_PLAYED = 10**8
VALUE = 8  # bytes
CELL = 1024  # bytes of the totals of a cell
FEATURES = 3  # times that the features of the least squares are in memory at once


@dataclasses.dataclass(frozen=True)
class Size:
    """A look-ahead of D decisions."""

    decisions: int
    leaves: int  # (state, counts) after D decisions
    all: int  # (state, counts) after 0, 1, …, D decisions
    cells: int
    memory: int  # bytes, about

    def seconds(self, n_mdps: int, replications: int, threads: int) -> float:
        """Estimate how long replications take."""
        products = 2 * self.leaves * n_mdps / PRODUCTS
        once = products + self.all / BACKED_UP + self.cells * OVERHEAD
        return replications * once / threads


def check_model(model: Model, name: str) -> None:
    """Refuse a prior that is too large.

    Raises:
      JbrlError: more uncertain rows, or more free probabilities in them, than are accepted.
    """
    if len(model.blocks) > MOST_BLOCKS:
        raise JbrlError(
            f"problem '{name}': {len(model.blocks)} states have rows with several possible next "
            f"states: expected at most {MOST_BLOCKS}"
        )
    if model.n_uncertain > MOST_ROWS:
        raise JbrlError(
            f"problem '{name}': {model.n_uncertain} rows (state, action) have several possible "
            f"next states: expected at most {MOST_ROWS}"
        )
    if model.n_free > MOST_FREE:
        raise JbrlError(
            f"problem '{name}': {model.n_free} transition probabilities are free (all of a row but "
            f"one): expected at most {MOST_FREE}; fewer states, actions or possible next states "
            "make fewer"
        )


class Sizes:
    """Sizes of look-aheads of a problem, computed until one is too large."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        model = layers.model
        self._samples = bytes_of_samples(model, PILOT)
        # and what the fit of the control function takes
        self._least = self._samples + FEATURES * VALUE * PILOT * n_features(model.n_free)
        self._found: list[Size] = []

    def of(self, decisions: int) -> Size | None:
        """Return the size of a look-ahead; None where a layer has too many cells, or a cell
        is too large, to be counted.
        """
        while len(self._found) <= decisions:
            d = len(self._found)
            before = self._found[-1] if self._found else Size(-1, 0, 0, 0, 0)
            if d and self._transitions(d - 1) > MOST_TRANSITIONS:
                return None
            if len(self._layers.layer(d)) > MOST_CELLS:
                return None
            if self._layers.divisions(d) > MOST_DIVISIONS:
                return None
            leaves, cells = self._layers.count(d), len(self._layers.layer(d))
            arrays = 3 * leaves + before.leaves + 3 * self._layers.largest(d)
            ahead = VALUE * arrays + WEIGHT * CHUNK * self._layers.distinct_splits(d)
            cells += before.cells
            memory = BASE + CELL * cells + max(self._samples + ahead, self._least)
            self._found.append(Size(d, leaves, before.all + leaves, cells, memory))
        return self._found[decisions]

    def shallow(self, most: int) -> int:
        """Return the greatest number of decisions up to `most` with at most `SHALLOW` leaves, but
        one, where there is more than one.
        """
        found = min(1, most)
        while found < most and (size := self.of(found + 1)) and size.leaves <= SHALLOW:
            found += 1
        return found

    def _transitions(self, decisions: int) -> int:
        model = self._layers.model
        counts = [len(rows) for rows in model.certain]
        for block in model.blocks:
            counts[block.state] += len(block.successors)
        return sum(counts[cell.state] for cell in self._layers.layer(decisions))


@dataclasses.dataclass(frozen=True)
class Limit:
    """A reason why a look-ahead is no deeper."""

    by: str  # "memory", "budget", "size" or "estimates"
    takes: str  # a deeper one


@dataclasses.dataclass(frozen=True)
class Plan:
    """The depth of the look-ahead and the sizes of the samples."""

    size: Size  # of the deepest look-ahead
    sizes: "Sizes"
    most_mdps: int  # of a replication that the memory allows
    n_played: int  # MDPs in which the agent of the lower end plays
    # that trials of agents may take together, and as many for the certificate of one of them
    playing: float | None = None
    budget: float = math.inf  # seconds that all may take
    shallow: int = 0  # decisions of the first runs; without a budget those of the look-ahead
    as_asked: bool = False  # `n_played` is not to be made smaller
    memory: int = 2**33  # bytes that arrays may take
    limited_by: str | None = None  # as `Limit.by`; None: the decisions are those that are asked for


def make_plan(
    layers: Layers,
    name: str,
    horizon: int,
    decisions: int | None,
    budget: float | None,
    memory: int,
    threads: int,
) -> Plan:
    """Choose how far to look ahead and how large the samples are.

    Raises:
      JbrlError: a number out of range, or decisions that fit neither memory nor budget.
    """
    _check_numbers(horizon, decisions, budget, memory)
    limit = None if budget is None and decisions is not None else float(budget or BUDGET)
    upper = None if limit is None else SHARE * limit
    most = horizon if decisions is None else decisions
    sizes = Sizes(layers)
    size, limit_of_size = _deepest(sizes, layers, most, horizon, memory, upper, threads)
    takes = "" if limit_of_size is None else limit_of_size.takes
    if size is None:
        raise JbrlError(f"problem '{name}': not even 0 decisions fit: they take {takes}")
    if decisions is not None and size.decisions < decisions:
        raise JbrlError(
            f"decisions = {decisions}: looking so far ahead in '{name}' takes {takes}: expected at "
            f"most {size.decisions}"
        )
    if limit is None:
        return Plan(size, sizes, USUAL_MDPS, PLAYED, shallow=size.decisions, memory=memory)
    n_mdps = MOST_MDPS
    while n_mdps > LEAST_MDPS and size.memory + _more_samples(layers.model, n_mdps) > memory:
        n_mdps //= 2
    playing = (1 - SHARE) / 2 * limit
    by = None if limit_of_size is None else limit_of_size.by
    exact = decisions is not None or size.decisions == horizon
    shallow = size.decisions if exact else sizes.shallow(size.decisions)
    return Plan(
        *(size, sizes, n_mdps, MOST_PLAYED, playing, limit, shallow), memory=memory, limited_by=by
    )


def _more_samples(model: Model, n_mdps: int) -> int:
    """Return the bytes that MDPs take beyond those that `Size.memory` counts."""
    return max(0, bytes_of_samples(model, n_mdps) - bytes_of_samples(model, PILOT))


def _check_numbers(horizon: int, decisions: int | None, budget: float | None, memory: int) -> None:
    if decisions is not None and not (_whole(decisions) and 0 <= decisions <= horizon):
        raise JbrlError(
            f"decisions = {decisions!r}: expected an integer from 0 to {horizon}, the horizon"
        )
    if budget is not None and not (_number(budget) and 0 < budget < float("inf")):
        raise JbrlError(f"budget = {budget!r}: expected a positive number of seconds")
    if not (_whole(memory) and memory > 0):
        raise JbrlError(f"memory = {memory!r}: expected a positive number of bytes")


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _deepest(
    sizes: Sizes,
    layers: Layers,
    most: int,
    horizon: int,
    memory: int,
    seconds: float | None,
    threads: int,
) -> tuple[Size | None, Limit | None]:
    """Return the deepest look-ahead up to `most` decisions that fits, and why no deeper does."""
    best, limit = None, None
    estimated = most if not layers.blocks else min(most, MOST_DECISIONS)
    if estimated < most < horizon:
        most = estimated
        limit = Limit(
            "estimates",
            f"estimates that mean nothing after more than {MOST_DECISIONS} decisions (at the "
            f"horizon, {horizon}, none is needed)",
        )
    for decisions in range(most + 1):
        size = sizes.of(decisions)
        if size is None:
            return best, Limit("size", f"more than {MOST_CELLS} arrays, or too large ones")
        if size.memory > memory:
            needed, given = bytes_text(size.memory), bytes_text(memory)
            return best, Limit("memory", f"about {needed}, more than memory = {given}")
        if seconds is not None:
            longer = size.seconds(LEAST_MDPS, REPLICATIONS, threads)
            if longer > seconds:
                least, budget = longer / SHARE, seconds / SHARE
                takes = f"about {least:.3g} seconds, more than budget = {budget:.3g}"
                return best, Limit("budget", takes)
        if decisions <= estimated or decisions == horizon:
            best = size
    return best, limit


def bytes_of_samples(model: Model, n_mdps: int) -> int:
    """Return what MDPs take that are drawn and solved: uniform numbers, rows, their logarithms,
    free probabilities, values.
    """
    rows = sum(block.concentrations.size for block in model.blocks)
    return VALUE * n_mdps * (2 * model.n_free + 2 * rows + 4 * model.n_states)


def standard_error(samples: np.ndarray) -> float:
    """Return the standard error of the mean of independent samples, at least two."""
    return float(np.std(samples, ddof=1) / math.sqrt(len(samples)))
