"""`jbrl bound`, `choose` and `policy`: what an agent may earn at most, an agent for a problem, and
what it knows, to take home.
"""

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from jbrl.base.errors import JbrlError
from jbrl.cli.output import StepProgress, aligned, progress_bars

if TYPE_CHECKING:
    from jbrl.bayes_optimal.bracket import Bracket, End
    from jbrl.choice import Choice, Standing
    from jbrl.play.unit import Unit
    from jbrl.rollout.contract import Agent
    from jbrl.study.progress import Progress

RARE = 30.0  # MDPs
LIMITS = {
    "memory": "as far as the memory allows",
    "budget": "as far as the budget allows",
    "size": "as far as arrays are not too large",
}


@dataclasses.dataclass(frozen=True)
class Bounding:
    """Options of `jbrl bound` that `jbrl.bound` takes as they are.

    Args:
      discount: Discount, from 0 up to 1.
      horizon: Decisions of a lifetime (default: the problem's own).
      decisions (D): Decisions to look ahead.
      budget (SECONDS): About how long it may take by the clock on all cores, trials of agents
        included (default: 60, or what D takes).
      seed: Seed of all samples.
      played: MDPs in which the policy of the lower end plays (default: 20480, or what the budget
        allows).
      out (DIR): Keep pieces of the work there; the same command goes on from them.
    """

    discount: float = 0.95
    horizon: int | None = None
    decisions: int | None = None
    budget: float | None = None
    seed: int = 0
    played: int | None = None
    out: Path | None = None


def bound(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM")],
    *,
    options: Bounding,
    memory: str | None = None,
    agent: list[str] | None = None,
    strategies: Path | None = None,
    format: Literal["table", "json"] = "table",
) -> None:
    """Bracket the Bayes-optimal value of a distribution over finite MDPs.

    No agent whose prior is the distribution earns more on average than the upper end,
    and one earns at least the lower end: each a one-sided confidence limit, together
    at 95 %. A certified bracket holds whatever the distribution of returns is; for each
    end is said what it assumes.

    Args:
      problem: Problem, or the path of its JSON file.
      memory (SIZE): Memory that arrays may take, 8GiB or 500MB (default: half of the machine's).
      agent (NAME): Agent of the register that may earn the lower end; may be repeated.
      strategies (DIR): Results of a study: what its agents have found or trained on this
        distribution may earn the lower end.
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
            memory=None if memory is None else parse_memory(memory),
            agents=_agents(problem, agent or [], strategies),
            progress=show,
            **vars(options),
        )
    if format == "json":
        typer.echo(json.dumps(bracket.as_dict(), indent=1))
    else:
        typer.echo("\n".join(_bracket(bracket)))


def _agents(problem: str, names: list[str], study: Path | None) -> "dict[str, Agent]":
    """Return agents that may earn the lower end, by their names.

    Raises:
      JbrlError: no such agent or study, or a study without findings on this distribution.
    """
    from jbrl.agents.registry import named_agent
    from jbrl.problems.lookup import problem as find_problem
    from jbrl.results import Results

    agents: dict[str, Agent] = {name: named_agent(name, Path.cwd())[0] for name in names}
    if study is not None:
        learned = Results(study).learned_on(find_problem(problem).digest)
        if not learned:
            raise JbrlError(
                f"--strategies {study}: nothing was found or trained on {problem} there: expected "
                "a study that has played OPPS-DS, BeliefPPO or the like with this prior"
            )
        agents |= {name: one.strategy for name, one in learned.items()}
    return agents


def _bracket(bracket: "Bracket") -> list[str]:
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


NOTHING = 3  # exit code: no candidate keeps the limits
INTERRUPTED = 130  # exit code: interrupted, with the answer so far


@dataclasses.dataclass(frozen=True)
class Choosing:
    """Options of `jbrl choose` that `jbrl.choose` takes as they are.

    Args:
      offline (TIME): Limit before the first decision: 60s, 10min, a number of seconds; compilation
        does not count.
      online (TIME): Limit of a decision: 1ms, 50us.
      budget (TIME): About how long choosing may take, compilation included.
      horizon: Decisions of a lifetime (default: the problem's own).
      episodes: Episodes of a lifetime, in place of the horizon.
      discount: Discount, from 0 up to 1.
      candidates (NAMES): Agents, separated by commas, a study's TOML file, or 'all' (default): a
        portfolio of all families.
      seed: Seed of environments and agents.
      epsilon: Difference that does not matter, as a part of the range from Random to Optimal.
      confidence: Confidence of the race as a whole.
      out (DIR): Keep the answer and what was played there; the same command again goes on.
    """

    offline: str = "60s"
    online: str = "1ms"
    budget: str = "10min"
    horizon: int | None = None
    episodes: int | None = None
    discount: float = 0.95
    candidates: str | None = None
    seed: int = 0
    epsilon: float = 0.01
    confidence: float = 0.95
    out: Path | None = None


def choose(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM")],
    *,
    options: Choosing,
    format: Literal["table", "json"] = "table",
) -> None:
    """Choose an agent for a problem, within limits of time.

    Candidates play the same fresh environments. Those that cannot keep a limit leave, and those
    that are worse beyond doubt; the winner is scored in environments that the race has
    not seen. The exit code is 0 with an answer, 3 where no candidate keeps the limits, 130 after
    Ctrl-C, which prints the answer so far.

    Args:
      problem: Problem, environment as module:Class, or the path of a JSON file.
      format: Output format.

    Examples:
      jbrl choose GC --offline 60s --online 1ms --budget 10min --out out/choice
      jbrl choose pump.json --online 100us --candidates BEB,PSRL,BAMCP
      jbrl choose CartPole --episodes 100 --budget 30min
    """
    began = time.monotonic() - time.process_time()  # imports count
    from jbrl.choose import choose as choose_agent

    with _shown() as (progress, watch):
        choice = choose_agent(problem, began=began, progress=progress, watch=watch, **vars(options))
    if format == "json":
        typer.echo(json.dumps(choice.as_dict(), indent=1))
    else:
        typer.echo("\n".join(_lines(choice)))
    if choice.outcome != "answered":
        raise typer.Exit(INTERRUPTED if choice.outcome == "interrupted" else NOTHING)


@contextmanager
def _shown() -> Iterator[tuple[Any, Any]]:
    """Show the race as a table on a terminal, drawn between steps, so that nothing is drawn while
    decisions are timed; elsewhere as a line now and then.

    Yields: `progress` and `watch` of `jbrl.choose`.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with progress_bars() as show:
            yield (lambda step, done, total: show("choosing", done, total, step)), None
        return
    now = ""
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def progress(step: str, spent: int, budget: int) -> None:
            nonlocal now
            now = f"{spent} of {budget} s: {step}"

        def watch(standings: "Sequence[Standing]") -> None:
            left = sum(one.status == "not tried" for one in standings)
            live.update(_table(standings, f"{now}; {left} not tried yet", console), refresh=True)

        yield progress, watch


def _table(standings: "Sequence[Standing]", caption: str, console: Console) -> Table:
    """Return the standings, as many as fit on the terminal."""
    from jbrl.choice import standing_rows

    heads, *rows = standing_rows(standings)
    table = Table(caption=escape(caption), caption_justify="left", box=None, pad_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="left" if k in (0, len(heads) - 1) else "right")
    for row in rows[: max(1, console.height - 4)]:
        table.add_row(*map(escape, row))
    return table


def _lines(choice: "Choice") -> list[str]:
    rows = choice.rows()
    return [choice.sentence, "", *aligned(rows)] if len(rows) > 1 else [choice.sentence]


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
      unit: Its label, as 'jbrl run --dry-run' shows it; a regular expression that matches it alone;
        or the beginning of its id.
      to (FOLDER): New folder of the policy (default: OUT/policies/ID).

    Examples:
      jbrl policy out/quick "GC/e-Greedy.*epsilon=0.1"
      jbrl policy out/trained BeliefPPO --to pump
    """
    from jbrl.policy import of_unit

    if to is not None and to.exists():  # known before anything is learned again
        raise JbrlError(f"{to}: exists: expected the name of a new folder")
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
