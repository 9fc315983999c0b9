"""Formula and Linear: agents that rank actions by several Q-functions."""

from typing import Any

from jbrl.agents.opps.enumeration import check_defined
from jbrl.agents.opps.formulas import VARIABLES
from jbrl.agents.opps.parsing import parse
from jbrl.agents.opps.policy import formula_policy, linear_policy
from jbrl.agents.registry import register_agent
from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.base.parameters import parameter
from jbrl.rollout.contract import BAYESIAN, Agent, Compiled


def _check_formula(text: str) -> None:
    check_defined(parse(text))


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
        "Q0/Q2", "the formula, in infix, postfix or LaTeX notation", check=_check_formula
    )

    requires = BAYESIAN
    version = 2

    def player(self) -> Agent:
        return formula_policy(parse(self.formula))


def _check_features(text: str) -> None:
    features(text)


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
        check=_check_features,
    )

    requires = BAYESIAN
    version = 2

    def player(self) -> Agent:
        weights = dict(zip(VARIABLES, (self.w0, self.w1, self.w2), strict=True))
        names = features(self.variables)
        return linear_policy(names, [weights[name] for name in names])
