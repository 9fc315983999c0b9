"""ANN: a network that imitates optimal actions, trained on the prior."""

import jax.numpy as jnp
import numpy as np

from jbrl.agents.prior_trained import prior_imitation
from jbrl.agents.prior_trained.belief_inputs import belief_inputs
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

INPUTS = ("mean", "mean and belief")
DECISION_SECONDS = 1e-6  # of a lifetime in training: the mean model is solved at each
ENTRY_SECONDS = 1e-8  # for each number of the transition tensor


@register_agent("ANN", cite="castronovo2017,lee2023")
class ANN(TrainedOnPrior, Agent[None, None]):
    """A network that imitates optimal actions of MDPs drawn from the prior, by supervision.

    In training, lifetime i of N is played by the optimal policy of its MDP, with any action in its
    place with probability i / (N - 1). The network learns to tell the optimal action from the
    action values of the mean model, Q_mean(x, .), by cross-entropy with weights discount^t. Then
    the action of greatest output plays. The agent of the published program; Castronovo et al. 2017.

    With `mean and belief` the network sees the state, the posterior means and the numbers of
    observations as well, which are sufficient: its outputs approach the probability that an action
    is optimal, and with `sample` it is posterior sampling by supervision, as DPT (Lee et al. 2023).

    One decision costs what it costs e-Greedy, and a pass of the network.
    """

    budget: int = budget_parameter(20_000)
    seconds: float = seconds_parameter()
    inputs: str = parameter("mean", "what the network sees", choices=INPUTS)
    sample: bool = parameter(
        False, "play actions drawn from the softmax of the outputs, not the greatest", static=True
    )
    hidden_width: int = parameter(32, "units of each hidden layer", low=1, high=4096, static=True)
    hidden_layers: int = parameter(2, "hidden layers", low=1, high=8, static=True)
    batch: int = batch_parameter(512)
    horizon: int = horizon_parameter()
    learning_rate: float = parameter(3e-3, "step size of Adam, at the start", low=0, high=1e9)

    requires = BAYESIAN

    def __post_init__(self) -> None:
        check_batch(self.batch)

    def lesson(self, prior: DirichletPrior) -> Lesson:
        discount = float(prior.discount)
        horizon = training_horizon(prior.horizon, discount, self.horizon)
        inputs = belief_inputs(prior, self.inputs, horizon)
        hidden = (self.hidden_width,) * self.hidden_layers
        network = Dense((inputs.size, *hidden, prior.mdps.n_actions))
        width = min(WIDTH, self.batch)
        settings = prior_imitation.Settings(
            jnp.float32(self.learning_rate),
            network,
            width,
            self.batch // width,
            horizon,
            prior_imitation.sweeps_for(discount),
            has_unit_concentrations(prior.mdps),
        )
        return Lesson(
            prior_imitation.label_and_learn,
            self.batch,
            8 * self.batch * horizon * (inputs.size + prior.mdps.n_actions + 2),
            network.parameters,
            (settings, (inputs, prior)),
            lambda key: prior_imitation.begin(network, key),
            known_arrays(inputs, network),
        )

    def trained(self, weights: dict[str, np.ndarray]) -> Agent:
        return policy_of(weights, sample=self.sample)

    def search_seconds(self, prior: DirichletPrior) -> float:
        horizon = training_horizon(prior.horizon, float(prior.discount), self.horizon)
        decisions = -(-self.budget // self.batch) * self.batch * horizon
        entries = prior.mdps.concentrations.size
        found = decisions * (DECISION_SECONDS + entries * ENTRY_SECONDS)
        return min(found, self.seconds) if self.seconds else found
