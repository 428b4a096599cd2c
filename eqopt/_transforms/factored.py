"""Second moments in less memory than the parameters: Adafactor and SM3."""

from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._core.arithmetic import abs_sq, ema, safe_divide, safe_sqrt
from .._core.elementwise import AbstractElementwise, AbstractRecursive
from .._core.hyperparam import Decay, FloatDtype, NonNegative, UnitInterval
from .._core.leafwise import Stage
from .._core.leaves import accumulator_like, zeros_like
from .._core.types import Count, Leaf, Params, Updates


class ScaleByFactoredRMSState(eqx.Module):
    """Real; of each leaf either the first two are used or the last, and the others are scalars.

    - `v_row`: mean of the second moment over the longest axis.
    - `v_col`: mean of the second moment over the second longest axis.
    - `v`: the second moment, of the shape of the parameter, where it is not factored.
    """

    v_row: Updates
    v_col: Updates
    v: Updates


class ScaleByFactoredRMS(AbstractRecursive):
    r"""Rescales updates by their root mean square, $u = g / \sqrt{\hat v}$, keeping of each matrix
    the means of its rows and columns only: with $\beta = 1 - t^{-c}$,

    $$r \leftarrow \beta r + (1 - \beta)\, \mathrm{mean}_{j} (|g|^2 + \epsilon), \quad
    c \leftarrow \beta c + (1 - \beta)\, \mathrm{mean}_{i} (|g|^2 + \epsilon), \quad
    \hat v = r\, c / \mathrm{mean}(r)$$

    (Adafactor: Shazeer and Stern 2018, algorithm 4, and section 7.2 for $\beta$; without the
    clipping and the momentum of the full method). Rows and columns are the two longest axes of a
    leaf, if the second longest is at least `min_dim_size_to_factor`; the other axes are kept.
    Where none are factored $\hat v$ is a plain running mean. Both are set by the first gradient,
    so no bias needs correction.

    - `decay_rate`: the exponent $c$, at least 0.
    - `step_offset`: steps that $t$ is behind the number of the update, at least 0, as for
      fine-tuning; until then $t = 1$ (in optax NaN).
    - `epsilon`: $\epsilon$, at least 0.
    - `decay`: $\beta$ itself, in [0, 1), most often a schedule, in place of $1 - t^{-c}$
      (`decay_rate` and `step_offset` then mean nothing); it should be 0 at the first step.
    - `factored`: whether to factor at all; static.
    - `min_dim_size_to_factor`: the least length of a factored axis; static.
    - `accumulator_dtype`: dtype of the state; if `None` the parameter's, but at least float32;
      static.
    """

    decay_rate: NonNegative = 0.8
    step_offset: NonNegative = 0
    epsilon: NonNegative = 1e-30
    decay: Decay | None = eqx.field(default=None, kw_only=True)
    factored: bool = eqx.field(default=True, static=True, kw_only=True)
    min_dim_size_to_factor: int = eqx.field(default=128, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    _counts: ClassVar[bool] = True

    def __check_init__(self) -> None:
        least = self.min_dim_size_to_factor
        if isinstance(least, bool) or not isinstance(least, int):
            raise TypeError(
                "`ScaleByFactoredRMS(min_dim_size_to_factor=...)` must be an integer; got "
                f"{least!r}."
            )
        if least < 1:
            raise ValueError(
                f"`ScaleByFactoredRMS(min_dim_size_to_factor=...)` must be positive; got {least}."
            )

    def _init(self, params: Params) -> ScaleByFactoredRMSState:
        full = accumulator_like(params, self.accumulator_dtype)

        def row(x: Array) -> Array:
            pair = self._factored_axes(x.shape)
            return jnp.sum(x, None if pair is None else pair[0])

        def column(x: Array) -> Array:
            pair = self._factored_axes(x.shape)
            return jnp.sum(x, None if pair is None else pair[1])

        def rest(x: Array) -> Array:
            return x if self._factored_axes(x.shape) is None else jnp.sum(x)

        return ScaleByFactoredRMSState(
            jax.tree.map(row, full), jax.tree.map(column, full), jax.tree.map(rest, full)
        )

    def _factored_axes(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """The longest axis and the second longest; of equal ones the later is the longer."""
        if not self.factored or len(shape) < 2:
            return None
        *_, second, longest = (int(axis) for axis in np.argsort(shape, kind="stable"))
        return (longest, second) if shape[second] >= self.min_dim_size_to_factor else None

    def _rule(
        self, t: Int[Array, ""], g: Leaf, v_row: Array, v_col: Array, v: Array
    ) -> tuple[Leaf, Array, Array, Array]:
        beta = self._decay(t)
        square = abs_sq(g) + self.epsilon
        pair = self._factored_axes(g.shape)
        if pair is None:
            v = ema(v, square, beta)
            return safe_divide(g, safe_sqrt(v)), v_row, v_col, v
        longest, second = pair
        v_row = ema(v_row, jnp.mean(square, longest), beta)
        v_col = ema(v_col, jnp.mean(square, second), beta)
        rows = jnp.expand_dims(v_row, longest)
        columns = jnp.expand_dims(v_col, second)
        # Root by root, so that nothing near epsilon is squared, in derivatives either.
        u = g * safe_sqrt(jnp.mean(rows, second, keepdims=True))
        return safe_divide(safe_divide(u, safe_sqrt(rows)), safe_sqrt(columns)), v_row, v_col, v

    def _decay(self, t: Int[Array, ""]) -> Any:
        if self.decay is not None:
            return self.decay
        behind = jnp.maximum(t - self.step_offset, 1)
        return 1 - behind ** (-self.decay_rate)


class ScaleBySM3State(eqx.Module):
    """- `momentum`: running mean of the rescaled updates, like the parameters.
    - `accumulators`: for each axis a tree: of a leaf that has the axis the largest sums of squares
      along it, a real vector; of others a scalar.
    """

    momentum: Updates
    accumulators: tuple[Updates, ...]


class ScaleBySM3(AbstractElementwise):
    r"""Rescales updates by sums of squares, of which only the maximum of each row, column, ... is
    kept: with one accumulator $\mu_r$ for each slice $r$ along each axis,

    $$\nu_i = \min_{r \ni i} \mu_r + |g_i|^2, \quad \mu_r \leftarrow \max_{i \in r} \nu_i, \quad
    m \leftarrow b_1 m + (1 - b_1)\, g / \sqrt{\nu + \epsilon}, \quad u = m$$

    and 0 in place of $g / \sqrt{\nu + \epsilon}$ where $\nu$ is 0 (Anil et al. 2019, algorithm
    SM3-II). A scalar has one accumulator, as a vector of length 1 has.

    - `b1`: decay rate of the momentum, in [0, 1).
    - `b2`: decay rate of the squares, in [0, 1]: below 1 they are
      $\nu = b_2 \min \mu + (1 - b_2) |g|^2$, at 1 the sum above.
    - `eps`: $\epsilon$, at least 0; not in the paper.
    - `mu_dtype`: dtype of `momentum`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of the accumulators; if `None` the parameter's, but at least
      float32; static.
    """

    b1: Decay = 0.9
    b2: UnitInterval = 1.0
    eps: NonNegative = 1e-8
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    def _init(self, params: Params) -> ScaleBySM3State:
        full = accumulator_like(params, self.accumulator_dtype)
        most = max((x.ndim for x in jax.tree.leaves(full)), default=0)

        def along(axis: int) -> Updates:
            return jax.tree.map(lambda x: jnp.sum(x, _others(x.ndim, axis)), full)

        return ScaleBySM3State(
            zeros_like(params, self.mu_dtype), tuple(along(axis) for axis in range(max(most, 1)))
        )

    def _stage(
        self, updates: Updates, state: ScaleBySM3State, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(
            self._rule,
            states=(state.momentum, *state.accumulators),
            new_state=lambda momentum, *sums: ScaleBySM3State(momentum, sums),
        )

    def _rule(self, g: Leaf, momentum: Leaf, *sums: Float[Array, "..."]) -> tuple[Array, ...]:
        used = max(g.ndim, 1)
        spread = [jnp.expand_dims(x, _others(g.ndim, axis)) for axis, x in enumerate(sums[:used])]
        gained = jnp.where(self.b2 == 1, 1, 1 - self.b2) * abs_sq(g)
        nu = self.b2 * reduce(jnp.minimum, spread) + gained
        momentum = ema(momentum, safe_divide(g, safe_sqrt(nu + self.eps)), self.b1)
        largest = (jnp.max(nu, _others(g.ndim, axis), initial=0) for axis in range(used))
        return momentum, momentum, *largest, *sums[used:]


def _others(ndim: int, axis: int) -> tuple[int, ...]:
    """All axes but one; all, where there is no such axis."""
    return tuple(other for other in range(ndim) if other != axis)
