"""Lifetimes whose transitions do not depend on what the agent does, for complete algorithms, and
the twins of these: programs in NumPy, in double precision, that follow the definitions one feature
at a time.
"""

import dataclasses
import functools
import itertools

import jax
import numpy as np

from jbrl.environments.spec import Box, Discrete, Episodes, OneHot, Spec
from jbrl.mdp import sampling
from tests.agents.linear import scripted
from tests.agents.linear.scripted import SpecPrior

N_ACTIONS, STEPS, LANES = 3, 300, 3
TABLE = Spec(OneHot(5), Discrete(N_ACTIONS))
LOW, HIGH = (-1.0, 0.0), (1.0, 0.5)
BOX = Spec(Box((2,), LOW, HIGH), Discrete(N_ACTIONS))
EPISODES = 45  # of a lifetime; a script has about 60


@functools.cache
def script(spec):
    """Transitions of each lane, arrays [L, T]; one step in five ends an episode, a third of
    these truncate it.
    """
    rng = np.random.default_rng(4)
    shape = (LANES, STEPS)
    if spec == TABLE:
        start, arrival = rng.integers(-1, 5, (2, *shape)).astype(np.int32)
    else:
        start, arrival = rng.uniform(-1, 1, (2, *shape, 2)).astype(np.float32)
    end = rng.choice(3, shape, p=[0.8, 0.13, 0.07])
    ended = (end > 0).reshape(*shape, *(1,) * (arrival.ndim - 2))
    observation = np.roll(np.where(ended, start, arrival), 1, axis=1)
    keys = jax.random.split(jax.random.key(3), (2, *shape))
    reward = rng.normal(size=shape).astype(np.float32)
    return observation, reward, arrival, end == 1, end == 2, *keys


def prior(spec=TABLE):
    return SpecPrior(spec, Episodes(EPISODES))


@functools.partial(jax.jit, static_argnames=("agent", "prior"))
def _play(agent, prior, keys, arrays):
    return jax.vmap(functools.partial(scripted.play, agent, prior))(keys, *arrays)


def play(agent, spec):
    """Actions [L, T] and states [L, T, ...] of an agent with fixed parameters."""
    keys = jax.random.split(jax.random.key(8), LANES)
    return jax.tree.map(np.asarray, _play(agent, prior(spec), keys, script(spec)))


def steps(spec, lane):
    """Return arrays of each step for a twin: observation, reward, next observation, terminated,
    truncated, uniforms of both keys, and the second key.
    """
    arrays = script(spec)
    uniforms = (np.asarray(jax.vmap(sampling.uniforms)(k[lane])) for k in arrays[5:])
    return zip(*(a[lane] for a in arrays[:5]), *uniforms, arrays[6][lane], strict=True)


@dataclasses.dataclass
class Twin:
    """Common part of the twins of all algorithms: hyperparameters and features."""

    drawn: dict  # name: float
    spec: Spec

    def __post_init__(self):
        self.vectors = vectors(self.drawn) if self.spec == BOX else None
        self.decay = self.drawn["gamma"] * self.drawn["lambda"]

    def phi(self, x):
        if self.vectors is None:
            return np.eye(5)[x] if x >= 0 else np.zeros(5)
        low, high = np.array(LOW), np.array(HIGH)
        return np.cos(np.pi * self.vectors @ ((x - low) / (high - low)))

    def zeros(self, rows):
        return np.zeros((rows, 5 if self.vectors is None else len(self.vectors)))

    def epsilon_greedy(self, values, uniforms):
        if uniforms[0] < np.float32(self.drawn["epsilon"]):
            return int(uniforms[1] * np.float32(N_ACTIONS))
        return int(np.argmax(values))


def vectors(drawn):
    """The vectors of the Fourier basis of two inputs in the order of `features`."""
    dependent, independent = int(drawn["dependent"]), int(drawn["independent"])
    alone = [v for k in range(1, max(dependent, independent) + 1) for v in ((k, 0), (0, k))]
    grid = itertools.product(range(1, dependent + 1), repeat=2)
    return np.array([(0, 0), *alone, *sorted(grid, key=lambda c: (max(c), c))])


def in_order(values, drawn, capacity):
    """Weights [A, F] of a twin as those of the agent, [A, capacity] of orders up to 9."""
    if "dependent" not in drawn:
        return values
    places = {tuple(v): i for i, v in enumerate(vectors({"dependent": 9, "independent": 9}))}
    found = np.zeros((values.shape[0], capacity))
    for column, vector in zip(values.T, vectors(drawn), strict=True):
        found[:, places[tuple(vector)]] = column
    return found


def softmax(preferences):
    weights = np.exp(np.clip(preferences, -32, 32))
    return weights / weights.sum()


class ActionValueTwin(Twin):
    """Sarsa(lambda) and Q(lambda), plain and with Parl2."""

    def play(self, lane, greedy_target, adapts):
        """Yield action, weights, trace, step size."""
        w, alpha, done = self.zeros(N_ACTIONS), self.drawn.get("alpha", 1.0), 0
        e, fresh = self.zeros(N_ACTIONS), True
        gamma = self.drawn["gamma"]
        for x, r, y, terminated, truncated, first, then, _ in steps(self.spec, lane):
            phi, following = self.phi(x), self.phi(y)
            if fresh:
                u, e = self.epsilon_greedy(w @ phi, first), self.zeros(N_ACTIONS)
            values = w @ following
            v = self.epsilon_greedy(values, then)
            future = values.max() if greedy_target else values[v]
            delta = r + (0 if terminated else gamma * future) - w[u] @ phi
            e *= self.decay
            e[u] += phi
            if done < EPISODES:
                if adapts:
                    change = (0 if terminated else gamma * e[v] @ following) - e[u] @ phi
                    if change < 0:
                        alpha = min(alpha, -1 / change)
                w = w + alpha * delta * e
            yield u, w, e.copy(), alpha
            fresh, u = terminated or truncated, v
            done += fresh


class ActorCriticTwin(Twin):
    """AC with both kinds of step size, and NAC-TD."""

    def play(self, lane, adapts, natural, surprise):
        """Yield action, and the weights of value, policy and advantages."""
        v, theta, w = self.zeros(1), self.zeros(N_ACTIONS), self.zeros(N_ACTIONS)
        alpha, done, fresh, gamma = self.drawn.get("alpha_v", 1.0), 0, True, self.drawn["gamma"]
        for x, r, y, terminated, truncated, first, _, _ in steps(self.spec, lane):
            phi, following = self.phi(x), self.phi(y)
            if fresh:
                e_v, e = self.zeros(1), self.zeros(N_ACTIONS)
            pi = softmax(theta @ phi)
            u = min(int((np.cumsum(pi) <= first[0]).sum()), N_ACTIONS - 1)
            future = 0 if terminated else gamma * (v @ following)[0]
            delta = r + future - (v @ phi)[0] - surprise * np.log(pi[u])
            psi = ((np.arange(N_ACTIONS) == u) - pi)[:, None] * phi
            e_v = self.decay * e_v + phi
            e = self.decay * e + psi
            if done < EPISODES:
                if adapts:
                    change = (e_v @ ((0 if terminated else gamma) * following - phi))[0]
                    if change < 0:
                        alpha = min(alpha, -1 / change)
                v = v + alpha * delta * e_v
                if natural:
                    w = w + self.drawn["alpha_w"] * (delta - (w * psi).sum()) * e
                    # 0 while all observations have been vectors of zeros
                    length = np.sqrt((w**2).sum())
                    theta = theta + self.drawn["alpha_p"] * w / (length or 1)
                else:
                    theta = theta + self.drawn["alpha_p"] * delta * e
            yield u, v, theta, w
            fresh = terminated or truncated
            done += fresh


class PPOTwin(Twin):
    """PPO with linear functions, one sample at a time."""

    def play(self, lane, sign):
        """Yield action and weights, preferences first."""
        theta, v = self.zeros(N_ACTIONS), self.zeros(1)
        self.moments = [np.zeros((2, *a.shape)) for a in (theta, v)]
        self.t, done, buffer = 0, 0, []
        for x, r, y, terminated, truncated, first, _, key in steps(self.spec, lane):
            phi = self.phi(x)
            pi = softmax(theta @ phi)
            u = min(int((np.cumsum(pi) <= first[0]).sum()), N_ACTIONS - 1)
            if done < EPISODES:
                buffer.append((phi, u, r, self.phi(y), terminated, truncated))
            if len(buffer) == int(self.drawn["steps"]):
                theta, v = self.learn(theta, v, buffer, key, sign)
                buffer = []
            yield u, np.concatenate([theta, v])
            done += terminated or truncated

    def learn(self, theta, v, buffer, key, sign):
        gamma, n = self.drawn["gamma"], len(buffer)
        advantages, later = np.zeros(n), 0.0
        for t in reversed(range(n)):
            phi, _, r, following, terminated, truncated = buffer[t]
            goes_on = 0 if terminated else 1
            delta = r + gamma * goes_on * (v @ following)[0] - (v @ phi)[0]
            later = delta + self.decay * (not terminated and not truncated) * later
            advantages[t] = later
        targets = advantages + [(v @ b[0])[0] for b in buffer]
        logs = [np.log(softmax(theta @ b[0])[b[1]]) for b in buffer]
        size = int(self.drawn["batch"])
        for epoch in range(int(self.drawn["epochs"])):
            bits = np.asarray(jax.random.bits(jax.random.fold_in(key, epoch), (256,)))[:n] >> 1
            order = np.argsort(bits, kind="stable")
            for k in range(0, n, size):
                part = order[k : k + size]
                gradients = [np.zeros_like(theta), np.zeros_like(v)]
                for t in part:
                    phi, u = buffer[t][:2]
                    pi = softmax(theta @ phi)
                    ratio = np.exp(np.log(pi[u]) - logs[t])
                    clip = self.drawn["clip"]
                    limited = np.clip(ratio, 1 - clip, 1 + clip)
                    step = self.drawn["entropy"] * (
                        -pi * np.log(pi) + sign * pi * -(pi * np.log(pi)).sum()
                    )
                    if ratio * advantages[t] <= limited * advantages[t]:
                        step += ratio * advantages[t] * ((np.arange(N_ACTIONS) == u) - pi)
                    gradients[0] += step[:, None] * phi
                    gradients[1] += (targets[t] - (v @ phi)[0]) * phi
                self.t += 1
                theta, v = (
                    self.ascend(a, g / len(part), m)
                    for a, g, m in zip((theta, v), gradients, self.moments, strict=True)
                )
        return theta, v

    def ascend(self, weights, gradient, moments):
        moments[0] = 0.9 * moments[0] + 0.1 * gradient
        moments[1] = 0.999 * moments[1] + 0.001 * gradient**2
        rate = self.drawn["alpha"] * np.sqrt(1 - 0.999**self.t) / (1 - 0.9**self.t)
        return weights + rate * moments[0] / (np.sqrt(moments[1]) + 1e-5)
