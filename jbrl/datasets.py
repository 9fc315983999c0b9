"""Results and policies that are published with jbrl: which there are, and how to read them.

They lie in `experiments/published` of a checkout and in `jbrl/published` of an installed package,
with a data card (`README.md`) and Croissant metadata, whose checksums are compared.
"""

import hashlib
import json
import warnings
from pathlib import Path

import pandas as pd

from jbrl.base.errors import JbrlError, Register, expect, nearest, shown
from jbrl.policy import Policy, load_policy
from jbrl.results import Results

HERE = Path(__file__).parent
# the first one that exists
FOLDERS = (HERE / "published", HERE.parent / "experiments" / "published")
METADATA = "croissant.json"

# an archive of a study, or one table
DATASETS = Register[str]("dataset")
DATASETS |= {
    "castronovo2016": "paper-cpu",
    "castronovo2016-cells": "paper-cells",
    "prior-trained": "trained",
    "pretrained": "policies/scores.csv",
    "wrong-priors": "wrong-priors",
    "features": "features.csv",
    "price-of-time": "price-of-time",
    "brackets": "brackets.csv",
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
# of the experiments of Castronovo et al. 2016
PRETRAINED = ("GC", "GDL", "Grid", "GC-inaccurate", "GDL-inaccurate", "Grid-inaccurate")
POLICIES = "policies"


def load_results(name: str) -> Results | pd.DataFrame:
    """Return results that are published with jbrl.

    Args:
      name: one of `jbrl.datasets.DATASETS`; `experiments/published/README.md` describes each.

    Returns:
      `Results` where they are those of a study, else a table whose columns the data card lists.

    Raises:
      JbrlError: no dataset of this name, or a file that is missing or not the published one.

    >>> jbrl.load_results("castronovo2016").returns["score"].size
    317000
    """
    expect("dataset", name, str, 'the name of one, for example "castronovo2016"')
    place = _checked(DATASETS[name])
    if place.is_dir():
        return Results(place)
    return pd.read_csv(place) if place.suffix == ".csv" else pd.read_parquet(place)


def load_pretrained(name: str, *, compile_cache: str | Path | None = None) -> Policy:
    """Return the policy that is published for an experiment of Castronovo et al. 2016.

    Args:
      name: one of `jbrl.datasets.PRETRAINED`; with "-inaccurate", the prior is not that of the
        problem. `docs/deploy.md` has agents and scores.
      compile_cache: as for `load_policy`.

    Raises:
      JbrlError: no such policy, a file that is missing or not the published one, or one of another
        version of the agent.

    >>> jbrl.load_pretrained("GC").name
    'BeliefPPO'
    """
    if name not in PRETRAINED:
        raise JbrlError(f"unknown policy '{shown(name, str)}'{nearest(name, PRETRAINED)}")
    place = _checked(f"{POLICIES}/{name}")
    with warnings.catch_warnings():  # that last bits may differ between versions of JAX
        warnings.simplefilter("ignore")
        return load_policy(place, compile_cache=compile_cache)


def _checked(path: str) -> Path:
    """Return where a published file or folder is, its checksums compared."""
    root = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
    _check(root, path)
    return root / path


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
    except (json.JSONDecodeError, KeyError) as error:
        raise JbrlError(f"{root / METADATA}: not the published file ({error})") from None
