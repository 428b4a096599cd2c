"""Data in fields: arrays that a set or a schedule is given by, and what of them is known.

What is traced, or on another machine, can't be looked at: checks of values leave it alone.
"""

import dataclasses
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from .component import AbstractConverter


@dataclasses.dataclass(frozen=True)
class Arrays(AbstractConverter):
    """Metadata of a field that holds data: an array or a tree of arrays, real and finite. Numbers,
    and lists of them, are arrays; integers become floats."""

    def convert(self, label: str, value: Any) -> Any:
        """The tree with arrays of JAX for leaves."""
        leaves, treedef = jax.tree.flatten(value, is_leaf=_is_list_of_numbers)
        if not leaves:
            raise TypeError(f"{label} must be an array or a tree of arrays; got {value!r}.")
        return jax.tree.unflatten(treedef, [self._array(label, x) for x in leaves])

    def _array(self, label: str, value: Any) -> Array:
        if not isinstance(value, jax.Array):
            try:
                value = np.asarray(value)
            except ValueError:  # rows of different lengths
                value = np.asarray(value, object)
        real = jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)
        if not real:
            raise TypeError(f"{label} must be real arrays; got dtype {value.dtype}.")
        known_value = concrete(value)
        if known_value is not None and not np.all(np.isfinite(known_value)):
            raise ValueError(f"{label} must be finite; got {value!r}.")
        whole = jnp.issubdtype(value.dtype, jnp.integer)
        x = jnp.asarray(value, jnp.result_type(float) if whole else None)
        return jax.lax.convert_element_type(x, x.dtype)  # a type that is not weak


def _is_list_of_numbers(x: Any) -> bool:
    if isinstance(x, list | tuple) and x:
        return all(map(_is_list_of_numbers, x))
    return isinstance(x, int | float) and not isinstance(x, bool)


def concrete(x: Any) -> np.ndarray | None:
    """What a number or an array holds, where that is known and on this machine."""
    if isinstance(x, Tracer) or (isinstance(x, jax.Array) and not x.is_fully_addressable):
        return None
    return np.asarray(x)


def known(x: Any) -> int | float | None:
    """The value of a number or a scalar array, where that is known."""
    value = None if x is None else concrete(x)
    return None if value is None or value.ndim else value.item()


Data: TypeAlias = Annotated[PyTree, Arrays()]
"""An array or a tree of arrays."""
