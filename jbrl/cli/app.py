"""The commands, the handling of errors, and `jbrl doctor`.

Modules that need JAX are imported inside commands: help must not wait for them, and the number of
devices has to be set before JAX starts.
"""

import errno
import re
from typing import Any, NamedTuple

import typer

from jbrl.base.errors import JbrlError
from jbrl.cli import bsuite, catalogue, rank, results, subset
from jbrl.cli.choose import bound, choose, policy
from jbrl.cli.evaluate import compare, evaluate
from jbrl.cli.options import CompileCache, PlainGroup, add_commands, group_of
from jbrl.cli.output import complain, duration, show_warnings
from jbrl.cli.run import BAD_INPUT, BY_SIGNAL, run
from jbrl.study.stopping import Stopped, interruptible

FAILED = 1
AUTO = "auto"  # compile_cache.AUTO


class Known(NamedTuple):
    """A known defect of some versions of jaxlib."""

    versions: tuple[str, ...]
    platforms: tuple[str, ...]  # empty: all
    text: str


KNOWN = (
    Known(
        ("0.10.2", "0.11.0"),
        ("gpu", "cuda"),
        "compiles contended float additions on NVIDIA GPUs very badly; 0.11.1 and later do not",
    ),
    Known(
        ("0.10.2",),
        (),
        "crashes at the second call of a program that leaves an input unused; jbrl avoids that in "
        "its own programs",
    ),
    Known(
        ("0.10.2",),
        ("cpu",),
        "hangs in LAPACK calls of programs sharded over CPU devices; jbrl makes none, agents of "
        "yours should not",
    ),
)


def doctor(
    *, no_test: bool = False, clear_cache: bool = False, compile_cache: CompileCache = None
) -> None:
    """Print what jbrl runs on, and check that it works.

    Prints versions, machine, devices, memory, compiled programs that are kept, and
    what is known to be slow or wrong; then plays agents whose scores are known,
    compiling for most of the time. Exit code 1 when one of them fails.

    Args:
      no_test: Skip the self-test.
      clear_cache: Remove the compiled programs that are kept, for all versions and processors, and
        stop.
    """
    from jbrl.play import compile_cache as kept_programs
    from jbrl.play.batching import use_all_cores
    from jbrl.play.machine import versions

    if clear_cache:
        where = compile_cache or AUTO
        removed = kept_programs.clear(where)
        typer.echo(f"{kept_programs.place(where)}: {_megabytes(removed)} removed")
        return
    use_all_cores()
    if compile_cache:
        kept_programs.use(compile_cache)
    platform, devices = _describe(compile_cache)
    for note in _notes(versions()["jaxlib"], platform, devices):
        complain(note, "note")
    if not no_test and not _test():
        raise typer.Exit(FAILED)


def _describe(cache: str | None) -> tuple[str, int]:
    """Print the installation; return the platform and its number of devices."""
    import jax

    from jbrl.play.machine import available_memory, machine, versions

    for name, value in {**versions(), **machine()}.items():
        _line(name, str(value))
    if free := available_memory():
        _line("free_gib", f"{free / 2**30:.1f}")
    try:
        devices = jax.devices()
    except RuntimeError as error:  # JAX_PLATFORMS asks for what is not there
        complain(f"no devices: {error}")
        raise typer.Exit(FAILED) from None
    _line("devices", f"{len(devices)} x {devices[0].device_kind} ({devices[0].platform})")
    for device in devices:
        memory = device.memory_stats() or {}
        if "bytes_limit" in memory:
            size, used = (memory[name] / 2**30 for name in ("bytes_limit", "bytes_in_use"))
            _line(f"device {device.id}", f"{size:.1f} GiB, {used:.1f} in use")
    _line("compiled", _cache(cache))
    return devices[0].platform, len(devices)


def _cache(where: str | None) -> str:
    """Describe the kept compiled programs and their place."""
    from jbrl.play import compile_cache

    place, state = compile_cache.place(where or AUTO), compile_cache.state(where or AUTO)
    kept = f"{state.programs} programs, {_megabytes(state.size)} in {place}"
    if state.damaged:
        kept += (
            f"; {state.damaged} damaged, which are compiled anew each time (--clear-cache removes "
            "them)"
        )
    if state.others:
        kept += f"; {_megabytes(state.others_size)} for other versions or processors"
    if where:
        return f"kept: {kept}"
    left = f"; left from before: {kept}" if state.size or state.others else ""
    return f"not kept (see --compile-cache){left}"


def _line(name: str, value: str) -> None:
    typer.echo(f"{name:<12} {value}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _notes(jaxlib: str, platform: str, devices: int) -> list[str]:
    """Return known causes of slowness or errors of this installation."""
    from jbrl.play.machine import available_cores

    version = re.match(r"[\d.]+", jaxlib).group().rstrip(".")  # type: ignore[union-attr]
    notes = [
        f"jaxlib {jaxlib} {known.text}"
        for known in KNOWN
        if version in known.versions and (not known.platforms or platform in known.platforms)
    ]
    if platform == "cpu" and devices < available_cores():
        notes.append(
            f"JAX uses {devices} of {available_cores()} cores, as JAX_NUM_CPU_DEVICES or "
            "XLA_FLAGS says"
        )
    return notes


def _test() -> bool:
    """Print the self-test as a table; return whether all checks passed."""
    from jbrl.study.selftest import run_checks

    outcomes = []
    typer.echo(f"\n{'check':<16} {'':<7}{'found':<32}{'expected':<28}seconds")
    for one in run_checks():
        verdict = "pass" if one.passed else "FAIL"
        typer.echo(
            f"{one.name:<16} {verdict:<7}{one.found:<32}{one.expected:<28}{one.seconds:7.1f}"
        )
        outcomes.append(one)
    failed = [one.name for one in outcomes if not one.passed]
    typer.echo(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} checks passed in "
        f"{duration(sum(one.seconds for one in outcomes))}"
    )
    if failed:
        complain(f"self-test: {', '.join(failed)}: not what is expected of a working installation")
    return not failed


INTERRUPTED = BY_SIGNAL + 2


class _Commands(PlainGroup):
    """Report errors in the input in one message, and end with exit code 2; obey Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        show_warnings()
        try:
            with interruptible(INTERRUPTED, lambda text: complain(text, "interrupted")):
                return super().invoke(ctx)
        except JbrlError as error:
            complain(str(error))
            raise typer.Exit(BAD_INPUT) from None
        except OSError as error:
            # not about a file, or a pipe that its reader has closed
            if error.filename is None or error.errno == errno.EPIPE:
                raise
            complain(f"{error.filename}: cannot be used: {error.strerror or type(error).__name__}")
            raise typer.Exit(BAD_INPUT) from None
        except MemoryError as error:
            complain(f"the memory of this machine does not suffice: {error or 'no reason given'}")
            raise typer.Exit(BAD_INPUT) from None
        except Stopped as stopped:
            raise typer.Exit(BY_SIGNAL + stopped.number) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="jbrl",
    cls=_Commands,
    help=(
        "A benchmark for reinforcement learning, played as arrays: run a study, read its scores, "
        "write its report."
    ),
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_commands(
    app,
    run,
    results.status,
    results.scores,
    results.returns,
    rank.rank,
    rank.sensitivity,
    results.strategies,
    results.report,
    compare,
    results.archive,
    evaluate,
    bound,
    choose,
    policy,
    catalogue.list_,
    catalogue.show,
    catalogue.formulas,
    catalogue.cite,
    doctor,
)
app.add_typer(group_of(subset.HELP, subset.search, subset.predict, subset.report), name="subset")
app.add_typer(
    group_of(bsuite.HELP, bsuite.score, bsuite.table, bsuite.import_, bsuite.export, bsuite.report),
    name="bsuite",
)


def _version(wanted: bool) -> None:
    if wanted:
        from jbrl import __version__

        typer.echo(f"jbrl {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    del version
