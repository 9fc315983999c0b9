"""The sweep of the Behaviour Suite as plain data: 468 settings in 23 experiments.

Problems are made from it, and logs are scored with it; it imports nothing that plays or reads.

Source: Osband et al. 2020; where paper and published program differ, release 0.3.6 of the program.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

TYPES = ("basic", "noise", "scale", "exploration", "credit_assignment", "memory")
TAGS = tuple(sorted((*TYPES, "generalization")))
NOISE_SCALES = (0.1, 0.3, 1.0, 3.0, 10.0)
REWARD_SCALES = (0.001, 0.03, 1.0, 30.0, 1000.0)
SIZES = (*range(1, 11), 12, 14, 17, 20, 25, 30, 40)  # bits to remember
LENGTHS = (*SIZES, 50, 60, 70, 80, 90, 100)  # of chains, and numbers of distractors
DEEP_SEA_SIZES = tuple(range(10, 51, 2))
LOG_MULTIPLES = (1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10)
LOG_COLUMNS = ("steps", "episode", "total_return", "episode_len", "episode_return")

LOG = "log_"  # prefix of a stored unit's metrics that hold log columns: [lifetimes, rows] float64,
# rows in the order of episodes; NaN in rows that a lifetime has not reached

Value = float | int


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One of the 23 experiments: settings of one family, scored together."""

    name: str
    family: str  # the environment's name in the original
    episodes: int
    tags: tuple[str, ...]  # the first is the type
    settings: tuple[Mapping[str, Value], ...]  # by index; what a family fixes is in `fixed`
    columns: tuple[str, ...]  # of the log, beyond LOG_COLUMNS
    level: str = ""  # the setting that distinguishes the groups of the score, "" for one group
    fixed: Mapping[str, Value] = dataclasses.field(default_factory=dict)  # that all ids share
    seed: int | None = None  # of the environment's random numbers, None: another one in each run

    @property
    def type(self) -> str:
        """The first tag, by which bars are ordered and coloured."""
        return self.tags[0]

    @property
    def log_columns(self) -> tuple[str, ...]:
        """All columns of a log, in the order of the original's files."""
        return LOG_COLUMNS + self.columns

    @property
    def ids(self) -> tuple[str, ...]:
        """`<experiment>/<index>` of all settings."""
        return tuple(f"{self.name}/{i}" for i in range(len(self.settings)))

    @property
    def wrapper(self) -> str:
        """The change to rewards before the agent sees them: "noise", "scale" or ""."""
        end = self.name.rpartition("_")[2]
        return end if end in ("noise", "scale") else ""


@dataclasses.dataclass(frozen=True)
class Id:
    """One of the 468 settings."""

    experiment: Experiment
    index: int

    @property
    def name(self) -> str:
        """`<experiment>/<index>`."""
        return f"{self.experiment.name}/{self.index}"

    @property
    def settings(self) -> Mapping[str, Value]:
        """Settings that distinguish this id from the others of its experiment."""
        return self.experiment.settings[self.index]

    @property
    def all_settings(self) -> dict[str, Value]:
        """The settings with those that all ids of the experiment share."""
        return {**self.experiment.fixed, **self.settings}


def logged_episodes(episodes: int) -> tuple[int, ...]:
    """Return numbers of the episodes after which a row is written: 49 for 10,000 and 36 for 1,000.

    Source: the original's logging schedule, fixed multiples of powers of ten.
    """
    powers = [10**k for k in range(len(str(episodes)))]
    numbers = {power * multiple for power in powers for multiple in LOG_MULTIPLES}
    return tuple(sorted(int(n) for n in numbers if n == int(n) and n <= episodes))


def _each(name: str, values: Iterable[int]) -> tuple[Mapping[str, Value], ...]:
    return tuple({name: value} for value in values)


def _family(
    name: str,
    episodes: int,
    columns: tuple[str, ...],
    tags: tuple[str, ...],
    basic_tags: tuple[str, ...] | None = None,
) -> Iterator[Experiment]:
    """Yield an experiment and its variants with noisy and with scaled rewards.

    Four settings share each noise or scale; those of the bandit differ in the seed of their arms.
    """
    seeds = _each("mapping_seed", range(20)) if name == "bandit" else ({},) * 20
    kinds = ("basic", *(tags if basic_tags is None else basic_tags))
    yield Experiment(name, name, episodes, kinds, seeds, columns)
    for kind, values in (("noise", NOISE_SCALES), ("scale", REWARD_SCALES)):
        level = "noise_scale" if kind == "noise" else "reward_scale"
        settings = tuple({level: value, **seeds[k]} for value in values for k in range(4))
        variant = f"{name}_{kind}"
        yield Experiment(variant, name, episodes, (kind, *tags), settings, columns, level)


def _experiments() -> Iterator[Experiment]:
    regret, general = ("total_regret",), ("generalization",)
    credit = ("credit_assignment",)
    yield from _family("bandit", 10_000, regret, ())
    columns = ("raw_return", "best_episode")
    yield from _family("cartpole", 1000, columns, general, credit + general)
    yield from _family("catch", 10_000, regret, credit)
    yield from _family("mnist", 10_000, regret, general)
    yield from _family("mountain_car", 1000, ("raw_return",), general)
    yield Experiment(
        "cartpole_swingup",
        "cartpole_swingup",
        1000,
        ("exploration", *general),
        tuple({"height_threshold": i / 20, "x_reward_threshold": 1 - i / 20} for i in range(20)),
        ("raw_return", "total_upright", "best_episode"),
        level="height_threshold",
    )
    for name, noise in (("deep_sea", ()), ("deep_sea_stochastic", ("noise",))):
        yield Experiment(
            name,
            "deep_sea",
            10_000,
            ("exploration", *noise),
            _each("size", DEEP_SEA_SIZES),
            ("total_bad_episodes", "denoised_return"),
            level="size",
            fixed={"mapping_seed": 42},
        )
    seeds = _each("mapping_seed", range(20))
    yield Experiment("discounting_chain", "discounting_chain", 1000, credit, seeds, ())
    memory, tags = ("total_perfect", *regret), (*credit, "noise")
    for name, family, level, values, fixed, seed in (
        ("memory_len", "memory_chain", "memory_length", LENGTHS, {"num_bits": 1}, 0),
        ("memory_size", "memory_chain", "num_bits", SIZES, {"memory_length": 2}, 0),
        ("umbrella_distract", "umbrella_chain", "n_distractor", LENGTHS, {"chain_length": 20}, 0),
        ("umbrella_length", "umbrella_chain", "chain_length", LENGTHS, {"n_distractor": 20}, None),
    ):
        is_memory, settings = family == "memory_chain", _each(level, values)
        yield Experiment(
            name,
            family,
            10_000,
            ("memory",) if is_memory else tags,
            settings,
            memory if is_memory else regret,
            level,
            fixed,
            seed,
        )


# in alphabetical order
EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {one.name: one for one in sorted(_experiments(), key=lambda one: one.name)}
)
# all 468, in the order of the original
SWEEP: Mapping[str, Id] = MappingProxyType(
    {name: Id(one, i) for one in EXPERIMENTS.values() for i, name in enumerate(one.ids)}
)
TESTING = tuple(f"{name}/0" for name, one in EXPERIMENTS.items() if not one.wrapper)


def tagged(tag: str) -> tuple[str, ...]:
    """Return the ids whose experiments carry a tag of `TAGS`, in the order of the sweep."""
    return tuple(name for name, one in SWEEP.items() if tag in one.experiment.tags)
