"""`jbrl bound`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.text import show_warnings

if TYPE_CHECKING:
    from jbrl.bayes_optimal.bracket import Bracket, End
    from jbrl.rollout.contract import Agent


LIMITS = {
    "memory": "as far as the memory allows",
    "budget": "as far as the budget allows",
    "size": "as far as arrays are not too large",
}


class Form(StrEnum):
    """Forms of a bracket."""

    table = "table"
    json = "json"


def bound(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="Problem, or the path of its JSON file.")
    ],
    discount: Annotated[float, typer.Option(help="Discount, from 0 up to 1.")] = 0.95,
    horizon: Annotated[
        int | None, typer.Option(help="Decisions of a lifetime (default: the problem's own).")
    ] = None,
    decisions: Annotated[
        int | None,
        typer.Option("--decisions", metavar="D", help="Decisions to look ahead."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="About how long it may take, trials of agents included (default: 60, or what D "
            "takes).",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory that arrays may take, 8GiB or 500MB (default: half of the machine's).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all samples.")] = 0,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="Agent of the register that may earn the lower end; may be repeated.",
        ),
    ] = None,
    strategies: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Results of a study: what its agents have found or trained on this distribution "
            "may earn the lower end.",
        ),
    ] = None,
    played: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="MDPs in which the policy of the lower end plays (default: 20480, or what the "
            "budget allows).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep pieces of the work there; the same command goes on from them."
        ),
    ] = None,
    format: Annotated[Form, typer.Option(help="Output format.")] = Form.table,
) -> None:
    """Bracket the Bayes-optimal value of a distribution over finite MDPs.

    No agent whose prior is the distribution earns more on average than the upper end,
    and one earns at least the lower end: each a one-sided confidence limit, together
    at 95 %.

    [bold]Examples[/bold]

    \b
    jbrl bound GDL
    jbrl bound GC --decisions 16 --format json
    jbrl bound GC --budget 1800 --out out/bound-GC
    jbrl bound GC --agent e-Greedy --strategies out/trained
    """
    from jbrl.bayes_optimal.bracket import bound as compute
    from jbrl.cli.progress import Steps
    from jbrl.play.resources import parse_memory

    show_warnings()
    with Steps() as steps:
        found = compute(
            problem,
            discount=discount,
            horizon=horizon,
            decisions=decisions,
            budget=budget,
            memory=None if memory is None else parse_memory(memory),
            seed=seed,
            agents=_agents(problem, agent or [], strategies),
            played=played,
            out=out,
            tell=steps.tell,
        )
    if format is Form.json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    else:
        typer.echo("\n".join(_lines(found)))


def _agents(problem: str, names: list[str], study: Path | None) -> "dict[str, Agent]":
    """Return agents that may earn the lower end, by their names.

    Raises:
      JbrlError: no such agent or study, or a study without findings on this distribution.
    """
    from jbrl.agents.registry import find_agent
    from jbrl.problems.lookup import problem as find_problem
    from jbrl.results import Results

    agents: dict[str, Agent] = {name: find_agent(name, Path.cwd()).agent() for name in names}
    if study is not None:
        found = Results(study).learned_on(find_problem(problem).digest)
        if not found:
            raise JbrlError(
                f"--strategies {study}: nothing was found or trained on {problem} there: expected "
                "a study that has played OPPS-DS, BeliefPPO or the like with this prior"
            )
        agents |= {name: learned.strategy for name, learned in found.items()}
    return agents


def _lines(found: "Bracket") -> list[str]:
    sure = "exact" if found.confidence == 1 else f"confidence {found.confidence:.0%}"
    lines = [
        f"{found.problem}, discount {found.discount:g}, {found.horizon} decisions",
        f"Bayes-optimal value: {found.lower:.5g} to {found.upper:.5g} ({sure})",
        f"  lower end: {_end(found.lower_end)}",
        f"  upper end: {_end(found.upper_end)}",
    ]
    if found.limited_by is not None:
        lines.append(f"  decisions looked ahead: {found.decisions}, {LIMITS[found.limited_by]}")
    if found.clairvoyant is not None:
        lines.append(f"  an agent that is shown the MDP: {found.clairvoyant:.5g}")
    return lines


def _end(end: "End") -> str:
    facts = [
        str(value) if key == "method" else f"{key} {value}" for key, value in end.rests_on.items()
    ]
    if end.standard_error:
        facts.append(f"mean {end.mean:.6g}, standard error {end.standard_error:.2g}")
    facts.append(f"{end.seconds:.3g} processor seconds")
    return f"{end.value:.6g} ({', '.join(facts)})"
