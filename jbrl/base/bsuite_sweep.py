"""The sweep of the Behaviour Suite as plain data: 468 settings in 23 experiments.

Problems are made from it, and logs are scored with it; it imports nothing that plays or reads.

Source: Osband et al. 2020; where paper and published program differ, release 0.3.6 of the program.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType

TYPES = ("basic", "noise", "scale", "exploration", "credit_assignment", "memory")
TAGS = (
    "basic",
    "credit_assignment",
    "exploration",
    "generalization",
    "memory",
    "noise",
    "scale",
)
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
    found: set[int] = set()
    power = 1
    while power <= episodes:
        wanted = (power * multiple for multiple in LOG_MULTIPLES)
        found.update(int(n) for n in wanted if n == int(n) and n <= episodes)
        power *= 10
    return tuple(sorted(found))


def _repeated(
    name: str, values: tuple[float, ...], *, mapped: bool = False
) -> tuple[Mapping[str, Value], ...]:
    """Return four settings of each value; `mapped` ones also differ in the seed of their arms."""
    return tuple(
        {name: value, "mapping_seed": k} if mapped else {name: value}
        for value in values
        for k in range(4)
    )


def _one(name: str, values: tuple[int, ...] | range) -> tuple[Mapping[str, Value], ...]:
    return tuple({name: value} for value in values)


def _family(
    name: str, episodes: int, columns: tuple[str, ...], tags: dict[str, tuple[str, ...]]
) -> list[Experiment]:
    """Return an experiment and its variants with noisy and with scaled rewards."""
    mapped = name == "bandit"
    plain = _one("mapping_seed", range(20)) if mapped else ({},) * 20
    noise = _repeated("noise_scale", NOISE_SCALES, mapped=mapped)
    scale = _repeated("reward_scale", REWARD_SCALES, mapped=mapped)
    return [
        Experiment(name, name, episodes, tags["basic"], plain, columns),
        Experiment(
            f"{name}_noise", name, episodes, tags["noise"], noise, columns, level="noise_scale"
        ),
        Experiment(
            f"{name}_scale", name, episodes, tags["scale"], scale, columns, level="reward_scale"
        ),
    ]


def _tags(*others: str, only_basic: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    found = {kind: (kind, *others) for kind in ("basic", "noise", "scale")}
    return found | {"basic": ("basic", *only_basic, *others)}


def _experiments() -> Iterator[Experiment]:
    regret = ("total_regret",)
    yield from _family("bandit", 10_000, regret, _tags())
    yield from _family(
        "cartpole",
        1000,
        ("raw_return", "best_episode"),
        _tags("generalization", only_basic=("credit_assignment",)),
    )
    yield from _family("catch", 10_000, regret, _tags("credit_assignment"))
    yield from _family("mnist", 10_000, regret, _tags("generalization"))
    yield from _family("mountain_car", 1000, ("raw_return",), _tags("generalization"))
    heights = tuple(
        {"height_threshold": i / 20, "x_reward_threshold": 1 - i / 20} for i in range(20)
    )
    yield Experiment(
        "cartpole_swingup",
        "cartpole_swingup",
        1000,
        ("exploration", "generalization"),
        heights,
        ("raw_return", "total_upright", "best_episode"),
        level="height_threshold",
    )
    for name, tags in (
        ("deep_sea", ("exploration",)),
        ("deep_sea_stochastic", ("exploration", "noise")),
    ):
        yield Experiment(
            name,
            "deep_sea",
            10_000,
            tags,
            _one("size", DEEP_SEA_SIZES),
            ("total_bad_episodes", "denoised_return"),
            level="size",
            fixed={"mapping_seed": 42},
        )
    yield Experiment(
        "discounting_chain",
        "discounting_chain",
        1000,
        ("credit_assignment",),
        _one("mapping_seed", range(20)),
        (),
    )
    for name, level, values, fixed in (
        ("memory_len", "memory_length", LENGTHS, {"num_bits": 1}),
        ("memory_size", "num_bits", SIZES, {"memory_length": 2}),
    ):
        columns = ("total_perfect", "total_regret")
        yield Experiment(
            name,
            "memory_chain",
            10_000,
            ("memory",),
            _one(level, values),
            columns,
            level,
            fixed,
            seed=0,
        )
    for name, level, fixed, seed in (
        ("umbrella_distract", "n_distractor", {"chain_length": 20}, 0),
        ("umbrella_length", "chain_length", {"n_distractor": 20}, None),
    ):
        yield Experiment(
            name,
            "umbrella_chain",
            10_000,
            ("credit_assignment", "noise"),
            _one(level, LENGTHS),
            regret,
            level,
            fixed,
            seed,
        )


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {found.name: found for found in sorted(_experiments(), key=lambda one: one.name)}
)  # in alphabetical order
SWEEP: Mapping[str, Id] = MappingProxyType(
    {
        f"{one.name}/{i}": Id(one, i)
        for one in EXPERIMENTS.values()
        for i in range(len(one.settings))
    }
)  # all 468, in the order of the original
TESTING: tuple[str, ...] = tuple(
    f"{name}/0" for name, one in EXPERIMENTS.items() if not one.wrapper
)


def tagged(tag: str) -> tuple[str, ...]:
    """Return the ids whose experiments carry a tag of `TAGS`, in the order of the sweep."""
    return tuple(name for name, one in SWEEP.items() if tag in one.experiment.tags)
