"""One hundred values of epsilon on every MDP in one compiled call, on whatever device is there.

python experiments/sweep.py [MDPs] [figure.png]
"""

import sys
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from jbrl.agents.bayes.epsilon_greedy import EpsilonGreedy
from jbrl.mdp.dirichlet import draw_mdp
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior
from jbrl.problems.problem import problem
from jbrl.rollout.rollout import draw_inputs, simulate

n_environments = int(sys.argv[1]) if len(sys.argv) > 1 else 200
picture = sys.argv[2] if len(sys.argv) > 2 else "sweep.png"
prior = DirichletPrior(problem("GC").mdps, jnp.float32(0.95), 250)
key, epsilons = jax.random.key(0), jnp.linspace(0, 1, 100)


def score(epsilon: jax.Array, index: jax.Array) -> jax.Array:
    mdp = draw_mdp(stream(key, index, "mdp"), prior.mdps, unit=True)
    agent = EpsilonGreedy(epsilon=epsilon)
    trajectory, _ = simulate(agent, agent.train(key, prior), draw_inputs(mdp, key, index, prior.horizon), keep=False)
    return (trajectory.rewards * prior.discount ** jnp.arange(250, dtype=jnp.float32)).sum()


grid = jax.jit(jax.vmap(jax.vmap(score, in_axes=(None, 0)), in_axes=(0, None)))
program = grid.lower(epsilons, jnp.arange(n_environments)).compile()
started = time.perf_counter()
scores = np.asarray(program(epsilons, jnp.arange(n_environments)), np.float64)  # [100, N]
seconds = time.perf_counter() - started
print(f"{scores.size} trajectories in {seconds:.2f} s on {jax.devices()[0].device_kind}, {seconds / scores.size * 4000:.2f} µs a decision")

mean, half = scores.mean(1), 1.96 * scores.std(1, ddof=1) / np.sqrt(n_environments)
plt.plot(epsilons, mean)
plt.fill_between(epsilons, mean - half, mean + half, alpha=0.3, label="95 % interval")
plt.xlabel("epsilon"), plt.ylabel("mean discounted return"), plt.title(f"e-Greedy on GC, {n_environments} MDPs"), plt.legend()
plt.savefig(picture, dpi=150)
