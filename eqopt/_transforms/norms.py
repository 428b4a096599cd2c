"""Rescaling updates by norms, and centring them."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.arithmetic import safe_divide
from .._core.axes import AxesRules, leaf_axes
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import NonNegative
from .._core.leafwise import Stage
from .._core.norms import global_norm, norm_along
from .._core.types import Count, Leaf, Params, Updates

_AXES = ("tree", "leaf", "matrix", "row")


class NormalizeByGlobalNorm(AbstractStateless):
    r"""Normalised updates: $u = s\, g / (\lVert g \rVert + \epsilon)$, and 0 at 0.

    The updates are projected onto the sphere of radius $s$, also where their norm is below it,
    which clipping does not. `NormalizeByGlobalNorm() >> ScaleByLearningRate(lr)` is normalised
    gradient descent (Nesterov 1984; Cortes 2006), `ScaleByAdam() >> NormalizeByGlobalNorm() >>
    ScaleByLearningRate(lr)` normalised Adam. Counterpart of optax's `normalize` and
    `normalize_by_update_norm`, which know the whole tree only.

    `axis` says what has the norm $s$:

    - with `"tree"` all leaves together;
    - with `"leaf"` each leaf;
    - with `"matrix"` each matrix: a leaf of stacked layers is normalised layer by layer;
    - with `"row"` the weights of each output unit, which are a row of a matrix of Equinox's; a
      leaf that is no matrix, such as a bias, as with `"matrix"`.

    The last two ask `eqopt.select.axes`; `eqopt.select.describe_axes` prints the answer.

    - `scale`: the radius $s$, at least 0.
    - `eps`: $\epsilon$, at least 0.
    - `axis`: what is normalised by itself; static.
    - `rules`: explicit axes of leaves, as `eqopt.select.axes` takes them; static.
    """

    scale: NonNegative = 1.0
    eps: NonNegative = 0.0
    axis: Literal["tree", "leaf", "matrix", "row"] = eqx.field(default="tree", static=True)
    rules: AxesRules = eqx.field(default=(), static=True, kw_only=True)

    _reads_updates: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if self.axis not in _AXES:
            raise ValueError(
                f"`NormalizeByGlobalNorm(axis=...)` must be one of {', '.join(map(repr, _AXES))}; "
                f"got {self.axis!r}."
            )

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        if self.axis == "tree":
            return Stage(self._rule, scalars=(global_norm(updates),))
        return Stage(self._own_rule, each=self._along(updates, params))

    def _along(self, updates: Updates, params: Params) -> list[tuple[int, ...]]:
        """Along which axes of each leaf its norms are taken."""
        leaves = jax.tree.leaves(updates)
        if self.axis == "leaf":
            return [tuple(range(leaf.ndim)) for leaf in leaves]
        like = updates if params is None else params
        pairs = zip(leaf_axes(self.rules, like, updates), leaves, strict=True)
        by_row = self.axis == "row"
        return [a.unit(leaf.ndim) if by_row else a.layer(leaf.ndim) for a, leaf in pairs]

    def _own_rule(self, along: tuple[int, ...], g: Leaf) -> Leaf:
        return self._rule(norm_along(g, along), g)

    def _rule(self, norm: Float[Array, "..."], g: Leaf) -> Leaf:
        return g * safe_divide(self.scale, norm + self.eps)


class Centralize(AbstractStateless):
    r"""Gradient centralisation: from the weights of each output unit their mean is subtracted,
    $u_i = g_i - \frac{1}{M} \sum_{j=1}^{M} g_{i, j}$ (Yong et al. 2020, equation 1).

    The mean is over all axes but the out axes, and the stacked ones of stacked layers, of leaves
    with an in and an out axis. So it is right for Equinox's `Linear` (out, in) and `Conv` (out,
    in, spatial...), and for layouts that `rules` describe; all other leaves (biases, scalars,
    arrays whose axes are not known) stay as they are. optax's `centralize` takes the first axis
    of every leaf with two axes or more for the out axis; for (out, in) matrices the two agree.

    - `rules`: explicit axes of leaves, as `eqopt.select.axes` takes them; static.
    """

    rules: AxesRules = eqx.field(default=(), static=True)

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        leaves = jax.tree.leaves(updates)
        found = leaf_axes(self.rules, updates if params is None else params, updates)
        each = [a.unit(leaf.ndim) for a, leaf in zip(found, leaves, strict=True)]
        return Stage(self._rule, each=each, where=[a.is_matrix for a in found])

    def _rule(self, along: tuple[int, ...], g: Leaf) -> Leaf:
        return g - jnp.mean(g, axis=along, keepdims=True)
