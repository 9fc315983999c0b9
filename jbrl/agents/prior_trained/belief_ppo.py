"""BeliefPPO: a policy over what is sufficient to know, trained on the prior."""

import jax.numpy as jnp
import numpy as np

from jbrl.agents.prior_trained import prior_ppo
from jbrl.agents.prior_trained.belief_inputs import belief_inputs, greatest_reward, number_of_inputs
from jbrl.agents.prior_trained.belief_policy import known_arrays, policy_of
from jbrl.agents.prior_trained.networks import Dense
from jbrl.agents.prior_trained.trained import (
    WIDTH,
    Lesson,
    TrainedOnPrior,
    batch_parameter,
    budget_parameter,
    check_batch,
    horizon_parameter,
    seconds_parameter,
    training_horizon,
)
from jbrl.agents.registry import register_agent
from jbrl.base.parameters import parameter
from jbrl.mdp.dirichlet import has_unit_concentrations
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, Agent

INPUTS = ("belief", "values", "both", "mean and belief")
PARAMETER_SECONDS = 1.2e-10  # of a decision in training, for each parameter of the network


@register_agent("BeliefPPO", cite="schulman2017,duff2002")
class BeliefPPO(TrainedOnPrior, Agent[None, None]):
    """A network that sees the belief, trained by PPO on lifetimes drawn from the prior.

    The belief about a finite MDP is sufficient to act optimally: its problem is a Markov decision
    process, whose states are an MDP's state and the counts of transitions (Duff 2002). Policy and
    value are one network over the state, the posterior mean and the number of observations of each
    row, or the action values of the models of `Formula`, and the time left. Training is proximal
    policy optimisation (Schulman et al. 2017), with many lifetimes side by side; afterwards the
    action of greatest probability plays.

    One decision is one pass of the network: O(P) for P parameters, and an update of the counts.
    """

    budget: int = budget_parameter(100_000)
    seconds: float = seconds_parameter()
    inputs: str = parameter(
        "belief", "what the network sees: counts, action values of models, or both", choices=INPUTS
    )
    hidden_width: int = parameter(64, "units of each hidden layer", low=1, high=4096, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=1, high=8, static=True)
    batch: int = batch_parameter(512)
    horizon: int = horizon_parameter()
    epochs: int = parameter(1, "passes over a round", low=1, high=100, static=True)
    learning_rate: float = parameter(1e-3, "step size of Adam, at the start", low=0, high=1e9)
    trace_decay: float = parameter(0.95, "lambda of the advantages", low=0, high=1)
    clip: float = parameter(
        0.2, "epsilon: the ratio of probabilities counts from 1 - clip to 1 + clip", low=0, high=1e6
    )
    value_cost: float = parameter(0.5, "weight of the squared error of the value", low=0, high=1e6)
    entropy_cost: float = parameter(
        0.03, "weight of the policy's entropy, at the start", low=0, high=1e6
    )
    max_gradient_norm: float = parameter(
        0.5, "length that longer gradients are scaled down to", low=0, high=1e9, open_low=True
    )

    requires = BAYESIAN

    def __post_init__(self) -> None:
        check_batch(self.batch)

    def lesson(self, prior: DirichletPrior) -> Lesson:
        horizon = training_horizon(prior.horizon, float(prior.discount), self.horizon)
        inputs = belief_inputs(prior, self.inputs, horizon)
        network = self._network(prior)
        width = min(WIDTH, self.batch)
        settings = prior_ppo.Settings(
            jnp.float32(self.learning_rate),
            jnp.float32(self.trace_decay),
            jnp.float32(self.clip),
            jnp.float32(self.value_cost),
            jnp.float32(self.entropy_cost),
            jnp.float32(self.max_gradient_norm),
            jnp.float32(greatest_reward(prior)),
            network,
            width,
            self.batch // width,
            horizon,
            horizon == prior.horizon,
            self.epochs,
            has_unit_concentrations(prior.mdps),
        )
        return Lesson(
            prior_ppo.play_and_learn,
            self.batch,
            8 * self.batch * horizon * (inputs.size + 8),
            network.parameters,
            (settings, (inputs, prior)),
            lambda key: prior_ppo.begin(network, key),
            known_arrays(inputs, network),
        )

    def _network(self, prior: DirichletPrior) -> Dense:
        hidden = (self.hidden_width,) * self.hidden_layers
        return Dense((number_of_inputs(prior, self.inputs), *hidden, prior.mdps.n_actions + 1))

    def trained(self, weights: dict[str, np.ndarray]) -> Agent:
        return policy_of(weights)

    def search_seconds(self, prior: DirichletPrior) -> float:
        horizon = training_horizon(prior.horizon, float(prior.discount), self.horizon)
        decisions = -(-self.budget // self.batch) * self.batch * horizon
        each = PARAMETER_SECONDS * self._network(prior).parameters * (1 + self.epochs) / 2
        found = decisions * (3e-7 + each)
        return min(found, self.seconds) if self.seconds else found
