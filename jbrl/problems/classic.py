"""The chains, gridworlds and pinball maps of Jordan et al. 2020 under the names and with the
lifetimes of their comparison.

`MountainCar`, `CartPole` and `Acrobot` need no entry: these environments have the settings of the
comparison by default, so they name the problems.
"""

from jbrl.environments.chain import Chain
from jbrl.environments.environment import Environment
from jbrl.environments.gridworld import Gridworld
from jbrl.environments.pinball import Pinball
from jbrl.environments.spec import Episodes
from jbrl.problems.problem import Setting, register_problem


def _register(
    name: str, title: str, summary: str, environment: Environment, episodes: int = 100
) -> None:
    def make() -> Setting:
        return Setting(environment, Episodes(episodes))

    make.__doc__ = f"{summary} Jordan et al. 2020."
    register_problem(name, title=title, cite="jordan2020")(make)


for _stochastic, _letter, _word, _slips in (
    (False, "d", "deterministic", "every step goes where it is meant to."),
    (True, "s", "stochastic", "some steps go astray, with a probability drawn for each lifetime."),
):
    for _n in (10, 50):
        _summary = f"Chain of {_n} states, 100 episodes of at most {20 * _n} steps: {_slips}"
        _register(
            f"Chain-{_n}{_letter}",
            f"Chain of {_n} states, {_word}",
            _summary,
            Chain(_n, stochastic=_stochastic),
        )
    for _n in (5, 10):
        _summary = (
            f"Gridworld of {_n} x {_n} cells, 100 episodes of at most {20 * _n**2} steps: {_slips}"
        )
        _register(
            f"Gridworld-{_n}{_letter}",
            f"Gridworld of {_n} x {_n} cells, {_word}",
            _summary,
            Gridworld(_n, stochastic=_stochastic),
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
