"""Formula and Linear: agents that rank actions by the Q-functions of several models.

They are played by policies, which are also the strategies that searches on the prior try. A policy
needs one to three of the variables Q0, Q1, Q2 (`formulas`). Each is the Q-function of a model of
its own; all of them learn from the same transitions. Only those that the policy uses are kept, one
in each *slot*. Which variable a slot holds is data, so that all policies with the same number of
slots share one compiled program.
"""

import dataclasses
import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jbrl import vectorize
from jbrl.agents.opps.evaluation import (
    FormulaProgram,
    check_defined,
    evaluate,
    in_common_shape,
    programs,
)
from jbrl.agents.opps.formulas import VARIABLES, Expression, parse
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp import incremental, sampling
from jbrl.mdp.incremental import Plan
from jbrl.mdp.planning import TIE_TOLERANCE
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import BAYESIAN, NO_ACTION, Agent, Compiled, Stepwise, Transition

Plans = tuple[Plan, ...]

FAR = 100.0  # times the greatest value: what is larger plays no part in the tie tolerance


def plans(prior: DirichletPrior) -> Plans:
    """Return the optimal plans for Q0, Q1 and Q2 before the first transition.

    Castronovo et al. 2016, section 5.1.4.

    Q0: the mean of the prior. Q1: each action stays where it is, with weight 1. Q2: each next state
    has weight 1, impossible ones included.
    """
    concentrations, rewards = prior.mdps.concentrations, prior.mdps.rewards
    stay = jnp.broadcast_to(
        jnp.eye(concentrations.shape[0], dtype=jnp.float32)[:, None], concentrations.shape
    )
    starts = jnp.stack([concentrations, stay, jnp.ones_like(concentrations)])
    solve = jax.vmap(incremental.solve_counts, in_axes=(0, 0, None, None))
    gains = (starts * rewards[None]).sum(-1)
    solved = solve(starts, gains, prior.discount, prior.mdps.initial_state)
    return tuple(jax.tree.map(operator.itemgetter(i), solved) for i in range(len(VARIABLES)))


class SlotPolicy(Stepwise[Plans, Plans]):
    """Policy that ranks the actions by the Q-functions in its slots.

    Attributes:
      slots: [k] int32, the variables that they hold.
    """

    slots: Array

    requires = BAYESIAN
    holds_model = True

    def train(self, key: Array, prior: DirichletPrior) -> Plans:
        return plans(prior)

    def reset(self, key: Array, knowledge: Plans) -> Plans:
        # The discount is the same in all: taken from the first, it need not be stored for
        # each lane.
        chosen = [
            jax.tree.map(lambda *v, j=j: lax.select_n(self.slots[j], *v), *knowledge)
            for j in range(self.slots.shape[0])
        ]
        return tuple(dataclasses.replace(plan, discount=knowledge[0].discount) for plan in chosen)

    def act(self, key: Array, state: Plans, observation: Array) -> tuple[Array, Plans]:
        q = tuple(vectorize.get_entry(plan.q, observation) + plan.level for plan in state)
        values, defined = self.rank(q)
        return _greatest(values, q, defined, sampling.uniforms(key)[0]), state

    def rank(self, q: Sequence[Array]) -> tuple[Array, Array]:
        """Return values of the actions [A] float32, from their Q-values in each slot, k times [A],
        and whether they are defined ([] bool).
        """
        raise NotImplementedError

    def add_transition(self, state: Plans, transition: Transition) -> Plans:
        converged = self.converged(state)
        return tuple(_add_transition(plan, converged, transition) for plan in state)

    def improve(self, state: Plans) -> Plans:
        return tuple(incremental.improve(plan) for plan in state)

    def converged(self, state: Plans) -> Array:
        return functools.reduce(operator.and_, map(incremental.converged, state))


def _add_transition(plan: Plan, converged: Array, transition: Transition) -> Plan:
    """Apply `incremental.add_transition`, without effect unless all plans have `converged`: one
    that has may have to wait for the others.
    """
    x, action, y = transition.observation, transition.action, transition.next_observation
    held = dataclasses.replace(plan, rounds=jnp.where(converged, plan.rounds, 0))
    noted = incremental.add_transition(held, x, action, y, transition.reward)
    return dataclasses.replace(noted, rounds=jnp.where(converged, noted.rounds, plan.rounds))


@vectorize.over_lanes
def _greatest(values: Array, q: tuple[Array, ...], defined: Array, uniform: Array) -> Array:
    """Choose the action of greatest value, [] int32, ties uniform; none where values are
    not defined.

    Args:
      values: [A], made of Q-values `q`, k times [A].
    """
    n_actions = values.shape[0]

    def greatest(table: Array) -> Array:
        return vectorize.fold(jnp.maximum, lambda u: vectorize.at(table, u), n_actions)

    size = greatest(jnp.abs(values))
    # An action that is far worse than the others does not make these tie.
    near = functools.reduce(jnp.maximum, [jnp.abs(greatest(table)) for table in (values, *q)])
    tolerance = vectorize.prevent_fusion(TIE_TOLERANCE * jnp.minimum(size, FAR * near))
    return jnp.where(defined, incremental.lanes_choose(values, tolerance, uniform), NO_ACTION)


@record
class FormulaPolicy(SlotPolicy):
    """Policy of the action of the greatest value of a formula; no action where it is undefined."""

    slots: Array  # [k] int32
    program: FormulaProgram  # its variables 0 … k-1 are the slots

    def refusal(self, n_actions: int) -> str:
        reasons = (
            "division by 0, logarithm of a number that is not positive or root of a negative one"
        )
        return f"the formula is undefined for Q-values met on the way ({reasons})"

    def rank(self, q: Sequence[Array]) -> tuple[Array, Array]:
        unused = [jnp.zeros_like(q[0])] * (len(VARIABLES) - len(q))
        return evaluate(self.program, jnp.stack([*q, *unused]))


def formula_policies(expressions: Sequence[Expression]) -> FormulaPolicy:
    """Return the policies of B formulas with equally many variables, stacked along a leading axis,
    NumPy arrays.
    """
    rows = [[VARIABLES.index(name) for name in e.variables] for e in expressions]
    slots: Any = np.array(rows, np.int32)
    return FormulaPolicy(slots, in_common_shape(programs([_renamed(e) for e in expressions])))


def _renamed(expression: Expression) -> Expression:
    """Return the formula with its variables numbered in the order of the slots."""
    names = dict(zip(expression.variables, VARIABLES, strict=False))
    return Expression(tuple(names.get(token, token) for token in expression.tokens))


@record
class LinearPolicy(SlotPolicy):
    """Policy of the action of the greatest weighted sum of Q-values."""

    slots: Array  # [k] int32
    weights: Array  # [k] float32

    def rank(self, q: Sequence[Array]) -> tuple[Array, Array]:
        return _weighted(tuple(q), self.weights), jnp.bool_(True)


@vectorize.over_lanes
def _weighted(q: tuple[Array, ...], weights: Array) -> Array:
    return vectorize.prevent_fusion(
        vectorize.fold(jnp.add, lambda j: q[j] * vectorize.at(weights, j)[None], len(q))
    )


def linear_policies(names: Sequence[str], weights: np.ndarray) -> LinearPolicy:
    """Return the policies of B rows of `weights` [B, k] over k of the variables, stacked along a
    leading axis.
    """
    slots = np.array([VARIABLES.index(name) for name in names], np.int32)
    rows: Any = np.broadcast_to(slots, weights.shape), np.asarray(weights, np.float32)
    return LinearPolicy(*rows)


@register_agent("Formula", cite="castronovo2016")
class Formula(Compiled, Agent[Any, Any]):
    """The greatest value of a small formula of three Q-functions.

        u_t = argmax_u f(Q0(x_t, u), Q1(x_t, u), Q2(x_t, u)), ties uniform

    Q0 is the Q-function of the mean model of the prior, Q1 that of a model in which every action is
    believed to stay where it is, Q2 that of one in which every next state is believed equally
    likely, impossible ones too; all learn from the real transitions. `Q0` alone is e-Greedy with
    epsilon = 0. Where the formula is undefined (a division by exactly 0, say) there is no action
    and the trajectory cannot be played. Castronovo et al. 2016, section 5.1.4.

    One decision costs what it costs e-Greedy, for each variable of the formula.
    """

    formula: str = parameter(
        "Q0/Q2",
        "the formula, in infix, postfix or LaTeX notation",
        check=lambda text: check_defined(parse(text)),
    )

    requires = BAYESIAN
    holds_model = True
    version = 2

    def player(self) -> Agent:
        return jax.tree.map(lambda v: v[0], formula_policies([parse(self.formula)]))


def features(text: str) -> tuple[str, ...]:
    """Return the variables that `text` lists, separated by commas, in their own order.

    Raises:
      JbrlError: none, an unknown one or the same twice.
    """
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    for name in names:
        if name not in VARIABLES:
            raise JbrlError(
                f"'{shown(text, str)}': unknown variable "
                f"'{shown(name, str)}'{nearest(name, VARIABLES)}"
            )
    if not names or len(set(names)) < len(names):
        raise JbrlError(
            f"'{shown(text, str)}': expected one or more of {', '.join(VARIABLES)}, separated by "
            "commas, each once"
        )
    return tuple(sorted(names))


@register_agent("Linear", cite="castronovo2016")
class Linear(Compiled, Agent[Any, Any]):
    """The greatest weighted sum of three Q-functions.

        u_t = argmax_u w0 Q0(x_t, u) + w1 Q1(x_t, u) + w2 Q2(x_t, u), ties uniform

    The Q-functions are those of `Formula`. Part of the program published with Castronovo et al.
    2016, whose OPPS-CS searches such weights.

    One decision costs what it costs e-Greedy, for each variable.
    """

    w0: float = parameter(1.0, "weight of Q0", low=-1e6, high=1e6)
    w1: float = parameter(0.0, "weight of Q1", low=-1e6, high=1e6)
    w2: float = parameter(0.0, "weight of Q2", low=-1e6, high=1e6)
    variables: str = parameter(
        "Q0,Q1,Q2",
        "those that are kept, separated by commas; the others count as weight 0",
        check=features,
    )

    requires = BAYESIAN
    holds_model = True
    version = 2

    def player(self) -> Agent:
        slots: Any = np.array([VARIABLES.index(v) for v in features(self.variables)], np.int32)
        weights = (self.w0, self.w1, self.w2)
        return LinearPolicy(slots, jnp.array([weights[k] for k in slots], jnp.float32))
