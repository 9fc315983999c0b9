"""Policies over discrete actions with a value function: network, decisions, losses, optimiser."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jbrl import vectorize
from jbrl.agents.deep import networks
from jbrl.agents.deep.networks import Linear, Mlp
from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record
from jbrl.environments.spec import Spec
from jbrl.rollout.contract import NO_ACTION

FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-8  # of `optax.adam`
MAX_BYTES = 4 << 30  # of one lifetime
DIVERGED = "its policy is NaN: learning has diverged; a smaller learning_rate may help"


@dataclasses.dataclass(frozen=True)
class PolicyValue:
    """A multi-layer perceptron, and linear layers on its output for logits and value.

    The two layers are one with A + 1 outputs, the last of which is the value. Part of the compiled
    program.
    """

    torso: Mlp
    n_actions: int

    @classmethod
    def of(
        cls, spec: Spec, widths: tuple[int, ...], *, final_activation: bool = False
    ) -> "PolicyValue":
        """Return the network for observations and actions of an environment."""
        inputs, lookup = networks.input_size(spec.observation)
        return cls(Mlp(inputs, widths, lookup, final_activation), spec.actions.n)

    @property
    def looked_up(self) -> int:
        """Weights of the first layer of which an input is one row."""
        return self.torso.inputs * self.torso.widths[0] if self.torso.lookup else 0

    def init(self, key: jax.Array) -> tuple[Any, Linear]:
        """Draw the parameters, as `networks.linear` does."""
        torso, heads = jax.random.split(key)
        return self.torso.init(torso), networks.linear(
            heads, self.torso.widths[-1], self.n_actions + 1
        )

    def apply(
        self, parameters: tuple[Any, Linear], inputs: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return logits [B, A] and values [B] for a batch.

        Args:
          inputs: [B, inputs] float, or [B] int32 where observations are indices.
        """
        return self.heads(parameters[1], self.torso.apply(parameters[0], inputs))

    def heads(self, layer: Linear, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return logits [B, A] and values [B] of the outputs of the torso, [B, H]."""
        outputs = hidden @ layer.weights + layer.bias[None]
        return outputs[:, : self.n_actions], outputs[:, self.n_actions]

    def act(
        self, parameters: tuple[Any, Linear], observation: jax.Array, uniform: jax.Array
    ) -> jax.Array:
        """Return an action drawn from the policy: [] int32.

        Args:
          parameters: the parameters.
          observation: of one lane, as the environment gives it.
          uniform: [] float32 in [0, 1).
        """
        seen = networks.as_input(observation, lookup=self.torso.lookup)
        return sample(self.apply(parameters, seen[None])[0][0], uniform)


def sample(logits: jax.Array, uniform: jax.Array) -> jax.Array:
    """Return an action drawn from the softmax of `logits` [A], by one uniform number in [0, 1):
    [] int32.

    The first whose cumulative probability exceeds the number; `NO_ACTION` with NaN among
    the logits.
    """
    weights = jnp.exp(logits - logits.max())
    sums = jnp.cumsum(weights)
    # the last sum need not be compared: it is the total
    action = (sums[:-1] <= uniform * sums[-1]).sum(dtype=jnp.int32)
    action = jnp.where(jnp.isnan(sums[-1]), NO_ACTION, action)
    # or XLA chooses it anew in each operation that uses it
    return vectorize.prevent_fusion_index(action)


def log_probabilities(logits: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the log-probabilities of actions [T], and the entropies [T] of the policies.

    Args:
      logits: [T, A].
      actions: [T] int32.
    """
    logs = jax.nn.log_softmax(logits)
    chosen = actions[:, None] == jnp.arange(logits.shape[1], dtype=jnp.int32)[None]
    return jnp.where(chosen, logs, jnp.zeros_like(logs)).sum(1), -(jnp.exp(logs) * logs).sum(1)


def check_size(name: str, network: Any, kept: Any) -> None:
    """Refuse an agent whose state takes too much memory. On the host, while it is traced.

    Args:
      name: of the agent, for the message.
      network: has `init`.
      kept: pytree of arrays that it keeps beside parameters, gradient and moments.

    Raises:
      JbrlError: says how much one lifetime takes.
    """
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    parameters, others = (
        sum(math.prod(v.shape) for v in jax.tree.leaves(tree)) for tree in (shapes, kept)
    )
    needed = 4 * (4 * parameters + others)
    if needed > MAX_BYTES:
        raise JbrlError(
            f"{name} takes {needed / 2**30:.3g} GiB for one lifetime, {parameters:,} parameters: "
            f"expected at most {MAX_BYTES >> 30} GiB; a smaller hidden_width takes less"
        )


@record
class Learner:
    """Parameters of a network and the state of their optimiser.

    The parameters are separate arrays: a decision at each step reads them, and as slices of one
    vector they would be copied before each product.
    """

    parameters: Any
    optimiser: Any


def learner(parameters: Any) -> Learner:
    """Return the learner that starts from these parameters."""
    return Learner(parameters, optax.scale_by_adam().init(parameters))


def descend(
    state: Learner,
    gradient: Any,
    learning_rate: float | jax.Array,
    *,
    max_norm: float | jax.Array | None = None,
) -> Learner:
    """Return the learner after one step of `optax.adam`, with its decays 0.9 and 0.999 and its
    epsilon 1e-8.

    The moments' corrections are factors here, not divisors: of optax's three divisions and a root
    for each parameter, which take longer than the rest, one and the root are left.

    Args:
      gradient: like the parameters.
      max_norm: Euclidean length that the gradient is scaled down to where it is longer; None: it is
        used as it is.
    """
    if max_norm is not None:
        gradient = clipped(gradient, max_norm)
    before = state.optimiser
    count = optax.safe_increment(before.count)
    first = _moving(gradient, before.mu, FIRST_DECAY)
    second = _moving(jax.tree.map(jnp.square, gradient), before.nu, SECOND_DECAY)

    def moved(parameter: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        steps = count.astype(parameter.dtype)
        rate = learning_rate / (1 - FIRST_DECAY**steps)
        correction = lax.rsqrt(1 - SECOND_DECAY**steps)
        return parameter - rate * first / (jnp.sqrt(second) * correction + EPSILON)

    parameters = jax.tree.map(moved, state.parameters, first, second)
    return Learner(parameters, optax.ScaleByAdamState(count, first, second))


def _moving(new: Any, average: Any, decay: float) -> Any:
    return jax.tree.map(lambda n, a: (1 - decay) * n + decay * a, new, average)


def clipped(gradient: Any, max_norm: float | jax.Array) -> Any:
    """Return the gradient, a pytree, scaled down to the length `max_norm` where it is longer.

    One of length NaN stays as it is.
    """
    squares = [(g * g).sum() for g in jax.tree.leaves(gradient)]
    norm = jnp.sqrt(jnp.stack(squares).sum())
    scale = jnp.where(norm > max_norm, max_norm / norm, jnp.ones_like(norm))
    return jax.tree.map(lambda g: g * scale, gradient)
