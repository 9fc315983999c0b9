"""Agents, one class per algorithm: `jbrl.agents.BAMCP(simulations=50)`.

Importing this package registers them all; a module of it that is not listed here is imported too.
"""

import importlib
import pkgutil

from jbrl.agents.bayes.gittins import Gittins as Gittins
from jbrl.agents.bayes.mean_model import BEB as BEB
from jbrl.agents.bayes.mean_model import VDBE as VDBE
from jbrl.agents.bayes.mean_model import EpsilonGreedy as EpsilonGreedy
from jbrl.agents.bayes.mean_model import Optimal as Optimal
from jbrl.agents.bayes.mean_model import SoftMax as SoftMax
from jbrl.agents.deep.actor_critic import ActorCritic as ActorCritic
from jbrl.agents.deep.boot_dqn import BootDQN as BootDQN
from jbrl.agents.deep.dqn import DQN as DQN
from jbrl.agents.deep.ppo import PPO as PPO
from jbrl.agents.deep.recurrent_actor_critic import RecurrentActorCritic as RecurrentActorCritic
from jbrl.agents.linear.action_values import QLambda as QLambda
from jbrl.agents.linear.action_values import QLambdaScaled as QLambdaScaled
from jbrl.agents.linear.action_values import QLearning as QLearning
from jbrl.agents.linear.action_values import QParl2 as QParl2
from jbrl.agents.linear.action_values import Sarsa as Sarsa
from jbrl.agents.linear.action_values import SarsaLambda as SarsaLambda
from jbrl.agents.linear.action_values import SarsaLambdaScaled as SarsaLambdaScaled
from jbrl.agents.linear.action_values import SarsaParl2 as SarsaParl2
from jbrl.agents.linear.actor_critic import LinearAC as LinearAC
from jbrl.agents.linear.actor_critic import LinearACParl2 as LinearACParl2
from jbrl.agents.linear.actor_critic import LinearACScaled as LinearACScaled
from jbrl.agents.linear.actor_critic import NacTD as NacTD
from jbrl.agents.linear.linear_ppo import LinearPPO as LinearPPO
from jbrl.agents.opps.opps import OPPSCS as OPPSCS
from jbrl.agents.opps.opps import OPPSDS as OPPSDS
from jbrl.agents.opps.ranking import Formula as Formula
from jbrl.agents.opps.ranking import Linear as Linear
from jbrl.agents.prior_trained.belief_ppo import BeliefPPO as BeliefPPO
from jbrl.agents.prior_trained.imitation import ANN as ANN
from jbrl.agents.prior_trained.imitation import DPT as DPT
from jbrl.agents.prior_trained.rl2 import RL2 as RL2
from jbrl.agents.published import CoarseEpsilonGreedy as CoarseEpsilonGreedy
from jbrl.agents.published import FrozenSBOSS as FrozenSBOSS
from jbrl.agents.published import TruncatedBEB as TruncatedBEB
from jbrl.agents.published import UnnormalisedSoftMax as UnnormalisedSoftMax
from jbrl.agents.scripted import Random as Random
from jbrl.agents.scripted import Scripted as Scripted
from jbrl.agents.search.bamcp import BAMCP as BAMCP
from jbrl.agents.search.bfs3 import BFS3 as BFS3
from jbrl.agents.search.sampled_set import BOSS as BOSS
from jbrl.agents.search.sampled_set import PSRL as PSRL
from jbrl.agents.search.sampled_set import SBOSS as SBOSS

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
