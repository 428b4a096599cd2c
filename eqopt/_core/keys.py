"""Random keys, kept as numbers: key data with the name of their implementation."""

from typing import Annotated, Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from .component import AbstractConverter

_INT32_MAX = 2**31 - 1


_OLD_STYLE = {2: "threefry2x32", 4: "rbg"}  # by the number of words


class Key(eqx.Module):
    """A random key as plain numbers, which files and pickles can hold.

    - `data`: the key's data.
    - `implementation`: the name of the generator, such as `"threefry2x32"`; static.
    """

    data: UInt32[Array, "*batch words"]
    implementation: str = eqx.field(static=True)

    def typed(self) -> Array:
        """The key as JAX's functions take it."""
        return jax.random.wrap_key_data(self.data, impl=self.implementation)


def key_of(key: Array) -> Key:
    """A key of JAX, typed or old-style, as numbers."""
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.wrap_key_data(key, impl=_OLD_STYLE[key.shape[-1]])
    return Key(jax.random.key_data(key), str(jax.random.key_impl(key)))


def seeded(label: str, key: Key | int | Array) -> Key:
    """The key that a field annotated `RandomKey` stands for.

    **Raises** `ValueError`, which starts with `label`, for seeds in lanes.
    """
    if isinstance(key, Key):
        return key
    if getattr(key, "ndim", 0):
        raise ValueError(
            f"{label} must be a single seed where it is used. Use seeds in lanes under "
            "`eqx.filter_vmap`."
        )
    return key_of(jax.random.key(key))


class _AsKey(AbstractConverter):
    def convert(self, label: str, value: Any) -> Any:
        """A seed as it is, a key as numbers."""
        if isinstance(value, Key):
            return value
        if isinstance(value, np.generic | np.ndarray):
            value = jnp.asarray(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value <= _INT32_MAX:
                raise ValueError(f"{label} must be in [0, 2**31) if it is a seed; got {value}.")
            return value
        if isinstance(value, jax.Array):
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and value.ndim == 0:
                return key_of(value)
            if value.dtype == jnp.uint32 and value.ndim == 1 and value.size in _OLD_STYLE:
                return key_of(value)
            if jnp.issubdtype(value.dtype, jnp.integer) and value.ndim == 0:
                return value
        raise TypeError(f"{label} must be a random key or an int as a seed; got {value!r}.")


RandomKey: TypeAlias = Annotated[Key | int | Int[Array, ""], _AsKey()]
"""A seed, or a key of JAX of either style."""
