"""Plain NumPy twins of the updates of DQN and bootstrapped DQN, in double precision."""

import numpy as np


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
