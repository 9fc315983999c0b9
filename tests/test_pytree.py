"""Records: what JAX sees of them."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from jbrl.base.pytree import record, static


@record
class Circle:
    size: float
    filled: bool = static(False)


@record
class Square:
    size: float
    filled: bool = static(False)


def test_static_fields_belong_to_the_structure():
    leaves, structure = jax.tree.flatten(Circle(2.0, True))
    assert leaves == [2.0]
    assert jax.tree.unflatten(structure, [3.0]) == Circle(3.0, True)
    assert structure != jax.tree.structure(Circle(2.0))
    assert structure == jax.tree.structure(Circle(5.0, True))


def test_two_classes_alike_are_two():
    # Equal structures of unequal hashes would share compiled functions now and then.
    assert jax.tree.structure(Circle(1.0)) != jax.tree.structure(Square(1.0))


@pytest.mark.parametrize("n", [40, pytest.param(150, marks=pytest.mark.slow)])
def test_a_compiled_function_is_compiled_for_each_class(n):
    # With `jax.tree_util.register_dataclass` and jaxlib 0.10.2, 435 of 3000 classes were taken for
    # another one.
    seen = []

    @jax.jit
    def grow(shape):
        seen.append(type(shape))
        return dataclasses.replace(shape, size=shape.size + 1)

    classes = [
        record(type(f"Shape{i}", (), {"__annotations__": {"size": float}})) for i in range(n)
    ]
    assert all(type(grow(cls(jnp.float32(1)))) is cls for cls in classes)
    assert seen == classes


def test_fields_are_named():
    ((path, _),) = jax.tree_util.tree_leaves_with_path(Circle(1.0))
    assert jax.tree_util.keystr(path) == ".size"


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Circle(1.0).size = 2.0
