"""JSON files that users write: one object, whose fields are known."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jbrl.base.errors import JbrlError, nearest, shown


def read_object(path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> Any:
    """Read the JSON object in a file.

    Raises:
      JbrlError: it cannot be read, is not JSON or no object, lacks a field or has one too many.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise JbrlError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise JbrlError(f"{path}: cannot be read: not a text file in UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise JbrlError(f"{path}: not valid JSON: {place}: {error.msg}") from None
    except RecursionError:
        raise JbrlError(
            f"{path}: not valid JSON: nested too deeply: expected lists within lists within lists "
            "at most"
        ) from None
    except ValueError:
        raise JbrlError(
            f"{path}: not valid JSON: an integer of thousands of digits: expected numbers that "
            "float32 holds"
        ) from None
    if not isinstance(data, dict):
        raise JbrlError(f"{path}: expected a JSON object with the fields {', '.join(required)}")
    known = (*required, *optional)
    for field in data:
        if field not in known:
            raise JbrlError(f"{path}: unknown field '{shown(field, str)}'{nearest(field, known)}")
    for field in required:
        if field not in data:
            raise JbrlError(f"{path}: the field '{field}' is missing")
    return data
