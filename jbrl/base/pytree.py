"""Frozen dataclasses that are pytrees of JAX, and the choice between two.

Every record of jbrl is one: its fields are leaves, so that they can be traced, mapped and stacked,
unless declared `static()`, in which case they belong to the compiled program and must be hashable.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
from jax import Array

T = TypeVar("T")


def static(default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """Declare a field as part of the compiled program: another value means another compilation."""
    return dataclasses.field(default=default, metadata={"static": True, **metadata})


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def record(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree."""
    made = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]
    data, meta = (
        [f.name for f in fields if bool(f.metadata.get("static")) is fixed]
        for fixed in (False, True)
    )
    keys = [jax.tree_util.GetAttrKey(name) for name in data]

    def flatten(value: T) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(value, name) for name in data], tuple(getattr(value, name) for name in meta)

    def flatten_with_keys(value: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        leaves, fixed = flatten(value)
        return list(zip(keys, leaves, strict=True)), fixed

    def unflatten(fixed: tuple[Any, ...], leaves: Iterable[Any]) -> T:
        return made(**dict(zip(data, leaves, strict=True)), **dict(zip(meta, fixed, strict=True)))

    # Not `register_dataclass`: to jaxlib (0.10.2, 0.11.2) two such classes with as many fields are
    # one and the same, so that a function compiled for one may be run for the other, by chance,
    # where the hashes of the two look alike.
    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


def select(condition: Array, new: T, old: T) -> T:
    """Return `new` where `condition` ([] bool) holds, else `old`: pytrees of one structure."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
