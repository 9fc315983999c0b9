"""Backward induction over (state, counts): how many are backed up in a second, and how fast the
values at the end of the look-ahead are estimated.

python benchmarks/bounds.py [--out FILE]

One JSON line for each problem: (state, counts) of the whole look-ahead over the seconds of one
backward induction, and floating-point operations of the matrix products over the seconds of one
estimate of all leaves (1,024 MDPs). Merging takes no time of its own: it is how the arrays are laid
out. For Grid, the relaxation that forgets failures: seconds of growing the tree for a node, of
backing up for a node, and of estimating a leaf with one MDP. Seconds are of the processor, with one
thread: the machine may be busy with other work.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kept import keep, parser
from benchmarks.planner import distribution
from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.forgetting import LEAST_MDPS, revealing
from jbrl.bayes_optimal.look_ahead import LookAhead
from jbrl.bayes_optimal.moves import Shown, find_moves
from jbrl.bayes_optimal.samples import estimate
from jbrl.mdp.backward import solve
from jbrl.mdp.counts import Layers
from jbrl.mdp.model import make_model

CASES = (("GC", 20), ("GDL", 34), ("GC(n_states=8)", 19))
N_MDPS = 1024
REMEMBERED = 1  # failures of moves


def processor_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of a call, and its result."""
    started = time.process_time()
    found = call()
    return time.process_time() - started, found


def measure(name: str, decisions: int) -> dict[str, Any]:
    """Measure one problem; totals and splits of counts are made before."""
    layers = Layers(make_model(distribution(name)))
    ahead = LookAhead(layers, 0.95, 250, decisions, threads=1)
    ahead.extremes()[0]
    everything = sum(layers.count(d) for d in range(decisions + 1))
    cells, n_leaves = layers.layer(decisions), layers.count(decisions)
    control = ahead.control(np.random.SeedSequence(0))
    mdps = samples.draw(layers.model, N_MDPS, 1)
    values = samples.values(layers.model, mdps, 0.95, (ahead.left,))[ahead.left]
    estimating, (leaves, _) = processor_seconds(
        lambda: estimate(layers, cells, mdps, values, control, 1)
    )
    solving, root = processor_seconds(lambda: solve(layers, decisions, leaves, 0.95, 1))
    return {
        "problem": name,
        "decisions": decisions,
        "state_counts": everything,
        "leaves": n_leaves,
        "backed_up_per_second": round(everything / solving),
        "products_gflops": round(2e-9 * n_leaves * N_MDPS / estimating, 2),
        "value": root,
    }


def measure_forgetting(name: str) -> dict[str, Any]:
    """Measure the relaxation for moves that may fail."""
    model = make_model(distribution(name))
    moves = find_moves(model)
    assert moves is not None
    shown = Shown(moves, 0.95, 250, 1, (0,))
    growing, relaxed = processor_seconds(lambda: revealing(shown, REMEMBERED))
    assert relaxed is not None
    tree = relaxed.tree
    n, n_leaves = len(tree.states), len(tree.leaf_states)
    solving, _ = processor_seconds(lambda: relaxed.solve(np.ones(n_leaves)))
    controlling, _ = processor_seconds(lambda: relaxed.shown.known)  # compiles
    drawn = relaxed.draw(4 * LEAST_MDPS, np.random.SeedSequence(0))
    relaxed.of_leaves(relaxed.draw(1, np.random.SeedSequence(0)))  # compiles
    sampling, found = processor_seconds(lambda: relaxed.of_leaves(drawn))
    return {
        "problem": name,
        "remembered_failures": REMEMBERED,
        "nodes": n,
        "leaves": n_leaves,
        "growing_seconds_per_node": growing / n,
        "solving_seconds_per_node": solving / n,
        "control_seconds": controlling,
        "seconds_per_leaf_and_mdp": sampling / n_leaves / drawn.shape[-1],
        "value": relaxed.solve(found.values),
    }


def main() -> None:
    out = parser(__doc__, "bounds").parse_args().out
    with threadpool_limits(1, "blas"):
        for case in CASES:
            keep(measure(*case), out)
        keep(measure_forgetting("Grid"), out)


if __name__ == "__main__":
    main()
