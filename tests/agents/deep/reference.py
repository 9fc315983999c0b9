"""Actor-critics and DQN in NumPy, in double precision, and recorded updates of the original.

Losses of actor-critics are of complex numbers, so that their gradient is found by a step in the
imaginary direction, exact to rounding, without any backward pass.
"""

import functools
from pathlib import Path

import jax
import numpy as np

from jbrl.agents.deep.actor_critic import ActorCritic
from jbrl.agents.deep.networks import Linear
from jbrl.agents.deep.recurrent_actor_critic import LstmParameters, LstmState
from jbrl.agents.deep.sequence import Sequence

STEP = 1e-30
COSTS = ActorCritic()  # the numbers of its loss


@functools.cache
def recorded():
    return np.load(Path(__file__).parent / "data" / "actor_critic_updates.npz")


def _linear(name, *modules):
    """Several recorded layers beside each other, as one."""
    weights, biases = (
        [recorded()[f"{name}|{module}|{kind}"] for module in modules] for kind in "wb"
    )
    return Linear(np.concatenate(weights, axis=1), np.concatenate(biases))


def parameters(agent, i):
    """Parameters of a recorded agent after i updates, as the agents here have them."""
    name = f"{agent}_p{i}"
    torso = tuple(_linear(name, f"mlp/~/linear_{k}") for k in range(2))
    heads = _linear(name, "linear", "linear_1")
    if agent == "ac":
        return torso, heads
    both = _linear(name, "lstm/linear")
    inputs = torso[-1].bias.shape[0]
    memory = LstmParameters(both.weights[:inputs], both.weights[inputs:], both.bias)
    return torso, heads, memory


def sequence_of(agent, i, capacity=32):
    """Recorded sequence number i, its rest filled with what must not matter, and whether it has
    terminated.
    """
    name = f"{agent}_t{i}"
    observations, actions, rewards, discounts = (
        recorded()[f"{name}_{what}"] for what in ("observations", "actions", "rewards", "discounts")
    )
    return (padded(observations[:, 0], actions, rewards, capacity), bool(discounts[-1] == 0))


def padded(observations, actions, rewards, capacity):
    """A sequence with room for more, where other numbers are."""
    length = len(actions)
    rest = capacity - length
    filler = np.full((rest, *observations.shape[1:]), 3, observations.dtype)
    return Sequence(
        np.concatenate([observations, filler]),
        np.concatenate([actions, np.zeros(rest, int)]).astype(np.int32)[:, None],
        np.concatenate([rewards, np.full(rest, 7.0)]).astype(rewards.dtype)[:, None],
        np.int32(length),
    )


def relu(z):
    return np.where(z.real > 0, z, 0)


def sigma(z):
    return 1 / (1 + np.exp(-z))


def embed(layers, x, final_activation):
    for i, layer in enumerate(layers):
        x = x @ layer.weights + layer.bias
        if final_activation or i + 1 < len(layers):
            x = relu(x)
    return x


def outputs(given, observations, start, *, final_activation=False, skip=False):
    """Logits and value after each observation, and the states of the memory."""
    torso, heads, *memory = given
    state, found, states = start, [], []
    for x in observations:
        hidden = embed(torso, x, final_activation)
        if memory:
            state = remember(memory[0], state, hidden)
            hidden = hidden + relu(state.hidden) if skip else state.hidden
            states.append(state)
        row = hidden @ heads.weights + heads.bias
        found.append((row[:-1], row[-1]))
    return found, states


def remember(memory, state, x):
    units = state.hidden.shape[0]
    found = x @ memory.inputs + state.hidden @ memory.hidden + memory.bias
    i, g, f, o = (found[k * units : (k + 1) * units] for k in range(4))
    cell = sigma(f + 1) * state.cell + sigma(i) * np.tanh(g)
    return LstmState(sigma(o) * np.tanh(cell), cell)


def returns(rewards, values, terminated, discount, trace_decay):
    """Lambda-returns by their definition, from the n-step returns; `values` has one more entry."""
    steps = len(rewards)

    def n_step(t, n):
        total = sum(discount**k * rewards[t + k] for k in range(n))
        if t + n == steps and terminated:
            return total
        return total + discount**n * values[t + n]

    return np.array(
        [
            sum(
                (1 - trace_decay) * trace_decay ** (n - 1) * n_step(t, n)
                for n in range(1, steps - t)
            )
            + trace_decay ** (steps - t - 1) * n_step(t, steps - t)
            for t in range(steps)
        ]
    )


def loss(given, constants, sequence, start, costs, **network):
    """Loss of a sequence; `constants` are its lambda-returns and its values, which no gradient
    passes through.
    """
    steps = int(sequence.length)
    found, _ = outputs(given, sequence.observations[: steps + 1], start, **network)
    total = 0
    for t in range(steps):
        logits, value = found[t]
        logs = logits - np.log(np.exp(logits - logits.real.max()).sum()) - logits.real.max()
        error = constants[0][t] - value
        advantage = constants[0][t] - constants[1][t]
        total += costs.value_cost * error * error - logs[sequence.actions[t, 0]] * advantage
        total += costs.entropy_cost * (np.exp(logs) * logs).sum()
    return total if costs.sum_losses else total / steps


def gradient(given, sequence, terminated, start, costs, **network):
    """Gradient of the loss, like the parameters."""
    steps = int(sequence.length)
    found, _ = outputs(given, sequence.observations[: steps + 1], start, **network)
    values = np.array([value for _, value in found])
    targets = returns(
        sequence.rewards[:steps, 0], values, terminated, costs.discount, costs.trace_decay
    )
    leaves, structure = jax.tree.flatten(given)

    def slope(i, place):
        moved = [leaf.astype(complex) for leaf in leaves]
        moved[i][place] += STEP * 1j
        tree = jax.tree.unflatten(structure, moved)
        return loss(tree, (targets, values), sequence, start, costs, **network).imag / STEP

    slopes = [
        np.array([slope(i, place) for place in np.ndindex(leaf.shape)]).reshape(leaf.shape)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, slopes)


class Adam:
    """Adam on a pytree (Kingma and Ba 2015, algorithm 1)."""

    def __init__(self, learning_rate):
        self.learning_rate, self.t, self.first, self.second = learning_rate, 0, 0.0, 0.0

    def step(self, given, slopes):
        leaves, structure = jax.tree.flatten(given)
        flat = np.concatenate([slope.ravel() for slope in jax.tree.leaves(slopes)])
        self.t += 1
        self.first = 0.9 * self.first + 0.1 * flat
        self.second = 0.999 * self.second + 0.001 * flat**2
        first, second = self.first / (1 - 0.9**self.t), self.second / (1 - 0.999**self.t)
        steps = self.learning_rate * first / (np.sqrt(second) + 1e-8)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = np.split(steps, ends)
        return jax.tree.unflatten(
            structure,
            [leaf - part.reshape(leaf.shape) for leaf, part in zip(leaves, parts, strict=True)],
        )


def assert_close(found, expected, atol):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def forward(layers, x):
    """Inputs of each layer and the outputs [B, O] of the last; layers are (weights, bias)."""
    seen = [x]
    for i, (weights, bias) in enumerate(layers):
        x = seen[-1] @ weights + bias
        seen.append(np.maximum(x, 0) if i + 1 < len(layers) else x)
    return seen[:-1], seen[-1]


def backward(layers, inputs, slope):
    """The gradient of (weights, bias) of each layer by that of the outputs."""
    found = []
    for (weights, _), seen in zip(layers[::-1], inputs[::-1], strict=True):
        found.append((seen.T @ slope, slope.sum(0)))
        slope = (slope @ weights.T) * (seen > 0)
    return found[::-1]


def slope_of_loss(error, kind):
    """Derivative of the loss by the error."""
    if kind == "huber":
        return np.clip(error, -1, 1)
    return 2 * error if kind == "squared" else error


def one_step(online, target, adam, batch, *, discount=0.99, loss="squared", double_q=False):
    """The network after an update; `batch` is (o, a, r, d, o')."""
    o, a, r, d, following = batch
    values = forward(target, following)[1]
    best = values.max(1)
    if double_q:
        best = values[np.arange(len(a)), forward(online, following)[1].argmax(1)]
    inputs, q = forward(online, o)
    rows = np.arange(len(a))
    error = r + discount * d * best - q[rows, a]
    slope = np.zeros_like(q)
    slope[rows, a] = -slope_of_loss(error, loss) / len(a)
    return adam.step(online, backward(online, inputs, slope))


def one_step_of_a_head(
    online,
    target,
    prior,
    target_prior,
    adam,
    batch,
    mask,
    noise,
    *,
    scale=5.0,
    noise_scale=0.0,
    discount=0.99,
    divisor=1,
):
    """One head of bootstrapped DQN after an update."""
    o, a, r, d, following = batch
    rows = np.arange(len(a))
    values = forward(target, following)[1] + scale * forward(target_prior, following)[1]
    inputs, q = forward(online, o)
    error = r + noise_scale * noise + discount * d * values.max(1)
    error = error - q[rows, a] - scale * forward(prior, o)[1][rows, a]
    slope = np.zeros_like(q)
    slope[rows, a] = -2 * mask * error / len(a) / divisor
    return adam.step(online, backward(online, inputs, slope))
