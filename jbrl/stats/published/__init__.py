"""Published numbers as tables; README.md says where each comes from."""

from functools import cache
from importlib import resources

import pandas as pd


@cache
def _read(name: str) -> pd.DataFrame:
    with resources.files(__package__).joinpath(name).open(encoding="utf-8") as file:
        return pd.read_csv(file, keep_default_na=False, dtype=str)


def read_table(name: str) -> pd.DataFrame:
    """Return one of the files in this folder, all text."""
    return _read(name).copy()
