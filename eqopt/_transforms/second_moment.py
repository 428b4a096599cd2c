"""Rescaling by the size of past updates: RMSProp, AdaGrad and AdaDelta."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._core.arithmetic import abs_sq, debias, ema, safe_divide, safe_sqrt
from .._core.elementwise import AbstractRecursive
from .._core.hyperparam import Decay, FloatDtype, NonNegative
from .._core.leaves import accumulator_like, filled, zeros_like
from .._core.types import Leaf, Params, RealLeaf, Updates


def _rescale(g: Leaf, square: RealLeaf, eps: Any, eps_in_sqrt: bool) -> Leaf:
    root = safe_sqrt(square + eps) if eps_in_sqrt else safe_sqrt(square) + eps
    return safe_divide(g, root)


class ScaleByRMSState(eqx.Module):
    """- `nu`: running mean of $|g|^2$, real, not bias-corrected."""

    nu: Updates


class ScaleByRMS(AbstractRecursive):
    r"""Rescales updates by their root mean square: $u = g / \sqrt{\nu + \epsilon}$, with
    $\nu \leftarrow b\, \nu + (1 - b) |g|^2$ (Tieleman and Hinton 2012, lecture 6.5, slide 29).

    - `decay`: $b$, in [0, 1).
    - `eps`: $\epsilon$, at least 0.
    - `initial_scale`: what $\nu$ starts at, at least 0.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    - `eps_in_sqrt`: whether $\epsilon$ is added inside the root, as in optax, or outside,
      $u = g / (\sqrt\nu + \epsilon)$, as in PyTorch; static.
    - `bias_correction`: whether $\nu$ is divided by $1 - b^t$; static. With `eps_in_sqrt=False`
      this is Adam without a first moment.
    """

    decay: Decay = 0.9
    eps: NonNegative = 1e-8
    initial_scale: NonNegative = 0.0
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    eps_in_sqrt: bool = eqx.field(default=True, static=True, kw_only=True)
    bias_correction: bool = eqx.field(default=False, static=True, kw_only=True)

    _counts: ClassVar[bool] = True

    def _init(self, params: Params) -> ScaleByRMSState:
        nu = accumulator_like(params, self.accumulator_dtype)
        return ScaleByRMSState(filled(nu, self.initial_scale))

    def _rule(self, t: Int[Array, ""], g: Leaf, nu: RealLeaf) -> tuple[Leaf, RealLeaf]:
        nu = ema(nu, abs_sq(g), self.decay)
        square = debias(nu, self.decay, t) if self.bias_correction else nu
        return _rescale(g, square, self.eps, self.eps_in_sqrt), nu


class ScaleByStdDevState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: running mean of $|g|^2$, real, not bias-corrected.
    """

    mu: Updates
    nu: Updates


class ScaleByStdDev(AbstractRecursive):
    r"""Rescales updates by their standard deviation: $u = g / \sqrt{\nu - |\mu|^2 + \epsilon}$,
    with $\mu \leftarrow b \mu + (1 - b)\, g$ and $\nu \leftarrow b\, \nu + (1 - b) |g|^2$ (Graves
    2013, equations 38 to 40, without the momentum).

    The variance is at least 0: where the difference rounds below, optax gives NaN.

    - `decay`: $b$, in [0, 1).
    - `eps`: $\epsilon$, at least 0.
    - `initial_scale`: what $\nu$ starts at, at least 0.
    - `mu_dtype`: dtype of `mu`; if `None` the parameter's, but at least float32; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    - `eps_in_sqrt`: whether $\epsilon$ is added inside the root or outside; static.
    - `bias_correction`: whether both means are divided by $1 - b^t$; static.
    """

    _name: ClassVar[str | None] = "scale_by_stddev"

    decay: Decay = 0.9
    eps: NonNegative = 1e-8
    initial_scale: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    eps_in_sqrt: bool = eqx.field(default=True, static=True, kw_only=True)
    bias_correction: bool = eqx.field(default=False, static=True, kw_only=True)

    _counts: ClassVar[bool] = True

    def _init(self, params: Params) -> ScaleByStdDevState:
        nu = accumulator_like(params, self.accumulator_dtype)
        return ScaleByStdDevState(zeros_like(params, self.mu_dtype), filled(nu, self.initial_scale))

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.decay)
        nu = ema(nu, abs_sq(g), self.decay)
        mean, square = mu, nu
        if self.bias_correction:
            mean, square = debias(mu, self.decay, t), debias(nu, self.decay, t)
        variance = jnp.maximum(square - abs_sq(mean), 0)
        return _rescale(g, variance, self.eps, self.eps_in_sqrt), mu, nu


class ScaleByRSSState(eqx.Module):
    """- `sum_of_squares`: the sum of $|g|^2$ over all steps, real."""

    sum_of_squares: Updates


class ScaleByRSS(AbstractRecursive):
    r"""Rescales updates by the root of the sum of all squares: $u = g / \sqrt{s + \epsilon}$, with
    $s \leftarrow s + |g|^2$, and 0 where $s$ is 0 (AdaGrad: Duchi, Hazan and Singer 2011, figure 1
    with the diagonal matrix; $\epsilon$ is their $\delta$, here inside the root).

    - `initial_accumulator_value`: what $s$ starts at, at least 0.
    - `eps`: $\epsilon$, at least 0.
    - `accumulator_dtype`: dtype of the sum; if `None` the parameter's, but at least float32;
      static.
    """

    initial_accumulator_value: NonNegative = 0.1
    eps: NonNegative = 1e-7
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    def _init(self, params: Params) -> ScaleByRSSState:
        total = accumulator_like(params, self.accumulator_dtype)
        return ScaleByRSSState(filled(total, self.initial_accumulator_value))

    def _rule(self, g: Leaf, total: RealLeaf) -> tuple[Leaf, RealLeaf]:
        total = total + abs_sq(g)
        return _rescale(g, total, self.eps, eps_in_sqrt=True), total


class ScaleByAdaDeltaState(eqx.Module):
    """- `e_g`: running mean of $|g|^2$, real.
    - `e_x`: running mean of $|u|^2$, real.
    """

    e_g: Updates
    e_x: Updates


class ScaleByAdaDelta(AbstractRecursive):
    r"""Rescales updates to the size of those before: $u = \sqrt{E_x + \epsilon}\, g /
    \sqrt{E_g + \epsilon}$, with $E_g \leftarrow \rho E_g + (1 - \rho) |g|^2$ before and
    $E_x \leftarrow \rho E_x + (1 - \rho) |u|^2$ after (Zeiler 2012, algorithm 1, with the sign
    turned).

    - `rho`: $\rho$, in [0, 1).
    - `eps`: $\epsilon$, at least 0; at 0 nothing ever moves.
    - `accumulator_dtype`: dtype of both means; if `None` the parameter's, but at least float32;
      static.
    """

    _name: ClassVar[str | None] = "scale_by_adadelta"

    rho: Decay = 0.9
    eps: NonNegative = 1e-6
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    _order: ClassVar[tuple[int, ...] | None] = (1, 0)

    def _init(self, params: Params) -> ScaleByAdaDeltaState:
        return ScaleByAdaDeltaState(
            accumulator_like(params, self.accumulator_dtype),
            accumulator_like(params, self.accumulator_dtype),
        )

    def _rule(self, g: Leaf, e_g: RealLeaf, e_x: RealLeaf) -> tuple[Leaf, RealLeaf, RealLeaf]:
        e_g = ema(e_g, abs_sq(g), self.rho)
        u = safe_sqrt(e_x + self.eps) * _rescale(g, e_g, self.eps, eps_in_sqrt=True)
        return u, e_g, ema(e_x, abs_sq(u), self.rho)
