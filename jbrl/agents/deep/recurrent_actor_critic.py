"""Actor-critic with a memory: a policy and a value function of all that an episode has shown.

The memory, a long short-term memory, has its own backward pass. Differentiating a scan would add an
outer product to the gradient of the weights at each step, and pass over a matrix of megabytes for
it. Here the steps only find the gradients of the gates, and one product of matrices afterwards that
of the weights. Both passes take as many steps as count, not as many as there is space for. A loop
over steps reads one matrix of weights: with 256 units one stays in a core's cache from step to
step, and two do not.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jbrl.agents import selection
from jbrl.agents.deep import adam, networks, sequence
from jbrl.agents.deep.actor_critic import SequenceLearner, sequence_loss
from jbrl.agents.deep.adam import Learner
from jbrl.agents.deep.networks import PolicyValue
from jbrl.agents.deep.sequence import Sequence
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record, select, static
from jbrl.environments.spec import Spec
from jbrl.mdp import sampling
from jbrl.problems.prior import Prior
from jbrl.rollout.contract import Transition


@record
class LstmParameters:
    """Parameters of a cell; the four gates are i, g, f, o, in this order."""

    inputs: Array  # [I, 4 H], weights of the inputs
    hidden: Array  # [H, 4 H], weights of the last output
    bias: Array  # [4 H]


@record
class LstmState:
    """State of a cell: its last output is `hidden`."""

    hidden: Array  # [H]
    cell: Array  # [H]


@dataclasses.dataclass(frozen=True)
class Lstm:
    """A long short-term memory (Hochreiter and Schmidhuber 1997) as Haiku has it.

    With the gates i, g, f, o of x W + h U + b: c' = sigma(f + 1) c + sigma(i) tanh(g) and
    h' = sigma(o) tanh(c'). Part of the compiled program.
    """

    inputs: int
    units: int

    def init(self, key: Array) -> LstmParameters:
        """Draw the parameters, as `networks.linear` does for inputs and last output together."""
        both = networks.linear(key, self.inputs + self.units, 4 * self.units)
        return LstmParameters(both.weights[: self.inputs], both.weights[self.inputs :], both.bias)

    def start(self) -> LstmState:
        """Return the state before the first input: zeros."""
        return LstmState(jnp.zeros(self.units), jnp.zeros(self.units))


def lstm_step(parameters: LstmParameters, state: LstmState, inputs: Array) -> LstmState:
    """Return the state after one input, [I]."""
    into = inputs[None] @ parameters.inputs + state.hidden[None] @ parameters.hidden
    after, _ = _cell((into + parameters.bias[None])[0], state)
    return after


def _cell(into: Array, state: LstmState) -> tuple[LstmState, Array]:
    """Return the state after a step, and the gates [4, H], from what goes into them, [4 H]."""
    i, g, f, o = into.reshape(4, -1)
    gates = [jax.nn.sigmoid(i), jnp.tanh(g), jax.nn.sigmoid(f + 1), jax.nn.sigmoid(o)]
    cell = gates[2] * state.cell + gates[0] * gates[1]
    return LstmState(gates[3] * jnp.tanh(cell), cell), jnp.stack(gates)


@jax.custom_vjp
def lstm_unroll(
    parameters: LstmParameters, start: LstmState, inputs: Array, count: Array
) -> LstmState:
    """Return the states after each of the first `count` inputs: [S, H] each, 0 after them.

    Differentiable in parameters and inputs, by the outputs; neither through `start` nor by the
    cells.

    Args:
      inputs: [S, I].
      count: [] int32, from 0 to S.
    """
    return _forward(parameters, start, inputs, count)[0]


def _forward(
    parameters: LstmParameters, start: LstmState, inputs: Array, count: Array
) -> tuple[LstmState, Any]:
    offered = inputs @ parameters.inputs + parameters.bias[None]
    size, units = offered.shape[0], parameters.hidden.shape[0]
    empty = jnp.zeros((size, units), offered.dtype)

    def one(t: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        state, outputs, cells, gates = carry
        into = _at(offered, t) + (state.hidden[None] @ parameters.hidden)[0]
        state, now = _cell(into, state)
        return (
            state,
            _put(outputs, t, state.hidden),
            _put(cells, t, state.cell),
            _put(gates, t, now),
        )

    carry = (start, empty, empty, jnp.zeros((size, 4, units), offered.dtype))
    _, outputs, cells, gates = lax.fori_loop(0, count, one, carry)
    saved = (parameters, start, inputs, count, outputs, cells, gates)
    return LstmState(outputs, cells), saved


def _backward(saved: Any, slopes: LstmState) -> tuple[Any, ...]:
    parameters, start, inputs, count, outputs, cells, gates = saved
    before = [
        jnp.concatenate([first[None], later[:-1]])
        for first, later in ((start.hidden, outputs), (start.cell, cells))
    ]

    def one(k: Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        t = count - 1 - k
        output_slope, cell_slope, into = carry
        i, g, f, o = _at(gates, t)
        output_slope = output_slope + _at(slopes.hidden, t)
        squashed = jnp.tanh(_at(cells, t))
        cell_slope = cell_slope + output_slope * o * (1 - squashed * squashed)
        now = jnp.stack(
            [
                cell_slope * g * i * (1 - i),
                cell_slope * i * (1 - g * g),
                cell_slope * _at(before[1], t) * f * (1 - f),
                output_slope * squashed * o * (1 - o),
            ]
        )
        return parameters.hidden @ now.reshape(-1), cell_slope * f, _put(into, t, now)

    none = jnp.zeros_like(start.hidden)
    into = lax.fori_loop(0, count, one, (none, none, jnp.zeros_like(gates)))[2]
    into = into.reshape(into.shape[0], -1)

    def input_slope(t: Array, slopes: Array) -> Array:
        return _put(slopes, t, parameters.inputs @ _at(into, t))

    input_slopes = lax.fori_loop(0, count, input_slope, jnp.zeros_like(inputs))
    slope = LstmParameters(
        networks.outer(inputs, into), networks.outer(before[0], into), into.sum(0)
    )
    return slope, LstmState(none, none), input_slopes, None


lstm_unroll.defvjp(_forward, _backward)


def _at(table: Array, t: Array) -> Array:
    return lax.dynamic_index_in_dim(table, t, keepdims=False)


def _put(table: Array, t: Array, row: Array) -> Array:
    return lax.dynamic_update_index_in_dim(table, row, t, 0)


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

    def init(self, key: Array) -> tuple[Any, ...]:
        """Draw the parameters: of the perceptron, of the last layers, of the memory."""
        memory, others = jax.random.split(key)
        return (*self.feedforward.init(others), self.memory.init(memory))

    def act(
        self, parameters: tuple[Any, ...], state: LstmState, observation: Array, uniform: Array
    ) -> tuple[Array, LstmState]:
        """Return an action drawn from the policy, [] int32, and the memory after the observation.

        Args:
          state: the memory before it.
          uniform: [] float32 in [0, 1).
        """
        torso, heads, memory = parameters
        seen = networks.as_input(observation, lookup=self.feedforward.torso.lookup)
        embedding = self.feedforward.torso.apply(torso, seen[None])
        state = lstm_step(memory, state, embedding[0])
        logits, _ = self._outputs(heads, embedding, state.hidden[None])
        return selection.softmax_sample(logits[0], uniform), state

    def unroll(
        self, parameters: tuple[Any, ...], start: LstmState, inputs: Array, count: Array
    ) -> tuple[Array, Array, LstmState]:
        """Return logits [S, A], values [S] and states of the memory [S, H] for the first `count` of
        consecutive observations.

        Args:
          start: state of the memory before the first of them.
          inputs: [S, I], or [S] int32 where observations are indices.
          count: [] int32, from 0 to S.
        """
        torso, heads, memory = parameters
        embedding = self.feedforward.torso.apply(torso, inputs)
        states = lstm_unroll(memory, start, embedding, count)
        return (*self._outputs(heads, embedding, states.hidden), states)

    def _outputs(self, heads: Any, embedding: Array, memory: Array) -> tuple[Array, Array]:
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

    compiling = 8.0  # two sweeps over a sequence, and their derivatives

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

    def reset(self, key: Array, knowledge: Prior) -> RecurrentState:
        spec = knowledge.spec
        network = self._network(spec)
        played = Sequence.empty(spec.observation, self.sequence_length)
        networks.check_size("RecurrentActorCritic", network, played)
        learner = adam.learner(network.init(key))
        none = network.memory.start()
        return RecurrentState(learner, played, none, none, network)

    def act(
        self, key: Array, state: RecurrentState, observation: Array
    ) -> tuple[Array, RecurrentState]:
        action, memory = state.network.act(
            state.learner.parameters, state.memory, observation, sampling.uniforms(key)[0]
        )
        return action, dataclasses.replace(state, memory=memory)

    def observe(self, key: Array, state: RecurrentState, transition: Transition) -> RecurrentState:
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
    terminated: Array,
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

    def loss(parameters: Any, size: int) -> tuple[Array, LstmState]:
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
