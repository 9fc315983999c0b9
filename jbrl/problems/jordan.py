"""Problems of Jordan et al. 2020, under their names and with their lifetimes and scores."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

from jbrl.base.errors import JbrlError
from jbrl.base.pytree import record, select, static
from jbrl.environments.environment import Environment, Step
from jbrl.environments.pinball import Pinball
from jbrl.environments.spec import Episodes
from jbrl.environments.walks import Chain, Gridworld
from jbrl.problems.problem import (
    EnvironmentProblem,
    Problem,
    Setting,
    register_derived,
    register_problem,
)
from jbrl.problems.recorder import EpisodeMean, EpisodeTotals


def _register(
    name: str, title: str, summary: str, environment: Environment, episodes: int = 100
) -> None:
    def make() -> Setting:
        return Setting(environment, Episodes(episodes))

    make.__doc__ = f"{summary} Jordan et al. 2020."
    register_problem(name, title=title, cite="jordan2020")(make)


WALKS = (
    (Chain, 10, "10 states", 200),
    (Chain, 50, "50 states", 1000),
    (Gridworld, 5, "5 x 5 cells", 500),
    (Gridworld, 10, "10 x 10 cells", 2000),
)
for _stochastic, _letter, _word, _slips in (
    (False, "d", "deterministic", "every step goes where it is meant to."),
    (True, "s", "stochastic", "some steps go astray, with a probability drawn for each lifetime."),
):
    for _cls, _n, _cells, _limit in WALKS:
        _kind = f"{_cls.__name__} of {_cells}"
        _register(
            f"{_cls.__name__}-{_n}{_letter}",
            f"{_kind}, {_word}",
            f"{_kind}, 100 episodes of at most {_limit} steps: {_slips}",
            _cls(_n, stochastic=_stochastic),
        )

for _map, _episodes, _what in (
    ("empty", 100, "no obstacles but the walls"),
    ("box", 100, "a box in the middle"),
    ("medium", 100, "five obstacles, one of which sends the ball back where it came from"),
    ("single", 200, "six obstacles"),
):
    _register(
        f"Pinball-{_map}",
        f"Pinball, map {_map}",
        f"Pinball with {_what}, {_episodes} episodes of at most 1001 steps.",
        Pinball(map=_map),
        _episodes,
    )


END = 30  # episodes after those of the lifetime


@record
class LifeAndEndTotals:
    """Totals of the two parts of a lifetime so far."""

    life: EpisodeTotals
    end: EpisodeTotals


@record
class LifeAndEnd:
    """Recorder that scores a lifetime by the mean undiscounted return of its first `episodes`
    episodes, and keeps that of the rest as the metric `end`.

    The two scores of the program of Jordan et al. 2020; the paper reports the first.
    """

    criterion: ClassVar[str] = EpisodeMean.criterion

    episodes: int = static(100)  # that belong to the score

    def begin(self, environment: Environment, state: Any) -> LifeAndEndTotals:
        totals = EpisodeMean().begin(environment, state)
        return LifeAndEndTotals(totals, totals)

    def record(
        self, state: LifeAndEndTotals, environment: Environment, environment_state: Any, step: Step
    ) -> LifeAndEndTotals:
        first = state.life.episodes < self.episodes
        current = select(first, state.life, state.end)
        after = EpisodeMean().record(current, environment, environment_state, step)
        return LifeAndEndTotals(select(first, after, state.life), select(first, state.end, after))

    def scores(self, state: LifeAndEndTotals) -> np.ndarray:
        return EpisodeMean().scores(state.life)

    def metrics(self, state: LifeAndEndTotals) -> dict[str, np.ndarray]:
        """Return the mean return of the last episodes as `end`, NaN where there are none; episodes
        that have ended, and the environment's counters summed over them.
        """
        parts = [EpisodeMean().metrics(part) for part in (state.life, state.end)]
        sums = {name: values + parts[1][name] for name, values in parts[0].items()}
        begun = np.asarray(state.end.episodes) + (np.asarray(state.end.steps) > 0)
        return {**sums, "end": np.where(begun > 0, EpisodeMean().scores(state.end), np.nan)}


def check_learning(recorder: Any, learning_episodes: object, problem: str) -> None:
    """Refuse an agent that would not stop learning where the score of a lifetime ends.

    Args:
      learning_episodes: its parameter, or the distribution that it is drawn from; None: it has no
        such parameter.
      problem: name of the problem with this recorder, for the message.

    Raises:
      JbrlError: says which value to set.
    """
    if not isinstance(recorder, LifeAndEnd) or learning_episodes in (None, recorder.episodes):
        return
    drawn = not isinstance(learning_episodes, int | np.integer)
    given = "is drawn" if drawn else f"= {learning_episodes}"
    raise JbrlError(
        f"learning_episodes {given}: expected {recorder.episodes} for '{problem}', whose last "
        f"{END} episodes are played by the policy learned before them"
    )


@register_derived("with_end")
def with_end(of: Problem) -> Problem:
    """Lifetimes of a problem with 30 more episodes, whose mean return is the metric `end`.

    The score is that of the problem itself. Agents with a parameter `learning_episodes` stop
    learning there (Jordan et al. 2020, the released program); they are refused unless it is the
    number of episodes that belong to the score. Others go on learning: their `end` is no score of a
    policy that stays as it is.

    Raises:
      JbrlError: a lifetime of the problem is no number of episodes, or its score is not their mean
        return.
    """
    if (
        not isinstance(of, EnvironmentProblem)
        or not isinstance(of.lifetime, Episodes)
        or not isinstance(of.recorder, EpisodeMean)
    ):
        raise JbrlError(
            f"with_end({of.short_name}): expected a problem whose score is the mean return of "
            "episodes, for example with_end(MountainCar)"
        )
    count = of.lifetime.episodes
    return dataclasses.replace(
        of,
        name=f"{of.name}, and its end",
        short_name=f"with_end({of.short_name})",
        lifetime=dataclasses.replace(of.lifetime, episodes=count + END),
        recorder=LifeAndEnd(count),
        identity={"with_end": of.digest, "episodes": [count, END]},
        description=f"{of.short_name}, and {END} episodes more, whose mean return is kept as end.",
    )
