"""`SplitRealAndImaginary`: a transformation that sees two real leaves for a complex one."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core.view import AbstractForm, AbstractView
from .._core.wrapper import Inner


class RealAndImaginary(NamedTuple):
    """A complex array in two parts."""

    real: Float[Array, "..."]
    imaginary: Float[Array, "..."]


class _Parts(AbstractForm):
    """Two real leaves for each complex one."""

    def see(self, tree: PyTree) -> PyTree:
        def split(x: Any) -> Any:
            is_complex = jnp.issubdtype(x.dtype, jnp.complexfloating)
            return RealAndImaginary(x.real, x.imag) if is_complex else x

        return jax.tree.map(split, tree)

    def whole(self, seen: PyTree, tree: PyTree) -> PyTree:
        def join(like: Any, parts: Any) -> Any:
            is_complex = jnp.issubdtype(like.dtype, jnp.complexfloating)
            return jax.lax.complex(*parts) if is_complex else parts

        return jax.tree.map(join, tree, seen)


class SplitRealAndImaginaryState(eqx.Module):
    """- `inner_state`: what the inner transformation remembers, of the parts."""

    inner_state: Any


class SplitRealAndImaginary(AbstractView):
    """Applies a transformation to the real and the imaginary parts of complex leaves, each as a
    leaf of its own; real leaves stay as they are.

    So complex parameters are trained as pairs of real ones: Adam, for example, divides each part
    by its own second moment, where without this wrapper both share that of the modulus. And
    algorithms that have no complex form take complex parameters inside.

    - `inner`: the transformation of the parts. For the leaf `['w']` it sees `['w'].real` and
      `['w'].imaginary`.
    """

    inner: Inner

    _state_type: ClassVar[Any] = SplitRealAndImaginaryState

    def _form(self, like: PyTree) -> _Parts:
        return _Parts()
