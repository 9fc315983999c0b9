"""Actor-critic with a memory: a policy and a value function of all that an episode has shown."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jbrl.agents import selection
from jbrl.agents.deep import adam, lstm, networks, sequence
from jbrl.agents.deep.actor_critic import SequenceLearner, sequence_loss
from jbrl.agents.deep.adam import Learner
from jbrl.agents.deep.lstm import Lstm, LstmState
from jbrl.agents.deep.networks import PolicyValue
from jbrl.agents.deep.sequence import Sequence
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, select, static
from jbrl.environments.spec import Spec
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition

UNROLLS = ("acting", "tf", "jax")


@dataclasses.dataclass(frozen=True)
class RecurrentPolicyValue:
    """A multi-layer perceptron, a long short-term memory on its output, and linear layers for
    logits and value.

    Part of the compiled program.
    """

    feedforward: PolicyValue  # the perceptron, and the linear layers
    memory: Lstm
    skip: bool  # what the last layers see: perceptron + ReLU(memory); else the memory alone

    @classmethod
    def of(
        cls, spec: Spec, hidden: int, layers: int, *, final_activation: bool, skip: bool
    ) -> "RecurrentPolicyValue":
        """Return the network for observations and actions of an environment."""
        widths = (hidden,) * layers
        feedforward = PolicyValue.of(spec, widths, final_activation=final_activation)
        return cls(feedforward, Lstm(hidden, hidden), skip)

    @property
    def looked_up(self) -> int:
        """Weights of the first layer of which an input is one row."""
        return self.feedforward.looked_up

    def init(self, key: jax.Array) -> tuple[Any, ...]:
        """Draw the parameters: of the perceptron, of the last layers, of the memory."""
        memory, others = jax.random.split(key)
        return (*self.feedforward.init(others), self.memory.init(memory))

    def act(
        self,
        parameters: tuple[Any, ...],
        state: LstmState,
        observation: jax.Array,
        uniform: jax.Array,
    ) -> tuple[jax.Array, LstmState]:
        """Return an action drawn from the policy, [] int32, and the memory after the observation.

        Args:
          state: the memory before it.
          uniform: [] float32 in [0, 1).
        """
        torso, heads, memory = parameters
        seen = networks.as_input(observation, lookup=self.feedforward.torso.lookup)
        embedding = self.feedforward.torso.apply(torso, seen[None])
        state = lstm.step(memory, state, embedding[0])
        logits, _ = self._outputs(heads, embedding, state.hidden[None])
        return selection.softmax_sample(logits[0], uniform), state

    def unroll(
        self, parameters: tuple[Any, ...], start: LstmState, inputs: jax.Array, count: jax.Array
    ) -> tuple[jax.Array, jax.Array, LstmState]:
        """Return logits [S, A], values [S] and states of the memory [S, H] for the first `count` of
        consecutive observations.

        Args:
          start: state of the memory before the first of them.
          inputs: [S, I], or [S] int32 where observations are indices.
          count: [] int32, from 0 to S.
        """
        torso, heads, memory = parameters
        embedding = self.feedforward.torso.apply(torso, inputs)
        states = lstm.unroll(memory, start, embedding, count)
        return (*self._outputs(heads, embedding, states.hidden), states)

    def _outputs(
        self, heads: Any, embedding: jax.Array, memory: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        seen = embedding + jax.nn.relu(memory) if self.skip else memory
        return self.feedforward.heads(heads, seen)


@record
class RecurrentState:
    learner: Learner
    played: Sequence  # transitions since the last update
    memory: LstmState  # before the next observation, as it acts
    start: LstmState  # before the first observation of `played`, for learning
    network: RecurrentPolicyValue = static()


@register_agent("RecurrentActorCritic", cite="williams1992,hochreiter1997,osband2020bsuite")
class RecurrentActorCritic(SequenceLearner):
    """Actor-critic with a long short-term memory and lambda-returns, by Adam.

    As `ActorCritic`, but the policy remembers the episode so far, and learns by backpropagation
    through the steps of a sequence. Williams 1992, Hochreiter and Schmidhuber 1997; the agent of
    bsuite (Osband et al. 2020). A decision is one forward pass of P multiplications, learning three
    more for each step and one pass over parameters and moments for each sequence: O(P).
    """

    max_gradient_norm: float = parameter(
        0.0,
        "length that longer gradients are scaled down to, 5 in the TF variant; 0: none",
        low=0,
        high=1e9,
        static=True,
    )
    hidden_width: int = parameter(
        256, "units of each hidden layer and of the memory", low=1, high=16_384, static=True
    )
    hidden_layers: int = parameter(
        2, "hidden layers before the memory", low=1, high=16, static=True
    )
    final_activation: bool = parameter(
        False, "ReLU after the last hidden layer as well, as the TF variant", static=True
    )
    skip: bool = parameter(
        False,
        "add the hidden layers' output to ReLU of the memory's, as the TF variant",
        static=True,
    )
    sequence_length: int = parameter(
        32, "T, steps of a sequence, at most", low=1, high=10_000, static=True
    )
    unroll_from: str = parameter(
        "acting",
        "state of the memory that learning a sequence starts from. acting: the one that it acted "
        "with; tf: the one after all T + 1 observations of the last sequence, zeros at the start "
        "of an episode; jax: as tf, but never reset",
        choices=UNROLLS,
    )

    def _network(self, spec: Spec) -> RecurrentPolicyValue:
        return RecurrentPolicyValue.of(
            spec,
            self.hidden_width,
            self.hidden_layers,
            final_activation=self.final_activation,
            skip=self.skip,
        )

    def reset(self, key: jax.Array, knowledge: Prior) -> RecurrentState:
        spec = knowledge.spec
        network = self._network(spec)
        played = Sequence.empty(spec.observation, self.sequence_length)
        networks.check_size("RecurrentActorCritic", network, played)
        learner = adam.learner(network.init(key))
        none = network.memory.start()
        return RecurrentState(learner, played, none, none, network)

    def act(
        self, key: jax.Array, state: RecurrentState, observation: jax.Array
    ) -> tuple[jax.Array, RecurrentState]:
        action, memory = state.network.act(
            state.learner.parameters, state.memory, observation, sampling.uniforms(key)[0]
        )
        return action, dataclasses.replace(state, memory=memory)

    def observe(
        self, key: jax.Array, state: RecurrentState, transition: Transition
    ) -> RecurrentState:
        played = state.played.append(transition)
        ended = transition.terminated | transition.truncated
        due = ended | (played.length == played.capacity)
        network = state.network

        def update(now: Any, context: Any, sizes: tuple[int, ...]) -> tuple[Learner, LstmState]:
            (learner, start), (played, terminated, agent) = now, context
            return learn(network, learner, start, played, terminated, agent, sizes)

        context = jax.tree.map(jnp.asarray, (played, transition.terminated, self))
        before = (state.learner, state.start)
        learner, unrolled = sequence.update_where(
            due, update, before, context, self.sequence_length
        )
        none = network.memory.start()
        memory = select(ended, none, state.memory)
        start = unrolled
        if self.unroll_from == "acting":
            start = select(due, memory, state.start)
        elif self.unroll_from == "tf":
            start = select(ended, none, unrolled)
        return RecurrentState(learner, played.emptied(due), memory, start, network)


def learn(
    network: RecurrentPolicyValue,
    learner: Learner,
    start: LstmState,
    played: Sequence,
    terminated: jax.Array,
    agent: RecurrentActorCritic,
    sizes: tuple[int, ...],
) -> tuple[Learner, LstmState]:
    """Return the learner after one update from a sequence, and the state of the memory after all
    its T + 1 observations, by the parameters before the update.

    Args:
      start: state of the memory before the first observation.
      sizes: lengths that a program is compiled for; the shortest that suffices computes
        the gradient.
    """

    def loss(parameters: Any, size: int) -> tuple[jax.Array, LstmState]:
        logits, values, states = network.unroll(
            parameters, start, played.inputs(size), played.length + 1
        )
        last = jax.tree.map(lambda v: v[played.length], states)
        return sequence_loss(logits, values, played, terminated, agent), last

    def gradient(size: int) -> tuple[Any, LstmState]:
        return jax.grad(loss, has_aux=True)(learner.parameters, size)

    slope, last = sequence.by_length(gradient, played.length, sizes)
    max_norm = agent.max_gradient_norm or None
    return adam.descend(learner, slope, agent.learning_rate, max_norm=max_norm), last
