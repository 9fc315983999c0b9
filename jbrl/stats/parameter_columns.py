"""Parameters of agents as columns of a table, one for each name."""

import json
from collections.abc import Mapping

import pandas as pd


def parameter_columns(table: pd.DataFrame, column: str = "parameters") -> pd.DataFrame:
    """Replace the JSON text of a column by one column for each parameter.

    Args:
      table: rows with `column`, JSON objects as text, such as `Results.scores` and
        `Results.returns`.

    Returns:
      A copy, dtype object in the new columns: numbers, text and Booleans as in the JSON, None where
      the agent of a row has no such parameter, nested values (a distribution) as JSON text. Columns
      stand where `column` stood, in order of first appearance; `parameter_NAME` is the name of one
      that the table has already.

    Raises:
      KeyError: the table has no such column.
    """
    decoded = {text: _values(column, text) for text in table[column].unique()}
    names = list(dict.fromkeys(name for values in decoded.values() for name in values))
    place, rest = list(table.columns).index(column), table.drop(columns=column)
    for offset, name in enumerate(names):
        values = [decoded[text].get(name) for text in table[column]]
        free = f"parameter_{name}" if name in rest.columns else name
        rest.insert(place + offset, free, pd.Series(values, table.index, dtype=object))
    return rest


def _values(column: str, text: str) -> Mapping[str, object]:
    """Decode the parameters of one agent; text that is no JSON object stays as it is."""
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    if not isinstance(found, dict):
        return {column: text} if text else {}
    return {
        name: json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
        for name, value in found.items()
    }
