"""BAMCP on a known deterministic MDP beside mctx, simulations per second against their number.

python benchmarks/deterministic.py

The MDP has 9 states and 2 actions. mctx (the Python package of that name, which jbrl does not
install) plans in it with `muzero_policy`, a uniform prior policy, values 0 and the same depth, in
batches of 64. Its simulations end at the new node, where those of BAMCP go on to the depth limit.
One JSON line for each number of simulations: simulations per second, the best of three runs after
compilation; one core for jbrl, what XLA takes of the machine for mctx.
"""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

from jbrl.agents.search.bamcp import BAMCP
from jbrl.mdp.dirichlet import distribution
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import as_arrays

LANES, DEPTH, S, A = 64, 15, 9, 2
SIMULATIONS = (32, 128, 512, 2048)


def model() -> tuple[np.ndarray, np.ndarray]:
    """Return the next state and reward of each pair: two loops, [S, A] each."""
    following, rewards = np.zeros((S, A), np.int32), np.zeros((S, A), np.float32)
    for x in range(S):
        following[x] = [(x + 1) % 5, 5 if x == 0 else (x + 1) % S]
    rewards[4, 0], rewards[8, 1] = 1.0, 2.0
    return following, rewards


def best_of_three(call, *args) -> float:
    """Return the least wall seconds of a call, compilation apart."""
    jax.block_until_ready(call(*args))
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        jax.block_until_ready(call(*args))
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def ours(simulations: int) -> float:
    """Measure simulations per second on one core."""
    following, rewards = model()
    counts = np.zeros((S, A, S))
    counts[np.arange(S)[:, None], np.arange(A)[None], following] = 1
    mdps = distribution(counts, np.broadcast_to(rewards[:, :, None], counts.shape))
    agent = as_arrays(BAMCP(simulations=simulations, depth=DEPTH))
    state = agent.reset(jax.random.key(0), DirichletPrior(mdps, jnp.float32(0.95), 1))
    act = jax.jit(lambda keys: jax.vmap(lambda key: agent.act(key, state, jnp.int32(0))[0])(keys))
    return LANES * simulations / best_of_three(act, jax.random.split(jax.random.key(0), LANES))


def theirs(simulations: int) -> float | None:
    """Measure simulations per second of mctx; None where it is not installed."""
    try:
        import mctx
    except ImportError:
        return None
    following, rewards = (jnp.asarray(v) for v in model())

    def step(_params, _key, action, embedding):
        zeros = jnp.zeros(action.shape)
        output = mctx.RecurrentFnOutput(
            reward=rewards[embedding, action],
            discount=zeros + 0.95,
            prior_logits=jnp.zeros((*action.shape, A)),
            value=zeros,
        )
        return output, following[embedding, action]

    def act(key):
        root = mctx.RootFnOutput(
            prior_logits=jnp.zeros((LANES, A)),
            value=jnp.zeros(LANES),
            embedding=jnp.zeros(LANES, jnp.int32),
        )
        return mctx.muzero_policy(
            (),
            key,
            root,
            step,
            num_simulations=simulations,
            max_depth=DEPTH,
            dirichlet_fraction=0.0,
        ).action

    return LANES * simulations / best_of_three(jax.jit(act), jax.random.key(0))


def main() -> None:
    """Run from the command line."""
    for simulations in SIMULATIONS:
        row: dict[str, float] = {
            "simulations": simulations,
            "depth": DEPTH,
            "jbrl_per_second": round(ours(simulations)),
        }
        other = theirs(simulations)
        if other is not None:
            row |= {
                "mctx_per_second": round(other),
                "times_faster": round(row["jbrl_per_second"] / other, 1),
            }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    main()
