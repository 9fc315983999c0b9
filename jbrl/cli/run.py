"""`jbrl run`."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from jbrl.cli.compiled import CompileCache, keep_compiled
from jbrl.cli.notes import nan_notes
from jbrl.cli.slurm import asked, send
from jbrl.cli.text import complain, show_warnings

FAILED_UNITS = 1
SLURM = "With --executor slurm"


def run(
    study: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study to run.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory of results. If it holds some of them already, only the rest is run.",
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="study.FIELD=VALUE",
            help="Replace a field of \\[study], the value written as in TOML. May be repeated.",
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="Run only units whose label matches; --dry-run prints the labels."
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help=(
                "Run the I-th of N parts, counting from 1. Parts may share DIR, or be merged later."
            ),
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what would be run, how long it may take, in how much memory."
        ),
    ] = False,
    units: Annotated[
        bool,
        typer.Option(
            "--units/--no-units", help="With --dry-run: list the units, not only the algorithms."
        ),
    ] = True,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help=(
                "Measure the duration of units first, by short runs, two minutes at most. They are "
                "remembered: without this option, those made before are used; with "
                "--no-calibrate, none."
            ),
            show_default=False,
        ),
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="N|LIST",
            help=(
                "How many CPU cores or accelerators to use, or which accelerators: 0,2. Default: "
                "all."
            ),
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help=(
                "Memory to use, of each accelerator or of the machine: 8GiB, 500MB. Default: 80 %."
            ),
        ),
    ] = None,
    stack: Annotated[
        bool | None,
        typer.Option(
            "--stack/--no-stack",
            help="Play several units at once, or not. Default: where it helps.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")
    ] = False,
    executor: Annotated[
        str, typer.Option(metavar="local|slurm", help="Run here, or submit to SLURM and return.")
    ] = "local",
    partition: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="SLURM: the partition.", rich_help_panel=SLURM),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="SLURM: GPUs of each task.", rich_help_panel=SLURM),
    ] = None,
    cpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="SLURM: cores of each task.", rich_help_panel=SLURM),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="H:MM:SS",
            help="SLURM: time limit of each task; interrupted work continues.",
            rich_help_panel=SLURM,
        ),
    ] = None,
    array_parallelism: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="SLURM: how many tasks run at once (40).",
            rich_help_panel=SLURM,
        ),
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="SLURM: another option of sbatch: mem=8G, exclusive. May be repeated.",
            rich_help_panel=SLURM,
        ),
    ] = None,
    compile_cache: CompileCache = None,
) -> None:
    """Run a study, or what is left of it.

    A unit of work is one agent with its parameters in one experiment with one seed. Interrupt at
    any time: the same command continues where it was, with the same numbers. SIGTERM, which a batch
    system sends at its time limit, lets the current chunk be finished. Exit code 0: all done; 1:
    some units failed; 2: something in the input is not accepted; 130: interrupted; 143: ended by
    SIGTERM.

    [bold]Examples[/bold]

    \b
    jbrl run experiments/quick.toml --out out/quick
    jbrl run experiments/quick.toml --out out/try --set study.n_environments=50
    jbrl run experiments/quick.toml --out out/quick --only 'GC/e-Greedy' --dry-run
    jbrl run experiments/quick.toml --out out/quick --shard 2/3
    jbrl run experiments/paper.toml --out out/paper --calibrate --dry-run --no-units
    jbrl run experiments/paper.toml --out out/paper --executor slurm --gpus 1 --time 4:00:00
    """
    from jbrl.cli.estimates import foretell, measure
    from jbrl.cli.progress import Display
    from jbrl.play.resources import check, choose
    from jbrl.rollout.contract import StaysWithNaN
    from jbrl.study.plan import plan
    from jbrl.study.stopping import Stopped, keeping, stopping_on

    show_warnings()
    wanted = asked(
        executor,
        partition=partition,
        gpus=gpus,
        cpus=cpus,
        time=time,
        array_parallelism=array_parallelism,
        slurm=slurm,
    )
    if wanted:
        check(devices, memory)  # the devices are found where the tasks run
    resources = choose() if wanted else choose(devices, memory, stack)
    planned = plan(
        study,
        out,
        overrides=set_ or [],
        only=only,
        shard=shard,
        recall=calibrate is not False,
        devices=resources.devices,
    )
    for text in () if quiet else planned.notices:
        complain(text, "note")
    if calibrate:
        measure(planned, quiet=quiet)
    if dry_run:
        foretell(planned, units=units)
    if wanted:
        send(
            planned,
            wanted,
            dry_run=dry_run,
            quiet=quiet,
            compile_cache=compile_cache,
            devices=devices,
            memory=memory,
            stack=stack,
        )
    if dry_run or wanted:
        return
    display = Display(planned, quiet=quiet)  # the speed of compilation is measured without a cache
    keep_compiled(compile_cache)
    kept = f"what is done is kept in {out}; the same command continues from there"
    try:
        with (
            keeping(lambda: True, kept),
            stopping_on(signal.SIGTERM, signal.SIGUSR1),
            display as progress,
        ):
            failed = planned.execute(progress, resources)
    except KeyboardInterrupt as interrupt:
        complain(kept, "stopped" if isinstance(interrupt, Stopped) else "interrupted")
        raise
    if not quiet and any(isinstance(unit.agent, StaysWithNaN) for unit in planned.units):
        from jbrl.results import Results

        for text in nan_notes(Results(out)):
            complain(text, "note")
    if failed:
        raise typer.Exit(FAILED_UNITS)
