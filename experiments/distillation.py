"""Algorithm distillation: a network imitates what an agent does as it learns (Laskin et al. 2023).

python experiments/distillation.py OUT
    trains networks on lifetimes that a teacher plays, and lets both play the MDPs of
    experiments/curves.py; weights and returns go to OUT, rows to benchmarks/results/distilled.csv,
    and what is there is not measured again
python experiments/distillation.py OUT --table
    writes the table of docs/trained.md
"""

import argparse
import csv
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
from jax import Array

import jbrl
from benchmarks import kept
from experiments.curves import N_ENVIRONMENTS, RESULTS, TEST_SEED, trained
from jbrl.agents.prior_trained import belief_policy, imitation, rounds
from jbrl.agents.prior_trained.lifetimes import (
    dirichlet_lifetimes,
    draw_numbers,
    draw_thresholds,
    play,
)
from jbrl.agents.prior_trained.trained import Lesson
from jbrl.base.parameters import parameter
from jbrl.base.pytree import record
from jbrl.mdp.sampling import stream
from jbrl.problems.prior import DirichletPrior
from jbrl.rollout.faults import observe_key

KEPT, TABLE = RESULTS / "distilled.csv", RESULTS / "tables" / "distilled.md"
TEACHERS: dict[str, dict[str, Any]] = {
    "BEB": {"beta": 0.5},
    "PSRL": {},
    "BAMCP": {"simulations": 100},
}
CASES = (  # problem, teacher, what the network sees, lifetimes
    ("GC", "BEB", "belief", 102_400),
    ("GC", "BEB", "history", 20_480),
    ("GC", "PSRL", "belief", 102_400),
    ("GC", "BAMCP", "belief", 2_048),
    ("GC", "BAMCP", "belief", 20_480),
    ("GC", "BAMCP", "belief", 102_400),
    ("GDL", "BAMCP", "belief", 20_480),
    ("Grid", "BEB", "mean and belief", 10_240),
)
KEY = ("problem", "teacher", "inputs", "budget", "training")
COLUMNS = (*KEY, "seconds", "mean", "taught", "error")


@record
class Distilled(imitation.DPT):
    """A network that imitates the actions of a teacher in lifetimes that the teacher plays."""

    teacher: str = parameter("BEB", "the agent that plays", choices=tuple(TEACHERS))

    def agent(self) -> Any:
        """Return the teacher."""
        return jbrl.AGENTS[self.teacher].agent(**TEACHERS[self.teacher])

    def lesson(self, prior: DirichletPrior) -> Lesson:
        lesson = super().lesson(prior)
        settings, given = lesson.settings
        knowledge = self.agent().train(jax.random.key(0), prior)
        return dataclasses.replace(lesson, settings=(settings, (*given, knowledge)))

    def demonstrate(
        self, settings: rounds.Settings, given: Any, key: Array, number: Array, parameters: Array
    ) -> tuple[Array, Array, Array]:
        del parameters
        (see, prior, knowledge), width, teacher = given, settings.width, self.agent()
        numbers = draw_numbers(key, number, settings.horizon, width)
        thresholds = draw_thresholds(key, number, see.rows, width, unit=settings.unit)
        keys = jax.random.split(jax.random.fold_in(stream(key, number, "agent"), 1), width)
        inputs_of, updated = belief_policy.over_lifetimes(see)
        reset = jax.vmap(teacher.reset, (0, None), -1)
        act = jax.vmap(teacher.act, (0, -1, -1), -1)
        observe = jax.vmap(teacher.observe, (0, -1, -1), -1)

        def keys_at(seen: Any) -> Array:
            return jax.vmap(jax.random.fold_in)(keys, seen.time)

        def decide(memory: Any, x: Array, _: Array) -> tuple[Any, ...]:
            seen, mind = memory
            action, mind = act(keys_at(seen), mind, x)
            label = jax.nn.one_hot(action, see.n_actions, axis=0)
            return (seen, mind), action, (inputs_of(seen, x), label)

        def learn(memory: Any, transition: Any) -> Any:
            seen, mind = memory
            later = jax.vmap(observe_key)(keys_at(seen))
            return updated(seen, transition), observe(later, mind, transition)

        memory = rounds.across(see.begin(), width), reset(keys, knowledge)
        lifetimes = dirichlet_lifetimes(prior, see.rows, thresholds, numbers)
        _, _, (inputs, labels), (rewards, *_) = play(lifetimes, memory, decide, learn)
        return inputs, labels, rewards


def measure(out: Path, name: str, teacher: str, inputs: str, budget: int, training: int) -> Any:
    """Train a network once, let it and its teacher play, and return the row."""
    made = Distilled(budget=budget, inputs=inputs, teacher=teacher)
    found, seconds = trained(made, name, training)
    rules: dict[str, Any] = {"prior": name, "n_environments": N_ENVIRONMENTS, "seed": TEST_SEED}
    returns = jbrl.play(made.strategy(found), **rules).returns
    taught = jbrl.play(made.agent(), **rules).returns
    key = (name, teacher, inputs, budget, training)
    file = out / ("-".join(map(str, key)).replace(" ", "_") + ".npz")
    np.savez(file, **made.weights(found), returns=returns, taught=taught)
    error = (returns - taught).std(ddof=1) / N_ENVIRONMENTS**0.5
    numbers = (seconds, returns.mean(), taught.mean(), error)
    return (*key, *(round(float(number), 4) for number in numbers))


def table(rows: list[dict[str, str]]) -> str:
    """Return means over trainings, beside those of the teachers."""
    header = ("problem", "teacher", "sees", "lifetimes", "seconds", "trainings", "earns", "student")
    lines = []
    for name, teacher, inputs, budget in CASES:
        key = (name, teacher, inputs, str(budget))
        here = [row for row in rows if tuple(row[column] for column in KEY[:-1]) == key]
        if here:
            seconds, mean, taught, error = (
                np.mean([float(row[column]) for row in here]) for column in COLUMNS[len(KEY) :]
            )
            gain = f"{mean:.2f} ({mean - taught:+.2f} ± {1.96 * error:.2f})".replace("-", "−")
            cells = (f"{budget:,}", f"{seconds:.1f}", str(len(here)), f"{taught:.2f}", gain)
            lines.append((name, teacher, inputs, *cells))
    return kept.table(header, lines, texts=3)


def main() -> None:
    """Measure what is missing, or write the table."""
    measure_or_tabulate(__doc__, KEPT, TABLE, KEY, CASES, measure, table)


def measure_or_tabulate(
    text: str,
    kept_in: Path,
    page: Path,
    key: Sequence[str],
    cases: Sequence[tuple[Any, ...]],
    measure: Callable[..., Sequence[Any]],
    table: Callable[[list[dict[str, str]]], str],
) -> None:
    """Measure the cases that are missing, some trainings of each, or write a table of the rows.

    Args:
      key: the columns by which a row is known: those of a case, and the number of the training.
      measure: of the folder of weights and returns, and a key.
    """
    parser = argparse.ArgumentParser(description=text.split("\n\n")[0])
    parser.add_argument("out", type=Path, help="folder of weights and returns")
    parser.add_argument("--trainings", type=int, default=3, metavar="N")
    parser.add_argument("--table", action="store_true", help="write the table")
    options = parser.parse_args()
    with kept_in.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if options.table:
        page.write_text(table(rows))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    done = {tuple(row[column] for column in key) for row in rows}
    for training in range(options.trainings):
        for case in cases:
            if (*map(str, case), str(training)) not in done:
                row = measure(options.out, *case, training)
                with kept_in.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    main()
