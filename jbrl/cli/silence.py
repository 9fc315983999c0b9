"""Words about a unit that gives no news for long, for example within one compiled call."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

FIRST = 30.0  # seconds without news after which there is a word; the next ones take twice as long


class Silence:
    """Watcher of the time since the last news of a unit.

    Args:
      tell: called with the label of the unit and the wall seconds without news.
      first: seconds after which it is called for the first time.
    """

    def __init__(self, tell: Callable[[str, float], None], first: float = FIRST) -> None:
        self._tell, self._first = tell, first
        self._wake, self._ended = threading.Event(), False
        self._label: str | None = None
        self._since = time.monotonic()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Silence":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        self._wake.set()
        self._thread.join()

    def news(self, label: str | None) -> None:
        """Note that something has happened; `label` is the unit that runs now, None for none."""
        self._label, self._since = label, time.monotonic()
        self._wake.set()

    def _watch(self) -> None:
        patience = self._first
        while not self._ended:
            if self._wake.wait(patience):
                self._wake.clear()
                patience = self._first
            elif self._label is not None:
                self._tell(self._label, max(0.0, time.monotonic() - self._since))
                patience *= 2
