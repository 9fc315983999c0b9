"""Expert iteration on the prior: planning with learned values (Anthony et al. 2017; Silver et al.
2017).

python experiments/expert_iteration.py OUT
    trains networks, and lets them and the planner play the MDPs of experiments/curves.py; weights
    and returns go to OUT, rows to benchmarks/results/expert-iteration.csv, and what is there is
    not measured again
python experiments/expert_iteration.py OUT --table
    writes the table of docs/trained.md

The planner looks one decision ahead: all outcomes of all actions, by their probabilities given what
is known, and the network's value of the belief after each. It plays the lifetimes of training; the
network imitates its actions, and its values are fitted to what these lifetimes earn.
"""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import jbrl
from benchmarks import kept
from experiments.curves import N_ENVIRONMENTS, RESULTS, TEST_SEED, trained
from experiments.distillation import measure_or_tabulate
from jbrl import vectorize
from jbrl.agents import selection
from jbrl.agents.prior_trained import belief_policy, imitation, rounds
from jbrl.agents.prior_trained.lifetimes import (
    dirichlet_lifetimes,
    draw_numbers,
    draw_thresholds,
    play,
)
from jbrl.agents.prior_trained.networks import Dense
from jbrl.agents.prior_trained.trained import Lesson
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.contract import Transition

KEPT, TABLE = RESULTS / "expert-iteration.csv", RESULTS / "tables" / "expert-iteration.md"
CASES = (  # problem, what the network sees, lifetimes
    ("GC", "belief", 102_400),
    ("GC", "belief", 819_200),
    ("GDL", "belief", 102_400),
    ("Grid", "mean and belief", 10_240),
)
KEY = ("problem", "inputs", "budget", "training")
COLUMNS = (*KEY, "seconds", "planner", "network", "dpt", "error")
EPSILON = {"GC": 0.1, "GDL": 0.1, "Grid": 1.0}  # on Grid rewards are rare
MAX_NORM = 1.0  # length that longer gradients are scaled down to


def action_values(
    see: belief_policy.BeliefInputs,
    discount: Array,
    value: Callable[[Array], Array],
    seen: belief_policy.Seen,
    x: Array,
) -> Array:
    """Return the action values in state `x` by the values of what is known a decision later: [A].

    Args:
      value: of inputs, [I]: returns a value, [].
    """
    (n_rows, width), rows = see.rows.shape, see.rows
    certain = jnp.zeros(width).at[0].set(1.0)
    weights = jnp.concatenate([jnp.asarray(rows.concentrations).reshape(-1), certain])
    never = jnp.bool_(False)
    found = []
    for u in range(see.n_actions):
        pair = x * see.n_actions + u
        row = vectorize.get_entry(jnp.asarray(rows.row), pair)
        total = gain = jnp.float32(0)
        for k in range(width):
            y = vectorize.get_entry(jnp.asarray(rows.successor), pair * width + k)
            reward = vectorize.get_entry(jnp.asarray(rows.reward), pair * width + k)
            entry = row * width + k
            count = vectorize.get_entry(seen.counts, jnp.minimum(entry, n_rows * width))
            chance = vectorize.get_entry(weights, entry)
            chance += jnp.where((row < n_rows) & (chance > 0), count, 0.0)
            after = see.updated(seen, Transition(x, jnp.int32(u), reward, y, never, never))
            total += chance
            gain += chance * (reward + discount * value(see.inputs(after, y)))
        found.append(gain / total)
    return jnp.stack(found)


@record
class Planner(belief_policy.BeliefPolicy):
    """The action of greatest value, looking one decision ahead."""

    scale: Array | None = None  # [2] float32, mean and unit of the network's values
    discount: float = 1.0

    def act(self, key: Array, state: Any, observation: Array) -> tuple[Array, Any]:
        scale: Any = self.scale
        outputs = belief_policy.outputs_of(self.network)

        def value(inputs: Array) -> Array:
            return outputs(self.parameters, inputs)[-1] * scale[1] + scale[0]

        discount = jnp.float32(self.discount)
        values = action_values(self.inputs, discount, value, state, observation)
        return selection.greatest(values), state


@record
class ExpertIteration(imitation.DPT):
    """A network of A logits and a value; logits imitate the planner with these values."""

    hidden_width: int = parameter(64, "units of each hidden layer", low=1, high=4096, static=True)
    trace_decay: float = parameter(0.9, "lambda of the returns that values are fitted to")
    epsilon: float = parameter(0.1, "greatest probability of a random action in training")

    def network(self, prior: DirichletPrior) -> Dense:
        *sizes, n_actions = super().network(prior).sizes
        return Dense((*sizes, n_actions + 1))

    def lesson(self, prior: DirichletPrior) -> Lesson:
        lesson = super().lesson(prior)
        settings, given = lesson.settings
        given = (*given, jnp.float32(belief_policy.greatest_reward(prior)))
        return dataclasses.replace(lesson, round=play_and_improve, settings=(settings, given))

    def planner(self, found: Any, prior: DirichletPrior) -> Planner:
        """Return the planner with what was learned."""
        own: Any = self.strategy(found)
        scale = found.arrays["state/.returns"]
        return Planner(own.parameters, own.inputs, own.network, False, scale, float(prior.discount))


def play_and_improve(
    arguments: tuple[rounds.Training, Array, Array, tuple[rounds.Settings, Any]],
) -> tuple[rounds.Training, Array]:
    """Return the state after one more round, and mean and standard deviation of the planner's
    returns, as `imitation.play_and_imitate`.
    """
    training, share, key, (settings, (see, prior, greatest)) = arguments
    agent, network, count = settings.agent, settings.network, jnp.float32(settings.lifetimes)
    weights = settings.discount ** jnp.arange(settings.horizon, dtype=jnp.float32)

    def group(number: Array) -> tuple[Any, Array]:
        steps, rewards = plan_and_play(settings, training, see, prior, key, number)
        return steps, (rewards * weights[:, None]).sum(0)

    (inputs, labels, values), mean, spread = rounds.played_in_groups(settings, training, group)
    scale = rounds.scale_of(mean, spread, greatest)
    scale = jnp.where(training.round == 0, scale, training.returns)

    def loss(parameters: Array, inputs: Array, labels: Array, values: Array, t: Array) -> Array:
        outputs = network.apply(network.layers(parameters), inputs)
        error = outputs[-1] - (values - scale[0]) / scale[1]
        imitated = (labels * jax.nn.log_softmax(outputs[:-1], axis=0)).sum()
        return (error * error).sum() / 2 - weights[t] * imitated

    def gradient(parameters: Array, t: Array) -> Array:
        def of_group(*step: Array) -> Array:
            now = (lax.dynamic_index_in_dim(v, t, keepdims=False) for v in step)
            return jax.grad(loss)(parameters, *now, t)

        return rounds.total(of_group, inputs, labels, values) / count

    words = jax.random.bits(stream(key, training.round, "parameters"), (settings.horizon,))
    order = jnp.argsort(words).astype(jnp.int32)
    rate = agent.learning_rate * share
    state = rounds.learned(training, order, gradient, rate, MAX_NORM, scale)
    return state, jnp.stack([mean, spread])


def plan_and_play(
    settings: rounds.Settings,
    training: rounds.Training,
    see: Any,
    prior: Any,
    key: Any,
    number: Any,
) -> tuple[tuple[Array, Array, Array], Array]:
    """Play a group of lifetimes by the planner, with random actions in some places.

    Returns: inputs [H, I, W], the planner's actions as labels [H, A, W], the returns that values
      are fitted to [H, W]; and rewards [H, W].
    """
    agent, network, width = settings.agent, settings.network, settings.width
    layers, scale = network.layers(training.parameters), training.returns
    inputs_of, learn = belief_policy.over_lifetimes(see)
    lane = (number % rounds.MOST_GROUPS) * width + jnp.arange(width, dtype=jnp.int32)
    epsilon = agent.epsilon * lane.astype(jnp.float32) / max(settings.lifetimes - 1, 1)
    outputs = belief_policy.outputs_of(network)

    def value(inputs: Array) -> Array:
        return outputs(training.parameters, inputs)[-1] * scale[1] + scale[0]

    def of_lane(seen: Any, x: Array) -> Array:
        return action_values(see, settings.discount, value, seen, x)

    def decide(seen: Any, x: Array, coin: Array) -> tuple[Any, ...]:
        found = jax.vmap(of_lane, in_axes=-1, out_axes=-1)(seen, x)
        best = (found >= found.max(0, keepdims=True)).astype(jnp.float32)
        shown = (inputs_of(seen, x), best / best.sum(0), found.max(0), coin < epsilon)
        return seen, imitation.choose(best, coin, epsilon), shown

    numbers = draw_numbers(key, number, settings.horizon, width)
    thresholds = draw_thresholds(key, number, see.rows, width, unit=settings.unit)
    lifetimes = dirichlet_lifetimes(prior, see.rows, thresholds, numbers)
    start = rounds.across(see.begin(), width)
    seen, last, (inputs, labels, planned, random), (rewards, *_) = play(
        lifetimes, start, decide, learn
    )

    def back(later: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        planned, reward, random = step
        mixed = (1 - agent.trace_decay) * planned
        mixed += agent.trace_decay * (reward + settings.discount * later)
        now = jnp.where(random, planned, mixed)  # the rest is not the planner's
        return now, now

    end = network.apply(layers, inputs_of(seen, last))[-1] * scale[1] + scale[0]
    _, returns = lax.scan(back, end, (planned, rewards, random), reverse=True)
    return (inputs, labels, returns), rewards


def measure(out: Path, name: str, inputs: str, budget: int, training: int) -> Any:
    """Train once, let planner, network and DPT with as many lifetimes play, and return the row."""
    made = ExpertIteration(budget=budget, inputs=inputs, epsilon=EPSILON[name])
    found, seconds = trained(made, name, training)
    other = jbrl.agents.DPT(budget=budget, inputs=inputs, hidden_width=made.hidden_width)
    prior: Any = jbrl.problem(name).prior(jbrl.Steps(250), 0.95)
    agents = {
        "planner": made.planner(found, prior),
        "network": made.strategy(found),
        "dpt": other.strategy(trained(other, name, training)[0]),
    }
    rules: dict[str, Any] = {"prior": name, "n_environments": N_ENVIRONMENTS, "seed": TEST_SEED}
    returns = {who: jbrl.play(agent, **rules).returns for who, agent in agents.items()}
    key = (name, inputs, budget, training)
    file = out / ("-".join(map(str, key)).replace(" ", "_") + ".npz")
    arrays: dict[str, Any] = made.weights(found) | returns
    np.savez(file, **arrays)
    error = (returns["planner"] - returns["dpt"]).std(ddof=1) / N_ENVIRONMENTS**0.5
    numbers = (seconds, *(one.mean() for one in returns.values()), error)
    return (*key, *(round(float(number), 4) for number in numbers))


def table(rows: list[dict[str, str]]) -> str:
    """Return means over trainings, beside those of DPT."""
    header = ("problem", "lifetimes", "seconds", "trainings", "planner", "network", "planner − DPT")
    lines = []
    for name, inputs, budget in CASES:
        key = (name, inputs, str(budget))
        here = [row for row in rows if tuple(row[column] for column in KEY[:-1]) == key]
        if here:
            seconds, planner, network, dpt, error = (
                np.mean([float(row[column]) for row in here]) for column in COLUMNS[len(KEY) :]
            )
            ahead = f"{planner - dpt:+.2f} ± {1.96 * error:.2f}".replace("-", "−")
            cells = (f"{budget:,}", f"{seconds:.1f}", str(len(here)), f"{planner:.2f}")
            lines.append((name, *cells, f"{network:.2f}", ahead))
    return kept.table(header, lines, texts=1)


def main() -> None:
    """Measure what is missing, or write the table."""
    measure_or_tabulate(__doc__, KEPT, TABLE, KEY, CASES, measure, table)


if __name__ == "__main__":
    main()
