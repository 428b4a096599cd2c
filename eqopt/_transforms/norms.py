"""Rescaling updates by norms, and centring them."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.arithmetic import safe_divide, safe_sqrt
from .._core.axes import AxesRules, leaf_axes
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import Hyperparam, NonNegative
from .._core.leafwise import Stage, leafwise
from .._core.norms import (
    global_norm,
    global_squared_norm,
    leaf_norm,
    leaf_rms,
    norm_along,
    scalars_like,
    squared_norm,
)
from .._core.transform import AbstractTransform
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


class ScaleByTrustRatio(AbstractStateless):
    r"""Gives each leaf's update the size of the leaf: $u = c\, \frac{\phi(\lVert p \rVert)}
    {\phi(\lVert g \rVert) + \epsilon}\, g$ with $\phi(z) = \max(z, m)$.

    The layer-wise rate of LARS (You et al. 2017, equation 6) and LAMB (You et al. 2020, algorithm
    2). Where $\phi(\lVert p \rVert)$ or $\phi(\lVert g \rVert)$ is 0 the factor is 1, so that
    parameters that start at zero can leave it. A floor $m$ above 0 is the lower bound of LAMB's
    $\phi$; it holds for zero parameters too, whose updates then get the size $c\, m$, as in optax.

    - `min_norm`: the floor $m$ of both norms, at least 0.
    - `trust_coefficient`: $c$, at least 0.
    - `eps`: $\epsilon$, at least 0.
    """

    min_norm: NonNegative = 0.0
    trust_coefficient: NonNegative = 1.0
    eps: NonNegative = 0.0

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, reads_params=True)

    def _rule(self, g: Leaf, p: Leaf) -> Leaf:
        floor: Any = self.min_norm
        of_p, of_g = jnp.maximum(leaf_norm(p), floor), jnp.maximum(leaf_norm(g), floor)
        zero = (of_p == 0) | (of_g == 0)
        ratio = self.trust_coefficient * of_p / (jnp.where(zero, 1, of_g) + self.eps)
        return g * jnp.where(zero, 1, ratio)


class ScaleByParamBlockNorm(AbstractStateless):
    r"""Multiplies each leaf's update by the norm of the leaf:
    $u = g \max(\lVert p \rVert, m)$.

    - `min_scale`: the least factor $m$, at least 0.
    """

    min_scale: NonNegative = 1e-3

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, reads_params=True)

    def _rule(self, g: Leaf, p: Leaf) -> Leaf:
        floor: Any = self.min_scale
        return g * jnp.maximum(leaf_norm(p), floor)


class ScaleByParamBlockRMS(AbstractStateless):
    r"""Multiplies each leaf's update by the root mean square of the leaf:
    $u = g \max(\mathrm{rms}(p), m)$ (Shazeer and Stern 2018, section 8).

    - `min_scale`: the least factor $m$, the paper's $\epsilon_2$, at least 0.
    """

    min_scale: NonNegative = 1e-3

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _stage(
        self, updates: Updates, state: None, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, reads_params=True)

    def _rule(self, g: Leaf, p: Leaf) -> Leaf:
        floor: Any = self.min_scale
        return g * jnp.maximum(leaf_rms(p), floor)


class ScaleByPolyak(AbstractStateless):
    r"""Polyak's step size, capped: $u = \min\left(\frac{f - f_{min}}{\lVert g \rVert^2 +
    \epsilon}, \eta_{max}\right) g$, with $f$ the loss, given as `value`
    ($\mathrm{SPS}_{max}$ of Loizou et al. 2021 with $c = 1$).

    With the variant `"sps+"` the gap $f - f_{min}$ is at least 0 (Garrigos et al. 2023); with
    `"sps"` a loss below $f_{min}$ turns the step round. A zero gradient gives 0 and any other its
    own step, where optax takes all squared norms up to 2e-16 for zero.

    - `f_min`: the least loss, any number.
    - `max_learning_rate`: $\eta_{max}$, at least 0.
    - `eps`: $\epsilon$, at least 0.
    - `variant`: `"sps"` or `"sps+"`, static.
    """

    f_min: Hyperparam = 0.0
    max_learning_rate: NonNegative = 1.0
    eps: NonNegative = 0.0
    variant: str = eqx.field(default="sps", static=True)

    def __check_init__(self) -> None:
        if self.variant not in ("sps", "sps+"):
            raise ValueError(
                f'`ScaleByPolyak(variant=...)` must be "sps" or "sps+"; got {self.variant!r}.'
            )

    _needs: ClassVar[frozenset[str]] = frozenset({"value"})
    _reads_updates: ClassVar[bool] = True

    def _stage(
        self, updates: Updates, state: None, params: Any, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, scalars=(global_squared_norm(updates), extras["value"]))

    def _rule(self, squared: Float[Array, ""], value: Any, g: Leaf) -> Leaf:
        most: Any = self.max_learning_rate
        gap = value - self.f_min
        if self.variant == "sps+":
            gap = jnp.maximum(gap, 0)
        squared = squared + self.eps
        # Not the smaller of two quotients: one of them may overflow, in a derivative at least.
        capped = gap >= most * squared
        step = safe_divide(gap, jnp.where(capped, 1, squared))
        return g * jnp.where(capped, most, step)


class ScaleByDistanceOverGradientsState(eqx.Module):
    """- `max_dist`: for each leaf the largest distance from its start, a real scalar.
    - `grad_sum_of_squares`: for each leaf the sum of the gradients' squared norms, a real scalar.
    - `init_params`: the parameters at the start.
    """

    max_dist: Updates
    grad_sum_of_squares: Updates
    init_params: Params


class ScaleByDistanceOverGradients(AbstractTransform):
    r"""Layer-wise distance over gradients: $u_t = s\, \bar r_t\, g_t / \sqrt{G_t + \epsilon}$
    with, for each leaf,

    $$\bar r_t = \max\big(r_\epsilon (1 + \lVert x_0 \rVert),\ \max_{i \le t} \lVert x_i - x_0
    \rVert\big), \quad G_t = \sum_{i \le t} \lVert g_i \rVert^2$$

    (LDoG of Ivgi et al. 2023). The authors recommend averaging the parameters.
    The start $x_0$ is kept in the dtype of the parameters, in which it is exact; distances and sums
    are kept in at least float32.

    - `reps_rel`: $r_\epsilon$, at least 0; 1e-4 with batch normalisation, else 1e-6.
    - `eps`: $\epsilon$, at least 0.
    - `global_scale`: $s$, any number; -1 turns ascent to descent.
    """

    reps_rel: NonNegative = 1e-6
    eps: NonNegative = 1e-8
    global_scale: Hyperparam = 1.0

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})

    def _init(self, params: Params) -> ScaleByDistanceOverGradientsState:
        start = leafwise(self._initial_distance)(scalars_like(params), params)
        return ScaleByDistanceOverGradientsState(start, scalars_like(params), params)

    def _initial_distance(self, zero: Float[Array, ""], p: Leaf) -> Float[Array, ""]:
        return zero + self.reps_rel * (1 + leaf_norm(p))

    def _update(
        self,
        updates: Updates,
        state: ScaleByDistanceOverGradientsState,
        params: Params,
        count: Count,
        **extras: Any,
    ) -> tuple[Updates, ScaleByDistanceOverGradientsState]:
        updates, distance, total = leafwise(self._rule)(
            updates, state.max_dist, state.grad_sum_of_squares, params, state.init_params
        )
        return updates, ScaleByDistanceOverGradientsState(distance, total, state.init_params)

    def _rule(
        self, g: Leaf, distance: Float[Array, ""], total: Float[Array, ""], p: Leaf, start: Leaf
    ) -> tuple[Leaf, Float[Array, ""], Float[Array, ""]]:
        distance = jnp.maximum(distance, leaf_norm(p - start))
        total = total + squared_norm(g)
        rate = safe_divide(distance, safe_sqrt(total + self.eps))
        return self.global_scale * rate * g, distance, total
