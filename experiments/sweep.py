"""A hundred values of epsilon on every MDP in one compiled call, on any device.

python experiments/sweep.py [MDPs] [figure.png]
"""

import dataclasses
import sys
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jbrl

HORIZON, DISCOUNT = 250, 0.95
n_environments = int(sys.argv[1]) if len(sys.argv) > 1 else 200
picture = sys.argv[2] if len(sys.argv) > 2 else "sweep.png"
prior = jbrl.DirichletPrior(jbrl.problem("GC").mdps, jnp.float32(DISCOUNT), HORIZON)
e_greedy = jbrl.AGENTS["e-Greedy"].agent()


def discounted_return(epsilon: jax.Array, index: jax.Array) -> jax.Array:
    """Play one lifetime in MDP number `index`; [] float32."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), index), 4)
    environment = prior.sample(keys[0])
    agent = dataclasses.replace(e_greedy, epsilon=epsilon)
    first, observation = environment.reset(keys[1])
    memory = agent.reset(keys[2], agent.train(keys[2], prior))

    def step(carry: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
        state, observation, memory = carry
        to_act, to_move, to_learn = jax.random.split(key, 3)
        action, memory = agent.act(to_act, memory, observation)
        state, moved = environment.step(to_move, state, action)
        ends = moved.terminated, moved.truncated
        seen = jbrl.Transition(observation, action, moved.reward, moved.observation, *ends)
        return (state, moved.observation, agent.observe(to_learn, memory, seen)), moved.reward

    begin = (first, observation, memory)
    _, rewards = jax.lax.scan(step, begin, jax.random.split(keys[3], HORIZON))
    return (rewards * jnp.float32(DISCOUNT) ** jnp.arange(HORIZON, dtype=jnp.float32)).sum()


over_mdps = jax.vmap(discounted_return, in_axes=(None, 0))
grid = jax.jit(jax.vmap(over_mdps, in_axes=(0, None)))
epsilons, numbers = jnp.linspace(0, 1, 100), jnp.arange(n_environments)
program = grid.lower(epsilons, numbers).compile()
started = time.perf_counter()
scores = np.asarray(program(epsilons, numbers), np.float64)  # [100, N]
seconds = time.perf_counter() - started
print(
    f"{scores.size} trajectories in {seconds:.2f} s on {jax.devices()[0].device_kind}, "
    f"{seconds / scores.size / HORIZON * 1e6:.2f} µs a decision"
)

mean, half = scores.mean(1), 1.96 * scores.std(1, ddof=1) / np.sqrt(n_environments)
figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
axes.plot(epsilons, mean)
axes.fill_between(epsilons, mean - half, mean + half, alpha=0.3, label="95 % interval")
axes.set(xlabel="epsilon", ylabel="mean discounted return")
axes.set_title(f"e-Greedy on GC, {n_environments} MDPs")
axes.legend()
figure.savefig(picture, dpi=100)
