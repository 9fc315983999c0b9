"""A network that chooses by what is known of a finite MDP: what training on the prior leaves."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.deep.actor_critic import DIVERGED
from jbrl.agents.prior_trained.belief_inputs import KINDS, MODELS, BeliefInputs, Rows, Seen
from jbrl.agents.prior_trained.networks import Dense
from jbrl.agents.prior_trained.trained import filled, named
from jbrl.base.pytree import record, static
from jbrl.mdp import sampling
from jbrl.mdp.incremental import Plan
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent, MadeOfWeights, Transition


@record
class BeliefPolicy(MadeOfWeights, Agent[DirichletPrior, Seen]):
    """The action of greatest output of a network, the first of those that tie; or one drawn from
    the softmax of its outputs.
    """

    parameters: jax.Array  # [P] float32
    inputs: BeliefInputs
    network: Dense = static()
    sample: bool = static(False)  # draw

    requires = BAYESIAN

    def reset(self, key: jax.Array, knowledge: DirichletPrior) -> Seen:
        return self.inputs.begin()

    def act(self, key: jax.Array, state: Seen, observation: jax.Array) -> tuple[jax.Array, Seen]:
        inputs = self.inputs.inputs(state, observation)
        outputs = outputs_of(self.network)(self.parameters, inputs)
        values = outputs[: self.inputs.n_actions]
        if self.sample:
            return selection.softmax_sample(values, sampling.uniforms(key)[0]), state
        return selection.greatest(values), state

    def refusal(self, n_actions: int) -> str:
        return DIVERGED

    def observe(self, key: jax.Array, state: Seen, transition: Transition) -> Seen:
        return self.inputs.note(
            state,
            transition.observation,
            transition.action,
            transition.next_observation,
            transition.reward,
        )


@functools.cache
def outputs_of(network: Dense) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return the function of parameters [P] and inputs [I] that computes outputs [O]."""

    @vectorize.over_lanes
    def outputs(parameters: jax.Array, inputs: jax.Array) -> jax.Array:
        if parameters.shape[-1] == 1:
            return network.apply(network.layers(parameters[:, 0]), inputs)

        def alone(parameters: jax.Array, inputs: jax.Array) -> jax.Array:
            return network.apply(network.layers(parameters), inputs[:, None])[:, 0]

        # a network for each lane
        axes = (-1, -1 if inputs.shape[-1] == parameters.shape[-1] else None)
        inputs = inputs if axes[1] == -1 else inputs[:, 0]
        return jax.vmap(alone, in_axes=axes, out_axes=-1)(parameters, inputs)

    return outputs


def known_arrays(inputs: BeliefInputs, network: Dense) -> dict[str, np.ndarray]:
    """Return all of a policy but its parameters, as arrays by name."""
    sizes = (
        inputs.n_states,
        inputs.n_actions,
        inputs.horizon,
        KINDS.index(inputs.kind),
        *network.sizes,
    )
    return {"sizes": np.array(sizes), **named(inputs, "inputs/")}


def policy_of(weights: dict[str, np.ndarray], *, sample: bool = False) -> BeliefPolicy:
    """Return the policy of `known_arrays` and `parameters`."""
    n_states, n_actions, horizon, number, *sizes = (int(v) for v in weights["sizes"])
    kind = KINDS[number]
    rows: Any = Rows(*[0] * 5)
    plans: Any = (Plan(*[0] * 13),) * MODELS.get(kind, 0)
    scale: Any = 0
    example = BeliefInputs(rows, plans, scale, n_states, n_actions, horizon, kind)
    inputs = filled(example, weights, "inputs/")
    return BeliefPolicy(weights["parameters"], inputs, Dense(tuple(sizes)), sample)
