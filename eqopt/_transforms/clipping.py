"""Bounding updates, element by element or by their norm."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.elementwise import AbstractStateless
from .._core.hyperparam import NonNegative
from .._core.leafwise import Stage
from .._core.norms import global_norm
from .._core.types import Count, Leaf, Updates


class Clip(AbstractStateless):
    r"""Clips each element to $[-\delta, \delta]$; a complex one to modulus $\delta$.

    NaN stays NaN.

    - `max_delta`: $\delta$, at least 0.
    """

    max_delta: NonNegative

    def _stage(
        self, updates: Updates, state: None, params: Any, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule)

    def _rule(self, g: Leaf) -> Leaf:
        bound: Any = self.max_delta
        if jnp.iscomplexobj(g):
            size = jnp.abs(g)
            above = size > bound
            return g * jnp.where(above, bound / jnp.where(above, size, 1), 1)
        return jnp.clip(g, -bound, bound)


class ClipByGlobalNorm(AbstractStateless):
    r"""Scales the updates down where their global norm is above a bound:
    $u = g \min(1, c / \lVert g \rVert)$ (Pascanu et al. 2013, algorithm 1).

    At or below the bound the updates are unchanged, bit for bit. The norm is accumulated in at
    least float32, so float16 does not overflow at 256; a zero tree stays zero, also for $c = 0$.

    - `max_norm`: the bound $c$, at least 0.
    """

    max_norm: NonNegative

    _reads_updates: ClassVar[bool] = True

    def _stage(
        self, updates: Updates, state: None, params: Any, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, scalars=(global_norm(updates),))

    def _rule(self, norm: Float[Array, ""], g: Leaf) -> Leaf:
        above = norm > self.max_norm
        return g * jnp.where(above, self.max_norm / jnp.where(above, norm, 1), 1)
