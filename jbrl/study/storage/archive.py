"""Results of a study in three small files, to be kept in a repository or handed on.

    DIR/study.json          the manifest, without its units
    DIR/units.parquet       one row per unit: what it is, times, status
    DIR/returns.parquet     the score table, with the prior and test distribution of each row
    DIR/strategies.parquet  of each search, the strategies tried most; only where agents
                            have searched

`jbrl.Results` reads an archive like the directory that it was made from. Trajectories, all of what
searches have found, and the data needed to continue a study are left out.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jbrl.base.errors import JbrlError
from jbrl.base.files import writing
from jbrl.study.storage.files import StoreError
from jbrl.study.storage.store import ARCHIVED, Store
from jbrl.study.storage.tables import (
    ALONE,
    PROCESSOR,
    SPREADS,
    UNIT_COLUMNS,
    Result,
    strategy_table,
    with_latency,
)

DIGESTS = ("prior_digest", "test_digest")
UNIT = ("experiment", "algorithm", "parameters", "seed")
RETURNS = ("experiment", "prior", "test", "algorithm", "parameters", "unit", "seed", "score")
MEASURED = tuple(
    c
    for c in UNIT_COLUMNS
    if c not in ("experiment", "prior", "test", "algorithm", "parameters", "seed")
)  # not in the manifest
_TRIED = 5  # strategies of each search that are kept; of a training, all stretches


class Archive:
    """The results in one archive: what `Store` reads, as far as it is kept."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @staticmethod
    def is_one(folder: str | Path) -> bool:
        return (Path(folder) / ARCHIVED).is_file()

    def manifest(self) -> dict[str, Any]:
        """As `Store.manifest`.

        Raises:
          StoreError: a file is missing or damaged.
        """
        path = self.folder / "study.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read ({error}); make the archive again") from None
        units = self._table("units")
        listed = units.drop(columns=[c for c in MEASURED if c in units.columns])
        return {**found, "units": listed.replace({np.nan: None}).to_dict("records")}

    def read(self) -> "Archive":
        """As `Store.read`: this archive, whose tables are read when they are asked for."""
        return self

    def numbered(self) -> pd.DataFrame:
        """As `Outcomes.numbered`.

        Raises:
          StoreError: units have other numbers of scores than they say.
        """
        units = self.units().reset_index(names="row")
        found = self.returns().merge(units[["row", *UNIT]], on=list(UNIT))[["row", "score"]]
        counts = np.bincount(found["row"], minlength=len(units))
        for row in np.flatnonzero(counts != units["n"])[:1]:
            unit = ", ".join(str(units.loc[row, name]) for name in UNIT)
            raise StoreError(
                f"{self.folder}: {counts[row]} scores of unit {unit}: expected {units['n'][row]}, "
                "as units.parquet says; make the archive again"
            )
        return found

    def units(self) -> pd.DataFrame:
        """As `Store.units`."""
        found = self._table("units")
        # of archives made before them
        lost = {c: None for c in (*DIGESTS, *SPREADS, *PROCESSOR) if c not in found.columns}
        found = with_latency(found.assign(**lost))
        return found[[c for c in (*UNIT_COLUMNS, ALONE) if c in found.columns]]

    def returns(self) -> pd.DataFrame:
        """As `Store.returns`."""
        return self._table("returns").drop(columns=["prior", "test"])

    def strategies(self) -> pd.DataFrame:
        """As `Store.strategies`, of each search the few that were tried most."""
        return (
            self._table("strategies")
            if (self.folder / "strategies.parquet").exists()
            else strategy_table([])
        )

    def knowledge(self, id: str) -> Result | None:
        """Return None: the findings of a search are not kept in full."""
        return None

    def trajectories(self, id: str) -> dict[str, np.ndarray]:
        """Raise `StoreError`: an archive holds none.

        Raises:
          StoreError: always.
        """
        raise StoreError(
            f"{self.folder}: an archive holds no trajectories; they stay in the directory that it "
            "was made from"
        )

    def metrics(self, id: str) -> dict[str, np.ndarray]:
        """Raise `StoreError`: an archive holds none.

        Raises:
          StoreError: always.
        """
        raise StoreError(
            f"{self.folder}: an archive holds scores alone; metrics stay in the directory that it "
            "was made from"
        )

    def _table(self, name: str) -> pd.DataFrame:
        path = self.folder / f"{name}.parquet"
        try:
            return pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be read ({error}); make the archive again") from None


def write_archive(store: Store, folder: str | Path, *, decimals: int | None = None) -> list[Path]:
    """Write the contents of `store` as an archive to `folder`, made if it is not there; return the
    paths.

    Args:
      decimals: digits after the point of each return; default: all. Three make a file of a third of
        the size.

    Raises:
      JbrlError: `decimals` is negative, or `folder` holds results that are not archived, or cannot
        be written; it is then as it was.
    """
    if decimals is not None and decimals < 0:
        raise JbrlError(f"archive: decimals = {decimals}: expected 0 or more")
    out = Path(folder)
    if (out / "units").exists():
        raise JbrlError(
            f"{out}: holds the results of a study: an archive needs a folder of its own"
        )
    manifest = store.manifest()
    listed = pd.DataFrame(manifest.pop("units"))
    units = pd.concat([listed, store.units()[list(MEASURED)]], axis=1)
    returns = store.returns().merge(
        units[["experiment", "prior", "test"]].drop_duplicates("experiment"),
        on="experiment",
        how="left",
    )
    if decimals is not None:
        returns = returns.assign(score=returns["score"].round(decimals))
    returns = returns.astype({"unit": np.int32, "seed": np.int64})
    strategies = store.strategies(_TRIED)
    tables = {"units": units, "returns": returns[list(RETURNS)]}
    if len(strategies):
        tables["strategies"] = strategies
    about = json.dumps({**manifest, "decimals": decimals}, indent=1) + "\n"
    with writing(out, "the archive") as new:
        (new / "study.json").write_text(about, encoding="utf-8", newline="")
        for name, table in tables.items():
            path = new / f"{name}.parquet"
            table.to_parquet(path, compression="zstd", compression_level=19, index=False)
    if "strategies" not in tables:
        (out / "strategies.parquet").unlink(missing_ok=True)  # of an earlier archive
    return [out / "study.json", *(out / f"{name}.parquet" for name in tables)]
