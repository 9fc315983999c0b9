"""The Behaviour Suite (Osband et al. 2020): 468 problems, `bsuite/<experiment>/<index>`.

`DeepSea-stochastic` is older than the suite and stays: it is its `deep_sea_stochastic` in any size.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from jbrl.base import bsuite_sweep
from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, TAGS, TESTING, Id
from jbrl.base.errors import JbrlError, nearest, shown
from jbrl.environments import bsuite_tasks
from jbrl.environments.bsuite_cartpole import BsuiteCartPole, BsuiteCartPoleSwingup
from jbrl.environments.bsuite_tasks import DeepSea
from jbrl.environments.environment import Environment, RewardNoise, RewardScale
from jbrl.environments.images import ImageBandit
from jbrl.environments.mountain_car import BsuiteMountainCar
from jbrl.environments.spec import Episodes, Lifetime
from jbrl.problems.lookup import Suite, defaults_of, label, read_settings, register_suite
from jbrl.problems.prior import EnvironmentPrior
from jbrl.problems.problem import EnvironmentProblem, Setting, identity, register_problem
from jbrl.problems.recorder import MOST_EPISODES, BsuiteLog


@register_problem("DeepSea-stochastic", title="Deep sea, stochastic", cite="osband2020bsuite")
def deep_sea_stochastic(size: int = 10) -> Setting:
    """Deep sea of N x N cells in which moves to the right may fail, 10,000 episodes:
    `deep_sea_stochastic` of bsuite (Osband et al. 2020).

    Raises:
      JbrlError: `size` is not accepted.
    """
    if not 2 <= size <= 1000:
        raise JbrlError(f"size = {size}: expected an integer from 2 to 1000")
    return Setting(DeepSea(size, stochastic=True), DeepSea.lifetime)


@dataclasses.dataclass(frozen=True)
class BsuiteProblem(EnvironmentProblem):
    """One of the 468 settings: an environment, its number of episodes and the rows of its log.

    All settings of a family and a size of observation share one compiled program, with any noise or
    scale of their rewards, and are played as its lanes.
    """

    id: str = ""  # `<experiment>/<index>`

    @property
    def n_environments(self) -> int:
        """One run of each setting, as the suite is played."""
        return 1

    def prior(self, lifetime: Lifetime, discount: float) -> EnvironmentPrior:
        """As `Problem.prior`.

        Raises:
          JbrlError: a lifetime of steps, or of more episodes than a log has rows for.
        """
        if not isinstance(lifetime, Episodes):
            raise JbrlError(
                f"horizon = {lifetime.steps}: expected episodes for '{self.short_name}'"
            )
        if lifetime.episodes > MOST_EPISODES:
            raise JbrlError(
                f"episodes = {lifetime.episodes}: expected 1 to {MOST_EPISODES} for "
                f"'{self.short_name}'"
            )
        return super().prior(lifetime, discount)


# Rewards of these families are noisy or scaled in some experiments, hence wrapped in all.
_WRAPPED = {
    "bandit": bsuite_tasks.Bandit,
    "cartpole": BsuiteCartPole,
    "catch": bsuite_tasks.Catch,
    "mnist": ImageBandit,
    "mountain_car": BsuiteMountainCar,
}
_OTHERS = {
    "cartpole_swingup": BsuiteCartPoleSwingup,
    "deep_sea": DeepSea,
    "discounting_chain": bsuite_tasks.DiscountingChain,
    "memory_chain": bsuite_tasks.MemoryChain,
    "umbrella_chain": bsuite_tasks.UmbrellaChain,
}
_FAMILIES: Mapping[str, Callable[..., Environment]] = {**_WRAPPED, **_OTHERS}


def _make(name: str, inside: str) -> BsuiteProblem:
    """Return the problem of an id; `inside` are settings of `ImageBandit`, for `mnist` only.

    Raises:
      JbrlError: no such id, or settings that are not accepted.
    """
    short_name = f"bsuite/{name}"
    where = f"problem '{short_name}'"
    if name not in SWEEP:
        raise JbrlError(f"{where}: {_refusal(name)}")
    setting = SWEEP[name]
    experiment = setting.experiment
    family = experiment.family
    given: dict[str, Any] = {}
    if inside.strip():
        if family != "mnist":
            raise JbrlError(f"{where}: '{inside.strip()}': it takes no parameters")
        given = read_settings(ImageBandit, inside, where)
        given = {k: v for k, v in given.items() if v != defaults_of(ImageBandit)[k]}
        short_name = label(short_name, given, defaults_of(ImageBandit))
    environment = _environment(family, tuple(_fields(setting).items()), tuple(given.items()))
    noise, scale = (setting.settings.get(key) for key in ("noise_scale", "reward_scale"))
    played: Environment[Any] = environment
    if family in _WRAPPED:
        scaled = RewardScale(environment, 1.0 if scale is None else float(scale))
        played = RewardNoise(scaled, 0.0 if noise is None else float(noise))
    words = experiment.name.replace("_", " ").capitalize()
    return BsuiteProblem(
        f"{words}, setting {setting.index}",
        short_name,
        played,
        Episodes(experiment.episodes),
        BsuiteLog(experiment.columns),
        {
            "suite": "bsuite",
            "id": name,
            "environment": identity(environment, family),
            "noise": noise,
            "scale": scale,
        },
        together=True,
        stream=1 + list(SWEEP).index(name),
        description=_description(setting),
        cite="osband2020bsuite",
        id=name,
    )


def _refusal(name: str) -> str:
    """Return why a name is not an id."""
    if name in _groups():
        return (
            f"it stands for {len(_groups()[name])} problems: expected one, such as "
            f"{_groups()[name][0]}"
        )
    experiment, _, index = name.partition("/")
    if experiment in EXPERIMENTS:
        last = len(EXPERIMENTS[experiment].settings) - 1
        return f"index = {shown(index, str)}: expected an integer from 0 to {last}"
    return f"unknown experiment '{shown(experiment, str)}'{nearest(experiment, EXPERIMENTS)}"


def _fields(setting: Id) -> dict[str, Any]:
    """Return the fields of the environment that a setting of the sweep gives."""
    values: dict[str, Any] = setting.all_settings
    for of_rewards in ("noise_scale", "reward_scale"):
        values.pop(of_rewards, None)
    if setting.experiment.family == "deep_sea":
        values["stochastic"] = setting.experiment.name == "deep_sea_stochastic"
    return values


@functools.lru_cache(maxsize=64)
def _environment(family: str, fixed: tuple[Any, ...], given: tuple[Any, ...]) -> Environment:
    """Make an environment once for all problems that share it: images are read from a file."""
    return _FAMILIES[family](**dict(fixed), **dict(given))


def _description(setting: Id) -> str:
    experiment = setting.experiment
    values = ", ".join(f"{key} = {value:g}" for key, value in setting.settings.items())
    return (
        f"Setting {setting.index} of {len(experiment.settings)} of bsuite's {experiment.name}"
        f"{f' ({values})' if values else ''}: {', '.join(experiment.tags)}."
    )


@functools.cache
def _groups() -> dict[str, tuple[str, ...]]:
    """Return names that stand for several ids."""
    groups = {"all": tuple(SWEEP), "testing": TESTING}
    groups |= {f"tag/{tag}": bsuite_sweep.tagged(tag) for tag in TAGS}
    return groups | {name: experiment.ids for name, experiment in EXPERIMENTS.items()}


def _table() -> list[dict[str, str]]:
    """Return the sweep: experiment, index, settings, episodes and tags of each id, as text."""
    return [
        {
            "experiment": one.experiment.name,
            "index": str(one.index),
            "settings": ", ".join(f"{key}={value:g}" for key, value in one.settings.items()),
            "episodes": f"{one.experiment.episodes:,}",
            "tags": ", ".join(one.experiment.tags),
        }
        for one in SWEEP.values()
    ]


register_suite(
    Suite(
        "bsuite",
        "Behaviour Suite (Osband et al. 2020): 468 settings of 23 experiments",
        _make,
        _groups(),
        _table,
    )
)
