"""Rescaling by running moments of the updates: Adam and its relatives."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from .._core.arithmetic import (
    abs_sq,
    debias,
    ema,
    increment,
    safe_divide,
    safe_sqrt,
)
from .._core.elementwise import AbstractRecursive
from .._core.hyperparam import Decay, FloatDtype, NonNegative
from .._core.leaves import accumulator_like, filled, zeros_like
from .._core.types import Leaf, Params, RealLeaf, Updates


class AbstractMoments(AbstractRecursive):
    """Keeps a running mean of the updates and one of their size, both from 0.

    A concrete class gives the formulas that differ.
    """

    b1: eqx.AbstractVar[Decay]
    b2: eqx.AbstractVar[Decay]
    eps: eqx.AbstractVar[NonNegative]
    mu_dtype: eqx.AbstractVar[FloatDtype | None]
    accumulator_dtype: eqx.AbstractVar[FloatDtype | None]

    _state_type: ClassVar[type]
    _counts: ClassVar[bool] = True

    def _init(self, params: Params) -> Any:
        return self._state_type(
            zeros_like(params, self.mu_dtype), accumulator_like(params, self.accumulator_dtype)
        )

    def _mean(self, t: Int[Array, ""], g: Leaf, mu: Leaf, nesterov: bool = False) -> Leaf:
        """The bias-corrected first moment; with Nesterov's look-ahead that of the next step."""
        if nesterov:
            return ema(debias(mu, self.b1, increment(t)), debias(g, self.b1, t), self.b1)
        return debias(mu, self.b1, t)

    def _rescale(self, mean: Leaf, square: RealLeaf, eps_root: Any) -> Leaf:
        """The mean, divided by the root of the second moment; 0 where both are 0."""
        return safe_divide(mean, safe_sqrt(square + eps_root) + self.eps)


class ScaleByAdamState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: running mean of $|g|^2$, real, not bias-corrected.
    """

    mu: Updates
    nu: Updates


class ScaleByAdam(AbstractMoments):
    r"""Rescales updates to $\hat\mu / (\sqrt{\hat\nu + \epsilon_{root}} + \epsilon)$, with

    $$\mu \leftarrow b_1 \mu + (1 - b_1)\, g, \quad \nu \leftarrow b_2 \nu + (1 - b_2) |g|^2,
    \quad \hat\mu = \mu / (1 - b_1^t), \quad \hat\nu = \nu / (1 - b_2^t)$$

    (Kingma and Ba 2015, algorithm 1), and 0 where both are 0. With `nesterov` the first moment
    looks one step ahead, $\hat\mu = b_1 \mu / (1 - b_1^{t+1}) + (1 - b_1)\, g / (1 - b_1^t)$
    (Dozat 2016, algorithm 2, for constant $b_1$ and, as in optax and PyTorch, without the extra
    factor $b_2$ on $\hat\nu$).

    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0; above 0 it makes derivatives through
      the update moderate where a gradient is 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32 (in
      bfloat16 a mean with decay 0.999 never decays, unlike here); static.
    - `nesterov`: static.
    """

    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    nesterov: bool = eqx.field(default=False, static=True, kw_only=True)

    _state_type: ClassVar[type] = ScaleByAdamState

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.b1)
        nu = ema(nu, abs_sq(g), self.b2)
        mean = self._mean(t, g, mu, self.nesterov)
        return self._rescale(mean, debias(nu, self.b2, t), self.eps_root), mu, nu


class ScaleByAMSGradState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: running mean of $|g|^2$, real, not bias-corrected.
    - `nu_max`: the largest second moment so far, real.
    """

    mu: Updates
    nu: Updates
    nu_max: Updates


class ScaleByAMSGrad(AbstractMoments):
    r"""Adam with a second moment that never falls:
    $u = \hat\mu / (\sqrt{\nu_{max} + \epsilon_{root}} + \epsilon)$, with
    $\nu_{max} \leftarrow \max(\nu_{max}, \hat\nu)$ (Reddi, Kale and Kumar 2018, algorithm 2).

    Three conventions are in use. The default is optax's: the largest bias-corrected $\hat\nu$.
    With `max_of_corrected=False` it is PyTorch's: the largest $\nu$, corrected afterwards. The
    paper corrects neither moment: `bias_correction_mu=False, bias_correction_nu=False`.

    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu` and `nu_max`; if `None` the parameter's, but at least
      float32; static.
    - `bias_correction_mu`: whether the first moment is bias-corrected; static.
    - `bias_correction_nu`: whether the second moment is bias-corrected; static.
    - `max_of_corrected`: whether a corrected second moment is corrected before the maximum is
      taken rather than after; static.
    """

    _name: ClassVar[str | None] = "scale_by_amsgrad"

    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    bias_correction_mu: bool = eqx.field(default=True, static=True, kw_only=True)
    bias_correction_nu: bool = eqx.field(default=True, static=True, kw_only=True)
    max_of_corrected: bool = eqx.field(default=True, static=True, kw_only=True)

    _state_type: ClassVar[type] = ScaleByAMSGradState

    def _init(self, params: Params) -> ScaleByAMSGradState:
        return ScaleByAMSGradState(
            zeros_like(params, self.mu_dtype),
            accumulator_like(params, self.accumulator_dtype),
            accumulator_like(params, self.accumulator_dtype),
        )

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf, nu_max: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf, RealLeaf]:
        before = self.bias_correction_nu and self.max_of_corrected
        after = self.bias_correction_nu and not self.max_of_corrected
        mu = ema(mu, g, self.b1)
        nu = ema(nu, abs_sq(g), self.b2)
        nu_max = jnp.maximum(nu_max, debias(nu, self.b2, t) if before else nu)
        mean = self._mean(t, g, mu) if self.bias_correction_mu else mu
        square = debias(nu_max, self.b2, t) if after else nu_max
        return self._rescale(mean, square, self.eps_root), mu, nu, nu_max


class ScaleByAdaMaxState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: the decaying maximum of $|g|$, real.
    """

    mu: Updates
    nu: Updates


class ScaleByAdaMax(AbstractMoments):
    r"""Adam with the infinity norm: $u = \hat\mu / \nu$, with
    $\nu \leftarrow \max(b_2 \nu, |g| + \epsilon)$ (Kingma and Ba 2015, algorithm 2).

    The paper has no $\epsilon$; as in optax and PyTorch it keeps the maximum above 0. At
    $\epsilon = 0$ the update is 0 where all gradients were.

    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the maximum, in [0, 1).
    - `eps`: added to $|g|$, at least 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    """

    _name: ClassVar[str | None] = "scale_by_adamax"

    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    _state_type: ClassVar[type] = ScaleByAdaMaxState

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.b1)
        nu = jnp.maximum(self.b2 * nu, jnp.abs(g) + self.eps)
        return safe_divide(self._mean(t, g, mu), nu), mu, nu


class ScaleByBeliefState(eqx.Module):
    r"""- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: running mean of $|g - \mu|^2$, real, not bias-corrected.
    """

    mu: Updates
    nu: Updates


class ScaleByBelief(AbstractMoments):
    r"""Adam with the error of its own prediction in place of the second moment:
    $u = \hat\mu / (\sqrt{\hat\nu} + \epsilon)$, with

    $$\mu \leftarrow b_1 \mu + (1 - b_1)\, g, \quad
    \nu \leftarrow b_2 \nu + (1 - b_2) |g - \mu|^2 + \epsilon_{root}$$

    (Zhuang et al. 2020, algorithm 2). The error is taken from the new mean and $\epsilon_{root}$
    is gathered in the state, both as in the paper.

    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added to the second moment at each step, at least 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    - `nesterov`: whether the first moment looks one step ahead, as in `ScaleByAdam`; static.
    """

    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-16
    eps_root: NonNegative = 1e-16
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    nesterov: bool = eqx.field(default=False, static=True, kw_only=True)

    _state_type: ClassVar[type] = ScaleByBeliefState
    _order: ClassVar[tuple[int, ...] | None] = (1, 0)

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.b1)
        nu = ema(nu, abs_sq(g - mu), self.b2) + self.eps_root
        mean = self._mean(t, g, mu, self.nesterov)
        return self._rescale(mean, debias(nu, self.b2, t), 0), mu, nu


class ScaleByYogiState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: the second moment, real, not bias-corrected.
    """

    mu: Updates
    nu: Updates


class ScaleByYogi(AbstractMoments):
    r"""Adam with a second moment that moves by at most $(1 - b_2) |g|^2$ a step, in either
    direction: $u = \hat\mu / (\sqrt{\hat\nu + \epsilon_{root}} + \epsilon)$, with

    $$\nu \leftarrow \nu - (1 - b_2)\, \mathrm{sign}(\nu - |g|^2)\, |g|^2$$

    (Zaheer et al. 2018, algorithm 2). The paper corrects no bias: `bias_correction=False`; the
    default is optax's. Unlike in optax the first moment starts at 0, as in the paper, not at
    `initial_accumulator_value`: without gradients nothing moves.

    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `initial_accumulator_value`: what `nu` starts at, at least 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    - `bias_correction`: whether both moments are bias-corrected; static.
    """

    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-3
    eps_root: NonNegative = 0.0
    initial_accumulator_value: NonNegative = 1e-6
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    bias_correction: bool = eqx.field(default=True, static=True, kw_only=True)

    _state_type: ClassVar[type] = ScaleByYogiState

    def _init(self, params: Params) -> ScaleByYogiState:
        nu = accumulator_like(params, self.accumulator_dtype)
        return ScaleByYogiState(
            zeros_like(params, self.mu_dtype), filled(nu, self.initial_accumulator_value)
        )

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.b1)
        nu = nu - (1 - self.b2) * jnp.sign(nu - abs_sq(g)) * abs_sq(g)
        if not self.bias_correction:
            return self._rescale(mu, nu, self.eps_root), mu, nu
        square = debias(nu, self.b2, t)
        return self._rescale(self._mean(t, g, mu), square, self.eps_root), mu, nu
