"""Write experiments/jordan-cpu.toml: as many trials of each environment of the comparison of Jordan
et al. 2020 as a number of hours buys.

python experiments/jordan.py [--pilot DIR] [--hours H] [--out FILE]

DIR has results of experiments/jordan.toml with few trials, for example

    jbrl run experiments/jordan.toml --set study.n_environments=64 --out out/pilot

Without it, times are those of jbrl's rough rule, and the spread of scores is that of an earlier
simulation of nine of the environments (experiments/evaluation), on the others the mean of these.

An interval of a mean has a width of w/√n for n trials, w being the standard deviation of a score
relative to the range of returns that the environment allows. The number of trials of an environment
minimises the sum over the environments of w²/n, w² averaged over algorithms, for the processor time
that there is: n is proportional to w/√c, where c is the time of a trial of all eleven algorithms.
So an environment that costs 100 times as much has a tenth of the trials, not a hundredth, and one
on which scores hardly differ has fewer. All algorithms have the same trials on an environment.
"""

import argparse
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jbrl.analysis import reproduction  # noqa: E402
from jbrl.analysis.published import jordan2020  # noqa: E402
from jbrl.results import Results  # noqa: E402
from jbrl.runner.study.plan import plan  # noqa: E402

LEAST, MOST = 30, 10_000  # trials of an environment
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


def costs(results: Results) -> pd.DataFrame:
    """Return the seconds of a trial and the standard deviation of scores, relative to the range of
    returns, for each environment and algorithm.

    Seconds are those of the machine of the pilot, with all its cores.
    """
    rows = []
    for (name, algorithm), part in results.returns.groupby(["experiment", "algorithm"], sort=False):
        low, high = BOUNDS[name]
        id = next(
            unit["id"]
            for unit in results.manifest["units"]
            if (unit["experiment"], unit["algorithm"]) == (name, algorithm)
        )
        header = results.store.result(id).header
        rows.append(
            {
                "environment": name,
                "algorithm": algorithm,
                "seconds": header["online_seconds"] * header["decisions"] / len(part),
                "width": part["score"].std() / (high - low),
            }
        )
    return pd.DataFrame(rows)


def rough() -> pd.DataFrame:
    """Return the same without a pilot."""
    study = tomllib.loads((ROOT / "experiments" / "jordan.toml").read_text(encoding="utf-8"))
    seconds = []
    for trials in (1000, 2000):
        study["study"]["n_environments"] = trials
        with tempfile.TemporaryDirectory() as folder:
            chosen = plan(study, folder)
            found = chosen.estimate
            units = chosen.study.units
            seconds.append({(u.experiment, u.algorithm): found[u.id] / 1000 for u in units})
    table = pd.DataFrame(
        [(*key, after - seconds[0][key]) for key, after in seconds[1].items()],
        columns=["environment", "algorithm", "seconds"],
    )
    scores = reproduction.known(
        pd.read_parquet(ROOT / "experiments" / "evaluation" / "resimulated.parquet")
    )
    width = scores.groupby(["environment", "algorithm"])["score"].std().reset_index(name="width")
    width["width"] /= [high - low for low, high in width["environment"].map(BOUNDS)]
    table = table.merge(width, on=["environment", "algorithm"], how="left")
    return table.fillna({"width": np.sqrt((width["width"] ** 2).mean())})


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
    parser.add_argument("--pilot", type=Path, help="results of a few trials")
    parser.add_argument("--hours", type=float, default=4)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "jordan-cpu.toml")
    chosen = parser.parse_args()
    table = costs(Results(chosen.pilot)) if chosen.pilot else rough()
    trials = allocation(table, chosen.hours * 3600)
    shown = table.groupby("environment", sort=False).agg(
        seconds=("seconds", "sum"), width=("width", "mean")
    )
    print(shown.assign(trials=pd.Series(trials)).round(4).to_string())
    chosen.out.write_text(text(trials, chosen.hours), encoding="utf-8")


if __name__ == "__main__":
    main()
