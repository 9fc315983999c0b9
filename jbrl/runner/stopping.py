"""Ending at the next good moment: a signal asks, the loop over units answers once the chunk at work is finished and kept."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_asked: list[int] = []  # numbers of the signals received, while they are listened to


class Stopped(KeyboardInterrupt):
    """A signal has asked for an end, and everything played so far is kept. `number` is that of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stopping_on(*numbers: int) -> Iterator[None]:
    """Within: these signals (default: SIGTERM) no longer end the process, but make `stop_if_asked` raise. In the main thread only."""
    before = {number: signal.signal(number, _ask) for number in numbers or (signal.SIGTERM,)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()


def _ask(number: int, frame: FrameType | None) -> None:
    del frame
    _asked.append(number)


def stop_if_asked() -> None:
    """Raise `Stopped` if a signal has asked for it."""
    if _asked:
        raise Stopped(_asked[0])
