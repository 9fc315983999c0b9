"""Stopping at the next safe point: a signal requests it, and the loop over units stops once the
current chunk is finished and kept.
"""

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from types import FrameType

# numbers of the signals received, while they are listened to, and when
_asked: list[tuple[int, float]] = []


class Stopped(KeyboardInterrupt):
    """Signals have asked for an end, and everything played so far is kept.

    Attributes:
      number: of the first signal.
      asked: numbers of all, and the reading of `time.monotonic` when each came.
    """

    def __init__(self, asked: Sequence[tuple[int, float]]) -> None:
        self.asked, self.number = tuple(asked), asked[0][0]
        super().__init__(signal.Signals(self.number).name)


@contextlib.contextmanager
def stopping_on(*numbers: int) -> Iterator[None]:
    """Let these signals (default: SIGTERM) make `stop_if_asked` raise within the block, instead of
    ending the process.

    In the main thread only.
    """
    before = {number: signal.signal(number, _ask) for number in numbers or (signal.SIGTERM,)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.clear()


def _ask(number: int, frame: FrameType | None) -> None:
    del frame
    _asked.append((number, time.monotonic()))


def stop_if_asked() -> None:
    """Raise `Stopped` if a signal has asked for it."""
    if _asked:
        raise Stopped(_asked)
