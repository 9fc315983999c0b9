"""Number of programs that a study takes.

python benchmarks/programs.py [STUDY…]
    prints how many programs train agents, draw MDPs and play, searches on the prior apart, found by
    tracing shapes alone: nothing is compiled (default: experiments/quick.toml)
python benchmarks/programs.py --counted FILE ARGUMENTS…
    runs the command line of jbrl, and writes to FILE how many programs were compiled or loaded from
    a cache, the small ones included that JAX compiles for operations outside of programs
"""

import atexit
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from jax import monitoring  # noqa: E402

from jbrl.agents.offline_search import OfflineSearch  # noqa: E402
from jbrl.runner.play import batching, compilation  # noqa: E402
from jbrl.runner.play.play import make_run  # noqa: E402
from jbrl.runner.study.study import load_study  # noqa: E402

MAIN_JOB = ROOT / "experiments" / "quick.toml"
COMPILED = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def identities() -> Iterator[set[tuple]]:
    """Collect the identities of programs in place of compiling them, within the block."""
    found: set[tuple] = set()

    def remember(identity: tuple, *_: Any) -> compilation.Program:
        found.add(identity)
        return compilation.Program(lambda: None, 1, False)

    with (
        mock.patch.object(compilation, "find_or_compile", remember),
        mock.patch.object(compilation, "KEPT", {}),
    ):
        yield found


def programs_of(study: Path = MAIN_JOB) -> int:
    """Return the number of programs that train agents, draw MDPs and play in a study of finite
    MDPs, those of agents that search on the prior apart.

    Args:
      study: a TOML file.
    """
    units = [u for u in load_study(study).units if not isinstance(u.agent, OfflineSearch)]
    with identities() as found:
        for unit in units:
            run = make_run(unit.agent, unit.protocol)
            run.choose()
            width = batching.lanes_per_device(run.agent, run.protocol.n_environments, run.devices)
            for task in (run.training(), *run.programs(width, run.devices)):
                if task:
                    task()
    return len(found)


def counted(file: Path, arguments: list[str]) -> None:
    """Run the command line of jbrl, and write the number of programs to a file at the end."""
    from jbrl.__main__ import main

    names: list[str] = []
    monitoring.register_event_duration_secs_listener(lambda name, *_, **__: names.append(name))
    atexit.register(lambda: file.write_text(str(names.count(COMPILED))))
    sys.argv = ["jbrl", *arguments]
    main()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--counted", file, *arguments]:
            counted(Path(file), arguments)
        case studies:
            for study in studies or [MAIN_JOB]:
                print(f"{study}: {programs_of(Path(study))} programs")
