"""A hundred values of epsilon, every seed and every MDP in one compiled call, on any device.

python experiments/sweep.py [MDPs] [figure.png]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jbrl
from jbrl.agents import EpsilonGreedy

parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
parser.add_argument("mdps", metavar="MDPs", type=int, nargs="?", default=200)
parser.add_argument("figure", metavar="figure.png", nargs="?", default="sweep.png")
options = parser.parse_args()
n_environments, picture = options.mdps, options.figure
gc, seeds = jbrl.problem("GC"), (0, 1)


def lifetime(epsilon: jax.Array, key: jax.Array, index: jax.Array) -> jbrl.Simulated:
    return jbrl.simulate(EpsilonGreedy(epsilon=epsilon), gc, key, index)


over_mdps = jax.vmap(lifetime, in_axes=(None, None, 0))
over_seeds = jax.vmap(over_mdps, in_axes=(None, 0, None))
grid = jax.jit(jax.vmap(over_seeds, in_axes=(0, None, None)))
keys = jnp.stack([gc.key(seed) for seed in seeds])
epsilons, numbers = jnp.linspace(0, 1, 100), jnp.arange(n_environments)
program = grid.lower(epsilons, keys, numbers).compile()
started = time.perf_counter()
lifetimes = jax.block_until_ready(program(epsilons, keys, numbers))
seconds = time.perf_counter() - started
scores = lifetimes.scores(gc).reshape(len(epsilons), -1)  # those of jbrl.play, to the last bit
print(
    f"{scores.size} trajectories in {seconds:.2f} s on {jax.devices()[0].device_kind}, "
    f"{seconds / scores.size / 250 * 1e6:.2f} µs a decision"
)

mean, half = scores.mean(1), 1.96 * scores.std(1, ddof=1) / np.sqrt(scores.shape[1])
figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
axes.plot(epsilons, mean)
axes.fill_between(epsilons, mean - half, mean + half, alpha=0.3, label="95 % interval")
axes.set(xlabel="epsilon", ylabel="mean discounted return")
axes.set_title(f"e-Greedy on GC, {n_environments} MDPs, seeds {', '.join(map(str, seeds))}")
axes.legend()
figure.savefig(picture, dpi=100)
