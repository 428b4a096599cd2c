"""Bounding updates, element by element or by their norm."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.axes import AxesRules, leaf_axes
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import NonNegative
from .._core.leafwise import Stage
from .._core.norms import factor_within, global_norm, leaf_rms, norm_along
from .._core.types import Count, Leaf, Params, Updates


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
        return g * factor_within(norm, self.max_norm)


class ClipByBlockRMS(AbstractStateless):
    r"""Scales each leaf's update down where its root mean square is above a bound:
    $u = g \min(1, d / \mathrm{rms}(g))$ (Shazeer and Stern 2018, section 6).

    At or below the bound a leaf is unchanged, bit for bit, with derivatives at zero.

    - `threshold`: the bound $d$, at least 0.
    """

    threshold: NonNegative

    def _stage(
        self, updates: Updates, state: None, params: Any, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule)

    def _rule(self, g: Leaf) -> Leaf:
        return g * factor_within(leaf_rms(g), self.threshold)


class AdaptiveGradClip(AbstractStateless):
    r"""Clips the update of each output unit to a fraction of the norm of its weights,
    $u_i = g_i \min(1, \lambda \max(\lVert w_i \rVert, \epsilon) / \lVert g_i \rVert)$
    (Brock et al. 2021, equation 3).

    The weights of a unit are those along all axes but the out axes, and the stacked ones of
    stacked layers: a row of a `Linear`'s matrix, a filter of a `Conv` of any rank. A leaf without
    an in and an out axis (a bias, a scalar, an array whose axes are not known) is one unit, in
    stacked layers one for each layer. optax's `adaptive_grad_clip` guesses from the number of
    axes, for layouts with the out axis last.

    - `clipping`: $\lambda$, at least 0.
    - `eps`: the least norm of weights that counts, $\epsilon$, at least 0: weights that begin at
      zero can leave it.
    - `rules`: explicit axes of leaves, as `eqopt.select.axes` takes them; static.
    """

    clipping: NonNegative
    eps: NonNegative = 1e-3
    rules: AxesRules = eqx.field(default=(), static=True)

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        leaves = jax.tree.leaves(updates)
        found = leaf_axes(self.rules, params, updates)
        each = [a.unit(leaf.ndim) for a, leaf in zip(found, leaves, strict=True)]
        return Stage(self._rule, each=each, reads_params=True)

    def _rule(self, along: tuple[int, ...], g: Leaf, p: Leaf) -> Leaf:
        eps: Any = self.eps
        norm = norm_along(g, along)
        bound = self.clipping * jnp.maximum(norm_along(p, along), eps)
        return g * factor_within(norm, bound)
