"""Momentum: directions from past updates."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._core.arithmetic import abs_sq, debias, ema, safe_divide, safe_sqrt
from .._core.elementwise import AbstractRecursive
from .._core.hyperparam import Decay, FloatDtype, Hyperparam, NonNegative
from .._core.leaves import accumulator_like, zeros_like
from .._core.types import Leaf, Params, RealLeaf, Updates


class TraceState(eqx.Module):
    """- `trace`: the decaying sum of the updates, like the parameters."""

    trace: Updates


class Trace(AbstractRecursive):
    r"""Momentum: $t \leftarrow g + \mu\, t$, $u = t$; with Nesterov's look-ahead
    $u = g + \mu\, t$ (Sutskever et al. 2013, equations 1 to 4, with the learning rate taken out).

    There is no dampening: the sum is not weighted by $1 - \mu$.

    - `decay`: $\mu$, in [0, 1).
    - `nesterov`: whether to look ahead; static.
    - `accumulator_dtype`: the dtype of the trace, the parameter's if `None`; static.
    """

    decay: Decay
    nesterov: bool = eqx.field(default=False, static=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True)

    def _init(self, params: Params) -> TraceState:
        return TraceState(zeros_like(params, self.accumulator_dtype))

    def _rule(self, g: Leaf, trace: Leaf) -> tuple[Leaf, Leaf]:
        trace = g + self.decay * trace
        return (g + self.decay * trace if self.nesterov else trace), trace


class ScaleByOptimisticGradientState(eqx.Module):
    """- `previous_gradient`: the last updates, like the parameters."""

    previous_gradient: Updates


class ScaleByOptimisticGradient(AbstractRecursive):
    r"""The update and its change since the last step: $u_t = \alpha g_t + \beta (g_t - g_{t-1})$,
    where the first step has no change (Mokhtari, Ozdaglar and Pattathil 2020, equation 7).

    - `alpha`: weight $\alpha$ of the update.
    - `beta`: weight $\beta$ of its change, the negative momentum.
    """

    alpha: Hyperparam = 1.0
    beta: Hyperparam = 1.0

    _counts: ClassVar[bool] = True
    _order: ClassVar[tuple[int, ...] | None] = (0,)

    def _init(self, params: Params) -> ScaleByOptimisticGradientState:
        return ScaleByOptimisticGradientState(zeros_like(params))

    def _rule(self, t: Int[Array, ""], g: Leaf, previous: Leaf) -> tuple[Leaf, Leaf]:
        change = jnp.where(t == 1, 0, g - previous)
        return self.alpha * g + self.beta * change, g


class ScaleByAdanState(eqx.Module):
    """- `m`: running mean of $g$, like the parameters, not bias-corrected.
    - `v`: running mean of the changes of $g$, like the parameters, not bias-corrected.
    - `n`: running mean of the squared look-ahead, real, not bias-corrected.
    - `g`: the last updates, like the parameters.
    """

    m: Updates
    v: Updates
    n: Updates
    g: Updates


class ScaleByAdan(AbstractRecursive):
    r"""Adam with Nesterov's momentum estimated from the changes of the updates:
    $u = (\hat m + b_2 \hat v) / (\sqrt{\hat n + \epsilon_{root}} + \epsilon)$, with
    $\Delta_t = g_t - g_{t-1}$, $\Delta_1 = 0$, and

    $$m \leftarrow b_1 m + (1 - b_1)\, g, \quad v \leftarrow b_2 v + (1 - b_2)\, \Delta, \quad
    n \leftarrow b_3 n + (1 - b_3)\, |g + b_2 \Delta|^2$$

    (Xie et al. 2022, algorithm 1, lines 4 to 7, whose $\beta$ are $1 - b$; the corrections of the
    bias are those of their code). In optax the changes are weighted by $1 - b_2$, against the
    paper.

    - `b1`: decay rate of the mean, in [0, 1).
    - `b2`: decay rate of the mean change, in [0, 1).
    - `b3`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `mu_dtype`: dtype of `m` and `v`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `n`; if `None` the parameter's, but at least float32; static.
    """

    b1: Decay = 0.98
    b2: Decay = 0.92
    b3: Decay = 0.99
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    _counts: ClassVar[bool] = True
    _order: ClassVar[tuple[int, ...] | None] = (0, 1, 2, 3)

    def _init(self, params: Params) -> ScaleByAdanState:
        return ScaleByAdanState(
            m=zeros_like(params, self.mu_dtype),
            v=zeros_like(params, self.mu_dtype),
            n=accumulator_like(params, self.accumulator_dtype),
            g=zeros_like(params),
        )

    def _rule(
        self, t: Int[Array, ""], g: Leaf, m: Leaf, v: Leaf, n: RealLeaf, previous: Leaf
    ) -> tuple[Leaf, Leaf, Leaf, RealLeaf, Leaf]:
        change = jnp.where(t == 1, 0, g - previous)
        m = ema(m, g, self.b1)
        v = ema(v, change, self.b2)
        n = ema(n, abs_sq(g + self.b2 * change), self.b3)
        ahead = debias(m, self.b1, t) + self.b2 * debias(v, self.b2, t)
        root = safe_sqrt(debias(n, self.b3, t) + self.eps_root)
        return safe_divide(ahead, root + self.eps), m, v, n, g


class ScaleByNovoGradState(eqx.Module):
    r"""- `mu`: decaying sum of the normalised updates, like the parameters.
    - `nu`: running mean of $\lVert g \rVert^2$, a real scalar for each leaf.
    """

    mu: Updates
    nu: Updates


class ScaleByNovoGrad(AbstractRecursive):
    r"""Momentum of updates that are normalised layer by layer: for each leaf

    $$\nu \leftarrow b_2 \nu + (1 - b_2) \lVert g \rVert^2, \quad
    \mu \leftarrow b_1 \mu + \frac{g}{\sqrt{\nu + \epsilon_{root}} + \epsilon} + \lambda\, p,
    \quad u = \mu$$

    and $\nu = \lVert g \rVert^2$ at the first step (Ginsburg et al. 2019, algorithm 1). The sum is
    not weighted by $1 - b_1$ and no bias is corrected, both as in the paper.

    - `b1`: decay rate of the sum, in [0, 1).
    - `b2`: decay rate of the second moment, in [0, 1).
    - `eps`: added outside the square root, at least 0.
    - `eps_root`: added inside the square root, at least 0.
    - `weight_decay`: $\lambda$, at least 0.
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `accumulator_dtype`: dtype of `nu`; if `None` the parameter's, but at least float32; static.
    """

    _name: ClassVar[str | None] = "scale_by_novograd"

    b1: Decay = 0.9
    b2: Decay = 0.25
    eps: NonNegative = 1e-8
    eps_root: NonNegative = 0.0
    weight_decay: NonNegative = 0.0
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    accumulator_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)

    _needs: ClassVar[frozenset[str]] = frozenset({"params"})
    _counts: ClassVar[bool] = True
    _reads_params: ClassVar[bool] = True

    def _init(self, params: Params) -> ScaleByNovoGradState:
        nu = accumulator_like(params, self.accumulator_dtype)
        return ScaleByNovoGradState(zeros_like(params, self.mu_dtype), jax.tree.map(jnp.sum, nu))

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: Float[Array, ""], p: Leaf
    ) -> tuple[Leaf, Leaf, Float[Array, ""]]:
        size = jnp.sum(abs_sq(g))
        nu = jnp.where(t == 1, size, ema(nu, size, self.b2))
        unit = safe_divide(g, safe_sqrt(nu + self.eps_root) + self.eps)
        mu = self.b1 * mu + unit + self.weight_decay * p
        return mu, mu, nu
