"""The ball and the sphere of the Euclidean norm."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Inexact

from .._core.hyperparam import NonNegativeNumber
from .._core.norms import scaled_norm
from ._vectors import AbstractPartsProjection


class L2Ball(AbstractPartsProjection):
    r"""The Euclidean ball $\lVert x \rVert \le r$: $P(x) = x \min(1, r / \lVert x \rVert)$.

    A vector in the ball comes back unchanged, bit for bit, with the identity for a derivative, at
    zero too.

    - `radius`: $r$, at least 0.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    radius: NonNegativeNumber = 1.0

    _real_only: ClassVar[bool] = False

    def _project_parts(self, parts: Sequence[Inexact[Array, "..."]]) -> Sequence[Array]:
        norm, scale = scaled_norm(parts)
        within = norm <= self.radius * scale
        to_bound = self.radius / jnp.where(within, 1, norm)
        scale, to_bound = jnp.where(within, 1, scale), jnp.where(within, 1, to_bound)
        return [x * scale * to_bound for x in parts]


class L2Sphere(AbstractPartsProjection):
    r"""The Euclidean sphere $\lVert x \rVert = r$: $P(x) = r\, x / \lVert x \rVert$.

    Every point of the sphere is nearest to zero: of a zero vector of $n$ elements the projection is
    the point whose elements are all $r / \sqrt n$, with derivative 0.

    - `radius`: $r$, at least 0.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    radius: NonNegativeNumber = 1.0

    _real_only: ClassVar[bool] = False

    def _project_parts(self, parts: Sequence[Inexact[Array, "..."]]) -> Sequence[Array]:
        norm, scale = scaled_norm(parts)
        zero = norm == 0
        to_sphere = self.radius / jnp.where(zero, 1, norm)
        of_zero = self.radius / sum(part.size for part in parts) ** 0.5
        return [jnp.where(zero, of_zero, x * scale * to_sphere) for x in parts]
