"""A unit that gives no news for long is spoken of; one that does is not."""

import threading

from jbrl.cli.progress import Watchdog


class Told:
    def __init__(self, words: int) -> None:
        self.labels: list[str] = []
        self.seconds: list[float] = []
        self._words, self.enough = words, threading.Event()

    def __call__(self, label: str, seconds: float) -> None:
        self.labels.append(label)
        self.seconds.append(seconds)
        if len(self.labels) == self._words:
            self.enough.set()


def test_the_intervals_double() -> None:
    told = Told(3)
    with Watchdog(told, first=0.05) as watchdog:
        watchdog.news("GC/SBOSS")
        assert told.enough.wait(20)
    assert told.labels == ["GC/SBOSS"] * 3
    first, second, third = told.seconds[:3]
    assert first >= 0.05 and second >= first + 0.1 and third >= second + 0.2


def test_news_of_units_and_their_end_are_not_silence() -> None:
    told = Told(1)
    with Watchdog(told, first=60.0) as watchdog:
        watchdog.news("GC/SBOSS")
        watchdog.news(None)
    assert not told.labels
    with Watchdog(told, first=0.02) as watchdog:
        watchdog.news("GC/SBOSS")
        watchdog.news(None)
        assert not told.enough.wait(0.5)
    assert not told.labels, "no unit is running"
