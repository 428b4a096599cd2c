"""The ball and the sphere of the Euclidean norm."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._core.hyperparam import NonNegativeNumber
from .._core.leafwise import leafwise
from .._core.norms import factor_within, global_norm
from .._core.projection import AbstractProjection
from .._core.types import Leaf


class L2Ball(AbstractProjection):
    r"""The Euclidean ball $\lVert x \rVert \le r$: $P(x) = x \min(1, r / \lVert x \rVert)$.

    The whole tree is one vector. Inside the ball the tree comes back unchanged, bit for bit, and
    the derivative is the identity, at zero too. The norm must be one that float32 can square, up
    to about 1e19.

    - `radius`: $r$, at least 0.
    """

    radius: NonNegativeNumber = 1.0

    def _project(self, tree: PyTree) -> PyTree:
        return leafwise(self._rule, global_norm(tree))(tree)

    def _rule(self, norm: Float[Array, ""], x: Leaf) -> Leaf:
        return x * factor_within(norm, self.radius)


class L2Sphere(AbstractProjection):
    r"""The Euclidean sphere $\lVert x \rVert = r$: $P(x) = r\, x / \lVert x \rVert$.

    The norm must be one that float32 can square, from about 1e-19 to 1e19.
    The whole tree is one vector. Every point of the sphere is nearest to zero: of a zero tree of
    $n$ elements the projection is the point whose elements are all $r / \sqrt n$, with
    derivative 0.

    - `radius`: $r$, at least 0.
    """

    radius: NonNegativeNumber = 1.0

    def _project(self, tree: PyTree) -> PyTree:
        size = sum(leaf.size for leaf in jax.tree.leaves(tree))
        return leafwise(self._rule, global_norm(tree), jnp.asarray(float(size)))(tree)

    def _rule(self, norm: Float[Array, ""], size: Any, x: Leaf) -> Leaf:
        zero = norm == 0
        scaled = x * (self.radius / jnp.where(zero, 1, norm))
        return jnp.where(zero, self.radius / jnp.sqrt(size), scaled)
