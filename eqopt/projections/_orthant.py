"""Bounds on each element."""

import jax.numpy as jnp
from jaxtyping import PyTree

from .._core.leafwise import leafwise
from .._core.projection import AbstractProjection
from .._core.types import RealLeaf


class NonNegative(AbstractProjection):
    r"""The non-negative orthant, $P(x) = \max(x, 0)$.

    Exact. The derivative is 1 where $x > 0$ and 0 elsewhere, at 0 too.
    """

    def _project(self, tree: PyTree) -> PyTree:
        return leafwise(self._rule)(tree)

    def _rule(self, x: RealLeaf) -> RealLeaf:
        if jnp.iscomplexobj(x):
            raise TypeError("`NonNegative` must be given real arrays; got a complex one.")
        return jnp.where(x > 0, x, jnp.where(x <= 0, 0, x))  # NaN stays NaN
