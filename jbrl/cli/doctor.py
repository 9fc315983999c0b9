"""`jbrl doctor`."""

import re

import typer

from jbrl.cli.text import complain, duration

SLOW_SCATTER = {"0.10.2", "0.11.0"}  # jaxlib versions


def doctor() -> None:
    """Say what jbrl runs on, and check that it works.

    Prints versions, machine, devices and what is known to be slow on them, and
    plays two agents whose order is known. Exit code 1 when that fails.
    """
    from jbrl.runner.batching import use_all_cores
    from jbrl.runner.machine import machine, versions

    use_all_cores()
    import jax

    for name, value in {**versions(), **machine()}.items():
        typer.echo(f"{name:<12} {value}")
    devices = jax.devices()
    typer.echo(f"{'devices':<12} {len(devices)} x {devices[0].device_kind} ({devices[0].platform})")
    for note in _notes(versions()["jaxlib"], devices[0].platform, len(devices)):
        complain(note, "note")
    _check()


def _notes(jaxlib: str, platform: str, devices: int) -> list[str]:
    """What is known to make this installation slow."""
    from jbrl.runner.machine import available_cores

    notes = []
    if re.match(r"[\d.]+", jaxlib).group().rstrip(".") in SLOW_SCATTER and platform in ("gpu", "cuda"):  # type: ignore[union-attr]
        notes.append(f"jaxlib {jaxlib} compiles contended float additions on NVIDIA GPUs very badly; 0.11.1 and later do not")
    if platform == "cpu" and devices < available_cores():
        notes.append(f"JAX uses {devices} of {available_cores()} cores, as JAX_NUM_CPU_DEVICES or XLA_FLAGS says")
    return notes


def _check() -> None:
    """Play two agents whose order is known."""
    from jbrl.agents.agent import AGENTS
    from jbrl.runner.experiment import play

    settings = {"prior": "GC", "n_mdps": 64, "horizon": 100}
    low, high = (play(AGENTS[name].agent(), **settings) for name in ("Random", "Optimal"))  # type: ignore[arg-type]
    gain = float((high.returns - low.returns).mean())
    if not gain > 0:
        complain(f"on 64 GC problems Optimal scores {gain:.3g} more than Random: expected a positive difference")
        raise typer.Exit(1)
    took = duration(low.compile_seconds + high.compile_seconds)
    typer.echo(f"{'check':<12} passed: on 64 GC problems Optimal scores {gain:.3g} more than Random ({took} to compile)")
