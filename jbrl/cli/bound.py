"""`jbrl bound`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli.output import progress_bars

if TYPE_CHECKING:
    from jbrl.bayes_optimal.bracket import Bracket, End
    from jbrl.rollout.contract import Agent

RARE = 30.0  # MDPs
LIMITS = {
    "memory": "as far as the memory allows",
    "budget": "as far as the budget allows",
    "size": "as far as arrays are not too large",
}


def bound(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM")],
    *,
    discount: float = 0.95,
    horizon: int | None = None,
    decisions: int | None = None,
    budget: float | None = None,
    memory: str | None = None,
    seed: int = 0,
    agent: list[str] | None = None,
    strategies: Path | None = None,
    played: int | None = None,
    out: Path | None = None,
    format: Literal["table", "json"] = "table",
) -> None:
    """Bracket the Bayes-optimal value of a distribution over finite MDPs.

    No agent whose prior is the distribution earns more on average than the upper end,
    and one earns at least the lower end: each a one-sided confidence limit, together
    at 95 %. A certified bracket holds whatever the distribution of returns is; for each
    end is said what it assumes.

    Args:
      problem: Problem, or the path of its JSON file.
      discount: Discount, from 0 up to 1.
      horizon: Decisions of a lifetime (default: the problem's own).
      decisions (D): Decisions to look ahead.
      budget (SECONDS): About how long it may take by the clock on all cores, trials of agents
        included (default: 60, or what D takes).
      memory (SIZE): Memory that arrays may take, 8GiB or 500MB (default: half of the machine's).
      seed: Seed of all samples.
      agent (NAME): Agent of the register that may earn the lower end; may be repeated.
      strategies (DIR): Results of a study: what its agents have found or trained on this
        distribution may earn the lower end.
      played: MDPs in which the policy of the lower end plays (default: 20480, or what the budget
        allows).
      out (DIR): Keep pieces of the work there; the same command goes on from them.
      format: Output format.

    Examples:
      jbrl bound GDL
      jbrl bound GC --decisions 16 --format json
      jbrl bound GC --budget 1800 --out out/bound-GC
      jbrl bound GC --agent e-Greedy --strategies out/trained
    """
    from jbrl.bayes_optimal.bracket import bound as bracket_of
    from jbrl.play.resources import parse_memory

    with progress_bars() as show:
        bracket = bracket_of(
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
            progress=show,
        )
    if format == "json":
        typer.echo(json.dumps(bracket.as_dict(), indent=1))
    else:
        typer.echo("\n".join(_lines(bracket)))


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
        learned = Results(study).learned_on(find_problem(problem).digest)
        if not learned:
            raise JbrlError(
                f"--strategies {study}: nothing was found or trained on {problem} there: expected "
                "a study that has played OPPS-DS, BeliefPPO or the like with this prior"
            )
        agents |= {name: one.strategy for name, one in learned.items()}
    return agents


def _lines(bracket: "Bracket") -> list[str]:
    if bracket.confidence == 1:
        sure = f"exact to within {bracket.width:.1g}" if bracket.close else "certain"
        sure = "exact" if bracket.width == 0 else sure
    else:
        kind = "certified" if bracket.certified else "not certified"
        sure = f"{kind}, confidence {bracket.confidence:.0%}"
    lines = [
        f"{bracket.problem}, discount {bracket.discount:g}, {bracket.horizon} decisions",
        f"Bayes-optimal value: {bracket.lower:.7g} to {bracket.upper:.7g} ({sure})",
        f"  lower end: {_end(bracket.lower_end)}",
        f"  upper end: {_end(bracket.upper_end)}",
    ]
    if bracket.limited_by is not None:
        lines.append(f"  decisions looked ahead: {bracket.decisions}, {LIMITS[bracket.limited_by]}")
    if bracket.clairvoyant is not None:
        lines.append(f"  an agent that is shown the MDP: {bracket.clairvoyant:.5g}")
    if bracket.rarest is not None and bracket.rarest < RARE:
        lines.append(
            f"  of {bracket.lower_end.rests_on['n_mdps']:,} MDPs played, the rarest outcome of a "
            f"decision is expected in {bracket.rarest:.2g}: a sample says little of its worth"
        )
    return lines


def _end(end: "End") -> str:
    facts = [
        str(value) if key == "method" else f"{key} {value}" for key, value in end.rests_on.items()
    ]
    if end.standard_error:
        facts.append(f"mean {end.mean:.6g}, standard error {end.standard_error:.2g}")
    facts.append(f"assumes {end.assumes}")
    facts.append(f"{end.seconds:.3g} processor seconds")
    return f"{end.value:.6g} ({', '.join(facts)})"
