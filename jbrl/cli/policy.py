"""`jbrl policy`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.cli.output import StepProgress, progress_bars

if TYPE_CHECKING:
    from jbrl.play.unit import Unit
    from jbrl.study.progress import Progress


def policy(
    folder: Annotated[Path, typer.Argument(metavar="OUT")],
    unit: Annotated[str, typer.Argument(metavar="UNIT")],
    *,
    to: Path | None = None,
) -> None:
    """Take the policy of a unit home: what its agent knows before the first decision, in a folder.

    What agents such as OPPS-DS and BeliefPPO have found is read from the results; what these do
    not keep is learned again from the seed of the unit. The output says which.

    Args:
      folder: Results of a study, or an archive of them.
      unit: Its label, as 'jbrl run --list' shows it; a regular expression that matches it alone; or
        the beginning of its id.
      to (FOLDER): New folder of the policy (default: OUT/policies/ID).

    Examples:
      jbrl policy out/quick "GC/e-Greedy.*epsilon=0.1"
      jbrl policy out/trained BeliefPPO --to pump
    """
    from jbrl.policy import of_unit

    with progress_bars() as show:
        found = of_unit(folder, unit, _searching(show))
    measured = found.latency()
    found = dataclasses.replace(found, measured=measured)
    target = found.save(to or folder / "policies" / found.digest[:12])
    typer.echo(f"{target}: {found.name} for {found.problem.short_name}; {found.origin}")
    typer.echo(f"latency: {measured.in_words()}")


def _searching(show: StepProgress) -> "Progress":
    """Return an observer of a run that shows how far a search is."""
    from jbrl.study.progress import Progress

    class Searching(Progress):
        def searching(self, unit: "Unit", consumed: int, budget: int, seconds: float) -> None:
            show(f"learning {unit.algorithm}", consumed, budget, f"{seconds:.0f} s")

    return Searching()
