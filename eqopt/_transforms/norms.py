"""Rescaling updates by norms."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._core.arithmetic import safe_divide, safe_sqrt
from .._core.elementwise import AbstractStateless
from .._core.hyperparam import Hyperparam, NonNegative
from .._core.leafwise import Stage, leafwise
from .._core.norms import (
    global_norm,
    global_squared_norm,
    leaf_norm,
    leaf_rms,
    scalars_like,
    squared_norm,
)
from .._core.transform import AbstractTransform
from .._core.types import Count, Leaf, Params, Updates


class NormalizeByGlobalNorm(AbstractStateless):
    r"""Normalised updates: $u = s\, g / (\lVert g \rVert + \epsilon)$, and 0 at 0.

    The updates are projected onto the sphere of radius $s$, also where their norm is below it,
    which clipping does not. `NormalizeByGlobalNorm() >> ScaleByLearningRate(lr)` is normalised
    gradient descent (Nesterov 1984; Cortes 2006), `ScaleByAdam() >> NormalizeByGlobalNorm() >>
    ScaleByLearningRate(lr)` normalised Adam. Counterpart of optax's `normalize` and
    `normalize_by_update_norm`.

    - `scale`: the radius $s$, at least 0.
    - `eps`: $\epsilon$, at least 0.
    """

    scale: NonNegative = 1.0
    eps: NonNegative = 0.0

    _reads_updates: ClassVar[bool] = True

    def _stage(
        self, updates: Updates, state: None, params: Any, count: Count, **extras: Any
    ) -> Stage:
        return Stage(self._rule, scalars=(global_norm(updates),))

    def _rule(self, norm: Float[Array, ""], g: Leaf) -> Leaf:
        return g * safe_divide(self.scale, norm + self.eps)


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
