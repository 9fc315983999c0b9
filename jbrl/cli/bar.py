"""A progress bar for work that counts something."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console


@contextmanager
def bar(description: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, all), which draws on a terminal's standard error and is silent
    elsewhere.
    """
    console = Console(stderr=True, quiet=quiet)
    shown = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=32),
        bars.TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    with shown:
        task = shown.add_task(description, total=1, visible=False)
        yield lambda done, total: shown.update(task, completed=done, total=total, visible=True)
