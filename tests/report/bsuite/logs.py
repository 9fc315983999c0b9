"""Logs of five experiments."""

from jbrl.stats.bsuite.logs import Logs
from tests.stats.bsuite_cases import golden

EXPERIMENTS_SHOWN = ("catch", "bandit_noise", "deep_sea", "memory_len", "discounting_chain")


def some(name: str, experiments: tuple[str, ...] = EXPERIMENTS_SHOWN) -> Logs:
    runs = (run for run in golden(name).runs if run.experiment.name in experiments)
    return Logs(tuple(runs))
