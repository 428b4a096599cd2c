"""Rescaling by running moments of the updates: Adam and its relatives."""

from typing import Any

import equinox as eqx
from jaxtyping import Array, Int

from .._core.arithmetic import abs_sq, debias, ema, increment, safe_sqrt
from .._core.elementwise import AbstractElementwise
from .._core.hyperparam import Decay, FloatDtype, NonNegative
from .._core.leafwise import Stage
from .._core.leaves import accumulator_like, zeros_like
from .._core.types import Count, Leaf, Params, RealLeaf, Updates


class ScaleByAdamState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected.
    - `nu`: running mean of $|g|^2$, real, not bias-corrected.
    """

    mu: Updates
    nu: Updates


class ScaleByAdam(AbstractElementwise):
    r"""Rescales updates to $\hat\mu / (\sqrt{\hat\nu + \epsilon_{root}} + \epsilon)$, with

    $$\mu \leftarrow b_1 \mu + (1 - b_1)\, g, \quad \nu \leftarrow b_2 \nu + (1 - b_2) |g|^2,
    \quad \hat\mu = \mu / (1 - b_1^t), \quad \hat\nu = \nu / (1 - b_2^t)$$

    (Kingma and Ba 2015, algorithm 1). With `nesterov` the first moment looks one step ahead,
    $\hat\mu = b_1 \mu / (1 - b_1^{t+1}) + (1 - b_1)\, g / (1 - b_1^t)$ (Dozat 2016, algorithm 2,
    for constant $b_1$ and, as in optax and PyTorch, without the extra factor $b_2$ on $\hat\nu$).

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

    def _init(self, params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(
            mu=zeros_like(params, self.mu_dtype),
            nu=accumulator_like(params, self.accumulator_dtype),
        )

    def _stage(
        self, updates: Updates, state: ScaleByAdamState, params: Params, count: Count, **extras: Any
    ) -> Stage:
        return Stage(
            self._rule,
            scalars=(increment(count),),
            states=(state.mu, state.nu),
            new_state=ScaleByAdamState,
        )

    def _rule(
        self, t: Int[Array, ""], g: Leaf, mu: Leaf, nu: RealLeaf
    ) -> tuple[Leaf, Leaf, RealLeaf]:
        mu = ema(mu, g, self.b1)
        nu = ema(nu, abs_sq(g), self.b2)
        if self.nesterov:
            mean = ema(debias(mu, self.b1, increment(t)), debias(g, self.b1, t), self.b1)
        else:
            mean = debias(mu, self.b1, t)
        root = safe_sqrt(debias(nu, self.b2, t) + self.eps_root)
        return mean / (root + self.eps), mu, nu
