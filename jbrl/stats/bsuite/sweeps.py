"""Runs put together as whole sweeps: those that were played, and resamples of them.

A score belongs to one sweep, one run of each setting. Where settings were played K times there are
K sweeps, and the score is the mean over them; a setting with fewer runs takes part again with its
first ones. Settings of an experiment that are equal (the 20 of catch, the four of each level of
noise) form a *stratum*: their runs are drawn from the same distribution.
"""

import dataclasses

import numpy as np

from jbrl.base.bsuite_sweep import EXPERIMENTS, SWEEP, Experiment
from jbrl.base.errors import JbrlError, nearest
from jbrl.stats.bsuite import formulas
from jbrl.stats.bsuite.logs import Logs, Run
from jbrl.stats.bsuite.measures import RELEASES, Measures, measures


@dataclasses.dataclass(frozen=True)
class Played:
    """All runs of one agent in one experiment, as numbers."""

    agent: str
    experiment: Experiment
    release: str  # whose rules count
    runs: tuple[Run, ...]  # by setting, then number
    measures: Measures
    setting: np.ndarray  # [runs] int, index of the setting
    stratum: np.ndarray  # [runs] int, index of the first setting that is equal

    @property
    def settings(self) -> np.ndarray:
        """Indices of the settings that were played, ascending."""
        return np.unique(self.setting)

    @property
    def sweeps(self) -> int:
        """The number of sweeps K: how often the setting that was played most was."""
        return int(np.bincount(self.setting).max())

    @property
    def finished(self) -> bool:
        """True if every setting of the experiment was played to its last episode, in every run."""
        whole = len(self.settings) == len(self.experiment.settings)
        return whole and all(run.finished for run in self.runs)

    @property
    def repeated(self) -> bool:
        """True if every stratum has two runs or more, which an interval needs."""
        return bool(np.unique(self.stratum, return_counts=True)[1].min() > 1)

    def choice(self) -> np.ndarray:
        """Return the runs of each sweep that was played, [sweeps, settings] int."""
        found = []
        for setting in self.settings:
            runs = np.flatnonzero(self.setting == setting)
            found.append(np.resize(runs, self.sweeps))
        return np.stack(found, axis=-1)

    def score(self, choice: np.ndarray) -> np.ndarray:
        """Return scores of sweeps, shape of `choice` without its last axis (`formulas.score`)."""
        return formulas.score(self.measures, choice, self.experiment)


def played(logs: Logs, agent: str, experiment: str, release: str = RELEASES[0]) -> Played | None:
    """Return the runs of an agent in an experiment; None where there is none.

    Raises:
      JbrlError: no such release.
    """
    if release not in RELEASES:
        raise JbrlError(f"release '{release}'{nearest(release, RELEASES)}")
    rules, runs = EXPERIMENTS[experiment], logs.of(agent, experiment)
    if not runs:
        return None
    return of_runs(runs, rules, release)


def of_runs(runs: list[Run], rules: Experiment, release: str) -> Played:
    """Return runs of one agent in one experiment as numbers."""
    setting = np.array([SWEEP[run.bsuite_id].index for run in runs])
    first = [rules.settings.index(one) for one in rules.settings]
    numbers = measures(runs, rules, release)
    stratum = np.array(first)[setting]
    return Played(runs[0].agent, rules, release, tuple(runs), numbers, setting, stratum)


def resampled(found: Played, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return choices of runs drawn with replacement within strata, [resamples, sweeps, settings]
    int.
    """
    settings = found.settings
    place = {setting: int(np.flatnonzero(found.setting == setting)[0]) for setting in settings}
    drawn = np.empty((resamples, found.sweeps, len(settings)), int)
    for k, setting in enumerate(settings):
        pool = np.flatnonzero(found.stratum == found.stratum[place[setting]])
        drawn[:, :, k] = generator.choice(pool, (resamples, found.sweeps))
    return drawn
