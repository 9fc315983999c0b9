r"""Complete algorithms: agents whose parameters are distributions, drawn anew for each lifetime.

The score of such an agent is that of a user who knows the algorithm but not how to tune it: the
general evaluation question of Jordan et al. 2020, section 2, asked of Bayesian reinforcement
learning. In a study:

    epsilon = { uniform = [0, 1] }             a number between the two; for integers, both included
    tau = { log_uniform = [0.01, 10] }         its logarithm uniform
    period = { choice = [1, 5, 25] }           one of these

The values of lifetime number i depend on the seed and i alone. All values share one compiled
program; what is learned before the first decision is learned by each draw for itself, as part of
its lifetime.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jbrl.base.errors import JbrlError, located, nearest, shown
from jbrl.base.parameters import GREATEST_NUMBER, SMALLEST_NUMBER, check_known, check_parameters
from jbrl.base.pytree import record, static
from jbrl.problems.prior import Prior
from jbrl.rollout import contract

KINDS = ("uniform", "log_uniform", "choice")
EXACT = 2**24  # integers up to it are all float32 numbers


def uniform(u: Array, low: Any, high: Any) -> Array:
    """Return the quantile `u` in [0, 1) of the uniform distribution on [low, high]: [] float32."""
    return jnp.clip(low + u * (high - low), low, high)


def log_uniform(u: Array, low: Any, high: Any) -> Array:
    """Return the quantile `u` of the distribution whose logarithm is uniform on
    [ln low, ln high]: [] float32.
    """
    lows, highs = jnp.log(low), jnp.log(high)
    return jnp.clip(jnp.exp(lows + u * (highs - lows)), low, high)


@record
class Distribution:
    """Distribution of one parameter."""

    values: tuple[Any, ...]  # both ends, or all values
    kind: str = static("uniform")
    whole: bool = static(False)  # the parameter is an integer
    # of the parameter among those of its agent: each has its own random number
    place: int = static(0)

    def draw(self, key: Array) -> Array:
        """Draw one value, [] float32, int32 or bool."""
        values = jnp.stack([jnp.asarray(v) for v in self.values])
        u = jax.random.uniform(jax.random.fold_in(key, self.place))
        if self.kind == "choice":
            return values[jnp.minimum((u * len(values)).astype(jnp.int32), len(values) - 1)]
        low, high = values.astype(jnp.float32)
        beyond = high + 1 if self.whole else high
        value = (log_uniform if self.kind == "log_uniform" else uniform)(u, low, beyond)
        value = jnp.clip(jnp.floor(value) if self.whole else value, low, high)
        return value.astype(values.dtype)


@record
class Complete(contract.DrawsParameters, contract.HasCost, contract.Agent[Any, Any]):
    """An agent with distributions in place of some of its parameters."""

    base: contract.Agent  # with capacity for the largest values
    distributions: dict[str, Any]  # name of a parameter: its `Distribution`

    @property
    def requires(self) -> contract.Requirements:  # type: ignore[override]
        """See `Agent`."""
        return self.base.requires

    @property
    def lanes(self) -> int:  # type: ignore[override]
        """See `Agent`."""
        return self.base.lanes

    @property
    def version(self) -> int:  # type: ignore[override]
        """See `Agent`."""
        return self.base.version

    def cost(self, prior: Any) -> contract.Cost:
        """Return the cost of the agent with the largest values."""
        return contract.cost(self.base, prior)

    def refusal(self, n_actions: int) -> str:
        """Return what the agent says."""
        return self.base.refusal(n_actions)

    def draw(self, key: Array) -> contract.Agent:
        """Draw the agent of one lifetime."""
        return dataclasses.replace(self.base, **self.values(key))  # type: ignore[type-var]

    def values(self, key: Array) -> dict[str, Array]:
        """See `DrawsParameters`."""
        return {name: distribution.draw(key) for name, distribution in self.distributions.items()}

    def draw_and_train(self, key: Array, prior: Prior) -> tuple[contract.Agent, Any]:
        """Draw the agent of one lifetime, and what it learns on the prior."""
        agent = self.draw(key)
        return agent, agent.train(
            jax.random.fold_in(key, len(dataclasses.fields(self.base))),  # type: ignore[arg-type]
            prior,
        )


def parameters_of(agent: contract.Agent) -> dict[str, Any]:
    """Return the parameters of an agent by name, a `Distribution` in place of what is drawn."""
    if isinstance(agent, Complete):
        return parameters_of(agent.base) | agent.distributions
    return {f.name: getattr(agent, f.name) for f in dataclasses.fields(agent)}  # type: ignore[arg-type]


def plain_parameters(agent: contract.Agent) -> dict[str, Any]:
    """Return the parameters as data for JSON, a table in place of a distribution."""
    return {
        name: {value.kind: list(value.values)} if isinstance(value, Distribution) else value
        for name, value in parameters_of(agent).items()
    }


def is_oracle(agent: contract.Agent) -> bool:
    """Return whether the agent, or each one drawn in its place, sees the true environment."""
    return isinstance(played_agent(agent), contract.Oracle)


def may_diverge(agent: contract.Agent) -> bool:
    """Return whether the agent, or each one drawn in its place, `MayDiverge`."""
    return isinstance(played_agent(agent), contract.MayDiverge)


def played_agent(agent: contract.Agent) -> contract.Agent:
    """Return the agent that plays: for one that draws its parameters, its base, which has the
    greatest values.
    """
    return agent.base if isinstance(agent, Complete) else agent


def build(
    cls: type[contract.Agent], values: dict[str, Any], where: str
) -> tuple[contract.Agent, dict[str, Any]]:
    """Return an agent and all its parameters, defaults filled in; a table among `values` is a
    distribution.

    Args:
      where: place to name in messages.

    Raises:
      JbrlError: an unknown parameter, a value that it does not accept, or a table that is no
        distribution of such values.
    """
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    if not tables:
        parameters = check_parameters(cls, values, where)
        return _made(cls, parameters, where), parameters
    if issubclass(cls, contract.OfflineSearch | contract.Compiled):
        name, table = next(iter(tables.items()))
        raise JbrlError(
            f"{where}: {name} = {shown(table)}: expected one value, or a list: what plays is made "
            "from it before the first MDP is drawn"
        )
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    distributions = {}
    for name, table in tables.items():
        check_known([name], fields, where)
        rules = fields[name].metadata
        if rules.get("static") or rules.get("choices") or isinstance(fields[name].default, str):
            raise JbrlError(
                f"{where}: {name} = {shown(table)}: expected one value, since it belongs to the "
                "compiled program"
            )
        distributions[name] = _distribution(cls, name, table, where, list(fields).index(name))
    corners = [
        dict(zip(distributions, ends, strict=True))
        for ends in itertools.product(*map(_ends, distributions.values()))
    ]
    agents = [
        _made(cls, check_parameters(cls, {**values, **corner}, where), where) for corner in corners
    ]
    capacity = {
        name: max(getattr(a, name) for a in agents)
        for name, f in fields.items()
        if f.metadata.get("static") and type(f.default) is int
    }
    base = dataclasses.replace(agents[-1], **capacity)  # type: ignore[type-var]
    texts = {name: {d.kind: list(d.values)} for name, d in distributions.items()}
    parameters = check_parameters(cls, {**values, **corners[-1]}, where)
    return Complete(base, distributions), {**parameters, **texts}


def _made(cls: type[contract.Agent], parameters: dict[str, Any], where: str) -> contract.Agent:
    """Make an agent from parameters that are accepted one by one; together they may be refused.

    Raises:
      JbrlError: parameters that do not go together.
    """
    with located(where):
        return cls(**parameters)


def _ends(distribution: Distribution) -> tuple[Any, Any]:
    return min(distribution.values), max(distribution.values)


def _distribution(
    cls: type[contract.Agent], name: str, table: dict[str, Any], where: str, place: int
) -> Distribution:
    """Return a checked distribution; each of its numbers is one that the parameter accepts."""
    place_text = f"{where}: {name} = {shown(table)}"
    kind = next(iter(table), "")
    given = table.get(kind)
    if len(table) != 1 or kind not in KINDS or not isinstance(given, list) or not given:
        expected = (
            "{ uniform = [low, high] }, { log_uniform = [low, high] } or { choice = [value, …] }"
        )
        raise JbrlError(
            f"{place_text}: expected "
            f"{expected}{nearest(kind, KINDS) if kind not in KINDS and kind else ''}"
        )
    numbers = [check_parameters(cls, {name: value}, where)[name] for value in given]
    kinds = {type(number) for number in numbers}
    if kind != "choice":
        if len(numbers) != 2 or kinds == {bool} or not numbers[0] < numbers[1]:
            raise JbrlError(f"{place_text}: expected two numbers, the lower one first")
        if kind == "log_uniform" and not numbers[0] >= SMALLEST_NUMBER:
            raise JbrlError(
                f"{place_text}: expected numbers above 0, having a logarithm: from "
                f"{SMALLEST_NUMBER}"
            )
        if numbers[1] - numbers[0] > GREATEST_NUMBER:
            raise JbrlError(
                f"{place_text}: expected numbers that are at most {GREATEST_NUMBER} apart"
            )
        if kinds == {int} and max(map(abs, numbers)) > EXACT:
            raise JbrlError(
                f"{place_text}: expected integers up to {EXACT}: those drawn come from float32"
            )
    return Distribution(tuple(numbers), kind, kinds == {int}, place)
