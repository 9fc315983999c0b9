"""What writers of reports share: the figures of a document, and words for a folder that cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jbrl.errors import JbrlError
from jbrl.report.content import Document, Plot


def plots_of(report: Document) -> Iterator[Plot]:
    """All figures, in order."""
    for chapter in report.chapters:
        yield from (block for block in chapter.blocks if isinstance(block, Plot))


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Say it in one sentence when a report cannot be written to the folder `out`.

    Raises:
      JbrlError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise JbrlError(f"{out}: the report cannot be written here: {error.strerror}; choose another folder, or make room") from None
