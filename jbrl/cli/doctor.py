"""`jbrl doctor`."""

import re
from typing import NamedTuple

import typer

from jbrl.cli.options import CompileCache
from jbrl.cli.output import complain, duration

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
