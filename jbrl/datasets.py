"""Results that are published with jbrl: which there are, and how to read them.

They lie in `experiments/published` of a checkout and in `jbrl/published` of an installed package,
with a data card (`README.md`) and Croissant metadata, whose checksums are compared.
"""

import hashlib
import json
from pathlib import Path

import pandas as pd

from jbrl.base.errors import JbrlError, nearest
from jbrl.results import Results

HERE = Path(__file__).parent
# the first one that exists
FOLDERS = (HERE / "published", HERE.parent / "experiments" / "published")
METADATA = "croissant.json"

# an archive of a study, or one table
DATASETS = {
    "castronovo2016": "paper-cpu",
    "castronovo2016-cells": "paper-cells",
    "prior-trained": "trained",
    "bandits": "bandits",
    "deep-on-mdps": "deep-on-mdps",
    "tabular": "tabular.csv",
    "jordan2020": "jordan/trials.parquet",
    "jordan2020-end": "jordan/end.parquet",
    "jordan2020-beside": "jordan/beside",
    "bsuite": "bsuite/agents.parquet",
    "bsuite-recurrent": "bsuite/recurrent.parquet",
    "bsuite-seeds": "bsuite/seeds.parquet",
    "bsuite-exploration": "bsuite/exploration.parquet",
    "bsuite-reference": "bsuite/reference.parquet",
}


def load_results(name: str) -> Results | pd.DataFrame:
    """Return results that are published with jbrl.

    Args:
      name: one of `jbrl.datasets.DATASETS`; `experiments/published/README.md` describes each.

    Returns:
      `Results` where they are those of a study, else a table whose columns the data card lists.

    Raises:
      JbrlError: no dataset of this name, or a file that is missing or not the published one.

    >>> jbrl.load_results("castronovo2016").returns["score"].size
    310000
    """
    if name not in DATASETS:
        raise JbrlError(f"unknown dataset '{name}'{nearest(name, DATASETS)}")
    root = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
    place = root / DATASETS[name]
    _check(root, DATASETS[name])
    if place.is_dir():
        return Results(place)
    return pd.read_csv(place) if place.suffix == ".csv" else pd.read_parquet(place)


def _check(root: Path, path: str) -> None:
    """Compare the files of a dataset with their checksums."""
    try:
        files = json.loads((root / METADATA).read_text(encoding="utf-8"))["distribution"]
        for file in files:
            where, expected = str(file["contentUrl"]), file["sha256"]
            if where != path and not where.startswith(path + "/"):
                continue
            if hashlib.sha256((root / where).read_bytes()).hexdigest() != expected:
                raise JbrlError(f"{root / where}: not the published file (SHA-256 differs)")
    except OSError as error:
        raise JbrlError(
            f"{error.filename}: cannot be read ({error.strerror}); install jbrl again"
        ) from None
