r"""The simplex, and the ball and the sphere of the sum of absolute values.

All three subtract one threshold from the elements and cut them off at 0 (Held, Wolfe and Crowder
1974). The threshold solves $\sum_i \max(x_i - \tau, 0) = s$, convex and piecewise linear in $\tau$.
Newton's iteration from the left of the solution (that of Michelot 1986, from a better start) takes
an element out for good at each step, so it ends after a few passes over the elements, exactly where
sorting them ends.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.hyperparam import NonNegativeNumber
from .._core.loop import while_loop
from ._vectors import AbstractPartsProjection


class Simplex(AbstractPartsProjection):
    r"""The simplex $x \ge 0$, $\sum_i x_i = s$: $P(x) = \max(x - \tau, 0)$ with the threshold
    $\tau$ at which the sum is $s$ (Held, Wolfe and Crowder 1974).

    The derivative takes from each positive element of the result their mean, and is 0 for the
    others.

    - `scale`: $s$, at least 0.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    scale: NonNegativeNumber = 1.0

    def _project_parts(self, parts: Sequence[Float[Array, "..."]]) -> Sequence[Array]:
        return _to_simplex(parts, self.scale)


class L1Ball(AbstractPartsProjection):
    r"""The ball $\sum_i |x_i| \le r$: soft thresholding, $P(x) = \mathrm{sign}(x) \max(|x| - \tau,
    0)$, with the smallest $\tau \ge 0$ that leads into the ball (Duchi et al. 2008).

    A vector in the ball comes back unchanged, bit for bit, with the identity for a derivative, at
    zero too.

    - `radius`: $r$, at least 0.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    radius: NonNegativeNumber = 1.0

    def _project_parts(self, parts: Sequence[Float[Array, "..."]]) -> Sequence[Array]:
        within = _total([jnp.abs(x) for x in parts]) <= self.radius
        new = _with_signs(parts, self.radius)
        return [jnp.where(within, x, y) for x, y in zip(parts, new, strict=True)]


class L1Sphere(AbstractPartsProjection):
    r"""The sphere $\sum_i |x_i| = r$: $P(x) = \sigma \max(|x| - \tau, 0)$, with the signs $\sigma$
    of the elements and the threshold $\tau$, negative inside the sphere, at which the sum is $r$.

    Inside the sphere an element 0 could go either way: it goes up, with the derivative that it has
    above 0. So of a zero vector of $n$ elements the projection is the point whose elements are all
    $r / n$.

    - `radius`: $r$, at least 0.
    - `per_leaf`, `axis`: what one vector is, if not the whole tree; see
      [`AbstractPartsProjection`][eqopt.projections.AbstractPartsProjection].
    """

    radius: NonNegativeNumber = 1.0

    def _project_parts(self, parts: Sequence[Float[Array, "..."]]) -> Sequence[Array]:
        return _with_signs(parts, self.radius)


def _with_signs(parts: Sequence[Array], scale: Any) -> list[Array]:
    """The absolute values on the simplex, each with its sign again; that of 0 is 1."""
    signs = [jnp.where(x < 0, -1, 1).astype(x.dtype) for x in parts]
    sizes = [x * sign for x, sign in zip(parts, signs, strict=True)]
    new = _to_simplex(sizes, scale)
    return [y * sign for y, sign in zip(new, signs, strict=True)]


def _to_simplex(parts: Sequence[Array], scale: Any) -> list[Array]:
    # Nothing changes if one number is added to all elements: below the largest there is neither
    # cancellation nor overflow.
    largest = reduce(jnp.maximum, [jnp.max(jax.lax.stop_gradient(x)) for x in parts])
    parts = [x - largest for x in parts]
    threshold = _threshold(jax.lax.stop_gradient(parts), jax.lax.stop_gradient(scale))
    above = [x - threshold for x in parts]
    # One more of Newton's steps carries the derivative, and what the threshold was rounded by.
    step, _ = _step(above, scale)
    return [jnp.where(x <= step, 0, x - step) for x in above]


def _threshold(parts: Sequence[Array], scale: Any) -> Float[Array, ""]:
    """The threshold for a vector whose largest element is 0, from below."""

    def advance(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        threshold, before, _ = carry
        step, count = _step([x - threshold for x in parts], scale)
        return threshold + jnp.maximum(step, 0), count, (step > 0) & (count < before)

    start = jnp.zeros_like(jnp.max(parts[0])) - scale
    most = jnp.full_like(start, jnp.iinfo(jnp.int32).max, jnp.int32)
    carry = (start, most, jnp.ones_like(start, bool))
    return while_loop(lambda carry: carry[2], advance, carry)[0]


def _step(above: Sequence[Array], scale: Any) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """Newton's step from a threshold that has been subtracted, and how many elements are above."""
    count = reduce(add, [jnp.sum(x > 0, dtype=jnp.int32) for x in above])
    excess = _total([jnp.where(x > 0, x, 0) for x in above]) - scale
    return excess / jnp.maximum(count, 1).astype(excess.dtype), count


def _total(parts: Sequence[Array]) -> Float[Array, ""]:
    return reduce(add, map(jnp.sum, parts))
