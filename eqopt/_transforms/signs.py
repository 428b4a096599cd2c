"""Directions by the sign: Lion and RProp."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from .._core.arithmetic import ema, safe_divide, sign
from .._core.elementwise import AbstractRecursive
from .._core.hyperparam import Decay, FloatDtype, NonNegative, Positive
from .._core.leaves import accumulator_like, filled, zeros_like
from .._core.types import Leaf, Params, RealLeaf, Updates


class ScaleByLionState(eqx.Module):
    """- `mu`: running mean of $g$, like the parameters, not bias-corrected."""

    mu: Updates


class ScaleByLion(AbstractRecursive):
    r"""The sign of a momentum: with $x = b_1 \mu + (1 - b_1)\, g$ and then
    $\mu \leftarrow b_2 \mu + (1 - b_2)\, g$ the update is

    - `"hard"`: $\mathrm{sign}(x)$ (Chen et al. 2023, algorithm 2; $x / |x|$ where complex);
    - `"smooth"`: $\tanh(\beta x)$;
    - `"refined"`: $x$ where $|x| < 1$, else $\mathrm{sign}(x)$.

    The derivative of the sign is 0.

    - `b1`: decay rate of the mean that gives the direction, in [0, 1).
    - `b2`: decay rate of the mean that is kept, in [0, 1).
    - `mu_dtype`: dtype of `mu`, the parameter's if `None`; static.
    - `mode`: `"hard"`, `"smooth"` or `"refined"`; static.
    - `smooth_beta`: $\beta$ of the mode `"smooth"`, above 0, 1 if `None`.
    """

    b1: Decay = 0.9
    b2: Decay = 0.99
    mu_dtype: FloatDtype | None = eqx.field(default=None, static=True, kw_only=True)
    mode: str = eqx.field(default="hard", static=True, kw_only=True)
    smooth_beta: Positive | None = eqx.field(default=None, kw_only=True)

    _order: ClassVar[tuple[int, ...] | None] = (0,)

    def __check_init__(self) -> None:
        if self.mode not in ("hard", "smooth", "refined"):
            raise ValueError(
                f'`ScaleByLion(mode=...)` must be "hard", "smooth" or "refined"; got {self.mode!r}.'
            )
        if self.smooth_beta is not None and self.mode != "smooth":
            raise ValueError(
                f'`ScaleByLion(smooth_beta=...)` belongs to the mode "smooth"; got {self.mode!r}.'
            )

    def _init(self, params: Params) -> ScaleByLionState:
        return ScaleByLionState(zeros_like(params, self.mu_dtype))

    def _rule(self, g: Leaf, mu: Leaf) -> tuple[Leaf, Leaf]:
        return self._bounded(ema(mu, g, self.b1)), ema(mu, g, self.b2)

    def _bounded(self, x: Leaf) -> Leaf:
        if self.mode == "hard":
            return sign(x)
        size = jnp.abs(x)
        if self.mode == "refined":
            return jnp.where(size < 1, x, sign(x))
        beta = 1 if self.smooth_beta is None else self.smooth_beta
        if jnp.iscomplexobj(x):
            return x * safe_divide(jnp.tanh(beta * size), size)
        return jnp.tanh(beta * x)


class ScaleByRPropState(eqx.Module):
    """- `step_sizes`: the step size of each element, real.
    - `signs`: the sign of each element of the last gradient, 0 where its sign had just changed.
    """

    step_sizes: Updates
    signs: Updates


class ScaleByRProp(AbstractRecursive):
    r"""Resilient backpropagation: each element has a step size $\delta$ of its own, which grows
    while the sign of the gradient stays and shrinks when it changes,

    $$\delta \leftarrow \begin{cases}
    \min(\eta^+ \delta, \delta_{max}) & g\, g_{old} > 0 \\
    \max(\eta^- \delta, \delta_{min}) & g\, g_{old} < 0 \\
    \delta & \text{else}
    \end{cases}, \quad u = \mathrm{sign}(g)\, \delta$$

    and where the sign has changed $g$ counts as 0, in this step and as the next step's $g_{old}$
    (Riedmiller and Braun 1993, equations 4 and 5; the variant without weight-backtracking, Igel
    and Hüsken 2000, algorithm iRprop-, which is PyTorch's too). optax gives the update of the step
    before. For full batches and real parameters.

    - `learning_rate`: the first $\delta$, above 0; a schedule counts at the start only.
    - `eta_minus`: $\eta^-$, at least 0; below 1 it shrinks.
    - `eta_plus`: $\eta^+$, above 0; above 1 it grows.
    - `min_step_size`: $\delta_{min}$, at least 0.
    - `max_step_size`: $\delta_{max}$, above 0.
    """

    _name: ClassVar[str | None] = "scale_by_rprop"

    learning_rate: Positive
    eta_minus: NonNegative = 0.5
    eta_plus: Positive = 1.2
    min_step_size: NonNegative = 1e-6
    max_step_size: Positive = 50.0

    _real_only: ClassVar[bool] = True
    _order: ClassVar[tuple[int, ...] | None] = (0, 1)

    def __check_init__(self) -> None:
        low, high = self.min_step_size, self.max_step_size
        if all(isinstance(x, int | float) for x in (low, high)) and low > high:
            raise ValueError(
                "`ScaleByRProp(min_step_size=...)` must be at most `max_step_size`; got "
                f"{low} and {high}."
            )

    def _init(self, params: Params) -> ScaleByRPropState:
        return ScaleByRPropState(
            filled(accumulator_like(params), self.learning_rate), zeros_like(params)
        )

    def _rule(
        self, g: RealLeaf, step_size: RealLeaf, old: RealLeaf
    ) -> tuple[RealLeaf, RealLeaf, RealLeaf]:
        new = sign(g)
        same, changed = new * old > 0, new * old < 0
        smallest: Any = self.min_step_size
        largest: Any = self.max_step_size
        grown = jnp.minimum(self.eta_plus * step_size, largest)
        shrunk = jnp.maximum(self.eta_minus * step_size, smallest)
        step_size = jnp.where(same, grown, jnp.where(changed, shrunk, step_size))
        new = jnp.where(changed, 0, new)
        return new * step_size, step_size, new
