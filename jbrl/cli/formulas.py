"""`jbrl formulas`."""

from enum import StrEnum
from typing import Annotated

import typer

from jbrl.cli.tables import Format, print_table
from jbrl.cli.text import complain


class Layout(StrEnum):
    """Ways to print formulas."""

    table = "table"
    csv = "csv"
    latex = "latex"


class Domain(StrEnum):
    """The two sets of each size."""

    signed = "signed"
    values = "values"


# Counts of other sources. F5 and F6 depend on the points that formulas are compared at
# (docs/formulas.md).
OTHERS = {
    "F2": "paper and its program: 12",
    "F3": "paper and its program: 43",
    "F4": "paper and its program: 226",
    "F5": "paper: 1210, its program: 1204 to 1217",
    "F6": "paper: 7407, its program: 7324 to 7350",
}


def formulas(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SET", help="F1 … F6: formulas of at most so many variables and operators."
        ),
    ],
    format: Annotated[Layout, typer.Option(help="Output format.")] = Layout.table,
    domain: Annotated[
        Domain,
        typer.Option(
            help=(
                "signed: rankings of points of \\[-100, 100]³, as in the paper. values: of what "
                "Q-functions can be."
            )
        ),
    ] = Domain.signed,
) -> None:
    """Print a set of formulas, the strategies that OPPS-DS searches.

    Q0 is the Q-function of the mean of the prior, Q1 that of a model in which
    every action stays where it is, Q2 of one in which every next state is equally
    likely. Each formula stands for all that rank actions alike.

    [bold]Examples[/bold]

    \b
    jbrl formulas F3
    jbrl formulas F6 --format csv > f6.csv
    jbrl formulas F2 --format latex --domain values
    """
    from jbrl.agents.opps.formulas import formula_table

    found = formula_table(name, domain.value)
    if format is Layout.latex:
        typer.echo(
            "\n".join(
                [
                    "\\begin{tabular}{rl}",
                    *(f"{row.rank} & ${row.latex}$ \\\\" for row in found.itertuples()),
                    "\\end{tabular}",
                ]
            )
        )
        return
    print_table(
        found if format is Layout.csv else found.drop(columns="latex"), Format(format.value)
    )
    if format is Layout.table:
        others = f" ({OTHERS[name]})" if domain is Domain.signed and name in OTHERS else ""
        complain(f"{len(found)} formulas{others}", name)
