"""Sentences about results that no table has."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jbrl.results import Results


def nan_notes(results: "Results") -> Iterator[str]:
    """Describe the units in which agents have met NaN and have gone on."""
    for unit in results.manifest["units"]:
        met = results.undefined(unit["id"])
        if met is not None and met.any():
            yield (
                f"{unit['experiment']}/{unit['algorithm']} seed {unit['seed']}: {met.sum():,} of "
                f"{len(met):,} lifetimes with NaN, as weights that overflow make it: updates were "
                "skipped or steps were undefined, and their scores count"
            )
