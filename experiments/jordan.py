"""Write experiments/jordan-cpu.toml: as many trials of each environment of the comparison of Jordan
et al. 2020 as a number of hours buys.

python experiments/jordan.py [--pilot DIR] [--hours H] [--cores C] [--out FILE]

DIR has trials as experiments/jordan_kept.py keeps them, or results of experiments/jordan.toml with
few trials, for example

    jbrl run experiments/jordan.toml --set study.n_environments=256 --out out/pilot

Cells of which nothing is known are guessed: times by jbrl's rough rule, spreads of scores from an
earlier simulation of nine of the environments (experiments/evaluation), on the others the mean of
these. The time of a trial among fewer than 256 is too long, since lifetimes that are over leave
their places in a group empty until half of all groups are needed no more: it is taken where the
guess is longer still.

An interval of a mean has a width of w/√n for n trials, w being the standard deviation of a score
relative to the range of returns that the environment allows. The number of trials of an environment
minimises the sum over the environments of w²/n, w² averaged over algorithms, for the processor time
that there is: n is proportional to w/√c, where c is the time of a trial of all eleven algorithms.
So an environment that costs 100 times as much has a tenth of the trials, not a hundredth, and one
on which scores hardly differ has fewer. All algorithms have the same trials on an environment.
"""

import argparse
import functools
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from experiments import jordan_kept  # noqa: E402
from experiments.jordan_kept import CELL  # noqa: E402
from jbrl.base.errors import JbrlError  # noqa: E402
from jbrl.play.machine import available_cores  # noqa: E402
from jbrl.stats.published import jordan2020  # noqa: E402
from jbrl.study.plan import plan  # noqa: E402

LEAST, MOST = 30, 10_000  # trials of an environment
FEW = 256  # trials of a cell below which their time is not taken for that of many
COMPILE = 8.0  # seconds of compilation of a cell, where it is not known
# limits of a return (the longest and the shortest episode, what the last step costs)
BOUNDS = {
    "Chain-10d": (-199, -8),
    "Chain-10s": (-199, -8),
    "Chain-50d": (-999, -48),
    "Chain-50s": (-999, -48),
    "Gridworld-5d": (-500, -8),
    "Gridworld-5s": (-500, -8),
    "Gridworld-10d": (-2000, -18),
    "Gridworld-10s": (-2000, -18),
    "MountainCar": (-5000, -1),
    "CartPole": (1, 1000),
    "Acrobot": (-200, 0),
    "Pinball-empty": (-5001, 10_000),
    "Pinball-box": (-5001, 10_000),
    "Pinball-medium": (-5001, 10_000),
    "Pinball-single": (-5001, 10_000),
}
HEAD = """\
# The comparison of Jordan et al. (2020) in about {hours:g} hours on two cores: eleven complete
# algorithms on fifteen environments. Written by experiments/jordan.py, which says how trials are
# spread over environments: by the width of the intervals, and by the root of the time of a trial.
#
#   jbrl run experiments/jordan-cpu.toml --out out/jordan-cpu
#   jbrl compare out/jordan-cpu --to jordan2020 --html

[study]
name = "Jordan et al. 2020, two cores"
seed = 2020
"""


def costs(trials: pd.DataFrame, pieces: pd.DataFrame) -> pd.DataFrame:
    """Return what is known of each cell from a few trials.

    Args:
      trials, pieces: of `jordan_kept`.

    Returns:
      Columns environment, algorithm; seconds of a trial on one core; trials; compile, the seconds
      of compilation; width, the standard deviation of scores relative to the range of returns.
    """
    times = pieces.groupby(list(CELL), sort=False).agg(
        seconds=("seconds", "sum"), trials=("trials", "sum"), compile=("compile_seconds", "max")
    )
    width = trials.groupby(list(CELL), sort=False)["score"].std().rename("width")
    table = times.join(width).reset_index()
    low, high = (table["environment"].map(lambda n, end=end: BOUNDS[n][end]) for end in (0, 1))
    return table.assign(
        seconds=table["seconds"] / table["trials"], width=table["width"] / (high - low)
    )


def read(place: Path) -> pd.DataFrame:
    """Return `costs` of trials that are kept or of results.

    Cells with too few trials have the numbers of `rough`. Its seconds are scaled by the ratio that
    the two have, in the geometric mean, where both are known and observations are as large; no cell
    takes longer than measured.
    """
    if (place / "trials.parquet").is_file():
        table = costs(jordan_kept.trials(place), jordan_kept.pieces(place))
    else:
        table = costs(*jordan_kept.of_results(place))
    known, guessed = table.set_index(list(CELL)), rough().set_index(list(CELL))
    known = known.reindex(guessed.index)
    most = known["seconds"].fillna(np.inf)
    known.loc[known["trials"] < FEW, "seconds"] = np.nan
    ratios = np.log(known["seconds"] / guessed["seconds"])
    for _, cells in ratios.groupby([_inputs(name) for name, _ in ratios.index]):
        scale = float(np.exp(cells.mean())) if cells.notna().any() else 1.0
        guessed.loc[cells.index, "seconds"] *= scale
    table = known.drop(columns="trials").fillna(guessed)
    return table.assign(seconds=table["seconds"].clip(upper=most)).reset_index()


def _inputs(environment: str) -> int:
    """Return how many numbers an observation has, 0 for a state."""
    if environment in jordan2020.DISCRETE:
        return 0
    return 2 if environment == "MountainCar" else 4


@functools.cache
def rough() -> pd.DataFrame:
    """Return the same without any trial: seconds by jbrl's rough rule, on the cores that there are,
    and the spread of scores in an earlier simulation of nine of the environments, on the others the
    mean of these.
    """
    study = tomllib.loads((ROOT / "experiments" / "jordan.toml").read_text(encoding="utf-8"))
    seconds = []
    for trials in (1000, 2000):
        study["study"]["n_environments"] = trials
        with tempfile.TemporaryDirectory() as folder:
            chosen = plan(study, folder)
            found = chosen.expected_seconds
            units = chosen.study.units
            seconds.append({(u.experiment, u.algorithm): found[u.id] / 1000 for u in units})
    table = pd.DataFrame(
        [(*key, after - seconds[0][key]) for key, after in seconds[1].items()],
        columns=["environment", "algorithm", "seconds"],
    )
    scores = jordan2020.known(
        pd.read_parquet(ROOT / "experiments" / "evaluation" / "resimulated.parquet")
    )
    width = scores.groupby(["environment", "algorithm"])["score"].std().reset_index(name="width")
    width["width"] /= [high - low for low, high in width["environment"].map(BOUNDS)]
    table = table.merge(width, on=["environment", "algorithm"], how="left")
    table["seconds"] *= available_cores()
    return table.fillna({"width": np.sqrt((width["width"] ** 2).mean())}).assign(compile=COMPILE)


def allocation(table: pd.DataFrame, seconds: float) -> dict[str, int]:
    """Return trials of each environment, such that all of them take about `seconds`.

    Those that would have fewer than `LEAST` or more than `MOST` get these, and the rest shares what
    is left.
    """
    by = table.groupby("environment", sort=False)
    cost = by["seconds"].sum()
    width = np.sqrt(by["width"].apply(lambda values: np.mean(np.square(values))))
    wish = width / np.sqrt(cost)
    low, high = 0.0, MOST / wish.min()
    for _ in range(100):  # the factor, by bisection
        factor = (low + high) / 2
        trials = (factor * wish).clip(LEAST, MOST)
        low, high = (factor, high) if (trials * cost).sum() < seconds else (low, factor)
    return {name: _rounded(count) for name, count in trials.items()}


def _rounded(count: float) -> int:
    """Return a count with two digits."""
    digits = 10 ** max(0, int(np.floor(np.log10(count))) - 1)
    return int(count // digits * digits)


def text(trials: dict[str, int], hours: float) -> str:
    """Return the study."""
    parts = [HEAD.format(hours=hours)]
    parts += [
        f'\n[[experiments]]\nname = "{name}"\nproblem = "{name}"\nn_environments = {trials[name]}\n'
        for name in jordan2020.PROBLEMS.values()
    ]
    parts += [f'\n[[agents]]\nalgorithm = "{name}"\n' for name in jordan2020.ALGORITHMS.values()]
    return "".join(parts)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pilot", type=Path, metavar="DIR")
    parser.add_argument("--hours", type=float, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "jordan-cpu.toml")
    chosen = parser.parse_args()
    try:
        table = read(chosen.pilot) if chosen.pilot else rough()
    except JbrlError as error:
        sys.exit(f"error: {error}")
    playing = chosen.hours * 3600 * chosen.cores - table["compile"].sum()
    trials = allocation(table, playing)
    shown = table.groupby("environment", sort=False).agg(
        seconds=("seconds", "sum"), width=("width", "mean")
    )
    print(shown.assign(trials=pd.Series(trials)).round(4).to_string())
    chosen.out.write_text(text(trials, chosen.hours), encoding="utf-8")


if __name__ == "__main__":
    main()
