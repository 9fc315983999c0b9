"""Number of programs that a study takes, and of their operations.

python benchmarks/programs.py [STUDY…]
    prints how many operations each program has that trains agents, searches the prior, draws MDPs
    or plays, before the compiler optimises it: programs are traced and lowered, not compiled
    (default: experiments/quick.toml)
python benchmarks/programs.py --counted FILE ARGUMENTS…
    runs the command line of jbrl, and writes to FILE how many programs were compiled or loaded from
    a cache, the small ones included that JAX compiles for operations outside of programs
"""

import argparse
import atexit
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jax import monitoring  # noqa: E402

from jbrl.play import batching, compilation  # noqa: E402
from jbrl.play.offline import Trials  # noqa: E402
from jbrl.play.play import make_run  # noqa: E402
from jbrl.play.unit import Unit  # noqa: E402
from jbrl.rollout.contract import OfflineSearch  # noqa: E402
from jbrl.study.file import load_study  # noqa: E402

MAIN_JOB = ROOT / "experiments" / "quick.toml"
COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def lowered() -> Iterator[dict[tuple, int]]:
    """Count the operations of programs in place of compiling them, within the block."""
    found: dict[tuple, int] = {}

    def count(
        identity: tuple, lower: Callable[[], Any], *_: Any, **options: Any
    ) -> compilation.Program:
        del options
        if identity not in found:
            found[identity] = lower().as_text().count(" = ")
        return compilation.Program(lambda *_: None, 1, False)

    with (
        mock.patch.object(compilation, "find_or_compile", count),
        mock.patch.object(compilation, "KEPT", {}),
    ):
        yield found


def operations_of(study: Path = MAIN_JOB) -> dict[str, int]:
    """Return the number of operations of each program that a study of finite MDPs compiles, by the
    first unit that needs it.

    Args:
      study: a TOML file.
    """
    operations: dict[str, int] = {}
    with lowered() as found:
        for unit in load_study(study).units:
            before = set(found)
            _tasks(unit)
            new = [identity for identity in found if identity not in before]
            for number, identity in enumerate(new, 1):
                operations[f"{unit.label} {number}"] = found[identity]
    return operations


def _tasks(unit: Unit) -> None:
    """Ask for all programs of a unit."""
    run = make_run(unit.agent, unit.protocol)
    if isinstance(unit.agent, OfflineSearch):
        prior: Any = unit.protocol.agent_prior()
        trials = Trials(prior, unit.protocol.discount, run.test[1], run.devices)
        # the search asks for its programs before its first round
        next(iter(unit.agent.search(unit.protocol.seed, prior, trials, None)))
        return
    run.choose()
    width = batching.lanes_per_device(
        run.agent, run.protocol.test, run.protocol.n_environments, run.devices
    )
    for task in (run.training(), *run.programs(width, run.devices, 1)):
        if task:
            task()


def counted(file: Path, arguments: list[str]) -> None:
    """Run the command line of jbrl, and write the number of programs to a file at the end."""
    from jbrl.__main__ import main

    names: list[str] = []
    monitoring.register_event_duration_secs_listener(lambda name, *_, **__: names.append(name))
    atexit.register(lambda: file.write_text(str(names.count(COMPILED))))
    sys.argv = ["jbrl", *arguments]
    main()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("studies", metavar="STUDY", nargs="*", default=[MAIN_JOB])
    parser.add_argument("--counted", metavar="FILE ARGUMENTS", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.counted is not None:
        if not options.counted:
            parser.error("--counted: expected FILE")
        file, *arguments = options.counted
        counted(Path(file), arguments)
    else:
        for study in options.studies:
            operations = operations_of(Path(study))
            for name, count in operations.items():
                print(f"{count:>7,} {name}")
            print(f"{sum(operations.values()):>7,} in {len(operations)} programs of {study}")
