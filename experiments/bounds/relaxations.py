"""Relaxations at the same depth: their bounds and their cost, tables of docs/bounds.md.

python experiments/bounds/relaxations.py hidden
    the look-ahead with the whole MDP revealed after it, and with one state or two hidden
python experiments/bounds/relaxations.py outcomes
    the bound of GC with two states hidden, by the outcomes after which their rows are shown
python experiments/bounds/relaxations.py states
    the bound of GC without looking ahead, for each state, and each two, that may be hidden
python experiments/bounds/relaxations.py penalty
    the look-ahead with a penalty of one decision after it, beside one decision more
python experiments/bounds/relaxations.py payments
    the bound of Grid where the MDP is shown for nothing, and where it is paid for, 128 MDPs
python experiments/bounds/relaxations.py chance
    the variance of returns of OPPS-DS over that of the same without chance, 8,192 MDPs

Means of two replications of 1,024 MDPs, and seconds of the processor of one of them, one thread.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import jbrl
from jbrl.bayes_optimal import samples
from jbrl.bayes_optimal.forgetting import Forgetting, revealing
from jbrl.bayes_optimal.hidden_ahead import candidates, hide
from jbrl.bayes_optimal.limits import Chance
from jbrl.bayes_optimal.look_ahead import LookAhead
from jbrl.bayes_optimal.moves import Shown, find_moves
from jbrl.bayes_optimal.samples import Control, Weights, estimate
from jbrl.mdp.backward import mean_values
from jbrl.mdp.counts import Cell, Layers
from jbrl.mdp.model import make_model

DISCOUNT, HORIZON = 0.95, 250
N_MDPS, REPLICATIONS = 1024, 2
HIDDEN = (*(("GC", d) for d in (0, 12, 16)), *(("GC(n_states=8)", 12), ("UGC", 4), ("UGDL", 2)))
PENALTIES = (("GC", 0), ("GC", 4), ("GC", 8), ("GC", 11), ("GDL", 8), ("UGC", 3))


def measured(replication: Callable[[np.random.SeedSequence], float]) -> str:
    """Return the mean of replications, and the seconds of one, as two cells of a table."""
    started = time.process_time()
    seeds = np.random.SeedSequence(2).spawn(REPLICATIONS)
    mean = np.mean([replication(seed) for seed in seeds])
    return f"{mean:.4g} | {(time.process_time() - started) / REPLICATIONS:.2g}"


def ahead_of(name: str, decisions: int) -> LookAhead:
    problem: Any = jbrl.problem(name)
    layers = Layers(make_model(problem.mdps))
    return LookAhead(layers, DISCOUNT, HORIZON, decisions, threads=1)


def revealed(ahead: Any, control: Control, seed: np.random.SeedSequence) -> float:
    return ahead.replication(control, N_MDPS, seed).value


def table_of_hidden() -> None:
    print("| problem | D | all revealed | seconds | hidden | bound | seconds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, decisions in HIDDEN:
        ahead = ahead_of(name, decisions)
        control = ahead.control(np.random.SeedSequence(0))
        shown = measured(partial(revealed, ahead, control))
        for relaxed in hide(ahead, np.random.SeedSequence(1)):
            found = measured(partial(revealed, relaxed, control))
            print(f"| {name} | {decisions} | {shown} | {relaxed.states} | {found} |", flush=True)


def table_of_outcomes() -> None:
    ahead = ahead_of("GC", 12)
    control = ahead.control(np.random.SeedSequence(0))
    *_, two = hide(ahead, np.random.SeedSequence(1))
    print("| outcomes | bound | seconds |")
    print("|---:|---:|---:|")
    for trials in (6, 10, 14):
        relaxed = two.following(trials)
        found = measured(partial(revealed, relaxed, control))
        print(f"| {trials} | {found} |", flush=True)


def table_of_states() -> None:
    ahead = ahead_of("GC", 0)
    control, seed = ahead.control(np.random.SeedSequence(0)), np.random.SeedSequence(2)
    bounds = {"none": revealed(ahead, control, seed)}
    bounds |= {str(one.states): one.root(N_MDPS, seed) for one in candidates(ahead)}
    print(f"| hidden state | {' | '.join(bounds)} |")
    print("|---|" + "---:|" * len(bounds))
    print(f"| bound | {' | '.join(f'{value:.4g}' for value in bounds.values())} |")


def penalised(
    ahead: LookAhead, after: dict[Cell, np.ndarray], seed: np.random.SeedSequence
) -> float:
    """Return an estimate of the bound with a penalty of one decision: who is shown the MDP after D
    decisions pays what it knows of the next state, valued by `after`.

    Args:
      after: any function of (state, counts) one decision later.
    """
    layers, model = ahead.layers, ahead.layers.model
    mdps = samples.draw(model, N_MDPS, seed)
    left = ahead.left - 1
    values = samples.values(model, mdps, DISCOUNT, (left,))[left]
    weights = Weights(layers, list(mdps.log_rows))
    rows = [np.exp(one) for one in mdps.log_rows]
    leaves = {}
    for cell in layers.layer(ahead.decisions):
        found = np.full((layers.size(cell), N_MDPS), -np.inf)
        for row in model.certain[cell.state]:
            np.maximum(found, row.reward + DISCOUNT * values[row.successor], out=found)
        number = int(model.block_of[cell.state])
        for q in () if number < 0 else _rows(layers, after, cell, rows[number], values):
            np.maximum(found, q, out=found)
        found *= weights.product(0, cell.totals)
        leaves[cell] = found.mean(1).reshape(layers.shape(cell))
    return ahead.solve(leaves)


def _rows(
    layers: Layers, after: dict[Cell, np.ndarray], cell: Cell, theta: np.ndarray, values: np.ndarray
) -> list[np.ndarray]:
    """Return what each uncertain row earns less the penalty, [n, M]."""
    number, shape = int(layers.model.block_of[cell.state]), layers.shape(cell)
    counts, total = layers.blocks[number], cell.totals[number]
    block, predictive = counts.block, counts.splits(total).predictive
    tail = [1] * len(shape)
    tail[number] = -1
    found = []
    for row in range(len(block.actions)):
        q = np.zeros((layers.size(cell), theta.shape[-1]))
        for k in map(int, np.flatnonzero(block.possible[row])):
            reached = layers.values(after, layers.successor(cell, k))
            v = np.take(reached, counts.after(total, row, k), axis=number)
            expected = (predictive[row, k].reshape(tail) * v).reshape(-1, 1)
            gain = block.rewards[row, k] + DISCOUNT * values[block.successors[k]]
            q += theta[row, k] * (gain - DISCOUNT * v.reshape(-1, 1)) + DISCOUNT * expected
        found.append(q)
    return found


def table_of_penalties() -> None:
    print(
        "| problem | D | all revealed | seconds | penalty, by what being shown is worth | seconds "
        "| penalty, by the mean MDP | seconds | D + 1, all revealed | seconds |"
    )
    print("|---|" + "---:|" * 9)
    for name, decisions in PENALTIES:
        ahead, deeper = ahead_of(name, decisions), ahead_of(name, decisions + 1)
        control = ahead.control(np.random.SeedSequence(0))
        cells = ahead.layers.layer(decisions + 1)
        mdps = samples.draw(ahead.layers.model, 4096, np.random.SeedSequence(5))
        shown = samples.values(ahead.layers.model, mdps, DISCOUNT, (deeper.left,))[deeper.left]
        after, _ = estimate(ahead.layers, cells, mdps, shown, control, 1)
        mean = mean_values(ahead.layers, cells, DISCOUNT, deeper.left, 1)
        ways = [
            partial(revealed, ahead, control),
            partial(penalised, ahead, after),
            partial(penalised, ahead, mean),
            partial(revealed, deeper, deeper.control(np.random.SeedSequence(0))),
        ]
        print(f"| {name} | {decisions} | {' | '.join(map(measured, ways))} |", flush=True)


def table_of_payments() -> None:
    grid: Any = jbrl.problem("Grid")
    moves = find_moves(make_model(grid.mdps))
    assert moves is not None
    shown = Shown(moves, DISCOUNT, HORIZON, 1, (0,))
    print("| failures remembered | shown for nothing | seconds | paying | seconds |")
    print("|---|" + "---:|" * 4)
    for remembered in (0, 1):
        one = revealing(shown, remembered)
        assert one is not None
        ways = [partial(forgetting, one, pays) for pays in (False, True)]
        print(f"| {remembered} | {' | '.join(map(measured, ways))} |", flush=True)


def forgetting(one: Forgetting, pays: bool, seed: np.random.SeedSequence) -> float:
    """Return an estimate of the bound for moves that may fail."""
    before, own = seed.spawn(2)
    pilot = one.of_leaves(one.draw(N_MDPS // 8, before))
    pilot = dataclasses.replace(pilot, paying=pilot.paying & pays)
    return one.solve(one.of_leaves(one.draw(N_MDPS // 8, own), pilot).values)


def table_of_chance() -> None:
    print("| problem | variance over that without chance |")
    print("|---|---:|")
    for name in ("GC", "Grid", "GDL", "UGDL", "UGrid"):
        found = jbrl.play("OPPS-DS", prior=name, n_environments=8192, seed=3, record=True)
        assert found.trajectories is not None
        problem: Any = jbrl.problem(name)
        chance = Chance(problem.mdps, DISCOUNT, HORIZON).of(found.trajectories)
        ratio = found.returns.var() / (found.returns - chance).var()
        print(f"| {name} | {ratio:.3g} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    names = ("hidden", "outcomes", "states", "penalty", "payments", "chance")
    parser.add_argument("table", choices=names)
    with threadpool_limits(1, "blas"):
        match parser.parse_args().table:
            case "hidden":
                table_of_hidden()
            case "outcomes":
                table_of_outcomes()
            case "states":
                table_of_states()
            case "penalty":
                table_of_penalties()
            case "payments":
                table_of_payments()
            case "chance":
                table_of_chance()
