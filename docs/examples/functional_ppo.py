"""An actor-critic in one compiled program, in the manner of PureJaxRL, on a problem of jbrl.

All lanes act, learn and start new episodes within `jax.lax.scan`; the environment is used by
gymnax's signature alone. Source of the form: Lu et al. 2022, Discovered policy optimisation
(PureJaxRL); of the algorithm: Schulman et al. 2017, Proximal policy optimization, equation 7.
"""

import functools

import jax
import jax.numpy as jnp

import jbrl.functional

LANES, STEPS, UPDATES, EPOCHS = 32, 32, 60, 4
DISCOUNT, LAMBDA, CLIP, RATE, ENTROPY = 0.99, 0.95, 0.2, 0.5, 0.01


def logits_and_value(weights, observation):
    """Linear functions of the observation: [A] and []."""
    return weights["actor"] @ observation, weights["critic"] @ observation


def collect(env, params, weights, carry, key):
    """One step of every lane."""
    states, observations = carry
    act_key, step_key = jax.random.split(key)
    logits, values = jax.vmap(functools.partial(logits_and_value, weights))(observations)
    actions = jax.random.categorical(act_key, logits)
    keys = jax.random.split(step_key, LANES)
    following, states, rewards, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
        keys, states, actions, params
    )
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], 1)[:, 0]
    return (states, following), (observations, actions, rewards, done, values, chosen)


def advantages(rewards, done, values, last):
    """Generalised advantage estimates, [T, N]."""

    def back(carry, step):
        following, total = carry
        reward, ended, value = step
        going = 1 - ended.astype(jnp.float32)
        delta = reward + DISCOUNT * following * going - value
        total = delta + DISCOUNT * LAMBDA * going * total
        return (value, total), total

    start = (last, jnp.zeros_like(last))
    return jax.lax.scan(back, start, (rewards, done, values), reverse=True)[1]


def loss(weights, batch, gains):
    """Return the clipped objective and the squared error of values, less the entropy."""
    observations, actions, _, _, values, before = batch
    predict = jax.vmap(jax.vmap(functools.partial(logits_and_value, weights)))
    logits, now = predict(observations)
    logs = jax.nn.log_softmax(logits)
    ratio = jnp.exp(jnp.take_along_axis(logs, actions[..., None], -1)[..., 0] - before)
    scaled = (gains - gains.mean()) / (gains.std() + 1e-8)
    actor = -jnp.minimum(ratio * scaled, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * scaled).mean()
    entropy = -(jnp.exp(logs) * logs).sum(-1).mean()
    return actor + 0.5 * ((now - values - gains) ** 2).mean() - ENTROPY * entropy


def train(env, params, key):
    """Learn for `UPDATES` updates; the mean reward of a step at each, [UPDATES] float32."""
    n = env.observation_space(params).shape[0]
    weights = {"actor": jnp.zeros((env.action_space(params).n, n)), "critic": jnp.zeros(n)}
    key, first = jax.random.split(key)
    reset = jax.vmap(env.reset, in_axes=(0, None))
    observations, states = reset(jax.random.split(first, LANES), params)

    def update(carry, key):
        weights, lanes = carry
        step = functools.partial(collect, env, params, weights)
        lanes, batch = jax.lax.scan(step, lanes, jax.random.split(key, STEPS))
        last = jax.vmap(functools.partial(logits_and_value, weights))(lanes[1])[1]
        gains = advantages(batch[2], batch[3], batch[4], last)

        def descend(weights, _):
            slopes = jax.grad(loss)(weights, batch, gains)
            return jax.tree.map(lambda w, g: w - RATE * g, weights, slopes), None

        weights, _ = jax.lax.scan(descend, weights, None, EPOCHS)
        return (weights, lanes), batch[2].mean()

    keys = jax.random.split(key, UPDATES)
    return jax.lax.scan(update, (weights, (states, observations)), keys)[1]


if __name__ == "__main__":
    env, params = jbrl.functional.make("DeepSea(size=3)", vectors=True)
    rewards = jax.jit(functools.partial(train, env))(params, jax.random.key(0))
    print(f"mean reward of a step: {rewards[0]:.3f}, then {rewards[-1]:.3f}")  # noqa: T201
