"""Frozen dataclasses that JAX can look into.

Every record of jbrl is one: its fields are leaves, so that they can be traced, mapped and stacked,
unless declared `static()`, in which case they belong to the compiled program and must be hashable.
"""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")


def static(default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """A field that is part of the compiled program: another value means another compilation."""
    return dataclasses.field(default=default, metadata={"static": True, **metadata})


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree."""
    made = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    names = {fixed: [f.name for f in fields if bool(f.metadata.get("static")) is fixed] for fixed in (False, True)}
    jax.tree_util.register_dataclass(made, data_fields=names[False], meta_fields=names[True])
    return made
