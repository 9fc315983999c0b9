"""Stopping by signals.

A signal that `stopping_on` listens to requests a stop at the next safe point: the loop over units
stops once the current chunk is finished and kept. Ctrl-C stops at once: Python raises
KeyboardInterrupt as soon as the main thread executes Python code again, and where it does not,
within a compiled call or the compiler, `interruptible` ends the process.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

PATIENCE = 1.0  # seconds after Ctrl-C that the main thread has before the process is ended
AGAIN = 0.1  # seconds until the next attempt, where something would be lost
LOST = b"\xff"  # in the place of a signal: KeyboardInterrupt was raised where Python ignores it
SHOW_CURSOR = b"\x1b[?25h\n"  # which a live display has hidden

# numbers of the signals received, while they are listened to, and when
_asked: list[tuple[int, float]] = []
# what to call before the process is ended, and what to say then; the innermost is the last
_keepers: list[tuple[Callable[[], bool], str]] = []


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


@contextlib.contextmanager
def keeping(keep: Callable[[], bool], text: str = "") -> Iterator[None]:
    """Let `interruptible` call `keep` before it ends the process within the block.

    Args:
      keep: writes what would be lost, and returns whether nothing is; called in another thread,
        while the main thread executes no Python code.
      text: said when the process ends.
    """
    _keepers.append((keep, text))
    try:
        yield
    finally:
        _keepers.pop()


@contextlib.contextmanager
def interruptible(code: int, tell: Callable[[str], None]) -> Iterator[None]:
    """Acknowledge Ctrl-C at once within the block, and obey it also while the main thread is within
    a compiled call or the compiler, where Python cannot raise KeyboardInterrupt.

    A second Ctrl-C ends the process at once. Does nothing where Ctrl-C is ignored or handled by
    others, and outside the main thread.

    Args:
      code: exit code of the process when it is ended here.
      tell: says one line to the user.
    """
    alone = threading.current_thread() is threading.main_thread()
    usual = signal.getsignal(signal.SIGINT)
    if not alone or usual not in (signal.default_int_handler, signal.SIG_DFL):
        yield
        return
    watcher = _Watcher(code, tell)
    watcher.start()
    signal.signal(signal.SIGINT, watcher.obey)
    before = signal.set_wakeup_fd(watcher.entrance.fileno(), warn_on_full_buffer=False)
    sys.unraisablehook = watcher.ignored
    try:
        yield
    finally:
        sys.unraisablehook = watcher.others
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, usual)
        watcher.stop()


class _Watcher(threading.Thread):
    """Thread that learns of signals when they come: Python writes their numbers into a socket,
    whatever the main thread does.
    """

    def __init__(self, code: int, tell: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._code, self._tell = code, tell
        self._exit, self.entrance = socket.socketpair()
        self.entrance.setblocking(False)
        # held while the process is ended, so that the main thread stays where it is
        self._lock = threading.Lock()
        self._obeyed = threading.Event()
        self.others = sys.unraisablehook

    def obey(self, number: int, frame: FrameType | None) -> None:
        """Handle Ctrl-C in the main thread."""
        del number, frame
        with self._lock:
            self._obeyed.set()
        raise KeyboardInterrupt

    def ignored(self, error: "sys.UnraisableHookArgs") -> None:
        """Learn of an exception that Python ignores: in a callback of the collector of garbage, or
        in a destructor. Nothing can be raised from here.
        """
        if error.exc_type is KeyboardInterrupt:
            self.entrance.send(LOST)
        else:
            self.others(error)

    def run(self) -> None:
        heard = again = False
        while (received := self._exit.recv(1)) != b"\0":
            if received == LOST:
                again = True
                time.sleep(AGAIN)  # until the main thread is elsewhere
                self._obeyed.clear()
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            elif received[0] == signal.SIGINT and heard and not again:
                self._leave()
            elif received[0] == signal.SIGINT:
                threading.Thread(target=self._end, daemon=True).start()
                if not heard:
                    self._tell("stopping; Ctrl-C again ends at once")
                heard, again = True, False
        self._exit.close()

    def stop(self) -> None:
        """End the thread; the process goes on."""
        with self._lock:
            self._obeyed.set()
        self.entrance.send(b"\0")
        self.join()
        self.entrance.close()

    def _end(self) -> None:
        """End the process, as soon as nothing is lost, unless the main thread does so."""
        seconds = PATIENCE
        while not self._obeyed.wait(seconds):
            # an error of writing is reported by the main thread, which tries it again
            with self._lock, contextlib.suppress(Exception):
                if not self._obeyed.is_set() and all(keep() for keep, _ in _keepers):
                    for text in filter(None, (text for _, text in _keepers)):
                        self._tell(text)
                    sys.stdout.flush()
                    self._leave()
            seconds = AGAIN

    def _leave(self) -> None:
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), SHOW_CURSOR)
        os._exit(self._code)


def _forked() -> None:
    """Keep a child process from writing its signals into the socket of its parent."""
    if isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), _Watcher):
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = sys.__unraisablehook__


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
