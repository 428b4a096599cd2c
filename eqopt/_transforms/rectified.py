"""Rescaling by moments once their variance is known: RAdam."""

from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._core.arithmetic import abs_sq, bias_correction, debias, ema, safe_sqrt
from .._core.hyperparam import Decay, FloatDtype, NonNegative
from .._core.types import Leaf, RealLeaf, Updates
from .moments import AbstractMoments


class ScaleByRAdamState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: running mean of $|g|^2$, real, not bias-corrected.
    """

    mu: Updates
    nu: Updates


class ScaleByRAdam(AbstractMoments):
    r"""Adam whose rescaling begins when the variance of the second moment is known:
    $u = r\, \hat\mu / (\sqrt{\hat\nu + \epsilon_{root}} + \epsilon)$ where $\rho$ is at least a
    threshold (and above 4), and $u = \hat\mu$ before, with

    $$\rho_\infty = \frac{2}{1 - b_2} - 1, \quad
    \rho = \rho_\infty - \frac{2 t\, b_2^t}{1 - b_2^t}, \quad
    r^2 = \frac{(\rho - 4)(\rho - 2)\, \rho_\infty}{(\rho_\infty - 4)(\rho_\infty - 2)\, \rho}$$

    (Liu et al. 2020, algorithm 2, whose threshold is 4; 5 is that of their code, of optax and of
    PyTorch).

    - `b1`: decay rate of the first moment, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `threshold`: of $\rho$, at least 0; below 4, where $r$ is not defined, 4 is used.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    - `nesterov`: whether the first moment looks one step ahead, as in `ScaleByAdam`; static.
    """

    _name: ClassVar[str | None] = "scale_by_radam"

    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    threshold: NonNegative = 5.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    nesterov: bool = eqx.field(default=False, static=True, kw_only=True)

    _state_type: ClassVar[type] = ScaleByRAdamState

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.b1)
        nu = ema(nu, abs_sq(g), self.b2)
        mean = self._mean(t, g, mu, self.nesterov)
        rescaled = self._rescale(mean, debias(nu, self.b2, t), self.eps_root)
        known, r = self._rectification(t)
        return jnp.where(known, r * rescaled, mean), mu, nu

    def _rectification(self, t: Int[Array, ""]) -> tuple[Bool[Array, ""], Float[Array, ""]]:
        """Whether the variance is known, and the factor $r$ if it is."""
        longest = 2 / (1 - self.b2) - 1
        length = self._length(t, longest)
        threshold: Any = self.threshold
        known = (length >= threshold) & (length > 4)
        length, longest = jnp.where(known, length, 5), jnp.where(known, longest, 5)
        return known, safe_sqrt(
            (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        )

    def _length(self, t: Int[Array, ""], longest: Any) -> Float[Array, ""]:
        r"""$\rho$. In the first steps, where its two terms nearly cancel, by the series
        $\rho = t + 2 \varphi(d) - 2 t \varphi(t d)$, with $d = -\log b_2$ and
        $\varphi(y) = 1 / (e^y - 1) - 1 / y + 1 / 2$."""
        b2: Any = self.b2
        corrected = bias_correction(b2, t)
        t = t.astype(corrected.dtype)
        d = -jnp.log1p(jnp.maximum(b2, 0.5) - 1)
        early = (b2 > 0.5) & (t * d < 0.5)
        series = t + 2 * _phi(d) - 2 * t * _phi(jnp.where(early, t * d, 0))
        return jnp.where(early, series, longest - 2 * t * (1 - corrected) / corrected)


# Of y, y^3, ...: the Bernoulli numbers B_2n / (2n)!.
_PHI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)


def _phi(y: Float[Array, ""]) -> Float[Array, ""]:
    """The first terms of $1 / (e^y - 1) - 1 / y + 1 / 2$, enough up to 1 / 2."""
    return y * reduce(lambda total, c: total * y * y + c, reversed(_PHI), jnp.zeros_like(y))
