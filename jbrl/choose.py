"""Choice of an agent for a problem within limits of time: a race on fresh environments.

Candidates that keep the limits play the same environments in blocks that double. One leaves when
it is worse than the leader beyond doubt, at whatever time one looks (`stats.race`). The race ends
when no other can be better by more than epsilon, or when the budget is spent. The winner is scored
in environments that the race has not seen.
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from jbrl.agents.complete import is_oracle
from jbrl.base.errors import JbrlError, as_path, expect, located, shown
from jbrl.base.files import naming, sweep, write_whole
from jbrl.base.parameters import parse_seconds, separated
from jbrl.choice import Choice
from jbrl.chooser import Chooser, Progress, Watch
from jbrl.play import batching
from jbrl.play.play import lifetime_of, resolve_agent, resolve_problem
from jbrl.play.protocol import Protocol
from jbrl.policy import check_findable, refuse_weights
from jbrl.problems.hosted import HostProblem
from jbrl.racer import DECISIONS, Clock, Kept, Racer
from jbrl.rollout.contract import Agent, plain
from jbrl.study.file import load_study
from jbrl.study.portfolio import (
    Candidate,
    candidate,
    in_order,
    is_reference,
    portfolio,
    setting_name,
    suits,
)
from jbrl.study.stopping import keeping
from jbrl.verdict import Verdict

PLANNED = 512  # lifetimes that programs are compiled for


def choose(
    problem: Any,
    *,
    offline: str | float = "60 s",
    online: str | float = "1 ms",
    budget: str | float = "10 min",
    horizon: int | None = None,
    episodes: int | None = None,
    discount: float = 0.95,
    candidates: str | Path | Sequence[str | Agent] | Mapping[str, Agent] | None = None,
    seed: int = 0,
    epsilon: float = 0.01,
    confidence: float = 0.95,
    out: str | Path | None = None,
    began: float | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Choice:
    """Choose an agent for a problem within limits of time, by a race.

    Args:
      problem: a name of the catalogue, the path of a JSON file, `module:Class`, a `Problem`, or an
        environment, of Gymnasium as well.
      offline: limit of what an agent may learn before its first decision: "60 s", "10 min", or
        seconds; compilation does not count.
      online: limit of a decision.
      budget: about how long choosing may take, compilation included.
      horizon: decisions of a lifetime, or `episodes`; default: the lifetime of the problem.
      candidates: names or agents, agents by names of their own, a text of names with commas, or
        the path of a study (`Path`, or a text that ends in .toml), whose agents suit the problem or
        are left out; default, or "all": a portfolio of all families.
      epsilon: a difference that does not matter, as a part of the range from Random to Optimal, or
        to the best candidate where Optimal cannot play.
      confidence: of the race as a whole, and of the limits of the score.
      out: folder for what has been played; the same call again goes on from there.
      began: reading of `time.monotonic` from which on the budget is spent; default: now.
      progress: called with the name of a step, and how many of how many seconds are spent.
      watch: called with the `Standing` of each candidate at each step.

    Raises:
      JbrlError: a problem, a candidate, a number or a duration that is not accepted, or a folder
        that cannot be written to.
    """
    epsilon, confidence = plain(epsilon), plain(confidence)
    for name, value in (("epsilon", epsilon), ("confidence", confidence)):
        if not (isinstance(value, int | float) and 0 < value < 1):
            raise JbrlError(f"{name} = {shown(value)}: expected a number between 0 and 1")
    expect("began", began, float | int | None, "a reading of time.monotonic()")
    limits = parse_seconds("offline", offline), parse_seconds("online", online)
    clock = Clock(parse_seconds("budget", budget), began=began)
    batching.use_all_cores()
    chosen = resolve_problem(problem)
    lifetime = lifetime_of(chosen, horizon, episodes)
    protocol = Protocol(chosen, chosen, PLANNED, seed, lifetime, discount)
    field = _field(candidates, protocol, *limits)
    if out is not None:  # the policy is written there
        check_findable(chosen, *(one.agent for one in field))
    folder = None if out is None else as_path("out", out)
    kept = Kept(folder, chosen.content if folder and isinstance(chosen, HostProblem) else "")
    if folder is not None:  # what writes the page is imported while programs are compiled
        Thread(target=import_module, args=("jbrl.report.html",), daemon=True).start()
    verdict = Verdict(
        Chooser(
            protocol,
            [Racer(one, protocol, kept, clock) for one in field],
            limits=limits,
            epsilon=epsilon,
            confidence=confidence,
            clock=clock,
            progress=progress,
            watch=watch,
        )
    )

    def keep() -> bool:
        """Write the answer so far: Ctrl-C has come within a compiled call."""
        if folder is not None:
            verdict.stopped = "interrupted"
            _write(verdict.answer(), folder)
        return True

    where = "" if folder is None else f"the answer so far is in {folder / 'choice.json'}"
    with keeping(keep, where):
        choice = verdict.reach()
    if folder is not None:
        try:
            with naming(folder, "written"):
                _write(choice, folder)
        except JbrlError as error:  # what took so long to find is said all the same
            raise JbrlError(f"{error}. The answer is: {choice.sentence}") from None
    return choice


def _write(choice: Choice, folder: Path) -> None:
    """Write `choice.json`, the folder of the policy, and the page, in place of what is there."""
    answer = json.dumps(choice.as_dict(), indent=1)
    write_whole(folder / "choice.json", answer.encode())
    if choice.policy is not None:
        _write_policy(choice, folder)
    from jbrl.report import html  # here: figures take long to import
    from jbrl.report.choice import document

    page = html.render(document(json.loads(answer), choice.rows()))
    write_whole(folder / "choice.html", page.encode())


def _write_policy(choice: Choice, folder: Path) -> None:
    """Put the policy into its place, where another process may be about to do the same."""
    limits = {"offline": choice.offline_limit, "online": choice.online_limit}
    sweep(folder, "*policy.*.tmp")
    own, place = secrets.token_hex(4), folder / "policy"
    new, old = folder / f"policy.new.{own}.tmp", folder / f"policy.old.{own}.tmp"
    decisions = DECISIONS if choice.is_timed else None
    try:
        choice.policy.save(new, limits=limits, decisions=decisions)
    except JbrlError as error:
        raise JbrlError(str(error).replace(str(new), str(place))) from None
    while new.exists():
        with contextlib.suppress(FileNotFoundError):
            place.rename(old)  # until the new one is whole
        try:
            new.rename(place)
        except OSError:  # that of another process came first
            if not place.exists():
                raise
        shutil.rmtree(old, ignore_errors=True)


def _field(given: Any, protocol: Protocol, offline: float, online: float) -> list[Candidate]:
    """Return the candidates; references are none.

    Raises:
      JbrlError: one that is unknown, that cannot play the problem, or is shown the environment; two
        of one name; none.
    """
    if given is None or given == "all":
        return portfolio(protocol, offline, online)
    if isinstance(given, Path) or str(given).endswith(".toml"):
        given = _of_study(given, protocol)
    elif isinstance(given, str):
        given = separated(given)
    if not isinstance(given, Mapping | Sequence):
        raise JbrlError(f"candidates = {shown(given)}: expected agents, or the path of a study")
    named: list[tuple[str, Any]] = (
        list(given.items()) if isinstance(given, Mapping) else [("", one) for one in given]
    )
    found = []
    for name, agent in [(name, resolve_agent(one)[0]) for name, one in named]:
        if not isinstance(name, str):
            raise JbrlError(f"candidates: name {shown(name)}: expected a text")
        name = name or setting_name(agent)
        refuse_weights(agent)
        protocol.check_agent(agent, name)
        if is_oracle(agent):
            raise JbrlError(
                f"candidates: {name} is shown the environment: expected agents that are not"
            )
        if is_reference(agent):  # it plays beside the race
            continue
        with located(f"candidates: {name}"):
            found.append(candidate(agent, protocol, name))
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice or not names:
        lack = f"none is given that can play '{protocol.test.short_name}', references apart"
        raise JbrlError(
            f"candidates: {f'two are called {twice}' if twice else lack}: expected one or more, "
            "each with a name of its own"
        )
    return in_order(found, protocol)


def _of_study(path: str | Path, protocol: Protocol) -> dict[str, Agent]:
    """Return the agents of a study that can play the problem, references apart, by name.

    Raises:
      JbrlError: the file is not accepted.
    """
    units = load_study(path).units
    agents = {setting_name(unit.agent): unit.agent for unit in units}
    return {
        name: agent
        for name, agent in agents.items()
        if not is_reference(agent) and suits(agent, name, protocol)
    }
