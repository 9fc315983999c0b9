"""A policy that chooses by what is known of a finite MDP, and what its network sees: counts of
transitions, action values of models, the time.

Rows (state, action) with a single possible successor are certain, and have no inputs. What is left
is [R, K]: R uncertain rows of up to K successors.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.deep.actor_critic import DIVERGED
from jbrl.agents.opps.ranking import plans
from jbrl.agents.prior_trained.lifetimes import Rows, rows_of
from jbrl.agents.prior_trained.networks import Attention, Dense
from jbrl.agents.prior_trained.trained import filled, named
from jbrl.base.pytree import record, static
from jbrl.mdp import incremental, sampling
from jbrl.mdp.incremental import Plan
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, MadeOfWeights, Transition

KINDS = ("belief", "values", "both", "mean", "mean and belief", "history")
BELIEF = ("belief", "both", "mean and belief")  # kinds that see means and numbers of observations
COUNTED = (*BELIEF, "history")  # kinds that count transitions
MODELS = {"values": 3, "both": 3, "mean": 1, "mean and belief": 1}  # of Q0, Q1, Q2, that they see
ROW_COPIES, PLAN_COPIES = 3, 2  # of uncertain rows, and of a model with its plan, in training
DRAWN_OUT = 10.0  # factor of differences of action values, which are small beside the values


@record
class Seen:
    """Observations of a lifetime so far."""

    counts: Array  # [R K + 1] float32, transitions; the last entry takes those of certain rows
    plans: tuple[Plan, ...]  # of the models of Q0, Q1, Q2; none where values are no inputs
    time: Array  # [] int32, decisions taken


@record
class BeliefInputs:
    """Inputs of a network by what a lifetime has shown."""

    rows: Rows
    plans: tuple[Plan, ...]  # before the first transition
    scale: Array  # [] float32, action values are divided by it
    n_states: int = static()
    n_actions: int = static()
    horizon: int = static()  # H: time counts up to here
    kind: str = static()  # one of `KINDS`

    @property
    def size(self) -> int:
        """Number of inputs."""
        return _size(self.kind, self.n_states, self.n_actions, *self.rows.shape)

    def begin(self) -> Seen:
        """Return what is known before the first transition."""
        n_rows, width = self.rows.shape
        return Seen(jnp.zeros(n_rows * width + 1), self.plans, jnp.int32(0))

    def updated(self, seen: Seen, transition: Transition) -> Seen:
        """Return what is known after one more transition."""
        x, u, y = transition.observation, transition.action, transition.next_observation
        counts, reward = seen.counts, transition.reward
        if self.kind in COUNTED:
            triple = (x * self.n_actions + u) * self.n_states + y
            counts = _counted(counts, self.rows.place, triple)
        changed = tuple(incremental.learn(plan, x, u, y, reward) for plan in seen.plans)
        return Seen(counts, changed, seen.time + 1)

    def inputs(self, seen: Seen, x: Array) -> Array:
        """Return the inputs in state `x`: [size] float32.

        In this order: the state as one of S numbers that is 1; the time left, as a share;
        the posterior mean of each row but for its last successor, and 1 / sqrt(1 + n) of its n
        transitions, then the same of the rows of state `x`; of each of Q0, Q1 and Q2 the greatest
        value in `x`, and the distances of all values from it. The kind "mean": the values of Q0.
        The kind "history": the state, the time left and the numbers of transitions, [R K].
        """
        if self.kind == "mean":
            return _plain_values(seen.plans[0], x, self.scale)
        time = jnp.minimum(seen.time, self.horizon).astype(jnp.float32)
        left = 1 - time / self.horizon
        parts = [_one_hot(x, jnp.zeros(self.n_states)), left[None]]
        if self.kind in BELIEF:
            rows_at = vectorize.get_entry(self.rows.row.reshape(self.n_states, -1), x)
            parts.append(_belief(seen.counts, self.rows.concentrations, rows_at))
        parts += [_values(plan, x, self.scale) for plan in seen.plans]
        if self.kind == "history":
            parts.append(seen.counts[:-1])
        return jnp.concatenate(parts)


def over_lifetimes(
    see: BeliefInputs,
) -> tuple[Callable[[Any, Array], Array], Callable[[Any, Transition], Any]]:
    """Return `see.inputs` and `see.updated`, mapped over lifetimes along the last axis."""
    inputs_of = jax.vmap(lambda seen, x: see.inputs(seen, x), in_axes=-1, out_axes=-1)
    updated = jax.vmap(lambda seen, t: see.updated(seen, t), in_axes=-1, out_axes=-1)
    return inputs_of, updated


def number_of_inputs(prior: DirichletPrior, kind: str) -> int:
    """Return the number of inputs of a kind; on the host, and without values of models."""
    rows = rows_of(prior)
    return _size(kind, prior.mdps.n_states, prior.mdps.n_actions, *rows.concentrations.shape)


def group_bytes(prior: DirichletPrior, kind: str, width: int) -> int:
    """Return about how many bytes the MDPs of `width` lifetimes take, and the plans of models that
    a kind of inputs has. On the host.
    """
    n_states = prior.mdps.n_states
    rows = ROW_COPIES * rows_of(prior).concentrations.size
    plan = PLAN_COPIES * (prior.mdps.concentrations.size + n_states * n_states)
    return 4 * width * (rows + MODELS.get(kind, 0) * plan)


def _size(kind: str, n_states: int, n_actions: int, n_rows: int, width: int) -> int:
    if kind == "mean":
        return n_actions
    total = n_states + 1 + MODELS.get(kind, 0) * (n_actions + 1)
    if kind in BELIEF:
        total += n_rows * width + n_actions * width
    if kind == "history":
        total += n_rows * width
    return total


def greatest_reward(prior: DirichletPrior) -> float:
    """Return the greatest absolute value of a reward that is possible; 1 where there is none. On
    the host.
    """
    possible = np.asarray(prior.mdps.concentrations) > 0
    return float(np.abs(np.where(possible, np.asarray(prior.mdps.rewards), 0)).max()) or 1.0


def belief_inputs(prior: DirichletPrior, kind: str, horizon: int) -> BeliefInputs:
    """Return the inputs for a prior. On the host.

    Args:
      kind: one of `KINDS`.
      horizon: H, of training.
    """
    n_models = MODELS.get(kind, 0)
    models: Any = plans(prior)[:n_models] if n_models else ()
    scale = greatest_reward(prior)
    if models:
        scale = float(jnp.abs(models[0].action_values).max()) or 1.0
    return BeliefInputs(
        rows_of(prior),
        tuple(models),
        jnp.float32(scale),
        prior.mdps.n_states,
        prior.mdps.n_actions,
        horizon,
        kind,
    )


@vectorize.over_lanes
def _counted(counts: Array, place: Array, transition: Array) -> Array:
    at = vectorize.prevent_fusion_index(vectorize.pick(place, transition))
    return vectorize.add_at(counts, at, jnp.ones(at.shape, counts.dtype))


@vectorize.over_lanes
def _one_hot(x: Array, zeros: Array) -> Array:
    numbers = jnp.arange(zeros.shape[0], dtype=jnp.int32)[:, None]
    return (numbers == x[None]).astype(zeros.dtype)


@vectorize.over_lanes
def _belief(counts: Array, concentrations: Array, at: Array) -> Array:
    """Return the inputs by counts [R K + 1, N], of all rows and of the rows `at` [A, N]: [R K +
    A K, N].
    """
    n_rows, width, _ = concentrations.shape
    seen = counts[:-1].reshape(n_rows, width, counts.shape[-1])
    number = vectorize.fold(jnp.add, lambda k: seen[:, k], width)
    prior = concentrations.sum(1)
    means = (concentrations + seen)[:, :-1] / (prior + number)[:, None]
    table = jnp.concatenate([means, lax.rsqrt(1 + number)[:, None]], axis=1)
    lanes = max(table.shape[-1], at.shape[-1])
    table = jnp.broadcast_to(table, (n_rows, width, lanes))
    certain = jnp.concatenate([table, jnp.zeros((1, width, lanes), table.dtype)])
    here = [vectorize.pick(certain, at[u]) for u in range(at.shape[0])]
    here = [jnp.broadcast_to(v, (width, lanes)) for v in here]
    return jnp.concatenate([table.reshape(n_rows * width, lanes), *here])


def _lanes_values(plan: Plan, x: Array, scale: Array) -> Array:
    values = vectorize.pick(plan.q, x) + plan.level[None]
    return vectorize.prevent_fusion(values / scale[None])


@vectorize.over_lanes
def _plain_values(plan: Plan, x: Array, scale: Array) -> Array:
    """Return the action values in state `x`, in units of `scale`: [A, N]."""
    return _lanes_values(plan, x, scale)


@vectorize.over_lanes
def _values(plan: Plan, x: Array, scale: Array) -> Array:
    """Return the inputs by the action values in state `x`: [1 + A, N]."""
    values = _lanes_values(plan, x, scale)
    greatest = vectorize.fold(jnp.maximum, lambda u: values[u], values.shape[0])
    # small differences decide: they are drawn out
    return jnp.concatenate([greatest[None], DRAWN_OUT * (values - greatest[None])])


@record
class BeliefPolicy(MadeOfWeights, Agent[DirichletPrior, Seen]):
    """The action of greatest output of a network, the first of those that tie; or one drawn from
    the softmax of its outputs.
    """

    parameters: Array  # [P] float32
    inputs: BeliefInputs
    network: Dense | Attention = static()
    sample: bool = static(False)  # draw

    requires = BAYESIAN

    def reset(self, key: Array, knowledge: DirichletPrior) -> Seen:
        return self.inputs.begin()

    def act(self, key: Array, state: Seen, observation: Array) -> tuple[Array, Seen]:
        inputs = self.inputs.inputs(state, observation)
        outputs = outputs_of(self.network)(self.parameters, inputs)
        values = outputs[: self.inputs.n_actions]
        if self.sample:
            return selection.softmax_sample(values, sampling.uniforms(key)[0]), state
        return selection.greatest(values), state

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def observe(self, key: Array, state: Seen, transition: Transition) -> Seen:
        return self.inputs.updated(state, transition)


@functools.cache
def outputs_of(network: Dense | Attention) -> Callable[[Array, Array], Array]:
    """Return the function of parameters [P] and inputs [I] that computes outputs [O]."""

    @vectorize.over_lanes
    def outputs(parameters: Array, inputs: Array) -> Array:
        if parameters.shape[-1] == 1:
            return network.apply(network.layers(parameters[:, 0]), inputs)

        def alone(parameters: Array, inputs: Array) -> Array:
            return network.apply(network.layers(parameters), inputs[:, None])[:, 0]

        # a network for each lane
        axes = (-1, -1 if inputs.shape[-1] == parameters.shape[-1] else None)
        inputs = inputs if axes[1] == -1 else inputs[:, 0]
        return jax.vmap(alone, in_axes=axes, out_axes=-1)(parameters, inputs)

    return outputs


def known_arrays(inputs: BeliefInputs, network: Dense | Attention) -> dict[str, npt.NDArray[Any]]:
    """Return all of a policy but its parameters, as arrays by name."""
    sizes = (
        inputs.n_states,
        inputs.n_actions,
        inputs.horizon,
        KINDS.index(inputs.kind),
        *network.sizes,
    )
    return {"sizes": np.array(sizes), **named(inputs, "inputs/")}


def policy_of(weights: dict[str, npt.NDArray[Any]], *, sample: bool = False) -> BeliefPolicy:
    """Return the policy of `known_arrays` and `parameters`."""
    n_states, n_actions, horizon, number, *sizes = (int(v) for v in weights["sizes"])
    kind, none = KINDS[number], jnp.int32(0)
    plans = (Plan(*[none] * 13),) * MODELS.get(kind, 0)
    example = BeliefInputs(Rows(*[none] * 5), plans, none, n_states, n_actions, horizon, kind)
    inputs = filled(example, weights, "inputs/")
    parameters: Any = weights["parameters"]
    network = Attention(tuple(sizes)) if kind == "history" else Dense(tuple(sizes))
    return BeliefPolicy(parameters, inputs, network, sample)
