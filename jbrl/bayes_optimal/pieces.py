"""Results of parts of the work, kept in a folder so that a run goes on where it was ended."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jbrl.base.errors import JbrlError
from jbrl.play.unit import canonical
from jbrl.study.storage import files


class Pieces:
    """Pieces of one computation, in memory or in a folder.

    Args:
      configuration: everything that the pieces depend on; its digest is part of their names.

    Raises:
      JbrlError: the folder cannot be made.
    """

    def __init__(self, folder: Path | None, configuration: Mapping[str, Any]) -> None:
        self._folder = folder
        self._digest = hashlib.sha256(canonical(configuration).encode()).hexdigest()[:16]
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise JbrlError(f"{folder}: cannot be used as a folder: {error.strerror}") from None

    def get(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a piece: the one that is kept, or else a new one, which is kept.

        Its `seconds` are those of the processor, all threads, that it took to make.
        """
        if self._folder is None:
            return _timed(make)
        path = self._folder / f"{name}-{self._digest}.json"
        found = files.read_json(path)
        if found is None:
            found = _timed(make)
            files.write_whole(path, files.pack_json(found))
        return found


def _timed(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    started = time.process_time()
    found = make()
    return {**found, "seconds": time.process_time() - started}
